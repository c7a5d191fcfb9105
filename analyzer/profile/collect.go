package profile

import (
	"cmp"
	"hash/fnv"
	"math"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Collector measures requests under fixed Rules. Collectors of parts under the
// same Rules merge into the collector of the whole, in any order.
type Collector struct {
	// Observe, unless nil, is shown every request that is measured or looked at.
	Observe func(Request)

	rules     *Rules
	endpoints map[Endpoint]*collected
	places    map[Endpoint][]int // in Profile.Hops, by hop of the layout; after Resolve
	w         worker
}

// Request is one request with the hops of its calls. It is valid only while
// Collector.Observe runs.
type Request struct {
	Endpoint Endpoint
	Tree     *trace.Tree
	w        *worker
	shape    *layout
}

// Hop returns a number of the hop that a call has or is part of, for
// [Collector.Place].
func (r *Request) Hop(call int32) int32 { return r.w.instances[r.w.effective[call]].hop }

// Async tells whether nobody waits for a call or for one around it.
func (r *Request) Async(call int32) bool { return r.shape.async[r.Tree.Calls[call].Path] }

// collected is what was measured of one endpoint.
type collected struct {
	requests int
	beside   int        // of them, those that a [File] counted and that were not measured one by one
	lost     int        // calls in these that have no hop
	hops     []measured // by hop of the layout
	pairs    [][]pair   // by hop, then by a sibling with a larger index; nil until seen
	rows     []row
	limits   map[int64]int // latency_budget.limit of the entry spans, by value
	shape    *layout
}

// measured is what is known of one hop.
type measured struct {
	every quantile.Sample // durations whatever the outcome (endpoint only)

	duration, longest, backoff, count, start quantile.Sample
	self, tail, net, skew, remaining         quantile.Sample

	tallies []tally // by sampling threshold, ascending
	// sampled are the tallies of the requests that were measured one by one, where
	// a [File] has counts of more: see Collector.Widen. Otherwise nil. Then widened
	// tells whether the hop itself has the counts of all requests.
	sampled     []tally
	widened     bool
	failed      int
	paired      int // calls with both halves
	unanswered  int // CLIENT spans without a SERVER half
	unfitted    int // calls longer at the callee than at the caller
	maxAttempts int
	retried     bool
	looped      bool
	hedged      bool
	serverOnly  bool
	streamed    bool
	last        int // number of the last request that was counted
}

// tally counts by sampling threshold, so that weights can be summed in one
// order whatever the order of the requests was.
type tally struct {
	threshold  uint64
	calls      int   // single calls: each could make calls of its own
	operations int   // logical calls
	present    int   // requests with the hop
	path       int64 // exclusive time on the critical path, ns
	whole      int64 // duration of the requests, ns (endpoint only)
}

func (m *measured) tally(threshold uint64) *tally {
	i, ok := slices.BinarySearchFunc(m.tallies, threshold, func(t tally, want uint64) int {
		return cmp.Compare(t.threshold, want)
	})
	if !ok {
		m.tallies = slices.Insert(m.tallies, i, tally{threshold: threshold})
	}
	return &m.tallies[i]
}

// add is a sum that stops at the largest value: times without sense (centuries)
// must not turn into negative ones. It does not depend on the order.
func add(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// pair is the evidence on the order of two operations under one parent call;
// the first is the hop with the smaller index.
type pair struct {
	together    int
	firstBefore int // the first ended before the second started
	lastBefore  int // the second ended before the first started
}

// row is one whole request.
type row struct {
	hash      uint64
	id        trace.TraceID
	entry     trace.SpanID
	threshold uint64
	started   int64
	cells     []cell // by hop
}

type cell struct {
	failed           bool // so ended the operation
	hop              int32
	duration, start  int64
	self, tail, path int64
}

func (r *row) compare(o *row) int {
	return cmp.Or(cmp.Compare(r.hash, o.hash), r.id.Compare(o.id), r.entry.Compare(o.entry), cmp.Compare(r.started, o.started))
}

// hashID is FNV-1a 64 of a trace id.
func hashID(id trace.TraceID) uint64 {
	h := fnv.New64a()
	h.Write(id[:]) // a hash never fails
	return h.Sum64()
}

// NewCollector returns an empty Collector.
func NewCollector(rules *Rules) *Collector {
	return &Collector{rules: rules, endpoints: make(map[Endpoint]*collected), places: make(map[Endpoint][]int)}
}

// instance is one call that has a hop.
type instance struct {
	hop        int32
	parent     int32 // index of the instance that made the call
	call       int32
	node       int32 // index among the waited-for, -1 if nobody waits
	start, end int64
	lost       bool // a hedge that another answer overtook
	operation  int32
}

// operation is a logical call: all calls of one hop under one parent call.
type operation struct {
	hop, parent int32
	start, end  int64
	longest     int64 // longest single call
	pause       int64 // longest from the end of a failed call to its retry; -1 where none was seen
	main        int32 // instance that took longest
	count       int32
	attempts    int32
	outcome     trace.Outcome
	flags       repeat
}

type repeat uint8

const (
	repeatRetry repeat = 1 << iota
	repeatLoop
	repeatHedge
)

// worker holds the buffers of one request.
type worker struct {
	requests   int // counted so far
	tree       trace.Tree
	walker     trace.Walker
	effective  []int32 // instance that each call is or belongs to
	instances  []instance
	order      []int32
	operations []operation
	nodes      []trace.Node
	nodeOf     []int32 // instance of each node
	cells      []cell
	cellOf     []int32 // cell of each hop, -1
}

// Add measures the request that enters t at span entry, which must be one of
// the surveyed. It returns false where the entry cannot be measured or the
// trace's sampling cannot be told.
func (c *Collector) Add(t *trace.Trace, entry int32) bool {
	root := &t.Spans[entry]
	key := EndpointOf(root.Desc)
	weight, ok := c.rules.Threshold(t)
	if !ok {
		return false
	}
	w := &c.w
	shape := c.build(t, entry)
	if shape == nil {
		return false
	}
	e := c.endpoints[key]
	if e == nil {
		e = &collected{
			shape: shape, hops: make([]measured, len(shape.hops)),
			pairs: make([][]pair, len(shape.hops)), limits: make(map[int64]int),
		}
		c.endpoints[key] = e
	}
	e.requests++
	if root.Stamp != nil && root.Stamp.Limit > 0 {
		e.limits[promise(root.Stamp.Limit)]++
	}
	if c.Observe != nil {
		c.Observe(Request{key, &w.tree, w, shape})
	}
	w.operate(shape)
	w.measure(e, weight)
	e.order(w)
	e.rows = append(e.rows, row{
		hash: hashID(t.ID), id: t.ID, entry: root.ID, threshold: weight, started: root.Start,
		cells: slices.Clone(w.cells),
	})
	if len(e.rows) >= 2*c.rules.options.Sample {
		e.prune(c.rules.options.Sample)
	}
	return true
}

// Look shows the request that enters t at span entry to Observe and measures
// nothing. It returns false where Add would, but for the sampling.
func (c *Collector) Look(t *trace.Trace, entry int32) bool {
	shape := c.build(t, entry)
	if shape == nil || c.Observe == nil {
		return false
	}
	c.Observe(Request{EndpointOf(t.Spans[entry].Desc), &c.w.tree, &c.w, shape})
	return true
}

// build makes the call tree of a request in the worker, and finds the hops of its
// calls. It returns the layout of the endpoint, nil where the entry was not
// surveyed or cannot be measured.
func (c *Collector) build(t *trace.Trace, entry int32) *layout {
	shape := c.rules.endpoints[EndpointOf(t.Spans[entry].Desc)]
	if shape == nil {
		return nil
	}
	c.w.tree.Build(t, entry, shape.paths, c.rules.shift(shape))
	if len(c.w.tree.Calls) == 0 {
		return nil
	}
	c.w.place(shape)
	return shape
}

// promise undoes what a limit loses on its way: it is what was left when the
// entry span started, some us less than what was promised. From 20 ms on it is
// rounded to ms, below to 10 us.
func promise(limit int64) int64 {
	step := int64(10_000)
	if limit >= 20_000_000 {
		step = 1_000_000
	}
	return max(step, (limit+step/2)/step*step)
}

// place finds the instance of each call: its own, or that of the call it is a
// part of.
func (w *worker) place(shape *layout) {
	calls := w.tree.Calls
	w.effective = append(w.effective[:0], make([]int32, len(calls))...)
	w.instances = w.instances[:0]
	for i := range calls {
		up := int32(-1)
		if calls[i].Parent >= 0 {
			up = w.effective[calls[i].Parent]
		}
		hop := shape.hopOf[calls[i].Path]
		if hop == transparent {
			w.effective[i] = up
			continue
		}
		w.effective[i] = int32(len(w.instances))
		w.instances = append(w.instances, instance{
			hop: hop, parent: up, call: int32(i), node: -1, start: calls[i].Start, end: calls[i].End,
		})
	}
}

// operate groups the instances of one hop under one parent into operations and
// tells retries, loops, hedges and fan-out apart.
func (w *worker) operate(shape *layout) {
	w.order = w.order[:0]
	for i := range w.instances {
		w.order = append(w.order, int32(i))
	}
	slices.SortFunc(w.order, func(a, b int32) int {
		x, y := &w.instances[a], &w.instances[b]
		return cmp.Or(cmp.Compare(x.parent, y.parent), cmp.Compare(x.hop, y.hop),
			cmp.Compare(x.start, y.start), cmp.Compare(a, b))
	})
	w.operations = w.operations[:0]
	for first := 0; first < len(w.order); {
		head := &w.instances[w.order[first]]
		last := first + 1
		for last < len(w.order) {
			next := &w.instances[w.order[last]]
			if next.parent != head.parent || next.hop != head.hop {
				break
			}
			last++
		}
		op := w.repeats(w.order[first:last], shape.hops[head.hop].other)
		for _, i := range w.order[first:last] {
			w.instances[i].operation = int32(len(w.operations))
		}
		w.operations = append(w.operations, op)
		first = last
	}
}

// repeats makes one operation of the calls of one hop under one parent call,
// given in order of start.
//
//	retry    |--error--|  |--ok--|           next starts after a failure
//	loop     |--ok--||--ok--||--ok--|        next starts after a success
//	hedge    |-----------ok|                 overlap, and the one that another
//	             |--------------cancelled|   answer overtook was cancelled
//	fan-out  |-------|                       any other overlap
//	          |---------|
func (w *worker) repeats(group []int32, other bool) operation {
	calls := w.tree.Calls
	first := &w.instances[group[0]]
	op := operation{hop: first.hop, parent: first.parent, start: first.start, end: first.end, pause: -1, main: group[0]}
	attempts, until := int32(0), first.start // of the running chain of retries; latest end so far
	previous := int32(-1)                    // instance that ended last so far
	overlap := false
	for _, i := range group {
		in := &w.instances[i]
		call := &calls[in.call]
		op.count += call.Attempts
		op.pause = max(op.pause, call.LongestPause)
		if own := max(call.LongestAttempt, 0); own > op.longest {
			op.longest = own
		}
		if in.end-in.start > w.instances[op.main].end-w.instances[op.main].start {
			op.main = i
		}
		switch {
		case previous < 0:
			attempts = call.Attempts
		case other:
			// Different operations: nothing repeats.
		case in.start < until:
			overlap = true
		case calls[w.instances[previous].call].RetriedAfter(in.start - until):
			op.flags |= repeatRetry
			op.pause = max(op.pause, in.start-until)
			attempts += call.Attempts
		default:
			op.flags |= repeatLoop
			attempts = call.Attempts
		}
		if call.Attempts > 1 {
			op.flags |= repeatRetry
		}
		op.attempts = max(op.attempts, attempts)
		if previous < 0 || in.end >= until {
			previous, until = i, in.end
		}
		op.end = max(op.end, in.end)
	}
	op.outcome = calls[w.instances[previous].call].Outcome
	if overlap && w.hedge(group, &op) {
		op.flags |= repeatHedge
	}
	return op
}

// hedge looks for calls that were overtaken: they started before the first
// success ended and were cancelled after it. They stop counting, and the
// operation ends with the success.
func (w *worker) hedge(group []int32, op *operation) bool {
	calls := w.tree.Calls
	winner := int32(-1)
	for _, i := range group {
		if calls[w.instances[i].call].Outcome == trace.OutcomeOK &&
			(winner < 0 || w.instances[i].end < w.instances[winner].end) {
			winner = i
		}
	}
	if winner < 0 {
		return false
	}
	won := w.instances[winner].end
	overtaken := func(i int32) bool {
		in := &w.instances[i]
		return i != winner && calls[in.call].Outcome == trace.OutcomeCancelled && in.start < won && in.end >= won
	}
	if !slices.ContainsFunc(group, overtaken) {
		return false
	}
	op.outcome, op.end, op.main, op.longest = trace.OutcomeOK, won, winner, 0
	for _, i := range group {
		in := &w.instances[i]
		if overtaken(i) {
			in.lost = true
			continue
		}
		op.longest = max(op.longest, calls[in.call].LongestAttempt)
		if in.end-in.start > w.instances[op.main].end-w.instances[op.main].start {
			op.main = i
		}
		if in.end > op.end {
			op.end, op.outcome = in.end, calls[in.call].Outcome
		}
	}
	return true
}

// measure adds one request to the samples and fills the cells of its row.
func (w *worker) measure(e *collected, weight uint64) {
	w.count(e.hops, weight)
	w.waitedFor(e.shape)
	calls := w.tree.Calls
	spans := w.tree.Trace.Spans
	own := w.walker.OwnTimes(w.nodes)
	for n, i := range w.nodeOf {
		m := &e.hops[w.instances[i].hop]
		m.self.Add(own[n].Self, weight)
		if own[n].Waited {
			m.tail.Add(own[n].Tail, weight)
		}
	}
	w.cells = w.cells[:0]
	w.cellOf = append(w.cellOf[:0], make([]int32, len(e.hops))...)
	for h := range w.cellOf {
		w.cellOf[h] = -1
	}
	began := w.instances[0].start
	for o := range w.operations {
		op := &w.operations[o]
		if op.parent >= 0 {
			e.hops[op.hop].start.Add(op.start-w.instances[op.parent].start, weight)
		}
		c := w.cell(op.hop)
		if duration := op.end - op.start; c.duration < duration {
			c.duration, c.start = duration, op.start-began
			c.failed = op.outcome == trace.OutcomeFailed
			c.self, c.tail = -1, -1
			if n := w.instances[op.main].node; n >= 0 {
				c.self = own[n].Self
				if own[n].Waited {
					c.tail = own[n].Tail
				}
			}
		}
	}
	for i := range w.instances {
		in := &w.instances[i]
		m := &e.hops[in.hop]
		call := &calls[in.call]
		// What lies between attempts is no network, nor is what a callee did when its caller
		// had given up.
		answered := call.Outcome == trace.OutcomeOK || call.Outcome == trace.OutcomeFailed
		if call.Callee != call.Span && call.Attempts == 1 && answered {
			m.net.Add(spans[call.Span].Duration-spans[call.Callee].Duration, weight)
		}
		if call.Shift != 0 {
			m.skew.Add(call.Shift, weight)
		}
		if s := spans[call.Span].Stamp; s != nil && s.HasDeadline && spans[call.Span].Kind == trace.KindClient {
			m.remaining.Add(s.DeadlineRemaining, weight)
		}
	}
	for _, s := range w.walker.CriticalPath(w.nodes) {
		w.cell(w.instances[w.nodeOf[s.Node]].hop).path += s.End - s.Start
	}
	for i := range w.cells {
		c := &w.cells[i]
		t := e.hops[c.hop].tally(weight)
		t.path = add(t.path, c.path)
	}
	whole := e.hops[0].tally(weight)
	whole.whole = add(whole.whole, w.instances[0].end-w.instances[0].start)
	slices.SortFunc(w.cells, func(a, b cell) int { return cmp.Compare(a.hop, b.hop) })
}

// count adds the operations and calls of one request: what can be told without
// knowing who waits for whom.
func (w *worker) count(hops []measured, weight uint64) {
	calls := w.tree.Calls
	spans := w.tree.Trace.Spans
	w.requests++
	for o := range w.operations {
		op := &w.operations[o]
		m := &hops[op.hop]
		duration := op.end - op.start
		if op.parent < 0 {
			m.every.Add(duration, weight)
		}
		switch op.outcome {
		case trace.OutcomeOK:
			m.duration.Add(duration, weight)
			m.longest.Add(op.longest, weight)
		case trace.OutcomeFailed:
			m.failed++
		default:
			m.duration.AddCensored(duration, weight)
			m.longest.AddCensored(op.longest, weight)
		}
		if op.pause >= 0 {
			m.backoff.Add(op.pause, weight)
		}
		m.count.Add(int64(op.count), weight)
		m.maxAttempts = max(m.maxAttempts, int(op.attempts))
		m.retried = m.retried || op.flags&repeatRetry != 0
		m.looped = m.looped || op.flags&repeatLoop != 0
		m.hedged = m.hedged || op.flags&repeatHedge != 0
		t := m.tally(weight)
		t.operations++
		if m.last != w.requests {
			m.last = w.requests
			t.present++
		}
	}
	for i := range w.instances {
		in := &w.instances[i]
		m := &hops[in.hop]
		m.tally(weight).calls++
		call := &calls[in.call]
		m.serverOnly = m.serverOnly || call.ServerOnly
		m.streamed = m.streamed || call.Stream
		if call.Callee == call.Span && spans[call.Span].Kind == trace.KindClient {
			m.unanswered++
		}
		if call.Callee != call.Span {
			m.paired++
			if spans[call.Callee].Duration > spans[call.Span].Duration && !sameClock(spans[call.Span].Desc, spans[call.Callee].Desc) {
				m.unfitted++
			}
		}
	}
}

func (w *worker) cell(hop int32) *cell {
	if w.cellOf[hop] < 0 {
		w.cellOf[hop] = int32(len(w.cells))
		w.cells = append(w.cells, cell{hop: hop, duration: -1, self: -1, tail: -1})
	}
	return &w.cells[w.cellOf[hop]]
}

// waitedFor makes the tree of the instances that somebody waits for.
func (w *worker) waitedFor(shape *layout) {
	w.nodes, w.nodeOf = w.nodes[:0], w.nodeOf[:0]
	for i := range w.instances {
		in := &w.instances[i]
		parent := int32(-1)
		if in.parent >= 0 {
			parent = w.instances[in.parent].node
			if parent < 0 || in.lost || !shape.hops[in.hop].kind.Waited() {
				continue
			}
		}
		in.node = int32(len(w.nodes))
		w.nodes = append(w.nodes, trace.Node{Parent: parent, Start: in.start, End: in.end})
		w.nodeOf = append(w.nodeOf, int32(i))
	}
}

// order adds the evidence on who precedes whom among the operations of each
// parent call that is waited for.
func (e *collected) order(w *worker) {
	for first := 0; first < len(w.operations); {
		last := first + 1
		parent := w.operations[first].parent
		for last < len(w.operations) && w.operations[last].parent == parent {
			last++
		}
		if parent >= 0 && w.instances[parent].node >= 0 {
			whole := w.instances[parent].end - w.instances[parent].start
			e.orderSiblings(w.operations[first:last], whole)
		}
		first = last
	}
}

func (e *collected) orderSiblings(ops []operation, whole int64) {
	waited := func(op *operation) bool { return e.shape.hops[op.hop].kind.Waited() }
	for i := range ops {
		a := &ops[i]
		if !waited(a) {
			continue
		}
		for j := i + 1; j < len(ops); j++ { // operations stand in order of hop
			b := &ops[j]
			if !waited(b) {
				continue
			}
			tolerance := min(max(whole/100, asyncFloor), (a.end-a.start)/2, (b.end-b.start)/2)
			row := e.pairs[a.hop]
			if row == nil {
				row = make([]pair, len(e.hops))
				e.pairs[a.hop] = row
			}
			p := &row[b.hop]
			p.together++
			if a.end <= b.start+tolerance {
				p.firstBefore++
			}
			if b.end <= a.start+tolerance {
				p.lastBefore++
			}
		}
	}
}

// prune keeps the rows with the smallest hashes.
func (e *collected) prune(sample int) {
	if len(e.rows) <= sample {
		return
	}
	slices.SortFunc(e.rows, func(a, b row) int { return a.compare(&b) })
	clear(e.rows[sample:])
	e.rows = e.rows[:sample]
}

// Merge adds what other measured under the same Rules. Other is used up.
func (c *Collector) Merge(other *Collector) {
	for key, o := range other.endpoints {
		e := c.endpoints[key]
		if e == nil {
			for h := range o.hops {
				o.hops[h].last = 0 // requests are numbered anew
			}
			c.endpoints[key] = o
			continue
		}
		e.requests += o.requests
		for h := range e.hops {
			e.hops[h].merge(&o.hops[h])
		}
		for a, row := range o.pairs {
			if e.pairs[a] == nil {
				e.pairs[a] = row
				continue
			}
			for b := range row {
				sum := &e.pairs[a][b]
				sum.together += row[b].together
				sum.firstBefore += row[b].firstBefore
				sum.lastBefore += row[b].lastBefore
			}
		}
		for limit, n := range o.limits {
			e.limits[limit] += n
		}
		e.rows = append(e.rows, o.rows...)
		e.prune(c.rules.options.Sample)
	}
	other.endpoints = nil
}

func (m *measured) samples() []*quantile.Sample {
	return []*quantile.Sample{
		&m.every, &m.duration, &m.longest, &m.backoff, &m.count, &m.start,
		&m.self, &m.tail, &m.net, &m.skew, &m.remaining,
	}
}

func (m *measured) merge(o *measured) {
	theirs := o.samples()
	for i, mine := range m.samples() {
		mine.Merge(theirs[i])
	}
	for _, t := range o.tallies {
		sum := m.tally(t.threshold)
		sum.calls += t.calls
		sum.operations += t.operations
		sum.present += t.present
		sum.path = add(sum.path, t.path)
		sum.whole = add(sum.whole, t.whole)
	}
	m.failed += o.failed
	m.paired += o.paired
	m.unanswered += o.unanswered
	m.unfitted += o.unfitted
	m.maxAttempts = max(m.maxAttempts, o.maxAttempts)
	m.retried = m.retried || o.retried
	m.looped = m.looped || o.looped
	m.hedged = m.hedged || o.hedged
	m.serverOnly = m.serverOnly || o.serverOnly
	m.streamed = m.streamed || o.streamed
}
