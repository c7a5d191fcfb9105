package latencybudgetprocessor

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// span is one span of a test, its times in ms. Like those of package finding it is
// named "caller>" on the side that calls and ">callee" on the side that is
// called: "edge>stock#2" is the second CLIENT span of edge for stock. A name
// without arrow is INTERNAL.
type span struct {
	name, under string
	start, end  float64
	attrs       map[string]any
	failed      bool
}

// budget is what a service stamps on a span that had so much left, in ms, under
// a deadline that is the same.
func budget(left float64) map[string]any { return deadline(left, left) }

// deadline is what it stamps where the deadline is another.
func deadline(left, deadline float64) map[string]any {
	limit := 0.8
	if left > 800 {
		limit = 2
	}
	return map[string]any{
		attr.Limit: limit, attr.RemainingStart: left / 1e3, attr.DeadlineRemaining: deadline / 1e3,
		attr.Source: attr.SourceContext,
	}
}

// with adds attributes to others.
func with(attrs map[string]any, more ...any) map[string]any {
	out := make(map[string]any, len(attrs)+len(more)/2)
	for k, v := range attrs {
		out[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

const (
	epoch = 1_800_000_000_000_000_000 // of all stories, Unix ns
	gone  = "gone"                    // the name of a parent that is not in the batch
)

// build makes the traces of stories, one trace each and all in one batch, a
// resource for each service.
func build(t testing.TB, stories ...[]span) ptrace.Traces {
	t.Helper()
	traces := ptrace.NewTraces()
	services := make(map[string]ptrace.SpanSlice)
	for n, story := range stories {
		ids := map[string]pcommon.SpanID{gone: {0: 0xff}}
		for i, s := range story {
			var id pcommon.SpanID
			binary.BigEndian.PutUint64(id[:], uint64(i+1))
			if _, twice := ids[s.name]; twice {
				t.Fatalf("two spans are named %s", s.name)
			}
			ids[s.name] = id
		}
		for _, s := range story {
			label, _, _ := strings.Cut(s.name, "#")
			before, after, arrow := strings.Cut(label, ">")
			kind, service := ptrace.SpanKindInternal, before
			switch {
			case arrow && before == "":
				kind, service = ptrace.SpanKindServer, after
			case arrow:
				kind = ptrace.SpanKindClient
			}
			if _, known := services[service]; !known {
				resource := traces.ResourceSpans().AppendEmpty()
				resource.Resource().Attributes().PutStr("service.name", service)
				services[service] = resource.ScopeSpans().AppendEmpty().Spans()
			}
			out := services[service].AppendEmpty()
			out.SetTraceID(pcommon.TraceID{15: byte(n + 1)})
			out.SetSpanID(ids[s.name])
			out.SetParentSpanID(ids[s.under])
			out.SetName(s.name)
			out.SetKind(kind)
			out.SetStartTimestamp(at(s.start))
			out.SetEndTimestamp(at(s.end))
			if s.failed {
				out.Status().SetCode(ptrace.StatusCodeError)
			}
			if err := out.Attributes().FromRaw(s.attrs); err != nil {
				t.Fatal(err)
			}
			out.Attributes().PutStr("http.request.method", "GET")
			out.Attributes().PutStr("http.route", "/op")
			if arrow && before != "" {
				out.Attributes().PutStr("server.address", after)
			}
		}
	}
	return traces
}

func at(ms float64) pcommon.Timestamp { return pcommon.Timestamp(epoch + int64(math.Round(ms*1e6))) }

// show writes what the processor set on each span, in order of trace and start.
func show(traces ptrace.Traces) string {
	type line struct {
		trace pcommon.TraceID
		start pcommon.Timestamp
		id    pcommon.SpanID
		text  string
	}
	var lines []line
	for _, s := range eachSpan(traces) {
		var set []string
		for k, v := range s.Attributes().All() {
			if key, ours := strings.CutPrefix(k, "latency_budget."); ours {
				text := v.AsString()
				if v.Type() == pcommon.ValueTypeDouble {
					text = fmt.Sprintf("%.4g", v.Double())
				}
				set = append(set, key+"="+text)
			}
		}
		slices.Sort(set)
		for _, e := range s.Events().All() {
			set = append(set, fmt.Sprintf("event %s %v", e.Name(), e.Attributes().AsRaw()))
		}
		lines = append(lines, line{s.TraceID(), s.StartTimestamp(), s.SpanID(), s.Name() + "\n\t" + strings.Join(set, "\n\t")})
	}
	slices.SortFunc(lines, func(a, b line) int {
		return strings.Compare(fmt.Sprint(a.trace, a.start, a.id, a.text), fmt.Sprint(b.trace, b.start, b.id, b.text))
	})
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&out, strings.TrimRight(l.text, "\n\t"))
	}
	return out.String()
}

func eachSpan(traces ptrace.Traces) []ptrace.Span {
	var out []ptrace.Span
	for _, resource := range traces.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				out = append(out, s)
			}
		}
	}
	return out
}

// The stories. What a rule finds in which shape is tested with the rules; here it
// is what the processor makes of it.
var stories = map[string][]span{
	// Calls in series under 800 ms, 30 of it before the first.
	//
	//	>gateway           |--------------------------------------| 800 left
	//	gateway>auth         |-| 25 of 770
	//	gateway>inventory      |-| 30 of 745
	//	gateway>coupon           |--| 45 of 715
	//	gateway>risk                |----------------| 600 of 700: 0.857
	//	gateway>persist                              |--| 70 of 100: 0.7
	"serial": {
		{name: ">gateway", start: 0, end: 775, attrs: budget(800)},
		{name: "gateway>auth", under: ">gateway", start: 0, end: 25, attrs: budget(800)},
		{name: "gateway>inventory", under: ">gateway", start: 25, end: 55, attrs: budget(775)},
		{name: "gateway>coupon", under: ">gateway", start: 55, end: 100, attrs: budget(745)},
		{name: "gateway>risk", under: ">gateway", start: 100, end: 700, attrs: budget(700)},
		{name: ">risk", under: "gateway>risk", start: 101, end: 699, attrs: budget(699)},
		{name: "gateway>persist", under: ">gateway", start: 700, end: 770, attrs: budget(100)},
		{name: "gateway", under: ">gateway", start: 770, end: 775},
	},
	// A proxy puts 15 s in place of 2 s.
	//
	//	>edge          |-----------------| 2000 left
	//	edge>proxy       |-------------|   1990
	//	>proxy            |-----------|    1989, deadline 15000: it set it
	//	proxy>stock         |-------|      1980, deadline 14991: handed on
	"reset": {
		{name: ">edge", start: 0, end: 100, attrs: budget(2000)},
		{name: "edge>proxy", under: ">edge", start: 10, end: 90, attrs: budget(1990)},
		{name: ">proxy", under: "edge>proxy", start: 11, end: 89, attrs: deadline(1989, 15000)},
		{name: "proxy>stock", under: ">proxy", start: 20, end: 80, attrs: deadline(1980, 14991)},
		{name: ">stock", under: "proxy>stock", start: 21, end: 79, attrs: deadline(1979, 14990)},
	},
	// The caller gives up after 100 ms, nothing is left for the retry, and the callee
	// of the first attempt works on.
	//
	//	>edge        |-----------------------|      100 left
	//	edge>stock#1 |--------timed out|            100
	//	>stock#1      |-----------------------|     99
	//	edge>stock#2                    |----|      0
	//	>stock#2                         |--|       nothing: the most important case
	"expired": {
		{name: ">edge", start: 0, end: 130, attrs: budget(100)},
		{name: "edge>stock#1", under: ">edge", start: 0, end: 100, failed: true, attrs: with(budget(100), "error.type", "timeout")},
		{name: ">stock#1", under: "edge>stock#1", start: 1, end: 150, attrs: budget(99)},
		{name: "edge>stock#2", under: ">edge", start: 105, end: 128, attrs: budget(0)},
		{name: ">stock#2", under: "edge>stock#2", start: 106, end: 127, attrs: budget(-6)},
	},
	// A CLIENT span calls without a deadline, and the service has said so itself.
	"dropped": {
		{name: ">edge", start: 0, end: 50, attrs: budget(300)},
		{name: "edge>stock", under: ">edge", start: 10, end: 40, attrs: map[string]any{
			attr.RemainingStart: 0.29, attr.Flags: []any{attr.FlagDeadlineDropped, attr.FlagAnnouncementStale},
		}},
	},
	// Spans of one process: the callers are in no batch with them.
	"partial": {
		{name: ">stock", under: gone, start: 0, end: 95, attrs: budget(100)},
		{name: "stock>db", under: ">stock", start: 5, end: 90, attrs: map[string]any{attr.DeadlineRemaining: 0.095}},
	},
	// Services of other languages: their instrumentation captured the headers that
	// came, under several conventions, or they write what is left themselves.
	//
	//	>edge         |-------------------------| x-timeout-budget-ms 300: its limit, too
	//	edge>stock       |---------------|        grpc-timeout 280m
	//	>stock            |-------------|         15 s by a header: a reset
	//	stock>db            |------|              deadline_remaining_ms 30
	"captured": {
		{name: ">edge", start: 0, end: 250, attrs: map[string]any{"http.request.header.x-timeout-budget-ms": []any{"300"}}},
		{name: "edge>stock", under: ">edge", start: 20, end: 240, attrs: map[string]any{"rpc.grpc.request.metadata.grpc_timeout": []any{"280m"}}},
		{name: ">stock", under: "edge>stock", start: 25, end: 235, attrs: map[string]any{"http.request.header.x_timeout_budget_ms": "15000"}},
		{name: "stock>db", under: ">stock", start: 50, end: 75, attrs: map[string]any{"deadline_remaining_ms": int64(30)}},
	},
	// The caller of the topmost span is not in the batch, but both halves of a call
	// are: children end first and are exported first. The callee completed, and the
	// caller had given up.
	//
	//	edge>stock   |-------timed out|
	//	>stock        |------------------|
	"halves": {
		{name: "edge>stock", under: gone, start: 0, end: 50, failed: true, attrs: with(budget(50), "error.type", "timeout")},
		{name: ">stock", under: "edge>stock", start: 1, end: 70},
	},
	// Work that is meant to outlive the request is nobody's overrun, nor is what it
	// calls; and attempts that one CLIENT span reports have no numbers.
	//
	//	>edge          |-----------|
	//	edge>mail         |------------------------|    detached
	//	>mail              |----------------------|
	//	edge>stock       |--------|
	//	edge>stock#1     |--f|
	//	edge>stock#2          |---|
	"detached": {
		{name: ">edge", start: 0, end: 90, attrs: budget(200)},
		{name: "edge>mail", under: ">edge", start: 50, end: 400, attrs: map[string]any{attr.Detached: true, attr.RemainingStart: 0.15}},
		{name: ">mail", under: "edge>mail", start: 51, end: 390, attrs: budget(149)},
		{name: "edge>stock", under: ">edge", start: 5, end: 45, attrs: budget(195)},
		{name: "edge>stock#1", under: "edge>stock", start: 5, end: 20, failed: true, attrs: budget(195)},
		{name: "edge>stock#2", under: "edge>stock", start: 25, end: 45, attrs: budget(175)},
	},
	// A WebSocket outlives what was left, with what is called in it: neither is judged.
	// Another one was opened too late.
	//
	//	>edge        |-------------|                        100 left
	//	edge>feed      |--------------------------------|   90, without a deadline
	//	>feed           |--------------------------------|
	//	feed>db                           |--|              nothing
	//	edge>late                    |-------------|        nothing
	"stream": {
		{name: ">edge", start: 0, end: 70, attrs: budget(100)},
		{name: "edge>feed", under: ">edge", start: 10, end: 600, attrs: map[string]any{
			attr.RemainingStart: 0.09, "http.response.status_code": int64(101),
		}},
		{name: ">feed", under: "edge>feed", start: 11, end: 601, attrs: map[string]any{attr.RemainingStart: 0.089}},
		{name: "feed", under: ">feed", start: 12, end: 600},
		{name: "feed>db", under: "feed", start: 300, end: 310, attrs: map[string]any{attr.RemainingStart: -0.2}},
		{name: "edge>late", under: ">edge", start: 120, end: 300, attrs: with(budget(-20), "http.response.status_code", int64(101))},
	},
	// Nothing says what was left.
	"plain": {
		{name: ">edge", start: 0, end: 50},
		{name: "edge>stock", under: ">edge", start: 10, end: 40},
	},
}
