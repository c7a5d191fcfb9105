package propagation_test

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	otelpropagation "go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation"
)

func TestFieldsAreWhatInjectSets(t *testing.T) {
	p := propagation.New(propagation.WithKnownAuthorityHeaders())
	if got := p.Fields(); !slices.Equal(got, []string{"latency-budget-observed"}) {
		t.Errorf("Fields() = %q", got)
	}
	s := newService(t, propagation.WithKnownAuthorityHeaders())
	ctx, _ := s.start(within(t, t.Context(), time.Second), trace.SpanKindClient)
	headers := otelpropagation.MapCarrier{}
	p.Inject(ctx, headers)
	if got := headers.Keys(); !slices.Equal(got, p.Fields()) {
		t.Errorf("Inject set %q, want %q", got, p.Fields())
	}
}

func TestNameAndHeaderAreWhatOthersRelyOn(t *testing.T) {
	if propagation.Name != "latencybudget" || propagation.Header != "latency-budget-observed" {
		t.Errorf("%q and %q", propagation.Name, propagation.Header)
	}
}

// plainCarrier is a carrier of another library: no deletion, one value a key.
type plainCarrier map[string]string

func (c plainCarrier) Get(key string) string { return c[key] }
func (c plainCarrier) Set(key, value string) { c[key] = value }
func (c plainCarrier) Keys() []string        { return nil }

// A proxy that copies inbound headers must not pass on what it cannot vouch for.
func TestInjectBlanksWhatItCannotReplace(t *testing.T) {
	const old = `obs1;r=300;t=300;h=1;s="00f067aa0ba902b7"`
	s := newService(t)
	nothingKnown, _ := s.start(t.Context(), trace.SpanKindClient)
	budget := within(t, t.Context(), time.Second)
	client, _ := s.start(budget, trace.SpanKindClient)
	tests := []struct {
		name string
		ctx  context.Context
		opts []propagation.Option
	}{
		{"no budget", nothingKnown, nil},
		{"no span", budget, nil},
		{"filter", client, []propagation.Option{propagation.WithInjectFilter(func(context.Context) bool { return false })}},
		{"filter panics", client, []propagation.Option{propagation.WithInjectFilter(func(context.Context) bool { panic("no") })}},
		{"beyond the maximum", client, []propagation.Option{propagation.WithMaxLimit(time.Millisecond)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := propagation.New(test.opts...)
			header := http.Header{"Latency-Budget-Observed": {old}}
			p.Inject(test.ctx, otelpropagation.HeaderCarrier(header))
			if len(header) != 0 {
				t.Errorf("http.Header %v", header)
			}
			m := otelpropagation.MapCarrier{propagation.Header: old}
			p.Inject(test.ctx, m)
			if len(m) != 0 {
				t.Errorf("map %v", m)
			}
			plain := plainCarrier{propagation.Header: old}
			p.Inject(test.ctx, plain)
			if plain[propagation.Header] != "" {
				t.Errorf("other carrier %v", plain)
			}
			plain = plainCarrier{}
			p.Inject(test.ctx, plain)
			if len(plain) != 0 {
				t.Errorf("other carrier, empty before: %v", plain)
			}
		})
	}
}

func TestInjectReplacesAnOldValue(t *testing.T) {
	s := newService(t)
	ctx, span := s.start(within(t, t.Context(), time.Second), trace.SpanKindClient)
	header := http.Header{"Latency-Budget-Observed": {"old", "older"}}
	propagation.New().Inject(ctx, otelpropagation.HeaderCarrier(header))
	want := `;t=1000;h=1;s="` + span.SpanContext().SpanID().String() + `"`
	if got := header.Values(propagation.Header); len(got) != 1 || !strings.HasPrefix(got[0], "obs1;r=99") || !strings.Contains(got[0], `;h=1;s="`) {
		t.Errorf("%q, want one value like obs1;r=999%s", got, want)
	}
	plain := plainCarrier{propagation.Header: "old"}
	propagation.New().Inject(ctx, plain)
	if got := plain[propagation.Header]; !strings.HasPrefix(got, "obs1;r=99") {
		t.Errorf("other carrier %q", got)
	}
}

func TestInjectFilterDecidesByContext(t *testing.T) {
	type external struct{}
	s := newService(t, propagation.WithInjectFilter(func(ctx context.Context) bool { return ctx.Value(external{}) == nil }))
	ctx := within(t, t.Context(), time.Second)
	if headers, _ := s.call(ctx); headers[propagation.Header] == "" {
		t.Error("nothing announced to a service of ours")
	}
	if headers, _ := s.call(context.WithValue(ctx, external{}, true)); headers[propagation.Header] != "" {
		t.Errorf("announced to a third party: %v", headers)
	}
}

func TestHopSaturates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		headers, _ := s.call(within(t, t.Context(), 300*ms))
		headers[propagation.Header] = strings.Replace(headers[propagation.Header], "h=1;", "h=255;", 1)
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), headers)
		headers, _ = s.call(ctx)
		expectHeader(t, headers, "obs1;r=300;t=300;h=255")
	})
}

// Of what the authority headers say, the smallest counts; what is not a plain
// number, comes twice, or is too large, does not.
func TestAuthorityHeaders(t *testing.T) {
	const relative, connect, absolute = "X-Timeout-Budget-Ms", "Connect-Timeout-Ms", "X-Request-Deadline"
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // The bubble's beginning.
	itoa := func(n int64) string { return strconv.FormatInt(n, 10) }
	tests := []struct {
		name    string
		headers http.Header
		want    float64 // remaining.start; 0: nothing known
		source  string
	}{
		{"one", http.Header{relative: {"300"}}, 0.3, "x-timeout-budget-ms"},
		{"smallest of two", http.Header{relative: {"300"}, connect: {"200"}}, 0.2, "connect-timeout-ms"},
		{"smallest of two, the other way round", http.Header{relative: {"200"}, connect: {"300"}}, 0.2, "x-timeout-budget-ms"},
		{"smallest of two kinds", http.Header{relative: {"300"}, absolute: {itoa(now + 250)}}, 0.25, "x-request-deadline"},
		{"expired", http.Header{absolute: {itoa(now - 100)}}, -0.1, "x-request-deadline"},
		{"maximum", http.Header{relative: {"3600000"}}, 3600, "x-timeout-budget-ms"},
		{"over the maximum", http.Header{relative: {"3600001"}}, 0, ""},
		{"over the maximum, absolute", http.Header{absolute: {itoa(now + 3600001)}}, 0, ""},
		{"a relative value taken for an instant", http.Header{absolute: {"300"}}, 0, ""},
		{"seconds taken for milliseconds", http.Header{absolute: {itoa(now / 1000)}}, 0, ""},
		{"repeated", http.Header{relative: {"300", "300"}}, 0, ""},
		{"bad one beside a good one", http.Header{relative: {"abc"}, connect: {"200"}}, 0.2, "connect-timeout-ms"},
	}
	for _, bad := range []string{
		"", " 300", "300 ", "+300", "-1", "-0", "1.5", "1e3", "0x10", "300ms", "300m", "99999999H", "3OO",
		"1000000000000000000000", "9223372036854775808", "٣٠٠", "300\r\nx: y",
	} {
		tests = append(tests, struct {
			name    string
			headers http.Header
			want    float64
			source  string
		}{"bad " + bad, http.Header{relative: {bad}}, 0, ""})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := newService(t, propagation.WithKnownAuthorityHeaders())
				ctx := s.propagator.Extract(t.Context(), otelpropagation.HeaderCarrier(test.headers))
				_, span := s.start(ctx, trace.SpanKindServer)
				got := stamped(span)
				if test.want == 0 {
					expect(t, "server", got, attrs{})
					return
				}
				if got["remaining.start"] != test.want || got["source.header"] != test.source {
					t.Errorf("%v, want %v from %q", got, test.want, test.source)
				}
			})
		})
	}
}

func TestExhaustedAuthorityHeaderIsAValue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, propagation.WithKnownAuthorityHeaders())
		_, server := s.serve(t.Context(), otelpropagation.MapCarrier{"x-timeout-budget-ms": "0"})
		expect(t, "server", server, attrs{
			"limit": 0.0, "remaining.start": 0.0, "source": "header_relative", "source.header": "x-timeout-budget-ms",
			"flags": flags("exhausted_at_start"),
		})
	})
}

func TestAuthorityHeadersAreOffByDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t)
		_, server := s.serve(t.Context(), otelpropagation.MapCarrier{"x-timeout-budget-ms": "300"})
		expect(t, "server", server, attrs{})
	})
}

func TestAnnouncementCountsMoreThanAuthorityHeaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, propagation.WithKnownAuthorityHeaders())
		ctx, _ := s.serve(within(t, t.Context(), 300*ms), nil)
		headers, _ := s.call(ctx)
		headers["x-timeout-budget-ms"] = "1000"
		_, server := s.serve(t.Context(), headers)
		expect(t, "server", server, attrs{
			"limit": 0.3, "remaining.start": 0.3, "source": "announced", "hop": int64(1),
			"announced.remaining": 0.3, "announced.fresh": true,
		})
	})
}

func TestNamingAnAuthorityHeaderAgainReplacesItsKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newService(t, propagation.WithKnownAuthorityHeaders(),
			propagation.WithAuthorityHeader(" X-Request-DEADLINE ", propagation.Relative),
			propagation.WithAuthorityHeader("", propagation.Relative), propagation.WithAuthorityHeader("x-wrong", 99))
		_, server := s.serve(t.Context(), otelpropagation.MapCarrier{"x-request-deadline": "300", "x-wrong": "100"})
		if server["remaining.start"] != 0.3 || server["source"] != "header_relative" {
			t.Errorf("%v", server)
		}
	})
}

// A header that cannot be read, or none, leaves an observation that is there.
func TestExtractWithoutValueKeepsTheContext(t *testing.T) {
	p := propagation.New(propagation.WithKnownAuthorityHeaders())
	ctx := p.Extract(t.Context(), otelpropagation.MapCarrier{propagation.Header: `obs1;r=1;t=1;h=1;s="00f067aa0ba902b7"`})
	for _, value := range []string{"", "obs1;r=soon", "obs2;anything"} {
		if got := p.Extract(ctx, otelpropagation.MapCarrier{propagation.Header: value}); got != ctx {
			t.Errorf("%q replaced the context", value)
		}
	}
	for header, value := range map[string]string{
		propagation.Header: `obs1;r=2;t=2;h=1;s="00f067aa0ba902b7"`, "x-timeout-budget-ms": "1",
	} {
		if got := p.Extract(ctx, otelpropagation.MapCarrier{header: value}); got == ctx {
			t.Errorf("%q did not replace the context", header)
		}
	}
}

func TestMaxLimitOutOfRangeLeavesTheDefault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for d, want := range map[time.Duration]bool{0: true, -1: true, 28 * time.Hour: true, time.Minute: false} {
			s := newService(t, propagation.WithMaxLimit(d))
			headers, _ := s.call(within(t, t.Context(), time.Hour))
			if got := headers[propagation.Header] != ""; got != want {
				t.Errorf("WithMaxLimit(%v): announces 1 h: %v, want %v", d, got, want)
			}
		}
	})
}

func TestNilOptionsAreIgnored(t *testing.T) {
	propagation.New(nil, propagation.WithInjectFilter(nil)).Inject(t.Context(), otelpropagation.MapCarrier{})
	propagation.NewSpanProcessor(nil)
}
