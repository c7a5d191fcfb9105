package trace

import "testing"

func TestSignsOfAStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		attrs  []any
		stream bool
	}{
		{"otelhttp, WebSocket", []any{"http.request.method", "GET", "http.response.status_code", 101}, true},
		{"Envoy, WebSocket: all values are texts", []any{"http.method", "GET", "http.status_code", "101"}, true},
		{"Kestrel, WebSocket over HTTP/2", []any{"http.request.method", "CONNECT", "http.response.status_code", 200}, true},
		{"old conventions, a tunnel", []any{"http.method", "CONNECT"}, true},
		{"ASGI, WebSocket", []any{"http.scheme", "ws", "http.status_code", 200}, true},
		{"ASGI, new conventions", []any{"url.scheme", "wss"}, true},
		{"Micrometer", []any{"rpc.service", "p.S", "rpc.method", "Watch", "rpc.type", "SERVER_STREAMING"}, true},
		{"OpenTracing, Java", []any{"grpc.method_type", "BIDI_STREAMING"}, true},
		{"OpenTracing, Ruby", []any{"grpc.method_type", "client_streamer"}, true},
		{"Datadog", []any{"grpc.method.kind", "server_streaming"}, true},
		{"Java agent, counts", []any{"grpc.sent.message_count", 1, "grpc.received.message_count", 2}, true},
		{"counts as texts", []any{"grpc.sent.message_count", "7"}, true},
		{"GraphQL", []any{"graphql.operation.type", "subscription"}, true},
		{"SSE", []any{"http.response.header.content-type", "text/event-stream"}, true},
		{"SSE, with parameters, underscores, a list as text", []any{"http.response.header.content_type", `["Text/Event-Stream; charset=utf-8"]`}, true},
		{"Connect", []any{"http.response.header.content-type", "application/connect+proto"}, true},

		{"unary HTTP", []any{"http.request.method", "GET", "url.scheme", "https", "http.response.status_code", 200}, false},
		{"another status of that class", []any{"http.response.status_code", 100}, false},
		{"status 1010", []any{"http.status_code", "1010"}, false},
		{"unary, Micrometer", []any{"rpc.type", "UNARY"}, false},
		{"unary, Ruby", []any{"grpc.method_type", "request_response"}, false},
		{"unary, Datadog", []any{"grpc.method.kind", "unary"}, false},
		{"unary, counts", []any{"grpc.sent.message_count", 1, "grpc.received.message_count", 1}, false},
		{"a type of somebody else", []any{"rpc.type", 3, "url.scheme", 1}, false},
		{"GraphQL query", []any{"graphql.operation.type", "query"}, false},
		{"a request over an open WebSocket", []any{"network.protocol.name", "websocket"}, false},
		{"unary Connect", []any{"http.response.header.content-type", "application/proto"}, false},
		{"gRPC", []any{"http.response.header.content-type", "application/grpc"}, false},
		{"gRPC-Web", []any{"http.response.header.content-type", "application/grpc-web+proto"}, false},
		{"one answer in parts", []any{"http.response.header.content-type", "application/x-ndjson"}, false},
		{"what was asked for", []any{"http.request.header.accept", "text/event-stream", "http.request.header.upgrade", "websocket"}, false},
		{"two types", []any{"http.response.header.content-type", `["text/event-stream","text/html"]`}, false},
		{"a message id on the span", []any{"message.id", 5, "message.type", "SENT"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, notes := described(KindServer, "x", Resource{}, c.attrs...)
			if got.Is(FlagStream) != c.stream {
				t.Errorf("stream: %v", got.Is(FlagStream))
			}
			if len(notes) > 0 {
				t.Errorf("notes %v", notes)
			}
		})
	}
}

// event is the name of an event and its attributes.
type event struct {
	name  string
	attrs []any
}

func message(name, kind string, id int) event {
	return event{name, []any{kind, "SENT", "message.id", id}}
}

func TestMessagesOfAStream(t *testing.T) {
	sent := func(id int) event { return message("message", "message.type", id) }
	received := func(id int) event { return event{"message", []any{"message.id", id, "message.type", "RECEIVED"}} }
	for _, c := range []struct {
		name   string
		events []event
		stream bool
	}{
		{"otelgrpc", []event{sent(1), received(1), received(2)}, true},
		{"newer names", []event{
			{"rpc.message", []any{"rpc.message.type", "RECEIVED", "rpc.message.id", 1}},
			{"rpc.message", []any{"rpc.message.type", "RECEIVED", "rpc.message.id", 2}},
		}, true},
		{".NET names events by the type of the message", []event{
			message("shop.Order", "message.type", 1), message("shop.Order", "message.type", 2),
		}, true},
		{"gRPC's own plugin", []event{
			{"Outbound message", []any{"sequence-number", 0, "message-size", 10}},
			{"Inbound message", []any{"sequence-number", 0}},
			{"Inbound message", []any{"sequence-number", 1}},
		}, true},
		{"the first messages were dropped", []event{received(127), received(128)}, true},

		{"unary", []event{sent(1), received(1)}, false},
		{"unary, older Java agent: one counter for both ways", []event{sent(1), received(2)}, false},
		{"unary, gRPC's own plugin", []event{
			{"Delayed LB pick complete", nil},
			{"Outbound message", []any{"sequence-number", 0}},
			{"Inbound message", []any{"sequence-number", 0}},
		}, false},
		{"the size on the wire is an event of its own", []event{
			{"Outbound message", []any{"sequence-number", 0}},
			{"Outbound message compressed", []any{"sequence-number", 0}},
		}, false},
		{"otelhttp", []event{{"write", []any{"http.wrote_bytes", 10}}, {"write", []any{"http.wrote_bytes", 10}}}, false},
		{"logs", []event{{"message", nil}, {"message", []any{"message", "hello"}}, {"Inbound message", nil}, {"Inbound message", nil}}, false},
		{"a type that is none", []event{{"message", []any{"message.type", "text"}}, {"message", []any{"message.type", "text"}}}, false},
		{"exceptions", []event{{"exception", []any{"exception.type", "x"}}, {"exception", []any{"exception.type", "x"}}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a, e Attributes
			for _, one := range c.events {
				e.Reset()
				attrs(&e, one.attrs...)
				e.SetText(AttrEventName, one.name)
				a.AddEvent(&e)
			}
			if a.Streaming() != c.stream {
				t.Errorf("stream: %v", a.Streaming())
			}
			a.Reset()
			if a.AddEvent(&e); a.Streaming() {
				t.Error("messages of another span are counted")
			}
		})
	}
}

// One of the spans of a call is enough: instrumentations differ between its sides.
func TestACallIsAStreamByAnyOfItsSpans(t *testing.T) {
	for name, marked := range map[string]int{"none": -1, "CLIENT": 1, "attempt": 2, "SERVER": 3, "below the callee": 4} {
		spans := []Span{
			{Kind: KindServer, Desc: &Desc{Service: "a", Operation: "in"}},
			{Kind: KindClient, Desc: &Desc{Service: "a", Operation: "m"}},
			{Kind: KindInternal, Desc: &Desc{Service: "a", Operation: "m"}},
			{Kind: KindServer, Desc: &Desc{Service: "b", Operation: "m"}},
			{Kind: KindClient, Desc: &Desc{Service: "b", Operation: "x", Peer: "db"}},
		}
		for i := range spans {
			spans[i].TraceID, spans[i].ID = TraceID{1}, SpanID{byte(i + 1)}
			spans[i].Start, spans[i].Duration = int64(i), int64(100-2*i)
			if i > 0 {
				spans[i].Parent = SpanID{byte(i)}
			}
			if i == marked {
				spans[i].Flags |= FlagStream
			}
		}
		var tree Tree
		tree.Build(NewTrace(spans), 0, new(Paths), nil)
		if len(tree.Calls) != 3 {
			t.Fatalf("%d calls", len(tree.Calls))
		}
		for i, want := range []bool{false, marked >= 1 && marked <= 3, marked == 4} {
			if tree.Calls[i].Stream != want {
				t.Errorf("%s is marked: call %d is a stream: %v", name, i, tree.Calls[i].Stream)
			}
		}
	}
}
