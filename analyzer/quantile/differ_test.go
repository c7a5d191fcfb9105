package quantile

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFisherAgreesWithExactArithmetic sums binomial coefficients.
func TestFisherAgreesWithExactArithmetic(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		n, m := 1+rng.Int64N(60), 1+rng.Int64N(60)
		total := rng.Int64N(n + m + 1)
		least, most := max(0, total-m), min(total, n)
		x := least + rng.Int64N(most-least+1)
		ways := func(k int64) *big.Int {
			var a, b big.Int
			return new(big.Int).Mul(a.Binomial(n, k), b.Binomial(m, total-k))
		}
		own, tail, sum := ways(x), new(big.Int), new(big.Int)
		for k := least; k <= most; k++ {
			w := ways(k)
			sum.Add(sum, w)
			if w.Cmp(own) <= 0 {
				tail.Add(tail, w)
			}
		}
		want, _ := new(big.Rat).SetFrac(tail, sum).Float64()
		if got := fisher(x, total, n, m); math.Abs(got-want) > 1e-9 {
			t.Fatalf("%d of %d above, sizes %d and %d: %v, want %v", x, total, n, m, got, want)
		}
	}
	if p := fisher(600_000, 1_000_000, 1_000_000, 1_000_000); p > 1e-15 {
		t.Errorf("far apart: %v", p)
	}
}

// TestFewIsByTheSizes holds the sizes from which a change can be seen at all.
func TestFewIsByTheSizes(t *testing.T) {
	for _, c := range []struct {
		l    Level
		n, m int
		few  bool
	}{
		{P50, 3, 3, true}, {P50, 4, 4, false}, {P99, 299, 299, true}, {P99, 300, 300, false}, {P99, 100, 2000, false}, {P99, 0, 2000, true}, {P999, 2000, 2000, true},
	} {
		var a, b Sample
		for i := range c.n {
			a.Add(int64(i), 0)
		}
		for i := range c.m {
			b.Add(int64(i), 0)
		}
		if d := Differ(a.Freeze(), b.Freeze(), c.l, EstimateOptions{}, EstimateOptions{}); d.Few != c.few {
			t.Errorf("%v of %d and %d: few %v, want %v (P %v)", c.l, c.n, c.m, d.Few, c.few, d.P)
		}
	}
}

// TestDifferHoldsItsLevelAndFindsChanges draws pairs of samples, equal ones and such
// that differ, exact and sketched: false alarms stay at the level or below, and
// real changes are seen.
func TestDifferHoldsItsLevelAndFindsChanges(t *testing.T) {
	const runs, level = 1000, 0.05
	rng := rand.New(rand.NewPCG(2, 3))
	for _, c := range []struct {
		name     string
		l        Level
		n, m     int
		times    float64 // second sample against the first
		atLeast  float64 // share of runs that must be found
		atMost   float64
		tick     int64
		sketched bool
	}{
		{"equal, P50", P50, 300, 300, 1, 0.02, level, 1, false},
		{"equal, P99", P99, 1000, 1000, 1, 0.01, level, 1, false},
		{"equal, P99, sizes apart", P99, 400, 4000, 1, 0.01, level, 1, false},
		{"equal, P99, one sketched", P99, 3000, 3000, 1, 0.01, level, 1, true},
		{"equal, P50, one sketched", P50, 20_000, 20_000, 1, 0.02, level, 1, true},
		{"equal, P50, coarse clock", P50, 1000, 1000, 1, 0, level, 5e6, false},
		{"P50 10 % up", P50, 1000, 1000, 1.1, 0.8, 1, 1, false},
		{"P50 10 % down", P50, 1000, 1000, 0.9, 0.8, 1, 1, false},
		{"P99 1.5 times", P99, 1000, 1000, 1.5, 0.95, 1, 1, false},
		{"P99 1.5 times, one sketched", P99, 1000, 1000, 1.5, 0.95, 1, 1, true},
		{"P99 twice, just enough", P99, 300, 300, 2, 0.8, 1, 1, false},
	} {
		runs := runs
		if c.n > 5000 {
			runs = 300
		}
		draw := func(n int, times float64, sketched bool) *Dist {
			var s Sample
			for range n {
				v := int64(times * 20e6 * math.Exp(0.5*rng.NormFloat64()))
				s.Add(v/c.tick*c.tick, 0)
			}
			if sketched {
				s.Compact()
			}
			return s.Freeze()
		}
		found := 0
		for range runs {
			d := Differ(draw(c.n, 1, false), draw(c.m, c.times, c.sketched), c.l, EstimateOptions{}, EstimateOptions{})
			if d.Few {
				t.Fatalf("%s: too few", c.name)
			}
			if d.P <= level {
				found++
				if c.times != 1 && d.Up != (c.times > 1) {
					found-- // the wrong way
				}
			}
		}
		share := float64(found) / float64(runs)
		t.Logf("%s: %.1f %% found", c.name, 100*share)
		noise := 3 * math.Sqrt(level*(1-level)/float64(runs))
		if share < c.atLeast || share > c.atMost+noise {
			t.Errorf("%s: found in %.1f %% of the runs, want %.0f to %.0f %%", c.name, 100*share, 100*c.atLeast, 100*c.atMost)
		}
	}
}

// TestAdjustedHoldsTheLevelOfManyTests draws comparisons of 40 tests in which
// nothing changed.
func TestAdjustedHoldsTheLevelOfManyTests(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 5))
	const runs = 4000
	alarms := 0
	for range runs {
		p := make([]float64, 40)
		for i := range p {
			p[i] = rng.Float64()
		}
		adjusted := AdjustP(p)
		for i := range p {
			if adjusted[i] < p[i]-1e-12 || adjusted[i] > 1 {
				t.Fatalf("%v became %v", p[i], adjusted[i])
			}
		}
		if slices.Min(adjusted) <= 0.05 {
			alarms++
		}
	}
	if share := float64(alarms) / runs; share < 0.03 || share > 0.07 {
		t.Errorf("alarms in %.1f %% of the comparisons, want 5 %%", 100*share)
	}
	if got, want := AdjustP([]float64{0.01, 0.04, 0.03, 0.5}), []float64{0.04, 0.16 / 3, 0.16 / 3, 0.5}; !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("adjusted to %v, want %v", got, want)
	}
}
