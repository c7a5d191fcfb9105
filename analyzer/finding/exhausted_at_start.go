package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var exhaustedAtStart = Rule{
	Name: "exhausted-at-start", Severity: Error, Flag: attr.FlagExhaustedAtStart,
	Summary: "A call began when nothing was left of the request's budget: whatever it did was too late.",
	Formula: "remaining.start ≤ 0.",
	Tolerance: "None: what is left is measured on the clock of the span that says so. 50 ms where the deadline was sent as " +
		"a point in time.",
	Mistakes: "Where a deadline was sent as a point in time, a clock that is further ahead than that exhausts it early: " +
		"latency_budget.source is header_absolute then. gRPC servers refuse such calls before they have a span; " +
		"the CLIENT span shows them. A stream is judged as well: it should not have been opened.",
	Remedy: "Refuse what is too late before any work is done on it. Then look above the hop for what spent the budget: " +
		"queue-wait and budget-utilization name it.",
	text: "began up to %s after the budget was spent",
	check: func(r *Request, report func(Finding)) {
		r.begun(func(i int32, c *trace.Call) {
			for _, half := range [...]int32{c.Span, c.Callee} {
				if ns, known := left(r.span(half)); known && ns <= -r.slackOf(c, half) {
					report(Finding{Call: i, Span: half, Amount: -ns})
					return
				}
			}
		})
	},
}
