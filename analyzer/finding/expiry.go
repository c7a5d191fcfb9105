package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

// expired tells whether a span ended because its time was up. The one table:
//
//	how it ended                                    expired
//	gRPC 4, HTTP 504, error.type of a timeout,      yes
//	"context deadline exceeded"
//	gRPC 1, HTTP 499, error.type of a cancellation, only where its budget is known, and was spent but for the tolerance
//	"context canceled"
//	anything else, a 400 for a bad budget too       no
//
// At the moment of expiry a callee sees one or the other by chance. A
// cancellation long before it is somebody who left.
func (r *Request) expired(s *trace.Span) bool {
	switch s.Outcome {
	case trace.OutcomeTimedOut:
		return true
	case trace.OutcomeCancelled:
		return r.ranOut(s, s, 0)
	}
	return false
}

// ranOut tells whether a span lasted until the deadline that another, or itself, knew
// of gap earlier, but for the tolerance.
func (r *Request) ranOut(s, of *trace.Span, gap int64) bool {
	had, tolerance, known := r.deadline(of, gap)
	return known && s.Duration >= had-tolerance
}

// outlasted tells whether a span went on beyond that deadline, by more than the tolerance.
func (r *Request) outlasted(s, of *trace.Span, gap int64) bool {
	had, tolerance, known := r.deadline(of, gap)
	return known && s.Duration > had+tolerance
}

// deadline is what a span had at most until its deadline, gap after it began, and how
// far that may be off, ns.
func (r *Request) deadline(of *trace.Span, gap int64) (had, tolerance int64, known bool) {
	had, known = left(of)
	if !known {
		return 0, 0, false
	}
	if of.Stamp.HasDeadline {
		had = min(had, of.Stamp.DeadlineRemaining)
	}
	had -= gap
	return had, r.tolerance(had, of.Stamp.Absolute), true
}
