package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// queueShare is the share of what was left that a call may spend between sending and the
// start of work.
const queueShare = 0.2

var queueWait = Rule{
	Name: "queue-wait", Severity: Warning, Flag: attr.FlagQueueWait,
	Summary: "A call spent much of the budget between being sent and the start of work: name resolution, a connection " +
		"pool, the network, or a queue before the callee.",
	Formula: "wait / remaining.start of the CLIENT span > 0.2; where it has none, what headers told the SERVER span, with the " +
		"wait added. On one host, wait is the start of the SERVER span less that " +
		"of the CLIENT span; between hosts it is the CLIENT's duration less the SERVER's. Where the deadline that " +
		"arrived is shorter than what was announced, that part had passed before the request was written. " +
		"The max_queue that a plan gives the hop takes the place of the share.",
	Tolerance: "5 ms; 50 ms more of a deadline that was sent as a point in time; none where a plan says it.",
	Mistakes: "Between hosts the way back counts too: a caller that is slow to read the answer looks like a wait. " +
		"A caller that gave up is not judged. Without budget attributes only a plan finds anything.",
	Remedy: "Look at what lies between the two: the connection pool of the caller, the workers of the callee, and how " +
		"busy they are. More time does not help, refusing work early does.",
	text: "waited up to %s between being sent and the start of work", by: ", most of it ",
	check: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			exit, entry := r.exit(c), r.entry(c)
			if exit == nil || entry == nil || c.Attempts > 1 || gaveUp(exit) {
				return
			}
			wait := exit.Duration - entry.Duration
			if exit.Desc.Host != "" && exit.Desc.Host == entry.Desc.Host {
				wait = min(wait, entry.Start-exit.Start)
			}
			ns, known := left(exit)
			ns += r.slackOf(c, c.Span)
			if !known && entry.Stamp != nil && entry.Stamp.Derived { // what the request carried
				ns, known = left(entry)
				ns += wait + r.slack(entry)
			}
			most := max(grace, int64(queueShare*float64(ns)))
			if l, _ := r.Planned(i); l.MaxQueue > 0 {
				most = l.MaxQueue
			} else if !known || ns <= 0 {
				return
			}
			if wait <= most {
				return
			}
			by := ""
			if st := entry.Stamp; st != nil && st.HasAnnounced && !st.Stale && !st.Absolute && st.HasDeadline &&
				st.Announced-st.DeadlineRemaining > wait/2 {
				by = "before the request was written"
			}
			report(Finding{Call: i, Span: c.Span, Amount: wait, By: by})
		})
	},
}
