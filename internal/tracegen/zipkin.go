package tracegen

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// AppendZipkin appends an array of Zipkin v2 spans. A SERVER span with the id
// of a CLIENT span before it is marked as sharing it.
func AppendZipkin(dst []byte, spans []Span) []byte {
	type id struct {
		trace [16]byte
		span  [8]byte
	}
	clients := make(map[id]bool)
	for i := range spans {
		if s := &spans[i]; s.Kind == KindClient {
			clients[id{s.TraceID, s.ID}] = true
		}
	}
	dst = append(dst, '[')
	for i := range spans {
		if i > 0 {
			dst = append(dst, ",\n"...)
		}
		s := &spans[i]
		dst = appendZipkinSpan(dst, s, s.Kind == KindServer && clients[id{s.TraceID, s.ID}])
	}
	return append(dst, "]\n"...)
}

func appendZipkinSpan(dst []byte, s *Span, shared bool) []byte {
	dst = hex.AppendEncode(append(dst, `{"traceId":"`...), s.TraceID[:])
	if s.Parent != [8]byte{} {
		dst = hex.AppendEncode(append(dst, `","parentId":"`...), s.Parent[:])
	}
	dst = hex.AppendEncode(append(dst, `","id":"`...), s.ID[:])
	dst = append(dst, '"')
	if s.Kind > KindInternal { // Zipkin has no kind for internal work
		dst = append(dst, `,"kind":"`...)
		dst = append(dst, strings.ToUpper(kindNames[s.Kind])...)
		dst = append(dst, '"')
	}
	dst = appendString(append(dst, `,"name":`...), s.Name)
	if s.Start != 0 {
		dst = strconv.AppendInt(append(dst, `,"timestamp":`...), s.Start/1000, 10)
	}
	if s.Start != 0 && s.End != 0 {
		dst = strconv.AppendInt(append(dst, `,"duration":`...), s.End/1000-s.Start/1000, 10)
	}
	dst = appendString(append(dst, `,"localEndpoint":{"serviceName":`...), s.Service)
	dst = append(dst, '}')
	if shared {
		dst = append(dst, `,"shared":true`...)
	}
	if len(s.Events) > 0 {
		dst = append(dst, `,"annotations":[`...)
		for i, e := range s.Events {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(append(dst, `{"timestamp":`...), e.Time/1000, 10)
			value := e.Name
			if len(e.Attrs) > 0 { // as OpenTelemetry has exporters write it
				value = fmt.Sprintf("%q: {", e.Name)
				for i, a := range e.Attrs {
					if i > 0 {
						value += ", "
					}
					value += fmt.Sprintf("%q: %q", a.Key, text(a.Value))
				}
				value += "}"
			}
			dst = append(appendString(append(dst, `,"value":`...), value), '}')
		}
		dst = append(dst, ']')
	}
	tags := s.Attrs[:len(s.Attrs):len(s.Attrs)]
	switch s.Status {
	case StatusOK:
		tags = append(tags, Attr{"otel.status_code", "OK"})
	case StatusError:
		tags = append(tags, Attr{"otel.status_code", "ERROR"}, Attr{"error", s.Message})
	}
	if len(tags) > 0 {
		dst = append(dst, `,"tags":{`...)
		for i, a := range tags {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, a.Key), ':')
			dst = appendString(dst, text(a.Value))
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}
