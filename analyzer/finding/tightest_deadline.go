package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

var tightestDeadline = Rule{
	Name: "tightest-deadline", Severity: Info,
	Summary: "A call timed out under a deadline that was set here: of all deadlines on the way this one was the tightest.",
	Formula: "The deepest calls that timed out when their deadline had come are traced up as long as it was handed on, to the " +
		"hop that made it shorter than what it had been handed, or to where it first shows. The amount is the time that it gave.",
	Tolerance: "The larger of 5 ms and 4 % of what was handed on: so much may pass on the way, and a call may end so early.",
	Mistakes: "A hop that keeps a large reserve set the deadline as well. Without budget attributes on the call that timed " +
		"out or above it nothing is found, nor where it timed out long before the deadline that they tell.",
	Remedy: "If the timeouts are too many, this is the deadline to talk about: give it more of what the hop above has, " +
		"or make faster what lies below.",
	text: "calls timed out under the deadline of up to %s that was set here", by: ", by ",
	check: func(r *Request, report func(Finding)) {
		calls := r.tree.Calls
		var late []int32
		r.waited(func(i int32, c *trace.Call) {
			if (r.lastedUntilDeadline(c, c.Span) || r.lastedUntilDeadline(c, c.Callee)) && !r.overtaken(i) {
				late = append(late, i)
			}
		})
		if len(late) == 0 {
			return
		}
		below := make([]bool, len(calls)) // a call further down timed out
		for _, i := range late {
			for up := calls[i].Parent; up >= 0 && !below[up]; up = calls[up].Parent {
				below[up] = true
			}
		}
		setters := r.setters()
		told := make([]bool, len(calls))
		for _, i := range late {
			s := setters[i]
			if below[i] || s.span < 0 || told[s.call] {
				continue
			}
			told[s.call] = true
			ns, _ := left(r.span(s.span))
			report(Finding{Call: s.call, Span: s.span, Amount: max(ns, 0), By: r.span(s.span).Desc.Service})
		}
	},
}

// lastedUntilDeadline tells whether a half of a call expired at the deadline that it
// is known to have had, and not by a timeout that nothing tells of.
func (r *Request) lastedUntilDeadline(c *trace.Call, half int32) bool {
	s := r.span(half)
	if !r.expired(s) {
		return false
	}
	if knows(s) {
		return r.ranOut(s, s, 0)
	}
	above, gap, _ := r.above(c, half)
	return r.ranOut(s, above, gap)
}

// setter is the half of a call that set a deadline; span is -1 where none is known.
type setter struct{ call, span int32 }

// setters returns for each call who set the deadline that holds at its end.
//
//	>edge      |===== 800 left ========|    set by edge
//	edge>risk    |===== 790 left =====|     handed on
//	>risk         |==== 789 left ====|      handed on
//	risk>bank       |= 100 left ==|         set by risk
func (r *Request) setters() []setter {
	calls := r.tree.Calls
	out := make([]setter, len(calls))
	for i := range calls {
		c := &calls[i]
		out[i] = setter{-1, -1}
		if c.Parent >= 0 {
			out[i] = out[c.Parent]
		}
		for _, half := range [...]int32{c.Span, c.Callee} {
			ns, known := left(r.span(half))
			if !known {
				continue
			}
			above, gap, _ := r.above(c, half)
			handed, hadOne := left(above)
			handed -= gap
			if !hadOne || ns < handed-r.tolerance(handed, r.span(half).Stamp.Absolute) {
				out[i] = setter{int32(i), half}
			}
		}
	}
	return out
}
