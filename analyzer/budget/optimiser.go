package budget

import (
	"math"
	"slices"
	"sort"
)

// optimiser looks for the shares of a problem that violate the fewest requests of
// its training. It keeps count of the violated ones while shares change: every
// column of durations is sorted once, so that a new share touches only the rows
// between it and the old one, and nothing is allocated on the way.
type optimiser struct {
	s      *solver
	t      *Training
	budget float64
	waste  bool

	weight []int64 // by row; 0 for those that are not in the training
	total  int64   // of the weights
	n      float64 // effective number of rows
	count  int     // of rows with a weight
	work   float64 // weighted time that all spans of all rows take today

	share    []float64 // that the counts are for, by hop
	within   []int     // rows of the hop's column within its share
	over     []int32   // hops over their share, by row
	violated int64     // weight of the rows with any

	best  []float64 // shares of the least score so far
	score float64
	trial []float64
	plain []float64 // shares of the default strategy
	queue []int32   // hops whose children are to be shared out again
	moved []int32   // hops whose trial differs from best

	peeling peeling
}

// begin prepares for a budget of the solver's problem: no share violates anything
// but the budget itself.
func (f *optimiser) begin(s *solver, budget float64, waste bool) {
	if f.t != s.p.Training {
		f.read(s.p.Training)
		f.work = -1
	}
	f.s, f.budget, f.waste = s, budget, waste
	if waste && f.work < 0 {
		f.work = f.done()
	}
	n := len(s.p.Hops)
	for _, v := range []*[]float64{&f.share, &f.best, &f.trial, &f.plain} {
		*v = slices.Grow((*v)[:0], n)[:n]
		clear(*v)
	}
	f.within = slices.Grow(f.within[:0], n)[:n]
	clear(f.over)
	f.violated = 0
	f.score = math.Inf(1)
	for _, h := range s.kids {
		f.within[h], f.share[h] = len(f.t.order(int(h))), math.Inf(1)
	}
	f.within[0], f.share[0] = len(f.t.order(0)), math.Inf(1)
	f.set(0, budget)
}

// read takes over the weights of the training.
func (f *optimiser) read(t *Training) {
	f.t = t
	rows := len(t.weight)
	f.weight = slices.Grow(f.weight[:0], rows)[:rows]
	f.over = slices.Grow(f.over[:0], rows)[:rows]
	f.total, f.count = 0, 0
	squares := 0.0
	for r, w := range t.weight {
		if !t.has(int32(r)) {
			w = 0
		} else {
			f.count++
		}
		f.weight[r] = w
		f.total += w
		squares += float64(w) * float64(w)
	}
	f.n = max(float64(f.total)*float64(f.total)/max(squares, 1), 1)
}

// set changes the share of a hop and the counts with it.
func (f *optimiser) set(h int32, share float64) {
	limit := wholeNS(share)
	if limit == wholeNS(f.share[h]) {
		f.share[h] = share
		return
	}
	order, durations := f.t.order(int(h)), f.t.rows.Duration[h]
	from := f.within[h]
	to := sort.Search(len(order), func(i int) bool { return durations[order[i]] > limit })
	for _, r := range order[min(from, to):from] {
		if f.over[r]++; f.over[r] == 1 {
			f.violated += f.weight[r]
		}
	}
	for _, r := range order[from:max(from, to)] {
		if f.over[r]--; f.over[r] == 0 {
			f.violated -= f.weight[r]
		}
	}
	f.within[h], f.share[h] = to, share
}

// wholeNS is the longest duration that is within a share.
func wholeNS(share float64) int64 { return int64(min(share, math.MaxInt64/2)) }

// ratio is the weighted share of requests that are violated.
func (f *optimiser) ratio() float64 { return float64(f.violated) / float64(max(f.total, 1)) }

// now is the score of the shares that are set: the less, the better.
func (f *optimiser) now() float64 {
	if !f.waste || f.work == 0 {
		return f.ratio()
	}
	return f.ratio() + f.wasted()/f.work
}

// done returns the weighted time of all spans of the training.
func (f *optimiser) done() float64 {
	sum := 0.0
	for r, w := range f.weight {
		if w == 0 {
			continue
		}
		for h, planned := range f.s.planned {
			if planned {
				sum += float64(w) * float64(max(f.t.rows.Duration[h][r], 0))
			}
		}
	}
	return sum
}

// wasted returns how much of that is done for requests that are violated, each
// up to its first cut.
func (f *optimiser) wasted() float64 {
	rows, sum := f.t.rows, 0.0
	for r, w := range f.weight {
		if w == 0 || f.over[r] == 0 {
			continue
		}
		end := math.Inf(1)
		if float64(rows.Duration[0][r]) > f.budget {
			end = f.budget
		}
		for _, h := range f.s.kids {
			if d := rows.Duration[h][r]; float64(d) > f.share[h] && !rows.FailedAt(int(h), r) {
				end = min(end, float64(rows.Start[h][r])+f.share[h])
			}
		}
		ran := min(float64(rows.Duration[0][r]), end)
		for _, h := range f.s.kids {
			if d := rows.Duration[h][r]; d >= 0 {
				ran += max(min(float64(d), end-float64(rows.Start[h][r])), 0)
			}
		}
		sum += float64(w) * ran
	}
	return sum
}

// find leaves the best shares that it finds in best, and those of the default in
// plain.
func (f *optimiser) find() {
	f.peel()
	f.adopt()
	for _, start := range []Strategy{EqualQuantile{}, P50Spread{}, Strategies[0]} {
		start.demand(f.s, f.budget)
		f.adopt()
	}
	copy(f.plain, f.trial)
	f.polish()
}

// adopt shares out by the solver's base and weight, and keeps the result if it
// is the best so far.
func (f *optimiser) adopt() {
	f.trial[0] = f.budget
	for n := range f.s.p.Hops {
		if c := f.s.children(n); f.s.planned[n] && len(c.hops) > 0 {
			f.s.divide(n, &c, f.s.most, f.trial)
		}
	}
	for _, h := range f.s.kids {
		f.set(h, f.trial[h])
	}
	if score := f.now(); score < f.score {
		f.score = score
		copy(f.best, f.trial)
	}
}

// weigh returns the weight of a hop that is to have a share in proportion to it.
// Without a share it still gets what nobody else takes.
func (f *optimiser) weigh(h int32, share float64) float64 {
	if share > 0 {
		return share
	}
	return leastPart * f.s.p.Hops[h].Weight
}

// polishSteps are by how much a weight is changed, one sweep over all hops after
// the other, and each as often as it helps, up to polishSweeps times.
var polishSteps = [...]float64{0.2, 0.1, 0.05, 0.025, 0.0125}

const polishSweeps = 4

// polish changes one weight after the other and keeps what lowers the score.
func (f *optimiser) polish() {
	s := f.s
	for _, h := range s.kids {
		s.base[h], s.weight[h] = 0, f.weigh(h, f.best[h])
	}
	copy(f.trial, f.best)
	for _, h := range s.kids {
		f.set(h, f.best[h])
	}
	for _, step := range polishSteps {
		for range polishSweeps {
			better := false
			for _, h := range s.kids {
				for _, factor := range [...]float64{1 + step, 1 - step} {
					better = f.try(h, factor) || better
				}
			}
			if !better {
				break
			}
		}
	}
}

// try multiplies the weight of a hop, and takes it back where that does not help.
func (f *optimiser) try(h int32, factor float64) bool {
	s := f.s
	if !s.chained[h] {
		return false // alone it has all there is
	}
	old := s.weight[h]
	s.weight[h] *= factor
	f.queue, f.moved = append(f.queue[:0], int32(s.p.Hops[h].Parent)), f.moved[:0]
	for len(f.queue) > 0 {
		n := f.queue[len(f.queue)-1]
		f.queue = f.queue[:len(f.queue)-1]
		c := s.children(int(n))
		s.divide(int(n), &c, s.most, f.trial)
		for _, k := range c.hops {
			if f.trial[k] == f.best[k] {
				continue
			}
			f.moved = append(f.moved, k)
			if s.kidsOf[k+1] > s.kidsOf[k] {
				f.queue = append(f.queue, k)
			}
		}
	}
	for _, k := range f.moved {
		f.set(k, f.trial[k])
	}
	if len(f.moved) > 0 {
		if score := f.now(); score < f.score {
			f.score = score
			for _, k := range f.moved {
				f.best[k] = f.trial[k]
			}
			return true
		}
	}
	s.weight[h] = old
	for _, k := range f.moved {
		f.trial[k] = f.best[k]
		f.set(k, f.best[k])
	}
	return false
}

// retreatSteps is the number of steps from the best shares to the default's.
const retreatSteps = 20

// retreat goes from the best shares as far to those of the default as the score
// stays within a standard error and one request of the best: what is gained
// within that distance is noise, and the default's shares are the steadier. A
// mix of two splits obeys every constraint that both obey. A request that a mix
// holds by no more than the rounding of its sums counts as violated.
func (f *optimiser) retreat() {
	for _, h := range f.s.kids {
		f.set(h, f.best[h])
	}
	ratio := f.ratio()
	limit := f.score + math.Sqrt(ratio*(1-ratio)/f.n) + 1/f.n
	for step := retreatSteps; step > 0; step-- {
		part := float64(step) / retreatSteps
		for _, h := range f.s.kids {
			f.trial[h] = (1-part)*f.best[h] + part*f.plain[h]
			f.set(h, f.trial[h]*(1-saturation))
		}
		if f.now() <= limit {
			copy(f.best, f.trial)
			return
		}
	}
}
