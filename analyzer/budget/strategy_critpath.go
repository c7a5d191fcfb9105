package budget

import (
	"math"
	"slices"
)

// CriticalPath shares time by how long each hop, with all below it, was on the
// critical path of the slowest 5 % of the requests. It shows where slow requests
// spend their time. As a plan it starves the hops that are seldom slow, so it is
// never recommended.
type CriticalPath struct{}

var _ Strategy = CriticalPath{}

// Name returns "critpath".
func (CriticalPath) Name() string { return "critpath" }

// leastPart is the part of its P99 that a hop weighs at least in what is learned
// from requests, so that nobody is left without a share by chance.
const leastPart = 0.001

func (c CriticalPath) demand(s *solver, budget float64) (Strategy, string) {
	if s.p.Training == nil {
		return orDefault(s, budget, "critpath needs whole requests, and there are none")
	}
	if !s.pathsKnown {
		s.walkPaths()
	}
	for _, h := range s.kids {
		s.base[h], s.weight[h] = 0, max(s.paths[h], leastPart*s.p.Hops[h].Weight)
	}
	return c, ""
}

// walkPaths fills paths with the mean time in ns that each hop was on the
// critical path of the requests from the P95 on. A row holds the longest
// operation of a hop, so that the other ones of a repeated hop count as the
// caller's own time.
func (s *solver) walkPaths() {
	t := s.p.Training
	s.paths = slices.Grow(s.paths[:0], len(s.p.Hops))[:len(s.p.Hops)]
	clear(s.paths)
	s.pathsKnown = true
	var total int64
	order := t.order(0)
	for _, r := range order {
		if t.has(r) {
			total += t.weight[r]
		}
	}
	var seen, weight int64 // from the slowest request on; the P95 itself and its equals are in
	last := int64(math.MaxInt64)
	for _, r := range slices.Backward(order) {
		d := t.rows.Duration[0][r]
		if d < last && seen > total/20 {
			break
		}
		if t.has(r) {
			s.path(0, int(r), 0, d, float64(t.weight[r]))
			weight += t.weight[r]
			seen += t.weight[r]
			last = d
		}
	}
	for h := range s.paths {
		s.paths[h] /= float64(max(weight, 1))
	}
}

// path walks back from the end of an operation over the children that ended
// last, and adds to paths the time that each is waited for. Here a is found at
// the end of b's time, and c not at all, since it still runs when b starts.
//
//	low |--------------------------------------------| high
//	a       |---------|
//	b                  |---------------|
//	c             |-------|
func (s *solver) path(n, r int, low, high int64, weight float64) {
	rows := s.p.Training.rows
	tolerance := (high - low) / 100
	for at := high; at > low; {
		next, end, start := int32(-1), int64(0), int64(0)
		for _, k := range s.children(n).hops {
			d := rows.Duration[k][r]
			if d < 0 {
				continue
			}
			from := rows.Start[k][r]
			to := from + d
			if min(to, high) > at+tolerance || to <= low || from >= to || from >= at {
				continue
			}
			if e := min(to, at); next < 0 || e > end || e == end && from < start {
				next, end, start = k, e, from
			}
		}
		if next < 0 {
			return
		}
		from := max(start, low)
		s.paths[next] += weight * float64(end-from)
		s.path(int(next), r, from, end, weight)
		at = from
	}
}
