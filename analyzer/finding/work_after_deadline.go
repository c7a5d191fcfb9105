package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var workAfterDeadline = Rule{
	Name: "work-after-deadline", Severity: Warning, Flag: attr.FlagWorkAfterDeadline,
	Summary: "A callee worked on when its deadline had passed or its caller had given up: nobody gets the result.",
	Formula: "The caller timed out or cancelled, and the callee's span is longer than the caller's; or the callee's span is " +
		"longer than its own remaining.start. The amount is the longer of the two.",
	Tolerance: "5 ms to stop. Durations are compared, so clocks need not agree; the amount is then a lower bound.",
	Mistakes: "Work that must be finished once begun, such as a commit, is right to go on. The loser of a hedge is no " +
		"finding. A callee that began late may work on unseen.",
	text: "worked on for up to %s when nobody waited any more",
	check: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			entry, exit := r.entry(c), r.exit(c)
			if entry == nil || r.overtaken(i) {
				return
			}
			after := int64(0)
			if exit != nil && gaveUp(exit) {
				after = entry.Duration - exit.Duration
			}
			if ns, known := left(entry); known {
				after = max(after, entry.Duration-max(ns, 0))
			}
			if after > r.Grace {
				report(Finding{Call: i, Span: c.Callee, Amount: after})
			}
		})
	},
}
