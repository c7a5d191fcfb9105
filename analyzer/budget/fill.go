package budget

import (
	"math"
	"slices"
	"sort"
)

// tolerance is the relative error that sums along a chain may have.
const tolerance = 1e-12

// chains are the siblings under one parent and their order. Positions are
// counted within the siblings, and predecessors have smaller positions.
type chains struct {
	hops    []int32 // hop index by position
	preds   []int32 // predecessor positions, concatenated
	predsOf []int32 // those of position i are preds[predsOf[i]:predsOf[i+1]]
}

func (c *chains) before(i int) []int32 { return c.preds[c.predsOf[i]:c.predsOf[i+1]] }

// ending fills head with the length of the longest chain that ends with each
// sibling, and returns the longest of all.
func (c *chains) ending(v, head []float64) float64 {
	longest := 0.0
	for i := range c.hops {
		before := 0.0
		for _, p := range c.before(i) {
			before = max(before, head[p])
		}
		head[i] = before + v[i]
		longest = max(longest, head[i])
	}
	return longest
}

// others fills rest with the length of the longest chain through each sibling,
// without the sibling itself.
func (c *chains) others(v, head, rest []float64) {
	c.ending(v, head)
	clear(rest[:len(c.hops)])
	for i := len(c.hops) - 1; i >= 0; i-- {
		after := rest[i]
		rest[i] += head[i] - v[i]
		for _, p := range c.before(i) {
			rest[p] = max(rest[p], after+v[i])
		}
	}
}

// filling is the progressive filling of the siblings under one parent: the
// level t rises, every child demands clamp(base + t*weight, floor, cap), and
// those on a chain that has used up the room stop while the others go on. Only
// chains through a child that still grows count for the next stop; if the
// longest chain of all did, a short branch beside a full one would stop too.
//
// Between two breakpoints (levels where a child leaves its floor or reaches
// its cap) each demand is a line, so the longest chain is convex and Newton's
// method from the right finds the level of the next stop exactly, in about as
// many steps as there are competing chains. There are no absolute tolerances:
// scaling every time by a power of two scales the result bit by bit.
type filling struct {
	floor, cap, base, weight []float64 // the problem, by position

	later       []float64 // weights for when the bases are filled
	v           []float64 // demand at the present level
	frozen      []bool
	start, stop []float64 // levels between which the demand grows
	growth      []float64 // d v / d t between the present breakpoints
	breakpoints []float64
	head, rest  []float64 // lengths of chains, see chains.ending and chains.others
	headGrowth  []float64
	open        []float64 // longest chain that ends here and has a child that is not frozen
	openGrowth  []float64
}

// resize makes room for up to k siblings.
func (f *filling) resize(k int) {
	for _, s := range []*[]float64{
		&f.floor, &f.cap, &f.base, &f.weight, &f.later, &f.v, &f.start, &f.stop, &f.growth,
		&f.head, &f.rest, &f.headGrowth, &f.open, &f.openGrowth,
	} {
		*s = slices.Grow((*s)[:0], k)[:k]
	}
	f.frozen = slices.Grow(f.frozen[:0], k)[:k]
}

// run fills the room; the result is f.v. The floors must fit.
func (f *filling) run(c *chains, room float64) {
	k := len(c.hops)
	clear(f.frozen[:k])
	// The room is a difference, and may by rounding be short of floors that fit.
	room = max(room, c.ending(f.floor, f.head))
	f.demand(k, 0)
	compressed := c.ending(f.v, f.head) > room*(1+tolerance)
	if compressed {
		// Not even the bases fit: compress them instead of adding to them.
		f.weight, f.base, f.later = f.base, f.later, f.weight
		clear(f.base[:k])
	}
	if room == 0 {
		f.demand(k, 0)
		return
	}
	if open := f.grow(c, room, k); compressed && open > 0 {
		// Beside the chains that are full there is room for those without a base.
		f.weight, f.later = f.later, f.weight
		copy(f.base[:k], f.v)
		f.grow(c, room, open)
	}
}

// grow raises the level until everybody is frozen, or at least does not grow any
// more, and returns how many of those that are open are not frozen.
func (f *filling) grow(c *chains, room float64, open int) int {
	k := len(c.hops)
	f.breakpoints = f.breakpoints[:0]
	for i := range k {
		f.start[i], f.stop[i] = math.Inf(1), math.Inf(1)
		if f.weight[i] > 0 {
			f.start[i] = (f.floor[i] - f.base[i]) / f.weight[i]
			f.stop[i] = (f.cap[i] - f.base[i]) / f.weight[i]
		}
		for _, b := range [...]float64{f.start[i], f.stop[i]} {
			if b > 0 && !math.IsInf(b, 1) {
				f.breakpoints = append(f.breakpoints, b)
			}
		}
	}
	slices.Sort(f.breakpoints)

	t, next := 0.0, 0 // breakpoints[next:] may lie above t
	for open > 0 {
		next += sort.Search(len(f.breakpoints)-next, func(i int) bool {
			return f.exceeds(c, f.breakpoints[next+i], room)
		})
		left, right := t, math.Inf(1)
		if next > 0 {
			left = max(left, f.breakpoints[next-1])
		}
		if next < len(f.breakpoints) {
			right = max(left, f.breakpoints[next])
		}
		fastest := 0.0
		for i := range k {
			f.growth[i] = 0
			if !f.frozen[i] && f.start[i] <= left && f.stop[i] >= right {
				f.growth[i] = f.weight[i]
				fastest = max(fastest, f.growth[i])
			}
		}
		if math.IsInf(right, 1) {
			if fastest == 0 { // everybody has all they can get; the rest is head-room
				f.demand(k, left)
				return open
			}
			right = left + room/fastest // here one child alone fills the room
		}
		t = f.stopBetween(c, left, right, room)

		c.others(f.v, f.head, f.rest)
		before := open
		for i := range k {
			if !f.frozen[i] && (f.rest[i]+f.v[i] >= room*(1-tolerance) || f.v[i] >= f.cap[i]) {
				f.frozen[i] = true
				open--
			}
		}
		if open == before { // only by rounding, in a room that rounding fills
			return open
		}
	}
	return 0
}

// demand sets v to the demands at level t, except for those that are frozen.
func (f *filling) demand(k int, t float64) {
	for i := range k {
		if !f.frozen[i] {
			f.v[i] = min(max(f.base[i]+t*f.weight[i], f.floor[i]), f.cap[i])
		}
	}
}

// stopBetween returns the level between left and right, two neighbouring
// breakpoints, where the longest chain through an open child has the length of
// the room, and leaves the demands at that level in v.
func (f *filling) stopBetween(c *chains, left, right, room float64) float64 {
	for t := right; ; {
		f.demand(len(c.hops), t)
		length, growth := f.longestOpen(c)
		if math.Abs(length-room) <= room*tolerance/4 || growth == 0 {
			return t
		}
		// From the right Newton's method does not cross the solution, but a step
		// may do so by rounding, where the room is small against the demand.
		if length > room {
			right = t
		} else {
			left = t
		}
		next := t - (length-room)/growth
		if !(next > left && next < right) {
			next = left + (right-left)/2
		}
		if next == left || next == right {
			return t
		}
		t = next
	}
}

// exceeds tells whether some chain through a child that is not frozen is longer
// than the room at level t. It is longestOpen of the demands there, without more
// of it than the answer takes.
func (f *filling) exceeds(c *chains, t, room float64) bool {
	for i := range c.hops {
		head, open := 0.0, math.Inf(-1)
		for _, p := range c.before(i) {
			if f.head[p] > head {
				head = f.head[p]
			}
			if f.open[p] > open {
				open = f.open[p]
			}
		}
		if v := f.v[i]; f.frozen[i] {
			f.head[i], f.open[i] = head+v, open+v
		} else {
			f.head[i] = head + min(max(f.base[i]+t*f.weight[i], f.floor[i]), f.cap[i])
			f.open[i] = f.head[i]
		}
		if f.open[i] > room {
			return true
		}
	}
	return false
}

// longestOpen returns the length of the longest chain through a child that is
// not frozen, and how fast it grows with the level.
func (f *filling) longestOpen(c *chains) (length, growth float64) {
	for i := range c.hops {
		head, headGrowth := 0.0, 0.0
		open, openGrowth := math.Inf(-1), 0.0
		for _, p := range c.before(i) {
			if f.head[p] > head {
				head, headGrowth = f.head[p], f.headGrowth[p]
			}
			if f.open[p] > open {
				open, openGrowth = f.open[p], f.openGrowth[p]
			}
		}
		f.head[i], f.headGrowth[i] = head+f.v[i], headGrowth+f.growth[i]
		if f.frozen[i] {
			f.open[i], f.openGrowth[i] = open+f.v[i], openGrowth
		} else {
			f.open[i], f.openGrowth[i] = f.head[i], f.headGrowth[i]
		}
		if f.open[i] > length {
			length, growth = f.open[i], f.openGrowth[i]
		}
	}
	return length, growth
}
