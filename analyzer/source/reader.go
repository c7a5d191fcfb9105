package source

import (
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// batchSpans is how many spans a batch holds at most, unless more have to wait
// for something that comes after them in their file.
const batchSpans = 4096

// minRoom is the capacity of the first batch: small files are many.
const minRoom = 64

// reader turns what one worker is given into spans. It is reused from task to
// task, so that reading allocates little beside the spans.
type reader struct {
	opts     Options
	json     *jsonReader
	cache    *trace.Cache
	attrs    trace.Attributes // of the span being read
	resAttrs trace.Attributes // of the resource being read
	event    trace.Attributes // of the event being read
	held     []byte           // an attribute value that came before its key
	draft    draft
	jaeger   jaegerProcesses
	zipkin   zipkinParts

	scopeFlags trace.Flags // of the scope whose spans are read

	spans []trace.Span
	room  int // capacity to begin a batch with
	notes trace.Notes
	noted int // how often notes were added to
	holds int // while positive the spans wait: something about them is open
	emit  func(result) bool

	format func(*reader) // reads one document
	known  bool          // the document has a member of the format
	alien  bool          // the document has a member that is none
	hint   string        // why there may be no spans; for the error of the file

	reasons reasons          // why spans were lost; for the error of the file too
	blamed  [numParts]string // what is wrong with the parts of the draft

	file string
	line int   // of the document, from 1; 0 if the place is given in bytes
	base int64 // offset of what the JSON reader was reset to
}

func newReader(opts Options, in *trace.Interner) *reader {
	r := &reader{opts: opts, json: newJSONReader(opts.MaxDepth), cache: in.NewCache(), room: minRoom}
	r.attrs.Remaining = opts.Remaining
	return r
}

// timeState is what became of a time.
type timeState uint8

const (
	timeMissing timeState = iota
	timeOK
	timeBad
)

// draft is a span while it is read. Formats fill it and call finish.
type draft struct {
	span            trace.Span
	trace, id       idState
	parent          idState
	start, duration timeState
	last            part // which of end and duration the format has
	refs            []ref
	notes           []trace.NoteKind // to count when the ids are known

	other trace.TraceID // scratch for an id that is not kept
	time  time.Time     // scratch
}

// ref is a reference of a span to another one.
type ref struct {
	trace   trace.TraceID
	span    trace.SpanID
	follows bool // the other span does not wait for this one
}

// newRef adds a reference that is to be filled before the next one.
func (d *draft) newRef(follows bool) *ref {
	d.refs = append(d.refs, ref{follows: follows})
	return &d.refs[len(d.refs)-1]
}

// begin clears the draft for the next span.
func (r *reader) begin() *draft {
	r.attrs.Reset()
	r.draft = draft{refs: r.draft.refs[:0], notes: r.draft.notes[:0]}
	r.draft.span.Flags = r.scopeFlags
	return &r.draft
}

// note counts something about the draft unless kind is empty.
func (d *draft) note(kind trace.NoteKind) {
	if kind != "" {
		d.notes = append(d.notes, kind)
	}
}

// finish adds the draft to the batch if its ids and times are usable, and tells
// whether they are. waiting says that res is not known yet.
func (r *reader) finish(res trace.Resource, waiting bool) bool {
	d := &r.draft
	s := &d.span
	d.resolveParent()
	if d.trace == idDoubleDecoded || d.id == idDoubleDecoded {
		d.note(trace.NoteDoubleDecodedID)
	}
	if d.parent == idBad {
		d.note(trace.NoteBadParent)
	}
	usable := false
	switch {
	case d.trace == idBad:
		r.lose(traceIDPart)
	case d.id == idBad:
		r.lose(spanIDPart)
	case d.trace == idEmpty:
		r.reasons.add(trace.NoteEmptyID, "the trace id is missing or zero")
		d.note(trace.NoteEmptyID)
	case d.id == idEmpty:
		r.reasons.add(trace.NoteEmptyID, "the span id is missing or zero")
		d.note(trace.NoteEmptyID)
	case d.start == timeBad:
		r.lose(startPart)
	case d.duration == timeBad:
		r.lose(d.last)
	default:
		usable = true
		if d.start == timeMissing || d.duration == timeMissing {
			s.Flags |= trace.FlagUnmeasured
			s.Duration = 0
			d.note(trace.NoteNoTime)
		}
	}
	if n := r.json.badUTF8; n > 0 {
		r.json.badUTF8 = 0
		d.note(trace.NoteInvalidUTF8)
	}
	for _, kind := range d.notes {
		r.note(kind, d)
	}
	if !usable {
		return false
	}
	r.attrs.Describe(s, res, r.cache)
	if r.spans == nil {
		r.spans = make([]trace.Span, 0, r.room)
	}
	r.spans = append(r.spans, *s)
	if !waiting && res.Service == "" {
		r.note(trace.NoteNoService, d)
	}
	r.flushFull()
	return true
}

// noteNoService counts the spans from index first on that have no service,
// after their resource became known.
func (r *reader) noteNoService(first int) {
	for i := first; i < len(r.spans); i++ {
		if s := &r.spans[i]; s.Desc.Service == "" {
			r.noted++
			r.notes.Add(trace.NoteNoService, 1, s.TraceID.String()+"/"+s.ID.String(), r.where())
		}
	}
}

// resolveParent chooses the parent among the references.
//
// A parent that is given stays; a link to the same span says that it does not
// wait. Without one, the first reference in the same trace that waits is the
// parent, else the first one that does not. A reference to another trace or to
// the span itself is no parent.
func (d *draft) resolveParent() {
	s := &d.span
	if !s.Parent.IsZero() {
		for _, ref := range d.refs {
			if ref.follows && ref.span == s.Parent && sameTrace(ref.trace, s.TraceID) {
				s.Flags |= trace.FlagFollowsFrom
			}
		}
		return
	}
	for _, ref := range d.refs {
		if ref.span.IsZero() || ref.span == s.ID || !sameTrace(ref.trace, s.TraceID) {
			continue
		}
		if !ref.follows {
			s.Parent = ref.span
			s.Flags &^= trace.FlagFollowsFrom
			return
		}
		if s.Parent.IsZero() {
			s.Parent = ref.span
			s.Flags |= trace.FlagFollowsFrom
		}
	}
}

// note counts kind with the ids of d, as far as they are known, as example.
func (r *reader) note(kind trace.NoteKind, d *draft) {
	example := ""
	if d != nil && !d.span.TraceID.IsZero() {
		example = d.span.TraceID.String()
		if !d.span.ID.IsZero() {
			example += "/" + d.span.ID.String()
		}
	}
	r.noted++
	r.notes.Add(kind, 1, example, r.where())
}

// noteAttribute counts what was wrong with an attribute, if anything: at once
// for a resource, with the span for a span. Those of events are not counted: few of
// them say anything.
func (r *reader) noteAttribute(attrs *trace.Attributes, kind trace.NoteKind) {
	switch {
	case kind == "", attrs == &r.event:
	case attrs == &r.attrs:
		r.draft.note(kind)
	default:
		r.note(kind, nil)
	}
}

// flushFull hands out the batch when it is full and nothing about it is open.
func (r *reader) flushFull() {
	if len(r.spans) >= batchSpans && r.holds == 0 {
		r.flush()
	}
}

// flush hands out what there is.
func (r *reader) flush() {
	if len(r.spans) == 0 && r.noted == 0 {
		return
	}
	// The next batch is most likely as long; batches that fit need no copying.
	r.room = max(minRoom, min(len(r.spans)+len(r.spans)/8, batchSpans))
	ok := r.emit(result{spans: r.spans, notes: r.notes})
	r.spans, r.notes, r.noted = nil, trace.Notes{}, 0
	if !ok {
		r.json.err = errStopped
	}
}

// cut shortens a text to the limit, at the start of a character.
func (r *reader) cut(text []byte) []byte {
	if len(text) <= r.opts.MaxString {
		return text
	}
	r.note(trace.NoteLongText, nil)
	n := r.opts.MaxString
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// setName gives the draft its span name.
func (r *reader) setName(name []byte) {
	r.attrs.SetString(trace.AttrSpanName, r.cut(name))
}

// notSpan counts a value of the given kind that stands where a span belongs.
func (r *reader) notSpan(kind jsontext.Kind) {
	if r.json.err == nil {
		r.reasons.add(trace.NoteBadSpan, "it "+wrongType(byte(kind), "an object"))
		r.note(trace.NoteBadSpan, nil)
	}
}

// setTimes sets start and duration of the draft from two Unix times in ns. OTLP
// has no other way to leave a time out than zero.
func (r *reader) setTimes(start int64, startState timeState, end int64, endState timeState) {
	d := &r.draft
	startState = r.checkTime(startPart, start, startState)
	endState = r.checkTime(endPart, end, endState)
	d.start, d.duration, d.last = startState, endState, endPart
	switch {
	case startState == timeOK && endState == timeOK:
		d.span.Start, d.span.Duration = start, end-start
		if d.span.Duration <= -trace.DurationBound || d.span.Duration >= trace.DurationBound {
			d.duration, d.last = timeBad, durationPart
			r.blame(durationPart, outOfRange(d.span.Duration))
		}
	case startState == timeOK:
		d.span.Start = start
	case endState == timeOK:
		d.span.Start = end // the only time there is
	}
}

// checkTime returns the state of a Unix time in ns.
func (r *reader) checkTime(p part, t int64, state timeState) timeState {
	switch {
	case state != timeOK:
		return state
	case t == 0:
		return timeMissing
	case t < 0 || t >= trace.TimeBound:
		r.blame(p, outOfRange(t))
		return timeBad
	}
	return timeOK
}

// setScaled sets start and duration of the draft, given in units of unit ns.
func (r *reader) setScaled(start, duration, unit int64) {
	d := &r.draft
	d.last = durationPart
	if start < 0 || start > (trace.TimeBound-1)/unit {
		if d.start == timeOK {
			d.start = timeBad
			r.blame(startPart, outOfRange(start))
		}
		start = 0
	}
	if duration > (trace.DurationBound-1)/unit || duration < -(trace.DurationBound-1)/unit {
		if d.duration == timeOK {
			d.duration = timeBad
			r.blame(durationPart, outOfRange(duration))
		}
		duration = 0
	}
	d.span.Start, d.span.Duration = start*unit, duration*unit
}

// each reads the elements of an array with read, and tells whether there is one.
func (r *reader) each(read func(*reader)) bool {
	if r.json.peek() != '[' || !r.json.enter('[') {
		return false
	}
	for r.json.more() {
		read(r)
	}
	return true
}

// The readers below take one JSON value each. A value of the wrong type counts
// as a bad one, null as a missing one.

// readID reads the id p into dst; opaque is that of parseID.
func (r *reader) readID(p part, dst []byte, opaque bool) idState {
	clear(dst)
	kind, text := r.json.scalar()
	switch kind {
	case '"':
		state := parseID(dst, text, opaque)
		if state == idBad {
			r.blame(p, func() string { return badID(text, len(dst)) })
		}
		return state
	case 'n':
		return idEmpty
	}
	r.blame(p, func() string { return wrongType(byte(kind), "a text") })
	return idBad
}

// readInteger reads the number p, bare or as a string.
func (r *reader) readInteger(p part) (int64, timeState) {
	kind, text := r.json.scalar()
	switch kind {
	case '"', '0':
		if len(text) == 0 {
			return 0, timeMissing
		}
		if n, ok := parseInteger(text); ok {
			return n, timeOK
		}
		r.blame(p, func() string { return badInteger(text) })
		return 0, timeBad
	case 'n':
		return 0, timeMissing
	}
	r.blame(p, func() string { return wrongType(byte(kind), "a number") })
	return 0, timeBad
}

// setJSON gives an attribute a JSON scalar. It returns the note to count.
func setJSON(attrs *trace.Attributes, key trace.AttrKey, kind byte, text []byte) trace.NoteKind {
	switch kind {
	case '"':
		return attrs.SetString(key, text)
	case 't', 'f':
		return attrs.SetBool(key, kind == 't')
	case '0':
		if n, ok := parseInteger(text); ok {
			return attrs.SetInt(key, n)
		}
		if f, ok := parseFloat(text); ok {
			return attrs.SetFloat(key, f)
		}
	case 'n':
		return ""
	}
	return trace.NoteBadAttribute
}
