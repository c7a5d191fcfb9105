package analyzer

import (
	"cmp"

	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/profile"
)

// planned returns what the plan says of an endpoint, nil if nothing.
func (c *Config) planned(e profile.Endpoint) *plan.Endpoint {
	if c.Plan == nil {
		return nil
	}
	for i := range c.Plan.Endpoints {
		if p := &c.Plan.Endpoints[i]; p.Service == e.Service && p.Operation == e.Operation {
			return p
		}
	}
	return nil
}

// strategyOf is the strategy for an endpoint: what the user says, or else the one
// that made the plan.
func (c *Config) strategyOf(p *profile.Profile) (budget.Strategy, error) {
	given := c.planned(profile.Endpoint{Service: p.Service, Operation: p.Operation})
	if c.Strategy == "" && given != nil && given.Evidence != nil {
		strategy, err := budget.StrategyNamed(given.Evidence.Strategy)
		if err == nil && strategy != (budget.CriticalPath{}) { // which is to look at, not to plan by
			return budget.WithObjective(strategy, c.Objective)
		}
	}
	return c.strategy()
}

// matchPlan finds the hops of a profile in a plan: the same callee and operation,
// below the same hops.
func matchPlan(p *profile.Profile, e *plan.Endpoint) map[int]*plan.Hop {
	found := make(map[int]*plan.Hop)
	taken := make(map[*plan.Hop]bool)
	for i := 1; i < len(p.Hops); i++ {
		from := &p.Hops[i]
		beside := e.Hops
		if from.Parent > 0 {
			up := found[from.Parent]
			if up == nil {
				continue
			}
			beside = up.Hops
		}
		for j := range beside {
			h := &beside[j]
			if h.Callee == from.Callee && h.Operation == from.Operation && !taken[h] && from.Kind != profile.KindStep {
				found[i], taken[h] = h, true
				break
			}
		}
	}
	return found
}

// start finds what the plan says of the endpoint.
func (e *endpoint) start() {
	if e.given = e.config.planned(e.key()); e.given == nil {
		if e.config.Plan != nil {
			e.Warnings = append(e.Warnings, "the plan does not have this endpoint")
		}
		return
	}
	e.hops = matchPlan(e.p, e.given)
	seen := make(map[*plan.Hop]bool)
	for _, h := range e.hops {
		seen[h] = true
	}
	e.warnOfHops("in the plan, but not in these traces", unseen(e.given.Hops, "", seen))
	e.warnOfHops("in these traces, but not in the plan", e.notInPlan())
}

// notInPlan names the topmost hops that the plan does not have.
func (e *endpoint) notInPlan() []string {
	var names []string
	for i := 1; i < len(e.Hops); i++ {
		up := e.p.Hops[i].Parent
		if e.hops[i] == nil && e.Hops[i].Kind != HopStep && (up == 0 || e.hops[up] != nil) {
			names = append(names, e.Hops[i].Label)
		}
	}
	return names
}

func (e *endpoint) warnOfHops(what string, names []string) {
	if len(names) > 0 {
		e.Warnings = append(e.Warnings, what+": "+enumerate(names, 10))
	}
}

// unseen names the topmost hops of a plan that were not seen.
func unseen(hops []plan.Hop, way string, seen map[*plan.Hop]bool) []string {
	var names []string
	for i := range hops {
		h := &hops[i]
		if !seen[h] {
			names = append(names, way+h.Key())
			continue
		}
		names = append(names, unseen(h.Hops, way+h.Key()+" > ", seen)...)
	}
	return names
}

// keep adds to the options what people set in the plan by hand, unless a flag
// says otherwise. Floors and reserves that equal what the evidence of the plan
// asked for were made by an analysis, so they are made anew.
func (e *endpoint) keep(o *budget.Options) {
	if e.given == nil {
		return
	}
	o.Reserves = make(map[int]int64)
	asked := e.config.Reserve != (Amount{})
	if own := e.given.Reserve; !asked && own > 0 && (e.given.Evidence == nil || e.given.Evidence.Reserve != own) {
		o.Reserves[0] = int64(own)
	}
	e.now = make(map[int]Amount)
	for i, h := range e.hops {
		if !planned(&e.Hops[i]) {
			continue
		}
		made := cmp.Or(h.Evidence, &plan.Evidence{})
		if _, set := o.Floors[i]; !set && h.Floor > 0 && h.Floor != made.P50 {
			o.Floors[i] = int64(h.Floor)
		}
		if h.Reserve > 0 && h.Reserve != made.Reserve {
			o.Reserves[i] = int64(h.Reserve)
		}
		_, cap := o.Caps[i]
		if _, ratio := o.CapRatios[i]; !cap && !ratio && h.Max > 0 {
			o.Caps[i] = int64(h.Max)
		}
		if h.Share > 0 {
			e.now[i] = Amount{Time: h.Share.Std()}
		}
	}
	e.now[0] = Amount{Time: e.given.Budget.Std()}
}
