package budget

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// forest grows random trees and checks their solutions. It reuses its memory,
// so that a million trees take minutes.
type forest struct {
	rng     *rand.PCG
	stages  bool
	tree    Problem
	ends    []float64 // of the interval that gave a hop its place among its siblings
	starts  []float64
	longest []float64
	least   []float64
	solver  solver
	got     Solution
	other   Solution
	scaled  Problem
	rows    profile.Rows
}

// strategyOf returns the strategy that a tree is tried with. Those that search
// are too slow for every tree.
func strategyOf(seed uint64) Strategy {
	switch seed % 800 {
	case 120:
		return Optimised{ofAny: true, Waste: true}
	case 7, 87, 160, 247, 320, 407, 480, 567, 640, 727:
		return Optimised{ofAny: true}
	}
	switch seed % 40 {
	case 3, 10, 16, 29:
		return CriticalPath{}
	case 4, 12, 18, 30:
		return EqualQuantile{}
	}
	return [...]Strategy{P99Prop{}, Equal{}, P50Spread{}}[seed%3]
}

// simple tells whether what a strategy asks for does not depend on the budget.
func simple(s Strategy) bool { return s.Name() != "eqq" && s.Name() != "optimised" }

// learn gives the tree 24 requests of whole ms, so that many durations are
// equal, and some of them more than the budget, without regard to what a call
// below takes.
func (f *forest) learn(p *Problem, budget float64, rng *rand.Rand) {
	const requests = 24
	r := &f.rows
	n := len(p.Hops)
	for _, column := range []*[]uint64{&r.Hash, &r.Threshold} {
		*column = slices.Grow((*column)[:0], requests)[:requests]
	}
	for _, columns := range []*[][]int64{&r.Duration, &r.Start} {
		*columns = slices.Grow((*columns)[:0], n)[:n]
		for h := range *columns {
			(*columns)[h] = slices.Grow((*columns)[h][:0], requests)[:requests]
		}
	}
	r.Failed = append(r.Failed[:0], make([]bool, requests), nil, make([]bool, requests))
	for i := range requests {
		r.Hash[i], r.Threshold[i] = rng.Uint64(), uint64(rng.IntN(2))*3<<54
		r.Failed[0][i], r.Failed[2][i] = rng.IntN(12) == 0, rng.IntN(6) == 0
		load := math.Exp(0.3 * rng.NormFloat64())
		for h := range p.Hops {
			r.Start[h][i] = rng.Int64N(int64(budget) + 1)
			r.Duration[h][i] = int64(p.Hops[h].Weight * load * rng.Float64())
			if h == 0 {
				r.Duration[h][i] = int64(budget * 1.1 * rng.Float64())
			} else if rng.IntN(5) == 0 {
				r.Duration[h][i] = -1
			}
		}
	}
	p.Training = newTraining(&profile.Profile{Rows: r, Shrink: 1})
}

// grow makes tree number seed: at most four levels below the endpoint and five
// children a hop, about 77 hops, with random floors, limits, reserves, slots and
// hops that nobody waits for. Children stand in a random interval order; in one
// tree of two they stand in stages, where any two stages are in sequence.
func (f *forest) grow(seed uint64) *Problem {
	f.rng.Seed(seed, 0x9e3779b97f4a7c15)
	rng := rand.New(f.rng)
	p := &f.tree
	p.Hops = p.Hops[:0]
	f.stages = seed%20 < 10
	p.Quantum, p.Kappa, p.Training = 0, float64(rng.IntN(4)), nil
	f.addHop(rng, -1, 0)
	for level, from := 0, 0; level < 4; level++ {
		to := len(p.Hops)
		for parent := from; parent < to; parent++ {
			children := rng.IntN(6)
			if level == 0 {
				children = 1 + rng.IntN(5)
			}
			slot := 0
			if rng.IntN(8) == 0 {
				slot = parent + 1
			}
			for range children {
				f.addHop(rng, parent, slot)
			}
		}
		from = to
	}
	return p
}

func (f *forest) addHop(rng *rand.Rand, parent, slot int) {
	p := &f.tree
	i := len(p.Hops)
	p.Hops = slices.Grow(p.Hops, 1)[:i+1]
	h := &p.Hops[i]
	*h = Hop{Parent: parent, After: h.After[:0], SelfCount: 1000}
	f.starts = append(f.starts[:i], rng.Float64())
	f.ends = append(f.ends[:i], f.starts[i]+rng.Float64()*rng.Float64())
	if f.stages {
		f.starts[i] = float64(rng.IntN(2))
		if i > 0 && p.Hops[i-1].Parent == parent {
			f.starts[i] += f.starts[i-1]
		}
		f.ends[i] = f.starts[i] + 1
	}
	h.Weight = math.Exp(rng.NormFloat64()) * 10
	h.P50, h.P99 = h.Weight*rng.Float64(), h.Weight*(1+rng.Float64())
	h.Median = h.P50 * float64(rng.IntN(2))
	if rng.IntN(3) == 0 {
		h.Floor = h.P50 * rng.Float64()
	}
	if rng.IntN(6) == 0 {
		h.Cap = h.Weight * rng.Float64() * 8
	}
	if rng.IntN(12) == 0 {
		h.CapRatio = rng.Float64()
	}
	if rng.IntN(8) == 0 {
		h.Fraction = 0.2 * rng.Float64()
	}
	if rng.IntN(16) == 0 {
		h.SelfCount = 3
	}
	if rng.IntN(16) == 0 {
		h.Reserve = 5 * rng.Float64()
	}
	h.Excluded = i > 1 && rng.IntN(24) == 0
	own := rng.Float64()
	for k := range h.Self {
		own += 0.1 * rng.Float64()
		h.Self[k] = own
	}
	h.Tail = h.Self[0] * rng.Float64()
	if slot != 0 && !f.stages && rng.IntN(2) == 0 {
		h.Slot = slot
	}
	for a := i - 1; a > 0 && p.Hops[a].Parent == parent; a-- {
		if f.ends[a] <= f.starts[i] {
			h.After = append(h.After, a)
		}
	}
}

// chain returns the longest chain of values among the planned children of
// parent, by all pairs and not by the solver's reduced order. Unless through is
// 0, only chains that contain that child count.
func (f *forest) chain(p *Problem, parent int, values []float64, through int) float64 {
	longest := 0.0
	for i := parent + 1; i < len(p.Hops); i++ {
		h := &p.Hops[i]
		if h.Parent != parent || !f.solver.planned[i] {
			continue
		}
		before := 0.0
		if i > through && through > 0 {
			before = math.Inf(-1) // until it is found behind the child
		}
		for _, a := range h.After {
			if f.solver.planned[a] && (h.Slot == 0 || h.Slot != p.Hops[a].Slot) && (i <= through || a >= through) {
				before = max(before, f.longest[a])
			}
		}
		f.longest[i] = before + values[i]
		if i >= through {
			longest = max(longest, f.longest[i])
		}
	}
	return longest
}

// reservedFraction is what few observations add, at the endpoint alone.
func reservedFraction(h *Hop) float64 {
	if h.Fraction == 0 && h.SelfCount < 59 && h.Parent < 0 {
		return 0.05
	}
	return h.Fraction
}

// leastBudget is the least feasible budget by its definition, at own-time level.
func (f *forest) leastBudget(p *Problem, level int) float64 {
	for i := len(p.Hops) - 1; i >= 0; i-- {
		h := &p.Hops[i]
		f.least[i] = h.Floor
		leaf := true
		for c := i + 1; c < len(p.Hops); c++ {
			leaf = leaf && (p.Hops[c].Parent != i || !f.solver.planned[c])
		}
		if !leaf {
			x := f.chain(p, i, f.least, 0)
			fraction := reservedFraction(h)
			f.least[i] = max(f.least[i], x+h.Reserve, x+h.Self[level-50], x/(1-fraction))
		}
	}
	return f.least[0]
}

const relative = 1e-9

func atMost(a, b float64) bool { return a <= b*(1+relative)+1e-12 }

// obeys checks every hard constraint of the given shares.
func (f *forest) obeys(p *Problem, budget float64, s *Solution, share []float64) error {
	f.leastBudget(p, s.SelfLevel)
	if share[0] != budget {
		return fmt.Errorf("the endpoint has %v of %v", share[0], budget)
	}
	for i := range p.Hops {
		h := &p.Hops[i]
		if !f.solver.planned[i] {
			if share[i] != 0 || s.Cap[i] != 0 {
				return fmt.Errorf("hop %d: nobody waits for it and it has %v", i, share[i])
			}
			continue
		}
		if i > 0 {
			limit := math.Inf(1)
			if h.Cap > 0 {
				limit = h.Cap
			}
			if h.CapRatio > 0 {
				limit = min(limit, h.CapRatio*budget)
			}
			limit = max(limit, f.least[i])
			if !atMost(f.least[i], share[i]) || !atMost(share[i], limit) || !atMost(share[i], share[h.Parent]) {
				return fmt.Errorf("hop %d: share %v, floor %v, limit %v, parent %v", i, share[i], f.least[i], limit,
					share[h.Parent])
			}
			if s.Cap[i] < s.Share[i] || s.Cap[i] > s.Cap[h.Parent] {
				return fmt.Errorf("hop %d: share %v, cap %v, parent's cap %v", i, s.Share[i], s.Cap[i], s.Cap[h.Parent])
			}
		}
		if longest := f.chain(p, i, share, 0); longest > 0 {
			fraction := reservedFraction(h)
			reserve := max(h.Reserve, h.Self[s.SelfLevel-50], fraction*share[i])
			if !atMost(longest+reserve, share[i]) {
				return fmt.Errorf("hop %d: chain %v + reserve %v exceed %v", i, longest, reserve, share[i])
			}
		}
	}
	return nil
}

// fills checks that no hop could have more while the others keep what they have.
func (f *forest) fills(p *Problem, budget float64, s *Solution) error {
	for i := 1; i < len(p.Hops); i++ {
		h := &p.Hops[i]
		if !f.solver.planned[i] {
			continue
		}
		room := s.RawShare[h.Parent] - s.Reserve[h.Parent]
		saturated := f.chain(p, h.Parent, s.RawShare, i) >= room-relative*s.RawShare[h.Parent]
		if saturated != s.OnSaturatedChain[i] {
			return fmt.Errorf("hop %d: on a saturated chain: %v, want %v", i, s.OnSaturatedChain[i], saturated)
		}
		if saturated {
			continue
		}
		limit := h.limit(budget)
		if s.RawShare[i] < limit*(1-relative) {
			return fmt.Errorf("hop %d: share %v, could grow to %v", i, s.RawShare[i], limit)
		}
	}
	return nil
}

// check grows tree number seed and checks all laws on it. It tells whether the
// budget was feasible.
func (f *forest) check(seed uint64) (feasible bool, err error) {
	p := f.grow(seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	n := len(p.Hops)
	for _, s := range []*[]float64{&f.longest, &f.least} {
		*s = slices.Grow((*s)[:0], n)[:n]
	}
	f.solver.reset(p)
	least := f.leastBudget(p, 50)
	budget := least * (0.95 + 2.2*rng.Float64())
	strategy := strategyOf(seed)
	switch strategy.(type) {
	case EqualQuantile, CriticalPath, Optimised:
		f.learn(p, budget, rng)
		f.solver.reset(p)
	}

	f.solver.solve(budget, strategy, &f.got)
	if want := least <= budget; f.got.Feasible != want || math.Abs(f.got.MinBudget-least) > relative*least {
		return want, fmt.Errorf("budget %v: feasible %v, least budget %v, want %v", budget, f.got.Feasible, f.got.MinBudget, least)
	}
	if !f.got.Feasible {
		return false, nil
	}
	if err := f.obeys(p, budget, &f.got, f.got.RawShare); err != nil {
		return true, err
	}
	if err := f.fills(p, budget, &f.got); err != nil {
		return true, err
	}
	if f.got.Strategy != strategy.Name() {
		return true, fmt.Errorf("%s: split by %s", strategy.Name(), f.got.Strategy)
	}
	if o, ok := strategy.(Optimised); ok && !o.Waste {
		if err := f.beatsDefault(p, budget); err != nil {
			return true, err
		}
	}
	if p.Training != nil && seed%2 == 0 {
		if err := f.ignoresOrder(p, budget, strategy); err != nil {
			return true, err
		}
	}
	if seed%10 == 0 {
		for _, law := range []func(*Problem, float64, Strategy) error{
			f.exactMinimum, f.repeats, f.scales, f.grows, f.mixes, f.ignoresAsync, f.rounds,
		} {
			if err := law(p, budget, strategy); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// exactMinimum: the least budget is feasible, a billionth less is not.
func (f *forest) exactMinimum(p *Problem, _ float64, strategy Strategy) error {
	f.solver.solve(f.got.MinBudget, strategy, &f.other)
	if !f.other.Feasible {
		return fmt.Errorf("the least budget %v is not feasible", f.got.MinBudget)
	}
	if err := f.obeys(p, f.got.MinBudget, &f.other, f.other.RawShare); err != nil {
		return fmt.Errorf("at the least budget: %w", err)
	}
	f.solver.solve(f.got.MinBudget*(1-1e-9), strategy, &f.other)
	if f.other.Feasible {
		return fmt.Errorf("a billionth less than the least budget %v is feasible", f.got.MinBudget)
	}
	return nil
}

// repeats: a new solver gives the same bits.
func (f *forest) repeats(p *Problem, budget float64, strategy Strategy) error {
	again := Solve(p, budget, strategy)
	if !slices.Equal(again.RawShare, f.got.RawShare) || !slices.Equal(again.Cap, f.got.Cap) {
		return fmt.Errorf("%s: solving twice gives %v and %v", strategy.Name(), f.got.RawShare, again.RawShare)
	}
	return nil
}

// scales: four times all times is four times all shares and caps, bit by bit.
func (f *forest) scales(p *Problem, budget float64, strategy Strategy) error {
	const factor = 4
	q := &f.scaled
	q.Hops = append(q.Hops[:0], p.Hops...)
	q.Kappa, q.Training = p.Kappa, nil
	if p.Training != nil {
		rows := *p.Training.rows
		rows.Duration, rows.Start = slices.Clone(rows.Duration), slices.Clone(rows.Start)
		for h := range p.Hops {
			rows.Duration[h], rows.Start[h] = slices.Clone(rows.Duration[h]), slices.Clone(rows.Start[h])
			for r, d := range rows.Duration[h] {
				rows.Start[h][r] *= factor
				if d > 0 {
					rows.Duration[h][r] *= factor
				}
			}
		}
		q.Training = newTraining(&profile.Profile{Rows: &rows, Shrink: 1})
	}
	for i := range q.Hops {
		h := &q.Hops[i]
		for _, v := range []*float64{&h.Weight, &h.Median, &h.P50, &h.P99, &h.Floor, &h.Cap, &h.Reserve, &h.Tail} {
			*v *= factor
		}
		for k := range h.Self {
			h.Self[k] *= factor
		}
	}
	f.solver.reset(q)
	f.solver.solve(budget*factor, strategy, &f.other)
	f.solver.reset(p)
	for i := range p.Hops {
		if f.other.RawShare[i] != factor*f.got.RawShare[i] || f.other.Cap[i] != factor*f.got.Cap[i] {
			return fmt.Errorf("hop %d: share %v, %v at four times the scale", i, f.got.RawShare[i], f.other.RawShare[i])
		}
	}
	return nil
}

// grows: where calls stand in stages, no share falls when the endpoint gets more
// at the same limits, demands and level of own time. In other orders one may:
// with a before d, and b before both c and d, a limit on a gives all of the
// extra time to d, which takes it from a c' between b and d.
func (f *forest) grows(p *Problem, budget float64, strategy Strategy) error {
	if !f.stages || !simple(strategy) {
		return nil
	}
	q := &f.scaled
	q.Kappa, q.Training = p.Kappa, p.Training
	q.Hops = append(q.Hops[:0], p.Hops...)
	for i := range q.Hops {
		h := &q.Hops[i]
		h.Cap, h.CapRatio = h.limit(budget), 0
	}
	f.solver.reset(q)
	f.solver.solve(budget*1.3, strategy, &f.other)
	f.solver.reset(p)
	if f.other.SelfLevel != f.got.SelfLevel {
		return nil // more is reserved, so that children may lose
	}
	for i, share := range f.got.RawShare {
		if !atMost(share, f.other.RawShare[i]) {
			return fmt.Errorf("hop %d: share %v, %v of a larger budget", i, share, f.other.RawShare[i])
		}
	}
	return nil
}

// mixes: a convex mix of two feasible splits is feasible.
func (f *forest) mixes(p *Problem, budget float64, strategy Strategy) error {
	other := Strategies[0]
	if other == strategy {
		other = Strategies[1]
	}
	f.solver.solve(budget, other, &f.other)
	for i, share := range f.got.RawShare {
		f.other.RawShare[i] = 0.3*share + 0.7*f.other.RawShare[i]
	}
	f.other.RawShare[0] = budget
	if err := f.obeys(p, budget, &f.other, f.other.RawShare); err != nil {
		return fmt.Errorf("convex mix: %w", err)
	}
	return nil
}

// ignoresAsync: hops that nobody waits for change nothing, wherever they are.
func (f *forest) ignoresAsync(p *Problem, budget float64, strategy Strategy) error {
	q := &f.scaled
	q.Kappa, q.Training = p.Kappa, p.Training
	q.Hops = append(q.Hops[:0], p.Hops...)
	q.Hops = append(q.Hops, Hop{Parent: 0, Excluded: true, Floor: 1e9, Weight: 1e9, P99: 1e9},
		Hop{Parent: len(p.Hops), Floor: 1e9, Weight: 1})
	f.solver.reset(q)
	f.solver.solve(budget, strategy, &f.other)
	f.solver.reset(p)
	n := len(p.Hops)
	if !slices.Equal(f.other.Share[:n], f.got.Share) || !slices.Equal(f.other.Cap[:n], f.got.Cap) ||
		f.other.Share[n] != 0 || f.other.Share[n+1] != 0 {
		return fmt.Errorf("a call that nobody waits for changes %v to %v", f.got.Share, f.other.Share)
	}
	return nil
}

// beatsDefault: on the requests that it learned from, the optimised split
// violates no more than the default.
func (f *forest) beatsDefault(p *Problem, budget float64) error {
	f.solver.solve(budget, Strategies[0], &f.other)
	mine, other := f.violated(p, budget, f.got.RawShare), f.violated(p, budget, f.other.RawShare)
	if mine > other {
		return fmt.Errorf("optimised violates %v of its training, the default %v", mine, other)
	}
	return nil
}

// violated is the weight of the training that is over the budget or a share, by
// its definition.
func (f *forest) violated(p *Problem, budget float64, share []float64) (sum float64) {
	rows := p.Training.rows
	for r, th := range rows.Threshold {
		over := float64(rows.Duration[0][r]) > budget
		for h := 1; h < len(p.Hops); h++ {
			over = over || f.solver.planned[h] && float64(rows.Duration[h][r]) > share[h] && !rows.FailedAt(h, r)
		}
		if over && !rows.FailedAt(0, r) {
			sum += quantile.Weight(th)
		}
	}
	return sum
}

// ignoresOrder: the same requests in another order give the same bits, but for
// the sums of wasted time.
func (f *forest) ignoresOrder(p *Problem, budget float64, strategy Strategy) error {
	if o, ok := strategy.(Optimised); ok && o.Waste {
		return nil
	}
	from := p.Training.rows
	rows := profile.Rows{Hash: reversed(from.Hash), Threshold: reversed(from.Threshold)}
	for h := range p.Hops {
		rows.Duration = append(rows.Duration, reversed(from.Duration[h]))
		rows.Start = append(rows.Start, reversed(from.Start[h]))
	}
	for _, failed := range from.Failed {
		rows.Failed = append(rows.Failed, reversed(failed))
	}
	training := p.Training
	defer func() { p.Training = training }()
	p.Training = newTraining(&profile.Profile{Rows: &rows, Shrink: 1})
	again := Solve(p, budget, strategy)
	if !slices.Equal(again.RawShare, f.got.RawShare) {
		return fmt.Errorf("%s: in another order of requests %v becomes %v", strategy.Name(), f.got.RawShare, again.RawShare)
	}
	return nil
}

func reversed[T any](s []T) []T {
	if s == nil {
		return nil
	}
	out := slices.Clone(s)
	slices.Reverse(out)
	return out
}

// rounds: rounded shares obey the constraints too, lose at most a quantum at
// each level, and do not become 0 above a floor.
func (f *forest) rounds(p *Problem, budget float64, strategy Strategy) error {
	p.Quantum = budget / 128
	defer func() { p.Quantum = 0 }()
	f.solver.solve(budget, strategy, &f.other)
	if err := f.obeys(p, budget, &f.other, f.other.Share); err != nil {
		return fmt.Errorf("rounded: %w", err)
	}
	for i, share := range f.other.Share {
		raw := f.other.RawShare[i]
		depth := 0.0
		for a := i; a > 0; a = p.Hops[a].Parent {
			depth++
		}
		if raw != f.got.RawShare[i] || share == 0 && raw > 0 && f.solver.least[i] > 0 ||
			share > raw+1e-5*p.Quantum*depth || share < raw-p.Quantum*depth*(1+1e-5) {
			return fmt.Errorf("hop %d: share %v rounded to %v by steps of %v", i, raw, share, p.Quantum)
		}
	}
	return nil
}

// TestRandomTrees: no budget grows along a path, no chain exceeds its parent,
// no floor or limit is broken, and the verdict is right, on every tree.
// LATENCYBUDGET_TREES sets the number of trees; -short is for slow builds.
func TestRandomTrees(t *testing.T) {
	trees := 10_000
	if testing.Short() {
		trees = 2_000
	}
	if v := os.Getenv("LATENCYBUDGET_TREES"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("LATENCYBUDGET_TREES: %v", err)
		}
		trees = n
	}
	const workers = 2
	var hops, infeasible [workers]int
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			f := &forest{rng: rand.NewPCG(0, 0)}
			for seed := w; seed < trees; seed += workers {
				feasible, err := f.check(uint64(seed))
				if err != nil {
					t.Errorf("tree %d: %v", seed, err)
					return
				}
				hops[w] += len(f.tree.Hops)
				if !feasible {
					infeasible[w]++
				}
			}
		})
	}
	group.Wait()
	none := infeasible[0] + infeasible[1]
	t.Logf("%d trees, %d hops, %d infeasible, no violation", trees, hops[0]+hops[1], none)
	if none == 0 || none > trees/10 {
		t.Errorf("%d of %d budgets are infeasible: the trees do not test the verdict", none, trees)
	}
}
