package budget

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// traces turns rows of a workload into traces of SERVER spans.
func (w *workload) traces(rows *profile.Rows) []*trace.Trace {
	descs := make([]*trace.Desc, len(w.hops))
	for h := range descs {
		descs[h] = &trace.Desc{Service: fmt.Sprint("service-", h), Operation: "op"}
	}
	out := make([]*trace.Trace, rows.Len())
	for r := range out {
		spans := make([]trace.Span, 0, len(w.hops))
		for h := range w.hops {
			if rows.Duration[h][r] < 0 {
				continue
			}
			s := trace.Span{
				Kind: trace.KindServer, Start: 1e15 + int64(r)*1e9 + rows.Start[h][r], Duration: rows.Duration[h][r],
				Desc: descs[h],
			}
			binary.BigEndian.PutUint64(s.TraceID[8:], uint64(r+1))
			binary.BigEndian.PutUint64(s.ID[:], uint64(h+1))
			if h > 0 {
				binary.BigEndian.PutUint64(s.Parent[:], uint64(w.hops[h].parent+1))
			}
			spans = append(spans, s)
		}
		out[r] = trace.NewTrace(spans)
	}
	return out
}

// build is the way from traces to the profile of their one endpoint.
func build(traces []*trace.Trace) *profile.Profile {
	survey := profile.NewSurvey()
	for _, t := range traces {
		survey.AddTrace(t)
		for _, e := range t.Entries() {
			survey.Add(t, e)
		}
	}
	collector := profile.NewCollector(survey.Decide(profile.Options{}))
	for _, t := range traces {
		for _, e := range t.Entries() {
			collector.Add(t, e)
		}
	}
	return collector.Resolve()[0]
}

// costs are how long the steps of a plan take.
type costs struct{ profile, split, optimised time.Duration }

func timed(f func()) time.Duration {
	runtime.GC()
	began := time.Now()
	f()
	return time.Since(began)
}

// measureCosts plans for n requests of 15 spans at the given part of them over
// the budget.
func measureCosts(tb testing.TB, n int, miss float64) costs {
	tb.Helper()
	w := workloads()[6]
	traces := w.traces(w.run(n, 8))
	var c costs
	var p *profile.Profile
	c.profile = timed(func() { p = build(traces) })
	traces = nil
	budget, _ := p.Hops[0].Duration.At(quantile.Level{Num: int64(math.Round((1 - miss) * 1000)), Den: 1000})
	problem := NewProblem(p, Options{})
	c.split = timed(func() { Solve(problem, float64(budget), P99Prop{}) })
	c.optimised = timed(func() {
		s := Solve(problem, float64(budget), Optimised{})
		v := CrossValidate(p, Options{}, budget, Optimised{}, Questions{Ratios: []float64{0.05, 0.01, 0.005, 0.001}})
		if s.Strategy != "optimised" || v.Folds != folds {
			tb.Fatalf("split by %s, %d folds", s.Strategy, v.Folds)
		}
	})
	return c
}

// TestPlansCostLittleBesideTheProfile: splitting takes a fortieth of the time
// that building the profile takes, optimising with its cross-validation at most
// twelve times as long.
func TestPlansCostLittleBesideTheProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var split, optimised float64
	for range 3 { // a busy machine only adds time
		c := measureCosts(t, 20_000, 0.01)
		split, optimised = c.split.Seconds()/c.profile.Seconds(), c.optimised.Seconds()/c.profile.Seconds()
		if split <= 1./40 && optimised <= 12 {
			return
		}
	}
	t.Errorf("beside building the profile splitting takes %.3f times, optimising %.1f times as long", split, optimised)
}

func BenchmarkPlan(b *testing.B) {
	for b.Loop() {
		c := measureCosts(b, 100_000, 0.01)
		b.ReportMetric(c.profile.Seconds(), "profile-s")
		b.ReportMetric(1000*c.split.Seconds(), "p99prop-ms")
		b.ReportMetric(c.optimised.Seconds(), "optimised-5fold-s")
	}
}
