package propagation_test

import (
	"context"
	"strings"
	"testing"

	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation"
)

// attrs are the attributes of a span that are ours, without their prefix.
type attrs map[string]any

func stamped(span any) attrs {
	got := attrs{}
	for _, kv := range span.(sdktrace.ReadOnlySpan).Attributes() {
		if name, ours := strings.CutPrefix(string(kv.Key), "latency_budget."); ours {
			got[name] = kv.Value.AsInterface()
		}
	}
	return got
}

// service is one process: a tracer with our processor, and the propagators.
type service struct {
	trace.Tracer
	propagator otelpropagation.TextMapPropagator
}

// newService makes a service. Options of both kinds may be given.
func newService(tb testing.TB, opts ...any) service {
	tb.Helper()
	var forPropagator []propagation.Option
	var forProcessor []propagation.SpanProcessorOption
	sampler := sdktrace.AlwaysSample()
	for _, opt := range opts {
		known := false
		if o, ok := opt.(propagation.Option); ok {
			forPropagator, known = append(forPropagator, o), true
		}
		if o, ok := opt.(propagation.SpanProcessorOption); ok {
			forProcessor, known = append(forProcessor, o), true
		}
		if o, ok := opt.(sdktrace.Sampler); ok {
			sampler, known = o, true
		}
		if !known {
			tb.Fatalf("%T is not an option", opt)
		}
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sampler),
		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor(forProcessor...)))
	return service{
		Tracer: provider.Tracer("test"),
		propagator: otelpropagation.NewCompositeTextMapPropagator(
			otelpropagation.TraceContext{}, propagation.New(forPropagator...)),
	}
}

func (s service) start(ctx context.Context, kind trace.SpanKind, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	return s.Start(ctx, "op", append(opts, trace.WithSpanKind(kind))...)
}

// call starts a CLIENT span and returns the headers that it sends.
func (s service) call(ctx context.Context) (headers otelpropagation.MapCarrier, client attrs) {
	ctx, span := s.start(ctx, trace.SpanKindClient)
	headers = otelpropagation.MapCarrier{}
	s.propagator.Inject(ctx, headers)
	return headers, stamped(span)
}

// serve starts a SERVER span for a request with headers that came under ctx.
func (s service) serve(ctx context.Context, headers otelpropagation.MapCarrier) (context.Context, attrs) {
	ctx, span := s.start(s.propagator.Extract(ctx, headers), trace.SpanKindServer)
	return ctx, stamped(span)
}
