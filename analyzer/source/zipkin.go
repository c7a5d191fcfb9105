package source

import (
	"bytes"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// This file reads Zipkin JSON: arrays of spans and arrays of such arrays, in
// version 2 and in version 1. Times are microseconds.
//
// Client and server may report the same span id; both halves are kept as spans
// of that id. A version 1 span can hold both halves in one object:
//
//	client   cs |-------------------| cr
//	server        sr |--------| ss

// zipkinUnit is the unit of times in ns.
const zipkinUnit = 1000

// zipkinParts is what a span has beside its draft.
type zipkinParts struct {
	local, peer trace.Resource // peer.Service only
	start       int64
	duration    int64
	hasKind, v1 bool
	core        [numCore]zipkinEvent
	first       trace.Resource // of the first annotation that names its endpoint
}

// zipkinEvent is a core annotation of version 1.
type zipkinEvent struct {
	time int64
	ok   bool
	from trace.Resource
}

// The core annotations: client send and receive, server receive and send.
const (
	clientSend = iota
	clientReceive
	serverReceive
	serverSend
	numCore
)

func coreAnnotation(value []byte) (int, bool) {
	switch string(value) {
	case "cs":
		return clientSend, true
	case "cr":
		return clientReceive, true
	case "sr":
		return serverReceive, true
	case "ss":
		return serverSend, true
	}
	return 0, false
}

// readZipkin reads a span, or an array of spans or arrays.
func readZipkin(r *reader) {
	if r.each(readZipkin) {
		return
	}
	if kind := r.json.peek(); !r.json.enterPart() {
		r.notSpan(kind)
		return
	}
	d := r.begin()
	r.zipkin = zipkinParts{}
	z := &r.zipkin
	isSpan := false
	for r.json.more() {
		switch string(r.json.name()) {
		case "traceId":
			isSpan = true
			d.trace = r.readID(traceIDPart, d.span.TraceID[:], false)
		case "id":
			isSpan = true
			d.id = r.readID(spanIDPart, d.span.ID[:], false)
		case "parentId":
			d.parent = r.readID(otherPart, d.span.Parent[:], false)
		case "name":
			if kind, text := r.json.scalar(); kind == '"' {
				r.setName(text)
			}
		case "kind":
			r.readKind(d)
			z.hasKind = true
		case "timestamp":
			z.start, d.start = r.readInteger(startPart)
		case "duration":
			z.duration, d.duration = r.readInteger(durationPart)
		case "localEndpoint":
			z.local = r.readEndpoint()
		case "remoteEndpoint":
			z.peer = r.readEndpoint()
		case "tags":
			r.readTags(&r.attrs)
		case "annotations":
			r.readAnnotations(z)
		case "binaryAnnotations":
			r.readBinaryAnnotations(z)
		default:
			r.alien = true
			r.json.skip()
		}
	}
	if isSpan && r.json.err == nil {
		r.known = true
		r.finishZipkin(d, z)
	}
}

func (r *reader) readEndpoint() trace.Resource {
	r.resAttrs.Reset()
	if r.json.enter('{') {
		for r.json.more() {
			key := trace.AttrServiceName
			switch string(r.json.name()) {
			case "serviceName":
			case "ipv4", "ipv6":
				key = trace.AttrHostName
			default:
				r.json.skip()
				continue
			}
			if kind, text := r.json.scalar(); kind == '"' && len(text) > 0 {
				r.resAttrs.SetString(key, r.cut(text))
			}
		}
	}
	return r.resAttrs.Resource(r.cache)
}

// readAnnotations keeps the core annotations of version 1; others may be events.
func (r *reader) readAnnotations(z *zipkinParts) {
	if !r.json.enter('[') {
		return
	}
	for r.json.nextObject() {
		var (
			event  zipkinEvent
			state  timeState
			which  int
			isCore bool
		)
		for r.json.more() {
			switch string(r.json.name()) {
			case "timestamp":
				event.time, state = r.readInteger(otherPart)
			case "value":
				_, text := r.json.scalar()
				if which, isCore = coreAnnotation(text); !isCore {
					r.annotated(text)
				}
			case "endpoint":
				event.from = r.readEndpoint()
				z.v1 = true
			default:
				r.json.skip()
			}
		}
		if z.first == (trace.Resource{}) {
			z.first = event.from
		}
		// One that is out of range is as good as none.
		if isCore && state == timeOK && event.time >= 0 && event.time <= (trace.TimeBound-1)/zipkinUnit {
			event.ok = true
			z.core[which] = event
		}
	}
}

// annotated takes note of the event that an annotation stands for. OpenTelemetry has
// exporters write its name and attributes as one text; those of the Collector and of
// some languages put other signs between the two:
//
//	"message": { "message.type" : "SENT", "message.id": 1 }
//	message|{"message.type":"SENT","message.id":1}|0
func (r *reader) annotated(text []byte) {
	i := bytes.LastIndexByte(text, '{')
	if i < 0 || r.attrs.Streaming() {
		return
	}
	r.event.Reset()
	r.event.SetString(trace.AttrEventName, bytes.Trim(text[:i], "{\":| "))
	for member := range bytes.SplitSeq(text[i:], []byte{','}) { // none that is wanted has a comma in it
		name, value, _ := bytes.Cut(member, []byte{':'})
		if key, wanted := r.event.See(bytes.Trim(name, "{\" ")); wanted {
			value, _, _ = bytes.Cut(value, []byte{'}'})
			r.event.SetString(key, bytes.Trim(value, "\" "))
		}
	}
	r.attrs.AddEvent(&r.event)
}

// readBinaryAnnotations reads the tags of version 1. The keys sa and ca say who
// is at the other end, lc where a local span ran.
func (r *reader) readBinaryAnnotations(z *zipkinParts) {
	z.v1 = true
	if !r.json.enter('[') {
		return
	}
	for r.json.nextObject() {
		var (
			name   []byte
			value  attrValue
			at     trace.Resource
			isPeer bool
		)
		r.held = r.held[:0]
		for r.json.more() {
			switch string(r.json.name()) {
			case "key":
				_, text := r.json.scalar()
				isPeer = string(text) == "sa"
				name = append([]byte(nil), text...)
			case "value":
				value = r.readScalarValue()
			case "endpoint":
				at = r.readEndpoint()
			default:
				r.json.skip()
			}
		}
		switch {
		case isPeer:
			z.peer = at
		case z.first == (trace.Resource{}):
			z.first = at
		}
		if key, wanted := r.attrs.See(name); wanted && value.kind != 0 {
			r.draft.note(value.set(&r.attrs, key))
		}
	}
}

// finishZipkin adds the span, or the two halves of a version 1 span.
func (r *reader) finishZipkin(d *draft, z *zipkinParts) {
	if z.peer.Service != "" {
		r.attrs.SetString(trace.AttrPeerService, []byte(z.peer.Service))
	}
	if d.start == timeOK && z.start == 0 {
		d.start = timeMissing // Zipkin's way to say so
	}
	client := z.core[clientSend].ok || z.core[clientReceive].ok
	server := z.core[serverReceive].ok || z.core[serverSend].ok
	if z.hasKind || !z.v1 && !client && !server {
		if !z.hasKind && d.parent == idOK {
			d.span.Kind = trace.KindInternal // Zipkin's local spans have no kind
		}
		r.setScaled(z.start, z.duration, zipkinUnit)
		r.finish(z.local, false)
		return
	}
	d.note(trace.NoteZipkinV1)
	if !client && !server {
		r.setScaled(z.start, z.duration, zipkinUnit)
		r.finish(z.first, false)
		return
	}
	whole := *d
	if client {
		*d = whole
		d.span.Kind = trace.KindClient
		r.addZipkinHalf(d, z, z.core[clientSend], z.core[clientReceive], true)
	}
	if server {
		if client { // the notes of the span were counted with the first half
			whole.notes = whole.notes[:0]
		}
		*d = whole
		d.span.Kind = trace.KindServer
		r.addZipkinHalf(d, z, z.core[serverReceive], z.core[serverSend], !client)
	}
}

// addZipkinHalf adds the half of a call between two annotations. Where one of
// them is missing, timestamp and duration of the span stand in, if they are
// this half's own.
func (r *reader) addZipkinHalf(d *draft, z *zipkinParts, from, to zipkinEvent, own bool) {
	start, startState := z.start, d.start
	duration, durationState := z.duration, d.duration
	if !own {
		startState, durationState = timeMissing, timeMissing
	}
	if from.ok {
		start, startState = from.time, timeOK
	}
	if to.ok && startState == timeOK && start >= 0 { // a negative start is refused anyway
		duration, durationState = to.time-start, timeOK
	}
	d.start, d.duration = startState, durationState
	r.setScaled(start, duration, zipkinUnit)
	res := from.from
	if res == (trace.Resource{}) {
		res = to.from
	}
	r.finish(res, false)
}
