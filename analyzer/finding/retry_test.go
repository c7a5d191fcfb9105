package finding_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// layers is a chain in which every service tries its call n times, all but the
// last of them in vain.
//
//	>s0      |-----------------------------------------------|
//	s0>s1      |----failed| |----failed| |------------ok|
//	>s1         |--------|   |--------|   |------------|
//	s1>s2         |f||f||k|   |f||f||k|     |f||f||k|
func layers(depth, n int) []span {
	spans := []span{{name: ">s0", start: 0, end: 1000}}
	var below func(parent string, layer int, from, to float64)
	below = func(parent string, layer int, from, to float64) {
		if layer == depth {
			return
		}
		step := (to - from) / float64(n)
		for i := range n {
			id := fmt.Sprintf("#%s.%d", parent, i)
			call, server := fmt.Sprintf("s%d>s%d%s", layer, layer+1, id), fmt.Sprintf(">s%d%s", layer+1, id)
			outcome := failed
			if i == n-1 {
				outcome = ok
			}
			start, end := from+float64(i)*step+step/100, from+float64(i+1)*step-step/100
			spans = append(spans,
				span{name: call, under: parent, start: start, end: end, outcome: outcome},
				span{name: server, under: call, start: start + step/100, end: end - step/100, outcome: outcome})
			below(server, layer+1, start+step/50, end-step/50)
		}
	}
	below(">s0", 0, 0, 1000)
	return spans
}

func most(t *testing.T, rule string, spans []span) (n int, amount int64) {
	t.Helper()
	for _, f := range found(t, rule, spans) {
		var name string
		var a int64
		if _, err := fmt.Sscan(f, &name, &a); err != nil {
			t.Fatal(err)
		}
		n, amount = n+1, max(amount, a)
	}
	return n, amount
}

func TestRetryAmplification(t *testing.T) {
	for _, c := range []struct {
		depth, tries int
		findings     int
		want         int64
	}{
		{1, 1, 0, 0},
		{1, 3, 0, 0},      // usual
		{1, 4, 1, 4},      // too many of one
		{2, 2, 2, 4},      // each of the two calls of the first layer
		{2, 3, 3, 9},      // three
		{3, 3, 3 + 9, 27}, // 9 in the middle, 27 at the end
	} {
		if n, got := most(t, "retry-amplification", layers(c.depth, c.tries)); n != c.findings || got != c.want {
			t.Errorf("%d layers of %d: %d findings, the largest %d; want %d, %d", c.depth, c.tries, n, got, c.findings, c.want)
		}
	}
	// Spans of gRPC: one for the call, one for each attempt.
	//
	//	edge>a     |----------------------------|
	//	edge>a#n   |-f-| |-f-| |-f-| |----------|
	spans := []span{
		{name: ">edge", start: 0, end: 400},
		{name: "edge>a", under: ">edge", start: 0, end: 400},
	}
	for i := range 4 {
		spans = append(spans, span{name: fmt.Sprintf("edge>a#%d", i), under: "edge>a", start: float64(i) * 100, end: float64(i)*100 + 90})
	}
	loop := []span{{name: ">edge", start: 0, end: 1000}}
	beside := []span{{name: ">edge", start: 0, end: 1000}}
	late := []span{{name: ">edge", start: 0, end: 10000}}
	missing := []span{{name: ">edge", start: 0, end: 1000}}
	for i := range 5 {
		at := float64(i) * 100
		loop = append(loop, span{name: fmt.Sprintf("edge>a#%d", i), under: ">edge", start: at, end: at + 90})
		missing = append(missing, span{name: fmt.Sprintf("edge>a#%d", i), under: ">edge", start: at, end: at + 90, outcome: failed, final: true})
		beside = append(beside, span{name: fmt.Sprintf("edge>a#%d", i), under: ">edge", start: at, end: at + 500, outcome: failed})
		late = append(late, span{name: fmt.Sprintf("edge>a#%d", i), under: ">edge", start: 20 * at, end: 20*at + 999, outcome: failed})
	}
	check(t, "retry-amplification", []example{
		{"attempts that report themselves", spans, []string{"edge>a 4"}},
		{"a loop is none", loop, nil},
		{"a loop over what does not exist is none", missing, nil},
		{"calls beside each other are none", beside, nil},
		{"more than a second apart is another call", late, nil},
	})
}

// A service goes through its items one by one, and hedges the call for each.
//
//	>edge        |------------------------------------|
//	edge>a#1.0   |------ok|
//	edge>a#1.1       |-----cancelled|
//	edge>a#2.0                       |------ok|
//	edge>a#2.1                           |-----cancelled|
//
// Some libraries report the attempts inside the call.
//
//	edge>a       |------------------ok|
//	edge>a#1     |--------------------|
//	edge>a#2        |-----------------|
//	edge>a#3           |--------------|
func TestHedgesAreNoRetries(t *testing.T) {
	for _, winner := range []int{0, 1} {
		spans := []span{{name: ">edge", start: 0, end: 1000, stamp: budget(600)}}
		for item := range 5 {
			for i := range 2 {
				at := 100*float64(item) + 20*float64(i)
				call := span{name: fmt.Sprintf("edge>a#%d.%d", item, i), under: ">edge", start: at, end: 100*float64(item) + 60}
				if i != winner {
					call.end, call.outcome = call.end+5, cancelled
				}
				server := span{name: fmt.Sprintf(">a#%d.%d", item, i), under: call.name, start: at, end: call.end}
				spans = append(spans, call, server)
				for j := range 2 { // which is hedged, too
					below := span{name: fmt.Sprintf("a>b#%d.%d.%d", item, i, j), under: server.name, start: at + 10 + float64(j), end: at + 20}
					if j != winner {
						below.end, below.outcome = below.end+1, cancelled
					}
					again := below
					again.name += ".again"
					again.start, again.end = again.start+15, again.end+15
					spans = append(spans, below, again)
				}
			}
		}
		tr, _ := tree(t, spans)
		for i := range tr.Trace.Spans {
			tr.Trace.Spans[i].Flags |= trace.FlagUnsafe
		}
		r := finding.NewRequest(tr, nil, finding.Defaults)
		for _, rule := range []string{"retry-amplification", "retry-overspend", "unsafe-retry"} {
			finding.Named(rule).Check(r, func(f finding.Finding) { t.Errorf("attempt %d wins: %s %+v", winner, rule, f) })
		}
		for i := range tr.Calls {
			if number, retried := r.Attempt(int32(i), tr.Calls[i].Span); number != 1 || retried {
				t.Errorf("attempt %d wins: call %d is attempt %d, retried %v", winner, i, number, retried)
			}
		}
	}
	inside := []span{{name: ">edge", start: 0, end: 100}, {name: "edge>a", under: ">edge", start: 0, end: 60}}
	for i := range 5 {
		at := float64(5 * i)
		inside = append(inside, span{name: fmt.Sprintf("edge>a#%d", i), under: "edge>a", start: at, end: at + 35, outcome: cancelled})
	}
	check(t, "retry-amplification", []example{{"inside one call", inside, nil}})
	twice := append(slices.Clone(inside), // both of the first wave failed, then all of a second, and so on
		span{name: "edge>a#x", under: "edge>a", start: 40, end: 50, outcome: failed}, span{name: "edge>a#y", under: "edge>a", start: 41, end: 51, outcome: failed},
		span{name: "edge>a#z", under: "edge>a", start: 51, end: 52, outcome: failed}, span{name: "edge>a#v", under: "edge>a", start: 53, end: 60})
	check(t, "retry-amplification", []example{{"waves of them, one after the other", twice, []string{"edge>a 4"}}})
}

// Three attempts of 100 ms under a caller with 250: the third is given more
// than the 50 ms that are left.
//
//	deadline                                  | 250
//	>edge     0 |-----------------------------|------| 300
//	edge>a#1    |-------f|                    |            100 of 250
//	edge>a#2             |-------f|           |            100 of 150
//	edge>a#3                      |-----------|-----f|     100 of 50
func TestRetryOverspend(t *testing.T) {
	attempts := func(total, given float64, stamped bool) []span {
		spans := []span{{name: ">edge", start: 0, end: 300, stamp: budget(total)}}
		for i := range 3 {
			at := float64(i) * 100
			s := span{name: fmt.Sprintf("edge>a#%d", i+1), under: ">edge", start: at, end: at + given, outcome: failed}
			if stamped {
				s.end, s.stamp = at+10, reset(total-at, given)
			}
			spans = append(spans, s)
		}
		return spans
	}
	sole := attempts(50, 100, true)[:2]
	// The same, where one span stands for the call: gRPC reports its attempts inside.
	inside := attempts(250, 100, true)
	for i := 1; i < len(inside); i++ {
		inside[i].under = "edge>a"
	}
	inside = slices.Insert(inside, 1, span{name: "edge>a", under: ">edge", start: 0, end: 240})
	check(t, "retry-overspend", []example{
		{"inside one call", inside, []string{"edge>a 50ms edge"}},
		{"given too much", attempts(250, 100, true), []string{"edge>a#3 50ms edge"}},
		{"took too much", attempts(250, 100, false), []string{"edge>a#3 50ms edge"}},
		{"5 ms are within the tolerance", attempts(295, 100, true), nil},
		{"when nothing is left at all", attempts(100, 90, true), []string{"edge>a#2 90ms edge", "edge>a#3 90ms edge"}},
		{"a first attempt is no retry", sole, nil},
	})
	plain := attempts(250, 100, false)
	plain[0].stamp = nil
	if got := found(t, "retry-overspend", plain); got != nil {
		t.Errorf("without a budget: %v", got)
	}
}

// Attempts are numbered through, whether they are calls of their own or reported
// inside one.
//
//	>edge      |--------------------------------------|
//	edge>a#1   |-----f|                                    1 of 4
//	edge>a#2           |---------------------------|       2
//	  edge>a#v         |----f|                             2
//	  edge>a#x          |-------------f|                   2, a hedge
//	  edge>a#y                 |----f|                     3
//	  edge>a#w                  |-f|                       3, a hedge
//	  edge>a#z                      |---------ok|          4, of w
func TestAttemptsAreNumberedThrough(t *testing.T) {
	tr, names := tree(t, []span{
		{name: ">edge", start: 0, end: 100},
		{name: "edge>a#1", under: ">edge", start: 0, end: 10, outcome: failed},
		{name: "edge>a#2", under: ">edge", start: 20, end: 90},
		{name: "edge>a#v", under: "edge>a#2", start: 20, end: 30, outcome: failed},
		{name: "edge>a#x", under: "edge>a#2", start: 21, end: 55, outcome: failed},
		{name: "edge>a#y", under: "edge>a#2", start: 40, end: 50, outcome: failed},
		{name: "edge>a#w", under: "edge>a#2", start: 41, end: 45, outcome: failed},
		{name: "edge>a#z", under: "edge>a#2", start: 47, end: 90},
	})
	r := finding.NewRequest(tr, nil, finding.Defaults)
	got := make(map[string]int64)
	for call := range tr.Calls {
		for i, s := range tr.Trace.Spans {
			if number, retried := r.Attempt(int32(call), int32(i)); retried {
				got[names[s.ID]] = number
			}
		}
	}
	want := map[string]int64{"edge>a#1": 1, "edge>a#2": 2, "edge>a#v": 2, "edge>a#x": 2, "edge>a#y": 3, "edge>a#w": 3, "edge>a#z": 4}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
