package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var deadlineDropped = Rule{
	Name: "deadline-dropped", Severity: Error, Flag: attr.FlagDeadlineDropped,
	Summary: "A service that knew the request's deadline made a call without any: the callee may take as long as it likes.",
	Formula: "A CLIENT span has remaining.start and no deadline.remaining. Named is the first hop: " +
		"one that had no deadline to hand on did not drop it.",
	Tolerance: "None. Captured headers do not tell that there was no deadline.",
	Mistakes: "A service whose own client library sets a timeout outside the context is flagged, though its calls end. " +
		"A service that detaches work on purpose looks the same if somebody seems to wait for it.",
	Remedy: "Have the named service pass the context of the request on, in place of context.Background() or " +
		"WithoutCancel. Work that is meant to outlive the request is marked by MarkDetached, or named by " +
		"--allow-detached.",
	text: "called without a deadline, though up to %s were left", by: ", by ",
	check: func(r *Request, report func(Finding)) {
		without := make([]bool, len(r.tree.Calls)) // the callee works without deadline: dropped further up
		r.begun(func(i int32, c *trace.Call) {
			exit, entry := r.exit(c), r.entry(c)
			lost := c.Parent >= 0 && without[c.Parent]
			if exit != nil && exit.Stamp != nil && exit.Stamp.HasRemaining && !exit.Stamp.Derived {
				dropped := !exit.Stamp.HasDeadline
				if dropped && !lost && r.Judged(i) {
					report(Finding{Call: i, Span: c.Span, Amount: max(exit.Stamp.Remaining, 0), By: exit.Desc.Service})
				}
				lost = dropped
			}
			if entry != nil && entry.Stamp != nil && entry.Stamp.HasDeadline {
				lost = false
			}
			without[i] = lost
		})
	},
}
