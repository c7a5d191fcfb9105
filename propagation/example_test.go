package propagation_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation"
)

// printBudget prints the attributes of a span that do not depend on time.
func printBudget(span trace.Span) {
	for _, kv := range span.(sdktrace.ReadOnlySpan).Attributes() {
		switch kv.Key {
		case propagation.SourceKey, propagation.SourceHeaderKey, propagation.HopKey, propagation.FlagsKey,
			propagation.ResetKey, propagation.DegradedKey:
			fmt.Println(kv.Key, kv.Value.String())
		}
	}
}

// Two lines in the set-up of OpenTelemetry.
func Example() {
	otel.SetTextMapPropagator(otelpropagation.NewCompositeTextMapPropagator(
		otelpropagation.TraceContext{}, otelpropagation.Baggage{},
		propagation.New())) // one
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor()), // two
		sdktrace.WithBatcher(tracetest.NewInMemoryExporter()))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	tracer := provider.Tracer("example")

	// A request with 300 ms. Handlers and clients need no change.
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, server := tracer.Start(ctx, "GET /orders", trace.WithSpanKind(trace.SpanKindServer))
	defer server.End()
	printBudget(server)
	// Output: latency_budget.source context
}

// A call that replaces the deadline of its request is flagged, and the caller's
// budget still goes to the next service.
func Example_reset() {
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(propagation.NewSpanProcessor())).Tracer("example")
	propagator := propagation.New()

	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	ctx = propagator.Extract(ctx, otelpropagation.MapCarrier{}) // otelhttp and otelgrpc do this.
	ctx, _ = tracer.Start(ctx, "GET /orders", trace.WithSpanKind(trace.SpanKindServer))

	// Ten seconds, whatever is left of the request.
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	ctx, call := tracer.Start(ctx, "inventory", trace.WithSpanKind(trace.SpanKindClient))
	printBudget(call)

	headers := otelpropagation.MapCarrier{}
	propagator.Inject(ctx, headers)
	fmt.Println("sends the 10 s:", strings.Contains(headers[propagation.Header], ";t=10000;"))
	// Output:
	// latency_budget.source context
	// latency_budget.hop 1
	// latency_budget.reset true
	// latency_budget.flags ["deadline_extended"]
	// sends the 10 s: false
}

// A header that the service obeys in a middleware of its own shows the budget on
// the server span already, although the middleware has not run yet.
func ExampleWithAuthorityHeader() {
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(propagation.NewSpanProcessor())).Tracer("example")
	propagator := propagation.New(propagation.WithAuthorityHeader("x-timeout-budget-ms", propagation.Relative))

	ctx := propagator.Extract(context.Background(), otelpropagation.MapCarrier{"x-timeout-budget-ms": "300"})
	_, server := tracer.Start(ctx, "GET /orders", trace.WithSpanKind(trace.SpanKindServer))
	printBudget(server)
	// Output:
	// latency_budget.source header_relative
	// latency_budget.source.header x-timeout-budget-ms
}

// Calls to others than our own hosts announce nothing.
func ExampleWithInjectFilter() {
	type host struct{}
	internal := []string{"inventory", "risk"}
	propagator := propagation.New(propagation.WithInjectFilter(func(ctx context.Context) bool {
		name, _ := ctx.Value(host{}).(string)
		return slices.Contains(internal, name)
	}))
	tracer := sdktrace.NewTracerProvider().Tracer("example")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, name := range []string{"inventory", "api.example.com"} {
		ctx, _ := tracer.Start(context.WithValue(ctx, host{}, name), "call", trace.WithSpanKind(trace.SpanKindClient))
		headers := otelpropagation.MapCarrier{}
		propagator.Inject(ctx, headers)
		fmt.Println(name, len(headers[propagation.Header]) > 0)
	}
	// Output:
	// inventory true
	// api.example.com false
}

// A deadline middleware inside otelhttp runs after the server span has begun.
func ExampleObserve() {
	deadline := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			budget := time.Second
			if given, err := strconv.Atoi(r.Header.Get("X-Timeout-Budget-Ms")); err == nil && given > 0 && given < 1000 {
				budget = time.Duration(given) * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(r.Context(), budget)
			defer cancel()
			propagation.Observe(ctx)
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	handler := otelhttp.NewHandler(deadline(http.NotFoundHandler()), "server")
	_ = http.Server{Handler: handler}
}

// The end of a span is known when it has ended: the stamper wraps what exports.
func ExampleNewEndStamper() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor()),
		sdktrace.WithSpanProcessor(propagation.NewEndStamper(sdktrace.NewSimpleSpanProcessor(exporter))))

	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	_, span := provider.Tracer("example").Start(ctx, "GET /orders", trace.WithSpanKind(trace.SpanKindServer))
	time.Sleep(time.Millisecond)
	span.End()
	for _, kv := range exporter.GetSpans()[0].Attributes {
		if kv.Key == propagation.FlagsKey {
			fmt.Println(kv.Value.String())
		}
	}
	// Output: ["exhausted_at_start","overrun"]
}

// The answer went out without the coupon.
func ExampleMarkDegraded() {
	tracer := sdktrace.NewTracerProvider().Tracer("example")
	ctx, span := tracer.Start(context.Background(), "GET /orders", trace.WithSpanKind(trace.SpanKindServer))
	propagation.MarkDegraded(ctx, "coupon")
	propagation.MarkDegraded(ctx, "audit")
	printBudget(span)
	// Output: latency_budget.degraded ["audit","coupon"]
}
