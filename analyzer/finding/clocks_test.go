package finding_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// timing are the rules that hold a call's times against those of the span that made it.
var timing = []string{"call-after-deadline", "deadline-reset", "retry-overspend", "reserve-ignored", "tightest-deadline"}

// late is a request in which every rule on the times of a call and its maker speaks.
//
//	deadline                             | 100
//	>a        0 |------------------------|--| 110   100 left
//	a>b#1        |--------f|             |          was given 200
//	a>b#2                   |-----timed out|        was given 99
//	a>b#3                                | |-|      after the deadline
func late() []span {
	return []span{
		{name: ">a", start: 0, end: 110, stamp: budget(100), host: "h1"},
		{name: "a>b#1", under: ">a", start: 10, end: 50, outcome: failed, stamp: reset(90, 200), host: "h1"},
		{name: "a>b#2", under: ">a", start: 51, end: 101, outcome: timedOut, stamp: reset(49, 99), host: "h1"},
		{name: "a>b#3", under: ">a", start: 102, end: 108, host: "h1"},
	}
}

func TestTimesOfOneServiceOnTwoHostsAreNotCompared(t *testing.T) {
	for _, rule := range []string{"call-after-deadline", "deadline-reset", "retry-overspend"} {
		if len(found(t, rule, late())) == 0 {
			t.Errorf("%s finds nothing on one host", rule)
		}
	}
	// The clock of h2 is 60 ms ahead, and its process says what it really had.
	spans := []span{
		{name: ">a", start: 0, end: 200, stamp: budget(100), host: "h1"},
		{name: "a>b#1", under: ">a", start: 70, end: 80, outcome: failed, stamp: budget(90), host: "h2"},
		{name: "a>b#2", under: ">a", start: 81, end: 90, stamp: budget(79), host: "h2"},
		{name: "a>b#3", under: ">a", start: 158, end: 160, stamp: budget(2), host: "h2"},
	}
	for _, rule := range timing {
		if got := foundBy(t, rule, spans, shop()); got != nil {
			t.Errorf("%s: %q", rule, got)
		}
	}
}

// A deadline that was sent as a point in time is as good as the clocks are: what is
// left may be 50 ms more.
//
//	>a         0 |-------------------|---------| 140    100 left, if the clocks agree
//	a>b                              | |-| 130
//	>late            nothing left, if they do
func TestWhatIsLeftByAnotherClockHasSlack(t *testing.T) {
	for _, c := range []struct {
		more float64 // ms
		want []string
	}{
		{0, nil},
		{20, []string{
			"budget-overrun >a 60ms", "call-after-deadline a>b 60ms a",
			"exhausted-at-start >late 60ms", "work-after-deadline >a 10ms", "work-after-deadline >late 8ms",
		}},
	} {
		spans := []span{
			{name: ">a", start: 0, end: 140 + c.more, stamp: budget(100)},
			{name: "a>b", under: ">a", start: 140 + c.more, end: 140 + c.more},
			{name: "a>late", under: ">a", start: 10, end: 50},
			{name: ">late", under: "a>late", start: 10, end: 18, stamp: budget(-40 - c.more)},
		}
		for _, i := range []int{0, 3} {
			spans[i].stamp.Absolute = true
		}
		var got []string
		for _, rule := range []string{"budget-overrun", "call-after-deadline", "exhausted-at-start", "work-after-deadline"} {
			for _, f := range found(t, rule, spans) {
				got = append(got, rule+" "+f)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v ms more (-want +got):\n%s", c.more, diff)
		}
	}
}

// A span whose times are lost has no place in time: its zeros are no instants.
func TestTimesThatAreLostAreNotCompared(t *testing.T) {
	const start, before = 1_700_000_000_000, 20 // ms, as clocks have it
	lost := func(names ...string) *trace.Tree {
		tr, ids := tree(t, []span{
			{name: ">edge", start: start, end: start + 100, stamp: budget(300)},
			{name: "edge>a", under: ">edge", start: start + 10, end: start + 90},
			{name: ">a", under: "edge>a", start: start + 11, end: start + 89, stamp: budget(289)},
			{name: "a>b", under: ">a", start: start + before, end: start + 80, stamp: budget(280)},
			{name: "a>b#1", under: "a>b", start: start + before, end: start + 40, stamp: budget(280)},
			{name: "a>b#2", under: "a>b", start: start + 41, end: start + 60, stamp: budget(259)},
			{name: "a>b#3", under: "a>b", start: start + 61, end: start + 80, stamp: budget(239)},
		})
		spans := slices.Clone(tr.Trace.Spans)
		for i := range spans {
			if s := &spans[i]; slices.Contains(names, ids[s.ID]) {
				s.Start, s.Duration, s.Flags = 0, 0, s.Flags|trace.FlagUnmeasured
			}
		}
		whole := trace.NewTrace(spans)
		for i, p := range whole.Parent {
			if p < 0 {
				tr.Build(whole, int32(i), new(trace.Paths), nil)
			}
		}
		return tr
	}
	for _, names := range [][]string{{">a"}, {"a>b#1"}, {"a>b#2"}, {"a>b#3"}, {"a>b#1", "a>b#2"}, {">a", "a>b#2"}} {
		tr := lost(names...)
		if len(tr.Calls) < 2 {
			t.Fatalf("%v: %d calls", names, len(tr.Calls))
		}
		var tally finding.Tally
		for range 40 { // enough for rules that need many
			tally.Add(finding.NewRequest(tr, nil, finding.Defaults), func(int32) int32 { return 0 })
		}
		for _, c := range tally.List(nil) {
			if c.Rule.Name != "lockstep-backoff" || c.Most > 100*ms { // each of them waits alike
				t.Errorf("%v lost: %s", names, c.Text())
			}
		}
	}
}
