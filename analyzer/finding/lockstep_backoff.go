package finding

import (
	"strconv"
)

var lockstepBackoff = Rule{
	Name: "lockstep-backoff", Severity: Info,
	Summary: "Retries all wait the same time: callers that failed together come back together, and fail together again.",
	Formula: "Of at least 30 retries of a hop with the same number, 90 % came the same time after the attempt before had failed. " +
		"The amount is that time.",
	Tolerance: "The same time is 5 %.",
	Mistakes:  "Retries that do not wait at all are in step as well, and not found. Needs many requests.",
	Remedy:    "Add jitter: a random part of the wait.",
	text:      "retries wait %s each time", by: " before attempt ",
	sample: func(r *Request, report func(Finding)) {
		r.retries(func(call, before, again int32, number int64) {
			report(Finding{
				Call: call, Span: r.tree.Calls[call].Span, Amount: r.span(again).Start - r.span(before).End(),
				By: strconv.FormatInt(min(number, mostSteps), 10),
			})
		})
	},
	settle: func(seen []sample, _ int64) settled {
		wait, same := alike(amounts(seen), retriesAlike, func(d int64) int64 { return d / 20 })
		if !same {
			return settled{}
		}
		return settled{found: seen, most: wait}
	},
}

const (
	retriesAlike = 30 // fewer may be alike by chance
	mostSteps    = 16 // attempts beyond are taken together
)
