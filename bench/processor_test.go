//go:build unix

package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/spanmetricsconnector"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/attributesprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
	"github.com/latencybudget/latencybudget/processor/latencybudgetprocessor"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// batchSpans is the number of spans of a batch.
const batchSpans = 10_000

// plainBatch is a batch of whole traces of [tracegen.Stream], as pdata reads it.
func plainBatch(b testing.TB) ptrace.Traces {
	b.Helper()
	dir := b.TempDir()
	name := dir + "/batch.jsonl"
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := tracegen.Stream(file, tracegen.StreamConfig{
		Seed: 1, Traces: batchSpans * 2 / 31, Append: tracegen.AppendOTLPJSONLines,
	}); err != nil {
		b.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	batch := ptrace.NewTraces()
	info := pdataFile{name: name}
	for traces, err := range info.messages(new(trace.File)) {
		if err != nil {
			b.Fatal(err)
		}
		traces.ResourceSpans().MoveAndAppendTo(batch.ResourceSpans())
	}
	return batch
}

// stamp sets what package propagation stamps on the SERVER and CLIENT spans of one
// trace in every, whose requests have left ns at their starts.
func stamp(batch ptrace.Traces, every int, left int64) {
	starts := make(map[[16]byte]int64)
	each(batch, func(s ptrace.Span) {
		id, start := s.TraceID(), int64(s.StartTimestamp())
		if known, ok := starts[id]; !ok || start < known {
			starts[id] = start
		}
	})
	each(batch, func(s ptrace.Span) {
		id := s.TraceID()
		if s.Kind() != ptrace.SpanKindServer && s.Kind() != ptrace.SpanKindClient || int(id[15])%every != 0 {
			return
		}
		remaining := float64(left-(int64(s.StartTimestamp())-starts[s.TraceID()])) / 1e9
		s.Attributes().PutDouble(attr.Limit, float64(left)/1e9)
		s.Attributes().PutDouble(attr.RemainingStart, remaining)
		s.Attributes().PutDouble(attr.DeadlineRemaining, remaining)
		s.Attributes().PutStr(attr.Source, attr.SourceContext)
	})
}

func each(batch ptrace.Traces, visit func(ptrace.Span)) {
	for _, resource := range batch.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				visit(s)
			}
		}
	}
}

func copyOf(batch ptrace.Traces) ptrace.Traces {
	out := ptrace.NewTraces()
	batch.CopyTo(out)
	return out
}

// running starts a component, which is shut down with the benchmark.
func running[C component.Component](b testing.TB, c C, err error) C {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(b.Context(), componenttest.NewNopHost()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Shutdown(b.Context()); err != nil {
			b.Error(err)
		}
	})
	return c
}

// attributesOf counts the attributes of the spans of a batch.
func attributesOf(batch ptrace.Traces) (n int) {
	each(batch, func(s ptrace.Span) { n += s.Attributes().Len() })
	return n
}

// BenchmarkProcessor compares the processor with components of the Collector that
// people know, on the same batch. Where no trace carries a budget, and where every
// third one does, it must cost no more than three actions of the attributes
// processor. Where all do, it reads every span, judges every trace and sets more
// than twice as many attributes: there it must cost no more for each of them.
//
// Whether a collection of garbage falls into a run hangs on a few bytes, so none
// does. What it costs is added by the bytes that were allocated: with the usual
// setting there is one whenever as much was allocated as is alive.
func BenchmarkProcessor(b *testing.B) {
	plain := plainBatch(b)
	third, healthy, over := copyOf(plain), copyOf(plain), copyOf(plain)
	stamp(third, 3, 100e9)
	stamp(healthy, 1, 100e9)
	stamp(over, 1, 30e6)
	spans := plain.SpanCount()

	processorOf := func(f processor.Factory, config map[string]any) consumer.Traces {
		cfg := f.CreateDefaultConfig()
		if err := confmap.NewFromStringMap(config).Unmarshal(cfg); err != nil {
			b.Fatal(err)
		}
		p, err := f.CreateTraces(b.Context(), processortest.NewNopSettings(f.Type()), cfg, consumertest.NewNop())
		return running(b, p, err)
	}
	ours := processorOf(latencybudgetprocessor.NewFactory(), nil)
	actions := []any{
		map[string]any{"key": "environment", "value": "production", "action": "insert"},
		map[string]any{"key": "budget", "value": 0.8, "action": "upsert"},
		map[string]any{"key": "route", "from_attribute": "http.route", "action": "insert"},
		map[string]any{"key": "team", "value": "checkout", "action": "insert"},
		map[string]any{"key": "share", "value": 0.5, "action": "upsert"},
		map[string]any{"key": "method", "from_attribute": "http.request.method", "action": "insert"},
	}
	attributes := processorOf(attributesprocessor.NewFactory(), map[string]any{"actions": actions[:3]})
	asMany := processorOf(attributesprocessor.NewFactory(), map[string]any{"actions": actions})
	f := spanmetricsconnector.NewFactory()
	connector, err := f.CreateTracesToMetrics(b.Context(), connectortest.NewNopSettings(f.Type()), f.CreateDefaultConfig(), consumertest.NewNop())
	spanMetrics := running(b, connector, err)

	variants := []struct {
		name string
		to   consumer.Traces
		in   ptrace.Traces
		over int // index of the variant to compare with
	}{
		{"attributes, 3 actions: no budget", attributes, plain, 0},
		{"latency_budget: no budget", ours, plain, 0},
		{"span_metrics: no budget", spanMetrics, plain, 0},
		{"attributes, 3 actions: all stamped", attributes, healthy, 3},
		{"latency_budget: all stamped", ours, healthy, 3},
		{"span_metrics: all stamped", spanMetrics, healthy, 3},
		{"attributes, 3 actions: stamped, all too slow", attributes, over, 6},
		{"latency_budget: stamped, all too slow", ours, over, 6},
		{"attributes, 6 actions: all stamped", asMany, healthy, 3},
		{"attributes, 3 actions: a third stamped", attributes, third, 9},
		{"latency_budget: a third stamped", ours, third, 9},
	}
	set := make([]float64, len(variants)) // attributes for each span
	for i, v := range variants {
		if v.to == spanMetrics {
			continue
		}
		batch := copyOf(v.in)
		if err := v.to.ConsumeTraces(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		set[i] = float64(attributesOf(batch)-attributesOf(v.in)) / float64(spans)
	}
	const copies = 8 // one batch is too short to be measured
	calls := make([]func(), len(variants))
	made := make([][]ptrace.Traces, len(variants))
	for i, v := range variants {
		calls[i] = func() {
			for _, batch := range made[i] {
				if err := v.to.ConsumeTraces(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runs := make([][]run, len(variants))
	garbage := make([][]run, len(variants))
	for range moreRounds {
		for i, v := range variants {
			made[i] = made[i][:0]
			for range copies {
				made[i] = append(made[i], copyOf(v.in))
			}
			pair := interleave(1, calls[i], runtime.GC)
			var alive runtime.MemStats
			runtime.ReadMemStats(&alive)
			made[i] = nil
			r, gc := pair[0][0], pair[1][0]
			gc.cpu = time.Duration(float64(gc.cpu) * float64(r.bytes) / float64(alive.HeapAlloc))
			r.cpu += gc.cpu
			runs[i], garbage[i] = append(runs[i], r), append(garbage[i], gc)
		}
	}
	rows := [][]string{{"on one batch", "CPU ns/span", "of it GC", "allocs/span", "B/span", "set/span", "x attributes"}}
	for i, v := range variants {
		n := float64(copies * spans)
		nanoseconds := func(r run) float64 { return float64(r.cpu.Nanoseconds()) / n }
		rows = append(rows, []string{
			v.name,
			perRound(runs[i], nanoseconds).String(),
			fmt.Sprintf("%.0f", perRound(garbage[i], nanoseconds).median()),
			fmt.Sprintf("%.2f", perRound(runs[i], func(r run) float64 { return float64(r.allocs) / n }).median()),
			fmt.Sprintf("%.0f", perRound(runs[i], func(r run) float64 { return float64(r.bytes) / n }).median()),
			fmt.Sprintf("%.2f", set[i]),
			ratio(cpuSeconds, runs[i], runs[v.over]).String(),
		})
	}
	b.Logf("%d spans\n%s", spans, table(rows))
	atMost(1).assert(b, ratio(cpuSeconds, runs[1], runs[0]), "x-attributes-without-budget")
	atMost(1).assert(b, ratio(cpuSeconds, runs[10], runs[9]), "x-attributes-third-stamped")
	atMost(2).assert(b, ratio(cpuSeconds, runs[4], runs[3]), "x-attributes-all-stamped")
	forEach := ratio(cpuSeconds, runs[4], runs[3])
	for i := range forEach {
		forEach[i] *= set[3] / set[4]
	}
	atMost(1).assert(b, forEach, "x-attributes-for-each-set")
}
