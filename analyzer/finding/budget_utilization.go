package finding

import (
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var budgetUtilization = Rule{
	Name: "budget-utilization", Severity: Warning, Flag: attr.FlagBudgetUtilization, Unit: PerMille,
	Summary: "A call used almost all that it had.",
	Formula: "duration / budget > 0.8, where the budget is the smaller of remaining.start and what the plan gives the hop. " +
		"Of a caller's own calls the longest is named as the one that spent it, if it took more than half of the time.",
	Tolerance: "The threshold is a setting.",
	Mistakes: "The last call of a chain has little left and may use most of it without being slow: look at the hop that " +
		"the caller's finding names. Spans without budget attributes are judged by a plan alone.",
	text: "used up to %s of what it had", by: ", most of it in ",
	check: func(r *Request, report func(Finding)) {
		var spenders []int32 // made when needed
		r.waited(func(i int32, c *trace.Call) {
			span := c.Span
			if _, half, known := r.leftOf(c); known {
				span = half
			}
			spent, _ := r.Spent(i, span)
			if spent.Utilization <= r.Utilization {
				return
			}
			if spenders == nil {
				spenders = r.spenders()
			}
			by := ""
			if s := spenders[i]; s >= 0 && r.tree.Calls[s].Duration() > r.span(span).Duration/2 {
				by = r.name(s)
			}
			report(Finding{Call: i, Span: span, Amount: perMille(spent.Utilization), By: by})
		})
	},
}

// perMille rounds, and stops at a million times the whole.
func perMille(share float64) int64 { return int64(min(1000*share+0.5, 1e9)) }

// spenders returns the longest call that each call made itself, -1 if it made none.
func (r *Request) spenders() []int32 {
	calls := r.tree.Calls
	longest := slices.Repeat([]int32{-1}, len(calls))
	r.begun(func(i int32, c *trace.Call) {
		if c.Parent < 0 {
			return
		}
		if at := &longest[c.Parent]; *at < 0 || c.Duration() > calls[*at].Duration() {
			*at = i
		}
	})
	return longest
}

// name is the callee and operation of a call.
func (r *Request) name(call int32) string {
	_, callee, operation := r.Names(call)
	return trace.Key{Service: callee, Operation: operation}.String()
}
