package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var outcomeUnknown = Rule{
	Name: "outcome-unknown", Severity: Warning, Flag: attr.FlagOutcomeUnknown,
	Summary: "The caller gave up on a call that the callee completed: the answer is lost, its effect may stand.",
	Formula: "The CLIENT half timed out or was cancelled, and its SERVER half ended without an error. " +
		"The amount is how long the callee took.",
	Tolerance: "None.",
	Mistakes: "A call that only reads has no effect to worry about. A callee that answers a cancellation without an error " +
		"is flagged. The loser of a hedge is no finding.",
	Remedy: "Make the call safe to repeat, or ask for its state before it is tried again. Where it comes often, the " +
		"caller's timeout is too short for the callee: compare it with the P99 in the table.",
	text: "completed after up to %s, but the caller had given up",
	check: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			exit, entry := r.exit(c), r.entry(c)
			if exit != nil && entry != nil && gaveUp(exit) && entry.Outcome == trace.OutcomeOK && !r.overtaken(i) {
				report(Finding{Call: i, Span: c.Callee, Amount: entry.Duration})
			}
		})
	},
}
