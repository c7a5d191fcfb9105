package finding

import (
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var retryOverspend = Rule{
	Name: "retry-overspend", Severity: Error, Flag: attr.FlagRetryOverspend,
	Summary: "A retry was given more time than the earlier attempts had left of the caller's budget.",
	Formula: "A second or later attempt whose deadline.remaining, or duration, is more than the caller's remaining.start " +
		"less the time that had passed. The amount is the excess.",
	Tolerance: "The larger of 5 ms and 4 % of what was left, and 50 ms more where the deadline was sent as a point in time. Both times are on the caller's clock.",
	Mistakes: "Without budget attributes on the caller's span nothing is found. A first attempt that is too long is a " +
		"deadline-reset.",
	Remedy: "Put one deadline around all attempts, and give each what is left of it.",
	text:   "a retry took or was given up to %s more than was left", by: ", by ",
	check: func(r *Request, report func(Finding)) {
		said := int32(-1)
		r.retries(func(i, _, attempt int32, _ int64) {
			c, again := &r.tree.Calls[i], r.span(attempt)
			if c.Parent < 0 || said == i {
				return
			}
			server := r.span(c.Maker)
			ns, known := left(server)
			if !known || !oneClock(server, again) {
				return
			}
			rest := max(ns-(again.Start-server.Start), 0)
			spent := again.Duration
			if again.Stamp != nil && again.Stamp.HasDeadline {
				spent = max(spent, again.Stamp.DeadlineRemaining)
			}
			if over := spent - rest; over > r.tolerance(rest, server.Stamp.Absolute || again.Stamp != nil && again.Stamp.Absolute) {
				report(Finding{Call: i, Span: c.Span, Amount: over, By: again.Desc.Service})
				said = i
			}
		})
	},
}
