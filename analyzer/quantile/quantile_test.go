package quantile

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func frozen(values ...int64) *Dist {
	var s Sample
	for _, v := range values {
		s.Add(v, 0)
	}
	return s.Freeze()
}

// upTo returns 1..n, so that a value is its own rank.
func upTo(n int) *Dist {
	var s Sample
	for v := n; v > 0; v-- {
		s.Add(int64(v), 0)
	}
	return s.Freeze()
}

func TestParseLevel(t *testing.T) {
	for in, want := range map[string]Level{
		"50": P50, "90": P90, "95": P95, "99": P99, "99.9": P999, "99.90": P999, "0.1": {1, 1000},
		"99.999999999": {99999999999, 100000000000}, "97.5": {39, 40}, "05": {1, 20},
	} {
		if got, err := ParseLevel(in); err != nil || got != want {
			t.Errorf("ParseLevel(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "0", "100", "0.0", "-1", "+5", "1e1", "P99", "99,9", "99.", ".9", "99.9.9", "9 9",
		"99.9999999999", "NaN", "٩٩",
	} {
		_, err := ParseLevel(in)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", in)) {
			t.Errorf("ParseLevel(%q): error %v does not quote the input", in, err)
		}
	}
}

func TestLevelNames(t *testing.T) {
	for l, want := range map[Level]string{P50: "P50", P999: "P99.9", {39, 40}: "P97.5", {}: "P?"} {
		if got := l.String(); got != want {
			t.Errorf("%d/%d is named %s, want %s", l.Num, l.Den, got, want)
		}
	}
	if got := (Level{}).Float(); got != 0 {
		t.Errorf("the invalid level is %v, want 0", got)
	}
}

func FuzzParseLevel(f *testing.F) {
	for _, s := range []string{"99", "99.9", "0", "100", "050", "1e2", ".", "99.9999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLevel(s)
		if err != nil {
			return
		}
		// big.Rat is the independent reader of decimals.
		want, ok := new(big.Rat).SetString(s)
		if !ok || big.NewRat(l.Num, l.Den).Cmp(want.Quo(want, big.NewRat(100, 1))) != 0 {
			t.Fatalf("ParseLevel(%q) = %v", s, l)
		}
		if l.Float() <= 0 || l.Float() >= 1 {
			t.Fatalf("ParseLevel(%q) = %v is outside (0, 1)", s, l)
		}
	})
}

func TestNearestRank(t *testing.T) {
	many := slices.Repeat([]int64{1}, 1000)
	for _, c := range []struct {
		name  string
		dist  *Dist
		level Level
		want  int64
	}{
		{"hundred", upTo(100), P50, 50},
		{"hundred", upTo(100), P95, 95},
		{"hundred", upTo(100), P99, 99},
		{"hundred and one", upTo(101), P99, 100},
		{"thousand: no rounding up to the maximum", upTo(1000), P999, 999},
		{"two thousand", upTo(2000), P999, 1998},
		{"55 % of 100 in floating point is above 55", upTo(100), Level{55, 100}, 55},
		{"one value", frozen(7), P999, 7},
		{"three values", frozen(10, 20, 30), P99, 30},
		{"ten values", upTo(10), P95, 10},
		{"one outlier in a thousand", frozen(append(many, 1e7)...), P99, 1},
		{"negative values", frozen(-5, -1, 3), P50, -1},
	} {
		if got, ok := c.dist.At(c.level); !ok || got != c.want {
			t.Errorf("%s: %v = %d, %v, want %d", c.name, c.level, got, ok, c.want)
		}
	}
}

// TestRankIsExact compares with rational arithmetic where floating point errs.
func TestRankIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		l := Level{1 + rng.Int64N(99_999_999_999), 100_000_000_000}
		n := rng.Int64N(1 << uint(1+rng.IntN(62)))
		want := new(big.Int).Mul(big.NewInt(l.Num), big.NewInt(n))
		want.Add(want, big.NewInt(l.Den-1)).Quo(want, big.NewInt(l.Den))
		if got := rank(l.Num, l.Den, n); got != want.Int64() {
			t.Fatalf("rank %v of %d = %d, want %v", l, n, got, want)
		}
	}
}

func TestIntervalRanks(t *testing.T) {
	for _, c := range []struct {
		level  Level
		n      int64
		lo, hi int64
	}{
		{P50, 100, 40, 61},
		{P95, 100, 90, 100},
		{P99, 368, 360, 368},
		{P99, 500, 490, 500},
		{P99, 1000, 983, 997},
		{P99, 3000, 2959, 2981},
		{P99, 10000, 9880, 9920},
		{P99, 100000, 98938, 99062},
		{P999, 10000, 9983, 9997},
		{P999, 100000, 99880, 99920},
		// The least samples with a finite upper bound, and one less.
		{P50, 6, 1, 6},
		{P50, 5, 0, 6},
		{P90, 36, 29, 36},
		{P90, 35, 28, 36},
		{P95, 72, 64, 72},
		{P95, 71, 63, 72},
		{P99, 367, 359, 368},
		{P999, 3688, 3680, 3688},
		{P999, 3687, 3679, 3688},
		{P99, 1, 1, 2},
		{P99, 0, 0, 1},
	} {
		if lo, hi := ranks(c.level, c.n); lo != c.lo || hi != c.hi {
			t.Errorf("%v of %d values: ranks %d, %d, want %d, %d", c.level, c.n, lo, hi, c.lo, c.hi)
		}
	}
}

// TestIntervalRanksAgreeWithExactBinomial sums the binomial distribution in
// high precision.
func TestIntervalRanksAgreeWithExactBinomial(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const precision = 200
	for range 60 {
		l := Level{1 + rng.Int64N(999), 1000}
		n := rng.Int64N(300)
		p := new(big.Float).SetPrec(precision).Quo(big.NewFloat(float64(l.Num)), big.NewFloat(float64(l.Den)))
		q := new(big.Float).SetPrec(precision).Sub(big.NewFloat(1), p)
		power := func(x *big.Float, k int64) *big.Float {
			y := new(big.Float).SetPrec(precision).SetInt64(1)
			for range k {
				y.Mul(y, x)
			}
			return y
		}
		var wantLo int64
		wantHi := n + 1
		below := new(big.Float).SetPrec(precision) // P(X <= k-1)
		for k := int64(0); k <= n; k++ {
			if f, _ := below.Float64(); f <= 0.025 {
				wantLo = k
			} else if f >= 0.975 {
				wantHi = min(wantHi, k)
			}
			term := new(big.Float).SetPrec(precision).SetInt(new(big.Int).Binomial(n, k))
			below.Add(below, term.Mul(term, power(p, k)).Mul(term, power(q, n-k)))
		}
		if lo, hi := ranks(l, n); lo != wantLo || hi != wantHi {
			t.Fatalf("%v of %d values: ranks %d, %d, want %d, %d", l, n, lo, hi, wantLo, wantHi)
		}
	}
}

// TestIntervalCoversTheTrueQuantile draws 1,000 samples. Order statistics
// cover at least 95 %, and by their discreteness somewhat more.
func TestIntervalCoversTheTrueQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, c := range []struct {
		level Level
		n     int
	}{{P50, 100}, {P95, 400}, {P99, 1000}} {
		covered := 0
		const draws = 1000
		for range draws {
			var s Sample
			for range c.n {
				s.Add(int64(1e6*rng.ExpFloat64()), 0)
			}
			e := s.Freeze().Estimate(c.level, EstimateOptions{})
			truth := int64(-1e6 * math.Log(1-c.level.Float()))
			if e.Lo <= truth && truth <= e.Hi && e.HiKnown {
				covered++
			}
		}
		// Three standard errors of a share of 95 % in 1,000 draws are 2 points.
		if covered < 930 || covered > 985 {
			t.Errorf("%v of %d values: the 95 %% interval covers %d of %d", c.level, c.n, covered, draws)
		}
	}
}

func TestUpperBoundNeedsEnoughSamples(t *testing.T) {
	for _, c := range []struct {
		level Level
		n     int
	}{{P50, 6}, {P90, 36}, {P95, 72}, {P99, 368}, {P999, 3688}} {
		if e := upTo(c.n).Estimate(c.level, EstimateOptions{}); !e.HiKnown || e.Hi != int64(c.n) {
			t.Errorf("%v of %d values: upper bound %d, known %v, want the maximum", c.level, c.n, e.Hi, e.HiKnown)
		}
		if e := upTo(c.n-1).Estimate(c.level, EstimateOptions{}); e.HiKnown || e.Hi != 0 {
			t.Errorf("%v of %d values has an upper bound of %d", c.level, c.n-1, e.Hi)
		}
	}
}

func TestEstimate(t *testing.T) {
	want := Estimate{P: P99, Value: 990, Lo: 983, Hi: 997, HiKnown: true, Confidence: 0.95, N: 1000, EffN: 1000, Exact: true}
	if diff := cmp.Diff(want, upTo(1000).Estimate(P99, EstimateOptions{})); diff != "" {
		t.Error(diff)
	}
	coarse := frozen(slices.Repeat([]int64{0, 0, 0, 1e6}, 250)...)
	want = Estimate{P: P50, Value: 1e6, Lo: 0, Hi: 1e6, HiKnown: true, Confidence: 0.95, N: 1000, EffN: 1000, Exact: true}
	if diff := cmp.Diff(want, coarse.Estimate(P50, EstimateOptions{Resolution: 1e6})); diff != "" {
		t.Errorf("whole milliseconds: a median of 0 stands for less than one: %s", diff)
	}
	want = Estimate{P: P99, Value: 1e6, Lo: 0, Hi: 2e6, HiKnown: true, Confidence: 0.95, N: 1000, EffN: 1000, Exact: true}
	if diff := cmp.Diff(want, coarse.Estimate(P99, EstimateOptions{Resolution: 1e6})); diff != "" {
		t.Errorf("whole milliseconds: the interval is a step wider on each side: %s", diff)
	}
	// Half the effective size: the ranks of 500 values, 490 and 500, doubled.
	want = Estimate{P: P99, Value: 990, Lo: 980, Hi: 1000, HiKnown: true, Confidence: 0.95, N: 1000, EffN: 500, Exact: true}
	if diff := cmp.Diff(want, upTo(1000).Estimate(P99, EstimateOptions{Shrink: 0.5})); diff != "" {
		t.Error(diff)
	}
	if e := upTo(1000).Estimate(P99, EstimateOptions{Shrink: 0.3}); e.HiKnown {
		t.Errorf("300 effective values give an upper bound of %d", e.Hi)
	}
}

func TestEstimateBracketsItsValue(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		var s Sample
		for range 1 + rng.IntN(60) {
			s.Add(rng.Int64N(50)-5, rng.Uint64N(3)<<54)
		}
		l := Level{1 + rng.Int64N(99), 100}
		o := EstimateOptions{Shrink: rng.Float64(), Resolution: rng.Int64N(3)}
		e := s.Freeze().Estimate(l, o)
		if e.Lo > e.Value || e.HiKnown && e.Hi < e.Value {
			t.Fatalf("%+v does not bracket its value (%+v)", e, o)
		}
	}
}

func TestCensoredQuantileIsALowerBound(t *testing.T) {
	var s Sample
	for range 95 {
		s.Add(10, 0)
	}
	for range 5 {
		s.AddCensored(1000, 0)
	}
	d := s.Freeze()
	if got := d.CensoredRatio(); got != 0.05 {
		t.Errorf("censored ratio %v, want 0.05", got)
	}
	for l, want := range map[Level]bool{P50: false, P90: false, P95: true, P99: true} {
		if e := d.Estimate(l, EstimateOptions{}); e.Censored != want {
			t.Errorf("%v censored: %v, want %v", l, e.Censored, want)
		}
	}
	if e := d.Estimate(P99, EstimateOptions{}); e.Value != 1000 {
		t.Errorf("P99 %d, want 1000", e.Value)
	}
}

func TestSamplingWeight(t *testing.T) {
	for th, want := range map[uint64]float64{0: 1, 0xc0000000000000: 4, 0xfd70a400000000: 100.00009536752259} {
		if got := Weight(th); got != want {
			t.Errorf("th %014x: weight %v, want %v", th, got, want)
		}
	}
	var s Sample
	s.Add(1, math.MaxUint64)
	s.Add(2, thresholds-1)
	if got := s.Freeze().EffN(); got != 2 {
		t.Errorf("thresholds beyond the largest: effective size %v, want 2", got)
	}
}

// threshold is the inverse of weight.
func threshold(w float64) uint64 { return thresholds - uint64(math.Round(thresholds/w)) }

func TestWeightedQuantile(t *testing.T) {
	var s Sample
	s.Add(2, threshold(99))
	s.Add(1, 0)
	d := s.Freeze()
	for l, want := range map[Level]int64{P99: 2, {1, 100}: 1, {2, 100}: 2} {
		if got, _ := d.At(l); got != want {
			t.Errorf("%v = %d, want %d", l, got, want)
		}
	}
	if got := d.FractionAbove(1); math.Abs(got-0.99) > 1e-12 {
		t.Errorf("share above 1: %v, want 0.99", got)
	}
	if got, want := d.EffN(), 100*100/(1+99*99.); math.Abs(got-want) > 1e-9 {
		t.Errorf("effective size %v, want %v", got, want)
	}
}

// TestSplittingAWeightChangesNoQuantile: one request kept of w stands for w requests.
func TestSplittingAWeightChangesNoQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 500 {
		var weighted, plain Sample
		for range 1 + rng.IntN(40) {
			v, shift := rng.Int64N(30)-3, rng.IntN(4)
			th := uint64(thresholds - thresholds>>shift) // weight 2^shift
			copies := 1 << shift
			if v == 0 {
				weighted.AddZeros(th, 1)
				plain.AddZeros(0, copies)
				continue
			}
			weighted.Add(v, th)
			for range copies {
				plain.Add(v, 0)
			}
		}
		w, p := weighted.Freeze(), plain.Freeze()
		for num := int64(1); num < 100; num++ {
			got, _ := w.At(Level{num, 100})
			want, _ := p.At(Level{num, 100})
			if got != want {
				t.Fatalf("P%d: %d weighted, %d one by one", num, got, want)
			}
		}
		for x := int64(-4); x < 31; x++ {
			if got, want := w.FractionAbove(x), p.FractionAbove(x); math.Abs(got-want) > 1e-12 {
				t.Fatalf("share above %d: %v weighted, %v one by one", x, got, want)
			}
		}
	}
}

// TestMergeIsIndependentOfOrder: any split and any order give the same distribution, bit for bit.
func TestMergeIsIndependentOfOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		type op struct {
			value     int64
			threshold uint64
			kind      int
		}
		ops := make([]op, rng.IntN(60))
		for i := range ops {
			ops[i] = op{rng.Int64N(20) - 2, rng.Uint64N(3) * 0x12345678901234, rng.IntN(3)}
		}
		build := func(parts int) *Dist {
			rng.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
			samples := make([]Sample, parts)
			for _, o := range ops {
				s := &samples[rng.IntN(parts)]
				switch o.kind {
				case 0:
					s.Add(o.value, o.threshold)
				case 1:
					s.AddCensored(o.value, o.threshold)
				default:
					s.AddZeros(o.threshold, int(o.value))
				}
			}
			for i := range parts - 1 {
				samples[parts-1].Merge(&samples[i])
			}
			return samples[parts-1].Freeze()
		}
		if diff := cmp.Diff(build(1), build(4), cmp.AllowUnexported(Dist{})); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestMergeLeavesItsArgument(t *testing.T) {
	var a, b Sample
	b.Add(1, 0)
	a.Merge(&b)
	a.Add(2, 0)
	if a.N() != 2 || b.N() != 1 {
		t.Errorf("sizes %d and %d, want 2 and 1", a.N(), b.N())
	}
	if d := a.Freeze(); a.N() != 0 || d.N() != 2 {
		t.Errorf("after Freeze the sample has %d values and the distribution %d, want 0 and 2", a.N(), d.N())
	}
}

func TestAbsentCallsCountAsZero(t *testing.T) {
	var conditional, unconditional Sample
	for range 200 {
		conditional.Add(50, 0)
		unconditional.Add(50, 0)
	}
	unconditional.AddZeros(0, 800)
	c, u := conditional.Freeze(), unconditional.Freeze()
	for _, tc := range []struct {
		d     *Dist
		level Level
		want  int64
	}{{c, P99, 50}, {u, P50, 0}, {u, Level{80, 100}, 0}, {u, Level{81, 100}, 50}, {u, P99, 50}} {
		if got, _ := tc.d.At(tc.level); got != tc.want {
			t.Errorf("%v of %d = %d, want %d", tc.level, tc.d.N(), got, tc.want)
		}
	}
	if lo, _ := u.Min(); lo != 0 {
		t.Errorf("minimum %d, want 0", lo)
	}
}

func TestEmptyDistributionHasNoQuantiles(t *testing.T) {
	var s Sample
	for name, d := range map[string]*Dist{"nil": nil, "empty": s.Freeze(), "zero value": {}} {
		_, atOK := d.At(P50)
		_, minOK := d.Min()
		_, maxOK := d.Max()
		if atOK || minOK || maxOK || d.N() != 0 || d.EffN() != 0 || d.FractionAbove(0) != 0 || d.CensoredRatio() != 0 {
			t.Errorf("%s: the distribution claims a value", name)
		}
		if diff := cmp.Diff(Estimate{P: P99}, d.Estimate(P99, EstimateOptions{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, ok := frozen(1).At(Level{}); ok {
		t.Error("the invalid level has a quantile")
	}
}

func TestGrade(t *testing.T) {
	for _, c := range []struct {
		n    float64
		want Confidence
	}{{0, Refused}, {99.9, Refused}, {100, Low}, {367, Low}, {368, Fair}, {2999, Fair}, {3000, Good}} {
		if got := Grade(c.n); got != c.want {
			t.Errorf("%v values: %v, want %v", c.n, got, c.want)
		}
	}
	names := []string{Refused.String(), Low.String(), Fair.String(), Good.String()}
	if diff := cmp.Diff([]string{"refused", "low", "fair", "good"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestAValueTakesItsEightBytes(t *testing.T) {
	const n = 1 << 16
	allocated := testing.AllocsPerRun(3, func() {
		var s Sample
		for v := range int64(n) {
			s.Add(v, 0)
		}
		s.AddZeros(0, n)
		s.Freeze()
	})
	if allocated > 60 { // doublings of one slice, however many values
		t.Errorf("%v allocations for %d values", allocated, n)
	}
}

func BenchmarkEstimateOfAMillion(b *testing.B) {
	d := upTo(1_000_000)
	for b.Loop() {
		d.Estimate(P99, EstimateOptions{})
	}
}

func ExampleDist_Estimate() {
	var calls Sample
	for i := range int64(1000) {
		calls.Add(i*int64(100*time.Microsecond), 0)
	}
	e := calls.Freeze().Estimate(P99, EstimateOptions{})
	fmt.Printf("%v %v (%v-%v) of %d calls: %v\n", e.P, time.Duration(e.Value),
		time.Duration(e.Lo), time.Duration(e.Hi), e.N, Grade(e.EffN))

	var few Sample
	few.Add(int64(3*time.Millisecond), 0)
	e = few.Freeze().Estimate(P99, EstimateOptions{})
	fmt.Printf("%v %v, upper bound known: %v: %v\n", e.P, time.Duration(e.Value), e.HiKnown, Grade(e.EffN))
	// Output:
	// P99 98.9ms (98.2ms-99.6ms) of 1000 calls: fair
	// P99 3ms, upper bound known: false: refused
}
