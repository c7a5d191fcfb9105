package analyzer_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

func compared(t *testing.T, before, after trace.Source) *analyzer.Comparison {
	t.Helper()
	c, err := analyzer.Compare(context.Background(), analyzer.Config{}, []trace.Source{before}, []trace.Source{after}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verdicts are those of the P50 and P99 of each hop, by label.
func verdicts(c *analyzer.Comparison) map[string][2]string {
	out := make(map[string][2]string)
	for _, e := range c.Endpoints {
		for _, h := range e.Hops {
			out[h.Label] = [2]string{h.P50.Verdict, h.P99.Verdict}
		}
	}
	return out
}

// TestComparingHalvesFindsNothing compares random halves of one set: there is an
// alarm at any hop in at most 5 % of the comparisons.
func TestComparingHalvesFindsNothing(t *testing.T) {
	const runs, most = 60, 8 // of 60 with 5 % each, more than 8 come once in 500 times
	spans := drawn(t, tracegen.OrdersModel(), 1400)
	rng := rand.New(rand.NewPCG(11, 12))
	alarms := 0
	for range runs {
		halves := dealt(rng, 2, spans, func(i int) trace.TraceID { return spans[i].TraceID })
		for _, h := range verdicts(compared(t, halves[0], halves[1])) {
			if h != [2]string{analyzer.ChangeNoise, analyzer.ChangeNoise} {
				alarms++
				break
			}
		}
	}
	t.Logf("alarms in %d of %d comparisons", alarms, runs)
	if alarms > most {
		t.Errorf("alarms in %d of %d comparisons, want at most %d", alarms, runs, most)
	}
}

// slowed makes the calls of a service take longer, with all that waits for them.
//
//	gateway  |---------------|            |------------------|
//	risk        |---|            becomes     |------|
//	persist          |---|                           |---|
func slowed(spans []trace.Span, service string, times float64) []trace.Span {
	type point struct{ at, by int64 }
	late := make(map[trace.TraceID]point)
	for _, s := range spans {
		if s.Kind == trace.KindClient && s.Desc.Peer == service || s.Kind == trace.KindServer && s.Desc.Service == service {
			if p, ok := late[s.TraceID]; !ok || s.Duration > p.by {
				late[s.TraceID] = point{s.End(), s.Duration}
			}
		}
	}
	out := make([]trace.Span, len(spans))
	for i, s := range spans {
		if p, ok := late[s.TraceID]; ok {
			by := int64(float64(p.by) * (times - 1))
			switch {
			case s.Start >= p.at:
				s.Start += by
			case s.End() >= p.at-int64(1e6): // the call, its SERVER half, and what waits for it
				s.Duration += by
			}
		}
		out[i] = s
	}
	return out
}

// TestASlowHopIsFound slows one hop down: it and its endpoint are slower, nothing
// else is, and the other way round they are faster, as sure.
func TestASlowHopIsFound(t *testing.T) {
	before := drawn(t, tracegen.OrdersModel(), 2000)
	after := slowed(before, "risk", 2)
	there := compared(t, input{spans: before}, input{spans: after})
	back := compared(t, input{spans: after}, input{spans: before})
	noise := [2]string{analyzer.ChangeNoise, analyzer.ChangeNoise}
	slower := [2]string{analyzer.ChangeSlower, analyzer.ChangeSlower}
	faster := [2]string{analyzer.ChangeFaster, analyzer.ChangeFaster}
	want := map[string][2]string{
		"gateway POST /orders": slower, "validate": noise, "auth Check": noise, "inventory Reserve": noise,
		"coupon Apply": noise, "risk Score": slower, "orders persist": noise,
	}
	if diff := cmp.Diff(want, verdicts(there)); diff != "" {
		t.Errorf("slowed (-want +got):\n%s", diff)
	}
	want["gateway POST /orders"], want["risk Score"] = faster, faster
	if diff := cmp.Diff(want, verdicts(back)); diff != "" {
		t.Errorf("and back (-want +got):\n%s", diff)
	}
	for i, h := range there.Endpoints[0].Hops {
		if b := back.Endpoints[0].Hops[i]; h.P50.P != b.P50.P || h.P99.P != b.P99.P {
			t.Errorf("%s: P %v and %v there, %v and %v back", h.Label, h.P50.P, h.P99.P, b.P50.P, b.P99.P)
		}
	}
	// A profile of either side tells the same.
	few := func(spans []trace.Span) trace.Source {
		return input{profile: profiled(t, 100, input{spans: spans}).Encode()}
	}
	for name, c := range map[string]*analyzer.Comparison{
		"profile and traces": compared(t, few(before), input{spans: after}),
		"two profiles":       compared(t, few(before), few(after)),
	} {
		if diff := cmp.Diff(verdicts(there), verdicts(c)); diff != "" {
			t.Errorf("%s (-traces +profiles):\n%s", name, diff)
		}
	}
}

// TestComparedWithItselfIsAllNoise compares every story with itself.
func TestComparedWithItselfIsAllNoise(t *testing.T) {
	for _, story := range stories(t) {
		spans := spansOf(t, story)
		c := compared(t, input{spans: spans}, input{spans: spans})
		for _, e := range c.Endpoints {
			if e.Seen != analyzer.SeenBoth || e.Before.Traces != e.After.Traces {
				t.Errorf("%s: %s %s is %s", story, e.Service, e.Operation, e.Seen)
			}
			for _, h := range e.Hops {
				for _, change := range []analyzer.Change{h.P50, h.P99} {
					switch change.Verdict {
					case analyzer.ChangeNoise, analyzer.ChangeFew, analyzer.ChangeFailed, analyzer.ChangeCensored:
					default:
						t.Errorf("%s: %s is %q", story, h.Label, change.Verdict)
					}
				}
				if h.Seen != analyzer.SeenBoth || h.Before.ID != h.After.ID {
					t.Errorf("%s: %s is %s", story, h.Label, h.Seen)
				}
			}
		}
	}
}

// TestVerdictsFollowTheQuantiles compares calls of few different durations, where
// counts above a quantile and the quantile itself can go apart: slower is higher.
func TestVerdictsFollowTheQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	draw := func() trace.Source {
		var spans []trace.Span
		least, most, share := rng.Int64N(4), 1+rng.Int64N(3), rng.Float64()
		for i := range 200 + rng.IntN(200) {
			ticks := least
			if rng.Float64() < share {
				ticks += rng.Int64N(most + 1)
			}
			id := trace.TraceID{1, byte(i), byte(i >> 8)}
			spans = append(spans, trace.Span{
				TraceID: id, ID: trace.SpanID{1}, Start: int64(i+1) * 1e9, Duration: (ticks + 1) * 1e6, Kind: trace.KindServer,
				Desc: &trace.Desc{Service: "a", Operation: "op"},
			})
		}
		return input{spans: spans}
	}
	changes := 0
	for range 300 {
		h := compared(t, draw(), draw()).Endpoints[0].Hops[0]
		for _, c := range []analyzer.Change{h.P50, h.P99} {
			switch {
			case c.Verdict == analyzer.ChangeSlower && c.Ratio.V > 1, c.Verdict == analyzer.ChangeFaster && c.Ratio.V < 1:
				changes++
			case c.Verdict != analyzer.ChangeNoise && c.Verdict != analyzer.ChangeFew:
				t.Errorf("P50 %v → %v, P99 %v → %v: %+v", h.Before.P50.Value, h.After.P50.Value, h.Before.P99.Value, h.After.P99.Value, c)
			}
		}
	}
	if changes == 0 {
		t.Error("nothing changed")
	}
}

// TestNothingInCommonIsSaid compares sides that share no endpoint.
func TestNothingInCommonIsSaid(t *testing.T) {
	a, b := input{spans: spansOf(t, "../testdata/dag")}, input{spans: spansOf(t, "../testdata/nested")}
	for _, c := range []struct {
		after trace.Source
		want  int
	}{{a, 0}, {b, 1}} {
		if got := compared(t, a, c.after).Warnings; len(got) != c.want {
			t.Errorf("warnings %q, want %d", got, c.want)
		}
	}
}

// TestASideThatFailedIsNotFew compares calls that ended well with the same calls,
// of which all failed: no number of them makes their durations comparable.
func TestASideThatFailedIsNotFew(t *testing.T) {
	good := drawn(t, tracegen.OrdersModel(), 400)
	bad := make([]trace.Span, len(good))
	for i, s := range good {
		s.Outcome = trace.OutcomeFailed
		bad[i] = s
	}
	for _, c := range []*analyzer.Comparison{
		compared(t, input{spans: good}, input{spans: bad}), compared(t, input{spans: bad}, input{spans: good}),
		compared(t, input{spans: bad}, input{spans: bad}),
	} {
		if e := c.Endpoints[0]; e.Before.Failed+e.After.Failed == 0 {
			t.Error("nobody says that requests failed")
		}
		for label, got := range verdicts(c) {
			if got != [2]string{analyzer.ChangeFailed, analyzer.ChangeFailed} {
				t.Errorf("%s is %q", label, got)
			}
		}
	}
}
