package quantile

import (
	"cmp"
	"slices"
	"sort"
)

// thresholds is the number of sampling thresholds that OpenTelemetry's
// `ot=th` can express: 14 hex digits, 2^56.
const thresholds = 1 << 56

// Weight returns the number of requests that one request sampled with threshold
// T stands for, 2^56/(2^56-T), at least 1. T is below 2^56; larger ones are
// taken for the largest.
func Weight(threshold uint64) float64 {
	return thresholds / float64(thresholds-min(threshold, thresholds-1))
}

// Sample collects values of one quantity in ns. Its zero value is empty and
// ready for use. What a Sample amounts to depends on which values it was given
// and never on their order or on how they were spread over merged samples.
// It is not safe for concurrent use.
type Sample struct {
	// classes hold the values by sampling threshold, in ascending order of
	// threshold. Most exports have one, so a value costs its eight bytes.
	classes []class
}

type class struct {
	threshold uint64
	values    []int64
	zeros     int // values that are 0 because the call was not made
	censored  int // of the others: cut short, so that the true value is larger

	// Values that were given up for counts, see [Sketch]; min and max are theirs.
	buckets  []Bucket
	bucketed int
	min, max int64
}

func (c *class) len() int { return len(c.values) + c.bucketed + c.zeros }

// Add adds the value of a request that was sampled with the given threshold T:
// it counts 2^56/(2^56-T) times, once for T = 0. T is below 2^56; larger ones
// are taken for the largest.
func (s *Sample) Add(v int64, threshold uint64) {
	c := s.class(threshold)
	c.values = append(c.values, v)
}

// AddCensored adds a value that is only a lower bound of the true one: the
// duration of a call that a timeout or a cancellation ended.
func (s *Sample) AddCensored(v int64, threshold uint64) {
	c := s.class(threshold)
	c.values = append(c.values, v)
	c.censored++
}

// AddZeros adds n zeros, one for each request that did not make the call.
// They take no memory. It does nothing where n <= 0.
func (s *Sample) AddZeros(threshold uint64, n int) {
	if n > 0 {
		s.class(threshold).zeros += n
	}
}

// Merge adds everything in other, which stays as it is.
func (s *Sample) Merge(other *Sample) {
	for i := range other.classes {
		o := &other.classes[i]
		c := s.class(o.threshold)
		c.values = append(c.values, o.values...)
		c.zeros += o.zeros
		c.censored += o.censored
		if o.bucketed > 0 {
			if c.bucketed == 0 {
				c.min, c.max = o.min, o.max
			}
			c.min, c.max = min(c.min, o.min), max(c.max, o.max)
			c.buckets = mergeBuckets(c.buckets, o.buckets)
			c.bucketed += o.bucketed
		}
	}
}

// Unweigh makes every value count once, whatever its threshold was.
func (s *Sample) Unweigh() {
	classes := s.classes
	s.classes = nil
	for i := range classes {
		classes[i].threshold = 0
		s.Merge(&Sample{classes: classes[i : i+1]})
	}
}

// N returns how many values were added, zeros included.
func (s *Sample) N() int {
	n := 0
	for i := range s.classes {
		n += s.classes[i].len()
	}
	return n
}

func (s *Sample) class(threshold uint64) *class {
	threshold = min(threshold, thresholds-1)
	i, found := 0, false
	if len(s.classes) == 1 && s.classes[0].threshold == threshold {
		found = true
	} else {
		i, found = slices.BinarySearchFunc(s.classes, threshold, func(c class, t uint64) int {
			return cmp.Compare(c.threshold, t)
		})
	}
	if !found {
		s.classes = slices.Insert(s.classes, i, class{threshold: threshold})
	}
	return &s.classes[i]
}

// Freeze sorts what was collected. The distribution takes over the memory of
// the sample, which is empty afterwards.
func (s *Sample) Freeze() *Dist {
	classes := s.classes
	s.classes = nil
	d := &Dist{}
	for i := range classes {
		d.n += classes[i].len()
		d.sketched = d.sketched || classes[i].bucketed > 0
	}
	switch {
	case len(classes) == 1 && !d.sketched:
		c := &classes[0]
		slices.Sort(c.values)
		d.values, d.zeros, d.censored = slices.Clip(c.values), c.zeros, float64(c.censored)
		d.total = float64(c.len())
		d.effN = d.total
	case len(classes) > 0:
		d.freezeWeighted(classes)
	}
	d.negative = sort.Search(len(d.values), func(i int) bool { return d.values[i] >= 0 })
	d.zeroWeight = float64(d.zeros)
	if d.cum != nil {
		d.zeroWeight = 0
		for i := range classes {
			d.zeroWeight += float64(classes[i].zeros) * Weight(classes[i].threshold)
		}
	}
	return d
}

// item is a value, or several that count as one, and what it weighs.
type item struct {
	value  int64
	weight float64
}

// freezeWeighted fills d from values of different weight. Sums run in the order
// of (value, weight) or of thresholds alone, so their rounding is that of the
// set and not of its history.
func (d *Dist) freezeWeighted(classes []class) {
	var items []item
	squares := 0.0
	for i := range classes {
		c := &classes[i]
		w := Weight(c.threshold)
		items = append(items, c.items()...)
		d.zeros += c.zeros
		d.censored += float64(c.censored) * w
		d.total += float64(c.len()) * w
		squares += float64(c.len()) * w * w
	}
	if squares > 0 {
		d.effN = d.total * d.total / squares
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.weight, b.weight))
	})
	d.values = make([]int64, len(items))
	d.cum = make([]float64, len(items)+1)
	for i, it := range items {
		d.values[i] = it.value
		d.cum[i+1] = d.cum[i] + it.weight
	}
}
