package budget

import (
	"math"
	"slices"
)

// peeling gives up requests, those first that cost the most budget for their
// weight, until every hop can have the longest call of those that are left.
//
// A column is what requests are given up by: one hop, or a group of siblings
// that run beside each other, whose slot only shrinks where all of them do.
type peeling struct {
	*optimiser
	columns [][]int32
	offers  []offer // by column
	limited []int32 // hops with a limit that call others
	dead    []int32 // by row: -1 given up; the number of the try that would give it up; else it is left
	tries   int32

	left, tried reach
	dirty       []bool // hops whose box is to be computed again
	binds       []bool // hops on a chain that needs all that is needed
}

// offer is what a column was found to gain when it was last tried. It changes
// little while requests are given up by others, so only the best one is tried
// again before it is taken.
type offer struct {
	count  int     // requests to give up
	gain   float64 // budget for each unit of their weight; +Inf before the first try
	tested int     // step of that try
}

// reach is what a set of requests that are left needs.
type reach struct {
	top    []int     // by hop: place in its column of the longest call, -1 if none
	long   []int64   // duration of that call, 0 if none
	box    []float64 // least share that holds the hop's calls, and its own children's boxes
	needed float64   // budget that holds all
}

func (r *reach) resize(n int) {
	r.top = slices.Grow(r.top[:0], n)[:n]
	r.long = slices.Grow(r.long[:0], n)[:n]
	r.box = slices.Grow(r.box[:0], n)[:n]
}

func (r *reach) copy(from *reach) {
	copy(r.top, from.top)
	copy(r.long, from.long)
	copy(r.box, from.box)
}

// atOnce: at most one request of so many is given up in one step.
const atOnce = 50

// peel leaves in the solver's base and weight the boxes of the requests that are
// left at the end, so that filling shares out what remains in proportion.
func (f *optimiser) peel() {
	p := &f.peeling
	p.optimiser = f
	p.begin()
	for step := 1; p.left.needed > f.budget*(1+tolerance); step++ {
		p.bind()
		if column := p.best(step); column >= 0 {
			p.drop(column, p.offers[column].count)
		} else if !p.dropHeaviest() {
			break
		}
	}
	for _, h := range f.s.kids {
		f.s.base[h], f.s.weight[h] = p.left.box[h], f.weigh(h, p.left.box[h])
	}
}

// best returns the column that gains the most in this step, -1 if none gains
// anything.
func (p *peeling) best(step int) int {
	for {
		column, most := -1, 0.0
		for c := range p.offers {
			if !p.matters(c) {
				continue
			}
			o := &p.offers[c]
			gain := o.gain
			if gain == 0 && o.tested != step {
				gain = math.Inf(1) // what stood in the way may be gone
			}
			if gain > most {
				column, most = c, gain
			}
		}
		if column < 0 || p.offers[column].tested == step {
			return column
		}
		count, gain := p.gain(column)
		p.offers[column] = offer{count, gain, step}
	}
}

// begin starts with all requests that are within the budget and every limit.
func (p *peeling) begin() {
	s, n := p.s, len(p.s.p.Hops)
	p.left.resize(n)
	p.tried.resize(n)
	p.dirty = slices.Grow(p.dirty[:0], n)[:n]
	p.binds = slices.Grow(p.binds[:0], n)[:n]
	p.columns, p.limited = p.columns[:0], p.limited[:0]
	for i, h := range s.kids {
		p.columns = append(p.columns, s.kids[i:i+1])
		if s.kidsOf[h+1] > s.kidsOf[h] && !math.IsInf(s.most[h], 1) {
			p.limited = append(p.limited, h)
		}
		p.set(h, s.most[h])
	}
	for h := range n {
		if c := s.children(h); len(c.hops) > 1 {
			p.columns = append(p.columns, c.groups()...)
		}
	}
	p.offers = p.offers[:0]
	for range p.columns {
		p.offers = append(p.offers, offer{gain: math.Inf(1)})
	}
	p.tries = 1
	p.dead = slices.Grow(p.dead[:0], len(p.weight))[:len(p.weight)]
	for r, w := range p.weight {
		p.dead[r] = 0
		if w == 0 || p.over[r] > 0 {
			p.dead[r] = -1
		}
	}
	for h := range n {
		p.left.top[h], p.left.long[h], p.left.box[h] = -1, -1, 0
		p.dirty[h] = s.planned[h]
	}
	for _, h := range s.kids {
		p.left.top[h] = len(p.t.order(int(h))) - 1
	}
	p.settle(&p.left)
}

// settle moves the tops to calls of requests that are left, and the boxes and
// what is needed with them. Only hops whose longest call is another are computed
// again, and those above them.
func (p *peeling) settle(r *reach) {
	s := p.s
	for _, h := range s.kids {
		r.top[h] = p.next(h, r.top[h])
		if long := p.duration(h, r.top[h]); long != r.long[h] {
			r.long[h], p.dirty[h] = long, true
		}
	}
	for i := len(s.p.Hops) - 1; i >= 0; i-- {
		if !p.dirty[i] {
			continue
		}
		p.dirty[i] = false
		box := max(s.least[i], float64(r.long[i]))
		if c := s.children(i); len(c.hops) > 0 {
			v := gather(s.filling.v, &c, r.box)
			box = max(box, s.p.Hops[i].need(c.ending(v, s.filling.head), s.level))
		}
		if box != r.box[i] && i > 0 {
			p.dirty[s.p.Hops[i].Parent] = true
		}
		r.box[i] = box
	}
	r.needed = r.box[0]
	for _, h := range p.limited { // in proportion, where children need more than a limit
		r.needed = max(r.needed, p.budget*(r.box[h]/s.most[h]))
	}
}

// bind finds the hops that what is needed depends on.
func (p *peeling) bind() {
	s, r := p.s, &p.left
	clear(p.binds)
	p.binds[0] = r.box[0] >= r.needed*(1-tolerance)
	for _, h := range p.limited {
		p.binds[h] = p.budget*(r.box[h]/s.most[h]) >= r.needed*(1-tolerance)
	}
	f := &s.filling
	for n := range s.p.Hops {
		c := s.children(n)
		if !p.binds[n] || len(c.hops) == 0 {
			continue
		}
		box := gather(f.v, &c, r.box)
		c.others(box, f.head, f.rest)
		longest := slices.Max(f.head[:len(c.hops)])
		if s.p.Hops[n].need(longest, s.level) < r.box[n]*(1-tolerance) {
			continue // its own calls or its floor need more
		}
		for i, h := range c.hops {
			p.binds[h] = p.binds[h] || f.rest[i]+box[i] >= longest*(1-tolerance)
		}
	}
}

// matters tells whether giving up requests by a column can gain anything: its
// hops are on a chain that binds and, one alone, by its own calls.
func (p *peeling) matters(column int) bool {
	members := p.columns[column]
	if h := members[0]; len(members) == 1 {
		return p.binds[h] && float64(p.left.long[h]) >= p.left.box[h]*(1-tolerance)
	}
	return slices.ContainsFunc(members, func(h int32) bool { return p.binds[h] })
}

// next returns the place, from a place downwards, of the longest call of a hop
// in a request that is left, also after the present try; -1 if there is none.
func (p *peeling) next(h int32, at int) int {
	order := p.t.order(int(h))
	for at >= 0 && (p.dead[order[at]] < 0 || p.dead[order[at]] == p.tries) {
		at--
	}
	return at
}

func (p *peeling) duration(h int32, at int) int64 {
	if at < 0 {
		return 0
	}
	return p.t.rows.Duration[h][p.t.order(int(h))[at]]
}

// take gives up, in the present try, the request with the longest call of a
// column, if that takes at least so long. It returns its row, -1 if none.
func (p *peeling) take(column []int32, atLeast int64) (row int32, duration int64) {
	row, duration = -1, atLeast-1
	for _, h := range column {
		at := p.next(h, p.tried.top[h])
		p.tried.top[h] = at
		if long := p.duration(h, at); at >= 0 && long > duration {
			row, duration = p.t.order(int(h))[at], long
		}
	}
	if row >= 0 {
		p.dead[row] = p.tries
	}
	return row, duration
}

// gain returns how many requests to give up by a column, and how much less
// budget is then needed for each unit of their weight; 0 where nothing is gained.
func (p *peeling) gain(column int) (count int, best float64) {
	p.tries++
	p.tried.copy(&p.left)
	members := p.columns[column]
	most := max(p.count/atOnce, 1)
	weight, n := 0.0, 0
	for check := 1; n < most; check = min(n+1+n/2, most) {
		before, shortest := n, int64(0)
		for {
			atLeast := int64(0)
			if n >= check {
				atLeast = shortest // equal calls go together
			}
			row, duration := p.take(members, atLeast)
			if row < 0 {
				break
			}
			n++
			weight += float64(p.weight[row])
			shortest = duration
		}
		if n == before {
			break // none is left
		}
		p.settle(&p.tried)
		if gain := (p.left.needed - max(p.tried.needed, p.budget)) / weight; gain > best {
			count, best = n, gain
		}
		if p.tried.needed <= p.budget {
			break
		}
	}
	return count, best
}

// drop gives up so many requests by a column.
func (p *peeling) drop(column, count int) {
	p.tries++
	p.tried.copy(&p.left)
	for range count {
		row, _ := p.take(p.columns[column], 0)
		p.dead[row] = -1
	}
	p.settle(&p.left)
}

// dropHeaviest gives up, where no column gains anything, the one of the requests
// with a longest call that fills the boxes the most. It tells whether one is left.
func (p *peeling) dropHeaviest() bool {
	p.tries++
	heaviest, most := int32(-1), -1.0
	for _, h := range p.s.kids {
		if p.left.top[h] < 0 {
			continue
		}
		row, sum := p.t.order(int(h))[p.left.top[h]], 0.0
		for _, k := range p.s.kids {
			if d := p.t.rows.Duration[k][row]; d > 0 && !p.t.rows.FailedAt(int(k), int(row)) {
				sum += float64(d) / p.left.box[k]
			}
		}
		if sum > most || sum == most && row < heaviest {
			heaviest, most = row, sum
		}
	}
	if heaviest < 0 {
		return false
	}
	p.dead[heaviest] = -1
	p.settle(&p.left)
	return true
}

// groups returns the siblings that may run beside each other, directly or
// through others: the connected parts, of two or more hops, of all pairs without
// an order.
func (c *chains) groups() [][]int32 {
	k := len(c.hops)
	words := (k + 63) / 64
	before := make([]uint64, k*words) // by position: the positions that end first, by any path
	for i := range k {
		for _, a := range c.before(i) {
			before[i*words+int(a)/64] |= 1 << (a % 64)
			for w := range words {
				before[i*words+w] |= before[int(a)*words+w]
			}
		}
	}
	ordered := func(a, b int) bool {
		a, b = min(a, b), max(a, b)
		return before[b*words+a/64]&(1<<(a%64)) != 0
	}
	var out [][]int32
	seen := make([]bool, k)
	for first := range k {
		if seen[first] {
			continue
		}
		seen[first] = true
		part := []int{first}
		for at := 0; at < len(part); at++ {
			for other := range k {
				if !seen[other] && !ordered(part[at], other) {
					seen[other] = true
					part = append(part, other)
				}
			}
		}
		if len(part) > 1 {
			slices.Sort(part)
			hops := make([]int32, len(part))
			for i, position := range part {
				hops[i] = c.hops[position]
			}
			out = append(out, hops)
		}
	}
	return out
}
