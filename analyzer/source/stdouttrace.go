package source

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// This file reads what the stdouttrace exporter of the Go SDK prints: one
// object a span, pretty or compact, one after the other.

// readStdouttrace reads a span or an array of spans.
func readStdouttrace(r *reader) {
	if r.each(readStdouttrace) {
		return
	}
	if kind := r.json.peek(); !r.json.enter('{') {
		r.notSpan(kind)
		return
	}
	d := r.begin()
	var (
		start, end           int64
		startState, endState timeState
		res                  trace.Resource
		isSpan               bool
	)
	for r.json.more() {
		switch string(r.json.name()) {
		case "Name":
			if kind, text := r.json.scalar(); kind == '"' {
				r.setName(text)
			}
		case "SpanContext":
			isSpan = true
			d.trace, d.id = r.readSpanContext(d.span.TraceID[:], d.span.ID[:], true)
		case "Parent":
			_, d.parent = r.readSpanContext(d.other[:], d.span.Parent[:], false)
		case "SpanKind":
			r.readKind(d)
		case "StartTime":
			start, startState = r.readRFC3339(startPart)
		case "EndTime":
			end, endState = r.readRFC3339(endPart)
		case "Attributes":
			r.readAttributes(&r.attrs, (*reader).readStdoutValue)
		case "Events":
			r.readEvents((*reader).readStdoutEventMember)
		case "Links":
			r.readStdoutLinks(d)
		case "Status":
			r.readStdoutStatus()
		case "Resource":
			r.resAttrs.Reset()
			r.readAttributes(&r.resAttrs, (*reader).readStdoutValue)
			res = r.resAttrs.Resource(r.cache)
		default:
			r.alien = true
			r.json.skip()
		}
	}
	if !isSpan || r.json.err != nil {
		return
	}
	r.known = true
	r.setTimes(start, startState, end, endState)
	r.finish(res, false)
}

// readSpanContext reads the ids of a SpanContext; own tells that it is the
// span's.
func (r *reader) readSpanContext(traceID, spanID []byte, own bool) (traceState, spanState idState) {
	clear(traceID)
	clear(spanID)
	if !r.json.enter('{') {
		return idEmpty, idEmpty
	}
	for r.json.more() {
		switch string(r.json.name()) {
		case "TraceID":
			traceState = r.readID(idPart(own, traceIDPart), traceID, false)
		case "SpanID":
			spanState = r.readID(idPart(own, spanIDPart), spanID, false)
		case "TraceState":
			if kind, text := r.json.scalar(); kind == '"' && own {
				r.draft.note(r.attrs.SetString(trace.AttrTraceState, text))
			}
		default:
			r.json.skip()
		}
	}
	return traceState, spanState
}

// idPart returns p for an id of the span itself.
func idPart(own bool, p part) part {
	if own {
		return p
	}
	return otherPart
}

// readRFC3339 reads the time p. The zero time of Go, which the exporter prints when
// it is told to leave times out, is a missing one.
func (r *reader) readRFC3339(p part) (int64, timeState) {
	kind, text := r.json.scalar()
	switch {
	case kind == 'n', kind == '"' && len(text) == 0:
		return 0, timeMissing
	case kind != '"':
		r.blame(p, func() string { return wrongType(byte(kind), "a text") })
		return 0, timeBad
	}
	t := &r.draft.time
	if t.UnmarshalText(text) != nil {
		r.blame(p, func() string { return quote(text) + " is no time of RFC 3339" })
		return 0, timeBad
	}
	switch year := t.UTC().Year(); {
	case t.IsZero():
		return 0, timeMissing
	case year < 1970 || year > 2261: // beyond, int64 ns overflow
		r.blame(p, func() string { return quote(text) + " is out of range" })
		return 0, timeBad
	}
	return t.UnixNano(), timeOK
}

func (r *reader) readStdoutStatus() {
	if !r.json.enter('{') {
		return
	}
	for r.json.more() {
		switch string(r.json.name()) {
		case "Code":
			// "Error" now; 1 in releases that printed the number.
			_, text := r.json.scalar()
			r.attrs.SetStatus(string(text) == "Error" || string(text) == "1")
		case "Description":
			if kind, text := r.json.scalar(); kind == '"' {
				r.attrs.SetString(trace.AttrStatusMessage, text)
			}
		default:
			r.json.skip()
		}
	}
}

func (r *reader) readStdoutLinks(d *draft) {
	if !r.json.enter('[') {
		return
	}
	for r.json.nextObject() {
		link := d.newRef(true)
		for r.json.more() {
			if string(r.json.name()) == "SpanContext" {
				r.readSpanContext(link.trace[:], link.span[:], false)
			} else {
				r.json.skip()
			}
		}
	}
}

// readStdoutValue reads {"Type":...,"Value":...}; lists give none, but for those
// of one element.
func (r *reader) readStdoutValue() (v attrValue) {
	if !r.json.enter('{') {
		return v
	}
	for r.json.more() {
		switch isValue := string(r.json.name()) == "Value"; {
		case isValue && r.json.peek() == '[':
			v = r.readOnlyElement((*reader).readScalarValue)
		case isValue:
			v = r.readScalarValue()
		default:
			r.json.skip()
		}
	}
	return v
}

func (r *reader) readStdoutEventMember(name []byte) {
	switch string(name) {
	case "Name":
		r.readEventName()
	case "Attributes":
		r.readAttributes(&r.event, (*reader).readStdoutValue)
	default:
		r.json.skip()
	}
}
