package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

var reserveIgnored = Rule{
	Name: "reserve-ignored", Severity: Warning,
	Summary: "A service gave a call time that it needs itself once the call is over, to put the answer together: a callee that " +
		"uses what it got leaves no time to answer.",
	Formula: "deadline.remaining of a call, or of an attempt, is more than the caller's remaining.start less the time that had " +
		"passed, less the tail that the plan keeps for the caller's own work. The amount is the excess.",
	Tolerance: "The larger of 5 ms and a tenth of the tail. Both figures are on the caller's clock.",
	Mistakes: "A call after which its caller has nothing to do needs no reserve. A deadline later than the caller's own is a " +
		"deadline-reset, and no deadline at all a deadline-dropped. Without a plan nothing is found, nor where its tails are within " +
		"the tolerance.",
	Remedy: "Set the deadline of the call earlier than the caller's own by the tail that the plan gives.",
	text:   "was given up to %s of the time that its caller keeps for itself", by: ", by ",
	check: func(r *Request, report func(Finding)) {
		if r.Plan == nil {
			return
		}
		r.waited(func(i int32, c *trace.Call) {
			exit := r.exit(c)
			if exit == nil || c.Parent < 0 {
				return
			}
			l, _ := r.Planned(c.Parent)
			tail := l.Tail
			server := r.span(c.Maker)
			ns, known := left(server)
			if tail <= 0 || !known || !oneClock(server, exit) {
				return
			}
			most, by := int64(0), exit.Desc.Service
			r.tries(c, func(at int32) {
				try := r.span(at)
				if try.Stamp == nil || !try.Stamp.HasDeadline {
					return
				}
				rest := ns - (try.Start - server.Start)
				deadline := try.Stamp.DeadlineRemaining
				if reset := deadline > rest+r.tolerance(rest, try.Stamp.Absolute); !reset {
					most = max(most, deadline-(rest-tail))
				}
			})
			if most > max(r.ResetFloor, tail/10+microsecond) {
				report(Finding{Call: i, Span: c.Span, Amount: most, By: by})
			}
		})
	},
}
