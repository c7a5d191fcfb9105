package propagation_test

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation"
)

// The tests below run on the clock of a synctest bubble, so that every figure is
// exact: time passes where a test sleeps and nowhere else.

const ms = time.Millisecond

// bubble runs test on a clock of its own.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func within(t *testing.T, parent context.Context, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(parent, d)
	t.Cleanup(cancel)
	return ctx
}

func expect(t *testing.T, what string, got, want attrs) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func expectHeader(t *testing.T, headers otelpropagation.MapCarrier, want string) {
	t.Helper()
	got, _, _ := strings.Cut(headers[propagation.Header], ";s=")
	if got != want {
		t.Errorf("header %q, want %q and a span", headers[propagation.Header], want)
	}
}

func flags(names ...string) []string { return names }

// All figures of a chain that keeps its deadline, with 30 ms of work at each hop:
//
//	gateway    |=SERVER 300 ms =================================|
//	                 |=CLIENT===================================|
//	a                  |=SERVER=================================|
//	                         |=CLIENT===========================|
//	b                          |=SERVER=========================|
func TestDeadlineThatIsPassedOnRaisesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, gateway := s.serve(within(t, t.Context(), 300*ms), nil)
		expect(t, "gateway server", gateway, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
		})
		time.Sleep(30 * ms)
		headers, client := s.call(ctx)
		expect(t, "gateway client", client, attrs{
			"limit": 0.3, "remaining.start": 0.27, "deadline.remaining": 0.27, "source": "context", "hop": int64(1),
		})
		expectHeader(t, headers, "obs1;r=270;t=300;h=1")

		ctx, a := s.serve(within(t, t.Context(), 269*ms), headers)
		expect(t, "a server", a, attrs{
			"limit": 0.3, "remaining.start": 0.269, "deadline.remaining": 0.269, "source": "context",
			"announced.remaining": 0.27, "announced.fresh": true, "hop": int64(1),
		})
		time.Sleep(30*ms + 1234567*time.Nanosecond)
		headers, client = s.call(ctx)
		expect(t, "a client", client, attrs{
			"limit": 0.3, "remaining.start": 0.237765, "deadline.remaining": 0.237765, "source": "context", "hop": int64(2),
		})
		expectHeader(t, headers, "obs1;r=237.765;t=300;h=2")
		_, b := s.serve(within(t, t.Context(), 237*ms), headers)
		expect(t, "b server", b, attrs{
			"limit": 0.3, "remaining.start": 0.237, "deadline.remaining": 0.237, "source": "context",
			"announced.remaining": 0.237765, "announced.fresh": true, "hop": int64(2),
		})
	})
}

func TestFreshTimeoutsAreExtendedOnBothSides(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		for hop := int64(1); hop <= 3; hop++ {
			time.Sleep(30 * ms)
			left := 0.3 - 0.03*float64(hop)
			headers, client := s.call(within(t, context.WithoutCancel(ctx), time.Second))
			source := "announced"
			if hop == 1 {
				source = "context"
			}
			want := attrs{
				"limit": 0.3, "remaining.start": round(left), "deadline.remaining": 1.0, "source": source, "hop": hop,
				"reset": true, "flags": flags("deadline_extended"),
			}
			expect(t, "client", client, want)
			expectHeader(t, headers, "obs1;r="+strconv.Itoa(int(300-30*hop))+";t=300;h="+strconv.Itoa(int(hop)))

			var server attrs
			ctx, server = s.serve(within(t, t.Context(), time.Second), headers)
			want["source"], want["announced.remaining"], want["announced.fresh"] = "announced", round(left), true
			expect(t, "server", server, want)
		}
	})
}

// round takes away what adding decimals leaves.
func round(seconds float64) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(seconds, 'f', 6, 64), 64)
	return v
}

func TestDroppedDeadlineIsFlaggedOnTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, client := s.call(context.WithoutCancel(ctx))
		expect(t, "client", client, attrs{
			"limit": 0.3, "remaining.start": 0.3, "source": "context", "hop": int64(1), "flags": flags("deadline_dropped"),
		})
		_, server := s.serve(t.Context(), headers)
		expect(t, "server without deadline", server, attrs{
			"limit": 0.3, "remaining.start": 0.3, "source": "announced", "hop": int64(1),
			"announced.remaining": 0.3, "announced.fresh": true,
		})
	})
}

// A context that kept the span and lost everything else: the span itself says
// what was left.
func TestLineageIsRecoveredFromTheParentSpan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := s.call(ctx)
		ctx, _ = s.serve(within(t, t.Context(), 300*ms), headers)
		time.Sleep(30 * ms)
		lost := trace.ContextWithSpan(context.Background(), trace.SpanFromContext(ctx))

		headers, client := s.call(within(t, lost, time.Second))
		expect(t, "client with a fresh timeout", client, attrs{
			"limit": 0.3, "remaining.start": 0.27, "deadline.remaining": 1.0, "source": "parent_span", "hop": int64(2),
			"reset": true, "flags": flags("deadline_extended"),
		})
		expectHeader(t, headers, "obs1;r=270;t=300;h=2")

		headers, client = s.call(lost)
		expect(t, "client without deadline", client, attrs{
			"limit": 0.3, "remaining.start": 0.27, "source": "parent_span", "hop": int64(2),
			"flags": flags("deadline_dropped"),
		})
		expectHeader(t, headers, "obs1;r=270;t=300;h=2")

		// Without the span as well there is nothing to tell it by.
		headers, client = s.call(within(t, context.Background(), time.Second))
		expect(t, "client of another trace", client, attrs{
			"limit": 1.0, "remaining.start": 1.0, "deadline.remaining": 1.0, "source": "context", "hop": int64(1),
		})
		expectHeader(t, headers, "obs1;r=1000;t=1000;h=1")
	})
}

func TestShorterCallBudgetDoesNotReachSiblings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, client := s.call(within(t, ctx, 100*ms))
		expect(t, "short call", client, attrs{
			"limit": 0.3, "remaining.start": 0.1, "deadline.remaining": 0.1, "source": "context", "hop": int64(1),
		})
		expectHeader(t, headers, "obs1;r=100;t=300;h=1")
		_, client = s.call(ctx)
		expect(t, "its sibling", client, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context", "hop": int64(1),
		})
	})
}

// Go keeps the earlier of two deadlines, so this is no reset.
func TestWithTimeoutUnderADeadlineIsNoReset(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		_, client := s.call(within(t, ctx, 3*time.Second))
		expect(t, "client", client, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context", "hop": int64(1),
		})
	})
}

func TestExhaustedAtStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 20*ms), nil)
		time.Sleep(20 * ms)
		headers, client := s.call(ctx)
		expect(t, "client at the deadline", client, attrs{
			"limit": 0.02, "remaining.start": 0.0, "deadline.remaining": 0.0, "source": "context", "hop": int64(1),
			"flags": flags("exhausted_at_start"),
		})
		expectHeader(t, headers, "obs1;r=0;t=20;h=1")
		time.Sleep(1500 * time.Microsecond)
		headers, _ = s.call(ctx)
		expectHeader(t, headers, "obs1;r=-1.5;t=20;h=1")
		_, server := s.serve(t.Context(), headers)
		expect(t, "server", server, attrs{
			"limit": 0.02, "remaining.start": -0.0015, "source": "announced", "hop": int64(1),
			"announced.remaining": -0.0015, "announced.fresh": true, "flags": flags("exhausted_at_start"),
		})
	})
}

// The first service of a chain may get a request whose deadline has passed.
func TestDeadlineThatPassedBeforeTheOriginLeavesNoLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx := within(t, t.Context(), 10*ms)
		time.Sleep(12 * ms)
		ctx, server := s.serve(ctx, nil)
		expect(t, "server", server, attrs{
			"limit": 0.0, "remaining.start": -0.002, "deadline.remaining": -0.002, "source": "context",
			"flags": flags("exhausted_at_start"),
		})
		headers, _ := s.call(ctx)
		expectHeader(t, headers, "obs1;r=-2;t=0.001;h=1")
	})
}

// tolerance is 5 ms or a share of what is left: 4 % on entry and 2 % on exit spans.
func TestTolerance(t *testing.T) {
	tests := []struct {
		name         string
		opts         []any
		budget       time.Duration
		entry, exits time.Duration // the latest deadline that is not flagged, less the inherited one
	}{
		{"small budgets: 5 ms", nil, 100 * ms, 5 * ms, 5 * ms},
		{"large budgets: a share", nil, time.Second, 40 * ms, 20 * ms},
		{"between", nil, 200 * ms, 8 * ms, 5 * ms},
		{"configured", []any{propagation.WithTolerance(ms, 0.1)}, time.Second, 200 * ms, 100 * ms},
		{"none", []any{propagation.WithTolerance(0, 0)}, time.Second, 0, 0},
		{"wrong share: default", []any{propagation.WithTolerance(0, 1.1)}, time.Second, 40 * ms, 20 * ms},
		{"wrong floor: default", []any{propagation.WithTolerance(-1, 0)}, 100 * ms, 5 * ms, 5 * ms},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newService(t, test.opts...)
				ctx, _ := s.serve(within(t, t.Context(), test.budget), nil)
				headers, _ := s.call(ctx)
				for _, over := range []time.Duration{0, 1} {
					_, server := s.serve(within(t, t.Context(), test.budget+test.entry+over), headers)
					if flagged := server["reset"] == true; flagged != (over > 0) {
						t.Errorf("entry span, %v later: flagged %v", test.entry+over, flagged)
					}
					_, client := s.call(within(t, context.WithoutCancel(ctx), test.budget+test.exits+over))
					if flagged := client["reset"] == true; flagged != (over > 0) {
						t.Errorf("exit span, %v later: flagged %v", test.exits+over, flagged)
					}
				}
			})
		})
	}
}

func TestLargestToleranceIsNeverExceeded(t *testing.T) {
	for _, opt := range []propagation.SpanProcessorOption{
		propagation.WithTolerance(math.MaxInt64, 0),
		propagation.WithMaxClockSkew(math.MaxInt64),
	} {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithKnownAuthorityHeaders(), opt)
			absolute := strconv.FormatInt(time.Now().Add(300*ms).UnixMilli(), 10)
			for _, d := range []time.Duration{1, 100 * ms, 300*ms - 2, 300 * ms, 300*ms + 2, time.Minute} {
				ctx, server := s.serve(within(t, t.Context(), d), otelpropagation.MapCarrier{"x-request-deadline": absolute})
				_, client := s.call(within(t, context.WithoutCancel(ctx), d+1))
				if server["reset"] != nil || client["reset"] != nil {
					t.Errorf("deadline in %v: server %v, client %v", d, server, client)
				}
			}
		})
	}
}

// A deadline a little later than the announced one takes its place, so that
// small differences do not add up from hop to hop.
func TestEntrySpanTakesTheAuthoritysDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 1000*ms), nil)
		left := 1000.0
		for range 16 { // Each hop sends 3 % more than it has, as gRPC core may.
			headers, client := s.call(ctx)
			if client["flags"] != nil {
				t.Fatalf("client with %v ms: %v", left, client)
			}
			left *= 1.03
			var server attrs
			ctx, server = s.serve(within(t, t.Context(), time.Duration(left*1e6)), headers)
			if server["flags"] != nil || server["source"] != "context" {
				t.Fatalf("server with %v ms: %v", left, server)
			}
		}
	})
}

func TestStaleAnnouncementNamesItsSpan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := s.call(ctx)
		// A proxy with spans of its own copies our header and keeps it for 30 ms.
		copied := otelpropagation.MapCarrier{propagation.Header: headers[propagation.Header]}
		time.Sleep(30 * ms)
		proxyCtx, _ := s.start(otelpropagation.TraceContext{}.Extract(t.Context(), headers), trace.SpanKindClient)
		otelpropagation.TraceContext{}.Inject(proxyCtx, copied)
		_, server := s.serve(within(t, t.Context(), 400*ms), copied)
		writer := strings.Trim(strings.SplitAfter(headers[propagation.Header], ";s=")[1], `"`)
		expect(t, "server", server, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.4, "source": "announced", "hop": int64(1),
			"announced.remaining": 0.3, "announced.fresh": false, "announced.span_id": writer,
			"reset": true, "flags": flags("announcement_stale", "deadline_extended"),
		})
	})
}

func TestInvalidAnnouncementIsFlaggedAndNotUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		headers, _ := s.call(t.Context())
		headers[propagation.Header] = "obs1;r=many"
		ctx, server := s.serve(within(t, t.Context(), 300*ms), headers)
		expect(t, "server", server, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
			"flags": flags("announcement_invalid"),
		})
		headers, _ = s.call(ctx)
		expectHeader(t, headers, "obs1;r=300;t=300;h=1")
	})
}

// A public endpoint starts a trace of its own; the context still has what a
// stranger sent.
func TestPublicEndpointIgnoresAnnouncements(t *testing.T) {
	for name, value := range map[string]string{
		"valid":   `obs1;r=3000;t=3000;h=9;s="00f067aa0ba902b7"`,
		"invalid": "obs1;r=many",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newService(t)
				headers := otelpropagation.MapCarrier{
					"traceparent":      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
					propagation.Header: value,
				}
				ctx := s.propagator.Extract(within(t, t.Context(), 300*ms), headers)
				ctx, span := s.start(ctx, trace.SpanKindServer, trace.WithNewRoot())
				expect(t, "server", stamped(span), attrs{
					"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
				})
				headers, _ = s.call(ctx)
				expectHeader(t, headers, "obs1;r=300;t=300;h=1")
			})
		})
	}
}

// Without traceparent there is no parent that could have announced anything.
func TestAnnouncementWithoutParentIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, server := s.serve(t.Context(), otelpropagation.MapCarrier{
			propagation.Header: `obs1;r=3000;t=3000;h=9;s="00f067aa0ba902b7"`,
		})
		expect(t, "server", server, attrs{})
		headers, client := s.call(ctx)
		expect(t, "client", client, attrs{})
		expectHeader(t, headers, "")
	})
}

func TestOrderOfPropagatorsDoesNotMatter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		s.propagator = otelpropagation.NewCompositeTextMapPropagator(propagation.New(), otelpropagation.TraceContext{})
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := s.call(ctx)
		_, server := s.serve(within(t, t.Context(), 300*ms), headers)
		expect(t, "server", server, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
			"announced.remaining": 0.3, "announced.fresh": true, "hop": int64(1),
		})
	})
}

// The caller sent 300 ms, and the middleware takes 1 s. The server span began
// before it, so only the header, or Observe, can show the reset:
//
//	server     |==SERVER====================|
//	middleware   |-- 1 s -------------------|
//	client         |==CLIENT================|
func TestMiddlewareInsideTheInstrumentation(t *testing.T) {
	const name = "x-timeout-budget-ms"
	serve := func(t *testing.T, s service) (context.Context, trace.Span) {
		headers := otelpropagation.MapCarrier{name: "300"}
		return s.start(s.propagator.Extract(t.Context(), headers), trace.SpanKindServer)
	}
	t.Run("nothing shows the reset", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t)
			ctx, span := serve(t, s)
			expect(t, "server", stamped(span), attrs{})
			_, client := s.call(within(t, ctx, time.Second))
			expect(t, "client", client, attrs{
				"limit": 1.0, "remaining.start": 1.0, "deadline.remaining": 1.0, "source": "context", "hop": int64(1),
			})
		})
	})
	t.Run("the authority header shows it", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithAuthorityHeader("X-Timeout-Budget-Ms", propagation.Relative))
			ctx, span := serve(t, s)
			expect(t, "server", stamped(span), attrs{
				"limit": 0.3, "remaining.start": 0.3, "source": "header_relative", "source.header": name,
			})
			time.Sleep(30 * ms)
			headers, client := s.call(within(t, ctx, time.Second))
			expect(t, "client", client, attrs{
				"limit": 0.3, "remaining.start": 0.27, "deadline.remaining": 1.0, "source": "header_relative",
				"source.header": name, "hop": int64(1), "reset": true, "flags": flags("deadline_extended"),
			})
			expectHeader(t, headers, "obs1;r=270;t=300;h=1")
		})
	})
	t.Run("Observe shows it", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t)
			ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
			headers, _ := s.call(ctx)
			ctx, span := s.start(s.propagator.Extract(t.Context(), headers), trace.SpanKindServer)
			time.Sleep(ms)
			propagation.Observe(within(t, ctx, time.Second))
			expect(t, "server", stamped(span), attrs{
				"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 1.001, "source": "announced",
				"announced.remaining": 0.3, "announced.fresh": true, "hop": int64(1),
				"reset": true, "flags": flags("deadline_extended"),
			})
		})
	})
	t.Run("Observe makes the deadline inherited", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t)
			ctx, span := s.start(s.propagator.Extract(t.Context(), otelpropagation.MapCarrier{}), trace.SpanKindServer)
			inner := within(t, ctx, 300*ms)
			propagation.Observe(inner)
			expect(t, "server", stamped(span), attrs{
				"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
			})
			_, client := s.call(within(t, context.WithoutCancel(inner), time.Second))
			expect(t, "client", client, attrs{
				"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 1.0, "source": "context", "hop": int64(1),
				"reset": true, "flags": flags("deadline_extended"),
			})
		})
	})
}

func TestObserveTwiceIsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, span := s.start(s.propagator.Extract(within(t, t.Context(), 300*ms), otelpropagation.MapCarrier{}), trace.SpanKindServer)
		once := stamped(span)
		time.Sleep(20 * ms)
		propagation.Observe(ctx)
		propagation.Observe(ctx)
		expect(t, "server", stamped(span), once)
	})
}

// What a proxy will wait is all that is known at first; then the middleware sets
// the deadline that was announced.
func TestObserveTakesBackWhatItNoLongerSees(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, propagation.WithKnownAuthorityHeaders())
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := s.call(ctx)
		headers["x-envoy-expected-rq-timeout-ms"] = "15000"
		ctx, span := s.start(s.propagator.Extract(t.Context(), headers), trace.SpanKindServer)
		if got := stamped(span); got["reset"] != true {
			t.Errorf("before Observe: %v, want a reset", got)
		}
		propagation.Observe(within(t, ctx, 300*ms))
		expect(t, "server", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
			"announced.remaining": 0.3, "announced.fresh": true, "hop": int64(1), "reset": false, "flags": []string{},
		})
	})
}

// A job under a root span of its own has its own deadline, which is not the one
// of the request that started it.
func TestObserveInDetachedWorkLeavesTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		for _, kind := range []trace.SpanKind{trace.SpanKindInternal, trace.SpanKindServer, trace.SpanKindConsumer} {
			job, _ := s.start(context.WithoutCancel(ctx), kind, trace.WithNewRoot())
			propagation.Observe(within(t, job, 10*ms))
			_, client := s.call(ctx)
			expect(t, "client of the request", client, attrs{
				"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context", "hop": int64(1),
			})
		}
	})
}

func TestObserveWithoutPropagatorComparesWithTheSpan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, span := s.start(within(t, t.Context(), 300*ms), trace.SpanKindServer)
		propagation.Observe(within(t, context.WithoutCancel(ctx), time.Second))
		expect(t, "server", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 1.0, "source": "context",
			"reset": true, "flags": flags("deadline_extended"),
		})
	})
}

func TestObserveWhereTheEntrySpanIsNotSampled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, sdktrace.NeverSample())
		ctx, _ := s.start(s.propagator.Extract(t.Context(), otelpropagation.MapCarrier{}), trace.SpanKindServer)
		ctx = within(t, ctx, 300*ms)
		propagation.Observe(ctx)
		headers := otelpropagation.MapCarrier{}
		client, _ := s.start(within(t, context.WithoutCancel(ctx), time.Second), trace.SpanKindClient)
		s.propagator.Inject(client, headers)
		expectHeader(t, headers, "obs1;r=300;t=300;h=1")
	})
}

// Unsampled spans carry nothing, but what they send and receive goes on.
func TestLineageCrossesUnsampledServices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		sampled, unsampled := newService(t), newService(t, sdktrace.NeverSample())
		ctx, _ := sampled.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := sampled.call(ctx)
		ctx, _ = unsampled.start(unsampled.propagator.Extract(within(t, t.Context(), 300*ms), headers), trace.SpanKindServer)
		time.Sleep(30 * ms)
		ctx, _ = unsampled.start(within(t, context.WithoutCancel(ctx), time.Second), trace.SpanKindClient)
		headers = otelpropagation.MapCarrier{}
		unsampled.propagator.Inject(ctx, headers)
		expectHeader(t, headers, "obs1;r=270;t=300;h=2")
	})
}

// A deadline as a point in time, from a caller whose clock is 40 ms ahead or
// behind.
func TestClockSkewIsSuspectedForAbsoluteDeadlinesOnly(t *testing.T) {
	tests := []struct {
		name         string
		header, kind string
		deadline     time.Duration // of the context, from now
		want         attrs
	}{
		{"agree", "300", "absolute", 300 * ms, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
		}},
		{"within the skew", "260", "absolute", 300 * ms, attrs{
			"limit": 0.26, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
			"flags": flags("clock_skew_suspected"),
		}},
		{"the clocks cannot explain it", "200", "absolute", 300 * ms, attrs{
			"limit": 0.2, "remaining.start": 0.2, "deadline.remaining": 0.3, "source": "header_absolute",
			"source.header": "x-request-deadline", "reset": true, "flags": flags("deadline_extended"),
		}},
		{"relative", "260", "relative", 300 * ms, attrs{
			"limit": 0.26, "remaining.start": 0.26, "deadline.remaining": 0.3, "source": "header_relative",
			"source.header": "x-request-deadline", "reset": true, "flags": flags("deadline_extended"),
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				kind, value := propagation.Relative, test.header
				if test.kind == "absolute" {
					left, _ := strconv.Atoi(test.header)
					kind, value = propagation.EpochMillis, strconv.FormatInt(time.Now().UnixMilli()+int64(left), 10)
				}
				s := newService(t, propagation.WithAuthorityHeader("x-request-deadline", kind))
				_, server := s.serve(within(t, t.Context(), test.deadline), otelpropagation.MapCarrier{"x-request-deadline": value})
				expect(t, "server", server, test.want)
			})
		})
	}
	t.Run("at the limit", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithTolerance(10*ms, 0), propagation.WithKnownAuthorityHeaders())
			for off, want := range map[time.Duration]string{-10 * ms: "", -11 * ms: "clock_skew_suspected", -60 * ms: "clock_skew_suspected", -61 * ms: "deadline_extended"} {
				_, server := s.serve(within(t, t.Context(), 300*ms), otelpropagation.MapCarrier{
					"x-request-deadline": strconv.FormatInt(time.Now().Add(300*ms+off).UnixMilli(), 10),
				})
				names, _ := server["flags"].([]string)
				if got := strings.Join(names, ","); got != want {
					t.Errorf("%v off: %q, want %q", off, got, want)
				}
			}
		})
	})
	t.Run("no skew allowed", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithMaxClockSkew(0), propagation.WithKnownAuthorityHeaders())
			_, server := s.serve(within(t, t.Context(), 300*ms), otelpropagation.MapCarrier{
				"x-request-deadline": strconv.FormatInt(time.Now().UnixMilli()+260, 10),
			})
			if server["reset"] != true {
				t.Errorf("%v, want a reset", server)
			}
		})
	})
}

// The clock of the caller is off by up to 50 ms, and the true deadline is in the
// context, as gRPC brings it.
func TestClocksFiftyMillisecondsApartMoveNoRelativeFigure(t *testing.T) {
	for off := -50 * ms; off <= 50*ms; off += 10 * ms {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			_, server := s.serve(within(t, t.Context(), 300*ms), otelpropagation.MapCarrier{
				"x-request-deadline": strconv.FormatInt(time.Now().Add(300*ms+off).UnixMilli(), 10),
			})
			if got := server["flags"]; got != nil && !cmp.Equal(got, any(flags("clock_skew_suspected"))) {
				t.Errorf("absolute, %v off: %v", off, server)
			}
			if server["remaining.start"] != 0.3 {
				t.Errorf("absolute, %v off: %v, want the deadline of the context", off, server)
			}

			ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
			headers, _ := s.call(ctx) // Says nothing that a clock could move.
			_, server = s.serve(within(t, t.Context(), 300*ms), headers)
			expect(t, "relative", server, attrs{
				"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context", "hop": int64(1),
				"announced.remaining": 0.3, "announced.fresh": true,
			})
		})
	}
}

func TestAbsoluteDeadlineIsComparedWithTheAnnouncement(t *testing.T) {
	for _, test := range []struct {
		absolute int64 // ms from now on the receiver's clock
		want     []string
	}{
		{300, nil},
		{312, nil}, // 4 % of 300 ms
		{313, flags("clock_skew_suspected")},
		{362, flags("clock_skew_suspected")},
		{363, nil}, // A deadline that the sender replaced, and flagged.
		{288, nil},
		{287, flags("clock_skew_suspected")},
		{100, flags("clock_skew_suspected")}, // The sender announces no more than its deadline leaves.
	} {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
			headers, _ := s.call(ctx)
			headers["x-request-deadline"] = strconv.FormatInt(time.Now().UnixMilli()+test.absolute, 10)
			ctx, span := s.start(s.propagator.Extract(t.Context(), headers), trace.SpanKindServer)
			want := attrs{
				"limit": 0.3, "remaining.start": 0.3, "source": "announced", "hop": int64(1),
				"announced.remaining": 0.3, "announced.fresh": true,
			}
			if test.want != nil {
				want["flags"] = test.want
			}
			expect(t, "server", stamped(span), want)
			// What was seen is not forgotten when the deadline appears.
			observed := within(t, ctx, 300*ms)
			propagation.Observe(observed)
			propagation.Observe(observed)
			want["source"], want["deadline.remaining"] = "context", 0.3
			expect(t, "server, observed", stamped(span), want)
		})
	}
}

// A stale announcement is too large by itself: no clock need be off.
func TestStaleAnnouncementRaisesNoSuspicionOfClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, propagation.WithKnownAuthorityHeaders())
		_, server := s.serve(t.Context(), otelpropagation.MapCarrier{
			"traceparent":        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01",
			propagation.Header:   `obs1;r=300;t=300;h=1;s="00f067aa0ba902b7"`,
			"x-request-deadline": strconv.FormatInt(time.Now().UnixMilli()+100, 10),
		})
		if got := server["flags"]; !cmp.Equal(got, any(flags("announcement_stale"))) {
			t.Errorf("%v", server)
		}
	})
}

// Extract comes first, the span a little later, and the calls later still.
func TestFiguresReferToTheStartOfTheSpan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, propagation.WithKnownAuthorityHeaders())
		time.Sleep(400 * time.Microsecond)
		ctx := s.propagator.Extract(t.Context(), otelpropagation.MapCarrier{
			"x-request-deadline": strconv.FormatInt(time.Now().UnixMilli()+300, 10),
		})
		time.Sleep(100 * time.Microsecond)
		ctx, span := s.start(ctx, trace.SpanKindServer)
		expect(t, "server", stamped(span), attrs{
			"limit": 0.2995, "remaining.start": 0.2995, "source": "header_absolute", "source.header": "x-request-deadline",
		})
		_, client := s.call(within(t, ctx, 299500*time.Microsecond))
		expect(t, "client with the same deadline", client, attrs{
			"limit": 0.2995, "remaining.start": 0.2995, "deadline.remaining": 0.2995, "source": "context", "hop": int64(1),
		})

		ctx = s.propagator.Extract(within(t, t.Context(), 300*ms), otelpropagation.MapCarrier{})
		ctx, _ = s.start(ctx, trace.SpanKindClient)
		time.Sleep(30 * ms)
		headers := otelpropagation.MapCarrier{}
		s.propagator.Inject(ctx, headers)
		expectHeader(t, headers, "obs1;r=270;t=300;h=1")
	})
}

func TestAttributesOfOthersMakeNoLineage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		for _, value := range []attribute.Value{
			attribute.Float64Value(math.NaN()),
			attribute.Float64Value(math.Inf(1)),
			attribute.Float64Value(math.Inf(-1)),
			attribute.Float64Value(1e300),
			attribute.StringValue("0.3"),
			attribute.Int64Value(300),
			attribute.BoolValue(true),
			{},
		} {
			_, span := s.start(t.Context(), trace.SpanKindServer)
			span.SetAttributes(
				attribute.KeyValue{Key: propagation.RemainingStartKey, Value: value},
				attribute.KeyValue{Key: propagation.LimitKey, Value: value},
				propagation.HopKey.Float64(3))
			headers, client := s.call(trace.ContextWithSpan(context.Background(), span))
			expect(t, "client", client, attrs{})
			expectHeader(t, headers, "")
		}
	})
}

// The timeout of a proxy is not counted down from hop to hop: it bounds this hop
// and says nothing about the request.
func TestPerHopHeaderStandsInForTheDeadline(t *testing.T) {
	const name = "x-envoy-expected-rq-timeout-ms"
	t.Run("alone", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			ctx, server := s.serve(t.Context(), otelpropagation.MapCarrier{name: "15000"})
			expect(t, "server", server, attrs{
				"limit": 15.0, "remaining.start": 15.0, "source": "header_relative", "source.header": name,
			})
			headers, client := s.call(ctx)
			expect(t, "client", client, attrs{})
			expectHeader(t, headers, "")
		})
	})
	t.Run("smaller than the lineage", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			ctx, server := s.serve(t.Context(), otelpropagation.MapCarrier{name: "100", "x-timeout-budget-ms": "300"})
			expect(t, "server", server, attrs{
				"limit": 0.3, "remaining.start": 0.1, "source": "header_relative", "source.header": name,
			})
			headers, _ := s.call(ctx)
			expectHeader(t, headers, "obs1;r=300;t=300;h=1")
		})
	})
	t.Run("larger than the lineage", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithAuthorityHeader(name, propagation.Relative),
				propagation.WithAuthorityHeader("x-timeout-budget-ms", propagation.Relative))
			_, server := s.serve(t.Context(), otelpropagation.MapCarrier{name: "400", "x-timeout-budget-ms": "300"})
			expect(t, "server", server, attrs{
				"limit": 0.3, "remaining.start": 0.3, "source": "header_relative", "source.header": "x-timeout-budget-ms",
				"reset": true, "flags": flags("deadline_extended"),
			})
		})
	})
	t.Run("zero is none", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			_, server := s.serve(t.Context(), otelpropagation.MapCarrier{name: "0"})
			expect(t, "server", server, attrs{})
		})
	})
	t.Run("under a deadline it is not used", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			s := newService(t, propagation.WithKnownAuthorityHeaders())
			_, server := s.serve(within(t, t.Context(), 300*ms), otelpropagation.MapCarrier{name: "100"})
			expect(t, "server", server, attrs{
				"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context",
			})
		})
	})
}

func TestInternalSpansAreStampedOnDemand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		_, span := s.start(ctx, trace.SpanKindInternal)
		expect(t, "by default", stamped(span), attrs{})

		s = newService(t, propagation.WithInternalSpans())
		ctx, _ = s.serve(within(t, t.Context(), 300*ms), nil)
		time.Sleep(10 * ms)
		_, span = s.start(ctx, trace.SpanKindInternal)
		expect(t, "on demand", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.29, "deadline.remaining": 0.29, "source": "context",
		})
		_, span = s.start(within(t, context.WithoutCancel(ctx), time.Second), trace.SpanKindInternal)
		expect(t, "with a later deadline: the calls are flagged, not the stage", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.29, "deadline.remaining": 1.0, "source": "context",
		})
		time.Sleep(290 * ms)
		_, span = s.start(ctx, trace.SpanKindInternal)
		if got := stamped(span); !cmp.Equal(got["flags"], any(flags("exhausted_at_start"))) {
			t.Errorf("at the deadline: %v", got)
		}
		_, span = s.start(within(t, t.Context(), time.Second), trace.SpanKindInternal)
		expect(t, "outside a request", stamped(span), attrs{
			"limit": 1.0, "remaining.start": 1.0, "deadline.remaining": 1.0, "source": "context",
		})
	})
}

func TestMessagesNeitherAnnounceNorInherit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		producer, span := s.start(ctx, trace.SpanKindProducer)
		expect(t, "producer", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context", "hop": int64(1),
		})
		message := otelpropagation.MapCarrier{}
		s.propagator.Inject(producer, message)
		expectHeader(t, message, "")

		headers, _ := s.call(ctx) // A library that sends messages with CLIENT spans.
		ctx, span = s.start(s.propagator.Extract(within(t, t.Context(), time.Second), headers), trace.SpanKindConsumer)
		expect(t, "consumer", stamped(span), attrs{"announced.remaining": 0.3, "announced.fresh": true})
		headers, client := s.call(ctx)
		expect(t, "call of the consumer", client, attrs{
			"limit": 1.0, "remaining.start": 1.0, "deadline.remaining": 1.0, "source": "context", "hop": int64(1),
		})
		expectHeader(t, headers, "obs1;r=1000;t=1000;h=1")
	})
}

func TestMessagesAreCallsOnDemand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, propagation.WithMessaging())
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		producer, _ := s.start(ctx, trace.SpanKindProducer)
		message := otelpropagation.MapCarrier{}
		s.propagator.Inject(producer, message)
		expectHeader(t, message, "obs1;r=300;t=300;h=1")
		_, span := s.start(s.propagator.Extract(within(t, t.Context(), time.Second), message), trace.SpanKindConsumer)
		expect(t, "consumer", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 1.0, "source": "announced", "hop": int64(1),
			"announced.remaining": 0.3, "announced.fresh": true, "reset": true, "flags": flags("deadline_extended"),
		})
	})
}

// A second SERVER span in the same process, of a handler behind another, sees
// the lineage and does not move it.
func TestNestedServerSpanLeavesTheLineage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := s.call(ctx)
		ctx, _ = s.serve(within(t, t.Context(), 300*ms), headers)
		nested, span := s.start(within(t, ctx, 100*ms), trace.SpanKindServer)
		expect(t, "nested server", stamped(span), attrs{
			"limit": 0.3, "remaining.start": 0.1, "deadline.remaining": 0.1, "source": "context",
		})
		propagation.Observe(nested)
		_, client := s.call(ctx)
		expect(t, "client", client, attrs{
			"limit": 0.3, "remaining.start": 0.3, "deadline.remaining": 0.3, "source": "context", "hop": int64(2),
		})
	})
}

// The wall clock alone, as WithTimestamp and deadlines made by time.UnixMilli have it.
func TestTimesWithoutMonotonicReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, cancel := context.WithDeadline(t.Context(), time.UnixMilli(time.Now().UnixMilli()+300))
		defer cancel()
		early := time.Now().Add(-10 * ms).Round(0)
		_, span := s.start(ctx, trace.SpanKindServer, trace.WithTimestamp(early))
		expect(t, "server", stamped(span), attrs{
			"limit": 0.31, "remaining.start": 0.31, "deadline.remaining": 0.31, "source": "context",
		})
	})
}

func TestExtremeDeadlinesDoNotOverflow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		for _, d := range []time.Time{time.Unix(1<<40, 0), time.Unix(-1<<40, 0), {}} {
			far := deadlineContext{context.WithoutCancel(ctx), d}
			_, client := s.call(far)
			later := d.Unix() > 0
			if flagged := client["reset"] == true; flagged != later {
				t.Errorf("deadline %v: %v", d, client)
			}
		}
	})
}

// deadlineContext claims another deadline, as only a wrapper can.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

func TestEndStamperStampsTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		got := map[string]attrs{}
		provider := sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(propagation.NewSpanProcessor()),
			sdktrace.WithSpanProcessor(propagation.NewEndStamper(endFunc(func(s sdktrace.ReadOnlySpan) {
				got[s.Name()] = stamped(s)
			}))))
		tracer := provider.Tracer("test")
		run := func(name string, ctx context.Context, d time.Duration) {
			_, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
			time.Sleep(d)
			span.End()
		}
		run("in time", within(t, t.Context(), 300*ms), 100*ms)
		run("too late", within(t, t.Context(), 300*ms), 301*ms)
		spent := within(t, t.Context(), ms)
		time.Sleep(2 * ms)
		run("spent", spent, ms)
		run("no budget", t.Context(), ms)
		for name, want := range map[string]attrs{
			"in time":   {"remaining.end": 0.2, "flags": nil},
			"too late":  {"remaining.end": -0.001, "flags": flags("overrun")},
			"spent":     {"remaining.end": -0.002, "flags": flags("exhausted_at_start", "overrun")},
			"no budget": {"remaining.end": nil, "flags": nil},
		} {
			expect(t, name, attrs{"remaining.end": got[name]["remaining.end"], "flags": got[name]["flags"]}, want)
		}
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestEndStamperLeavesWhatIsNotItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, set := range map[string]attribute.KeyValue{
			"text for a figure": propagation.RemainingStartKey.String("0.3"),
			"no time":           propagation.RemainingStartKey.Float64(math.Inf(1)),
			"stamped already":   propagation.RemainingEndKey.Float64(7),
		} {
			var got attrs
			count := 0
			provider := sdktrace.NewTracerProvider(
				sdktrace.WithSpanProcessor(propagation.NewSpanProcessor()),
				sdktrace.WithSpanProcessor(propagation.NewEndStamper(propagation.NewEndStamper(endFunc(func(s sdktrace.ReadOnlySpan) {
					got, count = stamped(s), len(s.Attributes())
				})))))
			_, span := provider.Tracer("test").Start(within(t, t.Context(), ms), name, trace.WithSpanKind(trace.SpanKindServer))
			span.SetAttributes(set)
			before := stamped(span)
			time.Sleep(2 * ms)
			span.End()
			expect(t, name, got, before)
			if count != len(got) {
				t.Errorf("%s: %d attributes with %d names", name, count, len(got))
			}
		}
	})
}

// Readers may judge by the figure or by the flag. Figures are rounded to 1 µs.
func TestFlagsAgreeWithTheFiguresBesideThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var got attrs
		provider := sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(propagation.NewSpanProcessor(propagation.WithInternalSpans())),
			sdktrace.WithSpanProcessor(propagation.NewEndStamper(endFunc(func(s sdktrace.ReadOnlySpan) { got = stamped(s) }))))
		tracer := provider.Tracer("test")
		for _, kind := range []trace.SpanKind{trace.SpanKindServer, trace.SpanKindClient, trace.SpanKindInternal} {
			for _, ns := range []time.Duration{-1501, -1000, -501, -500, -499, -1, 0, 1, 499, 500, 501, 1000, 1501} {
				for _, lasts := range []time.Duration{0, 1, 499, 500, 501, 1000, 1501} {
					ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(ns))
					_, span := tracer.Start(ctx, "op", trace.WithSpanKind(kind))
					time.Sleep(lasts)
					span.End()
					cancel()
					start, end := got["remaining.start"].(float64), got["remaining.end"].(float64)
					names, _ := got["flags"].([]string)
					if slices.Contains(names, "exhausted_at_start") != (start <= 0) || slices.Contains(names, "overrun") != (end < 0) ||
						!slices.IsSorted(names) {
						t.Errorf("%v, %v left, %v long: start %v, end %v, flags %v", kind, ns, lasts, start, end, names)
					}
					for name, value := range got {
						if figure, ok := value.(float64); ok && figure == 0 && math.Signbit(figure) {
							t.Errorf("%v, %v left, %v long: %s is -0", kind, ns, lasts, name)
						}
					}
				}
			}
		}
	})
}

// endFunc is a processor that only sees spans end.
type endFunc func(sdktrace.ReadOnlySpan)

func (endFunc) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (f endFunc) OnEnd(s sdktrace.ReadOnlySpan)                 { f(s) }
func (endFunc) Shutdown(context.Context) error                  { return nil }
func (endFunc) ForceFlush(context.Context) error                { return nil }

func TestEndStamperWithoutNextDiscards(t *testing.T) {
	p := propagation.NewEndStamper(nil)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p))
	ctx := within(t, t.Context(), time.Second)
	_, span := provider.Tracer("test").Start(ctx, "op", trace.WithSpanKind(trace.SpanKindServer))
	span.End()
	if err := provider.ForceFlush(ctx); err != nil {
		t.Error(err)
	}
	expect(t, "span", stamped(span), attrs{})
}

func TestMarkDetachedMarksTheCurrentSpanAlone(t *testing.T) {
	s := newService(t)
	ctx, server := s.start(t.Context(), trace.SpanKindServer)
	job, span := s.start(context.WithoutCancel(ctx), trace.SpanKindInternal)
	propagation.MarkDetached(job)
	propagation.MarkDetached(job)
	expect(t, "job", stamped(span), attrs{"detached": true})
	expect(t, "server", stamped(server), attrs{})
	span.End()
	propagation.MarkDetached(job)
	propagation.MarkDetached(context.Background())
}

func TestMarkDegradedAddsUp(t *testing.T) {
	s := newService(t)
	ctx, span := s.start(t.Context(), trace.SpanKindServer)
	var wg sync.WaitGroup
	for _, name := range []string{"coupon", "audit", "coupon", "ads", "", strings.Repeat("x", 129)} {
		propagation.MarkDegraded(ctx, name)
	}
	expect(t, "server", stamped(span), attrs{"degraded": []string{"ads", "audit", "coupon"}})

	for i := range 28 {
		wg.Go(func() { propagation.MarkDegraded(ctx, strconv.Itoa(i)) })
	}
	wg.Wait()
	if n := len(stamped(span)["degraded"].([]string)); n != 31 {
		t.Errorf("%d names, want 31: some were lost", n)
	}
	for i := range 100 {
		propagation.MarkDegraded(ctx, strconv.Itoa(i))
	}
	if n := len(stamped(span)["degraded"].([]string)); n != 32 {
		t.Errorf("%d names, want 32", n)
	}
	span.End()
	propagation.MarkDegraded(ctx, "late")
	propagation.MarkDegraded(context.Background(), "nowhere")
}
