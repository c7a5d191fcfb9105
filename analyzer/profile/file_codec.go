package profile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// fileVersion is the version of the form that docs/profile.md describes.
const fileVersion = 1

// Errors of DecodeFile.
var (
	// ErrNoFile is returned for data that is no profile, or not whole.
	ErrNoFile = errors.New("this profile is damaged or not whole: make it again, or copy it again")
	// ErrNewerFile is returned (wrapped) for a version that is not known yet.
	ErrNewerFile = errors.New("this profile was written by a newer budgetctl: update budgetctl to read it")
)

// Limits of what a file may say, so that sums stay far from overflow and a small
// file cannot ask for much memory.
const (
	maxCount = 1 << 50
	maxPaths = 1 << 20
	maxNanos = 1 << 61 // of a duration; start times are below twice that
)

// units are the steps of time that a trace's times are multiples of.
var units = [...]int64{1, 1_000, 1_000_000}

// Bits of a span's byte of kind and outcome.
const (
	outcomeBit = 3
	stampBit   = 1 << 5
	flagsBit   = 1 << 6
)

// Encode returns the file in the form that [DecodeFile] reads. Equal files have
// equal bytes.
func (f *File) Encode() []byte {
	e := &encoder{b: []byte(trace.ProfileMagic)}
	e.count(fileVersion, f.sample, f.spans, f.traces, f.dropped)
	e.notes(f.read)
	e.notes(f.assembled)
	e.count(len(f.leftOut))
	for _, kind := range slices.Sorted(maps.Keys(f.leftOut)) {
		e.text(string(kind))
		e.count(f.leftOut[kind])
	}
	e.evidence(f.sampling)
	e.count(len(f.endpoints))
	for _, key := range slices.SortedFunc(maps.Keys(f.endpoints), Endpoint.compare) {
		e.text(key.Service, key.Operation)
		e.whole(f.endpoints[key])
	}
	e.spans(f.kept)
	return e.b
}

// DecodeFile reads what [File.Encode] wrote. The errors say what to do.
func DecodeFile(data []byte) (*File, error) {
	d := &decoder{b: data}
	if len(data) < len(trace.ProfileMagic) || string(d.bytes(len(trace.ProfileMagic))) != trace.ProfileMagic {
		return nil, ErrNoFile
	}
	if v := d.count(); d.bad || v < 1 {
		return nil, ErrNoFile
	} else if v > fileVersion {
		return nil, fmt.Errorf("%w (its format is %d, this one reads %d)", ErrNewerFile, v, fileVersion)
	}
	f := &File{leftOut: make(map[trace.NoteKind]int), endpoints: make(map[Endpoint]*whole), until: make(map[Endpoint]mark)}
	f.sample, f.spans, f.traces, f.dropped = d.count(), d.count(), d.count(), d.count()
	d.check(f.sample > 0 && f.dropped <= f.traces)
	f.read, f.assembled = d.notes(), d.notes()
	for range d.length(2) {
		kind := trace.NoteKind(d.text())
		f.leftOut[kind] = d.count()
	}
	f.sampling = d.evidence()
	paths := 0
	for range d.length(8) {
		key := Endpoint{d.text(), d.text()}
		d.check(f.endpoints[key] == nil)
		f.endpoints[key] = d.whole(&paths)
	}
	f.kept = d.spans()
	d.check(len(d.b) == 0)
	if d.bad {
		return nil, ErrNoFile
	}
	return f, nil
}

// encoder appends values: numbers as varints, texts with their length before them.
type encoder struct{ b []byte }

func (e *encoder) count(values ...int) {
	for _, v := range values {
		e.b = binary.AppendUvarint(e.b, uint64(v))
	}
}

func (e *encoder) signed(v int64) { e.b = binary.AppendVarint(e.b, v) }

func (e *encoder) word(v uint64) { e.b = binary.AppendUvarint(e.b, v) }

func (e *encoder) text(values ...string) {
	for _, v := range values {
		e.count(len(v))
		e.b = append(e.b, v...)
	}
}

func (e *encoder) notes(n trace.Notes) {
	list := n.List()
	e.count(len(list))
	for _, note := range list {
		e.text(string(note.Kind))
		e.count(note.Count)
		e.text(note.Example)
	}
}

func (e *encoder) evidence(s SamplingEvidence) {
	e.count(s.Traces, s.Weighted, s.Invalid, s.TailSampled)
}

func (e *encoder) whole(w *whole) {
	e.count(w.inferred.Spans, w.inferred.Without)
	e.evidence(w.sampling)
	rank := w.paths.Ranks() // the order of arrival must not show
	order := make([]int32, len(rank))
	for node, r := range rank {
		order[r] = int32(node)
	}
	e.count(len(order))
	for _, node := range order {
		parent, key := w.paths.At(node)
		up := 0
		if parent >= 0 {
			up = int(rank[parent]) + 1
		}
		e.count(up)
		e.text(key.Service, key.Operation)
		e.count(int(key.Kind))
	}
	for s := range w.census {
		c := &w.census[s]
		e.count(c.Requests, c.Spans, c.Unmeasured, c.UnmeasuredSpans, len(c.limits))
		for _, limit := range slices.Sorted(maps.Keys(c.limits)) {
			e.word(uint64(limit))
			e.count(c.limits[limit])
		}
		c.grow(len(order))
		if c.Requests > 0 {
			for _, node := range order {
				e.measured(&c.hops[node])
			}
		}
	}
}

func (e *encoder) measured(m *measured) {
	e.count(len(m.tallies))
	if len(m.tallies) == 0 {
		return
	}
	for _, t := range m.tallies {
		e.word(t.threshold)
		e.count(t.calls, t.operations, t.present)
	}
	flags := 0
	for i, set := range []bool{m.retried, m.looped, m.hedged, m.serverOnly, m.streamed} {
		if set {
			flags |= 1 << i
		}
	}
	e.count(m.failed, m.paired, m.unanswered, m.unfitted, m.maxAttempts, flags)
	for _, s := range m.sketched() {
		e.sample(s)
	}
}

// sketched are the samples of a hop that a file keeps.
func (m *measured) sketched() []*quantile.Sample {
	return []*quantile.Sample{&m.every, &m.duration, &m.longest, &m.backoff, &m.count}
}

func (e *encoder) sample(s *quantile.Sample) {
	sketches := s.Sketches()
	e.count(len(sketches))
	for _, k := range sketches {
		e.word(k.Threshold)
		e.count(k.Censored)
		e.signed(k.Min)
		e.signed(k.Max)
		e.count(len(k.Buckets))
		previous := int64(0)
		for _, b := range k.Buckets {
			e.signed(int64(b.Index) - previous)
			previous = int64(b.Index)
		}
		for _, b := range k.Buckets {
			e.count(b.N)
		}
	}
}

// spans writes the spans in columns, which compress better than rows.
func (e *encoder) spans(spans []trace.Span) {
	descs := make(map[trace.Desc]int)
	for i := range spans {
		descs[*spans[i].Desc] = 0
	}
	order := slices.SortedFunc(maps.Keys(descs), func(a, b trace.Desc) int {
		return slices.Compare([]string{a.Service, a.Operation, a.Peer, a.Host}, []string{b.Service, b.Operation, b.Peer, b.Host})
	})
	e.count(len(order))
	for i, d := range order {
		descs[d] = i
		e.text(d.Service, d.Operation, d.Peer, d.Host)
	}
	var groups [][]trace.Span // runs of one trace id
	for rest := spans; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].TraceID == rest[0].TraceID {
			n++
		}
		groups, rest = append(groups, rest[:n]), rest[n:]
	}
	e.count(len(groups))
	for _, g := range groups {
		e.b = append(e.b, g[0].TraceID[:]...)
	}
	unit := make([]int, len(groups))
	for i, g := range groups {
		unit[i] = unitOf(g)
		e.count(len(g), unit[i])
	}
	for i := range spans {
		e.b = append(e.b, spans[i].ID[:]...)
	}
	for i := range spans {
		e.count(descs[*spans[i].Desc])
	}
	for i := range spans {
		s := &spans[i]
		kind := byte(s.Kind) | byte(s.Outcome)<<outcomeBit
		if s.Stamp != nil {
			kind |= stampBit
		}
		if s.Flags != 0 {
			kind |= flagsBit
		}
		e.b = append(e.b, kind)
	}
	for _, g := range groups {
		e.parents(g)
	}
	for i, g := range groups {
		previous := int64(0)
		for j := range g {
			e.signed((g[j].Start - previous) / units[unit[i]])
			previous = g[j].Start
		}
	}
	for i, g := range groups {
		for j := range g {
			e.signed(g[j].Duration / units[unit[i]])
		}
	}
	for i := range spans {
		s := &spans[i]
		if s.Flags != 0 {
			e.count(int(s.Flags))
			if s.Is(trace.FlagThreshold) {
				e.word(s.Threshold)
			}
		}
		if s.Stamp != nil {
			e.stamp(s.Stamp)
		}
	}
}

// unitOf returns the index of the largest unit of all times.
func unitOf(spans []trace.Span) int {
	u := len(units) - 1
	for i := range spans {
		for spans[i].Start%units[u] != 0 || spans[i].Duration%units[u] != 0 {
			u--
		}
	}
	return u
}

// How a parent is written: none, as an id, or by its distance in the trace.
const (
	parentNone  = 0
	parentByID  = 1
	parentFirst = 2
)

func (e *encoder) parents(g []trace.Span) {
	at := make(map[trace.SpanID]int, len(g))
	for i := range g {
		if _, ok := at[g[i].ID]; !ok {
			at[g[i].ID] = i
		}
	}
	for i := range g {
		p, ok := at[g[i].Parent]
		switch {
		case g[i].Parent.IsZero():
			e.count(parentNone)
		case !ok:
			e.count(parentByID)
			e.b = append(e.b, g[i].Parent[:]...)
		case p <= i: // parents start first
			e.count(parentFirst + 2*(i-p))
		default:
			e.count(parentFirst + 2*(p-i) - 1)
		}
	}
}

func (e *encoder) stamp(s *trace.Stamp) {
	bits := 0
	for i, set := range []bool{s.HasRemaining, s.HasDeadline, s.HasAnnounced, s.Stale, s.Absolute} {
		if set {
			bits |= 1 << i
		}
	}
	e.count(bits)
	for _, v := range []int64{s.Limit, s.Remaining, s.DeadlineRemaining, s.Announced} {
		e.signed(v)
	}
}

// decoder takes values off data. After the first bad one everything it returns is
// zero and bad is set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) check(ok bool) {
	if !ok {
		d.bad, d.b = true, nil
	}
}

func (d *decoder) bytes(n int) []byte {
	d.check(n <= len(d.b))
	if d.bad {
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) word() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.check(n > 0); d.bad {
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	if d.check(n > 0); d.bad {
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) count() int {
	v := d.word()
	if d.check(v <= maxCount); d.bad {
		return 0
	}
	return int(v)
}

// length is the number of things that follow, of which each takes so many bytes
// or more.
func (d *decoder) length(each int) int {
	n := d.count()
	if d.check(n <= len(d.b)/each); d.bad {
		return 0
	}
	return n
}

func (d *decoder) text() string {
	return strings.ToValidUTF8(string(d.bytes(d.length(1))), "\uFFFD")
}

func (d *decoder) notes() trace.Notes {
	var notes trace.Notes
	for range d.length(3) {
		kind, n, example := trace.NoteKind(d.text()), d.count(), d.text()
		notes.Add(kind, n, example, "")
	}
	return notes
}

func (d *decoder) evidence() SamplingEvidence {
	return SamplingEvidence{d.count(), d.count(), d.count(), d.count()}
}

func (d *decoder) whole(paths *int) *whole {
	w := new(whole)
	w.inferred, w.sampling = Inferred{d.count(), d.count()}, d.evidence()
	n := d.length(4)
	*paths += n
	d.check(*paths <= maxPaths)
	for i := 0; i < n && !d.bad; i++ {
		parent := d.count() - 1
		key := trace.Key{Service: d.text(), Operation: d.text(), Kind: trace.CallKind(min(d.count(), math.MaxUint8))}
		d.check(parent < i && (parent < 0) == (i == 0) && key.Kind <= trace.CallAsync && (key.Kind == trace.CallRoot) == (i == 0))
		if !d.bad {
			d.check(w.paths.Child(int32(parent), key) == int32(i))
		}
	}
	for s := range w.census {
		c := &w.census[s]
		c.Census = Census{d.count(), d.count(), d.count(), d.count()}
		for range d.length(2) {
			if c.limits == nil {
				c.limits = make(map[int64]int)
			}
			limit := d.word()
			d.check(0 < limit && limit < maxNanos)
			c.limits[int64(limit)] = d.count()
		}
		d.check(c.Requests == 0 || n > 0)
		for i := 0; c.Requests > 0 && i < n && !d.bad; i++ {
			if d.measured(c, i); i == 0 && !d.bad {
				d.check(len(c.hops) > 0) // every request has its own call
			}
		}
	}
	return w
}

func (d *decoder) measured(c *census, path int) {
	n := d.length(4)
	if n == 0 {
		return
	}
	c.grow(path + 1)
	m := &c.hops[path]
	for i := range n {
		t := tally{threshold: d.word(), calls: d.count(), operations: d.count(), present: d.count()}
		d.check(t.threshold < 1<<56 && (i == 0 || t.threshold > m.tallies[i-1].threshold) &&
			0 < t.present && t.present <= t.operations && t.operations <= t.calls)
		if d.bad {
			return
		}
		m.tallies = append(m.tallies, t)
	}
	m.failed, m.paired, m.unanswered, m.unfitted, m.maxAttempts = d.count(), d.count(), d.count(), d.count(), d.count()
	flags := d.count()
	m.retried, m.looped, m.hedged, m.serverOnly = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
	m.streamed = flags&16 != 0
	for _, s := range m.sketched() {
		d.sample(s)
	}
	d.check(m.duration.N()+m.failed == m.operations() && m.longest.N() == m.duration.N() &&
		m.backoff.N() <= m.operations() && m.count.N() == m.operations())
}

func (d *decoder) sample(s *quantile.Sample) {
	least := uint64(0) // threshold, so that classes come in order
	for range d.length(5) {
		k := quantile.Sketch{Threshold: d.word(), Censored: d.count(), Min: d.signed(), Max: d.signed()}
		d.check(k.Threshold >= least)
		least = k.Threshold + 1
		n := d.length(2)
		k.Buckets = make([]quantile.Bucket, n)
		index := int64(0)
		for i := range k.Buckets {
			step := d.signed()
			d.check(step >= math.MinInt16 && step <= math.MaxInt16)
			index += step
			d.check(index >= math.MinInt16 && index <= math.MaxInt16)
			k.Buckets[i].Index = int32(index)
		}
		for i := range k.Buckets {
			k.Buckets[i].N = d.count()
		}
		if !d.bad {
			d.check(s.AddSketch(k) == nil)
		}
	}
}

// leastSpan is how many bytes a span takes at least.
const leastSpan = 8 + 5

func (d *decoder) spans() []trace.Span {
	descs := make([]trace.Desc, d.length(4))
	for i := range descs {
		descs[i] = trace.Desc{Service: d.text(), Operation: d.text(), Peer: d.text(), Host: d.text()}
	}
	type group struct{ first, n, unit int }
	groups := make([]group, d.length(16+2+leastSpan))
	ids := d.bytes(16 * len(groups))
	total := 0
	for i := range groups {
		groups[i] = group{total, d.count(), d.count()}
		d.check(groups[i].n > 0 && groups[i].unit < len(units) && groups[i].n <= len(d.b)/leastSpan)
		total += groups[i].n
		d.check(total <= len(d.b)/leastSpan)
		if d.bad {
			return nil
		}
	}
	spans := make([]trace.Span, total)
	for i := range groups {
		for j := range groups[i].n {
			copy(spans[groups[i].first+j].TraceID[:], ids[16*i:])
		}
	}
	for i := range spans {
		copy(spans[i].ID[:], d.bytes(8))
	}
	for i := range spans {
		at := d.count()
		if d.check(at < len(descs)); d.bad {
			return nil
		}
		spans[i].Desc = &descs[at]
	}
	kinds := d.bytes(total)
	for i, b := range kinds {
		spans[i].Kind, spans[i].Outcome = trace.Kind(b&(1<<outcomeBit-1)), trace.Outcome(b>>outcomeBit&3)
		d.check(spans[i].Kind <= trace.KindConsumer && b < 2*flagsBit)
	}
	for _, g := range groups {
		d.parents(spans[g.first : g.first+g.n])
	}
	for _, g := range groups {
		previous := int64(0)
		for j := range g.n {
			step := d.signed()
			d.check(step > -2*maxNanos/units[g.unit] && step < 2*maxNanos/units[g.unit])
			previous += step * units[g.unit]
			d.check(previous >= 0 && previous < 2*maxNanos)
			if d.bad {
				return nil
			}
			spans[g.first+j].Start = previous
		}
	}
	for _, g := range groups {
		for j := range g.n {
			v := d.signed()
			d.check(v > -maxNanos/units[g.unit] && v < maxNanos/units[g.unit])
			spans[g.first+j].Duration = v * units[g.unit]
		}
	}
	for i, b := range kinds {
		if d.bad {
			return nil
		}
		s := &spans[i]
		if b&flagsBit != 0 {
			flags := d.count()
			d.check(flags <= math.MaxUint16)
			if s.Flags = trace.Flags(flags); s.Is(trace.FlagThreshold) {
				s.Threshold = d.word()
				d.check(s.Threshold < 1<<56)
			}
		}
		if b&stampBit != 0 {
			s.Stamp = d.stamp()
		}
	}
	return spans
}

func (d *decoder) parents(g []trace.Span) {
	for i := range g {
		switch v := d.count(); v {
		case parentNone:
		case parentByID:
			copy(g[i].Parent[:], d.bytes(8))
		default:
			v -= parentFirst
			p := i - v/2
			if v%2 == 1 {
				p = i + v/2 + 1
			}
			if d.check(p >= 0 && p < len(g)); d.bad {
				return
			}
			g[i].Parent = g[p].ID
		}
	}
}

func (d *decoder) stamp() *trace.Stamp {
	bits := d.count()
	s := &trace.Stamp{
		HasRemaining: bits&1 != 0, HasDeadline: bits&2 != 0, HasAnnounced: bits&4 != 0, Stale: bits&8 != 0, Absolute: bits&16 != 0,
	}
	for _, v := range []*int64{&s.Limit, &s.Remaining, &s.DeadlineRemaining, &s.Announced} {
		*v = d.signed()
		d.check(*v > -maxNanos && *v < maxNanos)
	}
	return s
}
