// Package quantile computes quantiles that admit what they do not know.
//
// A [Sample] collects durations, each standing for one or more requests where
// the traces were sampled. [Sample.Freeze] sorts it into a [Dist], which answers
// with nearest-rank quantiles and, by [Dist.Estimate], with the interval that
// the sample size allows. Nothing is binned or interpolated: every quantile is a
// value that was seen, and the same values give the same answer in any order.
package quantile

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Level is the share p of a quantile as the exact fraction Num/Den, so that
// ranks are computed in integers: in floating point the P99.9 of 1,000 values
// would be the 1,000th instead of the 999th.
type Level struct {
	Num, Den int64 // 0 < Num < Den
}

// The levels of the reports, in lowest terms as [ParseLevel] returns them.
var (
	P50  = Level{1, 2}
	P90  = Level{9, 10}
	P95  = Level{19, 20}
	P99  = Level{99, 100}
	P999 = Level{999, 1000}
)

// maxDecimals bounds the digits after the decimal point of a percentile, so
// that Num and Den stay far from overflow.
const maxDecimals = 9

// ParseLevel reads a percentile such as "99" or "99.9": a plain decimal number
// above 0 and below 100 with at most nine decimals.
func ParseLevel(s string) (Level, error) {
	bad := func() (Level, error) {
		return Level{}, fmt.Errorf("percentile %q: want a number above 0 and below 100, such as 99 or 99.9", s)
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" || len(whole) > 2 || len(fraction) > maxDecimals || strings.HasSuffix(s, ".") {
		return bad()
	}
	num, den := int64(0), int64(100)
	for i, c := range whole + fraction {
		if c < '0' || c > '9' {
			return bad()
		}
		num = num*10 + int64(c-'0')
		if i >= len(whole) {
			den *= 10
		}
	}
	if num == 0 {
		return bad()
	}
	a, b := num, den
	for b != 0 {
		a, b = b, a%b
	}
	return Level{num / a, den / a}, nil
}

// Float returns the level as a share, 0.99 for P99; 0 for an invalid level.
func (l Level) Float() float64 {
	if !l.valid() {
		return 0
	}
	return float64(l.Num) / float64(l.Den)
}

// String returns the usual name, "P99.9".
func (l Level) String() string {
	if !l.valid() {
		return "P?"
	}
	return "P" + strconv.FormatFloat(100*float64(l.Num)/float64(l.Den), 'f', -1, 64)
}

func (l Level) valid() bool { return 0 < l.Num && l.Num < l.Den }

// rank returns ceil(num/den * n) for 0 <= num <= den: the nearest rank, from 1.
func rank(num, den, n int64) int64 {
	hi, lo := bits.Mul64(uint64(num), uint64(n))
	q, r := bits.Div64(hi, lo, uint64(den)) // hi < den, because n < 2^63 and num <= den
	if r > 0 {
		q++
	}
	return int64(q)
}

// Confidence grades a P99 by the number of calls behind it.
type Confidence uint8

// The grades.
const (
	Refused Confidence = iota // under 100 calls: the P99 is the maximum
	Low                       // under 368: the P99 has no finite upper bound
	Fair                      // under 3,000: the interval is finite and wide
	Good                      // 3,000 or more: budgets repeat within about 5 %
)

// String returns the lower-case name: refused, low, fair or good.
func (c Confidence) String() string {
	switch c {
	case Low:
		return "low"
	case Fair:
		return "fair"
	case Good:
		return "good"
	}
	return "refused"
}

// Grade returns how far a P99 from a sample of effective size effN may be
// trusted. The limit 368 is the least n with 0.99^n <= 2.5 %.
func Grade(effN float64) Confidence {
	switch {
	case effN >= 3000:
		return Good
	case effN >= 368:
		return Fair
	case effN >= 100:
		return Low
	}
	return Refused
}
