package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

var fixedTimeout = Rule{
	Name: "fixed-timeout", Severity: Warning,
	Summary: "The timeouts of a call all come at the same duration: the client has a timeout of its own, and does not " +
		"look at what is left of the request's budget.",
	Formula: "Of at least 5 timed-out CLIENT spans of a hop, 90 % took the same time. The amount is the shortest of those, " +
		"which is the timeout that was set.",
	Tolerance: "The same time is the larger of 2 ms and 1 %. Calls that ended when their caller's deadline came, but for the larger of " +
		"5 ms and 4 %, are not counted: it may have ended them. Those that outlasted it are counted apart.",
	Mistakes: "Where every request begins this call at the same moment, what is left is the same each time, and spans without " +
		"budget attributes cannot tell the two apart. Needs many requests: a single one shows nothing.",
	Remedy: "Set the deadline of the call by what is left of the request's. The fixed timeout may stay as an upper " +
		"limit.",
	text: "timeouts come after %s, whatever is left of the budget", by: ", though ",
	sample: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			s := r.exit(c)
			if s == nil || s.Outcome != trace.OutcomeTimedOut {
				return
			}
			by := ""
			switch above, gap, _ := r.above(c, c.Span); {
			case r.outlasted(s, above, gap):
				by = "its callers had less"
			case r.ranOut(s, above, gap): // the deadline of the request may have ended it
				return
			}
			report(Finding{Call: i, Span: c.Span, Amount: s.Duration, By: by})
		})
	},
	settle: func(seen []sample, _ int64) settled {
		shortest, same := alike(amounts(seen), timeoutsAlike, func(d int64) int64 { return max(2_000_000, d/100) })
		if !same {
			return settled{}
		}
		return settled{found: seen, most: shortest}
	},
}

const (
	timeoutsAlike = 5   // fewer may be alike by chance
	shareAlike    = 0.9 // of the timeouts that must be
)

// alike returns the shortest of the durations, which ascend, that are no further
// apart than spread allows, and whether there are enough of them: fewest at least,
// and 90 % of all.
//
//	timeouts   .      |||||||||      .
//	                  ^ the one that was set, and how late it fired
func alike(durations []int64, fewest int, spread func(shortest int64) int64) (shortest int64, enough bool) {
	need := max(fewest, int(shareAlike*float64(len(durations))+0.999))
	for first := 0; first+need <= len(durations); first++ {
		d := durations[first]
		if durations[first+need-1]-d <= spread(d) {
			return d, true
		}
	}
	return 0, false
}
