package budget

import (
	"math"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// Limits are what a replay enforces. Times are in ns, +Inf where there is no limit.
type Limits struct {
	// Budget is the deadline of the request.
	Budget float64
	// Timeouts are those of the hops, by index. Values of hops without a budget
	// do not matter.
	Timeouts []float64
	// Propagate tells that callers pass the remaining deadline on: a hop's
	// deadline is then also that of its caller without the caller's tail, and a
	// call that would start with less than its floor is not sent.
	Propagate bool
}

// Effect is what limits would have done to a set of requests. Ratios are
// weighted shares of all requests, times are weighted means in ns.
type Effect struct {
	Requests int
	Miss     float64 // over the budget
	Violated float64 // over the budget or cut
	FalseCut float64 // cut although within the budget: Violated - Miss

	// Executed is the time that the spans of a request ran, Saved what a cut
	// spared, and Wasted what ran in violated requests.
	Executed, Saved, Wasted float64
	// Early is how long before the budget the requests that are over it
	// returned: a mean over those that miss, 0 where none does.
	Early float64
}

// Replay applies limits to the requests in rows, whose columns are the hops of
// the problem. The first cut ends a request, and with it all of its spans. It
// assumes that callees stop when they are cancelled, that less work makes
// nobody faster, and that these requests were not cut already.
func (p *Problem) Replay(rows *profile.Rows, limits Limits) Effect {
	planned := p.planned(nil)
	deadlines := make([]float64, len(p.Hops))
	var e Effect
	var total, missed float64
	for r := range rows.Len() {
		weight := quantile.Weight(rows.Threshold[r])
		cut := p.cut(rows, r, planned, &limits, deadlines)
		duration := float64(rows.Duration[0][r])
		miss := duration > limits.Budget
		violated := miss || !math.IsInf(cut, 1)
		end := cut
		if miss {
			end = min(end, limits.Budget)
		}
		e.Requests++
		total += weight
		if miss {
			e.Miss += weight
			missed += weight
			e.Early += weight * (limits.Budget - end)
		}
		if violated {
			e.Violated += weight
		}
		if violated && !miss {
			e.FalseCut += weight
		}
		for h := range p.Hops {
			if d := float64(rows.Duration[h][r]); planned[h] && d >= 0 {
				ran := max(min(d, end-float64(rows.Start[h][r])), 0)
				e.Executed += weight * ran
				e.Saved += weight * (d - ran)
				if violated {
					e.Wasted += weight * ran
				}
			}
		}
	}
	if total > 0 {
		for _, mean := range []*float64{&e.Miss, &e.Violated, &e.FalseCut, &e.Executed, &e.Saved, &e.Wasted} {
			*mean /= total
		}
	}
	if missed > 0 {
		e.Early /= missed
	}
	return e
}

// cut returns when, after its start, request r is cut by the timeout of a hop;
// +Inf if it is not. Deadlines is memory for one value a hop.
//
//	request   |--------------------------------------|          | budget
//	caller       |-------------------------------|-tail-| its deadline
//	call             |----------- timeout ------------|
//	                                             ^ deadline of the call
func (p *Problem) cut(rows *profile.Rows, r int, planned []bool, limits *Limits, deadlines []float64) float64 {
	deadlines[0] = limits.Budget
	cut := math.Inf(1)
	for h := 1; h < len(p.Hops); h++ {
		if !planned[h] {
			continue
		}
		hop := &p.Hops[h]
		passed := math.Inf(1)
		if limits.Propagate {
			passed = deadlines[hop.Parent] - p.Hops[hop.Parent].tail()
		}
		deadlines[h] = passed
		duration := rows.Duration[h][r]
		if duration < 0 {
			continue
		}
		start := float64(rows.Start[h][r])
		deadline := min(start+limits.Timeouts[h], passed)
		if limits.Propagate {
			deadlines[h] = deadline
			if deadline-start < hop.Floor {
				cut = min(cut, start)
				continue
			}
		}
		if start+float64(duration) > deadline && !rows.FailedAt(h, r) { // what failed anyway is no loss
			cut = min(cut, deadline)
		}
	}
	return cut
}
