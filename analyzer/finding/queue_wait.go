package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var queueWait = Rule{
	Name: "queue-wait", Severity: Warning, Flag: attr.FlagQueueWait,
	Summary: "A call spent much of the budget between being sent and the start of work: name resolution, a connection " +
		"pool, the network, or a queue before the callee.",
	Formula: "wait / remaining.start of the CLIENT span > 0.2. On one host, wait is the start of the SERVER span less that " +
		"of the CLIENT span; else what was announced less the deadline that arrived, and at most the CLIENT's " +
		"duration less the SERVER's.",
	Tolerance: "5 ms, and the threshold is a setting.",
	Mistakes: "A callee that gives itself less than it was sent looks like a wait, as far as its call took time on the way. " +
		"Without budget attributes, or between hosts without an announcement, nothing is found.",
	text: "waited up to %s between being sent and the start of work",
	check: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			exit, entry := r.exit(c), r.entry(c)
			ns, known := left(exit)
			if entry == nil || !known || ns <= 0 || c.Attempts > 1 {
				return
			}
			net := exit.Duration - entry.Duration
			wait := int64(0)
			switch st := entry.Stamp; {
			case exit.Desc.Host != "" && exit.Desc.Host == entry.Desc.Host:
				wait = min(net, entry.Start-exit.Start)
			case st != nil && st.HasAnnounced && !st.Stale && !st.Absolute && st.HasDeadline:
				wait = min(net, st.Announced-st.DeadlineRemaining)
			}
			if wait > r.Grace && float64(wait) > r.QueueShare*float64(ns) {
				report(Finding{Call: i, Span: c.Span, Amount: wait})
			}
		})
	},
}
