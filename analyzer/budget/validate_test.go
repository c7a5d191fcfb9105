package budget

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// shape makes request number i of a workload: one interval for each hop.
type shape func(rng *rand.Rand, i int) []interval

// observed returns the profile of n requests with the given hops; the
// distributions and the rows hold the same requests. A threshold above 0 is that
// of every third request.
func observed(n int, hops []profile.Hop, threshold uint64, make shape) *profile.Profile {
	rng := rand.New(rand.NewPCG(21, 22))
	p := &profile.Profile{Requests: n, Hops: hops, Shrink: 1}
	var rows [][]interval
	for i := range n {
		rows = append(rows, make(rng, i))
	}
	p.Rows = requests(rows...)
	for r := range n {
		p.Rows.Hash[r] = rng.Uint64()
		if r%3 == 0 {
			p.Rows.Threshold[r] = threshold
		}
	}
	for h := range hops {
		var duration, unconditional, self, tail quantile.Sample
		for r := range n {
			th := p.Rows.Threshold[r]
			d := p.Rows.Duration[h][r]
			if h == 0 || d >= 0 {
				p.Rows.Self[h][r] = rng.Int64N(1000)
				p.Rows.Tail[h][r] = p.Rows.Self[h][r] / 3
				duration.Add(d, th)
				unconditional.Add(d, th)
				self.Add(p.Rows.Self[h][r], th)
				tail.Add(p.Rows.Tail[h][r], th)
			} else if p.Rows.Duration[hops[h].Parent][r] >= 0 {
				unconditional.AddZeros(th, 1)
			}
		}
		hop := &p.Hops[h]
		hop.Duration, hop.Unconditional = duration.Freeze(), unconditional.Freeze()
		hop.Self, hop.Tail = self.Freeze(), tail.Freeze()
	}
	return p
}

// chain is a workload of three calls in sequence with log-normal times around
// 10 ms, of which the last is made by every fourth request and calls another.
func chain(n int, threshold uint64) *profile.Profile {
	hops := []profile.Hop{
		{Parent: -1},
		{Parent: 0, Kind: profile.KindCall},
		{Parent: 0, Kind: profile.KindCall, After: []int{1}},
		{Parent: 0, Kind: profile.KindCall, After: []int{1, 2}},
		{Parent: 3, Kind: profile.KindCall},
		{Parent: 0, Kind: profile.KindAsync},
	}
	return observed(n, hops, threshold, func(rng *rand.Rand, i int) []interval {
		at := int64(1000)
		next := func() interval {
			d := int64(1e7 * math.Exp(0.5*rng.NormFloat64()))
			at += d + 1000
			return interval{at - d - 1000, at - 1000}
		}
		a, b := next(), next()
		c, inner := absent, absent
		if i%4 == 0 {
			c = next()
			inner = interval{c.start + 1000, c.end - 1000}
		}
		return []interval{{0, at}, a, b, c, inner, {at, 10 * at}}
	})
}

func TestNewProblem(t *testing.T) {
	p := chain(1000, 0)
	o := Options{
		Reserve: 7, Fraction: 0.1, Floors: map[int]int64{1: 5, 2: 0}, Caps: map[int]int64{2: 9},
		CapRatios: map[int]float64{3: 0.5}, Quantum: 1000,
	}
	problem := NewProblem(p, o)
	at := func(d *quantile.Dist, l quantile.Level) float64 {
		v, _ := d.At(l)
		return float64(v)
	}
	h := problem.Hops
	if h[0].Reserve != 7 || h[1].Reserve != 0 || h[0].Fraction != 0.1 || h[3].Fraction != 0.1 {
		t.Errorf("reserves are those of %+v", h)
	}
	if h[1].Floor != 5 || h[2].Floor != 1 || h[3].Floor != 1000*math.Floor(h[3].P50/1000) {
		t.Errorf("floors %v, %v, %v: want 5, 1 for none, and the median in whole µs", h[1].Floor, h[2].Floor, h[3].Floor)
	}
	if h[2].Cap != 9 || h[3].CapRatio != 0.5 || h[1].Cap != 0 || problem.Quantum != 1000 || problem.Kappa != 3 {
		t.Errorf("limits are those of %+v", h)
	}
	if !h[5].Excluded || h[4].Excluded {
		t.Error("the call that nobody waits for is part of the split")
	}
	third := &p.Hops[3]
	if h[3].P50 != at(third.Duration, quantile.P50) || h[3].P99 != at(third.Duration, quantile.P99) ||
		h[3].Weight != at(third.Unconditional, quantile.P99) || h[3].Weight >= h[3].P99 ||
		h[3].Self[0] != at(third.Self, quantile.P50) || h[3].Self[40] != at(third.Self, quantile.P90) ||
		h[3].Tail != at(third.Tail, quantile.P50) || h[3].SelfCount != 250 {
		t.Errorf("hop 3 is %+v", h[3])
	}
	o.Percentile = quantile.P50
	if got := NewProblem(p, o).Hops[3]; got.Weight != 1000 || got.P99 != h[3].P99 {
		t.Errorf("a hop of every fourth request weighs %v at P50, want the quantum", got.Weight)
	}
	p.Resolution = 50e6
	if got := NewProblem(p, o).Hops[3]; got.Weight != 50e6 || got.P50 != 50e6 || got.P99 != 50e6 {
		t.Errorf("below the clock's resolution: %+v", got)
	}
}

// TestRowsHoldWhatTheDistributionsHold: with no request left out, the problem
// from rows is the problem from all calls, weighted or not.
func TestRowsHoldWhatTheDistributionsHold(t *testing.T) {
	for _, threshold := range []uint64{0, 3 << 54, 0xfd70a400000000} {
		p := chain(997, threshold)
		// Every request once in each fold, so that no fold lacks any.
		r := p.Rows
		for i := range r.Hash {
			r.Hash[i] = folds * uint64(i)
		}
		hash := slices.Clone(r.Hash)
		for f := range uint64(folds - 1) {
			for _, h := range hash {
				r.Hash = append(r.Hash, h+f+1)
			}
		}
		r.Threshold = slices.Repeat(r.Threshold, folds)
		for h := range r.Duration {
			for _, column := range []*[]int64{&r.Duration[h], &r.Self[h], &r.Tail[h]} {
				*column = slices.Repeat(*column, folds)
			}
		}
		o := Options{Percentile: quantile.Level{Num: 93, Den: 100}}
		parts := divide(r, false)
		for f, got := range parts.train(p, o) {
			want := NewProblem(p, o)
			if diff := cmp.Diff(want.Hops[:5], got.Hops[:5], cmpopts.IgnoreFields(Hop{}, "SelfCount")); diff != "" {
				t.Fatalf("threshold %x, fold %d: %s", threshold, f, diff)
			}
		}
	}
}

// TestFoldsLeaveTheirRowsOut compares with distributions made of the other rows.
func TestFoldsLeaveTheirRowsOut(t *testing.T) {
	p := chain(400, 3<<54)
	parts := divide(p.Rows, false)
	for f, got := range parts.train(p, Options{}) {
		for h := range 5 {
			var duration, self quantile.Sample
			for r := range p.Rows.Len() {
				if int(parts.fold[r]) != f && p.Rows.Duration[h][r] >= 0 {
					duration.Add(p.Rows.Duration[h][r], p.Rows.Threshold[r])
					self.Add(p.Rows.Self[h][r], p.Rows.Threshold[r])
				}
			}
			d, s := duration.Freeze(), self.Freeze()
			p99, _ := d.At(quantile.P99)
			own, _ := s.At(quantile.Level{Num: 77, Den: 100})
			if hop := got.Hops[h]; hop.P99 != float64(p99) || hop.Self[27] != float64(own) || hop.SelfCount != int(s.EffN()) {
				t.Errorf("fold %d, hop %d: P99 %v, want %v", f, h, hop.P99, p99)
			}
		}
	}
}

// rates are the false cuts of the shares and the caps of a strategy.
func rates(v Validation, strategy Strategy) (shares, caps float64) {
	return Of(v.Trials, PolicyShares, strategy.Name()).FalseCut, Of(v.Trials, PolicyCaps, strategy.Name()).FalseCut
}

func TestCrossValidation(t *testing.T) {
	p := chain(5000, 0)
	p99, _ := p.Hops[0].Duration.At(quantile.P99)
	o := Options{Quantum: 1e5}
	budget := p99 * 5 / 4
	ratios := []float64{0.01, 0, 0.05, 0.001}
	v := CrossValidate(p, o, budget, P99Prop{}, Questions{Ratios: ratios, Beside: []Strategy{Equal{}, P99Prop{}}})
	if v.Folds != 5 || v.Requests != 5000 {
		t.Errorf("%d folds of %d requests", v.Folds, v.Requests)
	}
	// In sample, with the plan of all requests, the rates are about the same.
	problem := NewProblem(p, o)
	s := Solve(problem, float64(budget), P99Prop{})
	shares := problem.replay(p.Rows, float64(budget), limitSet{Timeouts: s.Share})
	caps := problem.replay(p.Rows, float64(budget), limitSet{Timeouts: s.Cap, Propagate: true})
	byShares, byCaps := rates(v, P99Prop{})
	if math.Abs(byShares-shares.FalseCut) > 0.005 || byShares < 0.005 {
		t.Errorf("shares cut %v, in sample %v", byShares, shares.FalseCut)
	}
	if math.Abs(byCaps-caps.FalseCut) > 0.002 || byCaps >= byShares {
		t.Errorf("caps cut %v, in sample %v", byCaps, caps.FalseCut)
	}
	check := descent{validator: newValidator(p, o, nil), strategy: P99Prop{}, known: make(map[[2]float64]float64)}
	if got := check.falseCuts(float64(budget), 1e5); got != byShares {
		t.Errorf("the search counts %v of them", got)
	}
	for i, b := range v.BudgetFor {
		if !b.Known || b.Ratio != ratios[i] || b.Budget%1e5 != 0 {
			t.Fatalf("budgets for false cuts: %+v", v.BudgetFor)
		}
		if at, below := check.falseCuts(float64(b.Budget), 1e5), check.falseCuts(float64(b.Budget)-2e5, 1e5); at > b.Ratio || below <= b.Ratio {
			t.Errorf("%v is reached at %d, where shares cut %v, and %v two quanta below", b.Ratio, b.Budget, at, below)
		}
		for _, other := range v.BudgetFor {
			if other.Ratio > b.Ratio && other.Budget >= b.Budget {
				t.Errorf("%v takes %d, %v only %d", other.Ratio, other.Budget, b.Ratio, b.Budget)
			}
		}
	}
}

// TestPoliciesStandInOneOrder: what a table of effects lists, and how its rows
// relate.
func TestPoliciesStandInOneOrder(t *testing.T) {
	p := chain(5000, 0)
	p99, _ := p.Hops[0].Duration.At(quantile.P99)
	v := CrossValidate(p, Options{Quantum: 1e5}, p99, P99Prop{}, Questions{
		Beside: []Strategy{Equal{}, P99Prop{}}, Incidents: []Incident{{Hop: 2, Low: 4e7, High: 8e7, Ratio: 0.1}},
	})
	var names []string
	for _, trial := range v.Trials {
		names = append(names, string(trial.Policy)+" "+trial.Strategy)
	}
	if diff := cmp.Diff([]string{
		"today ", "deadline ", "same ", "half ", "budget equal", "timeout equal", "budget p99prop", "timeout p99prop", "timeout_only p99prop",
	}, names); diff != "" {
		t.Error(diff)
	}
	for _, trials := range [][]Trial{v.Incidents[0].Trials, v.Trials} {
		today, deadline, same := trials[0], trials[1], trials[2]
		if today.Saved != 0 || today.Violated != today.Miss || deadline.Violated != today.Miss || same.Violated != today.Miss {
			t.Errorf("neither today nor a deadline nor the budget as timeout cuts good requests: %+v", trials[:3])
		}
		if !(deadline.Wasted < same.Wasted && same.Wasted < today.Wasted) {
			t.Errorf("wasted %v today, %v with the same timeout, %v with a deadline", today.Wasted, same.Wasted, deadline.Wasted)
		}
		for _, trial := range trials {
			if trial.Miss != today.Miss || trial.Requests != 5000 || math.Abs(trial.Executed+trial.Saved-today.Executed) > 1e-3 {
				t.Errorf("%s: %+v, today %+v", trial.Policy, trial.Effect, today.Effect)
			}
		}
	}
	if calm, slow := v.Trials[0].Miss, v.Incidents[0].Trials[0].Miss; slow < calm+0.05 || slow > calm+0.1 {
		t.Errorf("%v of requests miss, %v in the incident", calm, slow)
	}
}

func TestCrossValidationIgnoresTheOrderOfRows(t *testing.T) {
	p := chain(500, 0xfd70a400000000)
	q := Questions{
		Ratios: []float64{0.05}, Degradable: []int{3}, Incidents: []Incident{{Hop: 1, Low: 1e6, High: 1e7, Ratio: 0.5}},
	}
	strategies := []Strategy{P99Prop{}, Equal{}, P50Spread{}, EqualQuantile{}, CriticalPath{}, Optimised{ofAny: true}}
	var want []Validation
	for _, s := range strategies {
		want = append(want, CrossValidate(p, Options{}, 4e7, s, q))
	}
	order := rand.New(rand.NewPCG(1, 1)).Perm(p.Rows.Len())
	r := p.Rows
	shuffle := func(column []int64) {
		old := slices.Clone(column)
		for i, from := range order {
			column[i] = old[from]
		}
	}
	hash, threshold := slices.Clone(r.Hash), slices.Clone(r.Threshold)
	for i, from := range order {
		r.Hash[i], r.Threshold[i] = hash[from], threshold[from]
	}
	for h := range r.Duration {
		for _, column := range [][]int64{r.Duration[h], r.Start[h], r.Self[h], r.Tail[h]} {
			shuffle(column)
		}
	}
	for i, s := range strategies {
		got := CrossValidate(p, Options{}, 4e7, s, q)
		if diff := cmp.Diff(want[i], got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("%s: %s", s.Name(), diff)
		}
		if last := got.Trials[len(got.Trials)-1]; last.Strategy != s.Name() {
			t.Errorf("the last trial is by %s, not %s", last.Strategy, s.Name())
		}
	}
}

// TestSmallestBudgetsOfASearch: where the search runs at steps, on a sample, the
// budget for a rate is about that which the search at each budget finds, and no
// rate needs more than by the default.
func TestSmallestBudgetsOfASearch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := workloads()[0]
	p := w.profileOf(w.run(2*stepwiseRows+7, 3))
	ratios := []float64{0.05, 0.01}
	budget := w.budget(0, p.Rows)
	of := func(s Strategy) []BudgetFor {
		return CrossValidate(p, Options{}, budget, s, Questions{Ratios: ratios}).BudgetFor
	}
	standard, searched := of(P99Prop{}), of(Optimised{})
	for i := range ratios {
		if !searched[i].Known || float64(searched[i].Budget) > 1.02*float64(standard[i].Budget) {
			t.Errorf("%v: optimised %+v, by P99 %+v", ratios[i], searched[i], standard[i])
		}
		exact := CrossValidate(p, Options{}, searched[i].Budget, Optimised{}, Questions{})
		if rate := Of(exact.Trials, PolicyShares, "optimised").FalseCut; rate > 1.1*ratios[i] || rate < 0.8*ratios[i] {
			t.Errorf("at %d, found for %v, the search cuts %v", searched[i].Budget, ratios[i], rate)
		}
	}
}

func TestClusteredRequestsAreDividedByTime(t *testing.T) {
	rows := requests([]interval{{0, 1}}, []interval{{0, 1}}, []interval{{0, 1}}, []interval{{0, 1}}, []interval{{0, 1}},
		[]interval{{0, 1}}, []interval{{0, 1}}, []interval{{0, 1}}, []interval{{0, 1}}, []interval{{0, 1}})
	rows.Hash = []uint64{5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	rows.Started = []int64{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}
	if diff := cmp.Diff([]uint8{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}, divide(rows, false).fold); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]uint8{4, 4, 3, 3, 2, 2, 1, 1, 0, 0}, divide(rows, true).fold); diff != "" {
		t.Error(diff)
	}
}

// TestTooFewRequestsJudgeNoSplit: what needs no split is replayed all the same.
func TestTooFewRequestsJudgeNoSplit(t *testing.T) {
	for name, p := range map[string]*profile.Profile{"no rows": {}, "no hops": {Rows: chain(9, 0).Rows}} {
		if diff := cmp.Diff(Validation{}, CrossValidate(p, Options{}, 1e9, P99Prop{}, Questions{Ratios: []float64{0.01}})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	unplanned := []Policy{PolicyNone, PolicyDeadline, PolicySame, PolicyHalf}
	policies := func(trials []Trial) (out []Policy) {
		for _, t := range trials {
			out = append(out, t.Policy)
		}
		return out
	}
	for _, c := range []struct {
		requests, folds int
		no              bool // split
	}{{1, 0, false}, {4, 0, false}, {4, 0, true}, {5, 5, true}, {5, 5, false}} {
		p := chain(c.requests, 0)
		longest := slices.Max(p.Rows.Duration[0])
		v := CrossValidate(p, Options{}, longest-1, P99Prop{}, Questions{
			Ratios: []float64{0.01}, Incidents: []Incident{{Hop: 1, Low: 1e9, High: 1e9, Ratio: 1}}, Unplanned: c.no,
		})
		want := unplanned
		if c.folds > 0 && !c.no {
			want = append(slices.Clone(want), PolicyShares, PolicyCaps, PolicyCapsUnaided)
		}
		if diff := cmp.Diff(want, policies(v.Trials)); diff != "" || !slices.Equal(policies(v.Incidents[0].Trials), want) {
			t.Errorf("%+v: %s", c, diff)
		}
		if v.Folds != c.folds || v.Requests != c.requests || len(v.BudgetFor) != c.folds/folds {
			t.Errorf("%+v: %d folds, %d requests, budgets for %v", c, v.Folds, v.Requests, v.BudgetFor)
		}
		one := 1 / float64(c.requests)
		if today, cut := v.Trials[0], v.Trials[1]; today.Miss != one || cut.Miss != one || cut.FalseCut != 0 || cut.Saved == 0 {
			t.Errorf("%+v: %+v", c, v.Trials[:2])
		}
	}
}

// TestSampleOfASearchStandsForAll: a split that may be searched for with all
// requests is so with a part of them, however few they tell as much as.
func TestSampleOfASearchStandsForAll(t *testing.T) {
	p := chain(2*stepwiseRows+1, 0)
	p.Shrink = 0.026 // 1040 independent requests, of which the sample has half
	v := newValidator(p, Options{}, nil)
	s := v.cheaply(Optimised{})
	var out plan
	v.solve(s, 6e7, 0, &out)
	for f := range out.solution {
		if rows, used := v.problems[f].Training.rows.Len(), out.solution[f].Strategy; rows > stepwiseRows || used != "optimised" {
			t.Errorf("fold %d: split of %d requests by %s", f, rows, used)
		}
	}
}

func TestInfeasibleBudgetCutsAllGoodRequests(t *testing.T) {
	p := chain(200, 0)
	o := Options{Floors: map[int]int64{1: 1e9}}
	within := 1 - p.Hops[0].Duration.FractionAbove(4e7)
	v := CrossValidate(p, o, 4e7, P99Prop{}, Questions{Ratios: []float64{0.01}})
	shares, caps := rates(v, P99Prop{})
	if diff := cmp.Diff(within, shares, cmpopts.EquateApprox(1e-12, 0)); diff != "" || caps != shares {
		t.Errorf("%+v, want %v", v, within)
	}
	if b := v.BudgetFor[0]; !b.Known || b.Budget < 1e9 {
		t.Errorf("shares cut at most 1 %% from %d on, below the floor", b.Budget)
	}
}

func TestBudgetForIsUnknownWhereALimitCuts(t *testing.T) {
	p := chain(200, 0)
	v := CrossValidate(p, Options{Caps: map[int]int64{1: 1e6}, Floors: map[int]int64{1: 1}}, 4e7, P99Prop{},
		Questions{Ratios: []float64{0.01}})
	if b := v.BudgetFor[0]; b.Known || b.Budget != 0 {
		t.Errorf("a hop limited to a tenth of its time is cut in under 1 %% of requests at %d", b.Budget)
	}
}

func BenchmarkCrossValidate(b *testing.B) {
	hops := make([]profile.Hop, 15)
	hops[0].Parent = -1
	for i := 1; i < len(hops); i++ {
		hops[i] = profile.Hop{Parent: (i - 1) / 3, Kind: profile.KindCall}
		for a := 1; a < i; a++ {
			if hops[a].Parent == hops[i].Parent && a%2 == 1 {
				hops[i].After = append(hops[i].After, a)
			}
		}
	}
	p := observed(200_000, hops, 0, func(rng *rand.Rand, _ int) []interval {
		row := make([]interval, len(hops))
		for h := range row {
			row[h] = interval{0, int64(1e7 * math.Exp(rng.NormFloat64()))}
		}
		row[0].end = 4e7 + row[1].end + row[5].end
		return row
	})
	for b.Loop() {
		CrossValidate(p, Options{Quantum: 1e5}, 1e8, P99Prop{}, Questions{Ratios: []float64{0.05, 0.01, 0.005, 0.001}})
	}
}
