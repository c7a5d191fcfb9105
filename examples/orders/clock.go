package main

import (
	"context"
	"net/http"
	"strconv"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// clock is how far the clock of a service is ahead of the right one. All services
// run on one machine, so what leaves a service and says a time of day is moved on
// its way out, and what comes in is moved on its way in: the service itself
// cannot tell this from a wrong clock.
//
//	sender, clock +50 ms         wire            receiver, clock 0
//	due at 12:00:00.000  -->  12:00:00.050  -->  12:00:00.050
type clock time.Duration

// clock is the clock of a node. Nodes called by one with a right clock have a
// wrong one, by turns fast and slow, and the other way round, so that all callers
// and callees differ by Skew.
func (c *Config) clock(name string) clock {
	turn, depth := 0, 0
	for at := name; at != c.Nodes[0].Name; depth++ {
		i, position := c.caller(at)
		if i < 0 {
			return 0 // called by nobody
		}
		at, turn = c.Nodes[i].Name, turn+position
	}
	switch {
	case depth%2 == 0:
		return 0
	case turn%2 == 0:
		return clock(c.Skew)
	}
	return clock(-c.Skew)
}

// caller finds who calls a node, and as which of its calls.
func (c *Config) caller(name string) (node, position int) {
	for i, n := range c.Nodes {
		position = 0
		for _, step := range n.Steps {
			for _, call := range step.Calls {
				if call == name {
					return i, position
				}
				position++
			}
		}
	}
	return -1, 0
}

// move adds d to the deadline in a header. What is no single number it leaves to
// the authority to judge; numbers of more than 62 bits are too far away for d to
// matter.
func move(h http.Header, d time.Duration) {
	values := h.Values(DeadlineHeader)
	if len(values) != 1 || d == 0 {
		return
	}
	// Unlike ParseInt, ParseUint takes no sign.
	if ms, err := strconv.ParseUint(values[0], 10, 62); err == nil {
		h.Set(DeadlineHeader, strconv.FormatInt(max(int64(ms)+d.Milliseconds(), 0), 10))
	}
}

// handler shows next the requests as a service with this clock sees them.
func (c clock) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		move(r.Header, -time.Duration(c))
		next.ServeHTTP(w, r)
	})
}

// transport sends requests as a service with this clock does. It changes the
// header of the request, which has to be its own.
func (c clock) transport(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		move(r.Header, time.Duration(c))
		return base.RoundTrip(r)
	})
}

// exporter exports spans as a service with this clock does.
func (c clock) exporter(next sdktrace.SpanExporter) sdktrace.SpanExporter {
	if c == 0 {
		return next
	}
	return skewedExporter{next, time.Duration(c)}
}

type skewedExporter struct {
	sdktrace.SpanExporter
	skew time.Duration
}

// ExportSpans implements [sdktrace.SpanExporter].
func (e skewedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	skewed := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		skewed[i] = skewedSpan{span, e.skew}
	}
	return e.SpanExporter.ExportSpans(ctx, skewed)
}

type skewedSpan struct {
	sdktrace.ReadOnlySpan
	skew time.Duration
}

func (s skewedSpan) StartTime() time.Time { return s.ReadOnlySpan.StartTime().Add(s.skew) }

func (s skewedSpan) EndTime() time.Time { return s.ReadOnlySpan.EndTime().Add(s.skew) }

func (s skewedSpan) Events() []sdktrace.Event {
	events := s.ReadOnlySpan.Events()
	skewed := make([]sdktrace.Event, len(events))
	for i, event := range events {
		event.Time = event.Time.Add(s.skew)
		skewed[i] = event
	}
	return skewed
}
