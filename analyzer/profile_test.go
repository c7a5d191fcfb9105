package analyzer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// input is a source in memory: spans, or a profile.
type input struct {
	spans   []trace.Span
	profile []byte
}

// Batches implements trace.Source.
func (in input) Batches(context.Context) iter.Seq2[trace.Batch, error] {
	return func(yield func(trace.Batch, error) bool) {
		yield(trace.Batch{File: &trace.File{Name: "test"}, Spans: slices.Clone(in.spans), Profile: in.profile}, nil)
	}
}

// spansOf reads the spans of a file or folder.
func spansOf(t *testing.T, path string) []trace.Span {
	t.Helper()
	src, err := source.Open([]string{path}, strings.NewReader(""), source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return drain(t, src)
}

func drain(t *testing.T, src trace.Source) (spans []trace.Span) {
	t.Helper()
	for batch, err := range src.Batches(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		spans = append(spans, batch.Spans...)
	}
	return spans
}

// drawn are the spans of n requests of a model.
func drawn(t *testing.T, model *tracegen.Node, n int) []trace.Span {
	t.Helper()
	spans := tracegen.Draw(model, tracegen.DrawConfig{
		Seed: 7, Traces: n, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Every: time.Second,
	})
	src, err := source.Open([]string{"-"}, bytes.NewReader(tracegen.AppendOTLPJSONLines(nil, spans)), source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return drain(t, src)
}

func profiled(t *testing.T, sample int, inputs ...trace.Source) *profile.File {
	t.Helper()
	f, _, err := analyzer.Profile(context.Background(), analyzer.Config{Sample: sample}, inputs...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// analysed is the report as JSON, without the list of files.
func analysed(t *testing.T, c analyzer.Config, inputs ...trace.Source) string {
	t.Helper()
	r, err := analyzer.Analyze(context.Background(), c, inputs...)
	if err != nil {
		t.Fatal(err)
	}
	r.Input.Files = nil
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// dealt spreads spans over n inputs; those with equal keys stay together.
func dealt[K comparable](rng *rand.Rand, n int, spans []trace.Span, key func(i int) K) []input {
	parts, at := make([]input, n), make(map[K]int)
	for i, s := range spans {
		k := key(i)
		if _, ok := at[k]; !ok {
			at[k] = rng.IntN(n)
		}
		parts[at[k]].spans = append(parts[at[k]].spans, s)
	}
	return slices.DeleteFunc(parts, func(in input) bool { return len(in.spans) == 0 })
}

// merged merges inputs in a random tree until at most n are left.
func merged(t *testing.T, rng *rand.Rand, n, sample int, parts []input) []trace.Source {
	t.Helper()
	rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for len(parts) > n {
		k := min(len(parts), 1+rng.IntN(3))
		var some []trace.Source
		for _, p := range parts[:k] {
			some = append(some, p)
		}
		parts = append(parts[k:], input{profile: profiled(t, sample, some...).Encode()})
	}
	out := make([]trace.Source, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return out
}

func stories(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("../testdata/*/trace.*")
	if err != nil || len(found) < 20 {
		t.Fatalf("%d stories: %v", len(found), err)
	}
	return found
}

// TestAProfileOfFewTracesStandsForThem spreads the spans of each story over
// profiles, even those of one trace, and merges them in random trees, with spans
// left beside them: the report is that of the spans, byte for byte.
func TestAProfileOfFewTracesStandsForThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, story := range stories(t) {
		t.Run(story, func(t *testing.T) {
			spans := spansOf(t, story)
			for _, c := range []analyzer.Config{{}, {Unweighted: true, Steps: true, Budgets: []analyzer.EndpointBudget{{Budget: 50e6}}}} {
				want := analysed(t, c, input{spans: spans})
				for range 3 {
					parts := dealt(rng, 1+rng.IntN(4), spans, func(i int) int { return i })
					got := analysed(t, c, merged(t, rng, 1+rng.IntN(3), 0, parts)...)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("profiles (-spans +profiles):\n%s", diff)
					}
				}
			}
		})
	}
}

// TestMergedProfilesAreTheProfileOfAll merges profiles of all stories, of which
// only a few traces are kept, in random trees: the bytes are those of the profile
// of everything at once.
func TestMergedProfilesAreTheProfileOfAll(t *testing.T) {
	var spans []trace.Span
	for _, story := range stories(t) {
		spans = append(spans, spansOf(t, story)...)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for range 8 {
		sample := 1 + rng.IntN(60)
		want := profiled(t, sample, input{spans: spans})
		if want.Whole() {
			t.Fatalf("a sample of %d holds everything", sample)
		}
		// Some spans have only the low half of their trace's id.
		trace := func(i int) [8]byte { return [8]byte(spans[i].TraceID[8:]) }
		parts := merged(t, rng, 1, sample, dealt(rng, 1+rng.IntN(6), spans, trace))
		if got := profiled(t, sample, parts...); !bytes.Equal(want.Encode(), got.Encode()) {
			t.Fatalf("sample %d: the merged profile has %d of %d traces and %d bytes, the whole one %d of %d and %d", sample,
				got.Kept(), got.Traces(), len(got.Encode()), want.Kept(), want.Traces(), len(want.Encode()))
		}
		again, err := profile.DecodeFile(want.Encode())
		if err != nil || !bytes.Equal(again.Encode(), want.Encode()) {
			t.Fatalf("read and written again it differs: %v", err)
		}
	}
}

// TestTracesBesideAProfileAreAProfileOfTheirs holds that what is analysed together
// could have been merged before.
func TestTracesBesideAProfileAreAProfileOfTheirs(t *testing.T) {
	spans := drawn(t, tracegen.OrdersModel(), 400)
	rng := rand.New(rand.NewPCG(9, 10))
	parts := dealt(rng, 2, spans, func(i int) trace.TraceID { return spans[i].TraceID })
	before := input{profile: profiled(t, 50, parts[0]).Encode()}
	want := analysed(t, analyzer.Config{}, input{profile: profiled(t, 0, before, parts[1]).Encode()})
	if diff := cmp.Diff(want, analysed(t, analyzer.Config{}, parts[1], before)); diff != "" {
		t.Errorf("traces beside a profile (-merged before +together):\n%s", diff)
	}
}

// TestAProfileOfManyTracesKeepsCountsAndQuantiles compares the report from a
// profile that keeps few traces with that from all of them.
func TestAProfileOfManyTracesKeepsCountsAndQuantiles(t *testing.T) {
	weighed := drawn(t, tracegen.OrdersModel(), 2000)
	for i := range weighed { // half of the traces stand for four each
		if weighed[i].TraceID[15]%2 == 0 {
			weighed[i].Threshold = 3 << 54
		}
		weighed[i].Flags |= trace.FlagThreshold
	}
	for _, c := range []struct {
		name  string
		spans []trace.Span
		of    analyzer.Config
	}{
		{"orders", drawn(t, tracegen.OrdersModel(), 2000), analyzer.Config{}},
		{"dag", drawn(t, tracegen.DAGModel(), 1000), analyzer.Config{}},
		{"weighed", weighed, analyzer.Config{}},
		{"weighed, taken alike", weighed, analyzer.Config{Unweighted: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.of.Budgets = []analyzer.EndpointBudget{{Budget: time.Second}}
			want, err := analyzer.Analyze(context.Background(), c.of, input{spans: c.spans})
			if err != nil {
				t.Fatal(err)
			}
			f := profiled(t, 200, input{spans: c.spans})
			got, err := analyzer.Analyze(context.Background(), c.of, input{profile: f.Encode()})
			if err != nil {
				t.Fatal(err)
			}
			a, b := want.Endpoints[0], got.Endpoints[0]
			if b.Sampled != analyzer.Some(200) || a.Sampled.Known {
				t.Errorf("sampled %v of all and %v of the profile, want 200", a.Sampled, b.Sampled)
			}
			want.Input.Files, got.Input.Files = nil, nil
			if diff := cmp.Diff(want.Input, got.Input); diff != "" {
				t.Errorf("input (-traces +profile):\n%s", diff)
			}
			if a.Traces != b.Traces || a.Failed != b.Failed || len(a.Hops) != len(b.Hops) || a.DeadlineMissRatio != b.DeadlineMissRatio {
				t.Fatalf("%d requests, %d failed, %d hops, %v late; want %d, %d, %d, %v", b.Traces, b.Failed, len(b.Hops),
					b.DeadlineMissRatio, a.Traces, a.Failed, len(a.Hops), a.DeadlineMissRatio)
			}
			for i := range a.Hops {
				x, y := a.Hops[i], b.Hops[i]
				if x.ID != y.ID || x.Calls != y.Calls || math.Abs(x.Presence-y.Presence) > 1e-9 || x.MaxAttempts != y.MaxAttempts ||
					x.Max != y.Max || math.Abs(x.CensoredRatio-y.CensoredRatio) > 1e-9 || x.Confidence != y.Confidence ||
					slices.Contains(y.Flags, "from_sample") {
					t.Errorf("hop %s: %+v\nwant %+v", x.ID, y, x)
				}
				for _, q := range [][2]analyzer.Opt[int64]{{x.P50, y.P50}, {x.P90, y.P90}, {x.P95, y.P95}, {x.P99, y.P99}, {x.P99Lo, y.P99Lo}, {x.P99Hi, y.P99Hi}} {
					if q[0].Known != q[1].Known || math.Abs(float64(q[0].V-q[1].V)) > quantile.ErrorBound*float64(q[0].V) {
						t.Errorf("hop %s: quantile %v, want %v within %.1f %%", x.ID, q[1], q[0], 100*quantile.ErrorBound)
					}
				}
			}
		})
	}
}

// TestSampledProfilesAccountForEverySpan holds the account where the sample is not
// all, and with endpoints picked.
func TestSampledProfilesAccountForEverySpan(t *testing.T) {
	var spans []trace.Span
	for _, story := range stories(t) {
		spans = append(spans, spansOf(t, story)...)
	}
	f := input{profile: profiled(t, 10, input{spans: spans}).Encode()}
	for _, c := range []analyzer.Config{{}, {Endpoints: []string{"gateway POST /orders"}}, {Unweighted: true}} {
		want, err := analyzer.Analyze(context.Background(), c, input{spans: spans})
		if err != nil {
			t.Fatal(err)
		}
		got, err := analyzer.Analyze(context.Background(), c, f)
		if err != nil {
			t.Fatal(err)
		}
		sum := got.Input.Analysed
		for _, n := range got.Input.LeftOut {
			sum += n
		}
		if sum != got.Input.Spans || got.Input.Spans != len(spans) {
			t.Errorf("%v: %d spans, %d of them accounted for; want %d", c.Endpoints, got.Input.Spans, sum, len(spans))
		}
		if diff := cmp.Diff([]any{want.Input.Analysed, want.Input.LeftOut, want.Input.Traces, want.Input.Sampling}, []any{got.Input.Analysed, got.Input.LeftOut, got.Input.Traces, got.Input.Sampling}); diff != "" {
			t.Errorf("%v: account (-traces +profile):\n%s", c.Endpoints, diff)
		}
		for i, e := range want.Endpoints {
			if x := got.Endpoints[i]; x.Service != e.Service || x.Operation != e.Operation || x.Traces != e.Traces {
				t.Errorf("endpoint %d is %s %s with %d requests, want %s %s with %d", i, x.Service, x.Operation, x.Traces, e.Service, e.Operation, e.Traces)
			}
		}
	}
}
