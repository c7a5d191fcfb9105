package latencybudgetprocessor

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/latencybudget/latencybudget/internal/goldentest"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// start returns a running processor, which is shut down with the test.
func start(t testing.TB, config *Config, next consumer.Traces) processor.Traces {
	t.Helper()
	p, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(NewFactory().Type()), config, next)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func defaults() *Config { return createDefaultConfig().(*Config) }

// run sends traces through a processor and returns what comes out.
func run(t testing.TB, config *Config, traces ptrace.Traces) ptrace.Traces {
	t.Helper()
	sink := new(consumertest.TracesSink)
	if err := start(t, config, sink).ConsumeTraces(t.Context(), traces); err != nil {
		t.Fatal(err)
	}
	if len(sink.AllTraces()) != 1 {
		t.Fatalf("%d batches came out, want 1", len(sink.AllTraces()))
	}
	return sink.AllTraces()[0]
}

// golden compares got with testdata/stories/name.txt.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldentest.Compare(t, filepath.Join("testdata", "stories", name+".txt"), got)
}

func TestStories(t *testing.T) {
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			golden(t, name, show(run(t, defaults(), build(t, story))))
		})
	}
	t.Run("flagged event", func(t *testing.T) {
		config := defaults()
		config.FlaggedEvent = true
		golden(t, "flagged_event", show(run(t, config, build(t, stories["reset"]))))
	})
	t.Run("allowed", func(t *testing.T) {
		config := defaults()
		config.AllowDetached = []string{"nothing *", "sto?k GET *"}
		golden(t, "allowed", show(run(t, config, build(t, stories["expired"]))))
	})
}

// allStories is one batch of every story.
func allStories(t testing.TB) ptrace.Traces {
	t.Helper()
	var all [][]span
	for _, name := range slices.Sorted(maps.Keys(stories)) {
		all = append(all, stories[name])
	}
	return build(t, all...)
}

// What one trace gets does not depend on the others of its batch, nor on the
// order of spans in it.
func TestTracesOfABatchAreJudgedAlone(t *testing.T) {
	var want string
	for i, name := range slices.Sorted(maps.Keys(stories)) {
		alone := build(t, stories[name])
		for _, s := range eachSpan(alone) {
			id := s.TraceID()
			id[15] = byte(i + 1)
			s.SetTraceID(id)
		}
		want += show(run(t, defaults(), alone))
	}
	if diff := cmp.Diff(want, show(run(t, defaults(), allStories(t)))); diff != "" {
		t.Errorf("in one batch (-alone +together):\n%s", diff)
	}
}

// ours are the attributes that the processor may set.
var ours = []string{
	attr.RemainingStart, attr.RemainingEnd, attr.Utilization, attr.Consumed, attr.Source, attr.Limit, attr.Caller, attr.Callee,
	attr.Operation, attr.Attempt, attr.Partial, attr.WorkAfter, attr.Flags, attr.Findings, attr.Reset, attr.PlanRevision,
}

// rest is all of a batch that the processor may not touch.
func rest(t testing.TB, traces ptrace.Traces) string {
	t.Helper()
	plain := ptrace.NewTraces()
	traces.CopyTo(plain)
	var attrs []string
	for i, s := range eachSpan(plain) {
		var own []string // their order may change
		for k, v := range s.Attributes().All() {
			if !slices.Contains(ours, k) {
				own = append(own, fmt.Sprintf("%d %q %v %s", i, k, v.Type(), v.AsString()))
			}
		}
		slices.Sort(own)
		attrs = append(attrs, own...)
		s.Attributes().Clear()
	}
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(plain)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + strings.Join(attrs, "\n")
}

func TestNothingElseIsChanged(t *testing.T) {
	in := allStories(t)
	want := rest(t, in)
	if diff := cmp.Diff(want, rest(t, run(t, defaults(), in))); diff != "" {
		t.Errorf("-in +out:\n%s", diff)
	}
}

// Figures that a service has stamped are never replaced, whatever they say.
func TestStampsOfServicesStay(t *testing.T) {
	stamped := map[string]any{
		attr.Limit: 3.0, attr.RemainingStart: 2.5, attr.RemainingEnd: 2.25, attr.DeadlineRemaining: 2.75,
		attr.AnnouncedRemaining: 2.0, attr.AnnouncedFresh: true, attr.Source: attr.SourceHeaderRelative,
		attr.SourceHeaderName: "x-timeout-budget-ms", attr.Hop: int64(3),
	}
	out := eachSpan(run(t, defaults(), build(t, []span{{name: ">edge", start: 0, end: 10, attrs: stamped}})))[0]
	got := out.Attributes().AsRaw()
	for key, want := range stamped {
		if got[key] != want {
			t.Errorf("%s is %v, was %v", key, got[key], want)
		}
	}
}

// Services flag a reset at every hop that sees it. Metrics count findings, so only
// the hop that made it may have one.
func TestAResetIsFoundOnceHoweverManyServicesFlagIt(t *testing.T) {
	story := slices.Clone(stories["reset"])
	for i := 2; i < len(story); i++ { // the proxy and all below it
		story[i].attrs = maps.Clone(story[i].attrs)
		story[i].attrs[attr.Flags] = []any{attr.FlagDeadlineExtended}
	}
	var flagged, found []string
	for _, s := range eachSpan(run(t, defaults(), build(t, story))) {
		if _, ok := s.Attributes().Get(attr.Flags); ok {
			flagged = append(flagged, s.Name())
		}
		if _, ok := s.Attributes().Get(attr.Findings); ok {
			found = append(found, s.Name())
		}
	}
	if len(flagged) != 3 || len(found) != 1 || found[0] != flagged[0] {
		t.Errorf("flagged %q, found at %q: want three spans, and the first of them", flagged, found)
	}
}

// Two tiers of Collectors may both have the processor.
func TestASecondRunChangesNothing(t *testing.T) {
	config := defaults()
	config.FlaggedEvent = true
	once := show(run(t, config, allStories(t)))
	if diff := cmp.Diff(once, show(run(t, config, run(t, config, allStories(t))))); diff != "" {
		t.Errorf("-once +twice:\n%s", diff)
	}
}

// The Collector gives a processor that changes data a copy where another pipeline
// has the same data. The factory says that it does, and even where nobody copies,
// the data of the others stays as it is.
func TestSharedDataIsNotChanged(t *testing.T) {
	sink := new(consumertest.TracesSink)
	p := start(t, defaults(), sink)
	if !p.Capabilities().MutatesData {
		t.Error("the processor does not say that it changes data")
	}
	shared := allStories(t)
	before := show(shared)
	shared.MarkReadOnly()
	if err := p.ConsumeTraces(t.Context(), shared); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, show(shared)); diff != "" {
		t.Errorf("the shared data is changed (-before +after):\n%s", diff)
	}
	want := show(run(t, defaults(), allStories(t)))
	if diff := cmp.Diff(want, show(sink.AllTraces()[0])); diff != "" {
		t.Errorf("the copy (-of own data +of shared):\n%s", diff)
	}
}

// The second tier may see what the first did not, and have no plan.
func TestWhatDoesNotHoldIsTakenBackWhereTheWholeTraceIsSeen(t *testing.T) {
	for key, value := range map[string]any{attr.Partial: true, attr.Attempt: int64(2), attr.PlanRevision: "first", attr.Caller: "nobody", attr.Consumed: 0.5} {
		attrs := map[string]any{attr.RemainingStart: 0.1, key: value}
		out := eachSpan(run(t, defaults(), build(t, []span{{name: ">edge", start: 0, end: 10, attrs: attrs}})))[0]
		if v, set := out.Attributes().Get(key); set {
			t.Errorf("%s is %v", key, v.AsRaw())
		}
		if _, set := out.Attributes().Get(attr.Utilization); !set {
			t.Errorf("with %s the span is not judged", key)
		}
	}
}

// A second tier that sees more than the first, or sees a span twice, leaves one finding
// for each thing that is wrong, and none where nobody waits.
func TestFindingsAreTakenBackWhereTheWholeTraceIsSeen(t *testing.T) {
	part := func(s span) ptrace.Traces {
		s.under = gone
		return run(t, defaults(), build(t, []span{s}))
	}
	parts := func(story []span) ptrace.Traces {
		whole := ptrace.NewTraces()
		for i := range story {
			one := part(story[i])
			s := eachSpan(one)[0]
			var id pcommon.SpanID
			binary.BigEndian.PutUint64(id[:], uint64(i+1))
			s.SetSpanID(id)
			s.SetParentSpanID(pcommon.SpanID{})
			for k := range story {
				if story[k].name == story[i].under {
					binary.BigEndian.PutUint64(id[:], uint64(k+1))
					s.SetParentSpanID(id)
				}
			}
			one.ResourceSpans().MoveAndAppendTo(whole.ResourceSpans())
		}
		return whole
	}
	t.Run("detached", func(t *testing.T) {
		both := parts([]span{
			{name: ">edge", start: 0, end: 10, attrs: budget(100)},
			{name: "edge>mail", under: ">edge", start: 5, end: 9, attrs: map[string]any{attr.Detached: true}},
			{name: ">mail", under: "edge>mail", start: 6, end: 500, attrs: budget(94)},
		})
		if got := foundOn(both); len(got) != 3 { // utilization, overrun, work after
			t.Fatalf("alone: %q", got)
		}
		if got := foundOn(run(t, defaults(), both)); len(got) != 0 {
			t.Errorf("whole: %q", got)
		}
	})
	t.Run("twice", func(t *testing.T) {
		batch := part(span{name: ">edge", start: 0, end: 10, attrs: budget(0)})
		once := foundOn(batch)
		batch.ResourceSpans().At(0).CopyTo(batch.ResourceSpans().AppendEmpty())
		if diff := cmp.Diff(once, foundOn(run(t, defaults(), batch))); diff != "" {
			t.Errorf("-once +twice:\n%s", diff)
		}
	})
}

func TestConcurrentConsumeAndShutdown(t *testing.T) {
	sink := new(consumertest.TracesSink)
	p, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(NewFactory().Type()), defaults(), sink)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	want := show(run(t, defaults(), allStories(t)))
	const workers, rounds = 4, 25
	batches := make([]ptrace.Traces, workers*rounds)
	for i := range batches {
		batches[i] = allStories(t)
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for _, b := range batches[w*rounds : (w+1)*rounds] {
				if err := p.ConsumeTraces(context.Background(), b); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if err := p.Shutdown(t.Context()); err != nil { // while batches are still on their way
		t.Error(err)
	}
	wg.Wait()
	if len(sink.AllTraces()) != len(batches) {
		t.Errorf("%d batches came out, want %d", len(sink.AllTraces()), len(batches))
	}
	for _, got := range sink.AllTraces() {
		if diff := cmp.Diff(want, show(got)); diff != "" {
			t.Fatalf("-alone +beside others:\n%s", diff)
		}
	}
}
