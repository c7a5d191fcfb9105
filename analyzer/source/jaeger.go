package source

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// This file reads Jaeger JSON: the {"data":[...]} of its API and UI, bare traces
// and arrays of them, and the spans that Jaeger keeps in Elasticsearch, where
// each has its process inside. Every list may be missing.

// jaegerProcesses are the processes of the trace being read, and which span
// belongs to which: spans come before and after processes.
type jaegerProcesses struct {
	index map[string]int // place in list by id; kept from trace to trace, as ids repeat
	list  []jaegerProcess
	trace int   // counts traces
	of    []int // process of each waiting span, or noProcess
}

type jaegerProcess struct {
	res   trace.Resource
	trace int // that res belongs to
}

// noProcess marks a span that has its resource already or names none.
const noProcess = -1

// maxProcesses is how many ids are kept from trace to trace.
const maxProcesses = 1 << 10

// process returns the place in list of the process called id, without a
// resource if the trace has not told it yet.
func (p *jaegerProcesses) process(id []byte) int {
	i, ok := p.index[string(id)]
	if !ok {
		if p.index == nil {
			p.index = make(map[string]int)
		}
		i = len(p.list)
		p.index[string(id)] = i
		p.list = append(p.list, jaegerProcess{})
	}
	if p.list[i].trace != p.trace {
		p.list[i] = jaegerProcess{trace: p.trace}
	}
	return i
}

// nextTrace forgets the resources.
func (p *jaegerProcesses) nextTrace() {
	p.trace++
	p.of = p.of[:0]
	if len(p.list) > maxProcesses {
		clear(p.index)
		p.list = p.list[:0]
	}
}

// readJaeger reads a trace, a span, or an object or array with such.
func readJaeger(r *reader) {
	if r.each(readJaeger) {
		return
	}
	if !r.json.enter('{') {
		return
	}
	p := &r.jaeger
	waiting, first := false, 0 // spans of this trace, from index first on
	isSpan, begun := false, false
	span := jaegerSpan{process: noProcess}
	for r.json.more() {
		name := r.json.name()
		switch string(name) {
		case "data":
			r.known = true
			readJaeger(r)
			continue
		case "spans", "processes":
			r.known = true
			if !waiting {
				waiting, first = true, len(r.spans)
				p.nextTrace()
				r.holds++
			}
			if string(name) == "processes" {
				r.readProcesses()
				continue
			}
			if r.json.enter('[') {
				for r.json.more() {
					r.readJaegerSpan()
				}
			}
			continue
		case "spanID":
			r.known, isSpan = true, true
		}
		if !begun {
			begun = true
			r.begin()
		}
		r.jaegerSpanMember(name, &span)
	}
	switch {
	case waiting:
		r.joinProcesses(first)
		r.holds--
		r.flushFull()
	case isSpan && r.json.err == nil:
		r.finishJaegerSpan(&span, false) // a lone span has its process inside, or none
	}
}

// joinProcesses gives the waiting spans their services.
func (r *reader) joinProcesses(first int) {
	p := &r.jaeger
	for i, proc := range p.of {
		s := &r.spans[first+i]
		if proc != noProcess {
			s.Desc = r.cache.WithResource(s.Desc, p.list[proc].res)
		}
	}
	r.noteNoService(first)
}

// readProcesses reads the object of processes by id.
func (r *reader) readProcesses() {
	if !r.json.enter('{') {
		return
	}
	for r.json.more() {
		i := r.jaeger.process(r.json.name())
		r.jaeger.list[i].res = r.readProcess()
	}
}

func (r *reader) readProcess() trace.Resource {
	r.resAttrs.Reset()
	if r.json.enter('{') {
		for r.json.more() {
			switch string(r.json.name()) {
			case "serviceName":
				if kind, text := r.json.scalar(); kind == '"' {
					r.resAttrs.SetString(trace.AttrServiceName, r.cut(text))
				}
			case "tags", "tag":
				r.readTags(&r.resAttrs)
			default:
				r.json.skip()
			}
		}
	}
	return r.resAttrs.Resource(r.cache)
}

// jaegerSpan is what a span has beside its draft.
type jaegerSpan struct {
	process  int // in jaegerProcesses, or noProcess
	inline   bool
	res      trace.Resource
	parentID trace.SpanID // of the old field parentSpanID
	start    int64        // in the unit of the export
	duration int64
}

func (r *reader) readJaegerSpan() {
	if kind := r.json.peek(); !r.json.enterPart() {
		r.notSpan(kind)
		return
	}
	r.begin()
	span := jaegerSpan{process: noProcess}
	for r.json.more() {
		r.jaegerSpanMember(r.json.name(), &span)
	}
	if r.json.err == nil && r.finishJaegerSpan(&span, true) {
		r.jaeger.of = append(r.jaeger.of, span.process)
	}
}

func (r *reader) jaegerSpanMember(name []byte, span *jaegerSpan) {
	d := &r.draft
	switch string(name) {
	case "traceID":
		d.trace = r.readID(traceIDPart, d.span.TraceID[:], true)
	case "spanID":
		d.id = r.readID(spanIDPart, d.span.ID[:], true)
	case "parentSpanID":
		d.parent = r.readID(otherPart, span.parentID[:], true)
	case "operationName":
		if kind, text := r.json.scalar(); kind == '"' {
			r.setName(text)
		}
	case "references":
		r.readReferences(d)
	case "startTime":
		span.start, d.start = r.readInteger(startPart)
	case "duration":
		span.duration, d.duration = r.readInteger(durationPart)
	case "tags", "tag":
		r.readTags(&r.attrs)
	case "logs":
		r.readEvents((*reader).readLogMember)
	case "processID":
		if kind, text := r.json.scalar(); kind == '"' {
			span.process = r.jaeger.process(text)
		}
	case "process":
		span.res, span.inline = r.readProcess(), true
	default:
		r.alien = true
		r.json.skip()
	}
}

// Times are microseconds. Some exports have milliseconds; a time is one of
// these where it lies in this range: the years 2001 to 2286 in milliseconds,
// 12 to 116 days after 1970 in microseconds.
const (
	minMillis = 1e12
	maxMillis = 1e13
)

func (r *reader) finishJaegerSpan(span *jaegerSpan, waiting bool) bool {
	d := &r.draft
	unit := int64(1e3)
	if span.start >= minMillis && span.start < maxMillis {
		unit = 1e6
	}
	r.setScaled(span.start, span.duration, unit)
	if !span.parentID.IsZero() {
		// The weakest of the references: what CHILD_OF replaced.
		d.refs = append(d.refs, ref{trace: d.span.TraceID, span: span.parentID})
	}
	for i := range d.refs {
		if d.refs[i].trace.IsZero() {
			d.refs[i].trace = d.span.TraceID
		}
	}
	if span.inline {
		span.process = noProcess
	}
	return r.finish(span.res, waiting)
}

func (r *reader) readReferences(d *draft) {
	if !r.json.enter('[') {
		return
	}
	for r.json.nextObject() {
		to := d.newRef(false)
		for r.json.more() {
			switch string(r.json.name()) {
			case "refType":
				_, text := r.json.scalar()
				to.follows = string(text) == "FOLLOWS_FROM"
			case "traceID":
				r.readID(otherPart, to.trace[:], true)
			case "spanID":
				r.readID(otherPart, to.span[:], true)
			default:
				r.json.skip()
			}
		}
	}
}

// readLogMember reads one member of a log, which is an event: a list of fields, of which
// the one that is called event names it.
func (r *reader) readLogMember(name []byte) {
	if string(name) == "fields" {
		r.readTags(&r.event)
	} else {
		r.json.skip()
	}
}

// readTags reads tags, a list of key and value or an object; the type of a value
// is what it says itself.
func (r *reader) readTags(attrs *trace.Attributes) {
	if r.json.peek() != '{' {
		r.readAttributes(attrs, (*reader).readScalarValue)
		return
	}
	r.json.enter('{')
	for r.json.more() {
		key, wanted := attrs.See(r.json.name())
		if !wanted {
			r.json.skip()
			continue
		}
		value := r.readScalarValue()
		r.noteAttribute(attrs, value.set(attrs, key))
	}
}
