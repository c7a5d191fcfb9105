package finding_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// another makes a stamp whose deadline was sent as a point in time, on another clock.
func another(left float64) *trace.Stamp {
	s := budget(left)
	s.Absolute = true
	return s
}

// captured makes a stamp of a header that was captured: no service says it.
func captured(left float64) *trace.Stamp {
	s := budget(left)
	s.Derived = true
	return s
}

// behind is captured, of a deadline on another clock.
func behind(left float64) *trace.Stamp {
	s := captured(left)
	s.Absolute = true
	return s
}

// pair is the nearest healthy request to what a rule looks for, and the nearest that it must find.
type pair struct {
	name       string
	well, sick []span
	by         *plan.Plan
}

// change is a copy of spans in which one is another.
func change(spans []span, name string, to func(*span)) []span {
	out := slices.Clone(spans)
	for i := range out {
		if out[i].name == name {
			to(&out[i])
			return out
		}
	}
	panic(name)
}

// retried is a call of edge that is sent n times within its 300 ms, each after a wait.
//
//	>edge      |------------------------------------|  300 left
//	edge>a#1    |--f|
//	edge>a#2            |--f|                           each is given what is left
//	edge>a#3                    |--ok|
func retried(n int, wait float64) []span {
	spans := []span{{name: ">edge", start: 0, end: 200, stamp: budget(300)}}
	at := 5.0
	for i := range n {
		s := span{name: fmt.Sprintf("edge>a#%d", i+1), under: ">edge", start: at, end: at + 20, stamp: budget(300 - at)}
		if i < n-1 {
			s.outcome = failed
		}
		spans, at = append(spans, s), at+20+wait
	}
	return spans
}

// pairs are, by rule, requests that differ in what the rule looks for and in nothing else.
func pairs() map[string][]pair {
	call := func(edge, exit, entry *trace.Stamp) []span {
		return []span{
			{name: ">edge", start: 0, end: 100, stamp: edge, host: "h1"},
			{name: "edge>a", under: ">edge", start: 10, end: 60, stamp: exit, host: "h1"},
			{name: ">a", under: "edge>a", start: 12, end: 58, stamp: entry, host: "h2"},
		}
	}
	at := func(spans []span, name string, start, end float64) []span {
		return change(spans, name, func(s *span) { s.start, s.end = start, end })
	}
	ended := func(spans []span, name string, how trace.Outcome) []span {
		return change(spans, name, func(s *span) { s.outcome = how })
	}
	stamped := func(spans []span, name string, with *trace.Stamp) []span {
		return change(spans, name, func(s *span) { s.stamp = with })
	}
	healthy := call(budget(300), budget(290), budget(289))
	// Three services of gRPC, the two in the middle say nothing, and each may send 3 % more.
	silent := func(arrived *trace.Stamp) []span {
		return []span{
			{name: ">edge", start: 0, end: 100, stamp: budget(1000)},
			{name: "edge>a", under: ">edge", start: 1, end: 99},
			{name: ">a", under: "edge>a", start: 2, end: 98, host: "h2"},
			{name: "a>b", under: ">a", start: 3, end: 97, host: "h2"},
			{name: ">b", under: "a>b", start: 4, end: 96, host: "h3"},
			{name: "b>c", under: ">b", start: 5, end: 95, host: "h3"},
			{name: ">c", under: "b>c", start: 6, end: 94, stamp: arrived, host: "h4"},
		}
	}
	// The client gives up, and the callee notices within the grace, or not.
	gaveUp := func(how trace.Outcome, until float64) []span {
		spans := at(ended(healthy, "edge>a", how), ">a", 12, until)
		return ended(spans, ">a", failed)
	}
	hedge := func(winner trace.Outcome) []span {
		return []span{
			{name: ">edge", start: 0, end: 100, stamp: budget(300)},
			{name: "edge>a#1", under: ">edge", start: 5, end: 60, stamp: budget(295), outcome: cancelled},
			{name: ">a#1", under: "edge>a#1", start: 6, end: 90, stamp: budget(294)},
			{name: "edge>a#2", under: ">edge", start: 25, end: 58, stamp: budget(275), outcome: winner},
			{name: ">a#2", under: "edge>a#2", start: 26, end: 57, stamp: budget(274), outcome: winner},
		}
	}
	queued := func(remaining *trace.Stamp, from, to float64) []span {
		spans := stamped(healthy, "edge>a", remaining)
		return at(spans, ">a", from, to)
	}
	work := func(left *trace.Stamp, took float64) []span {
		spans := stamped(stamped(healthy, "edge>a", nil), ">a", left)
		return at(spans, ">a", 12, 12+took)
	}
	sent := func(left *trace.Stamp, took float64) []span {
		return at(call(budget(300), left, nil)[:2], "edge>a", 10, 10+took)
	}
	least := &plan.Plan{Endpoints: []plan.Endpoint{{Service: "edge", Operation: "op", Budget: plan.Duration(1000 * ms), Tail: plan.Duration(30 * ms), Hops: []plan.Hop{
		{Callee: "a", Operation: "op", Share: plan.Duration(900 * ms), Floor: plan.Duration(20 * ms)},
	}}}}
	return map[string][]pair{
		"budget-overrun": {
			{name: "to the last moment", well: sent(budget(50), 50), sick: sent(budget(50), 50.1)},
			{name: "another clock, 49 ms ahead", well: work(another(1), 50), sick: work(another(1), 52)},
			{name: "handed on as it came from another clock", well: call(behind(60), captured(1), nil), sick: call(captured(160), captured(1), nil)},
			{name: "measured of a deadline from another clock", well: call(another(60), budget(1), nil), sick: call(budget(160), budget(1), nil)},
		},
		"budget-utilization": {
			{name: "four fifths", well: sent(budget(50), 40), sick: sent(budget(50), 41)},
			{name: "another clock, 49 ms ahead", well: work(another(51), 80), sick: work(another(51), 82)},
		},
		"call-after-deadline": {
			{name: "at the last moment", well: at(call(budget(50), nil, nil), "edge>a", 50, 60), sick: at(call(budget(50), nil, nil), "edge>a", 51, 60)},
			{name: "another clock, 49 ms ahead", well: at(call(another(50), nil, nil), "edge>a", 99, 99), sick: at(call(another(49), nil, nil), "edge>a", 100, 100)},
		},
		"deadline-dropped": {
			{name: "a captured header does not tell that there is none", well: call(budget(300), captured(290), nil), sick: call(budget(300), dropped(290), nil)},
			{name: "a callee that was given none", well: call(budget(300), nil, dropped(289)), sick: call(budget(300), dropped(290), dropped(289))},
		},
		"deadline-exceeded": {
			{name: "somebody left long before the deadline", well: ended(healthy, "edge>a", cancelled), sick: ended(stamped(healthy, "edge>a", budget(51)), "edge>a", cancelled)},
			{name: "an error that is not about time", well: ended(healthy, "edge>a", failed), sick: ended(healthy, "edge>a", timedOut)},
			{name: "the loser of a hedge", well: hedge(ok), sick: ended(healthy, ">a", timedOut)},
		},
		"deadline-reset": {
			{name: "3 % more", well: call(budget(300), budget(290), budget(298.7)), sick: call(budget(300), budget(290), budget(303))},
			{name: "3 % more of each of three that say nothing", well: silent(budget(1092)), sick: silent(budget(1130))},
			{name: "the same, and another clock, 49 ms behind", well: silent(another(1141)), sick: silent(another(1180))},
			{name: "the clock of the service itself", well: call(another(300), reset(290, 300), nil), sick: call(another(300), reset(290, 320), nil)},
			{name: "shaved", well: call(budget(300), budget(190), budget(80)), sick: call(budget(300), budget(190), reset(80, 300))},
			{name: "another clock, 49 ms behind", well: call(budget(300), budget(290), another(339)), sick: call(budget(300), budget(290), another(353))},
			{
				name: "as a service without stamps of its own has it from another clock", sick: call(another(251), nil, captured(320)),
				well: call(another(251), nil, captured(300)),
			},
			{name: "a proxy without spans", well: call(budget(2000), budget(1990), captured(1985)), sick: call(budget(2000), budget(1990), captured(15_000))},
		},
		"doomed-call": {
			{name: "the floor", well: sent(budget(20), 10), sick: sent(budget(19.9), 10), by: least},
			{name: "another clock, 49 ms ahead", well: call(nil, nil, another(-25)), sick: call(nil, nil, another(-35)), by: least},
		},
		"exhausted-at-start": {
			{name: "a moment", well: sent(budget(0.001), 1), sick: sent(budget(0), 1)},
			{name: "another clock, 49 ms ahead", well: work(another(-49), 1), sick: work(another(-50), 1)},
			{name: "handed on as it came from another clock", well: call(behind(1), captured(-9), nil), sick: call(captured(1), captured(-9), nil)},
		},
		"outcome-unknown": {
			{name: "the callee failed too", well: gaveUp(timedOut, 58), sick: ended(gaveUp(timedOut, 58), ">a", ok)},
			{name: "the loser of a hedge", well: hedge(ok), sick: hedge(failed)},
		},
		"queue-wait": {
			{name: "a fifth of what was left", well: queued(budget(100), 12, 42), sick: queued(budget(100), 12, 41)},
			{name: "another clock of the caller, 49 ms ahead", well: queued(another(51), 12, 42), sick: queued(another(49), 12, 41)},
			{name: "clocks 50 ms apart", well: queued(budget(100), -38, 8), sick: queued(budget(100), -38, -9)},
			{name: "little, and little left", well: queued(budget(60), 12, 57), sick: queued(budget(20), 12, 56)},
			{
				name: "another clock, 49 ms ahead", well: stamped(queued(nil, 30, 60), ">a", behind(31)),
				sick: stamped(queued(nil, 30, 60), ">a", captured(31)),
			},
		},
		"reserve-ignored": {
			{name: "kept, but for 5 ms", well: sent(budget(265), 10), sick: sent(budget(266), 10), by: least},
			{name: "on two hosts nobody knows", well: change(sent(budget(290), 10), "edge>a", func(s *span) { s.host = "h9" }), sick: sent(budget(290), 10), by: least},
		},
		"retry-amplification": {
			{name: "three attempts", well: retried(3, 10), sick: retried(4, 10)},
			{name: "four, but a second apart", well: retried(4, 1001), sick: retried(4, 999)},
		},
		"retry-overspend": {
			{name: "what is left", well: retried(2, 50), sick: stamped(retried(2, 50), "edge>a#2", budget(236))},
			{
				name: "another clock, 49 ms ahead", well: stamped(stamped(retried(2, 50), ">edge", another(251)), "edge>a#2", budget(225)),
				sick: stamped(stamped(retried(2, 50), ">edge", another(251)), "edge>a#2", budget(240)),
			},
		},
		"tightest-deadline": {
			{name: "somebody left long before it", well: ended(healthy, "edge>a", cancelled), sick: ended(stamped(healthy, "edge>a", budget(50)), "edge>a", timedOut)},
			{name: "a timeout that is not the deadline's", well: ended(healthy, "edge>a", timedOut), sick: ended(stamped(healthy, "edge>a", budget(49)), "edge>a", cancelled)},
		},
		"work-after-deadline": {
			{name: "time to stop", well: gaveUp(cancelled, 66), sick: gaveUp(cancelled, 68)},
			{name: "another clock, 49 ms ahead", well: work(another(1), 55), sick: work(another(1), 57)},
			{name: "the loser of a hedge", well: hedge(ok), sick: hedge(failed)},
		},
	}
}

// Every rule speaks of the nearest request that it must find, and not of the nearest healthy one.
func TestHealthyRequestsAreToldFromTheNearestThatAreNot(t *testing.T) {
	all := pairs()
	for _, rule := range finding.Rules() {
		switch rule.Name {
		case "fixed-timeout", "lockstep-backoff", "trace-restarted", "unsafe-retry": // take many requests, or other spans
			continue
		}
		if len(all[rule.Name]) == 0 {
			t.Errorf("%s has no pair", rule.Name)
		}
		for _, p := range all[rule.Name] {
			if got := foundBy(t, rule.Name, p.well, p.by); got != nil {
				t.Errorf("%s, %s: %q, want nothing", rule.Name, p.name, got)
			}
			if got := foundBy(t, rule.Name, p.sick, p.by); got == nil {
				t.Errorf("%s, %s: nothing is found in the one that is not healthy", rule.Name, p.name)
			}
		}
	}
}
