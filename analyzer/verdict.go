package analyzer

import (
	"cmp"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// looseFrom is how many times its P99 a hop must have to count as loose.
const looseFrom = 5

// today fills in the timeouts that are configured now: what the user says,
// else what the CLIENT spans said they had left.
func (e *endpoint) today() {
	for i := range e.Hops {
		h := &e.Hops[i]
		if amount, ok := e.now[i]; ok {
			h.Now = Some(int64(amount.of(e.Budget)))
		} else if v, ok := e.p.Hops[i].DeadlineRemaining.At(quantile.P50); ok && len(e.config.Current) == 0 && v > 0 {
			h.Now = Some(v)
		}
		if h.Now.Known && h.Share.Known {
			h.Change = Some(h.Share.V - h.Now.V)
		}
	}
	e.WorstCaseNow = e.longestNow(0)
}

// longestNow returns the longest chain of today's timeouts under a hop. A hop
// without one takes what its own calls may take; where that is not known either,
// nothing is.
func (e *endpoint) longestNow(parent int) Opt[int64] {
	ends := make(map[int]int64) // longest chain that ends with the child
	longest := int64(0)
	for i := range e.p.Hops { // siblings that come before have smaller indices
		if e.p.Hops[i].Parent != parent || !planned(&e.Hops[i]) {
			continue
		}
		own := e.Hops[i].Now
		if !own.Known {
			own = e.longestNow(i)
		}
		if !own.Known {
			return Opt[int64]{}
		}
		before := int64(0)
		for _, a := range e.p.Hops[i].After {
			before = max(before, ends[a])
		}
		ends[i] = before + own.V
		longest = max(longest, ends[i])
	}
	return Opt[int64]{longest, len(ends) > 0}
}

// given is the time that a verdict judges: today's where it is known, else the
// share.
func (h *Hop) given() Opt[int64] {
	if h.Now.Known {
		return h.Now
	}
	return h.Share
}

// judge gives each hop its verdict, the first that applies.
func (e *endpoint) judge() {
	for i := range e.Hops {
		h := &e.Hops[i]
		if h.P99.Known && h.P99.V > 0 && h.Share.Known && h.Share.V > 0 {
			h.Slack = Some(float64(h.Share.V) / float64(h.P99.V))
			h.UtilizationP99 = Some(float64(h.P99.V) / float64(h.Share.V))
		}
		h.Verdict = e.verdict(i)
	}
	for i := range e.Hops {
		h := &e.Hops[i]
		if h.Verdict == VerdictOK && i > 0 && h.given().V > looseFrom*e.estimate[i].Value && e.taker(i) >= 0 {
			h.Verdict = VerdictLoose
		}
	}
}

// taker returns the hop that could use the time of hop i, -1 if none: a tight
// one, or one over, that runs in sequence with it and is neither its caller nor
// its callee. Of several it is the one that lacks most to the upper bound of its
// P99. A share that was only filled up beside a longer sibling has nothing to
// give: it takes nothing from anybody.
func (e *endpoint) taker(i int) int {
	best := -1
	if !e.Hops[i].Now.Known && (!e.Feasible || !e.solution.OnSaturatedChain[i]) {
		return best
	}
	for j := range e.Hops {
		v := e.Hops[j].Verdict
		if (v == VerdictTight || v == VerdictOver) && e.inSequence(i, j) && (best < 0 || e.lacks(j) > e.lacks(best)) {
			best = j
		}
	}
	return best
}

// inSequence tells whether two hops run one after the other: below their lowest
// common caller, the call that leads to one ends before the call that leads to
// the other starts.
func (e *endpoint) inSequence(i, j int) bool {
	hops := e.p.Hops
	for i != j && hops[i].Parent != hops[j].Parent {
		if hops[i].Depth >= hops[j].Depth {
			i = hops[i].Parent
		} else {
			j = hops[j].Parent
		}
		if i < 0 || j < 0 {
			return false
		}
	}
	return i != j && (e.precedes(i, j) || e.precedes(j, i))
}

// precedes tells whether sibling a ends before b starts, directly or by others
// between them.
func (e *endpoint) precedes(a, b int) bool {
	if e.before == nil {
		words := (len(e.p.Hops) + 63) / 64
		e.before = make([][]uint64, len(e.p.Hops))
		for h := range e.p.Hops { // what comes before has a smaller index
			e.before[h] = make([]uint64, words)
			for _, p := range e.p.Hops[h].After {
				e.before[h][p/64] |= 1 << (p % 64)
				for w, bits := range e.before[p] {
					e.before[h][w] |= bits
				}
			}
		}
	}
	return e.before[b][a/64]&(1<<(a%64)) != 0
}

func (e *endpoint) verdict(i int) string {
	h, est := &e.Hops[i], &e.estimate[i]
	g := h.given()
	switch {
	case i == 0 && !e.Feasible:
		return VerdictInfeasible
	case i == 0 && e.DeadlineMissRatio > 0:
		return VerdictMisses
	case i == 0 && est.Censored: // what was cut before it could miss the budget fits nothing
		return VerdictCensored
	case i == 0:
		return VerdictFits
	case h.Kind == HopAsync:
		return VerdictAsync
	case h.Kind == HopStep:
		return ""
	case est.Censored:
		return VerdictCensored
	case est.EffN*(1-est.P.Float()) < 1: // the quantile is the largest value seen: under 100 calls for a P99
		return VerdictFewSamples
	case !g.Known:
		return ""
	case g.V < est.Value:
		return VerdictOver
	case !est.HiKnown || g.V < est.Hi:
		return VerdictTight
	}
	return VerdictOK
}

// moves says what loose hops could give: all over five times their P99.
func (e *endpoint) moves() {
	for i := range e.Hops {
		from := &e.Hops[i]
		if from.Verdict != VerdictLoose {
			continue
		}
		to := e.taker(i)
		amount := (from.given().V - looseFrom*e.estimate[i].Value) / e.Quantum * e.Quantum
		if to >= 0 && amount > 0 {
			e.Moves = append(e.Moves, Move{
				From: from.ID, To: e.Hops[to].ID, Amount: amount, FromSlack: e.room(i), ToSlack: e.room(to),
			})
		}
	}
	slices.SortStableFunc(e.Moves, func(a, b Move) int { return cmp.Compare(b.Amount, a.Amount) })
}

// lacks is what a hop is short of the upper bound of its P99, or of the largest
// call seen where there is no bound, ns.
func (e *endpoint) lacks(i int) int64 {
	bound := e.estimate[i].Hi
	if !e.estimate[i].HiKnown {
		bound = e.Hops[i].Max.V
	}
	return bound - e.Hops[i].given().V
}

// room is how many times its P99 a hop is given.
func (e *endpoint) room(i int) float64 {
	return float64(e.Hops[i].given().V) / float64(max(e.estimate[i].Value, 1))
}
