package budget

import (
	"math"

	"github.com/latencybudget/latencybudget/analyzer/profile"
)

// shift works out when the calls of one request start and end after some of
// them took more or less time than was recorded. A call that waited for siblings
// keeps its distance from the last of them to end, one that did not keeps it from
// the start of its caller, and a caller ends as long after its last call as it
// did.
//
//	recorded   caller |--|=====a=====|-|==b==|---|
//	a shorter  caller |--|==a==|-|==b==|---|
type shift struct {
	p        *Problem
	planned  []bool
	children [][]int32 // planned, by parent, in order of index
	rows     *profile.Rows
	r        int
	limits   *limitSet
	extra    []float64 // by hop, what its own work takes longer; nil for none

	start, end []float64 // of planned hops, after the start of the request
	cut        float64   // of the request, or of the degradable hop around the calls
	hop        int
	degraded   bool
}

func (s *shift) reset(p *Problem) {
	s.p = p
	s.planned = p.planned(s.planned)
	s.children = make([][]int32, len(p.Hops))
	for h, planned := range s.planned {
		if h > 0 && planned {
			s.children[p.Hops[h].Parent] = append(s.children[p.Hops[h].Parent], int32(h))
		}
	}
	s.start, s.end = make([]float64, len(p.Hops)), make([]float64, len(p.Hops))
}

// run retimes request r under limits.
func (s *shift) run(rows *profile.Rows, r int, limits *limitSet) outcome {
	s.rows, s.r, s.limits = rows, r, limits
	s.cut, s.hop, s.degraded = math.Inf(1), -1, false
	s.place(0, 0, math.Inf(1))
	return outcome{duration: s.end[0], cut: s.cut, hop: s.hop, degraded: s.degraded}
}

// seen returns when a hop ran in the recorded request; false if it did not.
func (s *shift) seen(h int) (from, to float64, ok bool) {
	d := s.rows.Duration[h][s.r]
	from = float64(s.rows.Start[h][s.r])
	return from, from + float64(d), d >= 0
}

// followed tells whether what started at from, and took so long, may have waited
// for a call. Clocks of callees may be off by a little, so half of the shorter
// one may overlap.
func followed(callFrom, callTo, from, took float64) bool {
	return callTo <= from+min(callTo-callFrom, took)/2
}

// place starts a hop and settles all below it. Passed is the deadline that the
// caller passes on.
func (s *shift) place(h int, start, passed float64) {
	from, to, ok := s.seen(h)
	if !ok { // the longest call of the caller is not the one that made these
		s.start[h], s.end[h] = start, start
		from = start
	}
	hop := &s.p.Hops[h]
	deadline := passed
	if ok {
		deadline = min(start+s.limits.Timeouts[h], passed)
	}
	pass := math.Inf(1)
	if s.limits.Propagate {
		pass = deadline - hop.tail()
	}
	degradable := ok && h > 0 && h < len(s.limits.Degradable) && s.limits.Degradable[h]
	outerCut, outerHop := s.cut, s.hop
	if degradable {
		s.cut, s.hop = math.Inf(1), -1
	}

	// When the last of its calls ended, and when it does now.
	before, now := math.Inf(-1), math.Inf(-1)
	for _, c := range s.children[h] {
		s.place(int(c), s.begins(int(c), from, start), pass)
		if callFrom, callTo, made := s.seen(int(c)); made && ok && callFrom >= from && callTo <= to {
			before, now = max(before, callTo), max(now, s.end[c])
		}
	}
	if !ok {
		return
	}
	end := start + (to - from)
	if !math.IsInf(now, -1) {
		end = now + (to - before)
	}
	if s.extra != nil {
		end += s.extra[h]
	}
	s.start[h], s.end[h] = start, end
	at := math.Inf(1) // when it is given up
	switch {
	case s.limits.Propagate && h > 0 && deadline-start < hop.Floor:
		at = start // not sent
	case end > deadline && !s.rows.FailedAt(h, s.r):
		at = deadline
	}
	if degradable {
		at = min(at, s.cut)
		s.cut, s.hop = outerCut, outerHop
		if !math.IsInf(at, 1) {
			s.end[h] = max(at, start)
			s.stop(h)
			s.degraded = true
		}
		return
	}
	if at < s.cut || at == s.cut && h < s.hop {
		s.cut, s.hop = at, h
	}
}

// begins returns when a call starts whose caller started at from and does at
// start.
func (s *shift) begins(c int, from, start float64) float64 {
	callFrom, callTo, ok := s.seen(c)
	if !ok {
		return start
	}
	before, now := math.Inf(-1), math.Inf(-1)
	for _, a := range s.p.Hops[c].After {
		if a >= c || !s.planned[a] || s.p.Hops[a].Parent != s.p.Hops[c].Parent {
			continue
		}
		earlierFrom, earlierTo, made := s.seen(a)
		if made && earlierFrom >= from && followed(earlierFrom, earlierTo, callFrom, callTo-callFrom) {
			before, now = max(before, earlierTo), max(now, s.end[a])
		}
	}
	if math.IsInf(now, -1) {
		return start + (callFrom - from)
	}
	return now + (callFrom - before)
}

// stop ends all that runs below a hop with the hop.
func (s *shift) stop(h int) {
	for _, c := range s.children[h] {
		s.end[c] = min(s.end[c], s.end[h])
		s.stop(int(c))
	}
}
