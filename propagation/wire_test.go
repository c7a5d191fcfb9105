package propagation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latencybudget/latencybudget/internal/ontime"
	"github.com/latencybudget/latencybudget/propagation"
)

// The tests below run over real HTTP and gRPC on the loopback interface. Times
// are therefore bounded, not exact, and of several runs the best one counts: a
// busy machine makes a request later, never earlier. Where that is not enough,
// all of these times get longer by the scale of the trial.

const (
	timeoutHeader = "X-Timeout-Budget-Ms"
	budget        = 300 * ms
	work          = 30 * ms
	freshTimeout  = time.Second
	runs          = 5
)

// mode is how the services of a chain treat the deadline.
type mode int

const (
	passedOn mode = iota
	fresh         // each call and each server takes 1 s
	dropped       // no call has a deadline, and servers take 1 s
)

func (m mode) outgoing(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	switch m {
	case fresh:
		return context.WithTimeout(context.WithoutCancel(ctx), timeout)
	case dropped:
		return context.WithoutCancel(ctx), func() {}
	}
	return ctx, func() {}
}

// log gathers the ended spans of all services by trace, and there by service
// and kind.
type log struct {
	scale  time.Duration
	mu     sync.Mutex
	traces map[trace.TraceID]map[string]attrs
}

const spansPerRequest = 5

// inTime returns the requests that ended before their deadline, of n that were
// answered. It waits for the spans of those: servers end theirs after answering.
func (l *log) inTime(t *ontime.Trial, n int) (results []map[string]attrs) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(ms) {
		results = nil
		complete := 0
		l.mu.Lock()
		for _, spans := range l.traces {
			if len(spans) != spansPerRequest {
				continue
			}
			complete++
			if left, _ := spans["gateway client"]["remaining.end"].(float64); left > 0 {
				results = append(results, spans)
			}
		}
		l.mu.Unlock()
		if complete >= n {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the spans of %d requests are complete, want those of %d", complete, n)
		}
	}
	if len(results) == 0 {
		t.Errorf("no request was in time, %d were answered", n)
	}
	return results
}

func (l *log) provider(service string) *sdktrace.TracerProvider {
	record := endFunc(func(s sdktrace.ReadOnlySpan) {
		l.mu.Lock()
		defer l.mu.Unlock()
		id := s.SpanContext().TraceID()
		if l.traces == nil {
			l.traces = map[trace.TraceID]map[string]attrs{}
		}
		if l.traces[id] == nil {
			l.traces[id] = map[string]attrs{}
		}
		l.traces[id][service+" "+s.SpanKind().String()] = stamped(s)
	})
	return sdktrace.NewTracerProvider(
		// Resets here are by hundreds of milliseconds. What the scheduler can put
		// between Extract and a middleware inside must not look like one.
		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor(propagation.WithTolerance(late*l.scale, 0.02))),
		sdktrace.WithSpanProcessor(propagation.NewEndStamper(record)))
}

func propagators(opts ...propagation.Option) otelpropagation.TextMapPropagator {
	return otelpropagation.NewCompositeTextMapPropagator(otelpropagation.TraceContext{}, otelpropagation.Baggage{}, propagation.New(opts...))
}

// httpChain serves gateway, a and b, each of which works and calls the next.
type httpChain struct {
	mode
	inside  bool // the deadline middleware runs inside otelhttp
	observe bool // and calls Observe
	options []propagation.Option
	work    time.Duration
}

// serve starts the chain and returns the URL of its gateway.
func (c httpChain) serve(t *testing.T, l *log) string {
	t.Helper()
	next := ""
	for _, name := range []string{"b", "a", "gateway"} {
		next = c.service(t, l, name, next)
	}
	return next
}

func (c httpChain) service(t *testing.T, l *log, name, next string) string {
	provider := l.provider(name)
	options := []otelhttp.Option{otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagators(c.options...))}
	client := &http.Client{Transport: otelhttp.NewTransport(authorityTransport{http.DefaultTransport}, options...)}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(c.work)
		if next == "" {
			return
		}
		ctx, cancel := c.outgoing(r.Context(), freshTimeout*l.scale)
		defer cancel()
		if err := get(ctx, client, next); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	limit := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			timeout := freshTimeout * l.scale
			given, err := strconv.Atoi(r.Header.Get(timeoutHeader))
			if err == nil && (c.mode == passedOn || name == "gateway" && !c.inside) {
				timeout = time.Duration(given) * ms
			}
			ctx, cancel := context.WithTimeout(r.Context(), timeout)
			defer cancel()
			if c.observe {
				propagation.Observe(ctx)
			}
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	if c.inside {
		handler = otelhttp.NewHandler(limit(handler), "op", options...)
	} else {
		handler = limit(otelhttp.NewHandler(handler, "op", options...))
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// authorityTransport sends on what the context has left. It belongs inside the
// instrumentation: measured after Inject, the timeout is never the longer one.
type authorityTransport struct{ http.RoundTripper }

func (t authorityTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if d, ok := r.Context().Deadline(); ok {
		r = r.Clone(r.Context())
		r.Header.Set(timeoutHeader, strconv.FormatInt(max(0, time.Until(d).Milliseconds()), 10))
	}
	return t.RoundTripper.RoundTrip(r)
}

func get(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	err = errors.Join(err, answer.Body.Close())
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return err
}

// grpcChain serves gateway, a and b over gRPC, and returns a call of gateway.
func grpcChain(t *testing.T, l *log, m mode, work time.Duration) func(ctx context.Context) error {
	t.Helper()
	var next func(ctx context.Context) error
	for _, name := range []string{"b", "a", "gateway"} {
		provider, call := l.provider(name), next
		options := []otelgrpc.Option{otelgrpc.WithTracerProvider(provider), otelgrpc.WithPropagators(propagators())}
		address := serveGRPC(t, grpc.StatsHandler(otelgrpc.NewServerHandler(options...)), func(ctx context.Context, _ int32) error {
			time.Sleep(work)
			if call == nil {
				return nil
			}
			ctx, cancel := m.outgoing(ctx, freshTimeout*l.scale)
			defer cancel()
			return call(ctx)
		})
		// The call of this service is made by the one before it; the gateway is
		// called by somebody without telemetry.
		caller := map[string]string{"b": "a", "a": "gateway"}[name]
		var dial []grpc.DialOption
		if caller != "" {
			dial = append(dial, grpc.WithStatsHandler(otelgrpc.NewClientHandler(
				otelgrpc.WithTracerProvider(l.provider(caller)), otelgrpc.WithPropagators(propagators()))))
		}
		conn := dialGRPC(t, address, dial...)
		next = func(ctx context.Context) error { return invoke(ctx, conn, 0) }
	}
	return next
}

const grpcMethod = "/test.Chain/Call"

// serveGRPC serves a method that takes a number, and returns the address.
func serveGRPC(t *testing.T, option grpc.ServerOption, handle func(ctx context.Context, n int32) error) string {
	t.Helper()
	server := grpc.NewServer(option)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Chain",
		Methods: []grpc.MethodDesc{{
			MethodName: "Call",
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				n := new(wrapperspb.Int32Value)
				if err := decode(n); err != nil {
					return nil, err
				}
				return n, handle(ctx, n.Value)
			},
		}},
	}, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener) //nolint:errcheck // Stop makes it return.
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func dialGRPC(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func invoke(ctx context.Context, conn *grpc.ClientConn, n int32) error {
	return conn.Invoke(ctx, grpcMethod, wrapperspb.Int32(n), new(wrapperspb.Int32Value))
}

// row is what one span is to show. Times are upper bounds that no run may
// exceed and the best run must come near; 0 is absent.
type row struct {
	span                           string
	limit                          time.Duration
	remaining, deadline, announced time.Duration
	hop                            int64
	fresh                          any
	flags                          []string
}

const (
	// near is how far below its bound the best run may be.
	near = 40 * ms
	// late is how long after the start of its span a middleware inside may run.
	late = 25 * ms
)

// check compares the runs of one chain with the rows. Flags must be right in
// every run, times within the bounds, which slack widens upwards.
func check(t *ontime.Trial, rows []row, results []map[string]attrs, slack time.Duration) {
	t.Helper()
	if len(results) == 0 {
		return
	}
	for _, want := range rows {
		bound := func(name string, upper time.Duration) {
			best := -1.0
			for _, result := range results {
				got, ok := result[want.span][name].(float64)
				got /= float64(t.Scale)
				if ok != (upper != 0) {
					t.Errorf("%s: %s present: %v, want %v in %v", want.span, name, ok, upper != 0, result[want.span])
				}
				if got > (upper + slack).Seconds() {
					t.Errorf("%s: %s = %v, want at most %v", want.span, name, got, upper)
				}
				best = max(best, got)
			}
			if upper != 0 && best < (upper-near).Seconds() {
				t.Errorf("%s: %s = %v at best, want about %v", want.span, name, best, upper)
			}
		}
		bound("limit", want.limit)
		bound("remaining.start", want.remaining)
		bound("deadline.remaining", want.deadline)
		bound("announced.remaining", want.announced)
		for _, result := range results {
			got := result[want.span]
			hop, _ := got["hop"].(int64)
			names, _ := got["flags"].([]string)
			if hop != want.hop || got["announced.fresh"] != want.fresh || !slices.Equal(names, want.flags) ||
				(got["reset"] == true) != slices.Contains(want.flags, "deadline_extended") {
				t.Errorf("%s: %v\nwant hop %d, fresh %v, flags %v", want.span, got, want.hop, want.fresh, want.flags)
			}
			end, hasEnd := got["remaining.end"].(float64)
			start, hasStart := got["remaining.start"].(float64)
			if hasEnd != hasStart || end > start {
				t.Errorf("%s: remaining %v at the start, %v at the end", want.span, got["remaining.start"], got["remaining.end"])
			}
		}
	}
}

const second = freshTimeout

var extended = []string{"deadline_extended"}

// What the five spans of a chain show, by how it treats the deadline.
var (
	passedOnRows = []row{
		{"gateway server", budget, 300 * ms, 300 * ms, 0, 0, nil, nil},
		{"gateway client", budget, 270 * ms, 270 * ms, 0, 1, nil, nil},
		{"a server", budget, 270 * ms, 270 * ms, 270 * ms, 1, true, nil},
		{"a client", budget, 240 * ms, 240 * ms, 0, 2, nil, nil},
		{"b server", budget, 240 * ms, 240 * ms, 240 * ms, 2, true, nil},
	}
	freshRows = []row{
		{"gateway server", budget, 300 * ms, 300 * ms, 0, 0, nil, nil},
		{"gateway client", budget, 270 * ms, second, 0, 1, nil, extended},
		{"a server", budget, 270 * ms, second, 270 * ms, 1, true, extended},
		{"a client", budget, 240 * ms, second, 0, 2, nil, extended},
		{"b server", budget, 240 * ms, second, 240 * ms, 2, true, extended},
	}
	droppedOverHTTP = []row{
		{"gateway server", budget, 300 * ms, 300 * ms, 0, 0, nil, nil},
		{"gateway client", budget, 270 * ms, 0, 0, 1, nil, []string{"deadline_dropped"}},
		{"a server", budget, 270 * ms, second, 270 * ms, 1, true, extended},
		{"a client", budget, 240 * ms, 0, 0, 2, nil, []string{"deadline_dropped"}},
		{"b server", budget, 240 * ms, second, 240 * ms, 2, true, extended},
	}
	droppedOverGRPC = []row{
		{"gateway server", budget, 300 * ms, 300 * ms, 0, 0, nil, nil},
		{"gateway client", budget, 270 * ms, 0, 0, 1, nil, []string{"deadline_dropped"}},
		{"a server", budget, 270 * ms, 0, 270 * ms, 1, true, nil},
		{"a client", budget, 240 * ms, 0, 0, 2, nil, []string{"deadline_dropped"}},
		{"b server", budget, 240 * ms, 0, 240 * ms, 2, true, nil},
	}
	// The middleware is not visible yet when the server spans begin.
	insidePassedOn = []row{
		{"gateway server", 0, 0, 0, 0, 0, nil, nil},
		{"gateway client", 270 * ms, 270 * ms, 270 * ms, 0, 1, nil, nil},
		{"a server", 270 * ms, 270 * ms, 0, 270 * ms, 1, true, nil},
		{"a client", 270 * ms, 240 * ms, 240 * ms, 0, 2, nil, nil},
		{"b server", 270 * ms, 240 * ms, 0, 240 * ms, 2, true, nil},
	}
	// Nobody saw the 300 ms: the gateway's own reset stays in the dark.
	insideFresh = []row{
		{"gateway server", 0, 0, 0, 0, 0, nil, nil},
		{"gateway client", second, second, second, 0, 1, nil, nil},
		{"a server", second, second, 0, second, 1, true, nil},
	}
	insideFreshWithHeader = []row{
		{"gateway server", budget, 300 * ms, 0, 0, 0, nil, nil},
		{"gateway client", budget, 270 * ms, second, 0, 1, nil, extended},
		{"a server", budget, 270 * ms, 0, 270 * ms, 1, true, nil},
		{"a client", budget, 240 * ms, second, 0, 2, nil, extended},
		{"b server", budget, 240 * ms, 0, 240 * ms, 2, true, nil},
	}
	insideFreshObserved = []row{
		{"gateway server", budget, 300 * ms, second, 0, 0, nil, extended},
		{"gateway client", budget, 270 * ms, second, 0, 1, nil, extended},
		{"a server", budget, 270 * ms, second, 270 * ms, 1, true, extended},
	}
)

func TestTwoHopsOverHTTP(t *testing.T) {
	header := []propagation.Option{propagation.WithAuthorityHeader(timeoutHeader, propagation.Relative)}
	for _, test := range []struct {
		name  string
		chain httpChain
		rows  []row
	}{
		{"passed on", httpChain{mode: passedOn}, passedOnRows},
		{"fresh", httpChain{mode: fresh}, freshRows},
		{"dropped", httpChain{mode: dropped}, droppedOverHTTP},
		{"inside, passed on", httpChain{mode: passedOn, inside: true}, insidePassedOn},
		{"inside, passed on, observed", httpChain{mode: passedOn, inside: true, observe: true}, passedOnRows},
		{"inside, fresh", httpChain{mode: fresh, inside: true}, insideFresh},
		{"inside, fresh, header named", httpChain{mode: fresh, inside: true, options: header}, insideFreshWithHeader},
		{"inside, fresh, header named, observed", httpChain{mode: fresh, inside: true, options: header, observe: true}, insideFreshObserved},
	} {
		t.Run(test.name, func(t *testing.T) {
			ontime.Judge(t, func(t *ontime.Trial) {
				l := &log{scale: t.Scale}
				chain := test.chain
				chain.work = work * t.Scale
				url := chain.serve(t.T, l)
				good := 0
				for range runs {
					// The one who asks has a budget and no telemetry.
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set(timeoutHeader, strconv.FormatInt((budget*t.Scale).Milliseconds(), 10))
					answer, err := http.DefaultClient.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					if err := answer.Body.Close(); err != nil {
						t.Error(err)
					}
					if answer.StatusCode == http.StatusOK {
						good++
					}
				}
				slack := time.Duration(0)
				if chain.inside {
					slack = late
				}
				check(t, test.rows, l.inTime(t, good), slack)
			})
		})
	}
}

func TestTwoHopsOverGRPC(t *testing.T) {
	for _, test := range []struct {
		name string
		mode mode
		rows []row
	}{
		{"passed on", passedOn, passedOnRows},
		{"fresh", fresh, freshRows},
		{"dropped", dropped, droppedOverGRPC},
	} {
		t.Run(test.name, func(t *testing.T) {
			ontime.Judge(t, func(t *ontime.Trial) {
				l := &log{scale: t.Scale}
				call := grpcChain(t.T, l, test.mode, work*t.Scale)
				good := 0
				for range runs + 1 { // The first connects.
					ctx, cancel := context.WithTimeout(t.Context(), budget*t.Scale)
					err := call(ctx)
					cancel()
					if err == nil {
						good++
					}
				}
				check(t, test.rows, l.inTime(t, good), 0)
			})
		})
	}
}

// A gateway works for 40 ms and calls a backend that never answers. With the
// deadline passed on the whole takes 300 ms; with a timeout of its own for the
// call, 40 ms more.
func TestFreshTimeoutsCostAHopMore(t *testing.T) {
	ontime.Judge(t, func(t *ontime.Trial) {
		gatewayWork, budget := 40*ms*t.Scale, budget*t.Scale
		release := make(chan struct{})
		backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-release:
			}
		}))
		defer backend.Close()
		defer close(release)
		s := newService(t.T)
		total := func(fresh bool) time.Duration {
			start := time.Now()
			ctx, _ := s.serve(within(t.T, t.Context(), budget), nil)
			time.Sleep(gatewayWork)
			if fresh {
				ctx = within(t.T, context.WithoutCancel(ctx), budget)
			}
			if err := get(ctx, http.DefaultClient, backend.URL); err == nil {
				t.Errorf("the backend answered")
			}
			return time.Since(start)
		}
		shortest := map[bool]time.Duration{false: time.Hour, true: time.Hour}
		for range runs {
			for fresh := range shortest {
				shortest[fresh] = min(shortest[fresh], total(fresh))
			}
		}
		if got := shortest[false]; got < budget || got >= budget+gatewayWork {
			t.Errorf("passed on: %v, want %v and a little", got, budget)
		}
		if got := shortest[true]; got < budget+gatewayWork {
			t.Errorf("fresh: %v, want %v at least", got, budget+gatewayWork)
		}
	})
}

// count counts flags over many requests.
type count struct{ spans, flagged, hop atomic.Int64 }

func (c *count) processor(opts ...propagation.SpanProcessorOption) *sdktrace.TracerProvider {
	return sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor(opts...)),
		sdktrace.WithSpanProcessor(endFunc(func(s sdktrace.ReadOnlySpan) {
			c.spans.Add(1)
			got := stamped(s)
			if got["flags"] != nil || got["remaining.start"] == nil {
				c.flagged.Add(1)
			}
			if hop, _ := got["hop"].(int64); hop > c.hop.Load() {
				c.hop.Store(hop)
			}
		})))
}

const requests = 1000

// loop calls ask for all requests, 32 at a time.
func loop(t *testing.T, ask func() error) {
	t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 32 {
		wg.Go(func() {
			for next.Add(1) <= requests {
				if err := ask(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Even without any tolerance a deadline that is passed on is never the later one.
func TestNoFalseFlagInAThousandRequestsOverHTTP(t *testing.T) {
	var c count
	provider := c.processor(propagation.WithTolerance(0, 0))
	options := []otelhttp.Option{otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagators())}
	client := &http.Client{Transport: otelhttp.NewTransport(authorityTransport{&http.Transport{MaxIdleConnsPerHost: 64}}, options...)}
	next := ""
	for range 2 {
		url := next
		handler := otelhttp.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if url == "" {
				return
			}
			if err := get(r.Context(), client, url); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
			}
		}), "op", options...)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			given, _ := strconv.Atoi(r.Header.Get(timeoutHeader))
			ctx, cancel := context.WithTimeout(r.Context(), time.Duration(given)*ms)
			defer cancel()
			handler.ServeHTTP(w, r.WithContext(ctx))
		}))
		defer server.Close()
		next = server.URL
	}
	loop(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return get(ctx, client, next)
	})
	client.CloseIdleConnections()
	if c.flagged.Load() != 0 || c.spans.Load() < 3*requests || c.hop.Load() != 2 {
		t.Errorf("%d of %d spans flagged, %d hops", c.flagged.Load(), c.spans.Load(), c.hop.Load())
	}
}

// Sixteen hops in a row over gRPC, many at once: what is lost or gained at each
// hop must not add up to a flag, with a tolerance of 1 ms instead of the usual 5.
func TestNoFalseFlagAfterSixteenHopsOverGRPC(t *testing.T) {
	const hops = 16
	var c count
	options := []otelgrpc.Option{
		otelgrpc.WithTracerProvider(c.processor(propagation.WithTolerance(ms, 0))), otelgrpc.WithPropagators(propagators()),
	}
	var conn *grpc.ClientConn
	address := serveGRPC(t, grpc.StatsHandler(otelgrpc.NewServerHandler(options...)), func(ctx context.Context, n int32) error {
		if n <= 1 {
			return nil
		}
		return invoke(ctx, conn, n-1)
	})
	conn = dialGRPC(t, address, grpc.WithStatsHandler(otelgrpc.NewClientHandler(options...)))
	loop(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return invoke(ctx, conn, hops)
	})
	if c.flagged.Load() != 0 || c.spans.Load() < hops*requests || c.hop.Load() != hops {
		t.Errorf("%d of %d spans flagged, %d hops", c.flagged.Load(), c.spans.Load(), c.hop.Load())
	}
}
