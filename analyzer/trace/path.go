package trace

import (
	"cmp"
	"slices"
)

// Node is one node of a tree of work in which parents wait for their children.
// Nodes stand in preorder; node 0 is the root.
type Node struct {
	Parent     int32 // index; -1 for the root
	Start, End int64 // ns
}

// Segment is a piece of the critical path: from Start to End the request waited
// for the own work of Node and for nothing below it.
type Segment struct {
	Node       int32
	Start, End int64
}

// OwnTime is what a node spent without any child running, ns.
//
//	node   |--head--|======|-mid-|=======|--tail--|
//	child           |------|     |-------|
type OwnTime struct {
	Self   int64 // duration minus the union of the children, clipped to the node
	Tail   int64 // after the last child ended; equal to Self where none ran
	Waited bool  // at least one child ran inside the node
}

// Walker computes critical paths and own times. Its buffers are reused, so the
// results of a call are valid until the next.
type Walker struct {
	children childIndex
	frames   []frame
	segments []Segment
	own      []OwnTime
}

type frame struct {
	node       int32
	next, last int32 // children still to be looked at: list[next:last]
	lo, hi     int64 // the window that the path spends in this node
	cur        int64 // everything from cur to hi is explained
}

// pathTolerance is the share of its window by which a child may end after the
// point reached and still count as the one that was waited for: clocks of one
// process are read at slightly different instants.
const pathTolerance = 100 // 1/100

// CriticalPath returns segments that tile the root's interval exactly, latest
// first. From the end of a node's window it goes back to the child that ended
// last, into that child, and on from the child's start:
//
//	R  |-----|          |-----|----|         R waits for c, then for b
//	b     |--------------|                    (a ended before b did: it is not
//	a     |-----|                              on the path)
//	c                    |----|
//
// Among the unused children with min(end, hi) <= cur + 1 % of the window that
// also start before cur, the one with the latest end is taken. All that reach
// cur tie; ties go to the earliest start, then to the order of the nodes. A
// child that runs over its parent's end is clipped; one outside the parent's
// window is not on the path.
// O(n log n), without recursion.
func (w *Walker) CriticalPath(nodes []Node) []Segment {
	w.segments = w.segments[:0]
	if len(nodes) == 0 || nodes[0].End <= nodes[0].Start {
		return w.segments
	}
	w.children.build(len(nodes), func(i int) int32 { return nodes[i].Parent })
	w.frames = append(w.frames[:0], w.enter(nodes, 0, nodes[0].Start, nodes[0].End))
	for len(w.frames) > 0 {
		f := &w.frames[len(w.frames)-1]
		child, end := f.step(nodes, w.children.list)
		if child < 0 {
			w.emit(f.node, f.lo, f.cur)
			w.frames = w.frames[:len(w.frames)-1]
			continue
		}
		w.emit(f.node, end, f.cur)
		f.cur = max(nodes[child].Start, f.lo)
		w.frames = append(w.frames, w.enter(nodes, child, f.cur, end))
	}
	return w.segments
}

func (w *Walker) emit(node int32, start, end int64) {
	if start < end {
		w.segments = append(w.segments, Segment{node, start, end})
	}
}

// enter sorts the children of a node for its window: by clipped end, the latest
// first. The point reached only moves back, so one pass over them is enough.
func (w *Walker) enter(nodes []Node, node int32, lo, hi int64) frame {
	first, last := w.children.start[node], w.children.start[node+1]
	slices.SortFunc(w.children.of(node), func(a, b int32) int {
		return cmp.Or(
			cmp.Compare(min(nodes[b].End, hi), min(nodes[a].End, hi)),
			cmp.Compare(nodes[a].Start, nodes[b].Start),
			cmp.Compare(a, b))
	})
	return frame{node: node, next: first, last: last, lo: lo, hi: hi, cur: hi}
}

// step returns the next child to wait for and where the wait ends, or -1. Of
// the children that reach cur it takes the one that started first; the others
// start at the new cur or later, so that they need not be looked at again.
func (f *frame) step(nodes []Node, list []int32) (child int32, end int64) {
	tolerance := (f.hi - f.lo) / pathTolerance
	child = -1
	for ; f.next < f.last && f.cur > f.lo; f.next++ {
		c := list[f.next]
		n := nodes[c]
		reach := min(n.End, f.hi)
		if reach < f.cur && child >= 0 {
			break
		}
		if reach > f.cur+tolerance || n.End <= f.lo || n.Start >= n.End || n.Start >= f.cur {
			continue
		}
		if reach < f.cur {
			f.next++
			return c, reach
		}
		if child < 0 || cmp.Or(cmp.Compare(n.Start, nodes[child].Start), cmp.Compare(c, child)) < 0 {
			child, end = c, f.cur
		}
	}
	return child, end
}

// OwnTimes returns the own time of every node.
func (w *Walker) OwnTimes(nodes []Node) []OwnTime {
	w.own = append(w.own[:0], make([]OwnTime, len(nodes))...)
	if len(nodes) == 0 {
		return w.own
	}
	w.children.build(len(nodes), func(i int) int32 { return nodes[i].Parent })
	byStart := func(a, b int32) int { return cmp.Compare(nodes[a].Start, nodes[b].Start) }
	for i, n := range nodes {
		children := w.children.of(int32(i))
		if !slices.IsSortedFunc(children, byStart) {
			slices.SortFunc(children, byStart)
		}
		covered, until := int64(0), n.Start
		inside := false
		for _, c := range children {
			from, to := max(nodes[c].Start, until), min(nodes[c].End, n.End)
			inside = inside || nodes[c].Start < n.End && to >= n.Start
			if to >= from && from < n.End {
				covered += to - from
				until = to
			}
		}
		own := OwnTime{Self: n.End - n.Start - covered, Waited: inside}
		own.Tail = n.End - until
		w.own[i] = own
	}
	return w.own
}
