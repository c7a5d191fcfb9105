package finding

import "github.com/latencybudget/latencybudget/analyzer/plan"

// Names returns who makes a call, and what of whom it calls: the hop as plans and
// reports name it. What is not known is "", such as the caller of an entry that
// is a SERVER span.
func (r *Request) Names(call int32) (caller, callee, operation string) {
	c := &r.tree.Calls[call]
	d := r.span(c.Callee).Desc
	switch {
	case c.Parent >= 0:
		caller = r.span(r.tree.Calls[c.Parent].Callee).Desc.Service
	case r.exit(c) != nil:
		caller = r.span(c.Span).Desc.Service
	}
	callee = d.Service
	if c.Callee == c.Span && r.exit(c) != nil { // only the caller knows
		callee = d.Peer
	}
	return caller, callee, d.Operation
}

// Planned returns what the plan says of a call, and whether it does.
func (r *Request) Planned(call int32) (plan.Limits, bool) {
	if r.Plan == nil {
		return plan.Limits{}, false
	}
	return r.Plan.Find(r.Names(call))
}

// Spent is how a span used its budget.
type Spent struct {
	// Budget is what it had, ns: what was left of the request's budget when it
	// began, or the budget that the plan gives the hop, the smaller of the two. It
	// is 0 or less where the span began too late.
	Budget int64
	// Utilization is its duration over Budget; 0 where Budget is not positive.
	Utilization float64
	// Left is what was left of the request's budget when the span ended, ns; it is
	// negative on an overrun.
	Left      int64
	LeftKnown bool // the span says what was left when it began
	// Consumed is the share of the request's limit that was spent by then; 0 where
	// the limit is not known.
	Consumed float64
}

// Spent returns how a half of a call used its budget, and whether it is known to
// have had one.
func (r *Request) Spent(call, span int32) (s Spent, known bool) {
	half := r.span(span)
	s.Budget, known = left(half)
	if known {
		s.Left, s.LeftKnown = s.Budget-half.Duration, true
		if limit := half.Stamp.Limit; limit > 0 {
			s.Consumed = float64(limit-s.Left) / float64(limit)
		}
	}
	if l, _ := r.Planned(call); l.Budget > 0 && (!known || l.Budget < s.Budget) {
		s.Budget, known = l.Budget, true
	}
	if s.Budget > 0 {
		s.Utilization = float64(half.Duration) / float64(s.Budget)
	}
	return s, known
}
