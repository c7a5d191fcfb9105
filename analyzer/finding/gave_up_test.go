package finding_test

import (
	"slices"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// The caller waits 100 ms and gives up; the callee learns nothing of it.
//
//	>edge       0 |-----------------------| 130
//	edge>a       10 |--------timed out| 110
//	>a            11 |=====================| 231     works on for 120 ms at least
//	a>b             30 |-| 40                        in time
//	a>c                            125 |-| 135       14 ms after the caller gave up at the latest
func abandoned() []span {
	return []span{
		{name: ">edge", start: 0, end: 130, outcome: failed},
		{name: "edge>a", under: ">edge", start: 10, end: 110, outcome: timedOut},
		{name: ">a", under: "edge>a", start: 11, end: 231},
		{name: "a>b", under: ">a", start: 30, end: 40},
		{name: "a>c", under: ">a", start: 125, end: 135},
	}
}

// skewed is abandoned with the clock of a an hour ahead.
func skewed() []span {
	spans := abandoned()
	for i := 2; i < len(spans); i++ {
		spans[i].start += 3_600_000
		spans[i].end += 3_600_000
	}
	return spans
}

// hedged is a call whose answer was overtaken, and then cancelled.
//
//	edge>a#1    0 |----------------cancelled| 61
//	>a#1           1 |========================| 100
//	edge>a#2         30 |-------ok| 60
func hedged() []span {
	return []span{
		{name: ">edge", start: 0, end: 70},
		{name: "edge>a#1", under: ">edge", start: 0, end: 61, outcome: cancelled},
		{name: ">a#1", under: "edge>a#1", start: 1, end: 100},
		{name: "a>b", under: ">a#1", start: 80, end: 90},
		{name: "edge>a#2", under: ">edge", start: 30, end: 60},
		{name: ">a#2", under: "edge>a#2", start: 31, end: 59},
	}
}

// What the loser of a hedge had called is cancelled with it, and has lost too.
//
//	edge>a#1    0 |----------------cancelled| 61
//	>a#1           1 |========================| 100
//	a>b               5 |-----------cancelled| 62
//	>b                 6 |===================| 95
//	b>c                  10 |-------cancelled| 63
//	>c                    11 |=============| 90
//	edge>a#2         30 |-------ok| 60
func TestWhatTheLoserOfAHedgeCalledLosesWithIt(t *testing.T) {
	hedge := func(winner trace.Outcome) []span {
		spans := slices.Insert(hedged(), 3,
			span{name: "a>b#0", under: ">a#1", start: 5, end: 62, outcome: cancelled, stamp: budget(60)},
			span{name: ">b#0", under: "a>b#0", start: 6, end: 95},
			span{name: "b>c", under: ">b#0", start: 10, end: 63, outcome: cancelled},
			span{name: ">c", under: "b>c", start: 11, end: 90})
		spans[len(spans)-2].outcome = winner
		return spans
	}
	expect(t, hedge(ok), "budget-utilization a>b#0 950 c op")
	for _, rule := range []string{"work-after-deadline", "outcome-unknown"} {
		want := 3
		if got := found(t, rule, hedge(failed)); len(got) != want {
			t.Errorf("no hedge, %s: %q, want %d findings", rule, got, want)
		}
	}
}

func TestWorkAfterDeadline(t *testing.T) {
	stops := abandoned()
	stops[2].end = 116 // 105 ms, of the caller's 100
	failing := abandoned()
	failing[1].outcome = failed
	own := abandoned()
	own[1].outcome, own[2].stamp = ok, budget(150)
	check(t, "work-after-deadline", []example{
		{"when the caller had given up", abandoned(), []string{">a 120ms"}},
		{"whatever the clocks", skewed(), []string{">a 120ms"}},
		{"5 ms to stop", stops, nil},
		{"a caller that failed otherwise had its answer", failing, nil},
		{"after the deadline of its own", own, []string{">a 70ms"}},
		{"the loser of a hedge is meant to lose", hedged(), nil},
	})
}

// How long work goes on is said of all callees that should have stopped: most of
// them do so at once.
func TestTheP99OfStoppingCountsThoseThatStopAtOnce(t *testing.T) {
	var requests [][]span
	for i := range 200 {
		spans := abandoned()
		spans[2].end = 112 // 1 ms longer than the caller's 100
		switch {
		case i < 2:
			spans[2].end = 11 + 100 + 80
		case i < 10:
			spans[2].end = 11 + 100 + 20 + float64(i)
		case i >= 190: // these never had to stop
			spans[1].outcome = ok
		}
		requests = append(requests, spans)
	}
	got := tallied(t, "work-after-deadline", requests)
	if len(got) != 1 || got[0].Findings != 10 || got[0].Most != 80*ms || got[0].P99 != 80*ms || got[0].Of != 190 {
		t.Fatalf("%+v, want 10 findings, and 80 ms as the 189th of 190", got)
	}
	got = tallied(t, "work-after-deadline", requests[1:])
	if len(got) != 1 || got[0].Findings != 9 || got[0].Most != 80*ms || got[0].P99 != 29*ms || got[0].Of != 189 {
		t.Fatalf("%+v, want 9 findings, and 29 ms as the 188th of 189", got)
	}
	const worked = "worked on for up to 80.0 ms when nobody waited any more; "
	if text, want := got[0].Text(), worked+"99 % of the 189 that should have stopped did so within 29.0 ms"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	for n, want := range map[int]string{
		100: "99 % of the 100 that should have stopped did so within 29.0 ms",
		99:  "99 should have stopped, too few for a P99",
	} {
		got := tallied(t, "work-after-deadline", requests[1:n+1])
		if got[0].Text() != worked+want || got[0].Of != n || got[0].P99 > 0 != (n >= finding.FewestForP99) {
			t.Errorf("of %d: %+v, %q, want %q", n, got[0], got[0].Text(), worked+want)
		}
	}
}

func TestCallAfterDeadline(t *testing.T) {
	own := abandoned()
	own[1].outcome, own[2].stamp = ok, budget(50)
	moment := abandoned()
	moment[1].outcome, moment[2].stamp = ok, budget(113)
	soon := abandoned()
	soon[4].start = 116 // 5 ms later than the caller waited
	check(t, "call-after-deadline", []example{
		{"when the caller had given up", abandoned(), []string{"a>c 14ms a"}},
		{"whatever the clocks", skewed(), []string{"a>c 14ms a"}},
		{"within 5 ms of that", soon, nil},
		{"a moment after its own deadline", moment, []string{"a>c 1ms a"}},
		{"after the deadline of the span that made it", own, []string{"a>c 64ms a"}},
		{"below the loser of a hedge", hedged(), nil},
	})
}

func TestOutcomeUnknown(t *testing.T) {
	failing := abandoned()
	failing[2].outcome = cancelled
	fine := abandoned()
	fine[1].outcome = ok
	left := abandoned()
	left[1].outcome = cancelled
	lost := abandoned()[:2]
	check(t, "outcome-unknown", []example{
		{"the callee completed", abandoned(), []string{">a 220ms"}},
		{"of a caller that cancelled", left, []string{">a 220ms"}},
		{"a callee that stopped", failing, nil},
		{"a caller that waited", fine, nil},
		{"a callee whose span is lost", lost, nil},
		{"the loser of a hedge", hedged(), nil},
	})
}

// What counts as expiry.
func TestDeadlineExceeded(t *testing.T) {
	call := func(outcome int, end float64, left float64) []span {
		spans := []span{
			{name: ">edge", start: 0, end: 500},
			{name: "edge>a", under: ">edge", start: 0, end: end, outcome: []trace.Outcome{ok, failed, timedOut, cancelled}[outcome]},
		}
		if left != 0 {
			spans[1].stamp = budget(left)
		}
		return spans
	}
	both := abandoned()
	both[2].outcome = timedOut
	callee := call(0, 100, 0)
	callee = append(callee, span{name: ">a", under: "edge>a", start: 1, end: 99, outcome: timedOut})
	sub := call(3, 60, 300)
	sub[1].stamp = reset(300, 60) // a timeout of the call's own
	check(t, "deadline-exceeded", []example{
		{"a timeout, whatever is known of the deadline", call(2, 30, 0), []string{"edge>a 30ms"}},
		{"once for both halves", both, []string{"edge>a 100ms"}},
		{"at the callee", callee, []string{">a 98ms"}},
		{"cancelled at the deadline", call(3, 100, 100), []string{"edge>a 100ms"}},
		{"cancelled within the tolerance", call(3, 95, 100), []string{"edge>a 95ms"}},
		{"cancelled long before", call(3, 94, 100), nil},
		{"cancelled at a shorter deadline of the call", sub, []string{"edge>a 60ms"}},
		{"cancelled, and no deadline known", call(3, 100, 0), nil},
		{"another failure at the deadline", call(1, 100, 100), nil},
		{"answered at the deadline", call(0, 100, 100), nil},
		{"the loser of a hedge", hedged(), nil},
	})
}
