package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var callAfterDeadline = Rule{
	Name: "call-after-deadline", Severity: Error, Flag: attr.FlagCallAfterDeadline,
	Summary: "A service sent another call when its deadline had passed or its own caller had given up.",
	Formula: "The call starts later after the start of the span that made it than that span had left, " +
		"or than the caller of that span waited before it timed out or cancelled.",
	Tolerance: "A microsecond after the deadline, 50 ms more where it was sent as a point in time; 5 ms after a caller gave up. All times are on the clock of the service " +
		"that made the call, or durations.",
	Mistakes: "Clean-up after a failure, such as releasing a lock, is right to be late. A service that never learns of the " +
		"cancellation is flagged too: that is the point. So is a stream that is opened late.",
	Remedy: "Make the call with the context of the request, which refuses it once the time is up, and look at the " +
		"context before each step of a loop.",
	text: "called up to %s after the deadline or a cancellation", by: ", by ",
	check: func(r *Request, report func(Finding)) {
		r.begun(func(i int32, c *trace.Call) {
			exit := r.exit(c)
			if exit == nil || c.Parent < 0 {
				return
			}
			server := r.span(c.Maker)
			if !oneClock(server, exit) {
				return
			}
			passed := exit.Start - server.Start
			late := int64(0)
			if ns, known := left(server); known && passed-ns > microsecond+r.slack(server) {
				late = passed - ns
			}
			// Attempts have servers of their own: which of them waited is not clear.
			owner := &r.tree.Calls[c.Parent]
			if client := r.exit(owner); client != nil && owner.Span != owner.Callee && owner.Attempts == 1 &&
				gaveUp(client) && !owner.Stream && !r.overtaken(c.Parent) {
				if after := passed - client.Duration; after > grace {
					late = max(late, after)
				}
			}
			if late > 0 {
				report(Finding{Call: i, Span: c.Span, Amount: late, By: exit.Desc.Service})
			}
		})
	},
}
