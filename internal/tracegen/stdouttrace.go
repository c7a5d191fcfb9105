package tracegen

import (
	"fmt"
	"strconv"
	"time"
)

// AppendStdouttrace appends what the Go SDK's stdouttrace exporter prints, one
// span a line.
func AppendStdouttrace(dst []byte, spans []Span) []byte {
	for i := range spans {
		dst = append(appendStdoutSpan(dst, &spans[i]), '\n')
	}
	return dst
}

func appendStdoutSpan(dst []byte, s *Span) []byte {
	dst = appendString(append(dst, `{"Name":`...), s.Name)
	dst = appendSpanContext(append(dst, `,"SpanContext":`...), s.TraceID, s.ID, s.TraceState)
	if s.Parent != [8]byte{} {
		dst = appendSpanContext(append(dst, `,"Parent":`...), s.TraceID, s.Parent, s.TraceState)
	} else {
		dst = appendSpanContext(append(dst, `,"Parent":`...), [16]byte{}, [8]byte{}, "")
	}
	dst = strconv.AppendInt(append(dst, `,"SpanKind":`...), int64(s.Kind), 10)
	dst = appendStdoutTime(append(dst, `,"StartTime":`...), s.Start)
	dst = appendStdoutTime(append(dst, `,"EndTime":`...), s.End)
	dst = appendStdoutAttrs(append(dst, `,"Attributes":`...), s.Attrs)
	dst = append(dst, `,"Events":`...)
	dst = appendStdoutList(dst, len(s.Events), func(dst []byte, i int) []byte {
		e := &s.Events[i]
		dst = appendString(append(dst, `{"Name":`...), e.Name)
		dst = appendStdoutAttrs(append(dst, `,"Attributes":`...), e.Attrs)
		dst = appendStdoutTime(append(dst, `,"DroppedAttributeCount":0,"Time":`...), e.Time)
		return append(dst, '}')
	})
	dst = append(dst, `,"Links":`...)
	dst = appendStdoutList(dst, len(s.Links), func(dst []byte, i int) []byte {
		dst = appendSpanContext(append(dst, `{"SpanContext":`...), s.Links[i].TraceID, s.Links[i].SpanID, "")
		return append(dst, `,"Attributes":null,"DroppedAttributeCount":0}`...)
	})
	dst = fmt.Appendf(dst, `,"Status":{"Code":"%s","Description":`, statusNames[s.Status])
	dst = appendString(dst, s.Message)
	dst = append(dst, `},"DroppedAttributes":0,"DroppedEvents":0,"DroppedLinks":0,"ChildSpanCount":0,"Resource":`...)
	dst = appendStdoutAttrs(dst, serviceAttrs(s))
	return append(dst, `,"InstrumentationScope":{"Name":"`+scopeName+`","Version":"","SchemaURL":""}}`...)
}

func appendSpanContext(dst []byte, trace [16]byte, span [8]byte, state string) []byte {
	flags := "01"
	if span == [8]byte{} {
		flags = "00"
	}
	dst = fmt.Appendf(dst, `{"TraceID":"%x","SpanID":"%x","TraceFlags":"%s","TraceState":`, trace, span, flags)
	return append(appendString(dst, state), `,"Remote":false}`...)
}

// appendStdoutTime writes a missing time as Go's zero time, as the SDK does.
func appendStdoutTime(dst []byte, t int64) []byte {
	var at time.Time
	if t != 0 {
		at = time.Unix(0, t).UTC()
	}
	return append(at.AppendFormat(append(dst, '"'), time.RFC3339Nano), '"')
}

func appendStdoutList(dst []byte, n int, element func(dst []byte, i int) []byte) []byte {
	if n == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = element(dst, i)
	}
	return append(dst, ']')
}

func appendStdoutAttrs(dst []byte, attrs []Attr) []byte {
	return appendStdoutList(dst, len(attrs), func(dst []byte, i int) []byte {
		dst = appendString(append(dst, `{"Key":`...), attrs[i].Key)
		dst = append(dst, `,"Value":{"Type":"`...)
		switch v := attrs[i].Value.(type) {
		case int64:
			dst = strconv.AppendInt(append(dst, `INT64","Value":`...), v, 10)
		case float64:
			dst = strconv.AppendFloat(append(dst, `FLOAT64","Value":`...), v, 'g', -1, 64)
		case bool:
			dst = strconv.AppendBool(append(dst, `BOOL","Value":`...), v)
		case []string:
			dst = append(dst, `STRINGSLICE","Value":`...)
			dst = append(dst, text(v)...)
		case string:
			dst = appendString(append(dst, `STRING","Value":`...), v)
		}
		return append(dst, "}}"...)
	})
}
