package quantile

import (
	"cmp"
	"math"
	"slices"
)

// Difference is what a test of one quantile of two samples says.
type Difference struct {
	// P is the probability to see samples that differ as much, or more, where the
	// quantile is the same: two-sided.
	P float64
	// Up tells that more of the second sample lies above the quantile of both
	// together than of the first.
	Up bool
	// Few tells that samples of these sizes cannot differ significantly (P <= 5 %)
	// whatever they hold: a P99 takes 600 values in all, where there are equally
	// many of each.
	Few bool
}

// fewLevel is the level at which samples must be able to differ.
const fewLevel = 0.05

// Differ tests whether a quantile of two samples is the same, by Mood's test for
// the median carried over to any level: it counts how many of each sample lie above
// the quantile of both together, and compares the counts by Fisher's exact test.
//
//	above q        a    3        9    b       one in 100 of both lies above
//	up to q        a  597      591    b       the P99 q of both
//
// The test assumes no shape of the distribution, and ties do no harm. Samples count
// by their effective size. Where one is from a sketch, values are compared as
// coarsely as it holds them.
func Differ(a, b *Dist, l Level, forA, forB EstimateOptions) Difference {
	n, m := effective(a, forA), effective(b, forB)
	if n == 0 || m == 0 || !l.valid() {
		return Difference{P: 1, Few: true}
	}
	above := n + m - rank(l.Num, l.Den, n+m) // expected without ties
	d := Difference{P: 1, Few: leastP(above, n, m) > fewLevel}
	q := pooled(a, b, l, float64(n), float64(m))
	if a.Sketched() || b.Sketched() {
		q = Ceiling(q)
	}
	shareA, shareB := a.FractionAbove(q), b.FractionAbove(q)
	d.Up = shareB > shareA
	x, y := int64(math.Round(shareA*float64(n))), int64(math.Round(shareB*float64(m)))
	d.P = fisher(x, x+y, n, m)
	return d
}

// effective is the size that a sample counts with.
func effective(d *Dist, o EstimateOptions) int64 {
	n := d.EffN()
	if o.Shrink > 0 && o.Shrink < 1 {
		n *= o.Shrink
	}
	return int64(n)
}

// pooled returns the quantile of two samples together, which count n and m. It lies
// between those of the two.
func pooled(a, b *Dist, l Level, n, m float64) int64 {
	lo, _ := a.At(l)
	hi, _ := b.At(l)
	if lo > hi {
		lo, hi = hi, lo
	}
	most := (1 - l.Float()) * (n + m) * (1 + tolerance)
	for lo < hi {
		mid := lo + (hi-lo)/2
		if n*a.FractionAbove(mid)+m*b.FractionAbove(mid) <= most {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// leastP is the smallest P of any two samples of sizes n and m of which so many
// values together lie above.
func leastP(above, n, m int64) float64 {
	return min(fisher(max(0, above-m), above, n, m), fisher(min(above, n), above, n, m))
}

// fisher is the two-sided exact test of a table with fixed margins: of n+m values,
// total lie above, and x of them among the n. It is the probability of all tables
// that are no more likely than this one.
//
// As in ranks, probabilities are multiples of that of the most likely table, by the
// ratio of neighbours, outwards until they vanish.
func fisher(x, total, n, m int64) float64 {
	const vanishing, equal = 1e-20, 1 + 1e-7
	least, most := max(0, total-m), min(total, n)
	mode := min(max(int64(float64(total+1)*float64(n+1)/float64(n+m+2)), least), most)
	up := func(k int64) float64 { // P(k+1)/P(k)
		return float64(total-k) / float64(k+1) * float64(n-k) / float64(m-total+k+1)
	}
	own := 1.0
	for k := mode; k < x && own > vanishing; k++ {
		own *= up(k)
	}
	for k := mode; k > x && own > vanishing; k-- {
		own /= up(k - 1)
	}
	sum, tail := 0.0, 0.0
	add := func(p float64) {
		sum += p
		if p <= own*equal {
			tail += p
		}
	}
	add(1)
	for k, p := mode, 1.0; k < most && p > vanishing; k++ {
		p *= up(k)
		add(p)
	}
	for k, p := mode, 1.0; k > least && p > vanishing; k-- {
		p /= up(k - 1)
		add(p)
	}
	return min(tail/sum, 1)
}

// AdjustP returns the probabilities of many tests as those of Benjamini and Hochberg:
// where tests count as positive up to 5 %, at most 5 % of the positive ones are
// expected to be noise, and where all is noise there is a positive one in at most 5 %
// of the comparisons.
func AdjustP(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(p[a], p[b]), cmp.Compare(a, b)) })
	out := make([]float64, len(p))
	least := 1.0
	for at := len(order) - 1; at >= 0; at-- {
		i := order[at]
		least = min(least, p[i]*float64(len(p))/float64(at+1))
		out[i] = least
	}
	return out
}
