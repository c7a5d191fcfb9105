package latencybudgetprocessor

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// The processor flags exactly the spans that the rules name when budgetctl runs them.
func TestFlagsAreTheFindingsOfTheRules(t *testing.T) {
	for name, in := range map[string]ptrace.Traces{
		"stories":      allStories(t),
		"fast":         drawnBatch(t, 50, 100e9),
		"all too slow": drawnBatch(t, 50, 30e6),
		"some late":    drawnBatch(t, 50, 100e6),
	} {
		t.Run(name, func(t *testing.T) {
			want := findings(t, in)
			if name != "fast" && len(want) == 0 {
				t.Error("nothing is found: the test shows nothing")
			}
			out := run(t, defaults(), in)
			if diff := cmp.Diff(want, findings(t, out)); diff != "" {
				t.Errorf("budgetctl finds other things behind the processor (-before +behind):\n%s", diff)
			}
			if diff := cmp.Diff(want, foundOn(out)); diff != "" {
				t.Errorf("-rules +processor:\n%s", diff)
			}
		})
	}
}

// findings are those of the rules alone in the file that a Collector writes.
func findings(t *testing.T, in ptrace.Traces) []string {
	t.Helper()
	return findingsInFile(t, in, "otlp-proto", nil, nil)
}

// Spans and batches that nobody should make, and somebody does.
func TestOddSpansPass(t *testing.T) {
	odd := map[string]func(s ptrace.Span){
		"no ids":           func(s ptrace.Span) { s.SetTraceID(pcommon.TraceID{}); s.SetSpanID(pcommon.SpanID{}) },
		"end before start": func(s ptrace.Span) { s.SetEndTimestamp(s.StartTimestamp() - 1) },
		"no end":           func(s ptrace.Span) { s.SetEndTimestamp(0) },
		"no start":         func(s ptrace.Span) { s.SetStartTimestamp(0) },
		"huge times":       func(s ptrace.Span) { s.SetStartTimestamp(math.MaxUint64 - 5); s.SetEndTimestamp(math.MaxUint64) },
		"huge duration":    func(s ptrace.Span) { s.SetStartTimestamp(1); s.SetEndTimestamp(math.MaxUint64) },
		"own parent":       func(s ptrace.Span) { s.SetParentSpanID(s.SpanID()) },
		"unknown kind":     func(s ptrace.Span) { s.SetKind(99) },
		"no attributes":    func(s ptrace.Span) { s.Attributes().Clear() },
		"wrong types": func(s ptrace.Span) {
			for _, key := range append(slices.Clone(ours), attr.DeadlineRemaining, attr.AnnouncedRemaining, "error.type", "http.route") {
				s.Attributes().PutEmptyMap(key).PutEmptySlice("x").AppendEmpty().SetInt(1)
			}
		},
		"huge values": func(s ptrace.Span) {
			for i, key := range []string{attr.Limit, attr.RemainingStart, attr.DeadlineRemaining} {
				s.Attributes().PutDouble(key, []float64{math.Inf(1), -math.MaxFloat64, math.NaN()}[i])
			}
		},
		"flags of other types": func(s ptrace.Span) {
			s.Attributes().PutDouble(attr.RemainingStart, 0)
			flags := s.Attributes().PutEmptySlice(attr.Flags)
			flags.AppendEmpty().SetInt(7)
			flags.AppendEmpty()
			flags.AppendEmpty().SetStr("of_somebody_else")
		},
	}
	for name, change := range odd {
		t.Run(name, func(t *testing.T) {
			in := build(t, stories["serial"], stories["expired"])
			for _, s := range eachSpan(in)[3:5] {
				change(s)
			}
			want := rest(t, in)
			if diff := cmp.Diff(want, rest(t, run(t, defaults(), in))); diff != "" {
				t.Errorf("-in +out:\n%s", diff)
			}
		})
	}
	t.Run("empty", func(t *testing.T) {
		if out := run(t, defaults(), ptrace.NewTraces()); out.SpanCount() != 0 {
			t.Error("spans came from nowhere")
		}
	})
	t.Run("flags of somebody else stay", func(t *testing.T) {
		in := build(t, []span{{name: ">edge", start: 0, end: 10, attrs: with(budget(0), attr.Flags, []any{"of_somebody_else", int64(7)})}})
		got, _ := eachSpan(run(t, defaults(), in))[0].Attributes().Get(attr.Flags)
		if diff := cmp.Diff([]any{"exhausted_at_start", "of_somebody_else", "work_after_deadline"}, got.Slice().AsRaw()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// A batch may hold many spans of one trace and none of their parents, or one call that was
// tried very often: each span costs what lies below it.
func TestManyPartsOfOneTraceTakeLinearTime(t *testing.T) {
	const n = 40_000
	spanID := func(i int) (id pcommon.SpanID) {
		binary.BigEndian.PutUint32(id[:], uint32(i+1))
		return id
	}
	many := func(kind ptrace.SpanKind, each func(i int, s ptrace.Span)) []ptrace.Span {
		traces := ptrace.NewTraces()
		spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		spans.EnsureCapacity(n)
		for i := range n {
			s := spans.AppendEmpty()
			s.SetTraceID(pcommon.TraceID{1})
			s.SetSpanID(spanID(i))
			s.SetKind(kind)
			s.SetStartTimestamp(at(0))
			s.SetEndTimestamp(at(90))
			s.Attributes().PutDouble(attr.RemainingStart, 0.1)
			each(i, s)
		}
		return eachSpan(run(t, defaults(), traces))
	}
	for _, s := range many(ptrace.SpanKindServer, func(_ int, s ptrace.Span) { s.SetParentSpanID(pcommon.SpanID{7: 1}) }) {
		if _, flagged := s.Attributes().Get(attr.Flags); !flagged {
			t.Fatalf("%s: %v", s.SpanID(), s.Attributes().AsRaw())
		}
	}
	for i, s := range many(ptrace.SpanKindClient, func(i int, s ptrace.Span) {
		if i > 0 {
			s.SetParentSpanID(spanID(0))
			s.SetStartTimestamp(at(0) + pcommon.Timestamp(2*i))
			s.SetEndTimestamp(at(0) + pcommon.Timestamp(2*i+1))
		}
	}) {
		if number, _ := s.Attributes().Get(attr.Attempt); i > 0 && number.Int() != int64(i) {
			t.Fatalf("attempt %d: %v", i, s.Attributes().AsRaw())
		}
	}
}

// The SDK stops at 128 attributes; what the processor adds comes on top.
func TestASpanWithAllAttributesItMayHaveIsJudged(t *testing.T) {
	in := build(t, []span{{name: ">edge", start: 0, end: 90, attrs: budget(100)}})
	attrs := eachSpan(in)[0].Attributes()
	for i := attrs.Len(); i < 128; i++ {
		attrs.PutInt(fmt.Sprint("app.n", i), int64(i))
	}
	out := eachSpan(run(t, defaults(), in))[0].Attributes()
	flags, _ := out.Get(attr.Flags)
	if out.Len() != 128+7 || flags.AsString() != `["budget_utilization"]` {
		t.Errorf("%d attributes, flags %s", out.Len(), flags.AsString())
	}
}

// A span that comes twice is judged once, and one that comes late, in a batch of
// its own, is judged alone: its trace is not judged a second time.
func TestLateSpansAndDuplicatesAreNotCountedTwice(t *testing.T) {
	twice := build(t, stories["serial"])
	twice.ResourceSpans().At(0).CopyTo(twice.ResourceSpans().AppendEmpty())
	want := findings(t, build(t, stories["serial"]))
	if diff := cmp.Diff(want, foundOn(run(t, defaults(), twice))); diff != "" {
		t.Errorf("twice (-once +twice):\n%s", diff)
	}

	story := stories["serial"]
	late := slices.Clone(story[4:6]) // the call to risk
	late[0].under = gone
	golden(t, "late", show(run(t, defaults(), build(t, late))))
}

// A service whose handler uses context.Background(): its calls are traces of their
// own, which only time connects with the request.
//
//	>edge    |------------|  |------------|  |------------|
//	edge>a      |----|          |----|          |----|        five requests
func TestCallsThatBeganTracesOfTheirOwnAreFound(t *testing.T) {
	var batch [][]span
	for i := range 5 {
		at := 100 * float64(i)
		batch = append(batch,
			[]span{{name: ">edge", start: at, end: at + 50, attrs: budget(300)}},
			[]span{{name: "edge>stock", start: at + 10, end: at + 40, attrs: budget(1000)}})
	}
	config := defaults()
	flagged := func(in ptrace.Traces) (n int) {
		for _, s := range eachSpan(run(t, config, in)) {
			if found, ok := s.Attributes().Get(attr.Findings); ok && found.AsString() == `["trace_restarted"]` && s.Name() == ">edge" {
				n++
			}
		}
		return n
	}
	if got := flagged(build(t, batch...)); got != 5 {
		t.Errorf("%d requests are flagged, want 5", got)
	}
	if got := flagged(build(t, batch[:8]...)); got != 0 {
		t.Errorf("four may be chance, but %d requests are flagged", got)
	}
	config.AllowDetached = []string{"stock *"}
	if got := flagged(build(t, batch...)); got != 0 {
		t.Errorf("they are allowed, but %d requests are flagged", got)
	}
}

func TestHopNamesAreBounded(t *testing.T) {
	config := defaults()
	config.MaxHops = 3
	var story []span
	for i := range 50 {
		story = append(story, span{name: fmt.Sprintf(">s%d", i), start: float64(i), end: float64(i) + 1, attrs: budget(100)})
	}
	names := make(map[string]int)
	for _, s := range eachSpan(run(t, config, build(t, story))) {
		callee, _ := s.Attributes().Get(attr.Callee)
		operation, _ := s.Attributes().Get(attr.Operation)
		names[callee.Str()+" "+operation.Str()]++
	}
	want := map[string]int{"s0 GET /op": 1, "s1 GET /op": 1, "s2 GET /op": 1, "_other _other": 47}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a hop is called becomes a label: it is UTF-8, and not a whole statement.
func TestHopNamesMakeLabels(t *testing.T) {
	for name, want := range map[string]string{
		"支付服务": "支付服务", "\xffa\xfe": "\ufffda\ufffd", strings.Repeat("x", 1000): strings.Repeat("x", 1000),
		strings.Repeat("x", 1025): "_other",
	} {
		in := build(t, []span{{name: ">edge", start: 0, end: 10, attrs: budget(100)}})
		eachSpan(in)[0].Attributes().Remove("http.route")
		eachSpan(in)[0].SetName(name)
		if got, _ := eachSpan(run(t, defaults(), in))[0].Attributes().Get(attr.Operation); got.Str() != want {
			t.Errorf("%q is called %q, want %q", name, got.Str(), want)
		}
	}
}

func FuzzConsumeTraces(f *testing.F) {
	seed, err := (&ptrace.JSONMarshaler{}).MarshalTraces(allStories(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	names, err := filepath.Glob("../../testdata/*/trace.otlp.json")
	if err != nil || len(names) == 0 {
		f.Fatalf("%d seeds: %v", len(names), err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for seed := range uint64(8) {
		proto, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(hostileBatch(f, rand.New(rand.NewPCG(seed, 17)), 1))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(proto)
	}
	config := defaults()
	config.BudgetsFile = filepath.Join("testdata", "plan.yaml")
	sink := new(consumertest.TracesSink)
	judging, planned := start(f, defaults(), sink), start(f, config, sink)
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(text)
		if err != nil {
			in, err = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(text)
		}
		if err != nil {
			return
		}
		want := rest(t, in)
		sink.Reset()
		for _, p := range []consumer.Traces{judging, planned} {
			if err := p.ConsumeTraces(t.Context(), clone(in)); err != nil {
				t.Fatal(err)
			}
			once := sink.AllTraces()[len(sink.AllTraces())-1]
			first := foundOn(once)
			if err := p.ConsumeTraces(t.Context(), once); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(first, foundOn(once)); diff != "" {
				t.Errorf("-once +twice:\n%s\n%s", diff, asJSON(t, in))
			}
		}
		for _, out := range sink.AllTraces() {
			if got := rest(t, out); got != want {
				t.Errorf("in\n%s\nout\n%s", strings.TrimSpace(want), got)
			}
		}
	})
}
