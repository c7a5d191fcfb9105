package tracegen

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// spansPerBatch is the most that one line or message of the batched forms holds.
const spansPerBatch = 500

const scopeName = "latencybudget/tracegen"

// AppendOTLPJSON appends one OTLP JSON document, indented, as people paste it.
func AppendOTLPJSON(dst []byte, spans []Span) []byte {
	var out bytes.Buffer
	// The input was made here and is valid, so Indent cannot fail.
	_ = json.Indent(&out, otlpJSON{key: "resourceSpans"}.append(nil, spans), "", "  ")
	return append(append(dst, out.Bytes()...), '\n')
}

// AppendOTLPJSONLines appends one compact OTLP JSON document a line, as the
// Collector's file exporter writes them.
func AppendOTLPJSONLines(dst []byte, spans []Span) []byte {
	for batch := range batches(spans) {
		dst = append(otlpJSON{key: "resourceSpans"}.append(dst, batch), '\n')
	}
	return dst
}

// AppendTempo appends the answer of Tempo's trace-by-id API, version 1: all
// under "batches", base64 ids, enums by name.
func AppendTempo(dst []byte, spans []Span) []byte {
	return append(otlpJSON{key: "batches", base64: true, names: true}.append(dst, spans), '\n')
}

// AppendTempoV2 appends the answer of Tempo's trace-by-id API, version 2.
func AppendTempoV2(dst []byte, spans []Span) []byte {
	dst = append(dst, `{"trace":`...)
	dst = otlpJSON{key: "resourceSpans", base64: true, names: true}.append(dst, spans)
	return append(dst, "}\n"...)
}

// AppendJaegerV3 appends the answer of Jaeger's API version 3: a stream of
// results, here one a trace and back to back.
func AppendJaegerV3(dst []byte, spans []Span) []byte {
	for _, trace := range group(spans, traceKey) {
		dst = append(dst, `{"result":`...)
		dst = otlpJSON{key: "resourceSpans"}.append(dst, trace)
		dst = append(dst, '}')
	}
	return append(dst, '\n')
}

// batches cuts spans into runs of spansPerBatch.
func batches(spans []Span) func(yield func([]Span) bool) {
	return func(yield func([]Span) bool) {
		for len(spans) > 0 {
			n := min(len(spans), spansPerBatch)
			if !yield(spans[:n]) {
				return
			}
			spans = spans[n:]
		}
	}
}

// otlpJSON is a dialect of OTLP JSON.
type otlpJSON struct {
	key    string // of the list of resources
	base64 bool   // ids in base64 instead of hex
	names  bool   // enums by name instead of number
}

func (o otlpJSON) append(dst []byte, spans []Span) []byte {
	dst = append(dst, `{"`...)
	dst = append(dst, o.key...)
	dst = append(dst, `":[`...)
	for i, resource := range group(spans, processKey) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"resource":{"attributes":`...)
		dst = appendAttrs(dst, serviceAttrs(&resource[0]))
		dst = append(dst, `},"scopeSpans":[{"scope":{"name":"`+scopeName+`"`...)
		if len(resource[0].Scope) > 0 {
			dst = appendAttrs(append(dst, `,"attributes":`...), resource[0].Scope)
		}
		dst = append(dst, `},"spans":[`...)
		for j := range resource {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = o.appendSpan(dst, &resource[j])
		}
		dst = append(dst, `]}]}`...)
	}
	return append(dst, `]}`...)
}

func (o otlpJSON) appendSpan(dst []byte, s *Span) []byte {
	dst = o.appendID(append(dst, `{"traceId":"`...), s.TraceID[:])
	dst = o.appendID(append(dst, `","spanId":"`...), s.ID[:])
	if s.TraceState != "" {
		dst = appendString(append(dst, `","traceState":`...), s.TraceState)
		dst = append(dst, `,"parentSpanId":"`...)
	} else {
		dst = append(dst, `","parentSpanId":"`...)
	}
	if s.Parent != [8]byte{} {
		dst = o.appendID(dst, s.Parent[:])
	}
	dst = appendString(append(dst, `","name":`...), s.Name)
	if s.Kind != KindUnspecified {
		dst = o.appendEnum(append(dst, `,"kind":`...), "SPAN_KIND_", kindNames[s.Kind], int(s.Kind))
	}
	dst = appendTime(dst, `,"startTimeUnixNano":"`, s.Start)
	dst = appendTime(dst, `,"endTimeUnixNano":"`, s.End)
	if len(s.Attrs) > 0 {
		dst = appendAttrs(append(dst, `,"attributes":`...), s.Attrs)
	}
	if len(s.Events) > 0 {
		dst = append(dst, `,"events":[`...)
		for i, e := range s.Events {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(append(dst, `{"timeUnixNano":"`...), e.Time, 10)
			dst = appendString(append(dst, `","name":`...), e.Name)
			if len(e.Attrs) > 0 {
				dst = appendAttrs(append(dst, `,"attributes":`...), e.Attrs)
			}
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	if len(s.Links) > 0 {
		dst = append(dst, `,"links":[`...)
		for i, l := range s.Links {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = o.appendID(append(dst, `{"traceId":"`...), l.TraceID[:])
			dst = o.appendID(append(dst, `","spanId":"`...), l.SpanID[:])
			dst = append(dst, `"}`...)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"status":{`...)
	if s.Message != "" {
		dst = append(appendString(append(dst, `"message":`...), s.Message), ',')
	}
	if s.Status != StatusUnset {
		dst = o.appendEnum(append(dst, `"code":`...), "STATUS_CODE_", statusNames[s.Status], int(s.Status))
	}
	return append(dst, `}}`...)
}

func (o otlpJSON) appendID(dst, id []byte) []byte {
	if o.base64 {
		return base64.StdEncoding.AppendEncode(dst, id)
	}
	return hex.AppendEncode(dst, id)
}

func (o otlpJSON) appendEnum(dst []byte, prefix, name string, number int) []byte {
	if !o.names {
		return strconv.AppendInt(dst, int64(number), 10)
	}
	dst = append(append(dst, '"'), prefix...)
	dst = append(dst, bytes.ToUpper([]byte(name))...)
	return append(dst, '"')
}

// serviceAttrs is the resource with its service name in front.
func serviceAttrs(s *Span) []Attr {
	return append([]Attr{{"service.name", s.Service}}, s.Resource...)
}

func appendTime(dst []byte, key string, t int64) []byte {
	if t == 0 {
		return dst
	}
	dst = strconv.AppendInt(append(dst, key...), t, 10)
	return append(dst, '"')
}

func appendAttrs(dst []byte, attrs []Attr) []byte {
	dst = append(dst, '[')
	for i, a := range attrs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"key":`...), a.Key)
		dst = append(dst, `,"value":`...)
		dst = appendAnyValue(dst, a.Value)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendAnyValue(dst []byte, value any) []byte {
	switch v := value.(type) {
	case int64:
		dst = strconv.AppendInt(append(dst, `{"intValue":"`...), v, 10)
		return append(dst, `"}`...)
	case float64:
		dst = strconv.AppendFloat(append(dst, `{"doubleValue":`...), v, 'g', -1, 64)
	case bool:
		dst = strconv.AppendBool(append(dst, `{"boolValue":`...), v)
	case []string:
		dst = append(dst, `{"arrayValue":{"values":[`...)
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendAnyValue(dst, e)
		}
		return append(dst, `]}}`...)
	case string:
		dst = appendString(append(dst, `{"stringValue":`...), v)
	}
	return append(dst, '}')
}

func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // fails only for invalid UTF-8, and quotes it with U+FFFD
	return dst
}
