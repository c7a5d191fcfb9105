package quantile

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBucketsTileAllValues walks over the edges of all buckets.
func TestBucketsTileAllValues(t *testing.T) {
	next := int64(0)
	for i := int32(0); i <= lastIndex; i++ {
		lo, hi := bounds(i)
		if lo != next || hi < lo || bucketOf(lo) != i || bucketOf(hi) != i {
			t.Fatalf("bucket %d is [%d, %d], of which the ends are in %d and %d; want it to begin at %d", i, lo, hi, bucketOf(lo), bucketOf(hi), next)
		}
		if width := hi - lo; float64(width)/2 > ErrorBound*float64(lo) && lo >= exactly {
			t.Fatalf("bucket %d is [%d, %d]: too wide", i, lo, hi)
		}
		if nlo, nhi := bounds(-i); nlo != -hi || nhi != -lo || bucketOf(-lo) != -i {
			t.Fatalf("bucket %d is [%d, %d]", -i, nlo, nhi)
		}
		next = hi + 1
	}
	if _, hi := bounds(lastIndex); hi != math.MaxInt64 {
		t.Errorf("the last bucket ends at %d", hi)
	}
	if got := bucketOf(math.MinInt64); got != -lastIndex {
		t.Errorf("the smallest value is in bucket %d", got)
	}
}

// TestSketchIsWithinItsBound compares quantiles and shares with the exact ones.
func TestSketchIsWithinItsBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		var values, sketch Sample
		weighted := rng.IntN(2) == 0
		for range 1 + rng.IntN(20_000) {
			v := int64(math.Exp(15 + 3*rng.NormFloat64()))
			threshold := uint64(0)
			if weighted {
				threshold = uint64(rng.IntN(3)) << 54
			}
			switch rng.IntN(20) {
			case 0:
				values.AddCensored(v, threshold)
				sketch.AddCensored(v, threshold)
			default:
				values.Add(v, threshold)
				sketch.Add(v, threshold)
			}
			if rng.IntN(1000) == 0 {
				sketch.Compact()
			}
		}
		values.AddZeros(0, 100)
		sketch.AddZeros(0, 100)
		sketch.Compact()
		exact, d := values.Freeze(), sketch.Freeze()
		if exact.Sketched() || !d.Sketched() || d.N() != exact.N() ||
			math.Abs(d.EffN()-exact.EffN()) > 1e-6*exact.EffN() || math.Abs(d.CensoredRatio()-exact.CensoredRatio()) > 1e-9 {
			t.Fatalf("%d of %v values, %v are censored; want %d of %v, %v", d.N(), d.EffN(), d.CensoredRatio(),
				exact.N(), exact.EffN(), exact.CensoredRatio())
		}
		for _, l := range []Level{P50, P90, P95, P99, P999} {
			want, _ := exact.At(l)
			got, _ := d.At(l)
			if math.Abs(float64(got-want)) > ErrorBound*float64(want) {
				t.Errorf("%v of %d values is %d, want %d within %.2f %%", l, exact.N(), got, want, 100*ErrorBound)
			}
			at := Ceiling(want)
			if a, b := exact.FractionAbove(at), d.FractionAbove(at); math.Abs(a-b) > 1e-9 {
				t.Errorf("%v above %d, want %v", b, at, a)
			}
		}
		for _, end := range []func(*Dist) (int64, bool){(*Dist).Min, (*Dist).Max} {
			want, _ := end(exact)
			if got, _ := end(d); got != want {
				t.Errorf("extreme %d, want %d", got, want)
			}
		}
		if e := d.Estimate(P99, EstimateOptions{}); e.Exact {
			t.Error("an estimate from a sketch says it is exact")
		}
	}
}

// TestSketchesMergeInAnyOrder spreads values over samples that are merged in
// random trees, some of them compact already.
func TestSketchesMergeInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var whole Sample
		parts := make([]*Sample, 1+rng.IntN(6))
		for i := range parts {
			parts[i] = new(Sample)
		}
		for range rng.IntN(500) {
			v, threshold, part := rng.Int64N(1<<uint(1+rng.IntN(40))), uint64(rng.IntN(2)), parts[rng.IntN(len(parts))]
			if rng.IntN(5) == 0 {
				v = -v
			}
			whole.Add(v, threshold)
			part.Add(v, threshold)
		}
		for len(parts) > 1 {
			i, j := rng.IntN(len(parts)), rng.IntN(len(parts)-1)
			if j >= i {
				j++
			}
			if rng.IntN(2) == 0 {
				parts[j].Compact()
			}
			parts[i].Merge(parts[j])
			parts[j] = parts[len(parts)-1]
			parts = parts[:len(parts)-1]
		}
		var again Sample
		for _, k := range parts[0].Sketches() {
			if err := again.AddSketch(k); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(whole.Sketches(), again.Sketches()); diff != "" {
			t.Fatalf("merged (-whole +parts):\n%s", diff)
		}
	}
}

// TestSketchesThatAreNoneAreRefused holds what a file may not smuggle in.
func TestSketchesThatAreNoneAreRefused(t *testing.T) {
	good := func() Sketch { return Sketch{Min: 5, Max: 9, Buckets: []Bucket{{5, 1}, {9, 2}}} }
	var s Sample
	if err := s.AddSketch(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Sketch){
		"no values":         func(k *Sketch) { k.Buckets = nil },
		"order":             func(k *Sketch) { k.Buckets[0].Index = 9 },
		"index":             func(k *Sketch) { k.Buckets[1].Index = lastIndex + 1 },
		"count of nothing":  func(k *Sketch) { k.Buckets[0].N = 0 },
		"negative count":    func(k *Sketch) { k.Buckets[0].N = -1 },
		"counts overflow":   func(k *Sketch) { k.Buckets[0].N = math.MaxInt },
		"minimum elsewhere": func(k *Sketch) { k.Min = 4 },
		"maximum elsewhere": func(k *Sketch) { k.Max = 10 },
		"censored":          func(k *Sketch) { k.Censored = 4 },
		"threshold":         func(k *Sketch) { k.Threshold = thresholds },
	} {
		k := good()
		spoil(&k)
		if err := s.AddSketch(k); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if s.N() != 3 {
		t.Errorf("%d values, want 3", s.N())
	}
}
