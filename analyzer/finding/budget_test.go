package finding_test

import (
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// A request of 800 ms whose calls follow each other.
//
//	>gateway          0 |--------------------------------------------------| 770   of 800: 96.3 %
//	gateway>auth        |-| 25
//	gateway>inventory     |-| 55
//	gateway>coupon          |--| 100
//	gateway>risk               |==================================| 700           of 700: 85.7 %
//	gateway>persist                                               |---| 770       of 100: 70 %
func serial() []span {
	return []span{
		{name: ">gateway", start: 0, end: 770, stamp: budget(800)},
		{name: "gateway>auth", under: ">gateway", start: 0, end: 25, stamp: budget(800)},
		{name: "gateway>inventory", under: ">gateway", start: 25, end: 55, stamp: budget(775)},
		{name: "gateway>coupon", under: ">gateway", start: 55, end: 100, stamp: budget(745)},
		{name: "gateway>risk", under: ">gateway", start: 100, end: 700, stamp: budget(700)},
		{name: ">risk", under: "gateway>risk", start: 101, end: 699, stamp: budget(699)},
		{name: "gateway>persist", under: ">gateway", start: 700, end: 770, stamp: budget(100)},
	}
}

func TestBudgetUtilization(t *testing.T) {
	edge := serial()
	edge[4].end, edge[5].end = 660, 659 // 560 of 700 is 0.8, no more
	edge[0].end = 640                   // and 640 of 800
	check(t, "budget-utilization", []example{
		{"the hop that spent it, and the caller that names it", serial(), []string{">gateway 963 risk op", "gateway>risk 857"}},
		{"who spent it itself names nobody", []span{
			{name: ">gateway", start: 0, end: 90, stamp: budget(100)},
			{name: "gateway>a", under: ">gateway", start: 40, end: 85, stamp: budget(60)},
		}, []string{">gateway 900"}},
		// No call takes half of the time, but those of one hop together do.
		//
		//	>gateway     0 |----------------------------| 90
		//	gateway>a      |---f|  |---f|  |---ok|
		//	gateway>b      |------------|
		{"attempts and loops spend together", []span{
			{name: ">gateway", start: 0, end: 90, stamp: budget(100)},
			{name: "gateway>b", under: ">gateway", start: 0, end: 40},
			{name: "gateway>a#3", under: ">gateway", start: 60, end: 76},
			{name: "gateway>a#1", under: ">gateway", start: 1, end: 17, outcome: failed},
			{name: "gateway>a#2", under: ">gateway", start: 30, end: 45, outcome: failed},
		}, []string{">gateway 900 a op"}},
		{"calls beside each other count once", []span{
			{name: ">gateway", start: 0, end: 90, stamp: budget(100)},
			{name: "gateway>a#1", under: ">gateway", start: 0, end: 40},
			{name: "gateway>a#2", under: ">gateway", start: 1, end: 41},
			{name: "gateway>a#3", under: ">gateway", start: 5, end: 30},
		}, []string{">gateway 900"}},
		{"the threshold itself is fine", edge, nil},
		{"nothing left has no utilization", []span{{name: ">a", start: 0, end: 10, stamp: budget(0)}}, nil},
		{"no attributes", []span{{name: ">a", start: 0, end: 10}}, nil},
	})
	// A plan gives 100 ms to the ledger, whatever was left, and 300 ms to the edge.
	plain := func(bank, ledger float64) []span {
		return []span{
			{name: ">edge", start: 0, end: 100},
			{name: "edge>bank", under: ">edge", start: 5, end: 5 + bank},
			{name: ">bank", under: "edge>bank", start: 6, end: 4 + bank},
			{name: "bank>ledger", under: ">bank", start: 6, end: 6 + ledger},
		}
	}
	stamped, late := plain(90, 85), plain(90, 0)
	stamped[3].stamp = budget(170)
	late[1].stamp = budget(-1)
	whole := plain(161, 81)
	whole[0].end = 241
	checkBy(t, "budget-utilization", shop(), []example{
		{"the plan alone", plain(90, 85), []string{"bank>ledger 850"}},
		{"the plan gives less than is left", stamped, []string{"bank>ledger 850"}},
		{"of the endpoint and of its hop", whole, []string{">edge 803 bank op", "edge>bank 805 ledger op", "bank>ledger 810"}},
		{"what began too late is another finding", late, nil},
	})
}

func TestSpentSaysHowAHalfUsedItsBudget(t *testing.T) {
	stamps := budget(100)
	stamps.Limit = 250 * ms
	for _, c := range []struct {
		name  string
		spans []span
		by    bool // with the plan
		want  finding.Spent
		known bool
	}{
		{
			"what was left",
			[]span{{name: ">edge", start: 0, end: 120, stamp: stamps}},
			false,
			finding.Spent{Budget: 100 * ms, Utilization: 1.2, Left: -20 * ms, LeftKnown: true, Consumed: 1.08},
			true,
		},
		{
			"no limit",
			[]span{{name: ">edge", start: 0, end: 20, stamp: budget(80)}},
			false,
			finding.Spent{Budget: 80 * ms, Utilization: 0.25, Left: 60 * ms, LeftKnown: true},
			true,
		},
		{
			"nothing left",
			[]span{{name: ">edge", start: 0, end: 20, stamp: budget(-5)}},
			true,
			finding.Spent{Budget: -5 * ms, Left: -25 * ms, LeftKnown: true},
			true,
		},
		{
			"a plan alone",
			[]span{{name: ">edge", start: 0, end: 75}},
			true,
			finding.Spent{Budget: 300 * ms, Utilization: 0.25},
			true,
		},
		{
			"a plan that gives less",
			[]span{{name: ">edge", start: 0, end: 75, stamp: budget(600)}},
			true,
			finding.Spent{Budget: 300 * ms, Utilization: 0.25, Left: 525 * ms, LeftKnown: true},
			true,
		},
		{
			"a small part of a request that is nearly over",
			[]span{{name: "edge>persist", start: 700, end: 770, stamp: &trace.Stamp{
				Limit: 800 * ms, Remaining: 100 * ms, HasRemaining: true, DeadlineRemaining: 100 * ms, HasDeadline: true,
			}}},
			false,
			finding.Spent{Budget: 100 * ms, Utilization: 0.7, Left: 30 * ms, LeftKnown: true, Consumed: 0.9625},
			true,
		},
		{"nothing known", []span{{name: ">edge", start: 0, end: 75}}, false, finding.Spent{}, false},
	} {
		tr, _ := tree(t, c.spans)
		r := finding.NewRequest(tr, nil, finding.Defaults)
		if c.by {
			r.Plan = plan.NewIndex(shop())
		}
		if got, known := r.Spent(0, 0); got != c.want || known != c.known {
			t.Errorf("%s: %+v %v, want %+v", c.name, got, known, c.want)
		}
	}
}

// A call that ends after what it had.
//
//	deadline                                  | 100
//	>gateway    0 |---------------------------|----| 120    over by 20
//	gateway>a       50 |----------------------| 100         just in time
//	gateway>b         60 |--------------------|--| 110.5    over by 10.5
func TestBudgetOverrun(t *testing.T) {
	check(t, "budget-overrun", []example{
		{"over", []span{
			{name: ">gateway", start: 0, end: 120, stamp: budget(100)},
			{name: "gateway>a", under: ">gateway", start: 50, end: 100, stamp: budget(50)},
			{name: "gateway>b", under: ">gateway", start: 60, end: 110.5, stamp: budget(40)},
		}, []string{">gateway 20ms", "gateway>b 10.5ms"}},
		{"the call is measured once, at its caller", []span{
			{name: ">gateway", start: 0, end: 90, stamp: budget(100)},
			{name: "gateway>a", under: ">gateway", start: 50, end: 110, stamp: budget(50)},
			{name: ">a", under: "gateway>a", start: 51, end: 109, stamp: budget(49)},
		}, []string{"gateway>a 10ms"}},
		{"or at the callee, where the caller says nothing", []span{
			{name: ">gateway", start: 0, end: 90, stamp: budget(100)},
			{name: "gateway>a", under: ">gateway", start: 50, end: 110},
			{name: ">a", under: "gateway>a", start: 51, end: 109, stamp: budget(49)},
		}, []string{">a 9ms"}},
		{"a budget that was spent before is another finding", []span{
			{name: ">gateway", start: 0, end: 10, stamp: budget(-1)},
		}, nil},
		{"rounding to a microsecond", []span{{name: ">gateway", start: 0, end: 100.001, stamp: budget(100)}}, nil},
	})
}

// A call that begins after the deadline.
//
//	deadline                  | 100
//	>gateway    0 |-----------|-----------| 150
//	gateway>a                 | 100 |---| 140       0 left
//	>a                        |  103 |-| 139        3 ms after it
func TestExhaustedAtStart(t *testing.T) {
	check(t, "exhausted-at-start", []example{
		{"once for both halves", []span{
			{name: ">gateway", start: 0, end: 150, stamp: budget(100)},
			{name: "gateway>a", under: ">gateway", start: 100, end: 140, stamp: budget(0)},
			{name: ">a", under: "gateway>a", start: 103, end: 139, stamp: budget(-3)},
		}, []string{"gateway>a 0ms"}},
		{"at the callee alone", []span{
			{name: ">gateway", start: 0, end: 150, stamp: budget(100)},
			{name: "gateway>a", under: ">gateway", start: 99, end: 140, stamp: budget(1)},
			{name: ">a", under: "gateway>a", start: 103, end: 139, stamp: budget(-3)},
		}, []string{">a 3ms"}},
		{"a microsecond is something", []span{{name: ">gateway", start: 0, end: 1, stamp: budget(0.001)}}, nil},
	})
}

// Of two hops that took the same time, the one that was called first spent it, whichever an
// earlier request had called first.
func TestWhoSpentABudgetDoesNotDependOnOtherRequests(t *testing.T) {
	gateway := span{name: ">gateway", start: 0, end: 90, stamp: budget(100)}
	a, b := span{name: "gateway>a", under: ">gateway", start: 2, end: 51}, span{name: "gateway>b", under: ">gateway", start: 1, end: 50}
	for _, before := range []span{a, b} {
		var by []string
		paths := new(trace.Paths)
		for _, spans := range [][]span{{gateway, before}, {gateway, b, a}} {
			tr, _ := tree(t, spans)
			tr.Build(tr.Trace, tr.Trace.Entries()[0], paths, nil)
			finding.Named("budget-utilization").Check(finding.NewRequest(tr, nil, finding.Defaults), func(f finding.Finding) { by = append(by, f.By) })
		}
		if len(by) != 2 || by[1] != "b op" {
			t.Errorf("after a call of %s: spent by %q, want b op in the end", before.name, by)
		}
	}
}
