package latencybudgetprocessor

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/processor/latencybudgetprocessor/internal/metadata"
)

// source is what the budget of a judged span was known from. The names must match
// the enum in metadata.yaml.
type source uint8

const (
	sourceStamped source = iota // latency_budget.remaining.start is on the span
	sourceDerived               // something else on the span says it
	sourcePlan                  // the plan file alone
	sourceTiming                // no budget, but its times say enough for a flag
	sources
)

var sourceNames = [sources]string{"stamped", "derived", "plan", "timing"}

// reason is why a span was not judged. The names must match the enum in metadata.yaml.
type reason uint8

const (
	reasonNoBudget   reason = iota // nothing says what was left
	reasonNoDuration               // no start, no end, or an end before the start
	reasonNoID                     // the trace id or the span id is zero
	reasonDetached                 // nobody waits for it
	reasonStream                   // its duration is a lifetime
	reasonDuplicate                // its ids are those of another span of the batch, which was judged
	reasons
)

var reasonNames = [reasons]string{"no_budget", "no_duration", "no_id", "detached", "stream", "duplicate"}

// flagging are the rules that flag spans; a bit of a flag set is an index into it.
var flagging = func() (rules []*finding.Rule) {
	for _, r := range finding.Rules() {
		if r.Flag != "" {
			rules = append(rules, r)
		}
	}
	return rules
}()

// counts is what happened in one batch.
type counts struct {
	judged     [sources]int64
	unjudged   [reasons]int64
	parentless int64
	flags      [32]int64 // by rule, as in flagging
}

// telemetry adds counts to the processor's own metrics.
type telemetry struct {
	builder  *metadata.TelemetryBuilder
	judged   [sources]metric.MeasurementOption
	unjudged [reasons]metric.MeasurementOption
	flags    []metric.MeasurementOption
}

func newTelemetry(builder *metadata.TelemetryBuilder) *telemetry {
	with := func(key, value string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
	}
	t := &telemetry{builder: builder}
	for i, name := range sourceNames {
		t.judged[i] = with("source", name)
	}
	for i, name := range reasonNames {
		t.unjudged[i] = with("reason", name)
	}
	for _, r := range flagging {
		t.flags = append(t.flags, with("flag", r.Flag))
	}
	return t
}

func (t *telemetry) record(ctx context.Context, c *counts) {
	add := func(counter metric.Int64Counter, n int64, of ...metric.AddOption) {
		if n > 0 {
			counter.Add(ctx, n, of...)
		}
	}
	for i, n := range c.judged {
		add(t.builder.ProcessorLatencyBudgetSpansJudged, n, t.judged[i])
	}
	for i, n := range c.unjudged {
		add(t.builder.ProcessorLatencyBudgetSpansUnjudged, n, t.unjudged[i])
	}
	add(t.builder.ProcessorLatencyBudgetSpansParentless, c.parentless)
	for i, of := range t.flags {
		add(t.builder.ProcessorLatencyBudgetFlags, c.flags[i], of)
	}
}

func (t *telemetry) shutdown() { t.builder.Shutdown() }
