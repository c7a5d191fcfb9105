package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

var deadlineExceeded = Rule{
	Name: "deadline-exceeded", Severity: Warning,
	Summary: "A call ended because its time was up. Its count and share show which service is slow for which caller.",
	Formula: "Either half ended with gRPC DEADLINE_EXCEEDED, HTTP 504, an error type of a timeout, or Go's \"context deadline " +
		"exceeded\"; or was cancelled (gRPC CANCELLED, HTTP 499, \"context canceled\") when its budget was spent. The amount " +
		"is how long it took.",
	Tolerance: "A cancellation counts from the larger of 5 ms and 4 % before the deadline on, and only where the deadline is known.",
	Mistakes: "A timeout deep in the tree makes its callers time out as well, so each of them is counted: the deepest hop is " +
		"where to look first. A timeout of something else, such as a lock, may carry the same error type.",
	Remedy: "Begin with the deepest hop. Its P99 in the table says whether it is slow, and tightest-deadline which " +
		"timeout it had: change the one that is wrong.",
	text: "timed out after up to %s",
	check: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			for _, half := range [...]int32{c.Span, c.Callee} {
				if r.expired(r.span(half)) && !r.overtaken(i) {
					report(Finding{Call: i, Span: half, Amount: r.span(half).Duration})
					return
				}
			}
		})
	},
}
