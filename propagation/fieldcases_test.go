package propagation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation"
)

// Each test here is a fault that users of such tools ran into.

func TestFieldCaseG1HugeTimeoutIsIgnoredNotWrapped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, value := range []string{"359999996400000", "9223372036854", "9223372036855", "99999999H", "18446744073709551615"} {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			_, server := s.serve(t.Context(), otelpropagation.MapCarrier{
				"x-timeout-budget-ms": value, "x-request-deadline": value,
			})
			expect(t, value, server, attrs{})
		}
	})
}

func TestFieldCaseG3OnlyDigitsAreANumber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, value := range []string{"", "1e3", "-1", "+5", "-0", "10s", "1M", "12345678901"} {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			_, server := s.serve(t.Context(), otelpropagation.MapCarrier{"connect-timeout-ms": value})
			expect(t, value, server, attrs{})
		}
	})
}

func TestFieldCaseG4NegativeTimeoutIsAbsentAndExpiresNothing(t *testing.T) {
	s := newService(t, propagation.WithKnownAuthorityHeaders())
	ctx, server := s.serve(t.Context(), otelpropagation.MapCarrier{"connect-timeout-ms": "-1"})
	expect(t, "server", server, attrs{})
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}
}

// What is left is signed, here and on spans: less than nothing says by how much
// the call comes too late.
func TestFieldCaseG5DeadlinePassesBeforeInject(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.start(within(t, t.Context(), time.Microsecond), trace.SpanKindClient)
		headers := otelpropagation.MapCarrier{}
		time.Sleep(time.Microsecond)
		s.propagator.Inject(ctx, headers)
		expectHeader(t, headers, "obs1;r=0;t=0.001;h=1")
		time.Sleep(time.Microsecond)
		s.propagator.Inject(ctx, headers)
		expectHeader(t, headers, "obs1;r=-0.001;t=0.001;h=1")
	})
}

// A relative timeout ends later at the server, by the time of flight.
func TestFieldCaseG7FlightTimeIsNoReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 100*ms), nil)
		headers, _ := s.call(ctx)
		time.Sleep(20 * ms)
		_, server := s.serve(within(t, t.Context(), 103*ms), headers)
		if server["flags"] != nil {
			t.Errorf("%v", server)
		}
	})
}

func TestFieldCaseG8CoreMaySendThreePercentMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 10*time.Second), nil)
		headers, _ := s.call(ctx)
		_, server := s.serve(within(t, t.Context(), 10300*ms), headers)
		if server["flags"] != nil || server["remaining.start"] != 10.3 {
			t.Errorf("%v", server)
		}
	})
}

// The proxy is flagged, which takes its default of 15 s, and b is not fooled:
//
//	a        |=CLIENT 2 s =============|
//	proxy      |=SERVER 15 s ==========|
//	             |=CLIENT==============|
//	b              |=SERVER============|
func TestFieldCaseG9TheHopThatGrewIsTheFirstFlagged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 2*time.Second), nil)
		headers, a := s.call(ctx)
		ctx, proxy := s.serve(within(t, t.Context(), 15*time.Second), headers)
		time.Sleep(10 * ms)
		if a["flags"] != nil || proxy["reset"] != true {
			t.Errorf("a %v, proxy %v", a, proxy)
		}
		headers, _ = s.call(ctx)
		expectHeader(t, headers, "obs1;r=1990;t=2000;h=2")
		// b believed its 14.99 s if it were not for the lineage.
		_, b := s.serve(within(t, t.Context(), 14990*ms), headers)
		if b["remaining.start"] != 1.99 || b["source"] != "announced" {
			t.Errorf("b %v", b)
		}
	})
}

func TestFieldCaseG11ShavedDeadlineIsNoReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), time.Second), nil)
		headers, client := s.call(within(t, ctx, 900*ms))
		_, server := s.serve(within(t, t.Context(), 800*ms), headers)
		if client["flags"] != nil || server["flags"] != nil || server["remaining.start"] != 0.8 {
			t.Errorf("client %v, server %v", client, server)
		}
	})
}

func TestFieldCaseG12DroppedAndResetAreTwoFindings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		dropped := context.WithoutCancel(ctx)
		_, client := s.call(dropped)
		if !slices.Equal(client["flags"].([]string), flags("deadline_dropped")) || client["reset"] != nil {
			t.Errorf("dropped: %v", client)
		}
		_, client = s.call(within(t, dropped, time.Second))
		if !slices.Equal(client["flags"].([]string), flags("deadline_extended")) || client["reset"] != true {
			t.Errorf("reset: %v", client)
		}
	})
}

// The remainder is taken when the headers are written, not when the span began.
func TestFieldCaseG13RemainderIsTakenAtInject(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.start(within(t, t.Context(), 300*ms), trace.SpanKindClient)
		time.Sleep(100 * ms)
		headers := otelpropagation.MapCarrier{}
		s.propagator.Inject(ctx, headers)
		expectHeader(t, headers, "obs1;r=200;t=300;h=1")
	})
}

// Work that is detached on purpose gets a trace of its own, with a link, and
// inherits no budget.
func TestFieldCaseG14DetachedWorkInANewTraceInheritsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		job, _ := s.start(context.WithoutCancel(ctx), trace.SpanKindInternal, trace.WithNewRoot(),
			trace.WithLinks(trace.LinkFromContext(ctx)))
		headers, client := s.call(job)
		expect(t, "client without deadline", client, attrs{})
		expectHeader(t, headers, "")
		headers, client = s.call(within(t, job, time.Minute))
		expect(t, "client with its own", client, attrs{
			"limit": 60.0, "remaining.start": 60.0, "deadline.remaining": 60.0, "source": "context", "hop": int64(1),
		})
		expectHeader(t, headers, "obs1;r=60000;t=60000;h=1")
		// The span context alone is enough, and a server span under it as well.
		_, server := s.start(within(t, job, time.Minute), trace.SpanKindServer)
		if got := stamped(server); got["remaining.start"] != 60.0 || got["flags"] != nil {
			t.Errorf("server %v", got)
		}
	})
}

// net/http sends no deadline; the header does.
func TestFieldCaseG15HTTPCarriesTheBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.start(within(t, t.Context(), 300*ms), trace.SpanKindClient)
		header := http.Header{}
		s.propagator.Inject(ctx, otelpropagation.HeaderCarrier(header))
		ctx = s.propagator.Extract(t.Context(), otelpropagation.HeaderCarrier(header))
		_, span := s.start(ctx, trace.SpanKindServer)
		expect(t, "server", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.3, "source": "announced", "hop": int64(1),
			"announced.remaining": 0.3, "announced.fresh": true,
		})
	})
}

// The SDK calls OnStart and OnEnd alone, and ended spans take no attributes.
func TestFieldCaseN1EverythingIsStampedAtStart(t *testing.T) {
	var atEnd attrs
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(propagation.NewSpanProcessor()),
		sdktrace.WithSpanProcessor(endFunc(func(s sdktrace.ReadOnlySpan) { atEnd = stamped(s) })))
	_, span := provider.Tracer("test").Start(within(t, t.Context(), time.Second), "op", trace.WithSpanKind(trace.SpanKindServer))
	atStart := stamped(span)
	span.End()
	expect(t, "at the end", atEnd, atStart)
	if len(atStart) != 4 {
		t.Errorf("at the start %v", atStart)
	}
}

// An attribute's Stringer, or whatever the SDK calls under the lock of the span,
// may start spans; and the processor must not wait for itself.
func TestFieldCaseN2NoLockIsHeldWhileASpanIsWritten(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var s service
		var depth int
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(startFunc(func(ctx context.Context, span sdktrace.ReadWriteSpan) {
			propagation.NewSpanProcessor().OnStart(ctx, reentrant{span, func() {
				if depth++; depth < 3 {
					s.start(ctx, span.SpanKind())
					propagation.Observe(ctx)
				}
			}})
		})))
		s = service{Tracer: provider.Tracer("test"), propagator: propagation.New()}
		ctx := s.propagator.Extract(within(t, context.Background(), time.Second), otelpropagation.MapCarrier{})
		s.start(ctx, trace.SpanKindServer)
		s.start(ctx, trace.SpanKindClient)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("deadlock")
	}
}

// startFunc is a processor that only sees spans start.
type startFunc func(context.Context, sdktrace.ReadWriteSpan)

func (f startFunc) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) { f(ctx, s) }
func (startFunc) OnEnd(sdktrace.ReadOnlySpan)                             {}
func (startFunc) Shutdown(context.Context) error                          { return nil }
func (startFunc) ForceFlush(context.Context) error                        { return nil }

// reentrant is a span that does something else when it is written.
type reentrant struct {
	sdktrace.ReadWriteSpan
	also func()
}

func (s reentrant) SetAttributes(kvs ...attribute.KeyValue) {
	s.also()
	s.ReadWriteSpan.SetAttributes(kvs...)
}

// errBroken is what broken parts panic with.
var errBroken = errors.New("broken")

type brokenContext struct{ context.Context }

func (brokenContext) Deadline() (time.Time, bool) { panic(errBroken) }

type brokenCarrier struct{}

func (brokenCarrier) Get(string) string { panic(errBroken) }
func (brokenCarrier) Set(string, string) {
	panic(errBroken)
}
func (brokenCarrier) Keys() []string { panic(errBroken) }

type brokenSpan struct{ sdktrace.ReadWriteSpan }

func (brokenSpan) SetAttributes(...attribute.KeyValue)   { panic(errBroken) }
func (brokenSpan) Attributes() []attribute.KeyValue      { panic(errBroken) }
func (s brokenSpan) IsRecording() bool                   { return true }
func (s brokenSpan) SpanContext() (sc trace.SpanContext) { return s.ReadWriteSpan.SpanContext() }

// A panic would reach the application through Tracer.Start, and keep the other
// processors from seeing the span.
func TestFieldCaseN4PanicsAreRecovered(t *testing.T) {
	s := newService(t, propagation.WithInternalSpans(), propagation.WithMessaging())
	broken := brokenContext{t.Context()}
	var later int
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(propagation.NewSpanProcessor(propagation.WithInternalSpans())),
		sdktrace.WithSpanProcessor(startFunc(func(context.Context, sdktrace.ReadWriteSpan) { later++ })))
	for kind := trace.SpanKindInternal; kind <= trace.SpanKindConsumer; kind++ {
		provider.Tracer("test").Start(broken, "op", trace.WithSpanKind(kind))
	}
	if later != 5 {
		t.Errorf("the next processor saw %d spans of 5", later)
	}
	p := propagation.New(propagation.WithKnownAuthorityHeaders())
	if got := p.Extract(t.Context(), brokenCarrier{}); got != t.Context() {
		t.Error("Extract returned another context")
	}
	p.Inject(t.Context(), brokenCarrier{})
	p.Inject(t.Context(), nil)
	p.Extract(t.Context(), nil)
	ctx, span := s.start(within(t, t.Context(), time.Second), trace.SpanKindServer)
	p.Inject(ctx, brokenCarrier{})
	p.Inject(ctx, otelpropagation.MapCarrier(nil))
	p.Inject(trace.ContextWithSpan(broken, span), otelpropagation.MapCarrier{})
	p.Inject(nil, otelpropagation.MapCarrier{})  //nolint:staticcheck // Nobody should, and it must not panic.
	p.Extract(nil, otelpropagation.MapCarrier{}) //nolint:staticcheck // Likewise.
	propagation.Observe(nil)                     //nolint:staticcheck // Likewise.
	propagation.Observe(broken)
	propagation.MarkDegraded(nil, "x") //nolint:staticcheck // Likewise.
	propagation.MarkDetached(nil)      //nolint:staticcheck // Likewise.

	bad := brokenSpan{span.(sdktrace.ReadWriteSpan)}
	ctx = trace.ContextWithSpan(ctx, bad)
	propagation.Observe(ctx)
	propagation.MarkDegraded(ctx, "x")
	propagation.MarkDetached(ctx)
	propagation.MarkDegraded(trace.ContextWithSpan(ctx, span), "coupon") // The lock was given back.
	propagation.NewSpanProcessor().OnStart(ctx, bad)
	called := false
	propagation.NewEndStamper(endFunc(func(sdktrace.ReadOnlySpan) { called = true })).OnEnd(bad)
	if !called {
		t.Error("the end stamper lost a span")
	}
}

// writeCounter counts the calls that write attributes.
type writeCounter struct {
	sdktrace.ReadWriteSpan
	calls, keys int
}

func (s *writeCounter) SetAttributes(kvs ...attribute.KeyValue) {
	s.calls++
	s.keys += len(kvs)
	s.ReadWriteSpan.SetAttributes(kvs...)
}

func TestFieldCaseN5OneCallWritesAllAttributesOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := s.call(ctx)
		counts := &writeCounter{}
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(startFunc(func(ctx context.Context, span sdktrace.ReadWriteSpan) {
			counts.ReadWriteSpan = span
			propagation.NewSpanProcessor().OnStart(ctx, counts)
		})))
		_, span := provider.Tracer("test").Start(s.propagator.Extract(within(t, t.Context(), time.Second), headers), "op",
			trace.WithSpanKind(trace.SpanKindServer))
		if n := len(stamped(span)); counts.calls != 1 || counts.keys != n || n > 11 {
			t.Errorf("%d calls wrote %d keys, of which %d remain", counts.calls, counts.keys, n)
		}
	})
}

// Attributes set at the start keep their place when the limit is reached.
func TestFieldCaseN5StampsSurviveTheAttributeLimit(t *testing.T) {
	s := newService(t)
	_, span := s.start(within(t, t.Context(), time.Second), trace.SpanKindServer)
	for i := range 200 {
		span.SetAttributes(attribute.Int(fmt.Sprint("user.", i), i))
	}
	if got := stamped(span); len(got) != 4 {
		t.Errorf("%v", got)
	}
}

func TestFieldCaseN6N7NothingHappensWithoutBudget(t *testing.T) {
	s := newService(t)
	for kind := trace.SpanKindInternal; kind <= trace.SpanKindConsumer; kind++ {
		ctx, span := s.start(s.propagator.Extract(t.Context(), otelpropagation.MapCarrier{}), kind)
		headers := otelpropagation.MapCarrier{}
		propagation.New().Inject(ctx, headers)
		if len(stamped(span)) != 0 || len(headers) != 0 {
			t.Errorf("%v: %v and %v", kind, stamped(span), headers)
		}
	}
}

func TestFieldCaseN8NoGoroutineIsStarted(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 100 {
		p := propagation.NewEndStamper(propagation.NewSpanProcessor())
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p))
		_, span := provider.Tracer("test").Start(within(t, t.Context(), time.Minute), "op", trace.WithSpanKind(trace.SpanKindServer))
		span.End()
		if err := errors.Join(p.ForceFlush(t.Context()), p.Shutdown(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if after := runtime.NumGoroutine(); after > before+10 {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

// Whatever comes from outside, the work per request is bounded and nothing but
// numbers and a span id reach the span.
func TestFieldCaseS1HostileHeadersAreBounded(t *testing.T) {
	huge := strings.Repeat("obs1;r=1;", 1<<20/9)
	keys := http.Header{}
	for i := range 10_000 {
		keys.Set(fmt.Sprint("X-Key-", i), "1")
	}
	repeated := make([]string, 10_000)
	for i := range repeated {
		repeated[i] = `obs1;r=1;t=1;h=1;s="00f067aa0ba902b7"`
	}
	many := func(value ...string) http.Header {
		h := keys.Clone()
		h["Latency-Budget-Observed"], h["X-Timeout-Budget-Ms"] = value, value
		return h
	}
	p := propagation.New(propagation.WithKnownAuthorityHeaders())
	s := newService(t, propagation.WithKnownAuthorityHeaders())
	for name, header := range map[string]http.Header{
		"1 MB": many(huge), "10,000 values": many(repeated...), "two 1 MB values": many(huge, huge),
	} {
		t.Run(name, func(t *testing.T) {
			header.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
			carrier := otelpropagation.HeaderCarrier(header)
			ctx := s.propagator.Extract(t.Context(), carrier)
			_, span := s.start(ctx, trace.SpanKindServer)
			expect(t, "server", stamped(span), attrs{"flags": flags("announcement_invalid")})
			background := t.Context()
			if n := testing.AllocsPerRun(100, func() { p.Extract(background, carrier) }); n > 1 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

// Text from outside must not reach a header that is sent, nor a span.
func TestFieldCaseS3OnlyDigitsAreSentOn(t *testing.T) {
	for _, evil := range []string{
		"obs1;r=1;t=1;h=1;s=\"00f067aa0ba902b7\";x=\"a\r\nX-Evil: 1\"",
		"obs1;r=1;t=1;h=1;s=\"00f067aa0ba902b7\";evil=\"\\\\\"",
		"obs1;r=1\r\n;t=1;h=1;s=\"00f067aa0ba902b7\"",
	} {
		s := newService(t, propagation.WithKnownAuthorityHeaders())
		headers := otelpropagation.MapCarrier{
			"traceparent":      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01",
			propagation.Header: evil, "x-timeout-budget-ms": "1\r\nX-Evil: 1",
		}
		ctx, server := s.serve(within(t, t.Context(), time.Second), headers)
		out, _ := s.call(ctx)
		for _, b := range []byte(out[propagation.Header]) {
			if !bytes.ContainsRune([]byte(`obs1;rth="abcdef0123456789-.=`), rune(b)) {
				t.Errorf("sent %q", out[propagation.Header])
				break
			}
		}
		for key, value := range server {
			if strings.ContainsAny(fmt.Sprint(value), "\r\nEx\\") && key != "flags" && key != "source" {
				t.Errorf("%s = %v", key, value)
			}
		}
	}
}

// A stranger's value is a hint at most, and third parties need not get ours.
func TestFieldCaseS4NothingLeaksPastTheFilter(t *testing.T) {
	type thirdParty struct{}
	s := newService(t, propagation.WithInjectFilter(func(ctx context.Context) bool { return ctx.Value(thirdParty{}) == nil }))
	ctx, _ := s.serve(within(t, t.Context(), time.Second), nil)
	headers, _ := s.call(context.WithValue(ctx, thirdParty{}, true))
	if _, leaked := headers[propagation.Header]; leaked || headers["traceparent"] == "" {
		t.Errorf("%v", headers)
	}
}

func TestFieldCaseS5AnnouncementHoldsNoResources(t *testing.T) {
	s := newService(t)
	for _, r := range []string{"3600000", "36000000", "0", "-3600000"} { // 1 h, 10 h, nothing, long past.
		ctx, server := s.serve(t.Context(), otelpropagation.MapCarrier{
			"traceparent":      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			propagation.Header: `obs1;r=` + r + `;t=36000000;h=1;s="00f067aa0ba902b7"`,
		})
		if _, ok := ctx.Deadline(); ok || ctx.Err() != nil {
			t.Errorf("%s ms: deadline %v, err %v", r, ok, ctx.Err())
		}
		expect(t, r+" of 10 h", server, attrs{"flags": flags("announcement_invalid")})
	}
}
