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
		ns, known := left(s)
		if s.Stamp != nil && s.Stamp.HasDeadline {
			ns = min(ns, s.Stamp.DeadlineRemaining)
		}
		return known && s.Duration >= ns-r.tolerance(ns, s.Stamp.Absolute)
	}
	return false
}
