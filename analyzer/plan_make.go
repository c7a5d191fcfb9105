package analyzer

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/plan"
)

// makePlan puts the plan of all endpoints together.
func (a *analysis) makePlan() error {
	p := &plan.Plan{Version: plan.Version, Gate: plan.DefaultGate(), Endpoints: a.plans}
	if from := a.config.Plan; from != nil {
		p.Gate = from.Gate
		made := make(map[string]bool)
		for i := range a.plans {
			made[a.plans[i].Key()] = true
		}
		for i := range from.Endpoints {
			if e := &from.Endpoints[i]; !made[e.Key()] {
				p.Endpoints = append(p.Endpoints, *e)
			}
		}
	}
	if len(p.Endpoints) == 0 {
		return nil
	}
	digest, err := p.Digest()
	if err != nil {
		return err
	}
	p.Revision = digest
	var last time.Time
	for i := range a.plans {
		if to := a.plans[i].Evidence.To; to != nil && to.After(last) {
			last = *to
		}
	}
	if !last.IsZero() {
		p.Revision = last.Format(time.DateOnly) + "-" + digest
	}
	a.report.Plan = p
	return nil
}

// toPlan is the split as a plan. degradable are the hops that callers can do without.
func (e *endpoint) toPlan(o budget.Options, degradable []int) plan.Endpoint {
	m := planMaker{e, &o, degradable, slices.Repeat([]int{-1}, len(e.Hops))}
	kids := make([][]int, len(e.Hops))
	for i := 1; i < len(e.Hops); i++ {
		if h := &e.Hops[i]; h.Kind == HopAsync || planned(h) && h.Share.Known {
			up := e.p.Hops[i].Parent
			kids[up] = append(kids[up], i)
		}
	}
	out := plan.Endpoint{
		Service: e.Service, Operation: e.Operation, Budget: plan.Duration(e.Budget),
		Tail: m.tail(0), Hops: m.hops(0, kids), Evidence: e.evidence(0),
	}
	out.Reserve = m.reserve(0, out.Budget, out.Hops, out.Evidence)
	out.Evidence.Calls = e.Traces
	out.Evidence.Strategy = cmp.Or(e.solution.Strategy, e.Strategy)
	out.Evidence.From, out.Evidence.To = e.window()
	if r := e.Replay; r != nil && r.BudgetFalseCut.Known {
		out.Evidence.FalseCuts = &plan.FalseCuts{Share: shortRatio(r.BudgetFalseCut.V), Cap: shortRatio(r.TimeoutFalseCut.V)}
	}
	return out
}

// planMaker turns the split of an endpoint into hops of a plan.
type planMaker struct {
	*endpoint
	options    *budget.Options
	degradable []int
	place      []int // by hop, among its siblings that may be waited for; -1 elsewhere
}

// hops returns the calls that a hop makes. kids are the hops below each.
func (m *planMaker) hops(parent int, kids [][]int) []plan.Hop {
	e := m.endpoint
	var out []plan.Hop
	var keys []string     // by place
	var before [][]uint64 // by place: the places of all that end before it starts
	words := (len(kids[parent]) + 63) / 64
	for _, i := range kids[parent] {
		h, from := &e.Hops[i], &e.p.Hops[i]
		p := plan.Hop{
			Callee: h.Callee, Operation: h.Operation, Stage: h.Kind == HopStage, Async: h.Kind == HopAsync,
			Hops: m.hops(i, kids), Evidence: e.evidence(i),
		}
		if twice := p.Async && slices.Contains(keys, p.Key()); twice {
			continue // the calls that are waited for have the name, and no budget differs
		}
		if old := e.hops[i]; old != nil {
			p.Degradable, p.MaxQueue = old.Degradable, old.MaxQueue
			if p.Async {
				p.Share, p.Cap = old.Share, old.Cap
			}
		}
		if !p.Async {
			p.Share, p.Cap = plan.Duration(h.Share.V), plan.Duration(h.Cap.V)
			p.Degradable = slices.Contains(m.degradable, i)
			p.Exclusive = from.Slot
			p.Floor = m.floor(i)
			p.Reserve = m.reserve(i, p.Share, p.Hops, p.Evidence)
			if len(p.Hops) > 0 {
				p.Tail = m.tail(i)
			}
			p.MaxQueue = min(p.MaxQueue, p.Share)
			if most := m.most(i); most > 0 {
				p.Max = max(most, p.Cap) // a floor may be more than what people allow
			}
			m.attempts(i, &p)
			// Those that end before one of the others end before this one anyway.
			ended := make([]uint64, words)
			for _, a := range slices.Backward(from.After) {
				at := m.place[a]
				if at < 0 || ended[at/64]&(1<<(at%64)) != 0 {
					continue
				}
				p.After = append(p.After, keys[at])
				ended[at/64] |= 1 << (at % 64)
				for w, bits := range before[at] {
					ended[w] |= bits
				}
			}
			slices.Reverse(p.After)
			m.place[i] = len(keys)
			keys, before = append(keys, p.Key()), append(before, ended)
		}
		out = append(out, p)
	}
	return out
}

// floor is the least useful budget of a hop: what people set, or the median.
func (m *planMaker) floor(i int) plan.Duration {
	share := plan.Duration(m.Hops[i].Share.V)
	if set, ok := m.options.Floors[i]; ok {
		return min(plan.Duration(set), share)
	}
	return min(micros(m.Hops[i].Floor.V), share)
}

// most is the limit that people set, 0 for none.
func (m *planMaker) most(i int) plan.Duration {
	if limit, ok := m.options.Caps[i]; ok {
		return plan.Duration(limit)
	}
	return plan.Duration(m.options.CapRatios[i] * float64(m.Budget))
}

// reserve is what a hop keeps from the calls below it. Evidence gets it where
// nobody set one by hand.
func (m *planMaker) reserve(i int, share plan.Duration, below []plan.Hop, evidence *plan.Evidence) plan.Duration {
	if len(below) == 0 {
		return 0
	}
	_, chain := plan.Chain(below)
	reserve := min(micros(int64(m.solution.Reserve[i])), share-chain)
	if m.options.Reserves[i] == 0 && m.options.Fraction == 0 && (i > 0 || m.options.Reserve == 0) {
		evidence.Reserve = reserve
	}
	return reserve
}

// tail is what a hop keeps at run time for what comes after its last call.
func (m *planMaker) tail(i int) plan.Duration {
	least := m.options.Reserves[i]
	if i == 0 {
		least = max(least, m.options.Reserve)
	}
	whole := cmp.Or(m.Hops[i].Share.V, m.Budget)
	return min(micros(max(least, m.Hops[i].TailP50.V)), plan.Duration(whole))
}

// attempts plans the attempts of a call: as the plan before has them where they
// fit in the share, else as many of those that were seen as fit with the pauses
// that were seen.
func (m *planMaker) attempts(i int, p *plan.Hop) {
	if old := m.endpoint.hops[i]; old != nil && old.AttemptTimeout > 0 {
		n := plan.Duration(max(old.MaxAttempts, 1))
		if old.AttemptTimeout <= p.Share/n && n*old.AttemptTimeout+(n-1)*old.Backoff <= p.Share {
			p.AttemptTimeout, p.MaxAttempts, p.Backoff = old.AttemptTimeout, old.MaxAttempts, old.Backoff
			return
		}
	}
	h := &m.Hops[i]
	if t := h.AttemptTimeout.V; h.AttemptTimeout.Known && t > 0 && t <= int64(p.Share) {
		p.AttemptTimeout = plan.Duration(t)
		if n := min(h.MaxAttempts, h.AttemptsFit.V); n > 1 {
			p.MaxAttempts, p.Backoff = n, micros(h.BackoffP99.V)
		}
	}
}

// evidence says what the numbers of a hop rest on.
func (e *endpoint) evidence(i int) *plan.Evidence {
	h := &e.Hops[i]
	out := &plan.Evidence{Calls: h.Calls, P99: micros(h.P99.V)}
	if h.P50.Known {
		out.P50 = micros(max(h.P50.V, e.p.Resolution))
	}
	if h.P99.Known {
		interval := [...]Opt[int64]{h.P99Lo, h.P99Hi}
		for _, end := range interval {
			var d *plan.Duration
			if end.Known && end.V > 0 {
				v := micros(end.V)
				d = &v
			}
			out.P99Interval = append(out.P99Interval, d)
		}
	}
	return out
}

// window is from the start of the first request to that of the last, of those
// that were kept whole.
func (e *endpoint) window() (from, to *time.Time) {
	started := e.p.Rows.Started
	if len(started) == 0 {
		return nil, nil
	}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, s := range started {
		low, high = min(low, s), max(high, s)
	}
	first, last := time.Unix(0, low).UTC(), time.Unix(0, high).UTC()
	return &first, &last
}

// micros drops the digits below 1 us, which no plan needs, of times from 100 us on.
func micros(ns int64) plan.Duration {
	const us = int64(time.Microsecond)
	if ns >= 100*us {
		ns -= ns % us
	}
	return plan.Duration(min(ns, int64(plan.Most)))
}

// shortRatio rounds to a hundredth of a percent.
func shortRatio(r float64) plan.Ratio { return plan.Ratio(math.Round(r*1e4) / 1e4) }
