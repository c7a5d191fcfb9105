package finding

import (
	"cmp"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var budgetUtilization = Rule{
	Name: "budget-utilization", Severity: Warning, Flag: attr.FlagBudgetUtilization, Unit: PerMille,
	Summary: "A call used almost all that it had.",
	Formula: "duration / budget > 0.8, where the budget is the smaller of remaining.start and what the plan gives the hop. " +
		"Of the hops that a caller calls, the one that took longest, all its calls together, is named as the one that spent it, " +
		"if it took more than half of the time.",
	Tolerance: "The threshold is a [setting](#settings); 50 ms more of a deadline that was sent as a point in time.",
	Mistakes: "The last call of a chain has little left and may use most of it without being slow: look at the hop that " +
		"the caller's finding names. A call that took longer than all that was left is counted here too, besides under " +
		"budget-overrun: here are all that came close, and who spent it. Spans without budget attributes are judged by a plan alone.",
	Remedy: "Look at the hop that the finding names: make it faster, call it less often or beside others, or give it " +
		"more of the budget.",
	text: "used up to %s of what it had", by: ", most of it in ",
	check: func(r *Request, report func(Finding)) {
		var spenders []spender // made when needed
		r.waited(func(i int32, c *trace.Call) {
			span := c.Span
			if _, half, known := r.leftOf(c); known {
				span = half
			}
			spent, _ := r.Spent(i, span)
			if spent.Utilization <= r.Utilization || float64(r.span(span).Duration) <= r.Utilization*float64(r.mostBudget(i, span, spent)) {
				return
			}
			if spenders == nil {
				spenders = r.spenders()
			}
			by := ""
			if s := spenders[i]; s.time > r.span(span).Duration/2 {
				by = r.name(s.call)
			}
			report(Finding{Call: i, Span: span, Amount: perMille(spent.Utilization), By: by})
		})
	},
}

// mostBudget is the largest budget that a half of a call may have had, ns: Spent.Budget, but
// for clocks that differ.
func (r *Request) mostBudget(call, span int32, s Spent) int64 {
	if !s.LeftKnown {
		return s.Budget
	}
	most := s.Left + r.span(span).Duration + r.slackOf(&r.tree.Calls[call], span)
	if l, _ := r.Planned(call); l.Budget > 0 {
		most = min(most, l.Budget)
	}
	return most
}

// perMille rounds, and stops at a million times the whole.
func perMille(share float64) int64 { return int64(min(1000*share+0.5, 1e9)) }

// spender is the hop that took most of a call's time: its first call, and for how
// long some call of it ran, ns.
//
//	caller    |-----------------------------|
//	db           |----| |----| |----|           all three
//	bank         |-------|
type spender struct {
	call int32
	time int64
}

// spenders returns the spender of each call, of those that it made itself; its time
// is 0 where it made none.
func (r *Request) spenders() []spender {
	calls := r.tree.Calls
	order := r.order[:0]
	r.begun(func(i int32, c *trace.Call) {
		if c.Parent >= 0 {
			order = append(order, i)
		}
	})
	r.order = order
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(calls[a].Parent, calls[b].Parent), cmp.Compare(calls[a].Path, calls[b].Path),
			cmp.Compare(calls[a].Start, calls[b].Start), cmp.Compare(a, b))
	})
	most := slices.Grow(r.spent[:0], len(calls))[:len(calls)]
	clear(most)
	r.spent = most
	var hop spender // that is added up
	until := int64(0)
	for k, i := range order {
		c := &calls[i]
		if k == 0 || calls[hop.call].Parent != c.Parent || calls[hop.call].Path != c.Path {
			hop, until = spender{i, 0}, c.Start
		}
		if c.End > until {
			hop.time += c.End - max(c.Start, until)
			until = c.End
		}
		if at := &most[c.Parent]; hop.time > at.time || hop.time == at.time && hop.call < at.call {
			*at = hop
		}
	}
	return most
}

// name is the callee and operation of a call.
func (r *Request) name(call int32) string {
	_, callee, operation := r.Names(call)
	return trace.Key{Service: callee, Operation: operation}.String()
}
