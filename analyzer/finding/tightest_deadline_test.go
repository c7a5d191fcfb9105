package finding_test

import (
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// A call times out, and its callers with it.
//
//	>edge       0 |----------------timed out| 130      800 left
//	edge>risk      10 |-----------timed out| 125       790
//	>risk           11 |---------timed out| 124        789
//	risk>bank         20 |-----timed out| 120          100: set by risk
//	>bank              21 |---timed out| 119            99
func TestTightestDeadline(t *testing.T) {
	chain := func(edge, call, risk, bank float64) []span {
		spans := []span{
			{name: ">edge", start: 0, end: 130},
			{name: "edge>risk", under: ">edge", start: 10, end: 125},
			{name: ">risk", under: "edge>risk", start: 11, end: 124},
			{name: "risk>bank", under: ">risk", start: 20, end: 120},
			{name: ">bank", under: "risk>bank", start: 21, end: 119},
		}
		for i, left := range []float64{edge, call, risk, bank, bank - 1} {
			spans[i].outcome = timedOut
			if left > 0 {
				spans[i].stamp = budget(left)
			}
		}
		return spans
	}
	twice := chain(800, 790, 789, 100)
	twice = append(twice, span{name: "risk>bank#2", under: ">risk", start: 20, end: 800, outcome: timedOut, stamp: budget(780)})
	// A timeout that is on no span ends the deepest call: what is known of the
	// deadline did not.
	silent := chain(800, 790, 789, 0)
	early := chain(800, 790, 789, 780)
	// The same, 5 ms before the deadline that the service above was given.
	handed := chain(130, 120, 119, 0)
	handed[4].end, handed[3].end = 124, 125
	fine := chain(800, 790, 789, 100)
	for i := range fine {
		fine[i].outcome = ok
	}
	attempts := []span{ // the second attempt is what the edge had left
		{name: ">edge", start: 0, end: 100, stamp: budget(100), outcome: timedOut},
		{name: "edge>a", under: ">edge", start: 0, end: 40, stamp: &trace.Stamp{Limit: ns(100)}, outcome: failed},
		{name: "edge>a#2", under: ">edge", start: 50, end: 100, stamp: budget(50), outcome: timedOut},
	}
	check(t, "tightest-deadline", []example{
		{"the last caller", chain(800, 790, 789, 100), []string{"risk>bank 100ms risk"}},
		{"the first caller, handed on", chain(800, 115, 114, 105), []string{"edge>risk 115ms edge"}},
		{"the callee gave itself less", chain(800, 790, 112, 103), []string{">risk 112ms risk"}},
		{"the endpoint", chain(130, 120, 119, 110), []string{">edge 130ms edge"}},
		{"where it first shows", chain(0, 0, 0, 100), []string{"risk>bank 100ms risk"}},
		{"two calls under two deadlines", twice, []string{">edge 800ms edge", "risk>bank 100ms risk"}},
		{"attempts under the deadline of the endpoint", attempts, []string{">edge 100ms edge"}},
		{"nothing timed out", fine, nil},
		{"a timeout that nothing tells of", silent, nil},
		{"a timeout long before the deadline", early, nil},
		{"services that say nothing hand on what they were given", handed, []string{">edge 130ms edge"}},
		{"no attributes", chain(0, 0, 0, 0)[:4], nil},
	})
}
