package finding

import (
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var doomedCall = Rule{
	Name: "doomed-call", Severity: Error, Flag: attr.FlagDoomedCall,
	Summary: "A call was sent with less time than it is of any use with: better to fail at once, and spare the callee the work.",
	Formula: "0 < remaining.start < floor. The floor is the plan's, or that of `--floor`; without either it is the P50 of the hop's single calls, " +
		"and calls that were answered in time are not counted. The amount is what was missing.",
	Tolerance: "None where the floor was set, but for 50 ms where the deadline was sent as a point in time. A P50 is taken from 5 good calls on that were sent with a budget.",
	Mistakes: "A hop whose fast and slow calls differ much, as with a cache, has a P50 that says little of one call: set its " +
		"floor. A call that begins with nothing left is exhausted-at-start. Without budget attributes nothing is found.",
	Remedy: "Compare what is left with the floor before the call, and fail at once or answer without it. Where that " +
		"comes often, what is called before it takes too long: look at the caller's budget-utilization.",
	text: "sent with up to %s less than the call is of any use with",
	check: func(r *Request, report func(Finding)) {
		r.sent(func(i, span int32, left int64) {
			if l, _ := r.Planned(i); left < l.Floor {
				report(Finding{Call: i, Span: span, Amount: l.Floor - left})
			}
		})
	},
	sample: func(r *Request, report func(Finding)) {
		r.sent(func(i, span int32, left int64) {
			f := Finding{Call: i, Span: span, Amount: left}
			if r.tree.Calls[i].Outcome == trace.OutcomeOK {
				f.took = r.span(span).Duration
				f.quiet = f.took <= left
			}
			report(f)
		})
	},
	settle: func(seen []sample, floor int64) (out settled) {
		set := floor > 0
		if !set {
			floor = usual(seen)
		}
		for _, s := range seen {
			if s.amount < floor && (set || !s.quiet) {
				s.amount = floor - s.amount
				out.found = append(out.found, s)
				out.most = max(out.most, s.amount)
			}
		}
		return out
	},
}

// fewestForFloor is how many good calls a hop must have so that their P50 is
// taken for its floor.
const fewestForFloor = 5

// usual returns the P50 of the good calls among the evidence, 0 where they are too
// few. Calls that ran out of time are not among them, so it errs to the short side.
func usual(seen []sample) int64 {
	var took []int64
	for i := range seen {
		if seen[i].took > 0 {
			took = append(took, seen[i].took)
		}
	}
	if len(took) < fewestForFloor {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)-1)/2]
}

// sent calls visit for every call to another process that was sent with some
// time left, with the span that says how much, ns: where another clock set the deadline,
// as much as it may have been.
func (r *Request) sent(visit func(call, span int32, left int64)) {
	r.waited(func(i int32, c *trace.Call) {
		if c.Parent < 0 || c.Kind != trace.CallRPC {
			return
		}
		if ns, span, known := r.leftOf(c); known && ns+r.slackOf(c, span) > 0 {
			visit(i, span, ns+r.slackOf(c, span))
		}
	})
}
