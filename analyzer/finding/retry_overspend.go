package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var retryOverspend = Rule{
	Name: "retry-overspend", Severity: Error, Flag: attr.FlagRetryOverspend,
	Summary: "A retry was given more time than the earlier attempts had left of the caller's budget.",
	Formula: "A second or later attempt whose deadline.remaining, or duration, is more than the caller's remaining.start " +
		"less the time that had passed. The amount is the excess.",
	Tolerance: "The larger of 5 ms and 4 % of what was left. Both times are on the caller's clock.",
	Mistakes: "Without budget attributes on the caller's span nothing is found. A first attempt that is too long is a " +
		"deadline-reset.",
	text: "a retry took or was given up to %s more than was left", by: ", by ",
	check: func(r *Request, report func(Finding)) {
		number, _ := r.attempts()
		if number == nil {
			return
		}
		r.waited(func(i int32, c *trace.Call) {
			exit := r.exit(c)
			if exit == nil || number[i] < 2 || c.Parent < 0 {
				return
			}
			server := r.span(r.maker(c.Span))
			ns, known := left(server)
			if !known || server.Desc.Service != exit.Desc.Service {
				return
			}
			rest := max(ns-(exit.Start-server.Start), 0)
			spent := exit.Duration
			if exit.Stamp != nil && exit.Stamp.HasDeadline {
				spent = max(spent, exit.Stamp.DeadlineRemaining)
			}
			if over := spent - rest; over > r.tolerance(rest, exit.Stamp != nil && exit.Stamp.Absolute) {
				report(Finding{Call: i, Span: c.Span, Amount: over, By: exit.Desc.Service})
			}
		})
	},
}
