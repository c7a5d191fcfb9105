package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

var unsafeRetry = Rule{
	Name: "unsafe-retry", Severity: Info, Unit: Times,
	Summary: "A POST or PATCH was sent again: if the first attempt had its effect after all, it now has it twice.",
	Formula: "A retried CLIENT span with the method POST or PATCH, and without a captured idempotency-key header. " +
		"The amount is the number of attempts.",
	Tolerance: "None.",
	Mistakes: "Where request headers are not captured, the key does not show: capture idempotency-key. A request that never " +
		"reached the callee, or only reads, is safe to repeat.",
	Remedy: "Send an idempotency key that the callee looks at, or do not try again.",
	text:   "a request that may not be safe to repeat was sent up to %s times",
	check: func(r *Request, report func(Finding)) {
		number, of := r.attempts()
		if of == nil {
			return
		}
		r.waited(func(i int32, c *trace.Call) {
			// Once for each logical call, at its first attempt.
			if exit := r.exit(c); exit != nil && number[i] == 1 && of[i] > 1 && exit.Is(trace.FlagUnsafe) {
				report(Finding{Call: i, Span: c.Span, Amount: of[i]})
			}
		})
	},
}
