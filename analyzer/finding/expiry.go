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
	ns, known := left(of)
	if !known {
		return false
	}
	if of.Stamp.HasDeadline {
		ns = min(ns, of.Stamp.DeadlineRemaining)
	}
	ns -= gap
	return s.Duration >= ns-r.tolerance(ns, of.Stamp.Absolute)
}
