package budget

import (
	"math"

	"github.com/latencybudget/latencybudget/analyzer/profile"
)

// limitSet is what a replay enforces. Times are in ns, +Inf where there is no
// limit.
type limitSet struct {
	// Timeouts are those of the hops, by index; that of the endpoint is the
	// deadline of the request. Values of hops without a budget do not matter.
	Timeouts []float64
	// Propagate tells that callers pass the remaining deadline on: a hop's
	// deadline is then also that of its caller without the caller's tail, and a
	// call that would start with less than its floor is not sent.
	Propagate bool
	// Degradable tells by index which hops do not fail their caller: it goes on
	// without their answer at their deadline, or when a call below them is cut.
	// Whatever waited for them starts earlier by what that gains. Nil: none.
	Degradable []bool
}

// Effect is what limits would have done to a set of requests. Ratios are
// weighted shares of the requests that did not fail, which alone are replayed;
// times are weighted means in ns. A request counts for each hop the longest
// operation that it had.
type Effect struct {
	Requests int
	Miss     float64 // over the budget
	Violated float64 // over the budget or cut
	FalseCut float64 // cut although within the budget: Violated - Miss
	Degraded float64 // not cut, but answered without at least one degradable hop

	// Executed is the time that the spans of a request ran, Saved what a limit
	// spared, and Wasted what ran in violated requests. Executed and Saved make
	// up what the spans took when they were recorded.
	Executed, Saved, Wasted float64
	// Early is how long before the budget the requests that are over it
	// returned, 0 for those that were not: a mean over those that miss, 0 where
	// none does.
	Early float64
	// Cut is by hop the share of the requests that its deadline ended: the
	// first of all deadlines that passed, that of the smaller index where two
	// passed at once. Cut[0] are those that the deadline of the request ended.
	Cut []float64
}

// regime is a problem and the limits that are tried on its requests.
type regime struct {
	p      *Problem
	limits limitSet
}

// replay applies to each request in rows, whose columns are the hops of the
// problems, the regime of its fold, and judges it by the budget of the endpoint
// in ns. The first cut ends a request, and with it all of its spans. It assumes
// that callees stop when they are cancelled, that less work makes nobody faster,
// and that these requests were not cut already. All problems have the same
// structure.
func replay(rows *profile.Rows, parts *partition, budget float64, regimes []regime) Effect {
	p := regimes[0].p
	replayers := make([]replayer, len(regimes))
	for f := range regimes {
		replayers[f].reset(&regimes[f])
	}
	planned := replayers[0].planned
	tallies := make([]tally, len(parts.weights))
	for class := range tallies {
		tallies[class].cut = make([]int, len(p.Hops))
	}
	for r := range rows.Len() {
		if rows.FailedAt(0, r) {
			continue
		}
		e := &replayers[parts.fold[r]]
		o := e.request(rows, r)
		total, executed := 0.0, 0.0
		for h := range p.Hops {
			if d := float64(rows.Duration[h][r]); planned[h] && d >= 0 {
				total += d
				start, end := e.ran(h, float64(rows.Start[h][r]), d)
				executed += max(min(end, o.cut)-start, 0)
			}
		}
		t := &tallies[parts.class[r]]
		t.requests++
		t.executed += executed
		t.saved += total - executed
		miss, cut := o.duration > budget, o.hop >= 0
		if cut {
			t.cut[o.hop]++
		} else if o.degraded {
			t.degraded++
		}
		if miss {
			t.miss++
			t.early += max(budget-max(min(o.duration, o.cut), 0), 0)
		} else if cut {
			t.falseCut++
		}
		if miss || cut {
			t.wasted += executed
		}
	}
	return parts.effect(tallies, len(p.Hops))
}

// tally counts the requests of one weight. Its times are sums of whole ns, so
// they do not depend on the order of the rows up to 104 days.
type tally struct {
	requests, miss, falseCut, degraded int
	cut                                []int
	executed, saved, wasted, early     float64
}

// effect weighs the tallies, which are by class, of requests to so many hops.
func (p *partition) effect(tallies []tally, hops int) Effect {
	e := Effect{Cut: make([]float64, hops)}
	var total, early float64
	for class, t := range tallies {
		w := p.weights[class]
		e.Requests += t.requests
		total += w * float64(t.requests)
		e.Miss += w * float64(t.miss)
		e.FalseCut += w * float64(t.falseCut)
		e.Degraded += w * float64(t.degraded)
		e.Executed += w * t.executed
		e.Saved += w * t.saved
		e.Wasted += w * t.wasted
		early += w * t.early
		for h, n := range t.cut {
			e.Cut[h] += w * float64(n)
		}
	}
	if e.Miss > 0 {
		e.Early = early / e.Miss
	}
	e.Violated = e.Miss + e.FalseCut
	if total > 0 {
		for _, mean := range []*float64{&e.Miss, &e.Violated, &e.FalseCut, &e.Degraded, &e.Executed, &e.Saved, &e.Wasted} {
			*mean /= total
		}
		for h := range e.Cut {
			e.Cut[h] /= total
		}
	}
	return e
}

// replayer tries limits on one request after the other.
type replayer struct {
	*regime
	planned   []bool
	deadlines []float64
	moving    bool // some hop is degradable, so calls may start earlier than they did
	shift     shift
}

func (e *replayer) reset(t *regime) {
	e.regime = t
	e.planned = t.p.planned(e.planned)
	e.deadlines = make([]float64, len(t.p.Hops))
	for h, yes := range t.limits.Degradable {
		e.moving = e.moving || yes && e.planned[h]
	}
	if e.moving {
		e.shift.reset(t.p)
	}
}

// outcome is what limits do to one request. Times are in ns after its start.
type outcome struct {
	duration float64 // it would take if no hop failed it
	cut      float64 // when it is cut; +Inf if it is not
	hop      int     // that it is cut at; -1 if it is not
	degraded bool
}

func (e *replayer) request(rows *profile.Rows, r int) outcome {
	if e.moving {
		return e.shift.run(rows, r, &e.limits)
	}
	o := outcome{duration: float64(rows.Duration[0][r])}
	o.cut, o.hop = e.cut(rows, r)
	return o
}

// ran returns when a hop started and would have ended without a cut, from when
// it started and how long it took when it was recorded.
func (e *replayer) ran(h int, start, duration float64) (from, to float64) {
	if e.moving {
		return e.shift.start[h], e.shift.end[h]
	}
	return start, start + duration
}

// cut returns when, after its start, request r is cut, and at which hop; +Inf and
// -1 if it is not. Here nothing is degradable, so every call starts when it did.
//
//	request   |--------------------------------------|          | budget
//	caller       |-------------------------------|-tail-| its deadline
//	call             |----------- timeout ------------|
//	                                             ^ deadline of the call
func (e *replayer) cut(rows *profile.Rows, r int) (at float64, failing int) {
	at, failing = math.Inf(1), -1
	for h, timeout := range e.limits.Timeouts {
		duration := rows.Duration[h][r]
		if !e.limits.Propagate && float64(duration) <= timeout || !e.planned[h] { // as most are
			continue
		}
		hop := &e.p.Hops[h]
		passed := math.Inf(1)
		if e.limits.Propagate {
			if h > 0 {
				passed = e.deadlines[hop.Parent] - e.p.Hops[hop.Parent].tail()
			}
			e.deadlines[h] = passed
		}
		if duration < 0 {
			continue
		}
		start := float64(rows.Start[h][r])
		deadline := min(start+timeout, passed)
		if e.limits.Propagate {
			e.deadlines[h] = deadline
			if h > 0 && deadline-start < hop.Floor { // not sent
				if start < at {
					at, failing = start, h
				}
				continue
			}
		}
		// What failed anyway is no loss.
		if deadline < at && start+float64(duration) > deadline && !rows.FailedAt(h, r) {
			at, failing = deadline, h
		}
	}
	return at, failing
}
