package trace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultMaxTraceSpans is the largest number of spans one trace may have.
const DefaultMaxTraceSpans = 1_000_000

// Notes of the assembly. Those marked "left out" are also reasons of [Left].
const (
	NoteDuplicate     NoteKind = "duplicate_span"       // the same span twice, equal to the last field; left out
	NoteConflict      NoteKind = "conflicting_span"     // one span id with different content; the longest is kept, the others left out
	NoteNegative      NoteKind = "negative_duration"    // end before start; left out, its children go to its parent
	NoteTooLong       NoteKind = "implausible_duration" // longer than a day: a broken clock; left out like a negative one
	NoteSelfParent    NoteKind = "self_parent"          // a span that names itself as parent; kept as a root
	NoteCycle         NoteKind = "cycle"                // parents that run in a circle; broken at the earliest span, kept as a root
	NoteMissingParent NoteKind = "missing_parent"       // the parent is not in the export; with its sub-tree left out of a trace that has a root
	NoteJoinedIDs     NoteKind = "joined_trace_ids"     // spans that carried only the low 64 bits of their trace id; joined
	NoteTraceTooBig   NoteKind = "trace_too_big"        // a trace over --max-trace-spans; left out
)

// Builder groups spans into traces. Spans may come in any order and any split.
// Adding is cheap; a trace is assembled only when [Builder.Assemble] asks for
// it, so that the memory held is the spans and eight bytes for each.
type Builder struct {
	chunks [][]Span
	number map[TraceID]int32
	of     [][]int32 // trace number of each span of each chunk
	traces []traceSpans
	spans  int

	order  []spanRef // spans grouped by trace, after Seal
	joined int
	sample string // example of a joined trace
}

type traceSpans struct {
	id    TraceID
	count int
	first int // index into order
}

type spanRef struct{ chunk, index int32 }

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder { return &Builder{number: make(map[TraceID]int32)} }

// Add takes over a slice of spans. It must not be called after Seal.
func (b *Builder) Add(spans []Span) {
	if len(spans) == 0 {
		return
	}
	of := make([]int32, len(spans))
	// Neighbours in a batch often belong to one trace: one look-up serves them.
	last, lastID := int32(-1), TraceID{}
	for i := range spans {
		if id := spans[i].TraceID; last < 0 || id != lastID {
			lastID = id
			n, ok := b.number[id]
			if !ok {
				n = int32(len(b.traces))
				b.number[id] = n
				b.traces = append(b.traces, traceSpans{id: id})
			}
			last = n
		}
		of[i] = last
		b.traces[last].count++
	}
	b.chunks = append(b.chunks, spans)
	b.of = append(b.of, of)
	b.spans += len(spans)
}

// Spans returns how many spans were added.
func (b *Builder) Spans() int { return b.spans }

// Seal ends the adding and orders the traces by id. It returns the notes on
// trace ids.
func (b *Builder) Seal() Notes {
	target := b.joinHalves()
	slots := make([]int32, 0, len(b.traces))
	for i := range b.traces {
		if target[i] == int32(i) {
			slots = append(slots, int32(i))
		}
	}
	slices.SortFunc(slots, func(x, y int32) int { return b.traces[x].id.Compare(b.traces[y].id) })
	place := make([]int32, len(b.traces))
	sealed := make([]traceSpans, len(slots))
	for at, i := range slots {
		place[i] = int32(at)
		sealed[at].id = b.traces[i].id
	}
	for i := range b.traces {
		place[i] = place[target[i]]
		sealed[place[i]].count += b.traces[i].count
	}
	next := 0
	cursor := make([]int, len(sealed))
	for i := range sealed {
		sealed[i].first, cursor[i] = next, next
		next += sealed[i].count
	}
	b.order = make([]spanRef, b.spans)
	for c, of := range b.of {
		for i, n := range of {
			at := &cursor[place[n]]
			b.order[*at] = spanRef{int32(c), int32(i)}
			*at++
		}
	}
	b.traces, b.of, b.number = sealed, nil, nil
	var notes Notes
	notes.Add(NoteJoinedIDs, b.joined, b.sample, "")
	return notes
}

// joinHalves maps traces that carry a 64-bit id to the one 128-bit trace whose
// low half equals it: some libraries pass on only that half. Where two such
// traces exist nothing is joined.
func (b *Builder) joinHalves() []int32 {
	target := make([]int32, len(b.traces))
	halves := make(map[uint64]int32) // low 64 bits -> number of the short trace
	for i := range b.traces {
		target[i] = int32(i)
		if id := b.traces[i].id; binary.BigEndian.Uint64(id[:8]) == 0 {
			halves[binary.BigEndian.Uint64(id[8:])] = int32(i)
		}
	}
	if len(halves) == 0 || len(halves) == len(b.traces) {
		return target
	}
	whole := make(map[uint64]int32)
	for i := range b.traces {
		id := b.traces[i].id
		if binary.BigEndian.Uint64(id[:8]) == 0 {
			continue
		}
		low := binary.BigEndian.Uint64(id[8:])
		if _, ok := halves[low]; !ok {
			continue
		}
		if _, ok := whole[low]; ok {
			whole[low] = -1 // ambiguous
		} else {
			whole[low] = int32(i)
		}
	}
	for low, i := range whole {
		if i < 0 {
			continue
		}
		short := halves[low]
		target[short] = i
		b.joined += b.traces[short].count
		if s := b.traces[i].id.String(); b.sample == "" || s < b.sample {
			b.sample = s
		}
	}
	return target
}

// Len returns the number of traces, after Seal.
func (b *Builder) Len() int { return len(b.traces) }

// Trace is one assembled trace. Its slices are reused by the next Assemble.
type Trace struct {
	ID TraceID
	// Spans are the usable spans in order of (start, longer first, id).
	Spans []Span
	// Parent is the index of the parent of each span: one of the spans, or
	// [NoParent], or [LostParent].
	Parent []int32
	// Notes say what was wrong with the trace.
	Notes Notes
	// LeftOut counts the spans that were dropped here, by reason.
	LeftOut map[NoteKind]int
	// Threshold is the largest sampling threshold of the spans, where Sampling
	// is SamplingKnown: a trace is whole only as often as its rarest span is kept.
	Threshold uint64
	Sampling  Sampling
	// InferredKinds counts the spans whose kind was missing.
	InferredKinds int

	children childIndex
	byID     map[SpanID]int32
	state    []uint8
	seen     []bool  // for one walk at a time
	stack    []int32 // likewise
	step     []bool  // kind was inferred: a leaf that is a step of its own service
}

// Sampling says what a trace's spans tell of how it was sampled.
type Sampling uint8

// The states of sampling.
const (
	SamplingUnknown Sampling = iota // no span has an `ot=th`
	SamplingInvalid                 // none that can be read
	SamplingKnown
)

// Parents that are no span of the trace.
const (
	NoParent   int32 = -1 // a root
	LostParent int32 = -2 // the parent is not in the export
)

// Children returns the children of span i in order of start.
func (t *Trace) Children(i int32) []int32 { return t.children.of(i) }

// Assemble builds trace i, 0 <= i < Len, into t. The result depends on the
// spans alone, not on the order they were added in. A trace over maxSpans is
// an error and leaves t without spans.
func (b *Builder) Assemble(i int, maxSpans int, t *Trace) error {
	src := b.traces[i]
	if len(t.Spans) > largeTrace && len(t.Spans) > 8*src.count {
		*t = Trace{} // buffers of a large trace would slow down all small ones behind it
	}
	t.reset(src.id)
	if src.count > maxSpans {
		t.drop(NoteTraceTooBig, src.count, src.id.String())
		return fmt.Errorf("trace %s has %d spans, more than --max-trace-spans %d: raise it to analyse this trace",
			src.id, src.count, maxSpans)
	}
	// Sorted where they stand, the spans are in order when the trace is
	// assembled again.
	refs := b.order[src.first : src.first+src.count]
	slices.SortFunc(refs, func(x, y spanRef) int {
		return compareSpans(&b.chunks[x.chunk][x.index], &b.chunks[y.chunk][y.index])
	})
	for _, ref := range refs {
		t.Spans = append(t.Spans, b.chunks[ref.chunk][ref.index])
		t.Spans[len(t.Spans)-1].TraceID = src.id
	}
	t.link()
	return nil
}

// Count returns how many spans of trace i were added, 0 <= i < Len.
func (b *Builder) Count(i int) int { return b.traces[i].count }

// Raw appends the spans of trace i, 0 <= i < Len, to dst as they were added:
// with the trace ids that they came with, and with all that [Builder.Assemble]
// leaves out. The order does not depend on that of adding.
func (b *Builder) Raw(dst []Span, i int) []Span {
	src := b.traces[i]
	first := len(dst)
	for _, ref := range b.order[src.first : src.first+src.count] {
		dst = append(dst, b.chunks[ref.chunk][ref.index])
	}
	slices.SortFunc(dst[first:], func(x, y Span) int {
		return cmp.Or(x.TraceID.Compare(y.TraceID), compareSpans(&x, &y))
	})
	return dst
}

// largeTrace is the number of spans from which buffers are worth giving up.
const largeTrace = 1024

// NewTrace assembles spans that are known to belong to one trace. The slice is
// not kept.
func NewTrace(spans []Span) *Trace {
	t := new(Trace)
	t.Set(spans)
	return t
}

// Set assembles spans that are known to belong to one trace into t, whose
// buffers it reuses. The slice is not kept.
func (t *Trace) Set(spans []Span) {
	if len(t.Spans) > largeTrace && len(t.Spans) > 8*len(spans) {
		*t = Trace{} // as in Assemble
	}
	var id TraceID
	if len(spans) > 0 {
		id = spans[0].TraceID
	}
	t.reset(id)
	// Numbers are cheaper to sort than spans.
	t.stack = t.stack[:0]
	for i := range spans {
		t.stack = append(t.stack, int32(i))
	}
	slices.SortFunc(t.stack, func(a, b int32) int { return compareSpans(&spans[a], &spans[b]) })
	for _, i := range t.stack {
		t.Spans = append(t.Spans, spans[i])
	}
	t.link()
}

func (t *Trace) reset(id TraceID) {
	t.ID = id
	t.Spans = t.Spans[:0]
	t.Notes = Notes{}
	t.InferredKinds = 0
	t.Threshold, t.Sampling = 0, SamplingUnknown
	clear(t.LeftOut)
	if t.LeftOut == nil {
		t.LeftOut = make(map[NoteKind]int)
	}
}

func (t *Trace) drop(kind NoteKind, n int, example string) {
	t.Notes.Add(kind, n, example, "")
	t.LeftOut[kind] += n
}

func (t *Trace) name(i int32) string { return t.ID.String() + "/" + t.Spans[i].ID.String() }

// compareSpans is a total order on content: start, longer first, id, then
// everything else, so that equal spans are neighbours and ties do not depend
// on where a span was read.
func compareSpans(a, b *Span) int {
	if a.Start != b.Start {
		return cmp.Compare(a.Start, b.Start)
	}
	if a.Duration != b.Duration {
		return cmp.Compare(b.Duration, a.Duration)
	}
	if c := a.ID.Compare(b.ID); c != 0 {
		return c
	}
	return compareContent(a, b)
}

func compareContent(a, b *Span) int {
	if c := a.Parent.Compare(b.Parent); c != 0 {
		return c
	}
	if c := cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Flags, b.Flags),
		cmp.Compare(a.Threshold, b.Threshold)); c != 0 {
		return c
	}
	if a.Desc != b.Desc {
		if c := cmp.Or(strings.Compare(a.Desc.Service, b.Desc.Service), strings.Compare(a.Desc.Operation, b.Desc.Operation),
			strings.Compare(a.Desc.Peer, b.Desc.Peer), strings.Compare(a.Desc.Host, b.Desc.Host)); c != 0 {
			return c
		}
	}
	switch {
	case a.Stamp == nil && b.Stamp == nil:
		return 0
	case a.Stamp == nil:
		return -1
	case b.Stamp == nil:
		return 1
	}
	return a.Stamp.compare(b.Stamp)
}

func (s *Stamp) compare(o *Stamp) int {
	return cmp.Or(cmp.Compare(s.Limit, o.Limit), cmp.Compare(s.Remaining, o.Remaining),
		cmp.Compare(s.DeadlineRemaining, o.DeadlineRemaining), cmp.Compare(s.Announced, o.Announced),
		compareBool(s.HasRemaining, o.HasRemaining), compareBool(s.HasDeadline, o.HasDeadline),
		compareBool(s.HasAnnounced, o.HasAnnounced), compareBool(s.Stale, o.Stale), compareBool(s.Absolute, o.Absolute),
		compareBool(s.Derived, o.Derived))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// link drops what cannot be used of the sorted spans, and joins children to
// parents.
func (t *Trace) link() {
	bypass, shared := t.dropUnusable()
	t.resolveParents(bypass, shared)
	t.breakCycles()
	t.sample()
	t.children.build(len(t.Spans), func(i int) int32 { return t.Parent[i] })
	t.inferKinds()
}

func (t *Trace) sample() {
	for i := range t.Spans {
		switch s := &t.Spans[i]; {
		case s.Is(FlagThreshold):
			t.Sampling, t.Threshold = SamplingKnown, max(t.Threshold, s.Threshold)
		case s.Is(FlagThresholdInvalid) && t.Sampling == SamplingUnknown:
			t.Sampling = SamplingInvalid
		}
	}
}

// maxDuration is the longest that a span may take: one day. Beyond it nobody
// waits, and a single broken clock would set every figure of its endpoint.
const maxDuration = 24 * int64(time.Hour)

// dropUnusable removes duplicates and spans whose duration is negative or over
// maxDuration. It returns the parent of each removed span of such a duration, so
// that its children can go there: a bad span costs itself alone. Unless shared is
// true, no two spans have one id, and byID has them all.
func (t *Trace) dropUnusable() (bypass map[SpanID]SpanID, shared bool) {
	if t.byID == nil {
		t.byID = make(map[SpanID]int32)
	}
	clear(t.byID)
	kept := t.Spans[:0]
	for i := range t.Spans {
		s := t.Spans[i]
		if (s.Duration < 0 || s.Duration > maxDuration) && !s.Is(FlagUnmeasured) {
			kind := NoteNegative
			if s.Duration > 0 {
				kind = NoteTooLong
			}
			t.drop(kind, 1, t.name(int32(i)))
			if bypass == nil {
				bypass = make(map[SpanID]SpanID)
			}
			if s.Parent == s.ID {
				s.Parent = SpanID{} // a root, like any span that names itself as parent
			}
			bypass[s.ID] = s.Parent
			continue
		}
		kept = append(kept, s)
	}
	t.Spans = kept
	// Two spans of one id: the halves of one Zipkin call (both are kept), the
	// same span again (one is kept), or a conflict (the longest is kept).
	for i := range t.Spans {
		t.byID[t.Spans[i].ID] = int32(i)
	}
	if len(t.byID) == len(t.Spans) {
		return bypass, false
	}
	groups := make(map[SpanID][]int32)
	for i := range t.Spans {
		groups[t.Spans[i].ID] = append(groups[t.Spans[i].ID], int32(i))
	}
	gone := make([]bool, len(t.Spans))
	for i := range t.Spans { // in span order, so that notes come out the same
		group := groups[t.Spans[i].ID]
		if len(group) < 2 || group[0] != int32(i) {
			continue
		}
		best := map[bool]int32{} // by "is the client half"
		halves := t.hasBothHalves(group)
		for _, g := range group {
			half := halves && t.Spans[g].Kind == KindClient
			other, ok := best[half]
			if !ok {
				best[half] = g
				continue
			}
			lose := g
			if longer(&t.Spans[g], &t.Spans[other]) {
				lose, best[half] = other, g
			}
			gone[lose] = true
			kind := NoteConflict
			a, b := &t.Spans[g], &t.Spans[other]
			if compareSpans(a, b) == 0 {
				kind = NoteDuplicate
			}
			t.drop(kind, 1, t.name(lose))
		}
	}
	kept = t.Spans[:0]
	for i := range t.Spans {
		if !gone[i] {
			kept = append(kept, t.Spans[i])
		}
	}
	t.Spans = kept
	return bypass, true
}

// longer tells whether a is to be kept rather than b. Measured beats
// unmeasured, then the longer; ties go to the smaller content.
func longer(a, b *Span) bool {
	if am, bm := a.Is(FlagUnmeasured), b.Is(FlagUnmeasured); am != bm {
		return bm
	}
	if a.Duration != b.Duration {
		return a.Duration > b.Duration
	}
	if a.Start != b.Start {
		return a.Start < b.Start
	}
	return compareContent(a, b) < 0
}

func (t *Trace) hasBothHalves(group []int32) bool {
	var client, server bool
	for _, g := range group {
		client = client || t.Spans[g].Kind == KindClient
		server = server || t.Spans[g].Kind == KindServer
	}
	return client && server
}

// pairHalves returns the CLIENT half of each id that spans share; byID has the
// other one then.
func (t *Trace) pairHalves() map[SpanID]int32 {
	halves := make(map[SpanID]int32)
	clear(t.byID)
	for i := range t.Spans {
		id := t.Spans[i].ID
		first, ok := t.byID[id]
		switch {
		case !ok:
			t.byID[id] = int32(i)
		case t.Spans[first].Kind == KindClient:
			halves[id], t.byID[id] = first, int32(i)
		default:
			halves[id] = int32(i)
		}
	}
	return halves
}

// resolveParents turns parent ids into indices. Of a Zipkin call whose halves
// share one id, the SERVER half becomes the child of the CLIENT half, and
// children go to the half of their own service, else to the SERVER half.
func (t *Trace) resolveParents(bypass map[SpanID]SpanID, shared bool) {
	var clientHalf map[SpanID]int32
	if shared {
		clientHalf = t.pairHalves()
	}
	if len(bypass) > 0 {
		for i := range t.Spans {
			delete(bypass, t.Spans[i].ID) // another span of this id is usable
		}
	}
	t.Parent = append(t.Parent[:0], make([]int32, len(t.Spans))...)
	for i := range t.Spans {
		s := &t.Spans[i]
		if client, ok := clientHalf[s.ID]; ok && client != int32(i) {
			t.Parent[i] = client
			continue
		}
		parent := s.Parent
		for {
			up, dropped := bypass[parent]
			if !dropped || up == parent {
				break
			}
			if next, ok := bypass[up]; ok {
				bypass[parent] = next // halve the way, so that a long run of dropped spans is walked once
			}
			parent = up
		}
		switch p, ok := t.byID[parent]; {
		case parent.IsZero():
			t.Parent[i] = NoParent
		case parent == s.ID:
			t.Parent[i] = NoParent
			t.Notes.Add(NoteSelfParent, 1, t.name(int32(i)), "")
		case !ok:
			t.Parent[i] = LostParent
		default:
			t.Parent[i] = p
			if client, shared := clientHalf[parent]; shared &&
				t.Spans[client].Desc.Service == s.Desc.Service && t.Spans[p].Desc.Service != s.Desc.Service {
				t.Parent[i] = client
			}
		}
	}
}

// breakCycles makes the first span (in span order) of each circle of parents a
// root.
func (t *Trace) breakCycles() {
	const (
		unseen = iota
		onPath
		done
	)
	t.state = append(t.state[:0], make([]uint8, len(t.Spans))...)
	for i := range t.Spans {
		j := int32(i)
		for j >= 0 && t.state[j] == unseen {
			t.state[j] = onPath
			j = t.Parent[j]
		}
		circle := int32(-1) // its first span
		if j >= 0 && t.state[j] == onPath {
			first := j
			for k := t.Parent[j]; k != j; k = t.Parent[k] {
				first = min(first, k)
			}
			t.Notes.Add(NoteCycle, 1, t.name(first), "")
			circle = first
		}
		for k := int32(i); k >= 0 && t.state[k] == onPath; k = t.Parent[k] {
			t.state[k] = done
		}
		if circle >= 0 {
			t.Parent[circle] = NoParent
		}
	}
}

// childIndex lists the children of each node of a tree: those of node i are
// list[start[i]:start[i+1]], in node order. Nodes with a negative parent are
// nobody's children.
type childIndex struct{ start, list []int32 }

func (x *childIndex) of(i int32) []int32 { return x.list[x.start[i]:x.start[i+1]] }

// build indexes n nodes by counting, O(n).
func (x *childIndex) build(n int, parent func(int) int32) {
	x.start = append(x.start[:0], make([]int32, n+2)...)
	for i := range n {
		if p := parent(i); p >= 0 {
			x.start[p+2]++
		}
	}
	for i := 2; i < len(x.start); i++ {
		x.start[i] += x.start[i-1]
	}
	x.list = append(x.list[:0], make([]int32, x.start[n+1])...)
	for i := range n {
		if p := parent(i); p >= 0 {
			x.list[x.start[p+1]] = int32(i)
			x.start[p+1]++
		}
	}
}

// inferKinds gives spans without a kind one, from the shape of the tree:
//
//	no parent                                            SERVER
//	service differs from the parent's                    SERVER
//	same service, one child and that in another service  CLIENT
//	same service, no child, outbound attributes          CLIENT
//	same service, no child                               step
//	otherwise                                            INTERNAL
//
// A span that has a kind keeps it. An orphan without kind is an entry (SERVER)
// unless it is a leaf that says it calls somebody.
func (t *Trace) inferKinds() {
	t.step = append(t.step[:0], make([]bool, len(t.Spans))...)
	for i := range t.Spans {
		s := &t.Spans[i]
		if s.Kind != KindUnspecified {
			continue
		}
		t.InferredKinds++
		children := t.Children(int32(i))
		p := t.Parent[i]
		switch {
		case p == LostParent && len(children) == 0 && s.Is(FlagOutbound):
			s.Kind = KindClient
		case p < 0 || t.Spans[p].Desc.Service != s.Desc.Service:
			s.Kind = KindServer
		case len(children) == 1 && t.Spans[children[0]].Desc.Service != s.Desc.Service:
			s.Kind = KindClient
		case len(children) > 0:
			s.Kind = KindInternal
		case s.Is(FlagOutbound):
			s.Kind = KindClient
		default:
			s.Kind = KindInternal
			t.step[i] = true
		}
	}
}
