package finding_test

import (
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// The first hop without a deadline dropped it; those behind it had none to hand on.
//
//	>edge        0 |---------------------| 100    300 left, deadline 300
//	edge>a        10 |------------------| 90      290, no deadline
//	>a             11 |----------------| 89       289
//	a>b             20 |--------------| 80        280, no deadline
//	>b               21 |------------| 79         279
//	b>c               30 |----------| 70          270, no deadline
func TestDeadlineDropped(t *testing.T) {
	chain := func(ab, a, bc *trace.Stamp) []span {
		return []span{
			{name: ">edge", start: 0, end: 100, stamp: budget(300)},
			{name: "edge>a", under: ">edge", start: 10, end: 90, stamp: ab},
			{name: ">a", under: "edge>a", start: 11, end: 89, stamp: a},
			{name: "a>b", under: ">a", start: 20, end: 80, stamp: bc},
			{name: ">b", under: "a>b", start: 21, end: 79, stamp: dropped(279)},
			{name: "b>c", under: ">b", start: 30, end: 70, stamp: dropped(270)},
		}
	}
	check(t, "deadline-dropped", []example{
		{"by the first", chain(dropped(290), dropped(289), dropped(280)), []string{"edge>a 290ms edge"}},
		{"by the second", chain(budget(290), budget(289), dropped(280)), []string{"a>b 280ms a"}},
		{
			"twice: the second had made one of its own",
			chain(dropped(290), reset(289, 1000), dropped(280)),
			[]string{"edge>a 290ms edge", "a>b 280ms a"},
		},
		{"by the last", chain(budget(290), budget(289), budget(280)), []string{"b>c 270ms b"}},
		{"a caller that knows of no budget", chain(nil, nil, &trace.Stamp{Limit: ns(300)})[:4], nil},
		{"a server without a deadline did not drop it", chain(budget(290), dropped(289), budget(280))[:4], nil},
	})
}
