package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var budgetOverrun = Rule{
	Name: "budget-overrun", Severity: Error, Flag: attr.FlagOverrun,
	Summary:   "A call took longer than what was left of the request's budget when it began.",
	Formula:   "remaining.start − duration < 0, where remaining.start > 0.",
	Tolerance: "A microsecond, the step of the attribute; 50 ms more where the deadline was sent as a point in time.",
	Mistakes: "A call that is stopped at its deadline ends a moment after it, so the amount matters more than the count. " +
		"A caller that waits for a stream is over with it: where that is meant, mark it as detached. " +
		"Spans without budget attributes are not judged.",
	Remedy: "Begin with the deepest hop that overran: it is slow, or it had too little. Have it stop at its deadline, " +
		"make it faster, or give it more of the budget.",
	text: "ran up to %s over what was left of the budget",
	check: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			ns, span, known := r.leftOf(c)
			if over := r.span(span).Duration - ns; known && ns > 0 && over > microsecond+r.slackOf(c, span) {
				report(Finding{Call: i, Span: span, Amount: over})
			}
		})
	},
}

const microsecond = 1_000
