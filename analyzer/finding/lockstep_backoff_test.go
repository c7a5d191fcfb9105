package finding_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
)

// tallied runs the rules over requests and returns what one of them counts.
func tallied(t *testing.T, rule string, requests [][]span) []finding.Count {
	t.Helper()
	var parts [3]finding.Tally
	rng := rand.New(rand.NewPCG(8, 9))
	for _, i := range rng.Perm(len(requests)) {
		tr, _ := tree(t, requests[i])
		r := finding.NewRequest(tr, nil, finding.Defaults)
		parts[rng.IntN(len(parts))].Add(r, func(call int32) int32 { return min(call, 1) })
	}
	var whole finding.Tally
	for i := range parts {
		whole.Merge(&parts[i])
	}
	return slices.DeleteFunc(whole.List(nil), func(c finding.Count) bool { return c.Rule.Name != rule })
}

// Two retries, the second after twice the time.
//
//	edge>a   |--f|  100  |--f|     200     |--ok|
func TestLockstepBackoff(t *testing.T) {
	request := func(first, second float64, inside bool) []span {
		spans := []span{{name: ">edge", start: 0, end: 2000}}
		under := ">edge"
		if inside {
			spans = append(spans, span{name: "edge>a", under: ">edge", start: 0, end: 1000})
			under = "edge>a"
		}
		at := 0.0
		for i, wait := range []float64{0, first, second} {
			s := span{name: fmt.Sprintf("edge>a#%d", i+1), under: under, start: at + wait, end: at + wait + 10, outcome: failed}
			if i == 2 {
				s.outcome = ok
			}
			spans, at = append(spans, s), s.end
		}
		return spans
	}
	for _, c := range []struct {
		name          string
		n             int
		first, second func(i int) float64
		want          []string
	}{
		{"twice as long each time", 30, func(int) float64 { return 100 }, func(int) float64 { return 200 }, []string{"30 100ms 2", "30 200ms 3"}},
		{"within 5 %", 30, func(i int) float64 { return 100 + float64(i)/6 }, func(int) float64 { return 200 }, []string{"30 100ms 2", "30 200ms 3"}},
		{"the one, not the other", 30, func(int) float64 { return 10 }, func(i int) float64 { return float64(10 * i) }, []string{"30 10ms 2"}},
		{"no wait at all", 30, func(i int) float64 { return 0.01 * float64(i%7) }, func(i int) float64 { return 0.02 * float64(i%5) }, nil},
		{"with jitter", 40, func(i int) float64 { return 100 + float64(i) }, func(i int) float64 { return 200 - float64(3*i) }, nil},
		{"29 are chance", 29, func(int) float64 { return 100 }, func(int) float64 { return 200 }, nil},
	} {
		for _, inside := range []bool{false, true} {
			var requests [][]span
			for i := range c.n {
				requests = append(requests, request(c.first(i), c.second(i), inside))
			}
			var got []string
			for _, n := range tallied(t, "lockstep-backoff", requests) {
				got = append(got, fmt.Sprintf("%d %vms %s", n.Findings, float64(n.Most)/1e6, n.By))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, inside one call %v: %q, want %q", c.name, inside, got, c.want)
			}
		}
	}
	n := finding.Count{Place: finding.Place{Rule: finding.Named("lockstep-backoff"), By: "2"}, Most: 100 * ms}
	if got, want := n.Text(), "retries wait 100 ms each time before attempt 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
