package budget

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// workload makes requests of one shape. Its hops form a call tree, parents first.
type workload struct {
	name string
	hops []place
	// shared is the correlation of all normal draws of one request: how much the
	// load of the moment slows every hop alike.
	shared float64
	// misses are the parts of the requests that are over the budgets it is tried
	// with, the tight one first; or, in ms, budgets from 10 on.
	budgets []float64
}

// place is one hop of a workload and the time that it takes for itself, in ms:
// 4/5 of it before its calls, the rest after the last.
type place struct {
	parent  int
	after   []int // siblings that end before it starts
	async   bool  // starts when its caller ends
	present float64
	own     draw
	// again, if any, draws how many calls there are one after the other.
	again func(rng *rand.Rand) int
}

// draw returns a time in ms from a source and a standard normal number.
type draw func(rng *rand.Rand, z float64) float64

// lognormal has the given P99 and spread.
func lognormal(p99, sigma float64) draw {
	const z99 = 2.3263
	median := p99 / math.Exp(sigma*z99)
	return func(_ *rand.Rand, z float64) float64 { return median * math.Exp(sigma*z) }
}

// pareto has the given least value and tail.
func pareto(least, alpha float64) draw {
	return func(rng *rand.Rand, _ float64) float64 { return least * math.Pow(1-rng.Float64(), -1/alpha) }
}

// sometimes is one draw plus, with a probability, a time between two bounds.
func sometimes(usual draw, probability, low, high float64) draw {
	return func(rng *rand.Rand, z float64) float64 {
		v := usual(rng, z)
		if rng.Float64() < probability {
			v += low + rng.Float64()*(high-low)
		}
		return v
	}
}

// sequence returns calls of the endpoint that run one after the other.
func sequence(own ...draw) []place {
	hops := []place{{parent: -1, present: 1, own: lognormal(2, 0.5)}}
	for i, o := range own {
		h := place{present: 1, own: o}
		for before := range i {
			h.after = append(h.after, before+1)
		}
		hops = append(hops, h)
	}
	return hops
}

// workloads are shapes of call trees with what makes a split hard: correlation,
// cold starts, parallel branches, heavy tails, depth, optional hops, loops.
func workloads() []workload {
	chain := sequence(lognormal(45, 0.2), lognormal(50, 0.3), lognormal(60, 0.6), lognormal(60, 0.9), lognormal(80, 1.3))
	orders := sequence(lognormal(25, 0.4), lognormal(30, 0.5), lognormal(45, 0.5),
		sometimes(lognormal(110, 0.7), 0.005, 200, 900), lognormal(70, 0.5))
	dag := []place{
		{parent: -1, present: 1, own: lognormal(1, 0.4)},
		{present: 1, own: lognormal(5, 0.4)},
		{present: 1, own: lognormal(2, 0.5), after: []int{1}},
		{present: 1, own: lognormal(15, 0.2), after: []int{1, 2}},
		{present: 1, own: lognormal(10, 0.8), after: []int{1, 2}},
		{present: 1, own: lognormal(30, 0.4), after: []int{1, 2, 3, 4}},
		{present: 1, own: lognormal(8, 0.7), after: []int{1, 2, 3, 4, 5}},
		{present: 1, own: lognormal(10, 0.5), async: true},
		{present: 1, own: lognormal(2, 0.5), async: true},
	}
	fanout := sequence(lognormal(35, 0.2)) // a look-up, then eight at once
	for i := range 8 {
		fanout = append(fanout, place{present: 1, after: []int{1}, own: lognormal(40+10*float64(i), 0.3+0.1*float64(i))})
	}
	heavy := sequence(pareto(10, 2.5), pareto(5, 1.6), pareto(2, 1.3), lognormal(40, 0.6))
	// gateway ── auth ── store
	//         ── catalog ── search ── index, ranking; prices ── cache
	//         ── cart ── stock ‖ offers ── rules; render (7 of 10)
	//         ── audit, which nobody waits for
	nested := []place{
		{parent: -1, present: 1, own: lognormal(8, 0.5)},
		{parent: 0, present: 1, own: lognormal(6, 0.5)},
		{parent: 1, present: 1, own: lognormal(12, 0.7)},
		{parent: 0, present: 1, own: lognormal(6, 0.5), after: []int{1}},
		{parent: 3, present: 1, own: lognormal(6, 0.4)},
		{parent: 4, present: 1, own: lognormal(40, 0.9)},
		{parent: 4, present: 1, own: lognormal(25, 0.5), after: []int{5}},
		{parent: 3, present: 1, own: lognormal(5, 0.4), after: []int{4}},
		{parent: 7, present: 1, own: sometimes(lognormal(8, 0.5), 0.02, 20, 120)},
		{parent: 0, present: 1, own: lognormal(6, 0.5), after: []int{1, 3}},
		{parent: 9, present: 1, own: lognormal(30, 1)},
		{parent: 9, present: 1, own: lognormal(8, 0.5)},
		{parent: 11, present: 1, own: lognormal(20, 0.8)},
		{parent: 9, present: 0.7, own: lognormal(30, 0.6), after: []int{10, 11}},
		{parent: 0, present: 1, own: lognormal(20, 0.5), async: true},
	}
	loops := sequence(lognormal(15, 0.4), lognormal(12, 0.6), lognormal(20, 0.5), lognormal(80, 0.8))
	loops[2].again = func(rng *rand.Rand) int { return 1 + rng.IntN(8) }
	loops[3].again = func(rng *rand.Rand) int {
		if rng.Float64() < 0.02 {
			return 2
		}
		return 1
	}
	loops[4].present = 0.2
	return []workload{
		{"chain-indep", chain, 0, []float64{0.01, 0.001}},
		{"chain-corr", chain, 0.8, []float64{0.01, 0.001}},
		{"seed-orders", orders, 0, []float64{0.005, 800}},
		{"dag-100ms", dag, 0, []float64{0.005, 100}},
		{"fanout-8", fanout, 0, []float64{0.01}},
		{"heavy-pareto", heavy, 0, []float64{0.01, 0.001}},
		{"nested-15", nested, 0, []float64{0.01, 0.001}},
		{"nested-15-corr", nested, 0.6, []float64{0.01}},
		{"loops-retry-opt", loops, 0, []float64{0.01, 0.001}},
	}
}

// simulation runs a workload.
type simulation struct {
	workload
	rng  *rand.Rand
	load float64
	row  []interval
	self []int64
	tail []int64
}

// run makes n requests.
func (w *workload) run(n int, seed uint64) *profile.Rows {
	s := simulation{
		workload: *w, rng: rand.New(rand.NewPCG(seed, 5)), row: make([]interval, len(w.hops)),
		self: make([]int64, len(w.hops)), tail: make([]int64, len(w.hops)),
	}
	r := &profile.Rows{Hash: make([]uint64, n), Threshold: make([]uint64, n), Started: make([]int64, n)}
	for range w.hops {
		r.Duration = append(r.Duration, make([]int64, n))
		r.Start = append(r.Start, make([]int64, n))
		r.Self = append(r.Self, make([]int64, n))
		r.Tail = append(r.Tail, make([]int64, n))
	}
	for i := range n {
		r.Hash[i], r.Started[i] = s.rng.Uint64(), int64(i)
		s.load = s.rng.NormFloat64()
		for h := range s.row {
			s.row[h], s.self[h], s.tail[h] = absent, -1, -1
		}
		s.call(0, 0)
		for h, call := range s.row {
			r.Duration[h][i], r.Start[h][i] = call.end-call.start, call.start
			r.Self[h][i], r.Tail[h][i] = s.self[h], s.tail[h]
		}
	}
	return r
}

// call runs hop h and all below it from a time on, in ns.
func (s *simulation) call(h int, start int64) (end int64) {
	hop := &s.hops[h]
	times := 1
	if hop.again != nil {
		times = hop.again(s.rng)
	}
	var head, tail int64
	for range times {
		z := math.Sqrt(s.shared)*s.load + math.Sqrt(1-s.shared)*s.rng.NormFloat64()
		own := int64(1e6 * hop.own(s.rng, z))
		head, tail = head+own-own/5, tail+own/5
	}
	end = start + head
	for k := h + 1; k < len(s.hops); k++ {
		child := &s.hops[k]
		if child.parent != h || child.async || s.rng.Float64() >= child.present {
			continue
		}
		at := start + head
		for _, a := range child.after {
			at = max(at, s.row[a].end)
		}
		end = max(end, s.call(k, at))
	}
	end += tail
	s.row[h], s.self[h], s.tail[h] = interval{start, end}, head+tail, tail
	for k := h + 1; k < len(s.hops); k++ {
		if s.hops[k].parent == h && s.hops[k].async {
			s.call(k, end)
		}
	}
	return end
}

// profileOf returns the profile of rows of a workload.
func (w *workload) profileOf(rows *profile.Rows) *profile.Profile {
	p := &profile.Profile{Requests: rows.Len(), Rows: rows, Shrink: 1}
	for h, from := range w.hops {
		hop := profile.Hop{Parent: from.parent, After: from.after, Kind: profile.KindCall}
		switch {
		case h == 0:
			hop.Kind = profile.KindRoot
		case from.async:
			hop.Kind = profile.KindAsync
		}
		p.Hops = append(p.Hops, hop)
	}
	distributions(p)
	return p
}

// distributions fills in those of the rows.
func distributions(p *profile.Profile) {
	rows := p.Rows
	for h := range p.Hops {
		hop := &p.Hops[h]
		var duration, unconditional, self, tail quantile.Sample
		for r, th := range rows.Threshold {
			if d := rows.Duration[h][r]; d >= 0 {
				duration.Add(d, th)
				unconditional.Add(d, th)
				self.Add(rows.Self[h][r], th)
				tail.Add(rows.Tail[h][r], th)
			} else if rows.Duration[hop.Parent][r] >= 0 {
				unconditional.AddZeros(th, 1)
			}
		}
		hop.Duration, hop.Unconditional = duration.Freeze(), unconditional.Freeze()
		hop.Self, hop.Tail = self.Freeze(), tail.Freeze()
	}
	p.Every = p.Hops[0].Duration
}

// budget returns the i-th budget of the workload in ns, that of a miss ratio by
// the given requests.
func (w *workload) budget(i int, rows *profile.Rows) int64 {
	if v := w.budgets[i]; v >= 10 {
		return int64(v * 1e6)
	}
	durations := slices.Clone(rows.Duration[0])
	slices.Sort(durations)
	return durations[int(float64(len(durations))*(1-w.budgets[i]))]
}
