package finding_test

import (
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// The request has 2000 ms; the first that grows the deadline is the one who did it.
//
//	>edge             0 |-------------------------------| 100    2000 left
//	edge>proxy          10 |---------------------------| 90      1990
//	>proxy               11 |-------------------------| 89       1989, deadline 15000
//	proxy>stock           20 |----------------------| 80         1980, deadline 14991
//	>stock                 21 |--------------------| 79          1979, deadline 14990
func TestDeadlineReset(t *testing.T) {
	chain := func(exit, proxy, exit2, stock *trace.Stamp) []span {
		return []span{
			{name: ">edge", start: 0, end: 100, stamp: budget(2000)},
			{name: "edge>proxy", under: ">edge", start: 10, end: 90, stamp: exit},
			{name: ">proxy", under: "edge>proxy", start: 11, end: 89, stamp: proxy},
			{name: "proxy>stock", under: ">proxy", start: 20, end: 80, stamp: exit2},
			{name: ">stock", under: "proxy>stock", start: 21, end: 79, stamp: stock},
		}
	}
	deadline := func(v float64) *trace.Stamp { return &trace.Stamp{DeadlineRemaining: ns(v), HasDeadline: true} }
	absolute := func(left, deadline float64) *trace.Stamp {
		s := reset(left, deadline)
		s.Absolute = true
		return s
	}
	check(t, "deadline-reset", []example{
		{
			"a proxy puts 15 s in place of 2 s, and the service behind it gets the rest",
			chain(budget(1990), reset(1989, 15000), reset(1980, 14991), reset(1979, 14990)),
			[]string{">proxy 13011ms proxy, or the call to it"},
		},
		{
			"the same, of spans that carry nothing but their own deadlines",
			chain(deadline(1990), deadline(15000), deadline(14991), deadline(14990)),
			[]string{">proxy 13010ms proxy, or the call to it"},
		},
		{
			"the caller makes a new timeout: its callee only gets it",
			chain(reset(1990, 9000), reset(1989, 8999), reset(1980, 8990), reset(1979, 8989)),
			[]string{"edge>proxy 7010ms edge"},
		},
		{
			"two services each make a new timeout",
			chain(reset(1990, 9000), reset(1989, 8999), reset(1980, 14000), reset(1979, 13999)),
			[]string{"edge>proxy 7010ms edge", "proxy>stock 12020ms proxy"},
		},
		{
			"4 % later is within the tolerance, a little more is not",
			chain(reset(1990, 1990*1.04), budget(1989), budget(1980), reset(1979, 1979*1.04+3)),
			[]string{">stock 82.16ms stock, or the call to it"},
		},
		{
			"5 ms later is within the tolerance of a short budget",
			chain(budget(40), reset(39, 44), budget(30), reset(29, 35.1)),
			[]string{">stock 6.1ms stock, or the call to it"},
		},
		{
			"clocks 50 ms apart are not taken for a reset",
			chain(absolute(1990, 1990), absolute(1989, 2115), absolute(1980, 1980), absolute(1979, 2112)),
			[]string{">stock 133ms stock, or the call to it"},
		},
		{"spans without attributes", chain(nil, nil, nil, nil), nil},
	})
	// An announcement that an earlier span wrote tells of the caller only what the
	// caller does not tell itself.
	stale := func(edge, exit *trace.Stamp) []span {
		spans := chain(exit, reset(1989, 15000), reset(1980, 14991), reset(1979, 14990))
		spans[0].stamp, spans[2].stamp.Stale = edge, true
		return spans
	}
	check(t, "deadline-reset", []example{
		{
			"nobody but an old announcement says what was left", stale(nil, nil),
			[]string{">proxy 13011ms proxy, or the call to it (low confidence: its announcement was not its caller's)"},
		},
		{"the caller says it too", stale(nil, budget(1990)), []string{">proxy 13011ms proxy, or the call to it"}},
		{"the one before it does", stale(budget(2000), nil), []string{">proxy 13011ms proxy, or the call to it"}},
	})
	// A later attempt has less left than an earlier one: calls made in the earlier
	// are held against what that had.
	//
	//	edge>a#1    |-------failed|
	//	>a#1         |-----------|
	//	a>b            |-------|
	//	edge>a#2                    |-------|
	//	>a#2                         |-----|
	check(t, "deadline-reset", []example{{"attempts", []span{
		{name: ">edge", start: 0, end: 300, stamp: budget(300)},
		{name: "edge>a", under: ">edge", start: 0, end: 300, stamp: budget(300)},
		{name: "edge>a#1", under: "edge>a", start: 0, end: 150, stamp: budget(300), outcome: failed},
		{name: ">a#1", under: "edge>a#1", start: 1, end: 149, stamp: budget(299)},
		{name: "a>b", under: ">a#1", start: 20, end: 140, stamp: budget(280)},
		{name: "edge>a#2", under: "edge>a", start: 200, end: 290, stamp: budget(100)},
		{name: ">a#2", under: "edge>a#2", start: 201, end: 289, stamp: budget(99)},
	}, nil}})
}
