package trace

// Nothing in the conventions says that a call is a stream. What instrumentations
// write on it often does. A sign takes a call out of the rules, so only those
// count that a call with one request and one answer cannot have:
//
//	on a span                                      who writes it
//	HTTP status 101                                servers and proxies: the connection became a WebSocket
//	HTTP method CONNECT                            the same: a tunnel, or a WebSocket over HTTP/2
//	url.scheme, http.scheme = ws or wss            ASGI servers, whose WebSockets have status 200
//	grpc.method_type, grpc.method.kind, rpc.type   OpenTracing, Datadog, Micrometer: the declared type of the
//	  with "stream" in it                          method, such as SERVER_STREAMING
//	grpc.sent.message_count,                       the Java agent
//	  grpc.received.message_count of 2 or more
//	graphql.operation.type = subscription          GraphQL servers
//	captured response header content-type:         text/event-stream, or application/connect+…, which Connect
//	                                               has for streams alone
//	two events for messages that went one way:     older otelgrpc, otelconnect, the Java agent, .NET; the name of
//	  (rpc.)message.type = SENT or RECEIVED        the event differs
//	two events Inbound message or Outbound         the plugins of gRPC itself
//	  message with a sequence-number
//
// What may be on other calls as well is none:
//
//	message.id of 2 or more                   older Java agents count both ways together: the answer has 2
//	network.protocol.name = websocket         also on single requests that go over an open WebSocket
//	content-type application/grpc or
//	  application/grpc-web                    all of gRPC
//	request headers upgrade and accept        what was asked for, not what was granted
//	events read and write of otelhttp         one long body
//	ndjson, chunks, a long duration           one answer in parts, or a slow one

// way is which way a message went.
type way uint8

const (
	waySent way = 1 << iota
	wayReceived
)

// setSign takes the text of an attribute that may be the sign of a stream.
func (a *Attributes) setSign(key AttrKey, v []byte) {
	stream := false
	switch key {
	case attrScheme:
		stream = foldEqual(v, "ws") || foldEqual(v, "wss")
	case attrMethodType:
		stream = foldContains(v, "stream")
	case attrOperationType:
		stream = foldEqual(v, "subscription")
	case attrContentType:
		stream = foldContains(v, "text/event-stream") || foldContains(v, "application/connect+")
	case attrMessageType:
		switch string(v) {
		case "SENT":
			a.way = waySent
		case "RECEIVED":
			a.way = wayReceived
		}
	case attrMessageCount, attrSequenceNumber:
		if n, ok := parseInt(v); ok {
			a.SetInt(key, n)
		}
	}
	if stream {
		a.flags |= FlagStream
	}
}

// Streaming tells whether a sign of a stream was seen: events need not be looked at
// any more.
func (a *Attributes) Streaming() bool { return a.flags&FlagStream != 0 }

// AddEvent takes note of an event of the span. Readers fill e with its name and
// its attributes.
func (a *Attributes) AddEvent(e *Attributes) {
	w := e.way
	if w == 0 && e.numbered {
		switch string(e.text(AttrEventName)) {
		case "Outbound message":
			w = waySent
		case "Inbound message":
			w = wayReceived
		}
	}
	if w&a.ways != 0 {
		a.flags |= FlagStream
	}
	a.ways |= w
}
