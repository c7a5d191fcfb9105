package budget

import (
	"math"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// Suggest returns the budget, in ns, to start from where nobody has promised
// one: 1.25 times the P99 of the endpoint or the upper bound of its 95 %
// interval if that is larger, rounded up to two significant digits. Where the
// sample is too small for an upper bound it goes by the maximum and low is true;
// from an empty sample it suggests 0.
func Suggest(d *quantile.Dist, o quantile.EstimateOptions) (budget int64, low bool) {
	e := d.Estimate(quantile.P99, o)
	if !e.HiKnown {
		most, _ := d.Max()
		return roundUpTwoDigits(fiveQuarters(max(most, o.Resolution))), true
	}
	return roundUpTwoDigits(max(fiveQuarters(e.Value), e.Hi)), false
}

// fiveQuarters returns 1.25 times v, rounded up, for 0 <= v; the largest value
// where that is too large.
func fiveQuarters(v int64) int64 {
	if v > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return v + (v+3)/4
}

func roundUpTwoDigits(v int64) int64 {
	step := int64(1)
	for v/step >= 100 {
		step *= 10
	}
	if v > math.MaxInt64-step {
		return v
	}
	return (v + step - 1) / step * step
}

// AttemptTimeout returns the timeout of one attempt of an operation that may be
// repeated, in ns: the P99 of the attempts, scaled as the budget is to the P99 of
// the operations, but at least the floor and at most the budget. For an operation
// of one attempt it is the budget.
func AttemptTimeout(budget, attemptP99, operationP99, floor int64) int64 {
	if operationP99 <= 0 || attemptP99 >= operationP99 {
		return budget
	}
	scaled := float64(budget) * (float64(attemptP99) / float64(operationP99))
	return min(budget, max(int64(scaled), floor))
}

// AttemptsWithin returns how many attempts with the given timeout, and a pause
// between any two, a budget holds; all in ns.
func AttemptsWithin(budget, timeout, pause int64) int {
	return int((budget + pause) / max(timeout+pause, 1))
}
