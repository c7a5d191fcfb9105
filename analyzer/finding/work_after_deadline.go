package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// grace is how long work may go on after it was told to stop, ns.
const grace = 5_000_000

var workAfterDeadline = Rule{
	Name: "work-after-deadline", Severity: Warning, Flag: attr.FlagWorkAfterDeadline,
	Summary: "A callee worked on when its deadline had passed or its caller had given up: nobody gets the result.",
	Formula: "The caller timed out or cancelled, and the callee's span is longer than the caller's; or the callee's span is " +
		"longer than its own remaining.start. The amount is the longer of the two. The P99 is over all callees that should " +
		"have stopped, those that did so at once too; it takes 100 of them.",
	Tolerance: "5 ms to stop, and 50 ms where the deadline was sent as a point in time. Durations are compared, so clocks need not agree; the amount is then a lower bound.",
	Mistakes: "Work that must be finished once begun, such as a commit, is right to go on. The loser of a hedge is no " +
		"finding. A callee that began late may work on unseen.",
	Remedy: "Hand the context of the request to the work, and stop when it is done: in loops, in queries, and before " +
		"each next call.",
	text: "worked on for up to %s when nobody waited any more",
	check: func(r *Request, report func(Finding)) {
		r.toStop(func(f Finding) {
			if !f.quiet {
				report(f)
			}
		})
	},
	sample: (*Request).toStop,
	settle: func(seen []sample, _ int64) (out settled) {
		for _, s := range seen {
			if !s.quiet {
				out.found = append(out.found, s)
			}
		}
		all := amounts(seen)
		out.most, out.of = all[len(all)-1], len(all)
		if len(all) >= FewestForP99 {
			out.p99 = all[(len(all)*99+99)/100-1]
		}
		return out
	},
}

// toStop reports the calls whose callee should have stopped: how long it worked on
// after that. Those that stopped within the grace are quiet.
func (r *Request) toStop(report func(Finding)) {
	r.waited(func(i int32, c *trace.Call) {
		entry, exit := r.entry(c), r.exit(c)
		if entry == nil || r.overtaken(i) {
			return
		}
		after, stop := int64(0), false
		if exit != nil && gaveUp(exit) {
			after, stop = max(after, entry.Duration-exit.Duration), true
		}
		if ns, known := left(entry); known {
			if over := entry.Duration - max(ns+r.slack(entry), 0); over > 0 {
				after, stop = max(after, over), true
			}
		}
		if stop {
			report(Finding{Call: i, Span: c.Callee, Amount: after, quiet: after == 0 || after <= grace && !r.NoGrace})
		}
	})
}
