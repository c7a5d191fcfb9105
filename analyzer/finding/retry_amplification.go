package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

// mostAttempts is how many attempts in all layers together one call may take.
const mostAttempts = 3

var retryAmplification = Rule{
	Name: "retry-amplification", Severity: Warning, Unit: Times,
	Summary: "Layers that each retry multiply: three layers of three attempts send 27 calls for one.",
	Formula: "The attempts of a logical call, times those of the calls around it, exceed 3. " +
		"Calls of one span that go the same way are attempts of one call where each starts within 1 s after the one before it failed.",
	Tolerance: "Three attempts of one call are usual and no finding.",
	Mistakes: "A loop over items that fails often looks like retries. Not so where the answer is one that another try would get " +
		"again: an HTTP status of 4xx but 401, 408, 409, 423, 425, 429 and 499, or a gRPC code like NOT_FOUND. Attempts that run beside each other, as hedges and " +
		"fan-outs do, do not count, nor do streams that are opened again.",
	Remedy: "Retry in one layer, and let the others hand the failure up; limit retries to a small share of all calls.",
	text:   "up to %s attempts for one call, the layers multiplied",
	check: func(r *Request, report func(Finding)) {
		number, of := r.attempts()
		if of == nil {
			return
		}
		product := make([]int64, len(of))
		r.begun(func(i int32, c *trace.Call) {
			product[i] = 1
			if r.Judged(i) { // a stream is opened again, not tried again
				product[i] = of[i]
			}
			if c.Parent >= 0 {
				product[i] = min(product[i]*product[c.Parent], 1<<31)
			}
			// Once for each logical call, at its first attempt.
			if r.Judged(i) && number[i] == 1 && of[i] > 1 && product[i] > mostAttempts {
				report(Finding{Call: i, Span: c.Span, Amount: product[i]})
			}
		})
	},
}
