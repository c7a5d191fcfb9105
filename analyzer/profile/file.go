package profile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// DefaultFileSample is how many whole traces of each endpoint a [File] keeps.
const DefaultFileSample = 2000

// File is what is kept of many traces: counts and sketches of all of them, and of
// each endpoint the whole traces with the smallest hashes of the trace id.
//
// Nothing in it is decided: who is waited for, how far clocks are off, what is a
// wrapper, is found in the sample when the file is used, so that files can be
// merged before. Calls are therefore counted by their path of names alone.
//
// Files are merged in any order. The result is that of one file over everything
// if no trace is spread over several files, or as long as none was dropped.
type File struct {
	sample  int // traces to keep of each endpoint
	spans   int // all, kept or not
	traces  int
	dropped int // of the traces, those not kept

	read      trace.Notes // of readers
	assembled trace.Notes // of the assembly of traces
	leftOut   map[trace.NoteKind]int
	sampling  SamplingEvidence
	endpoints map[Endpoint]*whole

	kept  []trace.Span      // as they were read, grouped by the trace they belong to
	until map[Endpoint]mark // last trace that is in the sample of an endpoint of which more are kept
}

// whole is what is known of all requests of one endpoint.
type whole struct {
	paths    trace.Paths
	inferred Inferred
	sampling SamplingEvidence                // of the traces with such a request
	last     int                             // trace that is in sampling already
	census   [trace.SamplingKnown + 1]census // by what the traces say of their sampling
}

// Inferred counts the spans of traces, and those of them without kind.
type Inferred struct{ Spans, Without int }

// Census counts requests of one endpoint.
type Census struct {
	Requests, Spans             int // measured requests, and the spans they reach
	Unmeasured, UnmeasuredSpans int // requests whose entry has no start or end
}

func (c *Census) add(o Census) {
	c.Requests += o.Requests
	c.Spans += o.Spans
	c.Unmeasured += o.Unmeasured
	c.UnmeasuredSpans += o.UnmeasuredSpans
}

// census counts the requests of one endpoint, and their calls.
type census struct {
	Census
	limits map[int64]int
	hops   []measured // by path
}

// mark is the place of a trace in the order of sampling.
type mark struct {
	hash uint64
	id   trace.TraceID
}

func (m mark) compare(o mark) int { return cmp.Or(cmp.Compare(m.hash, o.hash), m.id.Compare(o.id)) }

// FileOptions say what goes into a [File].
type FileOptions struct {
	Sample        int // traces kept of each endpoint; 0: DefaultFileSample
	MaxTraceSpans int // larger traces are left out; 0: trace.DefaultMaxTraceSpans
}

// NewFile makes the file of all traces of a sealed builder. read are the notes of
// their readers and sealed those of the builder. The errors are the traces that
// are too large, of which only the size is counted.
func NewFile(b *trace.Builder, read, sealed trace.Notes, o FileOptions) (*File, []error) {
	f := &File{
		sample: cmp.Or(o.Sample, DefaultFileSample), spans: b.Spans(), traces: b.Len(),
		leftOut: make(map[trace.NoteKind]int), endpoints: make(map[Endpoint]*whole), until: make(map[Endpoint]mark),
	}
	f.read.Merge(read)
	f.assembled.Merge(sealed)
	type candidate struct {
		mark
		number int
	}
	candidates := make(map[Endpoint][]candidate)
	var idle []candidate // traces without any entry
	shortlist := func(list []candidate, c candidate) []candidate {
		if n := len(list); n > 0 && list[n-1].number == c.number {
			return list // the trace enters there twice
		}
		return append(list, c)
	}
	var (
		w       counter
		t       trace.Trace
		errs    []error
		wanted  = make([]bool, b.Len())
		tooMany = cmp.Or(o.MaxTraceSpans, trace.DefaultMaxTraceSpans)
	)
	for i := range b.Len() {
		err := b.Assemble(i, tooMany, &t)
		entries := t.Entries()
		f.assembled.Merge(t.Notes)
		for kind, n := range t.LeftOut {
			f.leftOut[kind] += n
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c := candidate{mark{hashID(t.ID), t.ID}, i}
		if len(entries) == 0 {
			idle = append(idle, c)
		}
		usable := false
		for _, e := range entries {
			key := EndpointOf(t.Spans[e].Desc)
			candidates[key] = shortlist(candidates[key], c)
			if !f.count(&w, &t, e, key) {
				continue
			}
			usable = true
			if at := f.endpoints[key]; at.last != i+1 {
				at.last = i + 1
				at.sampling.add(samplingOf(&t))
			}
		}
		if usable {
			f.sampling.add(samplingOf(&t))
		}
	}
	keep := func(list []candidate) (last mark, over bool) {
		slices.SortFunc(list, func(a, b candidate) int { return a.compare(b.mark) })
		over = len(list) > f.sample
		list = list[:min(len(list), f.sample)]
		for _, c := range list {
			wanted[c.number], last = true, c.mark
		}
		return last, over
	}
	keep(idle)
	for key, list := range candidates {
		if last, over := keep(list); over {
			f.until[key] = last
		}
	}
	for i, is := range wanted {
		if is {
			f.kept = b.Raw(f.kept, i)
		} else {
			f.dropped++
		}
	}
	return f, errs
}

// counter counts the calls of requests by their paths.
type counter struct {
	worker
	shape layout // in which every path is a hop
}

// compactEvery is the number of requests after which durations become sketches.
const compactEvery = 4096

// count adds the request that enters t at span entry.
func (f *File) count(w *counter, t *trace.Trace, entry int32, key Endpoint) bool {
	e := f.endpoints[key]
	if e == nil {
		e = new(whole)
		f.endpoints[key] = e
	}
	c := &e.census[t.Sampling]
	spans := t.Reach(entry)
	w.tree.Build(t, entry, &e.paths, nil)
	if len(w.tree.Calls) == 0 {
		c.Unmeasured++
		c.UnmeasuredSpans += spans
		return false
	}
	e.inferred.Spans += len(t.Spans)
	e.inferred.Without += t.InferredKinds
	c.Requests++
	c.Spans += spans
	if s := t.Spans[entry].Stamp; s != nil && s.Limit > 0 {
		if c.limits == nil {
			c.limits = make(map[int64]int)
		}
		c.limits[promise(s.Limit)]++
	}
	for n := len(w.shape.hopOf); n < e.paths.Len(); n++ {
		w.shape.hopOf = append(w.shape.hopOf, int32(n))
		w.shape.hops = append(w.shape.hops, hopDef{})
	}
	c.grow(e.paths.Len())
	w.place(&w.shape)
	w.operate(&w.shape)
	w.count(c.hops, t.Threshold)
	if c.Requests%compactEvery == 0 {
		for h := range c.hops {
			c.hops[h].compact()
		}
	}
	return true
}

// grow makes room for n paths.
func (c *census) grow(n int) {
	if n > len(c.hops) {
		c.hops = append(c.hops, make([]measured, n-len(c.hops))...)
	}
}

func (m *measured) compact() {
	for _, s := range m.sketched() {
		s.Compact()
	}
}

// MergeFiles returns the file of all that is in the files, which stay as they
// are. It keeps as many traces of each endpoint as the file that keeps the fewest.
func MergeFiles(files []*File, o FileOptions) (*File, []error) {
	b := trace.NewBuilder()
	var read trace.Notes
	spans, traces, dropped := 0, 0, 0
	for i, f := range files {
		b.Add(slices.Clone(f.kept))
		read.Merge(f.read)
		spans, traces, dropped = spans+f.spans, traces+f.traces, dropped+f.dropped
		if i == 0 || f.sample < o.Sample {
			o.Sample = f.sample
		}
	}
	m, errs := NewFile(b, read, b.Seal(), o)
	if dropped == 0 {
		return m, errs // everything was at hand, and is counted anew
	}
	m.dropped += traces - m.traces
	m.spans, m.traces = spans, traces
	m.assembled, m.sampling = trace.Notes{}, SamplingEvidence{}
	clear(m.leftOut)
	clear(m.endpoints)
	for _, f := range files {
		m.assembled.Merge(f.assembled)
		m.sampling.add(f.sampling)
		for kind, n := range f.leftOut {
			m.leftOut[kind] += n
		}
		for key, e := range f.endpoints {
			sum := m.endpoints[key]
			if sum == nil {
				sum = new(whole)
				m.endpoints[key] = sum
			}
			sum.merge(e)
		}
	}
	return m, errs
}

func (e *whole) merge(o *whole) {
	e.sampling.add(o.sampling)
	e.inferred.Spans += o.inferred.Spans
	e.inferred.Without += o.inferred.Without
	mine := make([]int32, o.paths.Len()) // path of e for each path of o
	for i := range mine {
		parent, key := o.paths.At(int32(i))
		if parent >= 0 {
			parent = mine[parent]
		}
		mine[i] = e.paths.Child(parent, key)
	}
	for s := range e.census {
		c, from := &e.census[s], &o.census[s]
		c.add(from.Census)
		for limit, n := range from.limits {
			if c.limits == nil {
				c.limits = make(map[int64]int)
			}
			c.limits[limit] += n
		}
		c.grow(e.paths.Len())
		for i := range from.hops {
			c.hops[mine[i]].merge(&from.hops[i])
		}
	}
}

// Spans returns the number of spans that were read.
func (f *File) Spans() int { return f.spans }

// Traces returns the number of traces that were read.
func (f *File) Traces() int { return f.traces }

// Kept returns how many of the traces are in the sample.
func (f *File) Kept() int { return f.traces - f.dropped }

// Whole tells whether every trace is in the sample, so that nothing else of the
// file is needed.
func (f *File) Whole() bool { return f.dropped == 0 }

// Read returns the notes of the readers of the traces.
func (f *File) Read() trace.Notes { return f.read }

// Assembled returns the notes of the assembly of the traces.
func (f *File) Assembled() trace.Notes { return f.assembled }

// LeftOut returns why spans were left out, and how many.
func (f *File) LeftOut() map[trace.NoteKind]int { return maps.Clone(f.leftOut) }

// Inferred returns how many spans of an endpoint's traces had no kind.
func (f *File) Inferred(e Endpoint) Inferred {
	if w := f.endpoints[e]; w != nil {
		return w.inferred
	}
	return Inferred{}
}

// Census calls visit with the counts of every endpoint, by what its traces say of
// their sampling.
func (f *File) Census(visit func(e Endpoint, s trace.Sampling, c Census)) {
	for key, e := range f.endpoints {
		for s := range e.census {
			visit(key, trace.Sampling(s), e.census[s].Census)
		}
	}
}

// Sampled returns the spans of the kept traces, as they were read.
func (f *File) Sampled() []trace.Span { return slices.Clone(f.kept) }

// Sample returns how many traces of each endpoint are kept.
func (f *File) Sample() int { return f.sample }

// Samples tells whether a kept trace is one of the sample of an endpoint. It may
// have been kept for another one alone: to take it would prefer requests
// that share their trace.
func (f *File) Samples(id trace.TraceID, e Endpoint) bool {
	last, ok := f.until[e]
	return !ok || mark{hashID(id), id}.compare(last) <= 0
}

// Widen puts the counts of all traces of a file in place of those of its sample.
func (s *Survey) Widen(f *File) {
	some := SamplingEvidence{}
	all := true
	for key, e := range f.endpoints {
		n := 0
		for i := range e.census {
			n += e.census[i].Requests
		}
		ev := s.endpoints[key]
		if all = all && (ev != nil || n == 0); ev != nil && ev.requests > 0 {
			ev.requests = n
			some.add(e.sampling)
		}
	}
	if s.traces = some; all {
		s.traces = f.sampling // a trace can enter several endpoints
	}
}

// Widen puts counts and durations of all traces of a file in place of those of its
// sample, which must be all that was added. What they do not say stays that of the
// sample: own time, the critical path, the order of siblings, and hops of which
// the calls were counted by several paths.
func (c *Collector) Widen(f *File) {
	for key, e := range c.endpoints {
		if w := f.endpoints[key]; w != nil {
			e.widen(w, c.rules)
		}
	}
}

func (e *collected) widen(w *whole, r *Rules) {
	all := new(census)
	all.limits = make(map[int64]int)
	all.grow(w.paths.Len())
	for s := range w.census {
		from := &w.census[s]
		if !r.Counts(trace.Sampling(s)) {
			continue
		}
		all.add(from.Census)
		for limit, n := range from.limits {
			all.limits[limit] += n
		}
		for i := range from.hops {
			all.hops[i].merge(&from.hops[i])
		}
	}
	if all.Requests == e.requests {
		return
	}
	e.beside, e.requests, e.limits = all.Requests-e.requests, all.Requests, all.limits
	for h := range e.hops {
		e.hops[h].sampled = slices.Clone(e.hops[h].tallies)
		if e.hops[h].sampled == nil {
			e.hops[h].sampled = []tally{}
		}
	}
	const several, none = -2, -1
	place := make([]int32, w.paths.Len()) // path of the layout for each path of the file
	from := slices.Repeat([]int32{none}, len(e.hops))
	for i := range place {
		parent, key := w.paths.At(int32(i))
		up := int32(-1)
		if parent >= 0 {
			up = place[parent]
		}
		place[i] = -1
		if parent < 0 || up >= 0 {
			if node, ok := e.shape.paths.Find(up, key); ok {
				place[i] = node
			}
		}
		m := &all.hops[i]
		switch {
		case len(m.tallies) == 0:
		case place[i] < 0:
			e.lost += m.calls()
		case e.shape.hopOf[place[i]] == transparent:
		case from[e.shape.hopOf[place[i]]] != none, parent >= 0 && e.shape.hopOf[up] == transparent && !all.hops[parent].once():
			from[e.shape.hopOf[place[i]]] = several
		default:
			from[e.shape.hopOf[place[i]]] = int32(i)
		}
	}
	for h := range e.hops { // parents stand before their children
		def, m := &e.shape.hops[h], &e.hops[h]
		if from[h] >= 0 && !def.other && (def.parent < 0 || e.hops[def.parent].widened) {
			m.widen(&all.hops[from[h]], r.options.Unweighted)
		}
	}
}

// once tells whether no call of its parent made more than one.
func (m *measured) once() bool { return m.calls() == m.operations() }

// widen takes over what was counted of all requests. o is used up.
func (m *measured) widen(o *measured, unweighted bool) {
	tallies := o.tallies
	if unweighted {
		for _, s := range o.sketched() {
			s.Unweigh()
		}
		sum := tally{}
		for _, t := range tallies {
			sum.calls, sum.operations, sum.present = sum.calls+t.calls, sum.operations+t.operations, sum.present+t.present
		}
		tallies = []tally{sum}
	}
	m.every, m.duration, m.longest, m.backoff, m.count = o.every, o.duration, o.longest, o.backoff, o.count
	m.failed, m.paired, m.unanswered, m.unfitted = o.failed, o.paired, o.unanswered, o.unfitted
	m.maxAttempts = max(m.maxAttempts, o.maxAttempts)
	m.retried, m.looped = m.retried || o.retried, m.looped || o.looped
	m.hedged, m.serverOnly = m.hedged || o.hedged, m.serverOnly || o.serverOnly
	m.streamed = m.streamed || o.streamed
	m.tallies, m.widened = nil, true
	for _, t := range tallies {
		known := find(m.sampled, t.threshold)
		t.path, t.whole = known.path, known.whole
		m.tallies = append(m.tallies, t)
	}
}

// Counts tells whether traces count that say this of their sampling.
func (r *Rules) Counts(s trace.Sampling) bool {
	switch {
	case r.options.Unweighted:
		return true
	case r.weighted:
		return s == trace.SamplingKnown
	}
	return s == trace.SamplingUnknown
}
