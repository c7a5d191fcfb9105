package source

import (
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// This file reads OTLP protobuf by walking the wire format: a TracesData, alone
// or many behind big-endian lengths of 32 bits each, as the Collector's file
// exporter writes them. Fields are taken in any order: the Collector writes
// them with descending numbers, so values come before keys and spans before
// their resource.
//
// Each message inside another one has its length before it, so what is broken in
// it costs the rest of that message and nothing around it.
//
// Field numbers are those of opentelemetry/proto/trace/v1/trace.proto.

// errBadProto is what a message that cannot be walked to its end gives.
var errBadProto = errors.New("not a valid protobuf message")

// field is one field of a message: the value of a length-delimited one in
// bytes, of all others in num.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	bytes []byte
	value uint64
}

// nextField takes the first field off msg.
func nextField(msg []byte) (f field, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(msg)
	if n < 0 {
		return f, nil, protoError(n)
	}
	f.num, f.typ = num, typ
	msg = msg[n:]
	switch typ {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(msg)
	case protowire.VarintType:
		f.value, n = protowire.ConsumeVarint(msg)
	case protowire.Fixed64Type:
		f.value, n = protowire.ConsumeFixed64(msg)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(msg)
		f.value = uint64(v)
	default:
		n = protowire.ConsumeFieldValue(num, typ, msg)
	}
	if n < 0 {
		return f, nil, protoError(n)
	}
	return f, msg[n:], nil
}

// protoError keeps apart what ends too early and what is wrong.
func protoError(n int) error {
	if errors.Is(protowire.ParseError(n), io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF
	}
	return errBadProto
}

// cutField returns the whole part of a length-delimited field whose message
// ends inside it, nil if msg is something else.
func cutField(msg []byte, num protowire.Number) []byte {
	got, typ, n := protowire.ConsumeTag(msg)
	if n < 0 || got != num || typ != protowire.BytesType {
		return nil
	}
	msg = msg[n:]
	if _, n = protowire.ConsumeVarint(msg); n < 0 {
		return nil
	}
	return msg[n:]
}

// walkMessages gives visit the messages in the fields of msg up to the first that
// is broken, and returns what is left from that one on.
func (r *reader) walkMessages(msg []byte, visit func(num protowire.Number, msg []byte)) (broken []byte, err error) {
	for len(msg) > 0 && r.json.err == nil {
		f, rest, err := nextField(msg)
		if err != nil {
			return msg, err
		}
		msg = rest
		if f.typ == protowire.BytesType {
			visit(f.num, f.bytes)
		}
	}
	return nil, nil
}

// readTracesData reads a TracesData in memory. Spans before an error are kept.
func (r *reader) readTracesData(msg []byte) error {
	broken, err := r.walkMessages(msg, func(num protowire.Number, msg []byte) {
		if num == 1 {
			if err := r.readResourceSpansProto(msg); err != nil {
				r.noteBroken(trace.NoteBadLine, err)
			}
		}
	})
	if cut := cutField(broken, 1); cut != nil {
		_ = r.readResourceSpansProto(cut) // it fails as well; err says so
	}
	return err
}

// readResourceSpansProto reads a ResourceSpans.
func (r *reader) readResourceSpansProto(msg []byte) error {
	var rs resourceSpans
	err := r.walkResourceSpans(msg, &rs)
	r.endResourceSpans(&rs)
	return err
}

func (r *reader) walkResourceSpans(msg []byte, rs *resourceSpans) error {
	broken, err := r.walkMessages(msg, func(num protowire.Number, msg []byte) {
		switch num {
		case 1:
			r.resAttrs.Reset()
			r.walkAttributes(msg, 1, &r.resAttrs)
			r.setResource(rs, r.resAttrs.Resource(r.cache))
		case 2, 1000: // scope_spans; instrumentation_library_spans before OTLP 0.15
			r.awaitResource(rs)
			if err := r.readScopeSpansProto(msg, rs); err != nil {
				r.noteBroken(trace.NoteBadLine, err)
			}
		}
	})
	if cut := cutField(broken, 2); cut != nil {
		r.awaitResource(rs)
		_ = r.readScopeSpansProto(cut, rs)
	}
	return err
}

// readScopeSpansProto reads a ScopeSpans.
func (r *reader) readScopeSpansProto(msg []byte, rs *resourceSpans) error {
	var sc scope
	err := r.walkScopeSpans(msg, rs, &sc)
	r.endScope(&sc)
	return err
}

func (r *reader) walkScopeSpans(msg []byte, rs *resourceSpans, sc *scope) error {
	_, err := r.walkMessages(msg, func(num protowire.Number, msg []byte) {
		switch num {
		case 1:
			r.resAttrs.Reset()
			r.walkAttributes(msg, 3, &r.resAttrs)
			r.setScope(sc, r.resAttrs.TailSampled())
		case 2:
			r.awaitScope(sc)
			r.readSpanProto(msg, rs)
		}
	})
	return err
}

// idFromProto is idFromBytes for the id p of the span being read.
func (r *reader) idFromProto(p part, dst, raw []byte) idState {
	state := idFromBytes(dst, raw)
	if state == idBad {
		r.blame(p, func() string { return fmt.Sprintf("has %d bytes, not %d", len(raw), len(dst)) })
	}
	return state
}

func (r *reader) readSpanProto(msg []byte, rs *resourceSpans) {
	d := r.begin()
	var start, end uint64
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			r.reasons.add(trace.NoteBadSpan, reasonOf(err))
			r.note(trace.NoteBadSpan, d)
			return
		}
		msg = rest
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			d.span.TraceID = trace.TraceID{}
			d.trace = r.idFromProto(traceIDPart, d.span.TraceID[:], f.bytes)
		case f.num == 2 && f.typ == protowire.BytesType:
			d.span.ID = trace.SpanID{}
			d.id = r.idFromProto(spanIDPart, d.span.ID[:], f.bytes)
		case f.num == 3 && f.typ == protowire.BytesType:
			d.note(r.attrs.SetString(trace.AttrTraceState, f.bytes))
		case f.num == 4 && f.typ == protowire.BytesType:
			d.span.Parent = trace.SpanID{}
			d.parent = idFromBytes(d.span.Parent[:], f.bytes)
		case f.num == 5 && f.typ == protowire.BytesType:
			r.setName(r.validText(f.bytes))
		case f.num == 6 && f.typ == protowire.VarintType:
			d.span.Kind = trace.KindUnspecified
			if f.value > uint64(trace.KindConsumer) {
				d.note(trace.NoteBadKind)
			} else {
				d.span.Kind = trace.Kind(f.value)
			}
		case f.num == 7 && f.typ == protowire.Fixed64Type:
			start = f.value
		case f.num == 8 && f.typ == protowire.Fixed64Type:
			end = f.value
		case f.num == 9 && f.typ == protowire.BytesType:
			r.readKeyValue(f.bytes, &r.attrs)
		case f.num == 11 && f.typ == protowire.BytesType:
			r.readEventProto(f.bytes)
		case f.num == 13 && f.typ == protowire.BytesType:
			d.readLinkProto(f.bytes)
		case f.num == 15 && f.typ == protowire.BytesType:
			r.readStatusProto(f.bytes)
		}
	}
	// What is over the range stays so.
	r.setTimes(int64(min(start, trace.TimeBound)), timeOK, int64(min(end, trace.TimeBound)), timeOK)
	r.finish(rs.res, rs.waiting)
}

// readEventProto reads an Event, up to where it is broken.
func (r *reader) readEventProto(msg []byte) {
	if r.attrs.Streaming() {
		return
	}
	r.event.Reset()
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			break
		}
		msg = rest
		switch {
		case f.num == 2 && f.typ == protowire.BytesType:
			r.event.SetString(trace.AttrEventName, f.bytes)
		case f.num == 3 && f.typ == protowire.BytesType:
			r.readKeyValue(f.bytes, &r.event)
		}
	}
	r.attrs.AddEvent(&r.event)
}

func (d *draft) readLinkProto(msg []byte) {
	link := d.newRef(true)
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return
		}
		msg = rest
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			clear(link.trace[:])
			idFromBytes(link.trace[:], f.bytes)
		case f.num == 2 && f.typ == protowire.BytesType:
			clear(link.span[:])
			idFromBytes(link.span[:], f.bytes)
		}
	}
}

func (r *reader) readStatusProto(msg []byte) {
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return
		}
		msg = rest
		switch {
		case f.num == 2 && f.typ == protowire.BytesType:
			r.attrs.SetString(trace.AttrStatusMessage, f.bytes)
		case f.num == 3 && f.typ == protowire.VarintType:
			r.attrs.SetStatus(f.value == 2)
		}
	}
}

// walkAttributes reads the KeyValues in the fields num of msg.
func (r *reader) walkAttributes(msg []byte, num protowire.Number, attrs *trace.Attributes) {
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			r.noteAttribute(attrs, trace.NoteBadAttribute)
			return
		}
		msg = rest
		if f.num == num && f.typ == protowire.BytesType {
			r.readKeyValue(f.bytes, attrs)
		}
	}
}

// readKeyValue reads one KeyValue and counts a broken one.
func (r *reader) readKeyValue(msg []byte, attrs *trace.Attributes) {
	if err := r.walkKeyValue(msg, attrs); err != nil {
		r.noteAttribute(attrs, trace.NoteBadAttribute)
	}
}

// walkKeyValue looks at key and value when both are known.
func (r *reader) walkKeyValue(msg []byte, attrs *trace.Attributes) error {
	var name, value []byte
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return err
		}
		msg = rest
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			name = f.bytes
		case f.num == 2 && f.typ == protowire.BytesType:
			value = f.bytes
		}
	}
	key, wanted := attrs.See(name)
	if !wanted {
		return nil
	}
	return r.walkAnyValue(value, key, attrs, key.TakesList())
}

// walkAnyValue gives the scalar in an AnyValue to an attribute; with list, the
// value may be a list of one scalar.
func (r *reader) walkAnyValue(value []byte, key trace.AttrKey, attrs *trace.Attributes, list bool) error {
	for len(value) > 0 {
		f, rest, err := nextField(value)
		if err != nil {
			return err
		}
		value = rest
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			r.noteAttribute(attrs, attrs.SetString(key, r.cut(r.validText(f.bytes))))
		case f.num == 2 && f.typ == protowire.VarintType:
			r.noteAttribute(attrs, attrs.SetBool(key, f.value != 0))
		case f.num == 3 && f.typ == protowire.VarintType:
			r.noteAttribute(attrs, attrs.SetInt(key, int64(f.value)))
		case f.num == 4 && f.typ == protowire.Fixed64Type:
			r.noteAttribute(attrs, attrs.SetFloat(key, math.Float64frombits(f.value)))
		case f.num == 5 && f.typ == protowire.BytesType && list:
			only, err := onlyElement(f.bytes)
			if err != nil {
				return err
			}
			if err := r.walkAnyValue(only, key, attrs, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// onlyElement returns the AnyValue of an ArrayValue that has one alone.
func onlyElement(list []byte) ([]byte, error) {
	var only []byte
	for n := 0; len(list) > 0; {
		f, rest, err := nextField(list)
		if err != nil {
			return nil, err
		}
		list = rest
		if f.num != 1 || f.typ != protowire.BytesType {
			continue
		}
		only = f.bytes
		if n++; n > 1 {
			return nil, nil
		}
	}
	return only, nil
}

// validText replaces what is no UTF-8.
func (r *reader) validText(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	r.json.badUTF8++
	held := r.held[:0]
	for len(text) > 0 {
		c, n := utf8.DecodeRune(text) // RuneError for a bad byte
		held = utf8.AppendRune(held, c)
		text = text[n:]
	}
	r.held = held
	return held
}
