package main

import (
	"context"
	"encoding/hex"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// recorder keeps the spans of a system in memory.
type recorder struct {
	mu    sync.Mutex
	spans []*tracepb.ResourceSpans
}

func (r *recorder) Start(context.Context) error { return nil }
func (r *recorder) Stop(context.Context) error  { return nil }

func (r *recorder) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, spans...)
	return nil
}

func recordTo(r *recorder) newClient { return func() otlptrace.Client { return r } }

// span is a recorded span with what the tests look at.
type span struct {
	service    string
	kind       tracepb.Span_SpanKind
	trace, id  string
	parent     string
	start, end int64 // Unix time in ns
	limit      float64
	remaining  float64 // at the start, s
	deadline   float64
	announced  float64
	fresh      bool
	hop        int64
	source     string
	flags      []string
	degraded   []string
	failed     bool            // by its status
	has        map[string]bool // attributes
}

func (s span) server() bool { return s.kind == tracepb.Span_SPAN_KIND_SERVER }

// collect returns what was recorded, by start.
func (r *recorder) collect() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []span
	for _, rs := range r.spans {
		service := ""
		for _, kv := range rs.Resource.Attributes {
			if kv.Key == "service.name" {
				service = kv.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, p := range ss.Spans {
				s := span{
					service: service, kind: p.Kind, has: make(map[string]bool),
					trace: hex.EncodeToString(p.TraceId), id: hex.EncodeToString(p.SpanId),
					parent: hex.EncodeToString(p.ParentSpanId),
					start:  int64(p.StartTimeUnixNano), end: int64(p.EndTimeUnixNano),
					failed: p.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR,
				}
				for _, kv := range p.Attributes {
					s.has[kv.Key] = true
					var texts []string
					for _, v := range kv.Value.GetArrayValue().GetValues() {
						texts = append(texts, v.GetStringValue())
					}
					switch kv.Key {
					case attr.Limit:
						s.limit = kv.Value.GetDoubleValue()
					case attr.RemainingStart:
						s.remaining = kv.Value.GetDoubleValue()
					case attr.DeadlineRemaining:
						s.deadline = kv.Value.GetDoubleValue()
					case attr.AnnouncedRemaining:
						s.announced = kv.Value.GetDoubleValue()
					case attr.AnnouncedFresh:
						s.fresh = kv.Value.GetBoolValue()
					case attr.Hop:
						s.hop = kv.Value.GetIntValue()
					case attr.Source:
						s.source = kv.Value.GetStringValue()
					case attr.Flags:
						s.flags = texts
					case attr.Degraded:
						s.degraded = texts
					}
				}
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return int(a.start - b.start) })
	return all
}

// flagged counts the spans with any flag, and names one.
func flagged(spans []span) (n int, example span) {
	for _, s := range spans {
		if len(s.flags) > 0 {
			n++
			example = s
		}
	}
	return n, example
}

// scheduled is how long a busy machine may leave a request lying between Extract
// and a middleware inside, without that being called a reset. The resets of these
// tests are by much more.
const scheduled = 250 * time.Millisecond

// start starts a system that records its spans and ends with the test; stop ends
// it earlier and returns the spans.
func start(t *testing.T, cfg Config) (s *System, stop func() []span) {
	t.Helper()
	r := new(recorder)
	if cfg.Export == nil {
		cfg.Export = recordTo(r)
	}
	if cfg.Mode == "" {
		cfg.Mode = Propagated
	}
	if cfg.Fresh == 0 {
		cfg.Fresh = time.Second
	}
	if cfg.Max == 0 {
		cfg.Max = 10 * time.Second
	}
	if cfg.Tolerance == 0 {
		cfg.Tolerance = 5 * time.Millisecond
	}
	if cfg.Workers == 0 {
		cfg.Workers = 64
	}
	cfg.Log, cfg.Seed = silent, 1
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end := func() {
		once.Do(func() {
			if err := s.close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(end)
	return s, func() []span { end(); return r.collect() }
}

// send runs a load and returns its outcomes.
func send(t *testing.T, s *System, load Load) []Outcome {
	t.Helper()
	load.Seed = 1
	outcomes, err := load.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// chain is a row of services, each calling the next.
func chain(protocols []Protocol, work time.Duration) []Node {
	nodes := make([]Node, len(protocols))
	for i, protocol := range protocols {
		nodes[i] = Node{Name: string(rune('a' + i)), Protocol: protocol, Work: work}
		if i > 0 {
			nodes[i-1].Steps = []Step{{Calls: []string{nodes[i].Name}}}
		}
	}
	return nodes
}
