package propagation_test

import (
	"context"
	"math"
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation"
)

// request is a call in the middle of a chain: a context to send from, and the
// headers it makes.
type request struct {
	client  context.Context
	bag     context.Context // the same with baggage
	headers otelpropagation.MapCarrier
}

func newRequest(tb testing.TB) request {
	tb.Helper()
	s := newService(tb)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	tb.Cleanup(cancel)
	headers, _ := s.call(ctx)
	ctx, _ = s.serve(ctx, headers)
	var members []baggage.Member
	for _, key := range []string{"tenant", "region", "experiment", "user"} {
		m, err := baggage.NewMember(key, "value")
		if err != nil {
			tb.Fatal(err)
		}
		members = append(members, m)
	}
	bag, err := baggage.New(members...)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, _ = s.start(ctx, trace.SpanKindClient)
	r := request{client: ctx, bag: baggage.ContextWithBaggage(ctx, bag), headers: otelpropagation.MapCarrier{"x-timeout-budget-ms": "300"}}
	propagators().Inject(r.bag, r.headers)
	return r
}

// http is the headers as a request of net/http has them.
func (r request) http() otelpropagation.HeaderCarrier {
	h := http.Header{}
	for key, value := range r.headers {
		h.Set(key, value)
	}
	return otelpropagation.HeaderCarrier(h)
}

// silent is a span that costs nothing to write.
type silent struct{ sdktrace.ReadWriteSpan }

func (*silent) SetAttributes(...attribute.KeyValue) {}

func TestAllocations(t *testing.T) {
	r := newRequest(t)
	header := r.http()
	p := propagation.New()
	withAuthority := propagation.New(propagation.WithKnownAuthorityHeaders())
	background := context.Background()
	extracted := p.Extract(background, r.headers)
	span := func(kind trace.SpanKind, ctx context.Context) *silent {
		_, span := newService(t).start(ctx, kind)
		return &silent{span.(sdktrace.ReadWriteSpan)}
	}
	processor := propagation.NewSpanProcessor()
	server, client, internal := span(trace.SpanKindServer, r.client), span(trace.SpanKindClient, r.client), span(trace.SpanKindInternal, r.client)
	observed := trace.ContextWithSpan(p.Extract(r.client, r.headers), server)
	processor.OnStart(observed, server) // Which makes it the owner.
	extended, cancel := context.WithTimeout(context.WithoutCancel(r.client), 10*time.Hour)
	defer cancel()
	to, toHeader := otelpropagation.MapCarrier{}, otelpropagation.HeaderCarrier{}
	for _, test := range []struct {
		name string
		want float64
		run  func()
	}{
		{"Extract", 1, func() { p.Extract(background, r.headers) }},
		{"Extract from http.Header", 1, func() { p.Extract(background, header) }},
		{"Extract without header", 1, func() { p.Extract(background, to) }},
		{"Extract with authority headers", 1, func() { withAuthority.Extract(background, r.headers) }},
		{"Extract with authority headers from http.Header", 1, func() { withAuthority.Extract(background, header) }},
		{"Extract nothing into a context that has a value", 0, func() { p.Extract(extracted, toHeader) }},
		{"Inject", 1, func() { p.Inject(r.client, to) }},
		{"Inject into http.Header", 2, func() { p.Inject(r.client, toHeader) }},
		{"Inject nothing", 0, func() { p.Inject(background, toHeader) }},
		{"OnStart of a server span", 0, func() { processor.OnStart(r.client, server) }},
		{"OnStart of a client span", 0, func() { processor.OnStart(r.client, client) }},
		{"OnStart of a flagged client span", 0, func() { processor.OnStart(extended, client) }},
		{"Observe once more", 0, func() { propagation.Observe(observed) }},
		{"OnStart of an internal span", 0, func() { processor.OnStart(r.client, internal) }},
	} {
		if got := testing.AllocsPerRun(1000, test.run); got > test.want {
			t.Errorf("%s: %v allocations, want %v", test.name, got, test.want)
		}
		to, toHeader = otelpropagation.MapCarrier{}, otelpropagation.HeaderCarrier{}
	}
}

// operations are what is compared, with what a service does anyway.
func operations(r request) map[string]func(p otelpropagation.TextMapPropagator) func() {
	header := r.http()
	background := context.Background()
	from := func(p otelpropagation.TextMapPropagator) context.Context {
		if _, ok := p.(otelpropagation.Baggage); ok {
			return r.bag
		}
		return r.client
	}
	return map[string]func(p otelpropagation.TextMapPropagator) func(){
		"Inject/map": func(p otelpropagation.TextMapPropagator) func() {
			ctx, to := from(p), otelpropagation.MapCarrier{}
			return func() { p.Inject(ctx, to) }
		},
		"Inject/header": func(p otelpropagation.TextMapPropagator) func() {
			ctx, to := from(p), otelpropagation.HeaderCarrier{}
			return func() { p.Inject(ctx, to) }
		},
		"Extract/map": func(p otelpropagation.TextMapPropagator) func() {
			return func() { p.Extract(background, r.headers) }
		},
		"Extract/header": func(p otelpropagation.TextMapPropagator) func() {
			return func() { p.Extract(background, header) }
		},
	}
}

// The budget must not cost more than half as much again as the trace context.
// Rounds are too short for most to be interrupted, and alternate, so that both
// meet the same machine. Noise only ever adds, so the fastest round of each is
// what it costs; more rounds come closer to it, and are made only if needed.
func TestNotMuchSlowerThanTraceContext(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector measures itself")
	}
	const tries, rounds, calls, limit = 60, 100, 100, 1.5
	for name, operation := range operations(newRequest(t)) {
		ours, theirs := operation(propagation.New()), operation(otelpropagation.TraceContext{})
		ratio := math.Inf(1)
		fastest := [2]time.Duration{math.MaxInt64, math.MaxInt64}
		for i := 0; i < tries && ratio > limit; i++ {
			for range rounds {
				fastest[0] = min(fastest[0], elapsed(calls, ours))
				fastest[1] = min(fastest[1], elapsed(calls, theirs))
			}
			ratio = float64(fastest[0]) / float64(fastest[1])
		}
		t.Logf("%s: %.2f of TraceContext", name, ratio)
		if ratio > limit {
			t.Errorf("%s: %.2f times TraceContext, want at most %v", name, ratio, limit)
		}
	}
}

func elapsed(calls int, f func()) time.Duration {
	start := time.Now()
	for range calls {
		f()
	}
	return time.Since(start)
}

func BenchmarkPropagators(b *testing.B) {
	r := newRequest(b)
	for _, operation := range []string{"Inject/map", "Inject/header", "Extract/map", "Extract/header"} {
		for _, p := range []struct {
			name       string
			propagator otelpropagation.TextMapPropagator
		}{
			{"LatencyBudget", propagation.New()},
			{"LatencyBudgetAuthority", propagation.New(propagation.WithAuthorityHeader("x-timeout-budget-ms", propagation.Relative))},
			{"TraceContext", otelpropagation.TraceContext{}},
			{"Baggage", otelpropagation.Baggage{}},
		} {
			run := operations(r)[operation](p.propagator)
			b.Run(operation+"/"+p.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}

func BenchmarkSpans(b *testing.B) {
	r := newRequest(b)
	detached, cancel := context.WithTimeout(context.WithoutCancel(r.client), 10*time.Hour)
	defer cancel()
	next := endFunc(func(sdktrace.ReadOnlySpan) {})
	for _, setup := range []struct {
		name       string
		processors []sdktrace.SpanProcessor
	}{
		{"Without", []sdktrace.SpanProcessor{next}},
		{"Stamped", []sdktrace.SpanProcessor{propagation.NewSpanProcessor(), next}},
		{"StampedAtTheEnd", []sdktrace.SpanProcessor{propagation.NewSpanProcessor(), propagation.NewEndStamper(next)}},
	} {
		provider := sdktrace.NewTracerProvider()
		for _, p := range setup.processors {
			provider.RegisterSpanProcessor(p)
		}
		tracer := provider.Tracer("bench")
		for _, span := range []struct {
			name string
			ctx  context.Context
			kind trace.SpanKind
		}{
			{"server", r.client, trace.SpanKindServer},
			{"client", r.client, trace.SpanKindClient},
			{"flagged client", detached, trace.SpanKindClient},
			{"internal", r.client, trace.SpanKindInternal},
		} {
			b.Run(setup.name+"/"+span.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, s := tracer.Start(span.ctx, "op", trace.WithSpanKind(span.kind))
					s.End()
				}
			})
		}
	}
}
