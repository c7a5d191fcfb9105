package latencybudgetprocessor

import (
	"bytes"
	"testing"

	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/internal/tracegen"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// drawnBatch is a batch of whole traces as a shop makes them, 15.5 spans each. With
// left > 0 their SERVER and CLIENT spans carry what is stamped on a request that
// has so much left at its start, in ns.
func drawnBatch(t testing.TB, traces int, left int64) ptrace.Traces {
	t.Helper()
	var text bytes.Buffer
	if _, err := tracegen.Stream(&text, tracegen.StreamConfig{Seed: 1, Traces: traces, Append: tracegen.AppendOTLPJSONLines}); err != nil {
		t.Fatal(err)
	}
	batch := ptrace.NewTraces()
	for line := range bytes.Lines(text.Bytes()) {
		part, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		if err != nil {
			t.Fatal(err)
		}
		part.ResourceSpans().MoveAndAppendTo(batch.ResourceSpans())
	}
	if left == 0 {
		return batch
	}
	starts := make(map[[16]byte]int64)
	for _, s := range eachSpan(batch) {
		id, start := s.TraceID(), int64(s.StartTimestamp())
		if known, ok := starts[id]; !ok || start < known {
			starts[id] = start
		}
	}
	for _, s := range eachSpan(batch) {
		if s.Kind() != ptrace.SpanKindServer && s.Kind() != ptrace.SpanKindClient {
			continue
		}
		remaining := float64(left-(int64(s.StartTimestamp())-starts[s.TraceID()])) / 1e9
		s.Attributes().PutDouble(attr.Limit, float64(left)/1e9)
		s.Attributes().PutDouble(attr.RemainingStart, remaining)
		s.Attributes().PutDouble(attr.DeadlineRemaining, remaining)
		s.Attributes().PutStr(attr.Source, attr.SourceContext)
	}
	return batch
}

// The comparison with other components is in bench/.
func BenchmarkConsumeTraces(b *testing.B) {
	for name, left := range map[string]int64{"no budget": 0, "stamped": 100e9, "all too slow": 30e6} {
		b.Run(name, func(b *testing.B) {
			in := drawnBatch(b, 645, left)
			p := start(b, defaults(), consumertest.NewNop())
			spans := in.SpanCount()
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				batch := ptrace.NewTraces()
				in.CopyTo(batch)
				b.StartTimer()
				if err := p.ConsumeTraces(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*spans), "ns/span")
		})
	}
}
