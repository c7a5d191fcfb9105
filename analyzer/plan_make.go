package analyzer

import (
	"cmp"
	"math"
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

// toPlan is the split as a plan.
func (e *endpoint) toPlan(o budget.Options) plan.Endpoint {
	kids := make([][]int, len(e.Hops))
	for i := 1; i < len(e.Hops); i++ {
		if h := &e.Hops[i]; h.Kind == HopAsync || planned(h) && h.Share.Known {
			up := e.p.Hops[i].Parent
			kids[up] = append(kids[up], i)
		}
	}
	out := plan.Endpoint{
		Service: e.Service, Operation: e.Operation, Budget: plan.Duration(e.Budget),
		Tail: e.tail(0, &o), Hops: e.hopsOf(0, kids, &o), Evidence: e.evidence(0),
	}
	out.Reserve = e.reserveOf(0, out.Budget, out.Hops, &o, out.Evidence)
	out.Evidence.Calls = e.Traces
	out.Evidence.Strategy = cmp.Or(e.solution.Strategy, e.Strategy)
	out.Evidence.From, out.Evidence.To = e.window()
	if r := e.Replay; r != nil {
		out.Evidence.FalseCuts = &plan.FalseCuts{Share: shortRatio(r.BudgetFalseCut), Cap: shortRatio(r.TimeoutFalseCut)}
	}
	return out
}

func (e *endpoint) hopsOf(parent int, kids [][]int, o *budget.Options) []plan.Hop {
	var out []plan.Hop
	before := make(map[int]map[int]bool) // by hop: all that end before it starts
	keys := make(map[int]string)
	for _, i := range kids[parent] {
		h, from := &e.Hops[i], &e.p.Hops[i]
		p := plan.Hop{
			Callee: h.Callee, Operation: h.Operation, Stage: h.Kind == HopStage, Async: h.Kind == HopAsync,
			Hops: e.hopsOf(i, kids, o), Evidence: e.evidence(i),
		}
		if twice := p.Async && hasKey(keys, p.Key()); twice {
			continue // the calls that are waited for have the name, and no budget differs
		}
		if old := e.hops[i]; old != nil {
			p.Degradable, p.MaxQueue = old.Degradable, old.MaxQueue
			if p.Async {
				p.Share, p.Cap = old.Share, old.Cap
			}
		}
		if !p.Async {
			keys[i] = p.Key()
			p.Share, p.Cap = plan.Duration(h.Share.V), plan.Duration(h.Cap.V)
			p.Exclusive = from.Slot
			p.Floor = e.floor(i, o)
			p.Reserve = e.reserveOf(i, p.Share, p.Hops, o, p.Evidence)
			if len(p.Hops) > 0 {
				p.Tail = e.tail(i, o)
			}
			p.MaxQueue = min(p.MaxQueue, p.Share)
			if most := e.most(i, o); most > 0 {
				p.Max = max(most, p.Cap) // a floor may be more than what people allow
			}
			e.attempts(i, &p)
			// Those that end before one of the others end before this one anyway.
			before[i] = make(map[int]bool)
			for k := len(from.After) - 1; k >= 0; k-- {
				a := from.After[k]
				if _, listed := keys[a]; !listed || before[i][a] {
					continue
				}
				p.After = append([]string{keys[a]}, p.After...)
				before[i][a] = true
				for b := range before[a] {
					before[i][b] = true
				}
			}
		}
		out = append(out, p)
	}
	return out
}

func hasKey(keys map[int]string, key string) bool {
	for _, k := range keys {
		if k == key {
			return true
		}
	}
	return false
}

// floor is the least useful budget of a hop: what people set, or the median.
func (e *endpoint) floor(i int, o *budget.Options) plan.Duration {
	if set, ok := o.Floors[i]; ok {
		return min(plan.Duration(set), plan.Duration(e.Hops[i].Share.V))
	}
	return min(micros(e.Hops[i].Floor.V), plan.Duration(e.Hops[i].Share.V))
}

// most is the limit that people set, 0 for none.
func (e *endpoint) most(i int, o *budget.Options) plan.Duration {
	if limit, ok := o.Caps[i]; ok {
		return plan.Duration(limit)
	}
	return plan.Duration(o.CapRatios[i] * float64(e.Budget))
}

// reserveOf is what a hop keeps from the calls below it. Evidence gets it where
// nobody set one by hand.
func (e *endpoint) reserveOf(i int, share plan.Duration, below []plan.Hop, o *budget.Options, evidence *plan.Evidence) plan.Duration {
	if len(below) == 0 {
		return 0
	}
	_, chain := plan.Chain(below)
	reserve := min(micros(int64(e.solution.Reserve[i])), share-chain)
	if o.Reserves[i] == 0 && (i > 0 || o.Reserve == 0) {
		evidence.Reserve = reserve
	}
	return reserve
}

// tail is what a hop keeps at run time for what comes after its last call.
func (e *endpoint) tail(i int, o *budget.Options) plan.Duration {
	least := o.Reserves[i]
	if i == 0 {
		least = max(least, o.Reserve)
	}
	whole := cmp.Or(e.Hops[i].Share.V, e.Budget)
	return min(micros(max(least, e.Hops[i].TailP50.V)), plan.Duration(whole))
}

// attempts plans the attempts of a call: as the plan before has them where they
// fit in the share, else as many of those that were seen as fit.
func (e *endpoint) attempts(i int, p *plan.Hop) {
	if old := e.hops[i]; old != nil && old.AttemptTimeout > 0 {
		n := plan.Duration(max(old.MaxAttempts, 1))
		if old.AttemptTimeout <= p.Share/n && n*old.AttemptTimeout+(n-1)*old.Backoff <= p.Share {
			p.AttemptTimeout, p.MaxAttempts, p.Backoff = old.AttemptTimeout, old.MaxAttempts, old.Backoff
			return
		}
	}
	h := &e.Hops[i]
	if t := h.AttemptTimeout.V; h.AttemptTimeout.Known && t > 0 && t <= int64(p.Share) {
		p.AttemptTimeout = plan.Duration(t)
		if n := min(int64(h.MaxAttempts), int64(p.Share)/t); n > 1 {
			p.MaxAttempts = int(n)
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
