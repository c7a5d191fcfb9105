package quantile

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"slices"
)

// ErrorBound is how far, relatively, a value that a sketch returns may be from
// the one that was added: half the width of a bucket.
const ErrorBound = 1.0 / 256

// Sketch is a set of values in log-linear buckets: the seven bits after the
// leading one are kept, so values below 256 are exact and all others are within
// [ErrorBound]. Which buckets there are depends on no value, and counts are
// integers: sketches of parts add up to the sketch of the whole in any order.
//
//	value   0 … 255   256 257 | 258 259 | … | 510 511 | 512 … 515 | 516 … 519 |
//	bucket  0 … 255      256  |   257   | … |   383   |    384    |    385    |
type Sketch struct {
	Threshold uint64 // sampling threshold of the requests
	Censored  int    // values that are lower bounds
	Min, Max  int64  // exact
	// Buckets ascend by Index, and each holds a value.
	Buckets []Bucket
}

// Bucket counts the values with one index.
type Bucket struct {
	Index int32
	N     int
}

const (
	mantissa  = 7
	exactly   = 1 << (mantissa + 1)                       // values below have buckets of their own
	lastIndex = (63-mantissa-1)<<mantissa + (exactly - 1) // bucket of math.MaxInt64
)

// bucketOf returns the index of the bucket of a value. Negative values have the
// negative index of their magnitude.
func bucketOf(v int64) int32 {
	if v < 0 {
		return -bucketOf(-max(v, -math.MaxInt64))
	}
	e := max(bits.Len64(uint64(v))-mantissa-1, 0)
	return int32(e<<mantissa) + int32(v>>e)
}

// bounds returns the smallest and the largest value of a bucket.
func bounds(index int32) (lo, hi int64) {
	if index < 0 {
		lo, hi = bounds(-index)
		return -hi, -lo
	}
	if index < exactly {
		return int64(index), int64(index)
	}
	e := index>>mantissa - 1
	lo = int64(index-e<<mantissa) << e
	return lo, lo + 1<<e - 1
}

// Ceiling returns the largest value that no sketch can tell from v. Shares of
// values above it are the same in a sketch and in the values themselves.
func Ceiling(v int64) int64 {
	_, hi := bounds(bucketOf(v))
	return hi
}

// compact turns the values of a class into counts.
func (c *class) compact() {
	if len(c.values) == 0 {
		return
	}
	slices.Sort(c.values)
	lo, hi := c.values[0], c.values[len(c.values)-1]
	if len(c.buckets) > 0 {
		lo, hi = min(lo, c.min), max(hi, c.max)
	}
	c.min, c.max = lo, hi
	var buckets []Bucket
	for _, v := range c.values {
		if i := bucketOf(v); len(buckets) > 0 && buckets[len(buckets)-1].Index == i {
			buckets[len(buckets)-1].N++
		} else {
			buckets = append(buckets, Bucket{i, 1})
		}
	}
	c.bucketed += len(c.values)
	c.buckets = mergeBuckets(c.buckets, buckets)
	c.values = c.values[:0]
}

func mergeBuckets(a, b []Bucket) []Bucket {
	if len(a) == 0 {
		return slices.Clone(b)
	}
	out := make([]Bucket, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := cmp.Compare(a[0].Index, b[0].Index); {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			out = append(out, Bucket{a[0].Index, a[0].N + b[0].N})
			a, b = a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// Compact gives up the exact values for a [Sketch] of them, which takes some KB
// whatever their number is.
func (s *Sample) Compact() {
	for i := range s.classes {
		s.classes[i].compact()
	}
}

// Sketches returns what was added, zeros of [Sample.AddZeros] left out, in
// ascending order of the threshold. The sample is compact afterwards.
func (s *Sample) Sketches() []Sketch {
	s.Compact()
	var out []Sketch
	for i := range s.classes {
		if c := &s.classes[i]; len(c.buckets) > 0 {
			out = append(out, Sketch{c.threshold, c.censored, c.min, c.max, c.buckets})
		}
	}
	return out
}

// AddSketch adds what a sketch holds. It is an error, and adds nothing, where
// that is no sketch of any values.
func (s *Sample) AddSketch(k Sketch) error {
	n, previous := 0, int32(-lastIndex-1)
	for _, b := range k.Buckets {
		if b.Index <= previous || b.Index > lastIndex || b.N < 1 || b.N > maxValues-n {
			return errors.New("no sketch: its buckets are out of order or count nothing")
		}
		n, previous = n+b.N, b.Index
	}
	if n == 0 || k.Censored < 0 || k.Censored > n || k.Threshold >= thresholds ||
		bucketOf(k.Min) != k.Buckets[0].Index || bucketOf(k.Max) != previous || k.Min > k.Max {
		return errors.New("no sketch: its counts or bounds do not fit its buckets")
	}
	c := s.class(k.Threshold)
	if len(c.buckets) == 0 {
		c.min, c.max = k.Min, k.Max
	}
	c.min, c.max = min(c.min, k.Min), max(c.max, k.Max)
	c.bucketed += n
	c.censored += k.Censored
	c.buckets = mergeBuckets(c.buckets, k.Buckets)
	return nil
}

// maxValues bounds the number of values of a sketch, so that no sum of counts
// overflows.
const maxValues = 1 << 50

// items are the values of a class for a frozen distribution: of each bucket the
// middle, but the smallest and the largest value as they were.
func (c *class) items() []item {
	w := Weight(c.threshold)
	var out []item
	add := func(v int64, n int) {
		if n > 0 {
			out = append(out, item{v, float64(n) * w})
		}
	}
	if len(c.buckets) == 0 {
		for _, v := range c.values {
			add(v, 1)
		}
		return out
	}
	c.compact()
	last := len(c.buckets) - 1
	for i, b := range c.buckets {
		n := b.N
		if i == 0 {
			add(c.min, 1)
			n--
		}
		if i == last && n > 0 {
			add(c.max, 1)
			n--
		}
		lo, hi := bounds(b.Index)
		add(min(max(lo+(hi-lo)/2, c.min), c.max), n)
	}
	return out
}
