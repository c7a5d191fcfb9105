package otlp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/otlp"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// names are the attributes by which a span can say something of its time, and some
// that are like them and say nothing.
func names() []string {
	out := []string{
		attr.Limit, attr.RemainingStart, attr.DeadlineRemaining, attr.AnnouncedRemaining, attr.AnnouncedFresh, attr.Source,
		"error", "error.type", "otel.status_code", "otel.status_description", "grpc.status_code", "rpc.grpc.status_code",
		"rpc.response.status_code", "rpc.connect_rpc.error_code", "http.status_code", "http.response.status_code",
		"deadline_remaining_ms", "app.left", "http.route", "http.request.method", "rpc.method", "peer.service", "",
	}
	for _, prefix := range []string{"http.request.header.", "rpc.request.metadata.", "rpc.grpc.request.metadata.", "rpc.connect_rpc.request.metadata."} {
		for _, h := range []string{
			"x-timeout-budget-ms", "connect-timeout-ms", "grpc-timeout", "x-request-deadline", "x-envoy-expected-rq-timeout-ms",
			"latency-budget-observed", "user-agent",
		} {
			out = append(out, prefix+h, prefix+strings.ReplaceAll(h, "-", "_"))
		}
	}
	return out
}

func put(rng *rand.Rand, s ptrace.Span, name string) {
	texts := []string{
		"504", "499", "4", "1", "200", "0", "context deadline exceeded", "CANCELLED", "timeout", "300", "300m", "", "false", "ERROR", "derived",
		`obs1;r=254.318;t=300;h=2;s="00f067aa0ba902b7"`, "CONNECT", "ws", "SERVER_STREAMING", "subscription", "text/event-stream", "101",
	}
	v := s.Attributes().PutEmpty(name)
	kind := rng.IntN(6)
	if kind == 5 { // a list, of one or two
		list := v.SetEmptySlice()
		v = list.AppendEmpty()
		if rng.IntN(4) == 0 {
			list.AppendEmpty().SetStr("300")
		}
		kind = rng.IntN(4)
	}
	switch text := texts[rng.IntN(len(texts))]; kind {
	case 0:
		v.SetStr(text)
	case 1:
		v.SetInt([]int64{0, 1, 4, 200, 499, 504, 300, 101}[rng.IntN(8)])
	case 2:
		v.SetDouble([]float64{0, 1, 4, 504, 0.25}[rng.IntN(5)])
	case 3:
		v.SetBool(rng.IntN(2) == 0)
	case 4:
		v.SetEmptySlice().AppendEmpty().SetStr(text)
	}
}

// streamNames are the attributes by which a span can say that it is a stream.
var streamNames = []string{
	"url.scheme", "http.scheme", "rpc.type", "grpc.method_type", "grpc.method.kind", "grpc.sent.message_count",
	"grpc.received.message_count", "graphql.operation.type", "http.response.header.content-type", "http.response.header.content_type",
	"message.type", "sequence-number", "event",
}

func putText(rng *rand.Rand, to pcommon.Map, name string) {
	if rng.IntN(3) == 0 {
		to.PutInt(name, rng.Int64N(3))
	} else {
		to.PutStr(name, []string{"SENT", "RECEIVED", "1", "x"}[rng.IntN(4)])
	}
}

// What Telling passes over says nothing, whatever attributes a span has.
func TestTellingMissesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	keys := names()
	var reader otlp.Reader
	reader.Remaining = append(trace.DefaultRemainingAttributes(), trace.RemainingAttribute{Name: "app.left", Unit: 1000})
	reader.Reset()
	telling, quiet := 0, 0
	for range 50_000 {
		traces := ptrace.NewTraces()
		s := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{1})
		s.SetStartTimestamp(1)
		s.SetEndTimestamp(2)
		s.SetKind(ptrace.SpanKind(rng.IntN(6)))
		if rng.IntN(10) == 0 {
			s.Status().SetCode(ptrace.StatusCode(rng.IntN(3)))
			s.Status().SetMessage([]string{"context deadline exceeded", "context canceled", "x"}[rng.IntN(3)])
		}
		for range 1 + rng.IntN(2) {
			put(rng, s, keys[rng.IntN(len(keys))])
		}
		reader.Reset()
		reader.Read(traces, func(got *trace.Span) {
			says := got.Stamp != nil && (got.Stamp.HasRemaining || got.Stamp.HasDeadline) ||
				got.Outcome == trace.OutcomeTimedOut || got.Outcome == trace.OutcomeCancelled
			switch {
			case says && !reader.Telling(s):
				t.Fatalf("passed over: %v, status %v", fmt.Sprint(s.Attributes().AsRaw()), s.Status().Code())
			case says:
				telling++
			case !reader.Telling(s):
				quiet++
			}
		})
	}
	if telling < 1000 || quiet < 1000 {
		t.Errorf("%d spans tell something, %d are passed over: the test shows little", telling, quiet)
	}
}

// A span says the same in a Collector and in the file that it writes.
func TestSpansSayTheSameInFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	keys := append(names(), streamNames...)
	keys = append(keys, "latency_budget.detached", "http.request.header.idempotency-key", "host.name", "span.kind", "db.system")
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range uint32(5_000) {
		s := spans.AppendEmpty()
		var id pcommon.SpanID
		binary.BigEndian.PutUint32(id[:], i+1)
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(id)
		s.SetName("x")
		times := []pcommon.Timestamp{0, 1, 1e18, trace.DurationBound - 1, trace.DurationBound, trace.TimeBound - 1, trace.TimeBound, math.MaxUint64}
		s.SetStartTimestamp(1e18)
		s.SetEndTimestamp(2e18)
		if rng.IntN(4) == 0 {
			s.SetStartTimestamp(times[rng.IntN(len(times))])
			s.SetEndTimestamp(times[rng.IntN(len(times))])
		}
		s.SetKind(ptrace.SpanKind(rng.IntN(6)))
		if rng.IntN(2) == 0 {
			s.SetParentSpanID(pcommon.SpanID{1})
		}
		for range 1 + rng.IntN(3) {
			put(rng, s, keys[rng.IntN(len(keys))])
		}
		for range rng.IntN(6) {
			e := s.Events().AppendEmpty()
			e.SetName([]string{"message", "Inbound message", "Outbound message", "exception"}[rng.IntN(4)])
			putText(rng, e.Attributes(), []string{"message.type", "rpc.message.type", "sequence-number", "message.id"}[rng.IntN(4)])
		}
	}
	streams := 0
	want := make(map[trace.SpanID]trace.Span)
	var reader otlp.Reader
	reader.Read(traces, func(s *trace.Span) {
		want[s.ID] = *s
		if s.Is(trace.FlagStream) {
			streams++
		}
	})
	if streams < len(want)/20 || streams > len(want)/2 {
		t.Errorf("%d of %d spans are streams: the test shows little", streams, len(want))
	}

	asJSON, err := new(ptrace.JSONMarshaler).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	asProto, err := new(ptrace.ProtoMarshaler).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	for format, file := range map[string][]byte{"otlp-json": asJSON, "otlp-proto": asProto} {
		src, err := source.Open([]string{"-"}, bytes.NewReader(file), source.Options{Format: format})
		if err != nil {
			t.Fatal(err)
		}
		n, differ := 0, 0
		for batch, err := range src.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range batch.Spans {
				n++
				if diff := cmp.Diff(want[got.ID], got, cmpopts.IgnoreFields(trace.Span{}, "Ref")); diff != "" {
					differ++
					if differ < 4 {
						at := binary.BigEndian.Uint32(got.ID[:]) - 1
						t.Errorf("%s, %v (-pdata +file):\n%s", format, spans.At(int(at)).Attributes().AsRaw(), diff)
					}
				}
			}
		}
		if n != len(want) || differ > 0 {
			t.Errorf("%s: %d spans, %d of them differ, want %d the same", format, n, differ, len(want))
		}
	}
}

// Descriptions are kept up to a bound, however many there are.
func TestMemoryIsBounded(t *testing.T) {
	var reader otlp.Reader
	var first *trace.Desc
	traces := ptrace.NewTraces()
	s := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{1})
	forgot := false
	for i := range 40_000 {
		s.SetName("first")
		if i%100 != 0 {
			s.SetName(fmt.Sprintf("x%dy", i))
		}
		reader.Reset()
		reader.Read(traces, func(got *trace.Span) {
			if i%100 != 0 {
				return
			}
			forgot = forgot || first != nil && first != got.Desc
			first = got.Desc
		})
	}
	if !forgot {
		t.Error("40,000 descriptions are kept")
	}
}
