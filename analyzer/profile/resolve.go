package profile

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

const (
	sureTogether  = 30   // traces in which a pair must be seen for its order to be sure
	precedes      = 0.90 // share of them in which the first must end before the second starts
	exclusiveSum  = 5    // expected meetings of a group that never meets: chance under 0.7 %
	slowShare     = 20   // the slowest 1/20 of the requests
	clusteredFrom = 0.2  // lag-1 autocorrelation above which requests count as clustered

	// enoughToCluster is the number of requests from which the standard error of
	// the autocorrelation, 1/sqrt(n), is half of what counts.
	enoughToCluster = 100
)

// Resolve turns what was measured into profiles, the busiest endpoint first;
// ties in order of name. The Collector is used up.
func (c *Collector) Resolve() []*Profile {
	keys := make([]Endpoint, 0, len(c.endpoints))
	for key := range c.endpoints {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(c.endpoints[b].requests, c.endpoints[a].requests), a.compare(b))
	})
	out := make([]*Profile, 0, len(keys))
	for _, key := range keys {
		p, places := c.endpoints[key].resolve(key, c.rules.options.Sample)
		out, c.places[key] = append(out, p), places
		delete(c.endpoints, key)
	}
	return out
}

// Place returns, after Resolve, the index in Profile.Hops of a hop by the number
// that [Request.Hop] gave it.
func (c *Collector) Place(e Endpoint, number int32) int { return c.places[e][number] }

func (e *collected) resolve(key Endpoint, sample int) (*Profile, []int) {
	p := &Profile{
		Service: key.Service, Operation: key.Operation,
		Requests: e.requests, Sampled: e.requests - e.beside, Unsampled: e.lost,
		Resolution: e.shape.resolution, Shrink: 1,
	}
	p.Limit, p.LimitDisagrees = mostFrequent(e.limits)
	e.prune(sample)
	slices.SortFunc(e.rows, func(a, b row) int { return a.compare(&b) })
	p.Every = e.hops[0].every.Freeze()
	order := e.arrange(p) // place in p.Hops of each hop, -1 if never seen
	e.precedence(p, order)
	e.columns(p, order)
	e.slowPath(p, order)
	p.cluster()
	return p, order
}

// mostFrequent returns the limit that most requests had, and whether others are
// more than 1 % away from it.
func mostFrequent(counts map[int64]int) (value int64, disagree bool) {
	best := 0
	for v, n := range counts {
		if n > best || n == best && v < value {
			value, best = v, n
		}
	}
	for v := range counts {
		disagree = disagree || v*100 < value*99 || v*99 > value*100
	}
	return value, disagree
}

// arrange fills p.Hops in preorder and returns where each hop went.
func (e *collected) arrange(p *Profile) []int {
	defs := e.shape.hops
	children := make([][]int32, len(defs))
	median := make([]int64, len(defs))
	for h := 1; h < len(defs); h++ {
		if len(e.hops[h].tallies) == 0 {
			continue // surveyed, but in no request that was measured
		}
		if v, ok := e.hops[h].start.Freeze().At(quantile.P50); ok {
			median[h] = v
		}
		children[defs[h].parent] = append(children[defs[h].parent], int32(h))
	}
	for _, c := range children {
		slices.SortFunc(c, func(a, b int32) int {
			return cmp.Or(
				cmp.Compare(boolInt(defs[a].kind == KindAsync), boolInt(defs[b].kind == KindAsync)),
				cmp.Compare(median[a], median[b]),
				defs[a].key.Compare(defs[b].key),
				cmp.Compare(boolInt(defs[a].other), boolInt(defs[b].other)))
		})
	}
	place := make([]int, len(defs))
	for h := range place {
		place[h] = -1
	}
	type visit struct {
		hop int32
		id  string
	}
	stack := []visit{{0, "0"}}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		place[v.hop] = len(p.Hops)
		p.Hops = append(p.Hops, e.hop(v.hop, v.id, p.Hops, place))
		for i := len(children[v.hop]) - 1; i >= 0; i-- {
			stack = append(stack, visit{children[v.hop][i], v.id + "." + strconv.Itoa(i+1)})
		}
	}
	return place
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hop resolves one hop; its ancestors are resolved.
func (e *collected) hop(h int32, id string, done []Hop, place []int) Hop {
	def, m := &e.shape.hops[h], &e.hops[h]
	hop := Hop{
		ID: id, Parent: -1, Kind: def.kind, Callee: def.key.Service, Operation: def.key.Operation,
		MaxAttempts: m.maxAttempts, Retried: m.retried, Looped: m.looped, Hedged: m.hedged, ServerOnly: m.serverOnly,
		Streamed: m.streamed,
		Presence: 1, Failed: m.failed, Unfitted: m.unfitted, TimedAsync: def.timed && def.kind == KindAsync,
	}
	for _, t := range m.tallies {
		hop.Calls += t.operations
	}
	hop.FromSample = m.sampled != nil && !m.widened
	if m.paired > 0 {
		hop.Unanswered = m.unanswered
	}
	if def.parent >= 0 {
		hop.Parent = place[def.parent]
		parent := &done[hop.Parent]
		hop.Depth = parent.Depth + 1
		hop.Caller = parent.Callee
		if hop.Kind == KindStage || hop.Kind == KindStep {
			hop.Callee = parent.Callee
		}
		up := &e.hops[def.parent]
		own, parents := m.tallies, up.tallies
		if hop.FromSample {
			own, parents = m.measuredTallies(), up.measuredTallies()
		}
		var with, of, path, whole float64
		var absent quantile.Sample
		for _, t := range parents {
			mine := find(own, t.threshold)
			with += quantile.Weight(t.threshold) * float64(mine.present)
			of += quantile.Weight(t.threshold) * float64(t.present)
			absent.AddZeros(t.threshold, t.calls-mine.operations)
		}
		if of > 0 {
			hop.Presence = with / of
		}
		hop.Optional = hop.Presence < 1
		for _, t := range e.hops[0].tallies {
			path += quantile.Weight(t.threshold) * float64(find(m.tallies, t.threshold).path)
			whole += quantile.Weight(t.threshold) * float64(t.whole)
		}
		if whole > 0 {
			hop.CriticalPath = path / whole
		}
		if absent.N() > 0 {
			absent.Merge(&m.duration)
			hop.Unconditional = absent.Freeze()
		}
	} else {
		var path, whole float64
		for _, t := range m.tallies {
			path += quantile.Weight(t.threshold) * float64(t.path)
			whole += quantile.Weight(t.threshold) * float64(t.whole)
		}
		if whole > 0 {
			hop.CriticalPath = path / whole
		}
	}
	if m.net.N() > 0 {
		hop.Net = m.net.Freeze()
	}
	if m.remaining.N() > 0 {
		hop.DeadlineRemaining = m.remaining.Freeze()
	}
	if skew, ok := m.skew.Freeze().At(quantile.P50); ok {
		hop.Skew = skew
	}
	hop.Duration = m.duration.Freeze()
	hop.Attempt = m.longest.Freeze()
	hop.Backoff = m.backoff.Freeze()
	hop.Count = m.count.Freeze()
	hop.Self = m.self.Freeze()
	hop.Tail = m.tail.Freeze()
	if hop.Unconditional == nil {
		hop.Unconditional = hop.Duration
	}
	return hop
}

// find returns the tally of a threshold, or an empty one.
func find(tallies []tally, threshold uint64) tally {
	if i, ok := slices.BinarySearchFunc(tallies, threshold, func(t tally, want uint64) int {
		return cmp.Compare(t.threshold, want)
	}); ok {
		return tallies[i]
	}
	return tally{}
}

// measuredTallies are those of the requests that were measured one by one.
func (m *measured) measuredTallies() []tally {
	if m.sampled != nil {
		return m.sampled
	}
	return m.tallies
}

// precedence decides which siblings end before others start.
//
// Siblings stand in order of median start. a precedes b iff it comes earlier
// in that order and ended before b started in 90 % of the calls with both.
// Siblings that never met share one slot where the number of expected meetings
// (by chance) is 5 or more in sum over their pairs; otherwise they count as
// serial.
func (e *collected) precedence(p *Profile, place []int) {
	hopAt := make([]int32, len(p.Hops)) // hop of each place
	siblings := make([][]int, len(p.Hops))
	for h, at := range place {
		if at >= 0 {
			hopAt[at] = int32(h)
		}
	}
	for at := 1; at < len(p.Hops); at++ {
		if p.Hops[at].Kind.Waited() && p.Hops[p.Hops[at].Parent].Kind.Waited() {
			siblings[p.Hops[at].Parent] = append(siblings[p.Hops[at].Parent], at)
		}
	}
	slot := 0
	for parent, group := range siblings {
		if len(group) < 2 {
			continue
		}
		calls := e.hops[hopAt[parent]].calls()
		slot = e.exclude(p, group, hopAt, calls, slot)
		for j, b := range group {
			for _, a := range group[:j] {
				pr := e.pair(hopAt[a], hopAt[b])
				p.Pairs++
				switch {
				case p.Hops[a].Slot != 0 && p.Hops[a].Slot == p.Hops[b].Slot:
					p.SurePairs++
					continue
				case pr.together >= sureTogether:
					p.SurePairs++
				default:
					p.Hops[a].Order = max(p.Hops[a].Order, OrderUncertain)
					p.Hops[b].Order = max(p.Hops[b].Order, OrderUncertain)
				}
				if pr.together == 0 || float64(pr.firstBefore) >= precedes*float64(pr.together) {
					p.Hops[b].After = append(p.Hops[b].After, a)
				}
			}
		}
	}
}

// calls returns how many single calls were measured one by one.
func (m *measured) calls() int {
	n := 0
	for _, t := range m.measuredTallies() {
		n += t.calls
	}
	return n
}

func (m *measured) operations() int {
	n := 0
	for _, t := range m.measuredTallies() {
		n += t.operations
	}
	return n
}

// ordered returns the evidence on two hops with a < b.
func (e *collected) ordered(a, b int32) pair {
	if e.pairs[a] == nil {
		return pair{}
	}
	return e.pairs[a][b]
}

// pair returns the evidence with a as the first.
func (e *collected) pair(a, b int32) pair {
	if a < b {
		return e.ordered(a, b)
	}
	p := e.ordered(b, a)
	p.firstBefore, p.lastBefore = p.lastBefore, p.firstBefore
	return p
}

// exclude finds groups of siblings that never meet, greedily in order.
func (e *collected) exclude(p *Profile, group []int, hopAt []int32, calls, slot int) int {
	taken := make(map[int]bool)
	for i, a := range group {
		if taken[a] {
			continue
		}
		members := []int{a}
		for _, x := range group[i+1:] {
			if taken[x] || slices.ContainsFunc(members, func(m int) bool { return e.pair(hopAt[m], hopAt[x]).together > 0 }) {
				continue
			}
			members = append(members, x)
		}
		expected := 0.0
		for j, x := range members {
			for _, y := range members[:j] {
				expected += float64(e.hops[hopAt[x]].operations()) * float64(e.hops[hopAt[y]].operations()) / float64(max(calls, 1))
			}
		}
		if len(members) < 2 || expected < exclusiveSum {
			continue
		}
		slot++
		for _, x := range members {
			taken[x] = true
			p.Hops[x].Slot, p.Hops[x].Order = slot, max(p.Hops[x].Order, OrderExclusive)
		}
	}
	return slot
}

// columns turns the rows into columns by hop.
func (e *collected) columns(p *Profile, place []int) {
	n := len(e.rows)
	r := &Rows{
		Hash: make([]uint64, n), Threshold: make([]uint64, n), Started: make([]int64, n),
		Failed: make([][]bool, len(p.Hops)),
	}
	column := func() [][]int64 {
		c := make([][]int64, len(p.Hops))
		for h := range c {
			c[h] = make([]int64, n)
			for i := range c[h] {
				c[h][i] = -1
			}
		}
		return c
	}
	r.Duration, r.Start, r.Self, r.Tail = column(), column(), column(), column()
	for i := range e.rows {
		row := &e.rows[i]
		r.Hash[i], r.Threshold[i], r.Started[i] = row.hash, row.threshold, row.started
		for _, c := range row.cells {
			at := place[c.hop]
			r.Duration[at][i], r.Start[at][i] = c.duration, c.start
			r.Self[at][i], r.Tail[at][i] = c.self, c.tail
			if c.failed {
				if r.Failed[at] == nil {
					r.Failed[at] = make([]bool, n)
				}
				r.Failed[at][i] = true
			}
		}
	}
	p.Rows = r
}

// slowPath computes the shares of the critical path over the slowest 5 % of
// the kept requests.
func (e *collected) slowPath(p *Profile, place []int) {
	n := len(e.rows)
	if n == 0 {
		return
	}
	bySlowness := make([]int, n)
	for i := range bySlowness {
		bySlowness[i] = i
	}
	whole := p.Rows.Duration[0]
	slices.SortStableFunc(bySlowness, func(a, b int) int { return cmp.Compare(whole[b], whole[a]) })
	requests := 0.0 // that the rows stand for
	for i := range e.rows {
		requests += quantile.Weight(e.rows[i].threshold)
	}
	shares := make([]float64, len(p.Hops))
	total, taken := 0.0, 0.0
	for at, i := range bySlowness {
		w := quantile.Weight(e.rows[i].threshold)
		if taken += w; at > 0 && taken*slowShare > requests {
			break
		}
		total += w * float64(whole[i])
		for _, c := range e.rows[i].cells {
			shares[place[c.hop]] += w * float64(c.path)
		}
	}
	if total <= 0 {
		return
	}
	for h := range p.Hops {
		p.Hops[h].SlowPath = shares[h] / total
	}
}

// cluster looks for runs of slow requests: the lag-1 autocorrelation a of
// "above the P90" in order of start. Requests that come in runs tell less than
// their number: the sample size shrinks by (1-a)/(1+a).
func (p *Profile) cluster() {
	n := p.Rows.Len()
	if n < enoughToCluster {
		return
	}
	var s quantile.Sample
	order := make([]int, n)
	for i := range order {
		order[i] = i
		s.Add(p.Rows.Duration[0][i], 0)
	}
	p90, _ := s.Freeze().At(quantile.P90)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Rows.Started[a], p.Rows.Started[b]) })
	above := func(i int) float64 {
		if p.Rows.Duration[0][order[i]] > p90 {
			return 1
		}
		return 0
	}
	mean := 0.0
	for i := range order {
		mean += above(i)
	}
	mean /= float64(n)
	var covariance, variance float64
	for i := range order {
		d := above(i) - mean
		variance += d * d
		if i+1 < n {
			covariance += d * (above(i+1) - mean)
		}
	}
	if variance <= 0 {
		return
	}
	if a := math.Max(0, covariance/variance); a > clusteredFrom {
		p.Clustered, p.Shrink = true, (1-a)/(1+a)
	}
}
