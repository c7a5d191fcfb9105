package budget

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latencybudget/latencybudget/analyzer/profile"
)

// call is a hop under the endpoint with the given weight and enough
// observations of an own time of 0.
func call(weight float64, after ...int) Hop {
	return Hop{Weight: weight, P99: weight, SelfCount: 1000, After: after}
}

// endpoint returns a problem whose hops 1, 2, … are called by the endpoint. It
// has a quantum of 1 and no limit on caps.
func endpoint(calls ...Hop) *Problem {
	return &Problem{Hops: append([]Hop{{Parent: -1, SelfCount: 1000}}, calls...), Quantum: 1}
}

// serial returns an endpoint that makes calls of these weights in sequence.
func serial(weights ...float64) *Problem {
	p := endpoint()
	for i, w := range weights {
		h := call(w)
		for before := range i {
			h.After = append(h.After, before+1)
		}
		p.Hops = append(p.Hops, h)
	}
	return p
}

func with(p *Problem, change func(*Problem)) *Problem {
	change(p)
	return p
}

// slots is A10 before (B30 beside C20) before D20.
func slots() *Problem {
	return endpoint(call(10), call(30, 1), call(20, 1), call(20, 1, 2, 3))
}

// dag is A5 before B2 before (C15 beside D10) before E30 before F8, with calls
// that nobody waits for beside F and, where they answer, after it.
func dag(answers bool) *Problem {
	p := endpoint(call(5), call(2, 1), call(15, 1, 2), call(10, 1, 2), call(30, 1, 2, 3, 4), call(8, 1, 2, 3, 4, 5),
		call(10, 1, 2, 3, 4, 5), call(2, 1, 2, 3, 4, 5, 6))
	p.Hops[0].Fraction = 0.1
	p.Quantum = 0.5
	p.Hops[7].Excluded = true
	p.Hops[8].Excluded = !answers
	return p
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		name     string
		problem  *Problem
		budget   float64
		strategy Strategy
		want     []float64 // of hops 1, 2, …
	}{
		{"O1: in proportion", serial(10, 20, 20), 100, P99Prop{}, []float64{20, 40, 40}},
		{
			"O1b: a tenth reserved", with(serial(10, 20, 20), func(p *Problem) { p.Hops[0].Fraction = 0.1 }), 100,
			P99Prop{},
			[]float64{18, 36, 36},
		},
		{"O1c: equal, rounded down", serial(10, 20, 20), 100, Equal{}, []float64{33, 33, 33}},
		{"O2: the shorter branch fills its slot", slots(), 120, P99Prop{}, []float64{20, 60, 60, 40}},
		{
			"O2b: unless it is limited", with(slots(), func(p *Problem) { p.Hops[3].Cap = 40 }), 120,
			P99Prop{},
			[]float64{20, 60, 40, 40},
		},
		{
			"O3: a floor takes from the others", with(serial(10, 90), func(p *Problem) { p.Hops[1].Floor = 20 }), 100,
			P99Prop{},
			[]float64{20, 80},
		},
		{
			"O3b: a limit gives to the others", with(serial(10, 90), func(p *Problem) { p.Hops[2].Cap = 50 }), 100,
			P99Prop{},
			[]float64{50, 50},
		},
		{
			"O6: only the answer of the main path counts", dag(false), 100,
			P99Prop{},
			[]float64{7.5, 3, 22.5, 22.5, 45, 12, 0, 0},
		},
		{
			"O6h: a call after the main path answers", dag(true), 100,
			P99Prop{},
			[]float64{7, 2.5, 21.5, 21.5, 43.5, 11.5, 0, 2.5},
		},
		{
			"O7: (X before Y) beside Z, then W", endpoint(call(10), call(10, 1), call(30), call(10, 1, 2, 3)), 80,
			P99Prop{},
			[]float64{30, 30, 60, 20},
		},
		{"O8: order chain with auth at 5 %", with(serial(30, 45, 120, 70, 25), func(p *Problem) {
			p.Hops[0].Fraction = 0.05
			p.Hops[5].CapRatio = 0.05
		}), 800, P99Prop{}, []float64{81, 122, 326, 190, 40}},
		{
			"few observations of own time reserve 5 %", with(serial(10, 10), func(p *Problem) { p.Hops[0].SelfCount = 58 }),
			100,
			P99Prop{},
			[]float64{47, 47},
		},
		{"O10: rare and frequent hops of a ten-request sample", serial(50, 90), 100, P99Prop{}, []float64{35, 64}},
		{"O17: exclusive alternatives share one slot", endpoint(call(10), Hop{Weight: 40, SelfCount: 99, After: []int{1}, Slot: 1},
			Hop{Weight: 20, SelfCount: 99, After: []int{1, 2}, Slot: 1}, Hop{Weight: 30, SelfCount: 99, After: []int{1, 2, 3}, Slot: 1},
			call(50, 1, 2, 3, 4)), 100, P99Prop{}, []float64{10, 40, 40, 40, 50}},
		{"a share below the quantum is not 0", serial(1, 1999), 100, P99Prop{}, []float64{0.05, 99}},
		{
			"a hop of no weight keeps its floor", with(serial(0, 10), func(p *Problem) { p.Hops[1].Floor = 7 }), 100,
			P99Prop{},
			[]float64{7, 93},
		},
	} {
		got := Solve(c.problem, c.budget, c.strategy)
		if !got.Feasible || got.Share[0] != c.budget {
			t.Errorf("%s: feasible %v, endpoint %v", c.name, got.Feasible, got.Share)
			continue
		}
		if diff := cmp.Diff(c.want, got.Share[1:], cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestRawSharesAreNotRounded(t *testing.T) {
	p := serial(30, 45, 120, 70, 25)
	p.Hops[0].Fraction, p.Hops[5].Cap = 0.05, 40
	got := Solve(p, 800, P99Prop{})
	level := 720.0 / 265
	want := []float64{800, 30 * level, 45 * level, 120 * level, 70 * level, 40}
	if diff := cmp.Diff(want, got.RawShare, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Error(diff)
	}
	if got.Reserve[0] != 40 || got.SelfLevel != 90 {
		t.Errorf("reserve %v at P%d, want 40 at P90", got.Reserve[0], got.SelfLevel)
	}
}

func TestBasesThatDoNotFitAreCompressed(t *testing.T) {
	p := endpoint(Hop{Median: 60, Weight: 100, SelfCount: 99}, Hop{Median: 40, Weight: 400, SelfCount: 99, After: []int{1}})
	for budget, want := range map[float64][]float64{
		50:  {50, 30, 20},    // the bases in proportion
		100: {100, 60, 40},   // the bases
		140: {140, 64, 76},   // and a tenth of each spread
		500: {500, 100, 400}, // the whole spreads
	} {
		if diff := cmp.Diff(want, Solve(p, budget, P50Spread{}).Share, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("budget %v: %s", budget, diff)
		}
	}
}

func TestInfeasible(t *testing.T) {
	floors := func(fraction float64) *Problem {
		p := serial(1, 1)
		p.Hops[0].Fraction, p.Hops[1].Floor, p.Hops[2].Floor = fraction, 60, 50
		return p
	}
	// The endpoint calls 1 (floor 10), then 2 (own time 5, calls 3 of floor 20 and
	// beside it 4 of floor 30), and 5 of floor 44 beside both.
	nested := endpoint(Hop{Floor: 10}, Hop{Floor: 1, After: []int{1}, SelfCount: 99}, Hop{Parent: 2, Floor: 20},
		Hop{Parent: 2, Floor: 30}, Hop{Floor: 44})
	for i := range nested.Hops[2].Self {
		nested.Hops[2].Self[i] = 5 + float64(i)
	}
	own := serial(1)
	own.Hops[0].Floor = 200
	for _, c := range []struct {
		name    string
		problem *Problem
		min     float64
		binding []int
	}{
		{"O4: two floors", floors(0), 110, []int{1, 2}},
		{"O4b: and a tenth reserved", floors(0.1), 123, []int{1, 2}},
		{"nested", nested, 45, []int{1, 2, 4}},
		{"the endpoint's floor", own, 200, []int{0}},
	} {
		got := Solve(c.problem, c.min-1, P99Prop{})
		if got.Feasible || got.MinBudget != c.min {
			t.Errorf("%s: feasible %v, least budget %v, want %v", c.name, got.Feasible, got.MinBudget, c.min)
		}
		if diff := cmp.Diff(c.binding, got.Binding); diff != "" {
			t.Errorf("%s: binding chain: %s", c.name, diff)
		}
		if sum := got.Share[0] + got.Share[1] + got.Cap[1]; sum != 0 {
			t.Errorf("%s: an infeasible problem got shares %v", c.name, got.Share)
		}
		if got := Solve(c.problem, c.min, P99Prop{}); !got.Feasible || len(got.Binding) > 0 || got.MinBudget != c.min {
			t.Errorf("%s: %v is not feasible at its own least budget", c.name, got)
		}
	}
}

func TestOwnTimeIsReservedAtTheLargestLevelThatFits(t *testing.T) {
	p := serial(1, 1)
	p.Hops[1].Floor, p.Hops[2].Floor = 30, 30
	for i := range p.Hops[0].Self {
		p.Hops[0].Self[i] = float64(minSelfLevel + i)
	}
	for budget, want := range map[float64]int{110: 50, 123: 63, 123.9: 63, 149: 89, 150: 90, 1000: 90} {
		got := Solve(p, budget, P99Prop{})
		if !got.Feasible || got.SelfLevel != want || got.Reserve[0] != float64(want) {
			t.Errorf("budget %v: own time %v reserved at P%d, want P%d", budget, got.Reserve[0], got.SelfLevel, want)
		}
		warned := len(got.Warnings) == 1 && got.Warnings[0] == Warning{0, fmt.Sprintf("tight: own time reserved at P%d", want)}
		if warned != (want < 90) {
			t.Errorf("budget %v: warnings %v", budget, got.Warnings)
		}
	}
}

func TestFloorWinsOverLimit(t *testing.T) {
	p := serial(10, 90)
	p.Hops[1].Floor, p.Hops[1].Cap = 30e6, 20e6
	p.Hops = append(p.Hops, Hop{Parent: 2, Floor: 10e6, SelfCount: 99})
	p.Hops[2].Cap = 5e6
	got := Solve(p, 100e6, P99Prop{})
	if diff := cmp.Diff([]float64{100e6, 30e6, 10e6, 10e6}, got.Share); diff != "" {
		t.Error(diff)
	}
	want := []Warning{
		{1, "limit 20ms is below the floor 30ms: the floor wins"},
		{2, "limit 5ms is below the 10ms that its calls need: the calls win"},
	}
	if diff := cmp.Diff(want, got.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestCapsPoolWhatOthersDoNotNeed(t *testing.T) {
	p := serial(10, 20, 20)
	p.Hops[1].Floor, p.Hops[2].Floor, p.Hops[3].Floor = 5, 10, 15
	got := Solve(p, 100, P99Prop{})
	if diff := cmp.Diff([]float64{100, 75, 80, 85}, got.Cap); diff != "" {
		t.Error(diff)
	}
	if got.WorstCase != 240 {
		t.Errorf("worst case %v, want 240", got.WorstCase)
	}

	p.Hops[0].Tail = 4 // own time after the last call is not for the calls
	p.Kappa = 3        // hop 1: 3 x 10, but not less than its share
	p.Hops[3].Cap = 50
	got = Solve(p, 100, P99Prop{})
	if diff := cmp.Diff([]float64{100, 30, 60, 50}, got.Cap); diff != "" {
		t.Error(diff)
	}
}

// TestCapIsAtMostTheParents: a rare slow child of a fast parent.
func TestCapIsAtMostTheParents(t *testing.T) {
	p := endpoint(call(10), Hop{Parent: 1, Weight: 1, P99: 50, SelfCount: 99})
	p.Hops = append(p.Hops, call(90, 1))
	p.Kappa = 3
	got := Solve(p, 1000, P99Prop{})
	if diff := cmp.Diff([]float64{1000, 100, 100, 900}, got.Cap); diff != "" {
		t.Error(diff)
	}
	p.Kappa = 20 // 200 for the parent, 1000 for the child
	got = Solve(p, 1000, P99Prop{})
	if diff := cmp.Diff([]float64{1000, 200, 200, 1000}, got.Cap); diff != "" {
		t.Error(diff)
	}
}

func TestSubtreesThatNobodyWaitsForGetNothing(t *testing.T) {
	p := serial(10, 20)
	plain := Solve(p, 100, P99Prop{})
	p.Hops = append(p.Hops, Hop{Excluded: true, Floor: 500, Weight: 9}, Hop{Parent: 3, Floor: 900, Weight: 7},
		Hop{Parent: 4, Weight: 1})
	got := Solve(p, 100, P99Prop{})
	if diff := cmp.Diff(append(plain.Share, 0, 0, 0), got.Share); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(append(plain.Cap, 0, 0, 0), got.Cap); diff != "" {
		t.Error(diff)
	}
}

func TestMalformedProblemsAreSolvedAsFarAsTheyGo(t *testing.T) {
	p := serial(10, 10)
	p.Hops = append(p.Hops, Hop{Parent: 3}, Hop{Parent: -1}, Hop{Parent: 77}, call(10, 1, 2, 7, 8, -4, 99))
	got := Solve(p, 30, P99Prop{})
	if diff := cmp.Diff([]float64{30, 10, 10, 0, 0, 0, 10}, got.Share); diff != "" {
		t.Error(diff)
	}
	if got := Solve(&Problem{}, 30, P99Prop{}); got.Feasible || len(got.Share) > 0 {
		t.Errorf("no hops: %+v", got)
	}
	single := Solve(endpoint(), 30, P99Prop{})
	if !single.Feasible || single.Share[0] != 30 || single.Cap[0] != 30 || single.WorstCase != 0 {
		t.Errorf("an endpoint without calls: %+v", single)
	}
	p = serial(10)
	p.Hops[0].Fraction = 1
	if got := Solve(p, 30, P99Prop{}); got.Feasible || !math.IsInf(got.MinBudget, 1) {
		t.Errorf("everything reserved: %+v", got)
	}
}

func TestQuantum(t *testing.T) {
	for budget, want := range map[time.Duration]time.Duration{
		time.Second: time.Millisecond, 200 * time.Millisecond: time.Millisecond,
		200*time.Millisecond - 1: 100 * time.Microsecond, 10 * time.Millisecond: 100 * time.Microsecond,
		10*time.Millisecond - 1: 10 * time.Microsecond, time.Millisecond: 10 * time.Microsecond,
		time.Millisecond - 1: time.Microsecond, 6300: 10, 1: 1, 0: 1,
	} {
		if got := QuantumFor(int64(budget)); got != int64(want) {
			t.Errorf("quantum of %v is %v, want %v", budget, time.Duration(got), want)
		}
	}
}

func TestStrategyNamed(t *testing.T) {
	for _, s := range Strategies {
		if got, err := StrategyNamed(s.Name()); err != nil || got != s {
			t.Errorf("%s: %v, %v", s.Name(), got, err)
		}
	}
	if _, err := StrategyNamed("best"); err == nil || !strings.Contains(err.Error(), "p99prop, equal, p50spread, eqq, optimised or critpath") {
		t.Errorf("error %v does not name the strategies", err)
	}
}

// siblings returns an endpoint with k calls, all in sequence or all at once.
func siblings(k int, inSequence bool) *Problem {
	p := endpoint()
	p.Quantum = 0
	for i := range k {
		h := call(float64(1 + i%37))
		h.Floor = float64(i % 5)
		for before := range i {
			if inSequence {
				h.After = append(h.After, before+1)
			}
		}
		p.Hops = append(p.Hops, h)
	}
	return p
}

func TestManySiblings(t *testing.T) {
	sum := 0.0
	for _, share := range Solve(siblings(500, true), 1e6, P99Prop{}).Share[1:] {
		sum += share
	}
	if math.Abs(sum-1e6) > 1e-3 {
		t.Errorf("500 calls in sequence share %v of 1e6", sum)
	}
	for i, share := range Solve(siblings(500, false), 1e6, P99Prop{}).Share[1:] {
		if math.Abs(share-1e6) > 1e-3 {
			t.Fatalf("call %d of 500 at once has %v of 1e6", i, share)
		}
	}
}

func BenchmarkSolve200(b *testing.B) {
	for name, inSequence := range map[string]bool{"sequence": true, "at once": false} {
		p := siblings(200, inSequence)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Solve(p, 1e6, P99Prop{})
			}
		})
	}
}

// FuzzSolve: any finite problem has a solution or a verdict, whatever its structure.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 10, 0, 0, 1, 1, 5, 20, 0, 0}, 100.0, 1.0)
	f.Add([]byte{0, 0, 0, 200, 0, 0, 7, 255, 1, 2, 3, 4, 5, 6, 7, 8, 9, 250, 251, 252, 253}, 3.0, 0.0)
	f.Add([]byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 0.0, 0.1)
	f.Fuzz(func(t *testing.T, data []byte, budget, quantum float64) {
		if !(math.Abs(budget) < 1e18 && math.Abs(quantum) < 1e18) {
			return
		}
		p := &Problem{Quantum: quantum, Kappa: 3}
		strategy := Strategies[len(data)%len(Strategies)]
		if strategy == (Optimised{}) {
			strategy = Optimised{ofAny: true, Waste: quantum > 1}
		}
		rows := &profile.Rows{Hash: make([]uint64, 5), Threshold: []uint64{0, 0, 0, 3 << 54, 0}}
		for ; len(data) >= 7 && len(p.Hops) < 200; data = data[7:] {
			at := len(p.Hops)
			p.Hops = append(p.Hops, Hop{
				Parent: int(data[0]) - 2, After: []int{int(data[1]), at - 1, at - 2}, Slot: int(data[2] % 3),
				Excluded: data[2] > 240, Weight: float64(data[3]) - 1, P99: float64(data[3]), Floor: float64(data[4]) - 3,
				Median: float64(data[3] % 9), Cap: float64(data[5]), Fraction: float64(data[6]%30) / 29, SelfCount: int(data[6]), Tail: float64(data[6] % 7),
			})
		}
		for h := range p.Hops {
			var durations, starts []int64
			for r := range rows.Hash {
				durations = append(durations, int64(p.Hops[h].P99)*int64(r)/4-1)
				starts = append(starts, int64(h*r))
			}
			rows.Duration, rows.Start = append(rows.Duration, durations), append(rows.Start, starts)
		}
		p.Training = newTraining(&profile.Profile{Rows: rows, Shrink: 1})
		s := Solve(p, budget, strategy)
		for h, share := range s.Share {
			if math.IsNaN(share) || math.IsNaN(s.Cap[h]) || share < 0 && budget >= 0 {
				t.Fatalf("hop %d of %+v has share %v and cap %v", h, p, share, s.Cap[h])
			}
			if parent := p.Hops[h].Parent; h > 0 && share > 0 && !atMost(share, s.Share[parent]) {
				t.Fatalf("hop %d of %+v has %v, its parent %v", h, p, share, s.Share[parent])
			}
		}
	})
}

func ExampleSolve() {
	const ms = float64(time.Millisecond)
	// inventory, then coupon beside risk, under a promise of 100 ms.
	p := &Problem{Quantum: ms, Hops: []Hop{
		{Parent: -1, SelfCount: 1000},
		{Parent: 0, Weight: 10 * ms},
		{Parent: 0, Weight: 15 * ms, After: []int{1}},
		{Parent: 0, Weight: 30 * ms, After: []int{1}, Floor: 12 * ms},
	}}
	s := Solve(p, 100*ms, P99Prop{})
	for i, name := range []string{"checkout", "inventory", "coupon", "risk"} {
		fmt.Println(name, time.Duration(s.Share[i]))
	}
	fmt.Println("no plan exists below", time.Duration(s.MinBudget))
	// Output:
	// checkout 100ms
	// inventory 25ms
	// coupon 75ms
	// risk 75ms
	// no plan exists below 12ms
}
