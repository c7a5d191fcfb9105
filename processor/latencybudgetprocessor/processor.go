package latencybudgetprocessor

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"

	"github.com/latencybudget/latencybudget/processor/latencybudgetprocessor/internal/metadata"
)

// budgetProcessor keeps nothing of the spans that pass it but the names of hops.
type budgetProcessor struct {
	config    *Config
	telemetry *telemetry
	names     *hopNames
	plan      *planFile
	judges    sync.Pool // of *judge: one for each batch in work
}

func newBudgetProcessor(config *Config, set processor.Settings) (*budgetProcessor, error) {
	remaining, err := config.remaining()
	if err != nil {
		return nil, fmt.Errorf("latency_budget: remaining_attributes: %w", err)
	}
	builder, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("latency_budget: own metrics: %w", err)
	}
	p := &budgetProcessor{
		config:    config,
		telemetry: newTelemetry(builder),
		names:     newHopNames(config.MaxHops),
	}
	if config.BudgetsFile != "" {
		p.plan = &planFile{
			name: config.BudgetsFile, logger: set.Logger,
			failed: func() { builder.ProcessorLatencyBudgetPlanReloadFailures.Add(context.Background(), 1) },
		}
	}
	p.judges.New = func() any { return newJudge(p.config, remaining, p.names) }
	return p, nil
}

func (p *budgetProcessor) start(context.Context, component.Host) error { return p.plan.start() }

func (p *budgetProcessor) shutdown(ctx context.Context) error {
	err := p.plan.close(ctx)
	p.telemetry.shutdown()
	return err
}

// mostKept is the number of spans in a batch from which buffers are not kept for the
// next: one such batch would take its memory, some 400 bytes a span, for good.
const mostKept = 1 << 16

// processTraces judges the spans of a batch where they stand. It never returns an
// error: what cannot be judged is passed on as it came.
func (p *budgetProcessor) processTraces(ctx context.Context, traces ptrace.Traces) (ptrace.Traces, error) {
	if traces.IsReadOnly() {
		// The Collector copies for processors that change data, such as this one. A
		// caller that does not must not see its data changed, nor a panic.
		own := ptrace.NewTraces()
		traces.CopyTo(own)
		traces = own
	}
	j := p.judges.Get().(*judge)
	counts := j.judge(traces, p.plan.current())
	if traces.SpanCount() <= mostKept {
		p.judges.Put(j)
	}
	p.telemetry.record(ctx, &counts)
	return traces, nil
}
