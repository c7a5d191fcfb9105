package quantile

import "sort"

// Dist is a frozen, sorted sample. A nil Dist is valid and empty. It is
// immutable, and so safe for concurrent use.
type Dist struct {
	n        int     // values that were added
	values   []int64 // ascending, without the zeros of AddZeros; of a sketch one for each bucket
	sketched bool    // values are those of a sketch
	zeros    int     // they stand before values[negative]
	negative int     // values below 0

	// cum[i] is the weight of values[:i]; nil where all weights are equal and
	// no value stands for several. The weights below count values in that case.
	cum        []float64
	zeroWeight float64
	total      float64
	censored   float64
	effN       float64
}

// tolerance is how far, relatively, a sum of unequal weights may be off.
const tolerance = 1e-12

// N returns the number of values, zeros included.
func (d *Dist) N() int {
	if d == nil {
		return 0
	}
	return d.n
}

// Sketched tells whether values are those of a [Sketch]: within [ErrorBound],
// the smallest and the largest exact.
func (d *Dist) Sketched() bool { return d != nil && d.sketched }

// EffN returns the effective sample size (sum w)^2 / sum w^2: N where all
// weights are equal, less where they differ.
func (d *Dist) EffN() float64 {
	if d == nil {
		return 0
	}
	return d.effN
}

// Min returns the smallest value; false where there is none.
func (d *Dist) Min() (int64, bool) {
	switch {
	case d.N() == 0:
		return 0, false
	case d.zeros > 0 && d.negative == 0:
		return 0, true
	}
	return d.values[0], true
}

// Max returns the largest value; false where there is none.
func (d *Dist) Max() (int64, bool) {
	switch {
	case d.N() == 0:
		return 0, false
	case d.zeros > 0 && d.negative == len(d.values):
		return 0, true
	}
	return d.values[len(d.values)-1], true
}

// At returns the quantile: the smallest value whose cumulative weight reaches
// the level's share of the whole, which is the nearest rank ceil(p*n) where
// all weights are equal. It is false where there are no values.
func (d *Dist) At(l Level) (int64, bool) {
	if d.N() == 0 || !l.valid() {
		return 0, false
	}
	return d.at(l.Num, l.Den)
}

// at returns the quantile of num/den, which may be 1, of a sample with values.
func (d *Dist) at(num, den int64) (int64, bool) {
	if d.cum == nil {
		return d.nth(rank(num, den, int64(d.N())))
	}
	// Weights are positive and finite, so a multiplication by den and a small
	// tolerance keep shares that are equal in exact arithmetic equal here.
	target := d.total * float64(num) * (1 - tolerance)
	reached := func(w float64) bool { return w*float64(den) >= target }
	n := len(d.values)
	from, before := 0, 0.0
	if !reached(d.cum[d.negative]) {
		from, before = d.negative, d.zeroWeight
		if d.zeros > 0 && reached(d.cum[from]+before) {
			return 0, true
		}
	}
	i := from + sort.Search(n-from, func(i int) bool { return reached(d.cum[from+i+1] + before) })
	if i == n { // only by rounding of the sums
		return d.Max()
	}
	return d.values[i], true
}

// nth returns the r-th smallest value, from 1, where all weights are equal.
func (d *Dist) nth(r int64) (int64, bool) {
	if r < 1 || r > int64(d.N()) {
		return 0, false
	}
	i := int(r - 1)
	switch {
	case i < d.negative:
		return d.values[i], true
	case i < d.negative+d.zeros:
		return 0, true
	}
	return d.values[i-d.zeros], true
}

// FractionAbove returns the weighted share of values larger than x, 0 to 1; 0
// for an empty distribution.
func (d *Dist) FractionAbove(x int64) float64 {
	if d.N() == 0 {
		return 0
	}
	i := sort.Search(len(d.values), func(i int) bool { return d.values[i] > x })
	var above float64
	if d.cum == nil {
		above = float64(len(d.values) - i)
	} else {
		above = d.cum[len(d.values)] - d.cum[i]
	}
	if x < 0 {
		above += d.zeroWeight
	}
	return min(above/d.total, 1)
}

// CensoredRatio returns the weighted share of values that are lower bounds, 0 to 1.
func (d *Dist) CensoredRatio() float64 {
	if d.N() == 0 {
		return 0
	}
	return d.censored / d.total
}

// EstimateOptions say what is known about the measurement besides its values.
type EstimateOptions struct {
	// Resolution is that of the clock in ns; 0 where it does not matter. The
	// value is at least one step, and the interval a step wider on each side.
	Resolution int64
	// Shrink multiplies the effective sample size where requests are not
	// independent of each other, 0 < Shrink <= 1; 0 stands for 1.
	Shrink float64
}

// Estimate is a quantile and the doubt about it.
type Estimate struct {
	P     Level
	Value int64 // ns; 0 where N is 0
	// Lo and Hi bound the quantile with the given Confidence. Where the
	// sample is too small to have a bound, Lo is 0 (or Value if that is less)
	// and HiKnown false: the upper bound lies anywhere above the maximum.
	Lo, Hi     int64
	HiKnown    bool
	Confidence float64
	N          int
	EffN       float64 // after Shrink
	Exact      bool    // from all values; false for an empty sample and for a sketch
	// Censored tells that so many values were cut short that the quantile
	// itself is only a lower bound.
	Censored bool
}

// confidence is that of all intervals.
const confidence = 0.95

// Estimate returns the quantile with its distribution-free 95 % interval, two
// order statistics whose ranks come from the binomial distribution. Where the
// effective size is smaller than N the ranks are those of a sample of that
// size, taken as shares of the whole. An invalid level or an empty distribution
// gives an Estimate with N = 0.
func (d *Dist) Estimate(l Level, o EstimateOptions) Estimate {
	value, ok := d.At(l)
	if !ok {
		return Estimate{P: l}
	}
	e := Estimate{P: l, Value: value, Lo: min(value, 0), Confidence: confidence, N: d.N(), EffN: d.effN, Exact: !d.sketched}
	if o.Shrink > 0 && o.Shrink < 1 {
		e.EffN *= o.Shrink
	}
	m := int64(e.EffN)
	lo, hi := ranks(l, m)
	if lo > 0 {
		e.Lo, _ = d.at(lo, m)
		e.Lo = min(e.Lo, value)
	}
	if hi <= m {
		e.Hi, e.HiKnown = d.at(hi, m)
		e.Hi = max(e.Hi, value)
	}
	// The censored may all lie above the quantile: it is a bound when they fill
	// the share above it.
	e.Censored = d.censored > 0 && d.censored*float64(l.Den) >= d.total*float64(l.Den-l.Num)*(1-tolerance)
	if r := o.Resolution; r > 0 {
		e.Value = max(e.Value, r)
		e.Lo = max(e.Lo-r, 0)
		if e.HiKnown {
			e.Hi = max(e.Hi+r, e.Value)
		}
	}
	return e
}

// ranks returns the ranks lo and hi, from 1, between whose order statistics the
// quantile lies with 95 % confidence in a sample of n. With X ~ Bin(n, p):
// lo = max{k: P(X <= k-1) <= 2.5 %} and hi = min{k: P(X >= k) <= 2.5 %}. lo is 0
// or hi is n+1 where the sample has no such bound.
//
// The probabilities are summed as multiples of the most likely one by the
// recurrence P(k+1)/P(k) = (n-k)/(k+1) * p/(1-p), outwards until they vanish, and
// divided by their sum. That takes O(sqrt(n)) steps and avoids the cancellation
// of log-gamma functions.
func ranks(l Level, n int64) (lo, hi int64) {
	const vanishing = 1e-20
	odds := float64(l.Num) / float64(l.Den-l.Num)
	mode := min(int64(float64(n+1)*l.Float()), n)
	up := func(k int64) float64 { return float64(n-k) / float64(k+1) * odds } // P(k+1)/P(k)

	// first and last delimit the terms that count, pFirst and pLast are theirs.
	first, pFirst, sum := mode, 1.0, 1.0
	for first > 0 && pFirst > vanishing {
		first--
		pFirst /= up(first)
		sum += pFirst
	}
	last, pLast := mode, 1.0
	for last < n && pLast > vanishing {
		pLast *= up(last)
		last++
		sum += pLast
	}
	limit := (1 - confidence) / 2 * sum
	lo = first
	for tail, p := pFirst, pFirst; tail <= limit && lo < n; tail += p {
		p *= up(lo)
		lo++
	}
	hi = last + 1
	for tail, p := pLast, pLast; tail <= limit && hi > 1; tail += p {
		hi--
		p /= up(hi - 1)
	}
	return lo, hi
}
