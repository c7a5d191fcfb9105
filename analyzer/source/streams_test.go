package source

import (
	"math/rand/v2"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// drawMessages makes the events of a call as an instrumentation writes them, and
// tells whether two messages went one way.
func drawMessages(rng *rand.Rand) (events []tracegen.Event, stream bool) {
	type attrs = []tracegen.Attr
	flavour := rng.IntN(5)
	counts := make(map[string]int64)
	for range rng.IntN(5) {
		way := []string{"SENT", "RECEIVED"}[rng.IntN(2)]
		counts[way]++
		id := counts[way]
		e := tracegen.Event{Time: 1_700_000_000_000_000_000}
		switch flavour {
		case 0:
			e.Name, e.Attrs = "message", attrs{{Key: "message.type", Value: way}, {Key: "message.id", Value: id}}
		case 1:
			e.Name, e.Attrs = "rpc.message", attrs{{Key: "rpc.message.id", Value: id}, {Key: "rpc.message.type", Value: way}}
		case 2:
			e.Name, e.Attrs = "shop.Order", attrs{{Key: "name", Value: "message"}, {Key: "message.type", Value: way}}
		case 3:
			e.Name = map[string]string{"SENT": "Outbound message", "RECEIVED": "Inbound message"}[way]
			e.Attrs = attrs{{Key: "sequence-number", Value: id - 1}, {Key: "message-size", Value: int64(12)}}
		case 4: // of something else
			e.Name, e.Attrs = "message", attrs{{Key: "message", Value: "cache miss"}}
		}
		events = append(events, e)
		stream = stream || flavour < 4 && id > 1
		if rng.IntN(4) == 0 {
			events = append(events, tracegen.Event{Time: e.Time, Name: "exception", Attrs: attrs{{Key: "exception.message", Value: `{"message.type":"SENT"}`}}})
		}
	}
	return events, stream
}

// signs are attributes by which spans are streams, and some that are like them.
var signs = []struct {
	attr   tracegen.Attr
	stream bool
}{
	{tracegen.Attr{Key: "http.response.status_code", Value: int64(101)}, true},
	{tracegen.Attr{Key: "http.response.status_code", Value: int64(200)}, false},
	{tracegen.Attr{Key: "url.scheme", Value: "wss"}, true},
	{tracegen.Attr{Key: "url.scheme", Value: "https"}, false},
	{tracegen.Attr{Key: "http.request.method", Value: "CONNECT"}, true},
	{tracegen.Attr{Key: "rpc.type", Value: "CLIENT_STREAMING"}, true},
	{tracegen.Attr{Key: "rpc.type", Value: "UNARY"}, false},
	{tracegen.Attr{Key: "grpc.received.message_count", Value: int64(2)}, true},
	{tracegen.Attr{Key: "grpc.received.message_count", Value: int64(1)}, false},
	{tracegen.Attr{Key: "graphql.operation.type", Value: "subscription"}, true},
	{tracegen.Attr{Key: "http.response.header.content-type", Value: []string{"text/event-stream; charset=utf-8"}}, true},
	{tracegen.Attr{Key: "http.response.header.content-type", Value: []string{"text/html"}}, false},
	{tracegen.Attr{Key: "http.response.header.content_type", Value: "application/connect+json"}, true},
}

// Streams are told by the same signs in every format.
func TestFormatsTellTheSameStreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var spans []tracegen.Span
	want := make(map[trace.SpanID]bool)
	streams := 0
	for i := range 4000 {
		s := tracegen.Span{
			TraceID: [16]byte{1}, ID: [8]byte{1, byte(i >> 8), byte(i)}, Service: "svc", Name: "op",
			Kind:  tracegen.KindServer + tracegen.Kind(i%2), // SERVER or CLIENT
			Start: 1_700_000_000_000_000_000, End: 1_700_000_001_000_000_000,
		}
		var stream bool
		if s.Events, stream = drawMessages(rng); rng.IntN(3) == 0 {
			sign := signs[rng.IntN(len(signs))]
			s.Attrs = append(s.Attrs, sign.attr)
			stream = stream || sign.stream
		}
		spans = append(spans, s)
		want[trace.SpanID(s.ID)] = stream
		if stream {
			streams++
		}
	}
	if streams < len(spans)/4 || streams > 3*len(spans)/4 {
		t.Errorf("%d of %d spans are streams: the test shows little", streams, len(spans))
	}
	for format, add := range map[string]func([]byte, []tracegen.Span) []byte{
		"otlp-json": tracegen.AppendOTLPJSON, "otlp-json lines": tracegen.AppendOTLPJSONLines, "otlp-proto": tracegen.AppendOTLPProto,
		"otlp-proto framed": tracegen.AppendOTLPProtoFramed, "tempo": tracegen.AppendTempo, "jaeger": tracegen.AppendJaeger,
		"jaeger-v3": tracegen.AppendJaegerV3, "zipkin": tracegen.AppendZipkin, "stdouttrace": tracegen.AppendStdouttrace,
	} {
		t.Run(format, func(t *testing.T) {
			got := readStdin(t, Options{}, string(add(nil, spans)), "-")
			if len(got.spans) != len(spans) {
				t.Fatalf("%d spans, want %d: %v", len(got.spans), len(spans), got.errs)
			}
			wrong := 0
			for _, s := range got.spans {
				if s.Is(trace.FlagStream) != want[s.ID] {
					if wrong++; wrong < 4 {
						i := int(s.ID[1])<<8 | int(s.ID[2])
						t.Errorf("stream: %v, want %v: %v %v", s.Is(trace.FlagStream), want[s.ID], spans[i].Attrs, spans[i].Events)
					}
				}
			}
			if notes := counted(got.notes); len(notes) > 0 {
				t.Errorf("notes %v", notes)
			}
		})
	}
}

// Exporters of Zipkin differ in what they put between the name of an event and its
// attributes, and attributes may come before the name of an event.
func TestSpellingsOfEvents(t *testing.T) {
	zipkin := func(annotations string) string {
		return `[{"traceId":"a","id":"1","timestamp":1,"duration":2,"annotations":[` + annotations + `]}]`
	}
	for _, c := range []struct {
		name, in string
		stream   bool
	}{
		{"the Collector's", zipkin(`{"timestamp":1,"value":"message|{\"message.id\":1,\"message.type\":\"SENT\"}|0"},{"value":"message|{\"message.type\":\"SENT\"}|0"}`), true},
		{"OpenTelemetry's", zipkin(`{"value":"\"message\": { \"message.type\" : \"SENT\", \"message.id\": 1 }"},{"value":"\"message\": {\"message.type\": \"SENT\"}"}`), true},
		{"Python's", zipkin(`{"value":"{\"Inbound message\": {\"sequence-number\": 0}}"},{"value":"{\"Inbound message\": {\"sequence-number\": 1}}"}`), true},
		{"one each way", zipkin(`{"value":"message|{\"message.type\":\"SENT\"}|0"},{"value":"message|{\"message.type\":\"RECEIVED\"}|0"}`), false},
		{"plain annotations", zipkin(`{"value":"message"},{"value":"message"},{"value":"{"},{"value":""},{"value":"SENT"}`), false},
		{"attributes first", otlp(otlpSpan("1", `,"events":[`+
			`{"attributes":[{"value":{"intValue":"0"},"key":"sequence-number"}],"name":"Inbound message"},`+
			`{"attributes":[{"value":{"intValue":"1"},"key":"sequence-number"}],"name":"Inbound message","timeUnixNano":"1"}]`)), true},
		{"events that are none", otlp(otlpSpan("1", `,"events":[null,7,[{"name":"message"}],{"name":7,"attributes":{}},{"attributes":[[[{}]]]}]`)), false},
		{"no list of events", otlp(otlpSpan("1", `,"events":{"name":"message"}`)), false},
		{"Jaeger's fields in any order", `{"data":[{"spans":[{"traceID":"a","spanID":"1","startTime":1,"duration":2,"logs":[` +
			`{"timestamp":1,"fields":[{"key":"sequence-number","type":"int64","value":0},{"key":"event","type":"string","value":"Outbound message"}]},` +
			`{"fields":[{"key":"event","value":"Outbound message"},{"key":"sequence-number","value":1}]}]}]}]}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := readStdin(t, Options{}, c.in, "-")
			if len(got.spans) != 1 || got.spans[0].Is(trace.FlagStream) != c.stream {
				t.Errorf("%d spans, %v: want one, a stream: %v", len(got.spans), showAll(got.spans), c.stream)
			}
		})
	}
}
