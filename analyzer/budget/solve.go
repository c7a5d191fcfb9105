package budget

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Warning is something about one hop that the reader of a solution should know.
type Warning struct {
	Hop  int
	Text string // one clause without the name of the hop
}

// Solution is a split. Slices are indexed like Problem.Hops and hold ns; a hop
// without a budget has 0 in all of them.
type Solution struct {
	// Feasible tells whether the budget holds the floors and the medians of own
	// time. Where it does not, there are no shares, no caps and no worst case.
	Feasible bool
	// Strategy is the name of the one that made the split: another than was
	// asked for where that one lacks data, which Warnings then says.
	Strategy string
	// MinBudget is the least feasible budget, rounded up to the quantum.
	MinBudget float64
	// Binding are the hops of the chain that sets MinBudget, parents before
	// children, where the problem is infeasible. It is the endpoint alone where
	// the endpoint's own floor is larger than its calls need.
	Binding []int
	// Least is the least budget of each hop: its floor, or what its sub-tree needs.
	Least []float64

	// SelfLevel is the percentile at which own time is reserved: 90, or the
	// largest down to 50 that fits in the budget.
	SelfLevel int
	// Share is the strict partition. Its values are multiples of the quantum,
	// rounded down, except where that would be 0 or less than Least.
	Share []float64
	// RawShare is Share before rounding.
	RawShare []float64
	// Cap is the timeout where the remaining deadline is passed on, rounded
	// like Share. It is at least Share and at most the parent's Cap.
	Cap []float64
	// Reserve is what each hop keeps from its children in RawShare.
	Reserve []float64
	// OnSaturatedChain tells which hops are on a chain that uses up what the
	// parent has; the others are held by a limit.
	OnSaturatedChain []bool
	// WorstCase is the longest chain of caps under the endpoint: what its calls
	// can take if nobody passes the deadline on.
	WorstCase float64

	Warnings []Warning // in order of hops
}

// Solve splits the budget, in ns, over the hops of the problem. The result
// depends on nothing else, keeps every constraint (chains of shares and the
// reserve within the parent's share; floors; limits, where a floor that is
// larger wins), and scales with the times of the problem.
func Solve(p *Problem, budget float64, strategy Strategy) Solution {
	var s solver
	var solution Solution
	s.reset(p)
	s.solve(budget, strategy, &solution)
	return solution
}

// QuantumFor returns the step of printed and planned values for an endpoint
// with the given budget, all in ns: 1 ms from 200 ms on, 0.1 ms from 10 ms on,
// 10 us from 1 ms on, and below a hundredth of the budget's power of ten.
func QuantumFor(budget int64) int64 {
	switch {
	case budget >= int64(200*time.Millisecond):
		return int64(time.Millisecond)
	case budget >= int64(10*time.Millisecond):
		return int64(100 * time.Microsecond)
	}
	quantum := int64(10 * time.Microsecond)
	for from := int64(time.Millisecond); budget < from && quantum > 1; from /= 10 {
		quantum /= 10
	}
	return quantum
}

// saturation is the part of the parent's share that a chain may leave unused
// and still count as saturated.
const saturation = 1e-9

// solver holds the structure of a problem and memory for its solutions, so that
// it can be solved for many budgets.
type solver struct {
	p       *Problem
	planned []bool  // hops that get a budget
	kids    []int32 // planned hops by parent, in order of index
	kidsOf  []int32 // those of hop h are kids[kidsOf[h]:kidsOf[h+1]]
	place   []int32 // position among the siblings, by hop
	preds   []int32
	predsOf []int32 // by position in kids
	chained []bool  // by hop: it shares a chain with a sibling

	level  int       // percentile at which own time is reserved
	least  []float64 // effective floors at that level
	median []float64 // the same with own time at P50
	most   []float64 // effective limits
	pooled []float64
	base   []float64
	weight []float64
	box    []float64 // what a strategy wants every hop to have

	optimiser  *optimiser // made when it is needed
	paths      []float64  // by hop, see walkPaths
	pathsKnown bool
	quantiles  []float64 // by hop and level, see tabulate; empty until they are needed
	sets       []uint64
	required   []uint64
	filling    filling
}

// reset prepares for problem p.
func (s *solver) reset(p *Problem) {
	s.p = p
	s.quantiles, s.pathsKnown = s.quantiles[:0], false
	n := len(p.Hops)
	s.planned = p.planned(s.planned)
	for _, f := range []*[]float64{&s.least, &s.median, &s.most, &s.pooled, &s.base, &s.weight, &s.box} {
		*f = slices.Grow((*f)[:0], n)[:n]
	}
	s.kidsOf = slices.Grow(s.kidsOf[:0], n+1)[:n+1]
	s.place = slices.Grow(s.place[:0], n)[:n]
	clear(s.kidsOf)
	kids := 0
	for i := range p.Hops {
		h := &p.Hops[i]
		if i > 0 && s.planned[i] {
			s.kidsOf[h.Parent+1]++
			kids++
		}
	}
	for i := range n {
		s.kidsOf[i+1] += s.kidsOf[i]
	}
	s.kids = slices.Grow(s.kids[:0], kids)[:kids]
	clear(s.place)
	for i := 1; i < n; i++ {
		if s.planned[i] {
			parent := p.Hops[i].Parent
			s.kids[s.kidsOf[parent]+s.place[parent]] = int32(i)
			s.place[parent]++ // for now the number of its children so far
		}
	}
	for i, h := range s.kids {
		s.place[h] = int32(i) - s.kidsOf[p.Hops[h].Parent]
	}
	s.chained = slices.Grow(s.chained[:0], n)[:n]
	clear(s.chained)
	s.preds = s.preds[:0]
	s.predsOf = append(s.predsOf[:0], 0)
	widest := 0
	for h := range n {
		s.order(h)
		widest = max(widest, len(s.children(h).hops))
	}
	s.filling.resize(widest)
}

// order appends the predecessors of the children of a hop, without those that
// follow from others: a before b before c says all about a and c, and a long
// sequence of calls then costs a step a call.
func (s *solver) order(parent int) {
	group := s.kids[s.kidsOf[parent]:s.kidsOf[parent+1]]
	words := (len(group) + 63) / 64
	// sets[i] are the positions that end before position i starts, by any path.
	s.sets = slices.Grow(s.sets[:0], len(group)*words)[:len(group)*words]
	clear(s.sets)
	s.required = slices.Grow(s.required[:0], words)[:words]
	for i, h := range group {
		hop := &s.p.Hops[h]
		clear(s.required)
		for _, a := range hop.After {
			if a > 0 && a < int(h) && s.planned[a] && s.p.Hops[a].Parent == parent &&
				(hop.Slot == 0 || s.p.Hops[a].Slot != hop.Slot) {
				s.required[s.place[a]/64] |= 1 << (s.place[a] % 64)
			}
		}
		reached := s.sets[i*words : (i+1)*words]
		for w := words - 1; w >= 0; w-- {
			for s.required[w] != 0 {
				bit := bits.Len64(s.required[w]) - 1
				s.required[w] &^= 1 << bit
				if reached[w]&(1<<bit) != 0 {
					continue
				}
				a := w*64 + bit
				s.preds = append(s.preds, int32(a))
				s.chained[h], s.chained[group[a]] = true, true
				reached[w] |= 1 << bit
				for v, set := range s.sets[a*words : (a+1)*words] {
					reached[v] |= set
				}
			}
		}
		s.predsOf = append(s.predsOf, int32(len(s.preds)))
	}
}

// children returns the planned children of a hop.
func (s *solver) children(h int) chains {
	from, to := s.kidsOf[h], s.kidsOf[h+1]
	return chains{hops: s.kids[from:to], preds: s.preds, predsOf: s.predsOf[from : to+1]}
}

// gather fills v with the values of the children, by position, and returns it.
func gather(v []float64, c *chains, values []float64) []float64 {
	for i, h := range c.hops {
		v[i] = values[h]
	}
	return v
}

// minimum fills least with the least budget of each hop, with own time reserved
// at the given percentile, and returns the endpoint's.
func (s *solver) minimum(level int, least []float64) float64 {
	for i := len(s.p.Hops) - 1; i >= 0; i-- {
		least[i] = 0
		if !s.planned[i] {
			continue
		}
		h := &s.p.Hops[i]
		least[i] = max(h.Floor, 0)
		if c := s.children(i); len(c.hops) > 0 {
			v := gather(s.filling.v, &c, least)
			least[i] = max(least[i], h.need(c.ending(v, s.filling.head), level))
		}
	}
	return least[0]
}

// fits tells whether a least budget is within the budget.
func fits(least, budget float64) bool { return least <= budget*(1+tolerance) }

func (s *solver) solve(budget float64, strategy Strategy, out *Solution) {
	n := len(s.p.Hops)
	for _, f := range []*[]float64{&out.Least, &out.Share, &out.RawShare, &out.Cap, &out.Reserve} {
		*f = slices.Grow((*f)[:0], n)[:n]
		clear(*f)
	}
	out.OnSaturatedChain = slices.Grow(out.OnSaturatedChain[:0], n)[:n]
	clear(out.OnSaturatedChain)
	out.Binding, out.Warnings = out.Binding[:0], out.Warnings[:0]
	out.Feasible, out.MinBudget, out.SelfLevel, out.WorstCase = false, 0, 0, 0
	out.Strategy = ""
	if n == 0 {
		return
	}

	least := s.minimum(minSelfLevel, s.median)
	copy(out.Least, s.median)
	out.MinBudget = roundUp(least, s.p.Quantum)
	if !fits(least, budget) {
		if out.Binding = s.binding(0, out.Binding); len(out.Binding) == 0 {
			out.Binding = append(out.Binding, 0)
		}
		return
	}
	out.Feasible = true
	s.level = s.selfLevel(budget)
	out.SelfLevel = s.level
	if out.SelfLevel < maxSelfLevel {
		out.Warnings = append(out.Warnings, Warning{0, fmt.Sprintf("tight: own time reserved at P%d", out.SelfLevel)})
	}
	for i := range s.p.Hops {
		if i == 0 || !s.planned[i] {
			continue
		}
		h := &s.p.Hops[i]
		s.most[i] = max(h.limit(budget), s.least[i])
		if limit := h.limit(budget); limit < s.least[i] {
			out.Warnings = append(out.Warnings, Warning{i, limitText(h, limit, s.least[i])})
		}
	}

	used, lacking := strategy.demand(s, budget)
	out.Strategy = used.Name()
	if lacking != "" {
		out.Warnings = slices.Insert(out.Warnings, 0, Warning{0, lacking})
	}

	s.partition(budget, s.most, out.RawShare, out)
	if s.p.Quantum > 0 {
		// Again from the top, so that the rounded children of every hop fit in
		// its rounded share.
		s.partition(budget, out.RawShare, out.Share, nil)
	} else {
		copy(out.Share, out.RawShare)
	}
	s.caps(budget, out)
}

// limitText says why a limit does not hold.
func limitText(h *Hop, limit, least float64) string {
	if h.Floor > limit {
		return fmt.Sprintf("limit %v is below the floor %v: the floor wins", time.Duration(limit), time.Duration(h.Floor))
	}
	return fmt.Sprintf("limit %v is below the %v that its calls need: the calls win", time.Duration(limit), time.Duration(least))
}

// selfLevel returns the largest percentile, one for all hops, at which own time
// fits in the budget, and leaves the effective floors at that level in s.least.
// That of the median is known to fit.
func (s *solver) selfLevel(budget float64) int {
	if fits(s.minimum(maxSelfLevel, s.least), budget) {
		return maxSelfLevel
	}
	low, high := minSelfLevel, maxSelfLevel // low fits, high does not
	for high-low > 1 {
		if middle := (low + high) / 2; fits(s.minimum(middle, s.least), budget) {
			low = middle
		} else {
			high = middle
		}
	}
	s.minimum(low, s.least)
	return low
}

// partition fills share from the top down. Details, if any, receive reserves and
// saturated chains; without them every share is rounded before it is split.
func (s *solver) partition(budget float64, limit, share []float64, details *Solution) {
	share[0] = budget
	f := &s.filling
	for n := range s.p.Hops {
		c := s.children(n)
		if !s.planned[n] || len(c.hops) == 0 {
			continue
		}
		room, reserve := s.divide(n, &c, limit, share)
		if details == nil {
			for _, h := range c.hops {
				share[h] = roundDown(share[h], s.p.Quantum, s.least[h])
			}
		} else {
			details.Reserve[n] = reserve
			c.others(f.v, f.head, f.rest)
			for i, h := range c.hops {
				details.OnSaturatedChain[h] = f.rest[i]+f.v[i] >= room-saturation*share[n]
			}
		}
	}
}

// divide fills in the shares of the children of hop n from its own, and returns
// what it has for them and what it keeps.
func (s *solver) divide(n int, c *chains, limit, share []float64) (room, reserve float64) {
	f := &s.filling
	reserve = s.p.Hops[n].reserve(share[n], s.level)
	room = max(share[n]-reserve, 0)
	gather(f.floor, c, s.least)
	gather(f.cap, c, limit)
	gather(f.base, c, s.base)
	gather(f.weight, c, s.weight)
	f.run(c, room)
	for i, h := range c.hops {
		share[h] = f.v[i]
	}
	return room, reserve
}

// caps fills in the caps. A hop may use what is left after the floors of the
// others on its longest chain and the reserve at run time.
func (s *solver) caps(budget float64, out *Solution) {
	f := &s.filling
	s.pooled[0] = budget
	raw := s.most // of no further use
	raw[0], out.Cap[0] = budget, budget
	for n := range s.p.Hops {
		c := s.children(n)
		if !s.planned[n] || len(c.hops) == 0 {
			continue
		}
		room := s.pooled[n] - s.p.Hops[n].tail()
		floors := gather(f.v, &c, s.median)
		c.others(floors, f.head, f.rest)
		for i, k := range c.hops {
			h := &s.p.Hops[k]
			s.pooled[k] = max(room-f.rest[i], out.RawShare[k])
			limit := min(s.pooled[k], h.limit(budget), raw[n])
			if s.p.Kappa > 0 {
				limit = min(limit, s.p.Kappa*h.P99)
			}
			raw[k] = max(limit, out.RawShare[k])
			out.Cap[k] = raw[k]
			if s.p.Quantum > 0 {
				rounded := min(roundDown(raw[k], s.p.Quantum, 0), out.Cap[n])
				out.Cap[k] = max(rounded, out.Share[k])
			}
		}
	}
	if c := s.children(0); len(c.hops) > 0 {
		out.WorstCase = c.ending(gather(f.v, &c, out.Cap), f.head)
	}
}

// binding appends the hops of the longest chain of least budgets under h, each
// followed by the chain below it; nothing where the floor of h is what binds.
func (s *solver) binding(h int, chain []int) []int {
	c := s.children(h)
	f := &s.filling
	hop := &s.p.Hops[h]
	if len(c.hops) == 0 {
		return chain
	}
	longest := c.ending(gather(f.v, &c, s.median), f.head)
	if hop.need(longest, minSelfLevel) < hop.Floor {
		return chain
	}
	var path []int32 // from the last hop to the first
	for at := slices.Index(f.head[:len(c.hops)], longest); at >= 0; {
		path = append(path, c.hops[at])
		before := -1
		for _, p := range c.before(at) {
			if before < 0 || f.head[p] > f.head[before] {
				before = int(p)
			}
		}
		at = before
	}
	for _, k := range slices.Backward(path) {
		chain = s.binding(int(k), append(chain, int(k)))
	}
	return chain
}

// roundDown returns the largest multiple of the quantum that is not above v,
// but for the error of v itself; v where that is 0, and never less than the
// floor.
func roundDown(v, quantum, floor float64) float64 {
	rounded := math.Floor(v/quantum*(1+10*tolerance)) * quantum
	if rounded <= 0 {
		rounded = v
	}
	return max(rounded, floor)
}

// roundUp returns the smallest multiple of the quantum that holds v.
func roundUp(v, quantum float64) float64 {
	if quantum <= 0 {
		return v
	}
	return math.Ceil(v/quantum*(1-tolerance)) * quantum
}
