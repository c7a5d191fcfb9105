package trace

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
)

// attrs fills an Attributes from pairs of key and value, as readers do: only
// wanted values are set. It returns the notes that the values gave.
func attrs(a *Attributes, pairs ...any) []NoteKind {
	var notes []NoteKind
	for i := 0; i < len(pairs); i += 2 {
		key, wanted := a.See([]byte(pairs[i].(string)))
		if !wanted {
			continue
		}
		var note NoteKind
		switch v := pairs[i+1].(type) {
		case string:
			note = a.SetString(key, []byte(v))
		case int:
			note = a.SetInt(key, int64(v))
		case float64:
			note = a.SetFloat(key, v)
		case bool:
			note = a.SetBool(key, v)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

func described(kind Kind, name string, res Resource, pairs ...any) (Span, []NoteKind) {
	var (
		a  Attributes
		in Interner
	)
	a.SetString(AttrSpanName, []byte(name))
	notes := attrs(&a, pairs...)
	s := Span{Kind: kind}
	a.Describe(&s, res, in.NewCache())
	return s, notes
}

func TestOperationComesFromTheMostTellingAttributes(t *testing.T) {
	for _, c := range []struct {
		name  string
		attrs []any
		want  string
	}{
		{"HTTP GET /hotels", []any{"http.method", "GET", "http.url", "/hotels?lat=38.1"}, "HTTP GET /hotels"},
		{"GET", []any{"http.route", "/users/{id}", "http.request.method", "GET"}, "GET /users/{id}"},
		{"GET", []any{"http.request.method", "GET", "http.route", "/users/{id}"}, "GET /users/{id}"},
		{"x", []any{"http.route", "/users/{id}", "http.method", "PUT"}, "PUT /users/{id}"},
		{"x", []any{"http.route", "/users/{id}"}, "/users/{id}"},
		{"POST /checkout", []any{"http.route", "/checkout"}, "POST /checkout"},
		{"DELETE /users/123456", []any{"http.route", "/users/{id}"}, "DELETE /users/{id}"},
		{"GET /users/123456?x=1", []any{"url.template", "/users/654321"}, "GET /users/{id}"},
		{"HTTP GET /hotels", []any{"http.route", "/hotels"}, "GET /hotels"},
		{"PURGE /a", []any{"http.route", "/a", "url.template", "/b"}, "PURGE /a"},
		{"GET /checkout", []any{"http.route", "/other"}, "/other"},
		{"GET /v1/checkout", []any{"http.route", "/checkout"}, "/checkout"},
		{"get /checkout", []any{"http.route", "/checkout"}, "/checkout"},
		{"handle /checkout", []any{"http.route", "/checkout"}, "/checkout"},
		{"/checkout", []any{"http.route", "/checkout"}, "/checkout"},
		{" /checkout", []any{"http.route", "/checkout"}, "/checkout"},
		{"POST /checkout", []any{"http.route", "/checkout", "http.request.method", "PUT"}, "PUT /checkout"},
		{"支付 /订单", []any{"http.route", "/订单"}, "/订单"},
		{"POST /订单/12345678", []any{"http.route", "/订单/{id}"}, "POST /订单/{id}"},
		{"x", []any{"http.route", "/u", "http.request.method", "_OTHER"}, "HTTP /u"},
		{"POST", []any{"url.template", "/pay/{id}", "http.request.method", "POST"}, "POST /pay/{id}"},
		{"GET", []any{"http.route", "", "http.request.method", "GET"}, "GET"},
		{"x", []any{"rpc.service", "search.Search", "rpc.method", "Nearby"}, "search.Search/Nearby"},
		{"x", []any{"rpc.method", "search.Search/Nearby"}, "search.Search/Nearby"},
		{"x", []any{"rpc.method", "/search.Search/Nearby"}, "search.Search/Nearby"},
		{"call", []any{"rpc.method", "Nearby"}, "call"},
		{"x", []any{"db.operation.name", "SELECT", "db.collection.name", "orders"}, "SELECT orders"},
		{"x", []any{"db.operation", "SELECT", "db.sql.table", "orders"}, "SELECT orders"},
		{"x", []any{"db.query.summary", "SELECT a; SELECT b"}, "SELECT a; SELECT b"},
		{"orm.Query", []any{"db.system", "mysql", "db.sql.table", "gophers"}, "orm.Query"},
		{"x", []any{"messaging.operation.name", "publish", "messaging.destination.name", "orders"}, "publish orders"},
		{"x", []any{
			"messaging.operation", "receive", "messaging.destination", "q",
			"messaging.destination.template", "q/{id}",
		}, "receive q/{id}"},
		{"orders send", []any{"messaging.destination.name", "orders"}, "orders send"},
	} {
		s, _ := described(KindServer, c.name, Resource{}, c.attrs...)
		if s.Desc.Operation != c.want {
			t.Errorf("%s %v: operation %q, want %q", c.name, c.attrs, s.Desc.Operation, c.want)
		}
	}
}

func TestMiddlewareKeepsItsName(t *testing.T) {
	if s, _ := described(KindInternal, "middleware - query", Resource{}, "http.route", "/users"); s.Desc.Operation != "middleware - query" {
		t.Errorf("operation %q", s.Desc.Operation)
	}
	if s, _ := described(KindUnspecified, "x", Resource{}, "http.route", "/users"); s.Desc.Operation != "/users" {
		t.Errorf("operation %q", s.Desc.Operation)
	}
}

func TestGRPCMethodHasOneForm(t *testing.T) {
	for _, name := range []string{
		"/search.Search/Nearby", "search.Search/Nearby", "Sent.search.Search.Nearby", "Recv.search.Search.Nearby",
		"Attempt.search.Search.Nearby", "Sent.search.Search/Nearby",
	} {
		if s, _ := described(KindClient, name, Resource{}); s.Desc.Operation != "search.Search/Nearby" {
			t.Errorf("%s became %s", name, s.Desc.Operation)
		}
	}
	for _, name := range []string{"/hotels", "/api.v1/users", "/a/b", "Sent", "/", "//", "/a.B/", "/a.B/C/d"} {
		if s, _ := described(KindServer, name, Resource{}); s.Desc.Operation != name {
			t.Errorf("%s became %s", name, s.Desc.Operation)
		}
	}
}

func TestOnlyDelimitedIDsAreFolded(t *testing.T) {
	const uuid = "550e8400-e29b-41d4-a716-446655440000"
	for name, want := range map[string]string{
		"/users/42":                   "/users/{id}",
		"GET /users/42/orders/7":      "GET /users/{id}/orders/{id}",
		"GET /users/42?session=9":     "GET /users/{id}",
		"GET /search?q=a/b":           "GET /search",
		"really?":                     "really?",
		"/users/" + uuid:              "/users/{id}",
		"reply-" + uuid:               "reply-{id}",
		strings.ToUpper(uuid):         "{id}",
		"/o/507f1f77bcf86cd799439011": "/o/{id}",
		"order-12345678":              "order-{id}",
		"job 20240501":                "job {id}",
		"HTTP 500":                    "HTTP 500",
		"productpage.local:9080/x":    "productpage.local:9080/x",
		"/v1/users":                   "/v1/users",
		"/v1.2/users":                 "/v1.2/users",
		"/api/v2":                     "/api/v2",
		"10.244.0.1":                  "10.244.0.1",
		"sha256":                      "sha256",
		"deadbeefdeadbeefdeadbeef":    "deadbeefdeadbeefdeadbeef", // a word: no digit in it
		"订单123456":                    "订单123456",
		"支付服务 /订单/42":                 "支付服务 /订单/{id}",
		"🛒 checkout 🛒":                "🛒 checkout 🛒",
		"evil\x1b]0;pwn\x07":          "evil\x1b]0;pwn\x07",
		"":                            "",
		"/42":                         "/{id}",
		"42":                          "42",
		"a1b2c3":                      "a1b2c3",
		"x123456":                     "x123456",
		"/users/42/":                  "/users/{id}/",
		"/users/42-a":                 "/users/42-a",
		uuid + "x":                    uuid + "x",
		"12345678-9":                  "{id}-9",
	} {
		if s, _ := described(KindInternal, name, Resource{}); s.Desc.Operation != want {
			t.Errorf("%q became %q, want %q", name, s.Desc.Operation, want)
		}
	}
}

func TestPeerAndHost(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		attrs []any
		want  string
	}{
		{KindClient, []any{"peer.service", "risk", "db.system", "mysql"}, "risk"},
		{KindClient, []any{"db.system", "mysql", "server.address", "db1"}, "mysql"},
		{KindClient, []any{"db.system.name", "postgresql"}, "postgresql"},
		{KindProducer, []any{"messaging.system", "kafka"}, "kafka"},
		{KindClient, []any{"server.address", "inventory.internal"}, "inventory.internal"},
		{KindClient, []any{"server.address", "inventory:8080"}, "inventory"},
		{KindClient, []any{"net.peer.name", "10.0.0.7"}, "{ip}"},
		{KindClient, []any{"server.address", "10.0.0.7:80"}, "{ip}"},
		{KindClient, []any{"server.address", "[2001:db8::1]:443"}, "{ip}"},
		{KindClient, []any{"server.address", "fe80::1%eth0"}, "{ip}"},
		{KindClient, []any{"server.address", "1.2.3"}, "1.2.3"},
		{KindClient, nil, ""},
		// A server's peer is its caller, which is no callee.
		{KindServer, []any{"net.peer.name", "client-17"}, ""},
		{KindConsumer, []any{"messaging.system", "kafka"}, ""},
	} {
		if s, _ := described(c.kind, "x", Resource{}, c.attrs...); s.Desc.Peer != c.want {
			t.Errorf("%v %v: peer %q, want %q", c.kind, c.attrs, s.Desc.Peer, c.want)
		}
	}
	for _, c := range []struct {
		attrs []any
		want  Resource
	}{
		{[]any{"service.name", "risk", "host.id", "i-1", "host.name", "node-1"}, Resource{"risk", "node-1"}},
		{[]any{"ip", "10.0.0.1", "hostname", "node-1"}, Resource{"", "node-1"}},
		{[]any{"ip", "10.0.0.1"}, Resource{"", "10.0.0.1"}},
		{[]any{"host.id", "i-1"}, Resource{"", "i-1"}},
		{nil, Resource{}},
	} {
		var (
			a  Attributes
			in Interner
		)
		attrs(&a, c.attrs...)
		if got := a.Resource(in.NewCache()); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.attrs, got, c.want)
		}
	}
}

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		attrs  []any
		status bool
		want   Outcome
	}{
		{nil, false, OutcomeOK},
		{nil, true, OutcomeFailed},
		{[]any{"rpc.grpc.status_code", 4}, false, OutcomeTimedOut}, // by its code, whatever the status says
		{[]any{"rpc.grpc.status_code", 4}, true, OutcomeTimedOut},
		{[]any{"rpc.grpc.status_code", "4"}, false, OutcomeTimedOut},
		{[]any{"rpc.grpc.status_code", "DEADLINE_EXCEEDED"}, true, OutcomeTimedOut},
		{[]any{"rpc.response.status_code", "DEADLINE_EXCEEDED"}, true, OutcomeTimedOut},
		{[]any{"rpc.grpc.status_code", 1}, true, OutcomeCancelled},
		{[]any{"rpc.response.status_code", "CANCELLED"}, false, OutcomeCancelled},
		{[]any{"rpc.grpc.status_code", 0}, false, OutcomeOK},
		{[]any{"rpc.grpc.status_code", 14}, true, OutcomeFailed},
		{[]any{"http.status_code", 504}, false, OutcomeTimedOut},
		{[]any{"http.response.status_code", 504}, true, OutcomeTimedOut},
		{[]any{"http.status_code", "504"}, false, OutcomeTimedOut},
		{[]any{"http.status_code", 499}, false, OutcomeCancelled},
		{[]any{"http.status_code", 500}, true, OutcomeFailed},
		{[]any{"http.status_code", 200}, false, OutcomeOK},
		{[]any{"error.type", "java.net.SocketTimeoutException"}, true, OutcomeTimedOut},
		{[]any{"error.type", "context.deadlineExceededError"}, true, OutcomeTimedOut},
		{[]any{"error.type", "ETIMEDOUT"}, true, OutcomeTimedOut},
		{[]any{"error.type", "std::io::ErrorKind::TimedOut"}, true, OutcomeTimedOut},
		{[]any{"error.type", "ERR_TIMED_OUT"}, true, OutcomeTimedOut},
		{[]any{"error.type", "504"}, true, OutcomeTimedOut},
		{[]any{"error.type", "*errors.canceled"}, true, OutcomeCancelled},
		// Go's errors for a context that ended; the type of the one is *errors.errorString.
		{[]any{"error.type", "*errors.errorString", "otel.status_description", "context canceled"}, true, OutcomeCancelled},
		{[]any{"otel.status_description", "read: context deadline exceeded"}, true, OutcomeTimedOut},
		{[]any{"otel.status_description", "a deadline for the timeout of canceled orders"}, true, OutcomeFailed},
		{[]any{"error.type", "500"}, false, OutcomeFailed},
		// A bad budget is refused, whatever the error is called.
		{[]any{"http.response.status_code", 400, "error.type", "InvalidTimeout"}, true, OutcomeFailed},
		{[]any{"error.type", "InvalidTimeout", "http.status_code", "400"}, false, OutcomeFailed},
		{[]any{"error.type", "400", "error", "bad deadline"}, false, OutcomeFailed},
		{[]any{"rpc.grpc.status_code", 3, "error.type", "InvalidDeadlineException"}, true, OutcomeFailed},
		{[]any{"rpc.response.status_code", "INVALID_ARGUMENT", "error", "bad deadline"}, true, OutcomeFailed},
		{[]any{"rpc.connect_rpc.error_code", "invalid_argument", "error", "bad timeout"}, true, OutcomeFailed},
		{[]any{"http.response.status_code", 400}, false, OutcomeOK},
		{[]any{"error", true}, false, OutcomeFailed},
		{[]any{"error", "true"}, false, OutcomeFailed},
		{[]any{"error", false}, false, OutcomeOK},
		{[]any{"error", "false"}, false, OutcomeOK},
		{[]any{"error", "read timed out"}, false, OutcomeTimedOut},
		{[]any{"otel.status_code", "ERROR"}, false, OutcomeFailed},
		{[]any{"otel.status_code", "OK"}, false, OutcomeOK},
	} {
		var (
			a  Attributes
			in Interner
			s  Span
		)
		attrs(&a, c.attrs...)
		a.SetStatus(c.status)
		a.Describe(&s, Resource{}, in.NewCache())
		if s.Outcome != c.want {
			t.Errorf("%v, error status %v: outcome %d, want %d", c.attrs, c.status, s.Outcome, c.want)
		}
	}
}

// An answer is final where another try would get it again.
func TestFinalAnswers(t *testing.T) {
	for _, c := range []struct {
		attrs  []any
		failed bool
		final  bool
	}{
		{[]any{"http.response.status_code", 404}, true, true},
		{[]any{"http.status_code", "410"}, true, true},
		{[]any{"error.type", "404"}, true, true},
		{[]any{"http.response.status_code", 400}, true, true},
		{[]any{"http.response.status_code", 422, "error.type", "422"}, true, true},
		{[]any{"rpc.grpc.status_code", 5}, true, true},
		{[]any{"rpc.grpc.status_code", "7"}, true, true},
		{[]any{"rpc.grpc.status_code", 11}, true, true},
		{[]any{"rpc.grpc.status_code", 12}, true, true},
		{[]any{"error.type", "OUT_OF_RANGE"}, true, true},
		{[]any{"error.type", "unimplemented"}, true, true},
		{[]any{"rpc.response.status_code", "NOT_FOUND"}, true, true},
		{[]any{"rpc.connect_rpc.error_code", "already_exists"}, true, true},
		{[]any{"error.type", "FailedPrecondition"}, true, true},
		{[]any{"rpc.response.status_code", "INVALID_ARGUMENT"}, true, true},
		{[]any{"http.response.status_code", 404}, false, false}, // a server that did its work
		{[]any{"http.response.status_code", 401}, true, false},  // again with a new login
		{[]any{"http.response.status_code", 408}, true, false},
		{[]any{"http.response.status_code", 409}, true, false}, // again with what is there now
		{[]any{"http.response.status_code", 423}, true, false},
		{[]any{"http.response.status_code", 425}, true, false},
		{[]any{"http.response.status_code", 429}, true, false},
		{[]any{"http.response.status_code", 499}, true, false},
		{[]any{"http.response.status_code", 500}, true, false},
		{[]any{"http.response.status_code", 503, "error.type", "503"}, true, false},
		{[]any{"rpc.grpc.status_code", 8}, true, false},
		{[]any{"rpc.grpc.status_code", 10}, true, false},
		{[]any{"rpc.grpc.status_code", 13}, true, false},
		{[]any{"rpc.grpc.status_code", 14}, true, false},
		{[]any{"rpc.response.status_code", "UNAVAILABLE"}, true, false},
		{[]any{"error.type", "FileNotFoundException"}, true, false}, // of whom, nobody knows
		{[]any{"error.type", "4040"}, true, false},
		{nil, true, false},
	} {
		var a Attributes
		var s Span
		attrs(&a, c.attrs...)
		a.SetStatus(c.failed)
		a.Describe(&s, Resource{}, new(Interner).NewCache())
		if s.Is(FlagFinal) != c.final {
			t.Errorf("%v, error status %v: final %v, want %v", c.attrs, c.failed, s.Is(FlagFinal), c.final)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		key  string
		want Flags
	}{
		{"db.statement", FlagOutbound},
		{"peer.address", FlagOutbound},
		{"net.peer.ip", FlagOutbound},
		{"server.address", FlagOutbound},
		{"rpc.system", FlagOutbound},
		{"peer.service", FlagOutbound},
		{"tailsampling.policy", FlagTailSampled},
		{"tailsampling.cached_decision", FlagTailSampled},
		{"meta.refinery.reason", FlagTailSampled},
		{"http.route", 0},
		{"sampler.type", 0},
		{"server.port", 0},
		{"", 0},
	} {
		if s, _ := described(KindInternal, "x", Resource{}, c.key, "v"); s.Flags != c.want {
			t.Errorf("%s: flags %b, want %b", c.key, s.Flags, c.want)
		}
	}
}

func TestStamp(t *testing.T) {
	for _, c := range []struct {
		attrs []any
		want  *Stamp
		bad   bool
	}{
		{nil, nil, false},
		{[]any{"latency_budget.limit", 0.8}, &Stamp{Limit: 800e6}, false},
		{[]any{"latency_budget.limit", 2}, &Stamp{Limit: 2e9}, false},
		{[]any{"latency_budget.limit", "0.3"}, &Stamp{Limit: 300e6}, false},
		{[]any{"latency_budget.deadline.remaining", 0.999906}, &Stamp{DeadlineRemaining: 999906000, HasDeadline: true}, false},
		{[]any{"latency_budget.deadline.remaining", -0.05}, &Stamp{DeadlineRemaining: -50e6, HasDeadline: true}, false},
		{[]any{"latency_budget.deadline.remaining", 0.0}, &Stamp{HasDeadline: true}, false},
		{[]any{"latency_budget.limit", math.NaN()}, nil, true},
		{[]any{"latency_budget.limit", math.Inf(1)}, nil, true},
		{[]any{"latency_budget.deadline.remaining", math.Inf(-1)}, nil, true},
		{[]any{"latency_budget.limit", -1.0}, nil, true},
		{[]any{"latency_budget.limit", 3600}, &Stamp{Limit: 3600e9}, false},
		{[]any{"latency_budget.limit", 3600.000000001}, nil, true},
		{[]any{"latency_budget.limit", 3601}, nil, true},
		{[]any{"latency_budget.limit", "3600.5"}, nil, true},
		{[]any{"latency_budget.limit", 0.8, "latency_budget.limit", 7200}, &Stamp{Limit: 800e6}, true},
		{[]any{"latency_budget.deadline.remaining", 7200}, &Stamp{DeadlineRemaining: 7200e9, HasDeadline: true}, false},
		{[]any{"latency_budget.limit", 1e9}, nil, true},
		{[]any{"latency_budget.limit", math.MaxInt64}, nil, true},
		{[]any{"latency_budget.limit", "soon"}, nil, true},
		{[]any{"latency_budget.limit", true}, nil, true},
		{[]any{"latency_budget.remaining.start", 0.268927}, &Stamp{Remaining: 268927000, HasRemaining: true}, false},
		{[]any{"latency_budget.remaining.start", -0.001047}, &Stamp{Remaining: -1047000, HasRemaining: true}, false},
		{[]any{"latency_budget.remaining.start", 0}, &Stamp{HasRemaining: true}, false},
		{[]any{"latency_budget.remaining.start", "soon"}, nil, true},
		{[]any{"latency_budget.announced.remaining", 0.269518}, &Stamp{Announced: 269518000, HasAnnounced: true}, false},
		{[]any{"latency_budget.announced.remaining", false}, nil, true},
		{[]any{"latency_budget.announced.fresh", false}, &Stamp{Stale: true}, false},
		{[]any{"latency_budget.announced.fresh", "False"}, &Stamp{Stale: true}, false},
		{[]any{"latency_budget.announced.fresh", true}, nil, false},
		{[]any{"latency_budget.announced.fresh", 1}, nil, true},
		{[]any{"latency_budget.announced.fresh", "perhaps"}, nil, true},
		{[]any{"latency_budget.source", "header_absolute"}, &Stamp{Absolute: true}, false},
		{[]any{"latency_budget.source", "context"}, nil, false},
		{[]any{"latency_budget.source", 3}, nil, true},
		{[]any{"latency_budget.source", true}, nil, true},
	} {
		s, notes := described(KindServer, "x", Resource{}, c.attrs...)
		if (s.Stamp == nil) != (c.want == nil) || s.Stamp != nil && *s.Stamp != *c.want {
			t.Errorf("%v: stamp %+v, want %+v", c.attrs, s.Stamp, c.want)
		}
		if bad := len(notes) == 1 && notes[0] == NoteBadStamp; bad != c.bad {
			t.Errorf("%v: notes %v, want a bad stamp: %v", c.attrs, notes, c.bad)
		}
	}
}

func TestParseThreshold(t *testing.T) {
	for _, c := range []struct {
		state       string
		t           uint64
		present, ok bool
	}{
		{"ot=th:c", 0xc0000000000000, true, true},
		{"ot=th:0", 0, true, true},
		{"ot=th:fd70a4", 0xfd70a400000000, true, true},
		{"ot=th:FD70A4", 0xfd70a400000000, true, true},
		{"ot=rv:12345678901234;th:8", 0x80000000000000, true, true},
		{"vendor=x, ot=th:8;rv:1", 0x80000000000000, true, true},
		{"ot=th:ffffffffffffff", 0xffffffffffffff, true, true},
		{"ot=th:zz", 0, true, false},
		{"ot=th:", 0, true, false},
		{"ot=th:123456789012345", 0, true, false},
		{"ot=th:-1", 0, true, false},
		{"ot=rv:1", 0, false, false},
		{"other=th:8", 0, false, false},
		{"got=th:8", 0, false, false},
		{"", 0, false, false},
		{",,ot=th:8 ,x=y", 0x80000000000000, true, true},
	} {
		got, present, ok := ParseThreshold(c.state)
		if got != c.t || present != c.present || ok != c.ok {
			t.Errorf("%q: %x %v %v, want %x %v %v", c.state, got, present, ok, c.t, c.present, c.ok)
		}
		s := Span{}
		var a Attributes
		a.SetString(AttrTraceState, []byte(c.state))
		a.Describe(&s, Resource{}, new(Interner).NewCache())
		if s.Is(FlagThreshold) != c.ok || s.Is(FlagThresholdInvalid) != (c.present && !c.ok) || s.Threshold != c.t {
			t.Errorf("%q: span has %x, flags %b", c.state, s.Threshold, s.Flags)
		}
	}
}

func FuzzParseThreshold(f *testing.F) {
	for _, s := range []string{"ot=th:c", "ot=th:zz", "a=b,ot=rv:1;th:fd70a4", "ot=", ";;,,", "ot=th:c;th:8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, present, ok := ParseThreshold(s)
		if ok && !present || !ok && got != 0 || got >= 1<<56 {
			t.Errorf("%q: %x %v %v", s, got, present, ok)
		}
		if b, p, o := ParseThreshold([]byte(s)); b != got || p != present || o != ok {
			t.Errorf("%q: bytes give %x %v %v", s, b, p, o)
		}
	})
}

func FuzzOperation(f *testing.F) {
	for _, s := range []string{"/users/42", "GET /a?b", "Sent.a.B", "/a.B/C", "550e8400-e29b-41d4-a716-446655440000", "支付"} {
		f.Add(s, "")
		f.Add("x", s)
	}
	f.Fuzz(func(t *testing.T, name, route string) {
		s, _ := described(KindServer, name, Resource{}, "http.route", route)
		once := s.Desc.Operation
		again, _ := described(KindServer, "", Resource{}, "http.route", once)
		if strings.Contains(once, "?") || strings.HasPrefix(once, "?") {
			return // a query after nothing but "?" or without a path stays
		}
		if once != "" && again.Desc.Operation != once {
			t.Errorf("%q, %q became %q and then %q", name, route, once, again.Desc.Operation)
		}
	})
}

func TestParseKind(t *testing.T) {
	for text, want := range map[string]Kind{
		"SPAN_KIND_SERVER": KindServer, "SERVER": KindServer, "server": KindServer, "2": KindServer,
		"span_kind_client": KindClient, "3": KindClient, "0": KindUnspecified, "SPAN_KIND_UNSPECIFIED": KindUnspecified,
		"1": KindInternal, "Producer": KindProducer, "5": KindConsumer,
	} {
		if got, ok := ParseKind([]byte(text)); !ok || got != want {
			t.Errorf("%q: %v %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "6", "99", "-1", "SPAN_KIND_", "SPAN_KIND_INVALID_TYPE", "servers"} {
		if got, ok := ParseKind([]byte(text)); ok || got != KindUnspecified {
			t.Errorf("%q: %v %v, want none", text, got, ok)
		}
	}
}

func TestKindAttributeServesOnlySpansWithoutKind(t *testing.T) {
	if s, _ := described(KindUnspecified, "x", Resource{}, "span.kind", "client"); s.Kind != KindClient {
		t.Errorf("kind %v", s.Kind)
	}
	if s, _ := described(KindServer, "x", Resource{}, "span.kind", "client"); s.Kind != KindServer {
		t.Errorf("kind %v", s.Kind)
	}
	if _, notes := described(0, "x", Resource{}, "span.kind", "router"); len(notes) != 1 || notes[0] != NoteBadKind {
		t.Errorf("notes %v", notes)
	}
}

func TestValuesOfTheWrongTypeAreNoted(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		want  NoteKind
	}{
		{"http.status_code", "many", NoteBadAttribute},
		{"http.status_code", true, NoteBadAttribute},
		{"http.status_code", 200.5, NoteBadAttribute},
		{"http.status_code", 200.0, ""},
		{"http.route", 17, ""},
		{"http.route", true, NoteBadAttribute},
		{"error.type", 504, NoteBadAttribute},
		{"w3c.tracestate", "ot=th:zz", NoteBadThreshold},
	} {
		_, notes := described(KindServer, "x", Resource{}, c.key, c.value)
		if got := fmt.Sprint(notes); c.want == "" && len(notes) > 0 || c.want != "" && got != fmt.Sprintf("[%s]", c.want) {
			t.Errorf("%s=%v: notes %v, want %q", c.key, c.value, notes, c.want)
		}
	}
}

func TestDescriptionsAreSharedByEqualContentOnly(t *testing.T) {
	var in Interner
	const workers = 8
	descs := make([]map[string]*Desc, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			cache := in.NewCache()
			descs[w] = make(map[string]*Desc)
			var a Attributes
			for i := range 500 {
				for _, r := range []Resource{{"a", "bc"}, {"ab", "c"}} {
					a.Reset()
					a.SetString(AttrSpanName, fmt.Appendf(nil, "op %d", i%50))
					d := a.Desc(KindClient, r, cache)
					descs[w][fmt.Sprintf("%q", *d)] = d
				}
			}
		})
	}
	wg.Wait()
	if len(descs[0]) != 100 {
		t.Errorf("%d descriptions, want 100", len(descs[0]))
	}
	for w := range workers {
		for k, d := range descs[w] {
			if descs[0][k] != d {
				t.Fatalf("worker %d has its own %s", w, k)
			}
		}
	}
	cache := in.NewCache()
	var a Attributes
	a.SetString(AttrSpanName, []byte("op 1"))
	bare := a.Desc(KindClient, Resource{}, cache)
	if got := cache.WithResource(bare, Resource{"a", "bc"}); got != a.Desc(KindClient, Resource{"a", "bc"}, cache) {
		t.Errorf("a description that gets its resource later is not the same: %+v", got)
	}
}

func TestDescribingASpanDoesNotAllocate(t *testing.T) {
	var (
		a  Attributes
		in Interner
	)
	cache := in.NewCache()
	resource := Resource{"gateway", "node-1"}
	route, value := []byte("http.route"), []byte("/users/{id}/orders/12345678")
	state := []byte("vendor=something-long-enough-for-the-heap,ot=th:c;rv:12345678901234")
	describe := func() {
		a.Reset()
		key, _ := a.See(route)
		a.SetString(key, value)
		a.SetString(AttrTraceState, state)
		a.SetString(AttrSpanName, value)
		s := Span{Kind: KindServer}
		a.Describe(&s, resource, cache)
		if s.Desc.Operation != "/users/{id}/orders/{id}" {
			t.Fatal(s.Desc.Operation)
		}
	}
	describe()
	if n := testing.AllocsPerRun(100, describe); n != 0 {
		t.Errorf("%v allocations a span, want 0", n)
	}
}
