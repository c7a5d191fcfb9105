package finding_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
)

func millis(v float64) plan.Duration { return plan.Duration(v * float64(time.Millisecond)) }

// shop is a plan: edge keeps 30 ms for itself, and calls bank, which needs 20 ms
// to be of any use, and keeps 10 ms.
func shop() *plan.Plan {
	return &plan.Plan{Endpoints: []plan.Endpoint{{
		Service: "edge", Operation: "op", Budget: millis(300), Tail: millis(30),
		Hops: []plan.Hop{{
			Callee: "bank", Operation: "op", Share: millis(200), Floor: millis(20), Tail: millis(10), MaxQueue: millis(8),
			Hops: []plan.Hop{{Callee: "ledger", Operation: "op", Share: millis(100)}},
		}},
	}}}
}

// A call that is sent when less is left than it is of any use with.
//
//	deadline                                       | 300
//	>edge        0 |-------------------------------| 300
//	edge>bank                              285 |---| 300     15 left, 20 needed
//	>bank                                   286 |--| 299
func TestDoomedCall(t *testing.T) {
	call := func(start, left float64) []span {
		return []span{
			{name: ">edge", start: 0, end: 300, stamp: budget(300)},
			{name: "edge>bank", under: ">edge", start: start, end: 300, stamp: budget(left)},
			{name: ">bank", under: "edge>bank", start: start + 1, end: 299, stamp: budget(left - 1)},
		}
	}
	callee := call(285, 15)
	callee[1].stamp = nil
	other := call(285, 15)
	other[1].name, other[2].name, other[2].under = "edge>auth", ">auth", "edge>auth"
	checkBy(t, "doomed-call", shop(), []example{
		{"with less than the floor", call(285, 15), []string{"edge>bank 5ms"}},
		{"alone, without its callee", call(285, 15)[:2], []string{"edge>bank 5ms"}},
		{"where only the callee knows", callee, []string{">bank 6ms"}},
		{"with the floor itself", call(280, 20), nil},
		{"with nothing left, which is another finding", call(300, 0), nil},
		{"a hop that the plan does not name", other, nil},
		{"an entry is no call", []span{{name: ">bank", start: 0, end: 5, stamp: budget(5)}}, nil},
	})
	if got := found(t, "doomed-call", call(285, 15)); got != nil {
		t.Errorf("without a plan one request shows %v", got)
	}
}

// The floor is known in the end only: then what was left at every call is held
// against it, whatever the order of the requests.
func TestDoomedCallsAreSettledByTheFloorInTheEnd(t *testing.T) {
	calls := []struct{ left, took float64 }{
		{100, 40}, {50, 40}, {39, 39}, {39, 38}, {30, 30.5}, {20, 15}, {10, 12}, {0, 1}, {-5, 1},
	}
	for _, c := range []struct {
		floor    int64
		findings int
		most     float64
	}{
		{0, 2, 28},       // the P50 of those that were sent with something left is 38; what was answered in time is none
		{40 * ms, 5, 30}, // a promise is a promise
		{30 * ms, 2, 20},
		{10 * ms, 0, 0},
	} {
		rng := rand.New(rand.NewPCG(3, 4))
		for range 5 {
			var parts [3]finding.Tally
			for _, i := range rng.Perm(len(calls)) {
				tr, _ := tree(t, []span{
					{name: ">edge", start: 0, end: 300, stamp: budget(300)},
					{name: "edge>bank", under: ">edge", start: 100, end: 100 + calls[i].took, stamp: budget(calls[i].left)},
				})
				parts[rng.IntN(3)].Add(finding.NewRequest(tr, nil, finding.Defaults), func(call int32) int32 { return call })
			}
			var whole finding.Tally
			for i := range parts {
				whole.Merge(&parts[i])
			}
			list := whole.List(func(hop int32) int64 {
				if hop != 1 {
					t.Errorf("asked for the floor of hop %d", hop)
				}
				return c.floor
			})
			list = slices.DeleteFunc(list, func(n finding.Count) bool { return n.Rule.Name != "doomed-call" })
			var n finding.Count
			if len(list) > 0 {
				n = list[0]
			}
			if n.Findings != c.findings || n.Requests != c.findings || n.Most != ns(c.most) {
				t.Errorf("floor %v: %d findings in %d requests, %d at most; want %d, %v ms", time.Duration(c.floor), n.Findings, n.Requests, n.Most, c.findings, c.most)
			}
		}
	}
}

// The P50 of fewer than five good calls is chance.
func TestNoCallIsDoomedByAFewOthers(t *testing.T) {
	for good, want := range map[int]int{4: 0, 5: 1} {
		var tally finding.Tally
		for i := range good + 1 {
			bank := span{name: "edge>bank", under: ">edge", start: 100, end: 150, stamp: budget(100)}
			if i == good {
				bank.end, bank.stamp, bank.outcome = 120, budget(10), failed
			}
			tr, _ := tree(t, []span{{name: ">edge", start: 0, end: 300, stamp: budget(300)}, bank})
			tally.Add(finding.NewRequest(tr, nil, finding.Defaults), func(call int32) int32 { return call })
		}
		got := 0
		for _, c := range tally.List(nil) {
			if c.Rule.Name == "doomed-call" {
				got += c.Findings
			}
		}
		if got != want {
			t.Errorf("%d good calls: %d findings, want %d", good, got, want)
		}
	}
}
