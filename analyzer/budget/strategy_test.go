package budget

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// inSequence returns requests of two calls, one after the other, and the problem
// of their endpoint: floors 0, no own time, a quantum of 1.
func inSequence(calls ...[2]int64) (*Problem, *profile.Rows) {
	var rows [][]interval
	for _, c := range calls {
		rows = append(rows, []interval{{0, c[0] + c[1]}, {0, c[0]}, {c[0], c[0] + c[1]}})
	}
	p := &profile.Profile{
		Requests: len(rows), Rows: requests(rows...), Shrink: 1,
		Hops: []profile.Hop{
			{Parent: -1},
			{Parent: 0, Kind: profile.KindCall},
			{Parent: 0, Kind: profile.KindCall, After: []int{1}},
		},
	}
	distributions(p)
	problem := NewProblem(p, Options{Quantum: 1})
	for h := range problem.Hops {
		hop := &problem.Hops[h]
		hop.Floor, hop.SelfCount = 0, 1000
		d, _ := p.Hops[h].Unconditional.At(quantile.P99)
		hop.Weight = float64(d) // without the least weight, which is for ns
	}
	return problem, p.Rows
}

// tenRequests are seven that are fast, two with a slow first call, and one with a
// slow second call.
func tenRequests() (*Problem, *profile.Rows) {
	calls := slices.Repeat([][2]int64{{10, 10}}, 7)
	return inSequence(append(calls, [2]int64{50, 10}, [2]int64{50, 10}, [2]int64{10, 90})...)
}

// TestOptimisedOnTenRequests (O10): shares by P99 violate three of the ten. One
// is enough: 83 and 16, which share the rest after 50 and 10 in proportion. With
// ten requests a standard error is a tenth, so the split may come back to that
// by P99 as far as it violates no second one: 0.65 of the way.
func TestOptimisedOnTenRequests(t *testing.T) {
	p, rows := tenRequests()
	violated := func(shares []float64) float64 { return p.replay(rows, 100, limitSet{Timeouts: shares}).Violated }
	byP99 := Solve(p, 100, P99Prop{})
	if diff := cmp.Diff([]float64{100, 35, 64}, byP99.Share); diff != "" || violated(byP99.Share) != 0.3 {
		t.Errorf("by P99: %v violates %v", byP99.Share, violated(byP99.Share))
	}

	var s solver
	s.reset(p)
	var out Solution
	s.solve(100, P99Prop{}, &out) // floors and limits
	o := new(optimiser)
	o.begin(&s, 100, false)
	o.peel()
	o.adopt()
	if diff := cmp.Diff([]float64{100, 250. / 3, 50. / 3}, o.best, cmpopts.EquateApprox(1e-12, 0)); diff != "" || o.score != 0.1 {
		t.Errorf("peeled: %v violates %v", o.best, o.score)
	}

	got := Solve(p, 100, Optimised{ofAny: true})
	if diff := cmp.Diff([]float64{100, 52, 47}, got.Share); diff != "" || violated(got.Share) != 0.1 {
		t.Errorf("optimised: %v violates %v", got.Share, violated(got.Share))
	}
}

// TestOptimisedNeedsRequests: under a thousand, counted as independent and of
// equal weight, the default decides and the solution says so.
func TestOptimisedNeedsRequests(t *testing.T) {
	for _, c := range []struct {
		name      string
		n         int
		threshold uint64
		shrink    float64
		used      string
	}{
		{"a thousand", 1000, 0, 1, "optimised"},
		{"one less", 999, 0, 1, "p99prop"},
		{"a thousand that come in runs", 1000, 0, 0.5, "p99prop"},
		{"a third of them with four times the weight", 1200, 3 << 54, 1, "p99prop"},
	} {
		p := chain(c.n, c.threshold)
		p.Shrink = c.shrink
		s := Solve(NewProblem(p, Options{}), 6e7, Optimised{})
		said := len(s.Warnings) > 0 && strings.HasPrefix(s.Warnings[0].Text, "optimised needs 1000 independent requests")
		if s.Strategy != c.used || said != (c.used != "optimised") {
			t.Errorf("%s: split by %s, warnings %v", c.name, s.Strategy, s.Warnings)
		}
		if c.used == "p99prop" {
			if diff := cmp.Diff(Solve(NewProblem(p, Options{}), 6e7, P99Prop{}).Share, s.Share); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
		}
	}
	for _, s := range []Strategy{Optimised{}, EqualQuantile{}, CriticalPath{}} {
		if got := Solve(serial(10, 20), 90, s); got.Strategy != "p99prop" || len(got.Warnings) != 1 {
			t.Errorf("%s without requests: split by %s, warnings %v", s.Name(), got.Strategy, got.Warnings)
		}
	}
}

// TestOptimisedIsAsGoodAsAGrid compares with the best of all pairs of shares.
func TestOptimisedIsAsGoodAsAGrid(t *testing.T) {
	for name, second := range map[string]func(rng *rand.Rand, first float64) float64{
		"independent": func(rng *rand.Rand, _ float64) float64 { return 30 * math.Exp(0.4*rng.NormFloat64()) },
		"correlated":  func(rng *rand.Rand, first float64) float64 { return 0.6*first + 10*math.Exp(0.5*rng.NormFloat64()) },
		"two humps":   func(rng *rand.Rand, _ float64) float64 { return 20 + 60*float64(rng.IntN(8)/7) + 5*rng.Float64() },
	} {
		rng := rand.New(rand.NewPCG(3, 4))
		var calls [][2]int64
		for range 3000 {
			first := 20 * math.Exp(0.8*rng.NormFloat64())
			calls = append(calls, [2]int64{int64(1000 * first), int64(1000 * second(rng, first))})
		}
		p, rows := inSequence(calls...)
		const budget = 110e3
		least := 1.0
		for a := 0.0; a <= budget; a += budget / 400 {
			least = min(least, p.replay(rows, budget, limitSet{Timeouts: []float64{budget, a, budget - a}}).Violated)
		}
		var s solver
		s.reset(p)
		o := new(optimiser)
		var out Solution
		s.solve(budget, P99Prop{}, &out) // floors and limits
		o.begin(&s, budget, false)
		o.find()
		if o.score > least+0.001 {
			t.Errorf("%s: optimised violates %.2f %%, the best of a grid %.2f %%", name, 100*o.score, 100*least)
		}
	}
}

// TestOptimisedForLessWaste: weighing wasted work too, less of it is done for
// requests that are cut, and no fewer are cut.
func TestOptimisedForLessWaste(t *testing.T) {
	w := workloads()[2]
	p := w.profileOf(w.run(5000, 4))
	problem := NewProblem(p, Options{})
	budget := float64(w.budget(0, p.Rows))
	effect := func(s Strategy) Effect {
		split := Solve(problem, budget, s)
		return problem.replay(p.Rows, budget, limitSet{Timeouts: split.RawShare})
	}
	cuts, both := effect(Optimised{}), effect(Optimised{Waste: true})
	total := cuts.Executed + cuts.Saved
	t.Logf("cuts alone: %.2f %% violated, %.2f %% wasted; with waste: %.2f %%, %.2f %%", 100*cuts.Violated,
		100*cuts.Wasted/total, 100*both.Violated, 100*both.Wasted/total)
	if both.Wasted >= cuts.Wasted || both.Violated+both.Wasted/total >= cuts.Violated+cuts.Wasted/total {
		t.Errorf("wasted %v and violated %v, for cuts alone %v and %v", both.Wasted, both.Violated, cuts.Wasted, cuts.Violated)
	}
}

// heavier gives one hop three times its weight.
type heavier struct {
	Strategy
	hop int32
}

func (s heavier) demand(of *solver, budget float64) (Strategy, string) {
	used, lacking := s.Strategy.demand(of, budget)
	of.weight[s.hop] *= 3
	return used, lacking
}

// TestWeightsMatterInChainsAlone: the optimiser changes no weight of a hop that is
// in no chain with a sibling, since nothing would come of it.
func TestWeightsMatterInChainsAlone(t *testing.T) {
	f := forest{rng: new(rand.PCG)}
	alone, moves := 0, 0
	for seed := range uint64(30) {
		p := f.grow(seed)
		f.solver.reset(p)
		budget := 2 * f.solver.minimum(minSelfLevel, f.solver.median)
		want := Solve(p, budget, P99Prop{})
		for _, h := range f.solver.kids {
			got := Solve(p, budget, heavier{P99Prop{}, h})
			moved := !cmp.Equal(want.RawShare, got.RawShare, cmpopts.EquateApprox(0, budget*relative))
			switch {
			case f.solver.chained[h] && moved:
				moves++
			case !f.solver.chained[h]:
				alone++
				if moved {
					t.Errorf("tree %d: hop %d is alone and three times its weight changes a share", seed, h)
				}
			}
		}
	}
	if alone < 100 || moves < 100 {
		t.Errorf("%d hops alone, %d that change a share: too few", alone, moves)
	}
}

// TestWasteIsThatOfTheReplay: the optimiser's own sum is what a replay of its
// shares finds.
func TestWasteIsThatOfTheReplay(t *testing.T) {
	w := workloads()[6]
	p := w.profileOf(w.run(500, 4))
	problem := NewProblem(p, Options{})
	budget := float64(w.budget(0, p.Rows))
	var s solver
	s.reset(problem)
	var out Solution
	s.solve(budget, Equal{}, &out)
	o := new(optimiser)
	o.begin(&s, budget, true)
	o.adopt()
	e := problem.replay(p.Rows, budget, limitSet{Timeouts: out.RawShare})
	want := e.Violated + e.Wasted/(e.Executed+e.Saved)
	if diff := cmp.Diff(want, o.now(), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Error(diff)
	}
}

// TestEqualQuantile: both calls get the largest quantile that the budget holds,
// and a rare call counts as 0 where it is absent.
func TestEqualQuantile(t *testing.T) {
	var calls [][2]int64
	for i := range int64(1000) {
		calls = append(calls, [2]int64{100 + i, 1000 + 2*i})
	}
	p, rows := inSequence(calls...)
	for budget, level := range map[float64]float64{1100 + 3*500: 0.5, 1100 + 3*900: 0.9, 1100 + 3*990: 0.99} {
		got := Solve(p, budget, EqualQuantile{})
		first, second := (got.RawShare[1]-99)/1000, (got.RawShare[2]-998)/2000
		// The levels are 2 % of what is above them apart; the rest is shared by P99.
		if math.Abs(first-level) > 0.03*(1-level)+0.01 || math.Abs(second-level) > 0.03*(1-level)+0.01 {
			t.Errorf("budget %v: shares %v are the quantiles %.3f and %.3f, want %v", budget, got.RawShare, first, second, level)
		}
	}
	for r := range rows.Len() {
		if r%4 != 0 {
			rows.Duration[2][r] = -1
		}
	}
	p.Training = newTraining(&profile.Profile{Rows: rows, Shrink: 1})
	if got := Solve(p, 1100+740, EqualQuantile{}); got.RawShare[2] >= 1000 {
		t.Errorf("a call of every fourth request has %v at a level below 3/4", got.RawShare[2])
	}
}

// TestCriticalPath: weights are what each call is waited for in the slowest 5 %.
//
//	endpoint |--------------------------------| 100
//	a          |------|                         from 10 to 30
//	b                  |-------------------|    from 30 to 90
//	c                      |----|               beside b: a thousandth of its P99
func TestCriticalPath(t *testing.T) {
	var rows [][]interval
	for i := range 100 {
		row := []interval{{0, 100}, {10, 30}, {30, 90}, {40, 60}}
		if i < 90 { // fast requests do not count
			row = []interval{{0, 95}, {10, 80}, {81, 82}, {83, 95}}
		}
		rows = append(rows, row)
	}
	p := &profile.Profile{Requests: 100, Rows: requests(rows...), Shrink: 1, Hops: []profile.Hop{
		{Parent: -1},
		{Parent: 0, Kind: profile.KindCall},
		{Parent: 0, Kind: profile.KindCall},
		{Parent: 0, Kind: profile.KindCall},
	}}
	distributions(p)
	problem := NewProblem(p, Options{})
	var s solver
	s.reset(problem)
	CriticalPath{}.demand(&s, 0)
	if diff := cmp.Diff([]float64{20, 60, leastPart * leastWeight}, s.weight[1:4]); diff != "" {
		t.Error(diff)
	}
}

// TestPercentile (O13): shares go by another percentile than the P99 where one is
// asked for; a call of one request in five is not there at P80.
func TestPercentile(t *testing.T) {
	hops := []profile.Hop{{Parent: -1}, {Parent: 0, Kind: profile.KindCall}, {Parent: 0, Kind: profile.KindCall, After: []int{1}}}
	p := observed(1000, hops, 0, func(_ *rand.Rand, i int) []interval {
		row := []interval{{0, 200e6}, {0, 100e6}, absent}
		if i%5 == 0 {
			row[2] = interval{100e6, 150e6}
		}
		return row
	})
	for percent, want := range map[int64]float64{50: leastWeight, 80: leastWeight, 81: 50e6, 99: 50e6} {
		problem := NewProblem(p, Options{Percentile: quantile.Level{Num: percent, Den: 100}, Floors: map[int]int64{2: 1}})
		if h := problem.Hops[2]; h.Weight != want || h.P99 != 50e6 || h.Median != 0 {
			t.Errorf("P%d: weight %v, want %v; conditional P99 %v, median %v", percent, h.Weight, want, h.P99, h.Median)
		}
		share := Solve(problem, 300e6, P99Prop{}).RawShare[2]
		if little := share < 1e6; little != (want == leastWeight) {
			t.Errorf("P%d gives the rare call %v", percent, share)
		}
	}
}

// TestTwoSlowHopsUnderOneDeadline: two calls in sequence whose P99.9 is 700 ms
// each, under 1 s. A partition gives each of them half and cuts what one deadline
// for both lets through; floors over a half refuse it.
func TestTwoSlowHopsUnderOneDeadline(t *testing.T) {
	const z999 = 3.0902
	hops := []profile.Hop{{Parent: -1}, {Parent: 0, Kind: profile.KindCall}, {Parent: 0, Kind: profile.KindCall, After: []int{1}}}
	const n = 50_000
	p := observed(n, hops, 0, func(rng *rand.Rand, _ int) []interval {
		call := func() int64 { return int64(700e6 * math.Exp(0.6*(rng.NormFloat64()-z999))) }
		first, second := call(), call()
		return []interval{{0, first + second}, {0, first}, {first, first + second}}
	})
	for h := 1; h < 3; h++ {
		slow, _ := p.Hops[h].Duration.At(quantile.P999)
		if slow < 600e6 || slow > 800e6 {
			t.Fatalf("P99.9 of call %d is %d", h, slow)
		}
	}
	const budget = 1e9
	for _, s := range []Strategy{P99Prop{}, Equal{}, P50Spread{}, EqualQuantile{}, Optimised{}} {
		got := Solve(NewProblem(p, Options{Quantum: 1e6}), budget, s)
		if !got.Feasible || math.Abs(got.Share[1]-500e6) > 25e6 || math.Abs(got.Share[2]-500e6) > 25e6 {
			t.Errorf("%s: shares %v of 1 s, want about half each", s.Name(), got.Share)
		}
	}
	v := CrossValidate(p, Options{Quantum: 1e6}, budget, P99Prop{}, Questions{})
	partition, shared := Of(v.Trials, PolicyShares, "p99prop"), Of(v.Trials, PolicyCaps, "p99prop")
	if partition.FalseCut < 5*shared.FalseCut || partition.FalseCut < 0.002 || shared.FalseCut > 0.0005 {
		t.Errorf("the partition cuts %v of the good requests, the shared deadline %v", partition.FalseCut, shared.FalseCut)
	}
	got := Solve(NewProblem(p, Options{Floors: map[int]int64{1: 501e6, 2: 501e6}, Quantum: 1e6}), budget, P99Prop{})
	if got.Feasible || got.MinBudget != 1002e6+1e6 && got.MinBudget != 1002e6 {
		t.Errorf("floors of 501 ms each are feasible: %v, from %v", got.Feasible, got.MinBudget)
	}
}

// TestGroupsRunBesideEachOther: connected by not being in order.
func TestGroupsRunBesideEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		p    *Problem
		want string
	}{
		"in sequence":             {serial(1, 1, 1), "[]"},
		"all at once":             {endpoint(call(1), call(1), call(1)), "[[1 2 3]]"},
		"two slots":               {endpoint(call(1), call(1), call(1, 1, 2), call(1, 1, 2)), "[[1 2] [3 4]]"},
		"beside two in sequence":  {endpoint(call(1), call(1, 1), call(1), call(1, 1, 2, 3)), "[[1 2 3]]"},
		"order that others imply": {endpoint(call(1), call(1, 1), call(1, 2)), "[]"},
	} {
		var s solver
		s.reset(c.p)
		children := s.children(0)
		if got := fmt.Sprint(children.groups()); got != c.want {
			t.Errorf("%s: groups %s, want %s", name, got, c.want)
		}
	}
}

// TestSearchAllocatesNothing: once its memory is there, a search for another
// budget of the same problem allocates for its groups of hops alone.
func TestSearchAllocatesNothing(t *testing.T) {
	w := workloads()[0]
	p := w.profileOf(w.run(2000, 4))
	var s solver
	s.reset(NewProblem(p, Options{}))
	budget := float64(w.budget(0, p.Rows))
	var out Solution
	s.solve(budget, Optimised{}, &out)
	if n := testing.AllocsPerRun(3, func() { s.solve(budget, Optimised{}, &out) }); n > 3 {
		t.Errorf("a search allocates %v times", n)
	}
}
