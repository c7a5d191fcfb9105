package finding_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Calls that each time out after 250 ms, wherever in the request they begin.
//
//	>edge       |------------------------------|
//	edge>a          |-----250 ms, timed out|
//
//	>edge       |------------------------------|
//	edge>a         |-----250 ms, timed out|
func TestFixedTimeout(t *testing.T) {
	repeat := func(n int, v float64) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = v
		}
		return out
	}
	for _, c := range []struct {
		name    string
		took    []float64 // of each request's call
		left    float64   // of the caller's budget at the call; 0: not known
		outcome trace.Outcome
		want    float64 // 0: nothing
		by      string
	}{
		{"the same each time", []float64{250, 250.4, 250.1, 252, 251}, 0, timedOut, 250, ""},
		{"with one of ten that is not", append([]float64{40}, repeat(9, 250)...), 0, timedOut, 250, ""},
		{"with two of ten that are not", append(repeat(8, 250), 40, 60), 0, timedOut, 0, ""},
		{"1 % apart", []float64{1000, 1010, 1000, 1000, 1000}, 0, timedOut, 1000, ""},
		{"more than 1 % apart", []float64{1000, 1011, 1000, 1000, 1000}, 0, timedOut, 0, ""},
		{"four are chance", repeat(4, 250), 0, timedOut, 0, ""},
		{"with more left", repeat(5, 250), 300, timedOut, 250, ""},
		{"when the caller's deadline came", repeat(5, 250), 251, timedOut, 0, ""},
		{"a moment after it", repeat(5, 250), 241, timedOut, 0, ""},
		{"long after it", repeat(5, 250), 100, timedOut, 250, "its callers had less"},
		{"when it had passed before", repeat(5, 250), -50, timedOut, 250, "its callers had less"},
		{"answers at the same duration", repeat(5, 250), 0, ok, 0, ""},
		{"no calls at all", nil, 0, timedOut, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			var parts [2]finding.Tally
			for _, i := range rng.Perm(len(c.took)) {
				spans := []span{
					{name: ">edge", start: 0, end: 2000},
					{name: "edge>a", under: ">edge", start: 10 * float64(i), end: 10*float64(i) + c.took[i], outcome: c.outcome},
				}
				if c.left != 0 {
					spans[0].stamp = budget(c.left + 10*float64(i))
					spans[1].stamp = budget(min(c.left, c.took[i]))
				}
				tr, _ := tree(t, spans)
				tr.Trace.ID = trace.TraceID{0: byte(i)}
				r := finding.NewRequest(tr, nil, finding.Defaults)
				parts[rng.IntN(2)].Add(r, func(call int32) int32 { return call })
				finding.Named("fixed-timeout").Check(r, func(finding.Finding) { t.Error("found in a single request") })
			}
			var whole finding.Tally
			whole.Merge(&parts[1])
			whole.Merge(&parts[0])
			got := 0.0
			for _, n := range whole.List(nil) {
				if n.Rule.Name == "fixed-timeout" {
					got = float64(n.Most) / 1e6
					if n.Findings != len(c.took) || n.Hop != 1 || n.By != c.by {
						t.Errorf("%+v, want all %d calls of hop 1, by %q", n, len(c.took), c.by)
					}
					var example byte
					if _, err := fmt.Sscanf(n.Example, "%02x", &example); err != nil || c.took[example] != c.want {
						t.Errorf("the example %s took %v ms", n.Example, c.took[example])
					}
				}
			}
			if got != c.want {
				t.Errorf("%v ms, want %v", got, c.want)
			}
		})
	}
}
