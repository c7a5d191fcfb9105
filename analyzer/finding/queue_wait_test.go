package finding_test

import (
	"slices"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// The call leaves with 100 ms and waits for a connection.
//
//	edge>a     0 |----------------------| 60     100 left
//	>a              30 |----------| 55           70 left, 99 announced
func TestQueueWait(t *testing.T) {
	call := func(left, announced, arrived float64, start float64, host string) []span {
		s := budget(arrived)
		s.Announced, s.HasAnnounced = ns(announced), announced > 0
		return []span{
			{name: ">edge", start: 0, end: 70, stamp: budget(left), host: "h1"},
			{name: "edge>a", under: ">edge", start: 0, end: 60, stamp: budget(left), host: "h1"},
			{name: ">a", under: "edge>a", start: start, end: 55, stamp: s, host: host},
		}
	}
	const before = " before the request was written"
	stale, lost := call(100, 99, 70, 30, "h2"), call(100, 99, 70, 30, "h2")
	stale[2].stamp.Stale = true
	lost[1].outcome = timedOut
	check(t, "queue-wait", []example{
		{"between hosts, by durations", call(100, 0, 70, 30, "h2"), []string{"edge>a 35ms"}},
		{"on one host, by the clock", call(100, 0, 70, 30, "h1"), []string{"edge>a 30ms"}},
		{"most of it before the request was written", call(100, 99, 80, 30, "h2"), []string{"edge>a 35ms" + before}},
		{"less than half of it", call(100, 99, 82, 30, "h2"), []string{"edge>a 35ms"}},
		{"an announcement of another span says nothing", stale, []string{"edge>a 35ms"}},
		{"20 % is not too much", call(150, 149, 120, 25, "h2"), nil},
		{"a callee that shaves its deadline did not wait", call(100, 99, 20, 1, "h2"), nil},
		{"an answer that never came is no wait", lost, nil},
		{"a few ms of a tiny budget", call(20, 19, 14.5, 0, "h1"), nil},
	})
	// A caller that says nothing has sent its deadline: 70 ms, and 105 before the wait.
	header, own := call(100, 0, 70, 30, "h2"), call(100, 0, 70, 30, "h2")
	header[0].stamp, header[1].stamp, header[2].stamp = nil, nil, relative(trace.KindServer, 70)
	own[0].stamp, own[1].stamp = nil, nil
	little := slices.Clone(header)
	little[2].stamp = relative(trace.KindServer, 140) // 35 of 175
	spent := slices.Clone(header)
	spent[2].stamp = relative(trace.KindServer, 0)
	check(t, "queue-wait", []example{
		{"of what a header told the callee", header, []string{"edge>a 35ms"}},
		{"with nothing left when it arrived", spent, []string{"edge>a 35ms"}},
		{"20 % of that", little, nil},
		{"a deadline of the callee's own says nothing of the caller's", own, nil},
	})
	// A plan allows the way to the bank 8 ms, whatever is left.
	bank := func(start float64, stamp *trace.Stamp) []span {
		return []span{
			{name: ">edge", start: 0, end: 200, host: "h"},
			{name: "edge>bank", under: ">edge", start: 0, end: 100, stamp: stamp, host: "h"},
			{name: ">bank", under: "edge>bank", start: start, end: 100, host: "h"},
		}
	}
	checkBy(t, "queue-wait", shop(), []example{
		{"more than the plan says", bank(9, nil), []string{"edge>bank 9ms"}},
		{"though it is little of what is left", bank(9, budget(900)), []string{"edge>bank 9ms"}},
		{"as the plan says", bank(8, nil), nil},
		{"though it is much of what is left", bank(8, budget(20)), nil},
	})
	plain := call(100, 0, 70, 30, "h1")
	for i := range plain {
		plain[i].stamp = nil
	}
	if got := found(t, "queue-wait", plain); got != nil {
		t.Errorf("without a budget: %v", got)
	}
	retried := call(100, 0, 70, 40, "h1")
	retried = append(retried[:2],
		span{name: "edge>a#1", under: "edge>a", start: 0, end: 20, outcome: trace.OutcomeFailed, host: "h1"},
		span{name: "edge>a#2", under: "edge>a", start: 30, end: 60, host: "h1"},
		span{name: ">a", under: "edge>a#2", start: 31, end: 59, host: "h1"})
	if got := found(t, "queue-wait", retried); got != nil {
		t.Errorf("earlier attempts are taken for a wait: %v", got)
	}
}
