package tracegen

import (
	"encoding/hex"
	"fmt"
	"strconv"
)

// AppendJaeger appends a download of Jaeger's UI: {"data":[…]}, one element a
// trace, times in microseconds.
func AppendJaeger(dst []byte, spans []Span) []byte {
	dst = append(dst, `{"data":[`...)
	for i, trace := range group(spans, traceKey) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJaegerTrace(dst, trace)
	}
	return append(dst, `],"total":0,"limit":0,"offset":0,"errors":null}`+"\n"...)
}

func appendJaegerTrace(dst []byte, trace []Span) []byte {
	dst = hex.AppendEncode(append(dst, `{"traceID":"`...), trace[0].TraceID[:])
	dst = append(dst, `","spans":[`...)
	processes := group(trace, processKey)
	number := make(map[[3]string]int)
	for i, p := range processes {
		number[processKey(&p[0])] = i + 1
	}
	for i := range trace {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJaegerSpan(dst, &trace[i], number[processKey(&trace[i])])
	}
	dst = append(dst, `],"processes":{`...)
	for i, p := range processes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, `"p%d":{"serviceName":`, i+1)
		dst = appendString(dst, p[0].Service)
		dst = append(dst, `,"tags":`...)
		dst = append(appendJaegerTags(dst, p[0].Resource), '}')
	}
	return append(dst, `},"warnings":null}`...)
}

func appendJaegerSpan(dst []byte, s *Span, process int) []byte {
	dst = hex.AppendEncode(append(dst, `{"traceID":"`...), s.TraceID[:])
	dst = hex.AppendEncode(append(dst, `","spanID":"`...), s.ID[:])
	dst = appendString(append(dst, `","operationName":`...), s.Name)
	dst = append(dst, `,"references":[`...)
	if s.Parent != [8]byte{} {
		dst = appendReference(dst, "CHILD_OF", s.TraceID, s.Parent)
	}
	for i, l := range s.Links {
		if i > 0 || s.Parent != [8]byte{} {
			dst = append(dst, ',')
		}
		dst = appendReference(dst, "FOLLOWS_FROM", l.TraceID, l.SpanID)
	}
	dst = append(dst, ']')
	if s.Start != 0 {
		dst = strconv.AppendInt(append(dst, `,"startTime":`...), s.Start/1000, 10)
	}
	if s.Start != 0 && s.End != 0 {
		dst = strconv.AppendInt(append(dst, `,"duration":`...), s.End/1000-s.Start/1000, 10)
	}
	dst = appendJaegerTags(append(dst, `,"tags":`...), jaegerTags(s))
	dst = append(dst, `,"logs":[`...)
	for i, e := range s.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"timestamp":`...), e.Time/1000, 10)
		dst = append(dst, `,"fields":`...)
		dst = appendJaegerTags(dst, append([]Attr{{"event", e.Name}}, e.Attrs...))
		dst = append(dst, '}')
	}
	return fmt.Appendf(dst, `],"processID":"p%d","warnings":null}`, process)
}

func appendReference(dst []byte, kind string, trace [16]byte, span [8]byte) []byte {
	return fmt.Appendf(dst, `{"refType":"%s","traceID":"%x","spanID":"%x"}`, kind, trace, span)
}

// jaegerTags are the attributes and those fields that Jaeger knows only as tags.
func jaegerTags(s *Span) []Attr {
	tags := s.Attrs[:len(s.Attrs):len(s.Attrs)]
	if s.Kind != KindUnspecified {
		tags = append(tags, Attr{"span.kind", kindNames[s.Kind]})
	}
	switch s.Status {
	case StatusOK:
		tags = append(tags, Attr{"otel.status_code", "OK"})
	case StatusError:
		tags = append(tags, Attr{"otel.status_code", "ERROR"}, Attr{"error", true})
	}
	if s.Message != "" {
		tags = append(tags, Attr{"otel.status_description", s.Message})
	}
	if s.TraceState != "" {
		tags = append(tags, Attr{"w3c.tracestate", s.TraceState})
	}
	return tags
}

func appendJaegerTags(dst []byte, attrs []Attr) []byte {
	dst = append(dst, '[')
	for i, a := range attrs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"key":`...), a.Key)
		switch v := a.Value.(type) {
		case int64:
			dst = strconv.AppendInt(append(dst, `,"type":"int64","value":`...), v, 10)
		case float64:
			dst = strconv.AppendFloat(append(dst, `,"type":"float64","value":`...), v, 'g', -1, 64)
		case bool:
			dst = strconv.AppendBool(append(dst, `,"type":"bool","value":`...), v)
		default:
			dst = appendString(append(dst, `,"type":"string","value":`...), text(v))
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// text is how formats without types write an attribute value.
func text(value any) string {
	if list, ok := value.([]string); ok {
		dst := []byte{'['}
		for i, e := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, e)
		}
		return string(append(dst, ']'))
	}
	return fmt.Sprint(value)
}
