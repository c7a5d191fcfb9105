package latencybudgetprocessor

import (
	"context"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.uber.org/zap"

	"github.com/latencybudget/latencybudget/processor/latencybudgetprocessor/internal/metadata"
)

// NewFactory returns the factory of the processor latency_budget.
func NewFactory() processor.Factory {
	return processor.NewFactory(metadata.Type, createDefaultConfig,
		processor.WithTraces(createTraces, metadata.TracesStability))
}

func createTraces(
	ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces,
) (processor.Traces, error) {
	config, ok := cfg.(*Config)
	if !ok {
		return nil, fmt.Errorf("latency_budget: configuration of type %T, want %T", cfg, config)
	}
	if config.UtilizationThreshold > 1 {
		set.Logger.Warn("utilization_threshold is more than 1: only spans over their budget are flagged",
			zap.Float64("utilization_threshold", config.UtilizationThreshold))
	}
	p, err := newBudgetProcessor(config, set)
	if err != nil {
		return nil, err
	}
	return processorhelper.NewTraces(ctx, set, cfg, next, p.processTraces,
		processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		processorhelper.WithStart(p.start),
		processorhelper.WithShutdown(p.shutdown))
}
