package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latencybudget/latencybudget/internal/ontime"
	"github.com/latencybudget/latencybudget/propagation"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// What the flags and constants of the command promise, one by one.

func TestAPoolServesNoMoreThanItsWorkersAtOnce(t *testing.T) {
	p := newPool(2)
	var releases []func()
	for range 2 {
		release, err := p.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	late, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.acquire(late); err == nil {
		t.Error("a third request got a worker of two")
	}
	releases[0]()
	if _, err := p.acquire(t.Context()); err != nil {
		t.Errorf("no worker after one came free: %v", err)
	}
}

// Six requests of 30 ms need three rounds with two workers.
func TestServicesHaveAsManyWorkersAsConfigured(t *testing.T) {
	for _, protocol := range []Protocol{HTTP, GRPC} {
		s, _ := start(t, Config{Nodes: chain([]Protocol{protocol}, 30*time.Millisecond), Workers: 2})
		begin := time.Now()
		for _, o := range send(t, s, Load{Requests: 6, Budget: 5 * time.Second, Concurrency: 6}) {
			if o.Status != http.StatusOK {
				t.Errorf("%s: status %d", protocol, o.Status)
			}
		}
		if took := time.Since(begin); took < 90*time.Millisecond {
			t.Errorf("%s: 6 requests of 30 ms took %v with two workers, want at least 90 ms", protocol, took)
		}
	}
}

func TestOnlyTheLoopbackInterfaceIsListenedOn(t *testing.T) {
	for _, faults := range [][]Fault{nil, {{Kind: Proxy, Service: "gateway", Value: time.Second, Share: 1}}} {
		s, _ := start(t, Config{Nodes: Orders, Faults: faults})
		for _, service := range s.services {
			host, _, err := net.SplitHostPort(service.address)
			if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
				t.Errorf("%s listens on %s", service.node.Name, service.address)
			}
		}
	}
}

func TestTheGatewayListensOnItsPort(t *testing.T) {
	free, err := listen(0)
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, Config{Nodes: Orders, Port: address.Port})
	if got := s.services[0].address; got != address.String() {
		t.Errorf("the gateway listens on %s, want %s", got, address)
	}
}

func TestModeRatioGivesACallItsShare(t *testing.T) {
	for _, protocol := range []Protocol{HTTP, GRPC} {
		s, stop := start(t, Config{Nodes: chain([]Protocol{HTTP, protocol}, time.Millisecond), Mode: Ratio})
		send(t, s, Load{Requests: 5, Budget: 2 * time.Second})
		var given []float64
		for _, span := range of(stop(), "a", false) {
			given = append(given, span.deadline)
		}
		slices.Sort(given)
		// A busy machine leaves less to share, but not every time.
		if len(given) != 5 || given[4] > 1.8 || given[4] < 1.7 {
			t.Errorf("%s: calls have %v s, want about 0.9 of 2", protocol, given)
		}
	}
}

func TestModeHeaderAnnounces3000(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var sent []string
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Header.Values(BudgetHeader)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	resp, err := Header.transport(new(Authority), base).RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if !slices.Equal(sent, []string{"3000"}) {
		t.Errorf("sent %q, want 3000", sent)
	}
}

func TestArrivalsFollowFromTheSeed(t *testing.T) {
	s, _ := start(t, Config{Nodes: chain([]Protocol{HTTP}, 0)})
	arrivals := func(seed uint64) (offsets []time.Duration) {
		outcomes, err := Load{Requests: 40, Rate: 2000, Budget: time.Second, Seed: seed}.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			offsets = append(offsets, o.Sent.Sub(outcomes[0].Sent))
		}
		return offsets
	}
	one := arrivals(1)
	if !slices.Equal(one, arrivals(1)) {
		t.Error("two runs with the same seed have different schedules")
	}
	if slices.Equal(one, arrivals(2)) {
		t.Error("the seed makes no difference")
	}
	if last := one[len(one)-1]; last < 10*time.Millisecond || last > 40*time.Millisecond {
		t.Errorf("40 requests arrive within %v, want about 20 ms at 2000 a second", last)
	}
}

// A degradable call is made with exactly 100 ms left, and not with less.
func TestADegradableCallNeeds100ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration][]string{
			100 * time.Millisecond:                   nil,
			100*time.Millisecond - time.Nanosecond:   {"coupon"},
			100*time.Millisecond + time.Nanosecond:   nil,
			degradeBelow / 2:                         {"coupon"},
			time.Duration(float64(degradeBelow) * 2): nil,
		} {
			s := &System{cfg: Config{Mode: Propagated}, faults: new(faults)}
			calls := 0
			gateway := &Service{system: s, authority: &Authority{Log: silent}, edges: map[string]edge{
				"coupon": func(context.Context, Order) (Answer, error) { calls++; return Answer{}, nil },
			}}
			s.services = []*Service{gateway, {system: s, node: Node{Name: "coupon", Degradable: true}}}
			ctx, cancel := context.WithTimeout(t.Context(), left)
			degraded, err := gateway.run(ctx, Step{Calls: []string{"coupon"}}, 1)
			cancel()
			if err != nil || !slices.Equal(degraded, want) || calls != 1-len(want) {
				t.Errorf("%v left: degraded %v after %d calls, %v; want %v", left, degraded, calls, err, want)
			}
		}
	})
}

func TestTheReserveOfTheGatewayIsKeptFromItsCalls(t *testing.T) {
	s, stop := start(t, Config{Nodes: chain([]Protocol{HTTP, HTTP}, 0), Reserve: 600 * time.Millisecond})
	send(t, s, Load{Requests: 3, Budget: time.Second})
	calls := of(stop(), "a", false)
	if len(calls) == 0 {
		t.Error("nobody was called")
	}
	for _, span := range calls {
		if span.deadline > 0.4 {
			t.Errorf("a call has %v s, want 0.4 at most", span.deadline)
		}
	}
}

// Every flag is seen by what changes with it and does not without.
func TestFlagsReachTheServices(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string // in the answers
		log  string
	}{
		"as it is":       {nil, "2 x 200", ""},
		"-minimum":       {[]string{"-minimum", "6s"}, "2 x 504", `"service":"gateway","reason":"` + ReasonBelowMinimum},
		"-reserve":       {[]string{"-reserve", "6s"}, "2 x 504", `"service":"gateway","reason":"` + ReasonBelowMinimum},
		"relative clock": {[]string{"-skew", "1h"}, "2 x 200", ""},
		"absolute":       {[]string{"-deadline", "absolute"}, "2 x 200", ""},
		"-skew":          {[]string{"-deadline", "absolute", "-skew", "1h"}, "2 x 504", `"service":"auth","reason":"` + ReasonBelowMinimum},
		"no budget":      {[]string{"-budget", "0"}, "2 x 200", ""},
		"no deadline":    {[]string{"-budget", "0", "-deadline", "absolute"}, "2 x 400", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-requests", "2", "-rate", "0", "-budget", "5s", "-v"}, test.args...)
			code, out, errs := command(t, args...)
			if code != 0 || !strings.Contains(out, test.want+"\n") || !strings.Contains(errs, test.log) {
				t.Errorf("exit code %d, output %s%s; want %s and %s", code, out, errs, test.want, test.log)
			}
		})
	}
}

// Whatever its clock, a service judges the deadline that was sent.
func TestAWrongClockHidesNothingFromTheAuthority(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	tests := map[string]struct {
		values []string
		status int
	}{
		"good":         {[]string{"1700000001000"}, http.StatusOK},
		"twice":        {[]string{"1700000001000", "1700000001000"}, http.StatusBadRequest},
		"sign":         {[]string{"+5"}, http.StatusBadRequest},
		"signed":       {[]string{"+1700000001000"}, http.StatusBadRequest},
		"negative":     {[]string{"-5"}, http.StatusBadRequest},
		"empty":        {[]string{""}, http.StatusBadRequest},
		"none":         {nil, http.StatusBadRequest},
		"fraction":     {[]string{"1700000001000.0"}, http.StatusBadRequest},
		"long ago":     {[]string{"5"}, http.StatusGatewayTimeout},
		"far away":     {[]string{"9223372036854775807"}, http.StatusOK},
		"beyond int64": {[]string{"99999999999999999999"}, http.StatusOK},
	}
	for name, test := range tests {
		for _, c := range []clock{0, clock(50 * time.Millisecond), clock(-50 * time.Millisecond)} {
			a := &Authority{Wire: Absolute, Max: time.Second, Log: silent, Now: func() time.Time { return now }}
			w := httptest.NewRecorder()
			r := newRequest(t, "", "")
			r.Header[http.CanonicalHeaderKey(DeadlineHeader)] = test.values
			c.handler(a.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))).ServeHTTP(w, r)
			if w.Code != test.status {
				t.Errorf("%s, clock %v: status %d, want %d", name, time.Duration(c), w.Code, test.status)
			}
		}
	}
}

func TestAGRPCCallWithoutDeadlineIsRefusedIfThereIsNoDefault(t *testing.T) {
	_, err := (&Authority{Log: silent}).UnaryServer(t.Context(), nil, nil, func(context.Context, any) (any, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v, want InvalidArgument", err)
	}
}

// exchangeRaw sends a request to the entry of a system and returns the answer.
func exchangeRaw(t *testing.T, s *System, method, path, body string, header http.Header) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.services[0].address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text.String()
}

func TestTheGatewaySaysWhyItRefuses(t *testing.T) {
	s, _ := start(t, Config{Nodes: Orders, Spread: 0.9})
	tests := map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"good":           {http.MethodPost, "/order", `{"order": 1}`, http.StatusOK, `{"degraded":[]}`},
		"empty body":     {http.MethodPost, "/order", "", http.StatusBadRequest, "the body is no order"},
		"no JSON":        {http.MethodPost, "/order", "order=1", http.StatusBadRequest, "the body is no order"},
		"no order":       {http.MethodPost, "/order", "{}", http.StatusBadRequest, "there is no order in it"},
		"null":           {http.MethodPost, "/order", "null", http.StatusBadRequest, "there is no order in it"},
		"more behind":    {http.MethodPost, "/order", `{"order": 1} x`, http.StatusBadRequest, "the body is no order"},
		"too long":       {http.MethodPost, "/order", `{"order": 1}` + strings.Repeat(" ", 2000), http.StatusBadRequest, "too large"},
		"another method": {http.MethodGet, "/order", "", http.StatusMethodNotAllowed, "this wants a POST"},
		"another path":   {http.MethodPost, "/orders", `{"order": 1}`, http.StatusNotFound, "POST to /order"},
	}
	for name, test := range tests {
		status, answer := exchangeRaw(t, s, test.method, test.path, test.body, http.Header{BudgetHeader: {"5000"}})
		if status != test.status || !strings.Contains(answer, test.want) {
			t.Errorf("%s: %s\nwant %d and %s", name, answer, test.status, test.want)
		}
	}
}

func TestAHeaderThatIsTooLongIsRefused(t *testing.T) {
	for _, faults := range [][]Fault{nil, {{Kind: Proxy, Service: "gateway", Value: time.Second, Share: 1}}} {
		s, _ := start(t, Config{Nodes: Orders, Faults: faults})
		header := http.Header{"X-Long": {strings.Repeat("x", 64<<10)}}
		if status, _ := exchangeRaw(t, s, http.MethodPost, "/order", `{"order": 1}`, header); status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d, want 431", status)
		}
	}
}

// The edge takes the header from strangers; a service inside gets it.
func TestTheGatewayBelievesNoObservationFromOutside(t *testing.T) {
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("inside=%v", inside), func(t *testing.T) {
			s, stop := start(t, Config{Nodes: chain([]Protocol{HTTP, HTTP}, 0), Inside: inside})
			const trace = "0af7651916cd43dd8448eb211c80319c"
			status, answer := exchangeRaw(t, s, http.MethodPost, "/order", `{"order": 1}`, http.Header{
				"Traceparent": {"00-" + trace + "-00f067aa0ba902b7-01"},
				http.CanonicalHeaderKey(propagation.Header): {`obs1;r=7;t=8;h=3;s="00f067aa0ba902b7"`},
				BudgetHeader: {"5000"},
			})
			if status != http.StatusOK {
				t.Fatal(answer)
			}
			for _, span := range stop() {
				edge := span.service == "a" && span.server()
				if span.trace != trace || len(span.flags) > 0 {
					t.Errorf("%s %v: trace %s, flags %v", span.service, span.kind, span.trace, span.flags)
				}
				if got := span.has[attr.AnnouncedRemaining]; got != (span.server() && !edge) {
					t.Errorf("%s %v: announced: %v", span.service, span.kind, got)
				}
			}
		})
	}
}

func TestTheQueueOfAFaultCountsAsQueue(t *testing.T) {
	for _, protocol := range []Protocol{HTTP, GRPC} {
		s, stop := start(t, Config{
			Nodes:  chain([]Protocol{HTTP, protocol}, 0),
			Faults: []Fault{{Kind: Queue, Service: "b", Value: 40 * time.Millisecond, Share: 1}},
		})
		send(t, s, Load{Requests: 3, Budget: 5 * time.Second})
		stop()
		if got := s.Stats()[1].QueueP99; got < 40*time.Millisecond {
			t.Errorf("%s: queue P99 %v, want at least 40 ms", protocol, got)
		}
	}
}

// curl reads a command line of curl: -H, -d and the address.
func curl(t *testing.T, line string) (url, body string, header http.Header) {
	t.Helper()
	header = make(http.Header)
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-H":
			i++
			name, value, _ := strings.Cut(words[i], ": ")
			header.Set(name, value)
		case "-d":
			i++
			body = words[i]
		default:
			url = words[i]
		}
	}
	return url, body, header
}

func TestTheCurlLineOfTheReadmeWorks(t *testing.T) {
	var line string
	var port int
	for l := range strings.Lines(readme(t)) {
		if strings.HasPrefix(l, "curl ") {
			line = strings.TrimSpace(l)
		}
		if _, after, ok := strings.Cut(l, "go run ./examples/orders -requests 0 -port "); ok {
			port, _ = strconv.Atoi(strings.Fields(after)[0])
		}
	}
	url, body, header := curl(t, line)
	path, ok := strings.CutPrefix(url, fmt.Sprintf("http://127.0.0.1:%d", port))
	if !ok || port == 0 {
		t.Fatalf("%q is not for port %d", line, port)
	}
	// Its 800 ms leave little to do without on a busy machine, so there the work gets shorter.
	ontime.Judge(t, func(t *ontime.Trial) {
		s, _ := start(t.T, Config{Nodes: Orders, Spread: 1 - 0.1/float64(t.Scale)})
		status, answer := exchangeRaw(t.T, s, http.MethodPost, path, body, header)
		if status != http.StatusOK || !strings.Contains(answer, `{"degraded":[]}`) {
			t.Errorf("%s: %s", line, answer)
		}
	})
}
