package source

import (
	"math"
	"strconv"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// This file reads OTLP JSON: TracesData with its fields in camelCase or
// snake_case and in any order, ids in hex or base64, enums as numbers or names,
// 64-bit integers as strings or numbers.

// readOTLP reads one document or an array of them. The envelopes of Tempo and
// Jaeger v3 hold the same messages and are opened here too, so that a forced
// --format works for all of them.
func readOTLP(r *reader) {
	if r.each(readOTLP) {
		return
	}
	if !r.json.enter('{') {
		return
	}
	var lone resourceSpans
	for r.json.more() {
		switch name := r.json.name(); string(name) {
		case "resourceSpans", "resource_spans", "batches":
			r.known = true
			r.readResourceSpansList()
		case "trace":
			r.known = true
			readTempoTrace(r)
		case "result":
			r.known = true
			readJaegerV3Result(r)
		case "resource", "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
			// The Java SDK logs one ResourceSpans a line.
			r.known = true
			r.resourceSpansMember(name, &lone)
		case "resourceLogs", "resource_logs", "scopeLogs":
			r.known = true
			r.hint = "it holds OTLP logs"
			r.json.skip()
		case "resourceMetrics", "resource_metrics", "scopeMetrics":
			r.known = true
			r.hint = "it holds OTLP metrics"
			r.json.skip()
		default:
			r.alien = true
			r.json.skip()
		}
	}
	r.endResourceSpans(&lone)
}

// readResourceSpansList reads an array of ResourceSpans.
func (r *reader) readResourceSpansList() {
	if !r.each((*reader).readResourceSpans) {
		r.readResourceSpans() // one message where a list belongs
	}
}

// resourceSpans is what is known of a ResourceSpans while it is read.
type resourceSpans struct {
	res     trace.Resource
	seen    bool // res is known
	waiting bool // spans wait for res, from index first on
	first   int
}

// readResourceSpans reads one ResourceSpans.
func (r *reader) readResourceSpans() {
	if !r.json.enter('{') {
		return
	}
	var rs resourceSpans
	for r.json.more() {
		r.resourceSpansMember(r.json.name(), &rs)
	}
	r.endResourceSpans(&rs)
}

// resourceSpansMember reads one member of a ResourceSpans. Spans that come
// before their resource wait for it.
func (r *reader) resourceSpansMember(name []byte, rs *resourceSpans) {
	switch string(name) {
	case "resource":
		r.readResAttrs()
		r.setResource(rs, r.resAttrs.Resource(r.cache))
	case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
		r.awaitResource(rs)
		r.readScopeSpansList(rs)
	default:
		r.json.skip()
	}
}

// awaitResource makes the next spans wait if their resource is not known yet.
func (r *reader) awaitResource(rs *resourceSpans) {
	if !rs.seen && !rs.waiting {
		rs.waiting, rs.first = true, len(r.spans)
		r.holds++
	}
}

// setResource is called with the resource of rs, before or after its spans.
func (r *reader) setResource(rs *resourceSpans, res trace.Resource) {
	rs.res, rs.seen = res, true
	if !rs.waiting {
		return
	}
	for i := rs.first; i < len(r.spans); i++ {
		r.spans[i].Desc = r.cache.WithResource(r.spans[i].Desc, res)
	}
	r.noteNoService(rs.first)
	rs.waiting = false
	r.holds--
	r.flushFull()
}

// endResourceSpans is called after the last member of rs.
func (r *reader) endResourceSpans(rs *resourceSpans) {
	if rs.waiting {
		r.setResource(rs, trace.Resource{})
	}
}

// readResAttrs reads the attributes of a Resource or InstrumentationScope.
func (r *reader) readResAttrs() {
	r.resAttrs.Reset()
	if !r.json.enter('{') {
		return
	}
	for r.json.more() {
		if string(r.json.name()) == "attributes" {
			r.readAttributes(&r.resAttrs, (*reader).readAnyValue)
		} else {
			r.json.skip()
		}
	}
}

func (r *reader) readScopeSpansList(rs *resourceSpans) {
	if !r.json.enter('[') {
		return
	}
	for r.json.nextObject() {
		r.readScopeSpans(rs)
	}
}

// readScopeSpans reads the members of a ScopeSpans.
func (r *reader) readScopeSpans(rs *resourceSpans) {
	var sc scope
	for r.json.more() {
		switch string(r.json.name()) {
		case "scope", "instrumentationLibrary", "instrumentation_library":
			r.readResAttrs()
			r.setScope(&sc, r.resAttrs.TailSampled())
		case "spans":
			r.awaitScope(&sc)
			if !r.json.enter('[') {
				continue
			}
			for r.json.more() {
				r.readOTLPSpan(rs)
			}
		default:
			r.json.skip()
		}
	}
	r.endScope(&sc)
}

// scope is what is known of the scope of a ScopeSpans while it is read. The
// Collector's tail_sampling processor leaves its marks there, not on spans.
type scope struct {
	seen    bool
	waiting bool // spans wait for the scope, from index first on
	first   int
}

// awaitScope makes the next spans wait if their scope is not known yet.
func (r *reader) awaitScope(sc *scope) {
	if !sc.seen && !sc.waiting {
		sc.waiting, sc.first = true, len(r.spans)
		r.holds++
	}
}

// setScope is called when the scope is known, before or after its spans.
func (r *reader) setScope(sc *scope, tailSampled bool) {
	sc.seen = true
	r.scopeFlags = 0
	if tailSampled {
		r.scopeFlags = trace.FlagTailSampled
	}
	if !sc.waiting {
		return
	}
	for i := sc.first; i < len(r.spans); i++ {
		r.spans[i].Flags |= r.scopeFlags
	}
	sc.waiting = false
	r.holds--
	r.flushFull()
}

// endScope is called after the last member of a ScopeSpans.
func (r *reader) endScope(sc *scope) {
	r.setScope(sc, false)
}

func (r *reader) readOTLPSpan(rs *resourceSpans) {
	if kind := r.json.peek(); !r.json.enterPart() {
		r.notSpan(kind)
		return
	}
	d := r.begin()
	var start, end int64
	var startState, endState timeState
	for r.json.more() {
		switch string(r.json.name()) {
		case "traceId", "trace_id":
			d.trace = r.readID(traceIDPart, d.span.TraceID[:], false)
		case "spanId", "span_id":
			d.id = r.readID(spanIDPart, d.span.ID[:], false)
		case "parentSpanId", "parent_span_id":
			d.parent = r.readID(otherPart, d.span.Parent[:], false)
		case "name":
			if kind, text := r.json.scalar(); kind == '"' {
				r.setName(text)
			}
		case "kind":
			r.readKind(d)
		case "startTimeUnixNano", "start_time_unix_nano":
			start, startState = r.readInteger(startPart)
		case "endTimeUnixNano", "end_time_unix_nano":
			end, endState = r.readInteger(endPart)
		case "attributes":
			r.readAttributes(&r.attrs, (*reader).readAnyValue)
		case "events":
			r.readEvents((*reader).readOTLPEventMember)
		case "links":
			r.readLinks(d)
		case "status":
			r.readStatus(d)
		case "traceState", "trace_state":
			if kind, text := r.json.scalar(); kind == '"' {
				d.note(r.attrs.SetString(trace.AttrTraceState, text))
			}
		default:
			r.json.skip()
		}
	}
	if r.json.err != nil {
		return
	}
	r.setTimes(start, startState, end, endState)
	r.finish(rs.res, rs.waiting)
}

func (r *reader) readKind(d *draft) {
	kind, text := r.json.scalar()
	if kind == 'n' {
		return
	}
	k, ok := trace.ParseKind(text)
	if !ok {
		d.note(trace.NoteBadKind)
	}
	d.span.Kind = k
}

func (r *reader) readStatus(d *draft) {
	if !r.json.enter('{') {
		return
	}
	for r.json.more() {
		switch string(r.json.name()) {
		case "code":
			_, text := r.json.scalar()
			switch string(text) {
			case "2", "STATUS_CODE_ERROR", "ERROR", "Error", "error":
				r.attrs.SetStatus(true)
			}
		case "message":
			if kind, text := r.json.scalar(); kind == '"' {
				r.attrs.SetString(trace.AttrStatusMessage, text)
			}
		default:
			r.json.skip()
		}
	}
}

func (r *reader) readLinks(d *draft) {
	if !r.json.enter('[') {
		return
	}
	for r.json.nextObject() {
		link := d.newRef(true)
		for r.json.more() {
			switch string(r.json.name()) {
			case "traceId", "trace_id":
				r.readID(otherPart, link.trace[:], false)
			case "spanId", "span_id":
				r.readID(otherPart, link.span[:], false)
			default:
				r.json.skip()
			}
		}
	}
}

// readEvents reads an array of events, of which readMember reads one member. Nothing
// but whether the span is a stream depends on them.
func (r *reader) readEvents(readMember func(r *reader, name []byte)) {
	if !r.json.enter('[') {
		return
	}
	for r.json.more() {
		if r.attrs.Streaming() {
			r.json.skip()
			continue
		}
		if !r.json.enter('{') {
			continue
		}
		r.event.Reset()
		for r.json.more() {
			readMember(r, r.json.name())
		}
		r.attrs.AddEvent(&r.event)
	}
}

func (r *reader) readOTLPEventMember(name []byte) {
	switch string(name) {
	case "name":
		r.readEventName()
	case "attributes":
		r.readAttributes(&r.event, (*reader).readAnyValue)
	default:
		r.json.skip()
	}
}

func (r *reader) readEventName() {
	if kind, text := r.json.scalar(); kind == '"' {
		r.event.SetString(trace.AttrEventName, text)
	}
}

// attrValue is a value that is kept until its key is known.
type attrValue struct {
	kind byte // of JSON; 0: none
	bad  bool
	list bool // it is the only element of a list
	text []byte
	num  float64
}

// readAttributes reads an array of objects with a key and a value, in any order
// and in the spelling of OTLP or of stdouttrace. readValue reads a value, which
// every format wraps in its own way.
func (r *reader) readAttributes(attrs *trace.Attributes, readValue func(*reader) attrValue) {
	if !r.json.enter('[') {
		return
	}
members:
	for r.json.more() {
		var (
			key              trace.AttrKey
			keyKnown, wanted bool
			value            attrValue
		)
		// Nearly all exporters write the key first.
		if r.json.follows(`{"key":"`) {
			key, wanted = attrs.See(r.json.textOf())
			keyKnown = true
			if !wanted {
				r.json.leaveObject()
				continue
			}
		} else if !r.json.enter('{') {
			continue
		}
		for r.json.more() {
			switch string(r.json.name()) {
			case "key", "Key":
				_, text := r.json.scalar()
				key, wanted = attrs.See(text)
				keyKnown = true
				if !wanted && r.json.leaveObject() {
					continue members
				}
			case "value", "Value":
				if keyKnown && !wanted {
					r.json.skip()
				} else {
					value = readValue(r)
				}
			default:
				r.json.skip()
			}
		}
		if wanted {
			r.noteAttribute(attrs, value.set(attrs, key))
		}
	}
}

// set gives the value to an attribute and returns the note to count.
func (v *attrValue) set(attrs *trace.Attributes, key trace.AttrKey) trace.NoteKind {
	switch {
	case v.list && !key.TakesList():
		return ""
	case v.bad:
		return trace.NoteBadAttribute
	case v.kind == 'd':
		return attrs.SetFloat(key, v.num)
	case v.kind != 0:
		return setJSON(attrs, key, v.kind, v.text)
	}
	return ""
}

// readAnyValue reads an AnyValue; maps, bytes and lists give none, but for lists
// of one scalar.
func (r *reader) readAnyValue() (v attrValue) {
	if !r.json.enter('{') {
		return v
	}
	for r.json.more() {
		switch string(r.json.name()) {
		case "stringValue", "string_value":
			kind, text := r.json.scalar()
			v = r.hold('"', text)
			v.bad = kind != '"'
		case "intValue", "int_value":
			kind, text := r.json.scalar()
			v = r.hold('0', text)
			_, ok := parseInteger(text)
			v.bad = !ok || kind != '"' && kind != '0'
		case "doubleValue", "double_value":
			_, text := r.json.scalar()
			f, ok := parseFloat(text)
			v = attrValue{kind: 'd', num: f, bad: !ok}
		case "boolValue", "bool_value":
			kind, text := r.json.scalar()
			v = attrValue{kind: 'f', bad: string(text) != "true" && string(text) != "false" || kind == 0}
			if string(text) == "true" {
				v.kind = 't'
			}
		case "arrayValue", "array_value":
			if !r.json.enter('{') {
				continue
			}
			for r.json.more() {
				if name := r.json.name(); string(name) == "values" {
					v = r.readOnlyElement((*reader).readAnyValue)
				} else {
					r.json.skip()
				}
			}
		default:
			r.json.skip()
		}
	}
	return v
}

// readOnlyElement reads a list and returns its element if it has one alone.
func (r *reader) readOnlyElement(readValue func(*reader) attrValue) (v attrValue) {
	if !r.json.enter('[') {
		return v
	}
	n := 0
	for r.json.more() {
		if n++; n > 1 {
			v = attrValue{}
			r.json.skip()
			continue
		}
		if v = readValue(r); v.list {
			v = attrValue{} // a list in a list
		}
	}
	v.list = v.kind != 0
	return v
}

// readScalarValue reads a value that is a bare scalar; others are bad ones.
func (r *reader) readScalarValue() attrValue {
	kind, text := r.json.scalar()
	return r.hold(byte(kind), text)
}

// hold keeps a text over the next reads.
func (r *reader) hold(kind byte, text []byte) attrValue {
	r.held = append(r.held[:0], r.cut(text)...)
	return attrValue{kind: kind, text: r.held}
}

// parseFloat reads a number, and the names that protobuf JSON has for those
// that are none; the attribute decides what they are worth.
func parseFloat(text []byte) (float64, bool) {
	switch string(text) {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	case "", "null":
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}
