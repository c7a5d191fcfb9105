package latencybudgetprocessor

import (
	"context"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/latencybudget/latencybudget/processor/latencybudgetprocessor/internal/metadatatest"
)

// Counters move only on what has really happened to spans.
func TestOwnTelemetry(t *testing.T) {
	tel := componenttest.NewTelemetry()
	defer func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	p, err := NewFactory().CreateTraces(t.Context(), metadatatest.NewSettings(tel), defaults(), consumertest.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	traces := build(t, stories["serial"], stories["reset"], stories["partial"], stories["plain"], stories["detached"], stories["stream"], []span{
		{name: ">edge", start: 10, end: 0, attrs: budget(100)},
		{name: "edge>stock", start: 0, end: 10, attrs: budget(100)},
	}, []span{{name: ">lost", start: 0, end: 10, attrs: budget(1)}}, []span{
		{name: ">edge", start: 0, end: 10, attrs: budget(100)},
		{name: ">edge#twice", start: 0, end: 10, attrs: budget(100)},
	})
	for _, s := range eachSpan(traces) {
		if s.Name() == ">lost" {
			s.SetSpanID(pcommon.SpanID{})
		}
		if s.Name() == ">edge#twice" {
			s.SetSpanID(pcommon.SpanID{7: 1}) // that of >edge
		}
	}
	if err := p.ConsumeTraces(t.Context(), traces); err != nil {
		t.Fatal(err)
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}

	points := func(key string, values map[string]int64) (out []metricdata.DataPoint[int64]) {
		for value, n := range values {
			p := metricdata.DataPoint[int64]{Value: n}
			if key != "" {
				p.Attributes = attribute.NewSet(attribute.String(key, value))
			}
			out = append(out, p)
		}
		return out
	}
	same := metricdatatest.IgnoreTimestamp()
	metadatatest.AssertEqualProcessorLatencyBudgetSpansJudged(t, tel,
		points("source", map[string]int64{"stamped": 7 + 5 + 1 + 1 + 4 + 1 + 1, "derived": 1, "timing": 1}), same)
	metadatatest.AssertEqualProcessorLatencyBudgetSpansUnjudged(t, tel,
		points("reason", map[string]int64{"no_budget": 1 + 2, "no_duration": 1, "no_id": 1, "detached": 2, "stream": 4, "duplicate": 1}), same)
	metadatatest.AssertEqualProcessorLatencyBudgetSpansParentless(t, tel, points("", map[string]int64{"": 1}), same)
	metadatatest.AssertEqualProcessorLatencyBudgetFlags(t, tel,
		points("flag", map[string]int64{"budget_utilization": 2 + 2, "deadline_extended": 1, "call_after_deadline": 1, "exhausted_at_start": 1}), same)
}
