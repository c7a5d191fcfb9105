package tracegen

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
)

// AppendOTLPProto appends one OTLP TracesData message.
func AppendOTLPProto(dst []byte, spans []Span) []byte {
	return tracesData(spans, false).append(dst, false)
}

// AppendOTLPProtoFramed appends messages behind their length in four bytes, big
// endian, as the Collector's file exporter writes them with `format: proto`.
// Like the Collector it writes the fields in descending order.
func AppendOTLPProtoFramed(dst []byte, spans []Span) []byte {
	for batch := range batches(spans) {
		dst = appendFrame(dst, tracesData(batch, true).append(nil, true))
	}
	return dst
}

// AppendOTLPProtoFramedZstd is AppendOTLPProtoFramed as the file exporter
// writes it with `compression: zstd`: every frame is compressed on its own.
func AppendOTLPProtoFramedZstd(dst []byte, spans []Span) []byte {
	for batch := range batches(spans) {
		dst = appendFrame(dst, appendZstd(nil, tracesData(batch, true).append(nil, true)))
	}
	return dst
}

// AppendOTLPJSONFramedZstd appends what the file exporter writes with `format:
// json` and `compression: zstd`: no lines, but frames of compressed documents.
func AppendOTLPJSONFramedZstd(dst []byte, spans []Span) []byte {
	for batch := range batches(spans) {
		dst = appendFrame(dst, appendZstd(nil, otlpJSON{key: "resourceSpans"}.append(nil, batch)))
	}
	return dst
}

func appendFrame(dst, message []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(message)))
	return append(dst, message...)
}

// expandFrames joins what the compressed frames hold.
func expandFrames(data []byte) ([]byte, error) {
	r, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []byte
	for len(data) > 0 {
		if len(data) < 4 || uint64(len(data)-4) < uint64(binary.BigEndian.Uint32(data)) {
			return nil, fmt.Errorf("frame is cut %d bytes before the end", len(data))
		}
		n := 4 + int(binary.BigEndian.Uint32(data))
		if out, err = r.DecodeAll(data[4:n], out); err != nil {
			return nil, err
		}
		data = data[n:]
	}
	return out, nil
}

// message is a protobuf message: its fields in ascending order of number.
type message []field

type field struct {
	num protowire.Number
	raw []byte // tag and value
}

func (m *message) bytes(num protowire.Number, v []byte) {
	raw := protowire.AppendTag(nil, num, protowire.BytesType)
	*m = append(*m, field{num, protowire.AppendBytes(raw, v)})
}

func (m *message) text(num protowire.Number, v string) {
	if v != "" {
		m.bytes(num, []byte(v))
	}
}

func (m *message) varint(num protowire.Number, v uint64) {
	raw := protowire.AppendTag(nil, num, protowire.VarintType)
	*m = append(*m, field{num, protowire.AppendVarint(raw, v)})
}

func (m *message) fixed64(num protowire.Number, v uint64) {
	raw := protowire.AppendTag(nil, num, protowire.Fixed64Type)
	*m = append(*m, field{num, protowire.AppendFixed64(raw, v)})
}

// append encodes the message; descending turns the order of the field numbers
// round, but not that of the elements of a list.
func (m message) append(dst []byte, descending bool) []byte {
	if descending {
		slices.SortStableFunc(m, func(a, b field) int { return cmp.Compare(b.num, a.num) })
	}
	for _, f := range m {
		dst = append(dst, f.raw...)
	}
	return dst
}

// tracesData builds a TracesData; the numbers are those of trace.proto.
func tracesData(spans []Span, descending bool) message {
	var data message
	for _, rs := range group(spans, processKey) {
		var resource, scope, scopeSpans, resourceSpans message
		for _, a := range serviceAttrs(&rs[0]) {
			resource.bytes(1, keyValue(a, descending))
		}
		scope.text(1, scopeName)
		for _, a := range rs[0].Scope {
			scope.bytes(3, keyValue(a, descending))
		}
		scopeSpans.bytes(1, scope.append(nil, descending))
		for i := range rs {
			scopeSpans.bytes(2, spanMessage(&rs[i], descending).append(nil, descending))
		}
		resourceSpans.bytes(1, resource.append(nil, descending))
		resourceSpans.bytes(2, scopeSpans.append(nil, descending))
		data.bytes(1, resourceSpans.append(nil, descending))
	}
	return data
}

func spanMessage(s *Span, descending bool) message {
	var m message
	m.bytes(1, s.TraceID[:])
	m.bytes(2, s.ID[:])
	m.text(3, s.TraceState)
	if s.Parent != [8]byte{} {
		m.bytes(4, s.Parent[:])
	}
	m.text(5, s.Name)
	if s.Kind != KindUnspecified {
		m.varint(6, uint64(s.Kind))
	}
	if s.Start != 0 {
		m.fixed64(7, uint64(s.Start))
	}
	if s.End != 0 {
		m.fixed64(8, uint64(s.End))
	}
	for _, a := range s.Attrs {
		m.bytes(9, keyValue(a, descending))
	}
	for _, e := range s.Events {
		var event message
		event.fixed64(1, uint64(e.Time))
		event.text(2, e.Name)
		for _, a := range e.Attrs {
			event.bytes(3, keyValue(a, descending))
		}
		m.bytes(11, event.append(nil, descending))
	}
	for _, l := range s.Links {
		var link message
		link.bytes(1, l.TraceID[:])
		link.bytes(2, l.SpanID[:])
		m.bytes(13, link.append(nil, descending))
	}
	var status message
	status.text(2, s.Message)
	if s.Status != StatusUnset {
		status.varint(3, uint64(s.Status))
	}
	m.bytes(15, status.append(nil, descending))
	return m
}

func keyValue(a Attr, descending bool) []byte {
	var m message
	m.text(1, a.Key)
	m.bytes(2, anyValue(a.Value).append(nil, descending))
	return m.append(nil, descending)
}

func anyValue(value any) message {
	var m message
	switch v := value.(type) {
	case string:
		m.bytes(1, []byte(v))
	case bool:
		m.varint(2, protowire.EncodeBool(v))
	case int64:
		m.varint(3, uint64(v))
	case float64:
		m.fixed64(4, math.Float64bits(v))
	case []string:
		var list message
		for _, e := range v {
			list.bytes(1, anyValue(e).append(nil, false))
		}
		m.bytes(5, list.append(nil, false))
	}
	return m
}
