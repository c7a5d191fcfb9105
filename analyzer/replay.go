package analyzer

import (
	"fmt"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/budget"
)

// questions are what the replay is asked besides the effect of the split.
func (e *endpoint) questions(used []int) (budget.Questions, error) {
	q := budget.Questions{Ratios: falseCutGoals, Beside: []budget.Strategy{budget.Equal{}, budget.Strategies[0]}}
	places, err := locate(e.Hops, e.config.Degradable, used)
	if err != nil {
		return q, fmt.Errorf("--degradable %w", err)
	}
	for _, at := range places {
		if at == 0 {
			return q, fmt.Errorf("--degradable: hop 0 is the endpoint itself: nobody is left to do without it")
		}
		if at > 0 {
			q.Degradable = append(q.Degradable, at)
		}
	}
	for at, h := range e.hops {
		if h.Degradable && planned(&e.Hops[at]) {
			q.Degradable = append(q.Degradable, at)
		}
	}
	slices.Sort(q.Degradable)
	q.Degradable = slices.Compact(q.Degradable)
	used = used[len(e.config.Degradable):]
	patterns := make([]string, len(e.config.Incidents))
	for i := range patterns {
		patterns[i] = e.config.Incidents[i].Hop
	}
	if places, err = locate(e.Hops, patterns, used); err != nil {
		return q, fmt.Errorf("--incident %w", err)
	}
	for i, at := range places {
		if from := &e.config.Incidents[i]; at >= 0 {
			q.Incidents = append(q.Incidents, budget.Incident{
				Hop: at, Low: int64(from.Low), High: int64(from.High), Ratio: from.Share,
			})
		}
	}
	return q, nil
}

// replay predicts what the split would have done to the requests that were
// seen, each judged by a split that other requests made. Where there is no split,
// or too few requests for that, it says what is known without one.
func (e *endpoint) replay(o budget.Options, s budget.Strategy, q budget.Questions) {
	q.Unplanned = !e.Feasible
	v := budget.CrossValidate(e.p, o, e.Budget, s, q)
	if v.Requests == 0 {
		return
	}
	r := &Replay{
		Folds: v.Folds, Traces: v.Requests, Policies: e.effects(v.Trials), Assumptions: e.assumptions(len(q.Degradable) > 0),
	}
	if t := budget.Of(v.Trials, budget.PolicyShares, s.Name()); t != nil {
		r.BudgetFalseCut = Some(t.FalseCut)
	}
	if t := budget.Of(v.Trials, budget.PolicyCaps, s.Name()); t != nil {
		r.TimeoutFalseCut = Some(t.FalseCut)
	}
	for _, b := range v.BudgetFor {
		r.BudgetForFalseCut = append(r.BudgetForFalseCut, BudgetFor{
			Ratio: b.Ratio, Budget: Opt[int64]{b.Budget, b.Known},
		})
	}
	for _, h := range q.Degradable {
		r.Degradable = append(r.Degradable, e.Hops[h].ID)
	}
	for i, in := range v.Incidents {
		from := &q.Incidents[i]
		r.Incidents = append(r.Incidents, ReplayIncident{
			Hop: e.Hops[from.Hop].ID, Low: from.Low, High: from.High, Ratio: from.Ratio,
			Requests: in.Hit, Policies: e.effects(in.Trials),
		})
	}
	e.Replay = r
}

// effects are the rows of a replay table.
func (e *endpoint) effects(trials []budget.Trial) []PolicyEffect {
	var out []PolicyEffect
	for i := range trials {
		t := &trials[i]
		p := PolicyEffect{
			Policy: string(t.Policy), Strategy: t.Strategy,
			Miss: t.Miss, Violated: t.Violated, FalseCut: t.FalseCut, Degraded: t.Degraded,
			Executed: nanos(t.Executed), Saved: nanos(t.Saved), Wasted: nanos(t.Wasted),
		}
		if t.Miss > 0 && t.Policy != budget.PolicyNone {
			p.Early = Some(nanos(t.Early))
		}
		for h, ratio := range t.Cut {
			if ratio > 0 {
				p.Cuts = append(p.Cuts, HopCut{Hop: e.Hops[h].ID, Ratio: ratio})
			}
		}
		out = append(out, p)
	}
	return out
}

// assumptions are what a replay takes for granted, a clause each.
func (e *endpoint) assumptions(degradable bool) []string {
	out := []string{
		"whoever is cancelled stops",
		"less work makes nobody faster",
		"a call that is cut is not sent again",
	}
	if slices.ContainsFunc(e.Hops, func(h Hop) bool { return slices.Contains(h.Flags, "censored") }) {
		out = append(out, "what today's timeouts cut would have taken no longer")
	} else {
		out = append(out, "today's timeouts cut none of these requests")
	}
	if degradable {
		out = append(out, "without a degradable hop its caller goes on at once")
	}
	return out
}
