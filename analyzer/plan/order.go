package plan

import "slices"

// Order knows which of the hops that one caller calls end before others start.
type Order struct {
	// Sequence are the indices of the hops that somebody waits for; those that end
	// before others come first.
	Sequence []int
	before   [][]uint64 // by hop: a bit for each that ends before it starts
}

// NewOrder returns the order of the hops of one caller, which must be those of a
// valid plan.
func NewOrder(hops []Hop) *Order {
	sequence, previous, _ := arrange(hops)
	o := &Order{Sequence: sequence, before: make([][]uint64, len(hops))}
	for _, i := range sequence {
		o.before[i] = make([]uint64, (len(hops)+63)/64)
		for _, p := range previous[i] {
			o.before[i][p/64] |= 1 << (p % 64)
			for w, bits := range o.before[p] {
				o.before[i][w] |= bits
			}
		}
	}
	return o
}

// Precedes tells whether somebody waits for hops a and b, and a ends before b
// starts, directly or by others between them.
func (o *Order) Precedes(a, b int) bool {
	return o.before[b] != nil && o.before[b][a/64]&(1<<(a%64)) != 0
}

// Chain returns the hops that take longest one after the other, in their order,
// and the sum of their shares: with the reserve, it is what their caller needs.
// Hops that nobody waits for are in no chain. Of equal chains it is the one
// whose hops stand first. The hops must be those of a valid plan.
//
//	A 8 |-------|
//	B 3          |--|
//	C 20             |-------------------|
//	D 15             |--------------|          beside C: not in the chain
//	E 35                                  |------------ ...
func Chain(hops []Hop) ([]*Hop, Duration) {
	chain, sum, _ := longest(hops)
	return chain, sum
}

// longest returns the longest chain, or a circle in the order: each hop of it
// comes after the next.
func longest(hops []Hop) (chain []*Hop, sum Duration, circle []*Hop) {
	sequence, previous, circle := arrange(hops)
	if circle != nil {
		return nil, 0, circle
	}
	ends := make([]Duration, len(hops)) // longest chain that ends with the hop
	from := make([]int, len(hops))      // the hop before it in that chain, -1 for none
	for _, i := range sequence {
		from[i] = -1
		for _, p := range previous[i] {
			if from[i] < 0 || ends[p] > ends[from[i]] || ends[p] == ends[from[i]] && p < from[i] {
				from[i] = p
			}
		}
		ends[i] = hops[i].Share
		if from[i] >= 0 {
			ends[i] = saturating(ends[i], ends[from[i]])
		}
	}
	last := -1
	for i := range hops {
		if !hops[i].Async && (last < 0 || ends[i] > ends[last]) {
			last = i
		}
	}
	for i := last; i >= 0; i = from[i] {
		chain = append(chain, &hops[i])
		sum = saturating(sum, hops[i].Share)
	}
	slices.Reverse(chain)
	return chain, sum, nil
}

// arrange puts the hops that somebody waits for in a sequence in which those that
// end before others come first, and returns for each the hops that it names in
// After. A hop that excludes another takes no time before it: between the two
// After does not count. circle is a circle in the order, the first hop being the
// last too; then there is no sequence.
func arrange(hops []Hop) (sequence []int, previous [][]int, circle []*Hop) {
	index := make(map[string]int, len(hops))
	for i := range hops {
		if _, twice := index[hops[i].Key()]; !twice && !hops[i].Async {
			index[hops[i].Key()] = i
		}
	}
	previous = make([][]int, len(hops))
	for i := range hops {
		for _, name := range hops[i].After {
			p, known := index[name]
			excluded := known && hops[p].Exclusive != 0 && hops[p].Exclusive == hops[i].Exclusive
			if known && p != i && !excluded {
				previous[i] = append(previous[i], p)
			}
		}
	}
	const (
		fresh = iota
		open  // on the way to the hop that is looked at
		done
	)
	state := make([]uint8, len(hops))
	var way []int
	var visit func(i int) bool
	visit = func(i int) bool {
		state[i] = open
		way = append(way, i)
		for _, p := range previous[i] {
			if state[p] == open {
				for _, on := range way[slices.Index(way, p):] {
					circle = append(circle, &hops[on])
				}
				circle = append(circle, &hops[p])
				return false
			}
			if state[p] == fresh && !visit(p) {
				return false
			}
		}
		state[i] = done
		way = way[:len(way)-1]
		sequence = append(sequence, i)
		return true
	}
	for i := range hops {
		if !hops[i].Async && state[i] == fresh && !visit(i) {
			return nil, nil, circle
		}
	}
	return sequence, previous, nil
}
