package latencybudgetprocessor

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	files "github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/otlp"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// hostile makes a batch of traces that nobody should send: parents in circles, of
// their own or missing, ids and attributes twice, clocks that run backwards, figures
// that are no numbers or of the wrong type, names in any script and none.
type hostile struct {
	rng    *rand.Rand
	traces ptrace.Traces
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

var hostileKeys = []string{
	attr.Limit, attr.RemainingStart, attr.RemainingEnd, attr.DeadlineRemaining, attr.AnnouncedRemaining,
	attr.AnnouncedFresh, attr.Source, attr.Flags, attr.Reset, attr.Partial, attr.Utilization, attr.Consumed,
	attr.Attempt, attr.Detached, attr.PlanRevision, attr.WorkAfter, attr.Caller, "deadline_remaining_ms", "app.left",
	"http.request.header.x-timeout-budget-ms", "http.request.header.x-request-deadline", "http.request.header.x_envoy_expected_rq_timeout_ms",
	"rpc.request.metadata.latency-budget-observed", "http.status_code", "error", "", "span.kind", "peer.service", "db.system",
}

var hostileNames = []string{
	"a", "b", "支付服务", "שירות", "\x1b]0;pwn\a", "\xff\xfe", "", strings.Repeat("x", 300), "GET /users/12345", "e\u202egnp",
}

// twin is the name of an attribute that is to have the name key as another has.
func twin(key string) string { return "\x01" + key[min(1, len(key)):] }

func hostileBatch(t testing.TB, rng *rand.Rand, traces int) ptrace.Traces {
	h := &hostile{rng, ptrace.NewTraces()}
	for i := range traces {
		h.trace(i)
	}
	text, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(h.traces)
	if err != nil {
		t.Fatal(err)
	}
	// Maps of pdata have each name once; what comes from elsewhere may not.
	for _, key := range hostileKeys {
		if key != "" {
			text = bytes.ReplaceAll(text, []byte(twin(key)), []byte(key))
		}
	}
	out, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *hostile) trace(number int) {
	rng := h.rng
	n := 1 + rng.IntN(9)
	id := pcommon.TraceID{0: 1, 15: byte(number + 1)}
	type made struct {
		kind       ptrace.SpanKind
		service    string
		start, end int64
		left       float64
	}
	all := make([]made, n)
	strange := rng.IntN(3) == 0
	services := hostileNames[:3]
	if strange {
		services = hostileNames
	}
	spanID := func(i int) pcommon.SpanID {
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], uint64(i+1))
		return id
	}
	for i := range n {
		s := ptrace.NewSpan()
		s.SetTraceID(id)
		s.SetSpanID(spanID(i))
		m := &all[i]
		parent := -1
		if i > 0 {
			parent = rng.IntN(i)
			if rng.IntN(2) == 0 {
				parent = i - 1
			}
			s.SetParentSpanID(spanID(parent))
		}
		m.kind = ptrace.SpanKindServer
		m.service = pick(rng, services...)
		m.start, m.end = epoch, epoch+int64(rng.IntN(300e6))
		m.left = pick(rng, 0.05, 0.1, 0.3, 0.8, 2.0)
		if parent >= 0 {
			p := all[parent]
			m.kind = pick(rng, ptrace.SpanKindClient, ptrace.SpanKindClient, ptrace.SpanKindInternal, ptrace.SpanKindServer)
			m.service = p.service
			if p.kind == ptrace.SpanKindClient {
				m.kind, m.service = ptrace.SpanKindServer, pick(rng, services...)
				if rng.IntN(5) == 0 {
					m.kind, m.service = ptrace.SpanKindClient, p.service
				}
			}
			length := max(p.end-p.start, 2)
			m.start = p.start + rng.Int64N(length)
			m.end = m.start + rng.Int64N(max(p.end-m.start, 1)+1)
			if rng.IntN(4) == 0 {
				m.end += rng.Int64N(100e6)
			}
			if rng.IntN(4) == 0 {
				m.start, m.end = m.start+rng.Int64N(100e6)-50e6, m.end+rng.Int64N(100e6)-50e6
			}
			m.left = p.left - float64(m.start-p.start)/1e9
			switch rng.IntN(6) {
			case 0:
				m.left = pick(rng, 0, 0, -0.001, 0.001, 0.3, 15)
			case 1:
				m.left *= 1.03
			}
		}
		start, end := m.start, m.end
		if strange {
			switch rng.IntN(25) {
			case 0:
				end = start
			case 1:
				start, end = end, start
			case 2:
				start = 0
			case 3:
				end = 0
			case 4:
				end = start + 48*3600e9
			case 5:
				s.SetParentSpanID(s.SpanID())
			case 6:
				s.SetParentSpanID(spanID(i + 1 + rng.IntN(3)))
			case 7:
				s.SetParentSpanID(pcommon.SpanID{0xff})
			case 8:
				s.SetSpanID(spanID(rng.IntN(i + 1)))
			case 9:
				m.kind = pick(rng, ptrace.SpanKindUnspecified, ptrace.SpanKindProducer, ptrace.SpanKindConsumer, 99)
			case 10:
				l := s.Links().AppendEmpty()
				l.SetTraceID(id)
				l.SetSpanID(spanID(rng.IntN(n)))
			case 11:
				s.SetSpanID(pcommon.SpanID{})
			case 12:
				start, end = -1, math.MinInt64+5
			case 13:
				s.SetParentSpanID(pcommon.SpanID{})
			}
		}
		s.SetStartTimestamp(pcommon.Timestamp(start))
		s.SetEndTimestamp(pcommon.Timestamp(end))
		s.SetKind(m.kind)
		s.SetFlags(pick(rng, uint32(0), 0x100, 0x300, 0xffffffff))
		s.SetName(pick(rng, services...))
		s.TraceState().FromRaw(pick(rng, "", "", "ot=th:8", "ot=th:xyz"))
		h.outcome(s)
		h.attributes(s, m.left, strange)
		h.put(s, m.service)
	}
}

func (h *hostile) outcome(s ptrace.Span) {
	switch a := s.Attributes(); h.rng.IntN(8) {
	case 0:
		a.PutStr("error.type", pick(h.rng, "timeout", "504", "499", "canceled", "x"))
		s.Status().SetCode(ptrace.StatusCodeError)
	case 1:
		a.PutInt("rpc.grpc.status_code", pick(h.rng, int64(0), 1, 3, 4, 14))
	case 2:
		s.Status().SetMessage("x: context " + pick(h.rng, "deadline exceeded", "canceled"))
		s.Status().SetCode(ptrace.StatusCodeError)
	}
}

func (h *hostile) attributes(s ptrace.Span, left float64, strange bool) {
	rng, a := h.rng, s.Attributes()
	left = math.Round(left*1e6) / 1e6
	if rng.IntN(3) > 0 {
		a.PutStr("http.request.method", pick(rng, "GET", "POST"))
		a.PutStr("http.route", pick(rng, "/a", "/b"))
	}
	if rng.IntN(3) > 0 {
		a.PutStr("server.address", pick(rng, "a", "b", "支付服务"))
	}
	switch rng.IntN(8) {
	case 0: // says nothing
	case 1:
		a.PutInt("deadline_remaining_ms", int64(left*1e3))
	case 2:
		a.PutEmptySlice("http.request.header.x-timeout-budget-ms").AppendEmpty().SetStr(fmt.Sprint(int64(max(left, 0) * 1e3)))
	case 3:
		a.PutStr("rpc.grpc.request.metadata.grpc_timeout", fmt.Sprint(int64(max(left, 0)*1e6), "u"))
	default:
		a.PutDouble(attr.Limit, 2)
		a.PutDouble(attr.RemainingStart, left)
		a.PutStr(attr.Source, pick(rng, attr.SourceContext, attr.SourceContext, attr.SourceHeaderAbsolute))
		switch rng.IntN(8) {
		case 0:
		case 1:
			a.PutDouble(attr.DeadlineRemaining, 15)
		default:
			a.PutDouble(attr.DeadlineRemaining, left)
		}
	}
	if !strange {
		return
	}
	for range rng.IntN(4) {
		key := pick(rng, hostileKeys...)
		if rng.IntN(6) == 0 { // a span that lost this one
			a.Remove(key)
			continue
		}
		v := a.PutEmpty(key)
		if rng.IntN(6) == 0 { // another of the same name
			v = a.PutEmpty(twin(key))
		}
		h.value(v)
	}
	for range rng.IntN(3) {
		e := s.Events().AppendEmpty()
		e.SetName(pick(rng, "message", "", "exception", flaggedEvent, "rpc.message"))
		e.Attributes().PutStr(pick(rng, "message.type", "rpc.message.type", "event", ""), pick(rng, "SENT", "RECEIVED", "message", "\xff"))
		h.value(e.Attributes().PutEmpty(pick(rng, "sequence-number", "message.id", "message.type")))
	}
	if rng.IntN(20) == 0 {
		for i := a.Len(); i < 128; i++ {
			a.PutInt(fmt.Sprint("n", i), 1)
		}
	}
}

func (h *hostile) value(v pcommon.Value) {
	rng := h.rng
	switch rng.IntN(12) {
	case 0:
		v.SetDouble(pick(rng, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, 1e-300, math.MaxInt64))
	case 1, 2:
		v.SetDouble(pick(rng, 0, math.Copysign(0, -1), -0.1, 0.1, 0.3, 2, 15, 4000, 1e5, 0.0000004))
	case 3:
		v.SetInt(pick[int64](rng, 0, 1, -1, 300, math.MaxInt64, math.MinInt64, 504, 1_800_000_000_100))
	case 4:
		v.SetStr(pick(rng, "", "0.3", "300", "abc", "NaN", "derived", "header_absolute", "context", "true", "false", "server", "client",
			"wss", "SERVER_STREAMING", "bidi_streaming", "subscription", "text/event-stream",
			`obs1;r=254.318;t=300;h=2;s="0000000000000001"`, "1800000000100", "99999999999999999999"))
	case 5:
		v.SetBool(rng.IntN(2) == 0)
	case 6:
		v.SetEmptySlice().AppendEmpty().SetStr(pick(rng, "300", "deadline_extended", "overrun", "x"))
	case 7:
		v.SetEmptyMap().PutStr("a", "b")
	case 8:
		v.SetEmptyBytes().Append(1, 2)
	case 9: // nothing
	default:
		v.SetStr(pick(rng, hostileNames...))
	}
}

// put files a span under its service, in one of several resources.
func (h *hostile) put(s ptrace.Span, service string) {
	host := pick(h.rng, "", "h1")
	rs := h.traces.ResourceSpans()
	for _, r := range rs.All() {
		v, _ := r.Resource().Attributes().Get("service.name")
		w, _ := r.Resource().Attributes().Get("host.name")
		if v.Str() == service && (host == "" && w == (pcommon.Value{}) || host != "" && w != (pcommon.Value{})) && h.rng.IntN(10) > 0 {
			s.MoveTo(r.ScopeSpans().At(0).Spans().AppendEmpty())
			return
		}
	}
	r := rs.AppendEmpty()
	r.Resource().Attributes().PutStr("service.name", service)
	if host != "" {
		r.Resource().Attributes().PutStr("host.name", host)
	}
	s.MoveTo(r.ScopeSpans().AppendEmpty().Spans().AppendEmpty())
}

func clone(in ptrace.Traces) ptrace.Traces {
	out := ptrace.NewTraces()
	in.CopyTo(out)
	return out
}

// shuffled is the same spans in another order, in other resources and scopes.
func shuffled(rng *rand.Rand, in ptrace.Traces) ptrace.Traces {
	out := ptrace.NewTraces()
	type at struct {
		resource pcommon.Resource
		span     ptrace.Span
	}
	var all []at
	for _, r := range in.ResourceSpans().All() {
		for _, sc := range r.ScopeSpans().All() {
			for _, s := range sc.Spans().All() {
				all = append(all, at{r.Resource(), s})
			}
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, a := range all {
		r := out.ResourceSpans().AppendEmpty()
		a.resource.CopyTo(r.Resource())
		a.span.CopyTo(r.ScopeSpans().AppendEmpty().Spans().AppendEmpty())
	}
	return out
}

// foundOn lists the findings that stand on the spans.
func foundOn(in ptrace.Traces) (out []string) {
	for _, s := range eachSpan(in) {
		found, set := s.Attributes().Get(attr.Findings)
		if !set {
			continue
		}
		for _, f := range found.Slice().AsRaw() {
			out = append(out, fmt.Sprint(s.TraceID(), s.SpanID(), f))
		}
	}
	slices.Sort(out)
	return out
}

// written is a source of the spans in the file that a Collector writes.
func written(t testing.TB, in ptrace.Traces, format string) trace.Source {
	t.Helper()
	var file []byte
	var err error
	if format == "otlp-json" {
		file, err = (&ptrace.JSONMarshaler{}).MarshalTraces(in)
	} else {
		file, err = (&ptrace.ProtoMarshaler{}).MarshalTraces(in)
	}
	if err != nil {
		t.Fatal(err)
	}
	src, err := files.Open([]string{"-"}, bytes.NewReader(file), files.Options{Format: format})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// findingsInFile runs the rules on what a reader of files makes of the traces: on all
// that stand alone in them, as the processor does.
func findingsInFile(t testing.TB, in ptrace.Traces, format string, by *plan.Index, allow []string) (out []string) {
	t.Helper()
	allowed := finding.NewAllowed(allow)
	members := make(map[trace.TraceID][]trace.Span)
	for batch, err := range written(t, in, format).Batches(t.Context()) {
		if err != nil {
			continue // none of the spans can be used
		}
		for _, s := range batch.Spans {
			members[s.TraceID] = append(members[s.TraceID], s)
		}
	}
	for _, spans := range members {
		t := trace.NewTrace(spans)
		var entries []int32
		for i, p := range t.Parent {
			if p < 0 {
				entries = append(entries, int32(i))
			}
		}
		for len(entries) > 0 {
			entry := entries[0]
			entries = entries[1:]
			if t.Spans[entry].Is(trace.FlagUnmeasured) {
				entries = append(entries, t.Children(entry)...)
				continue
			}
			var tree trace.Tree
			tree.Build(t, entry, new(trace.Paths), nil)
			async := func(call int32) bool { return allowed.Has(&tree, call) }
			request := finding.NewRequest(&tree, async, finding.Defaults)
			request.Plan = by
			for _, rule := range finding.Rules() {
				rule.Check(request, func(f finding.Finding) {
					if rule.Flag != "" {
						out = append(out, fmt.Sprint(t.ID, t.Spans[f.Span].ID, rule.Flag))
					}
				})
			}
		}
	}
	slices.Sort(out)
	return out
}

// asJSON is a batch for people.
func asJSON(t testing.TB, in ptrace.Traces) string {
	t.Helper()
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whatever spans come: only what is ours changes; their order, and their split over
// resources and scopes, do not matter; a second Collector changes nothing; and the rules
// find the same in the files that Collectors before and behind write.
func TestHostileSpansAreJudgedLikeAnyOther(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 200
	}
	planned := defaults()
	planned.BudgetsFile = filepath.Join("testdata", "hostile.yaml")
	planned.FlaggedEvent = true
	allowing := defaults()
	allowing.AllowDetached = []string{"a GET /a", "* POST*", "支*"}
	text, err := os.ReadFile(planned.BudgetsFile)
	if err != nil {
		t.Fatal(err)
	}
	read, err := plan.Read(planned.BudgetsFile, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		config *Config
		by     *plan.Index
	}{"stamps": {defaults(), nil}, "plan": {planned, plan.NewIndex(read)}, "allowed": {allowing, nil}} {
		t.Run(name, func(t *testing.T) {
			flagged := 0
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 5))
				in := hostileBatch(t, rng, 1+rng.IntN(3))
				same := func(law, diff string) {
					t.Helper()
					if diff != "" {
						t.Fatalf("seed %d, %s:\n%s\n%s", seed, law, diff, asJSON(t, in))
					}
				}
				out := run(t, test.config, clone(in))
				once, found := show(out), foundOn(out)
				flagged += len(found)
				same("-in +out", cmp.Diff(rest(t, withoutEvents(in)), rest(t, withoutEvents(out))))
				same("-once +twice", cmp.Diff(once, show(run(t, test.config, clone(out)))))
				same("-as it came +shuffled", cmp.Diff(once, show(run(t, test.config, shuffled(rng, in)))))
				same("-once +twice, shuffled", cmp.Diff(found, foundOn(run(t, test.config, shuffled(rng, out)))))
				for _, format := range []string{"otlp-json", "otlp-proto"} {
					same("-before +behind, "+format, cmp.Diff(findingsInFile(t, in, format, test.by, test.config.AllowDetached), found))
					same("-behind it +behind, "+format, cmp.Diff(findingsInFile(t, out, format, test.by, test.config.AllowDetached), found))
				}
			}
			if flagged < int(seeds) {
				t.Errorf("%d findings in %d batches: the test shows little", flagged, seeds)
			}
		})
	}
}

// withoutEvents is a copy without events like those that the processor adds.
func withoutEvents(in ptrace.Traces) ptrace.Traces {
	out := clone(in)
	for _, s := range eachSpan(out) {
		s.Events().RemoveIf(func(e ptrace.SpanEvent) bool { return e.Name() == flaggedEvent })
	}
	return out
}

// plainRequests tells whether all topmost spans of the traces are SERVER spans that
// can be measured, and no span begins when the one above it is over.
func plainRequests(in ptrace.Traces) bool {
	var spans otlp.Reader
	members := make(map[trace.TraceID][]trace.Span)
	spans.Read(in, func(s *trace.Span) { members[s.TraceID] = append(members[s.TraceID], *s) })
	for _, spans := range members {
		t := trace.NewTrace(spans)
		for i, p := range t.Parent {
			s := &t.Spans[i]
			if p < 0 && (s.Kind != trace.KindServer || s.Is(trace.FlagUnmeasured)) || p >= 0 && s.Start > t.Spans[p].End() {
				return false
			}
		}
	}
	return true
}

// What budgetctl finds in requests, the processor flags too. It flags more than that:
// budgetctl leaves out what it cannot take for a whole request, and learns from many of
// them what nobody waits for.
func TestWhatAnalyzeFindsIsFlagged(t *testing.T) {
	seeds := uint64(6000)
	if testing.Short() {
		seeds = 600
	}
	compared, differ := 0, 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 9))
		in := hostileBatch(t, rng, 1)
		if !plainRequests(in) {
			continue // budgetctl looks at what is below, the processor at all
		}
		out := run(t, defaults(), clone(in))
		report, err := analyzer.Analyze(t.Context(), analyzer.Config{Top: 1000}, written(t, in, "otlp-proto"))
		if err != nil {
			continue // no whole request
		}
		got, want := make(map[string]int), make(map[string]int)
		whole := len(report.Input.LeftOut) == 0
		for _, e := range report.Endpoints {
			for _, f := range e.Findings {
				if flag := finding.Named(f.Rule).Flag; flag != "" && flag != attr.FlagDoomedCall { // doomed by a P50
					want[flag] += f.Count
				}
			}
			whole = whole && !slices.ContainsFunc(e.Hops, func(h analyzer.Hop) bool { return h.Kind == "async" })
		}
		for _, f := range foundOn(out) {
			got[f[len("tttttttttttttttttttttttttttttttt ssssssssssssssss"):]]++
		}
		compared++
		if !maps.Equal(got, want) {
			differ++
		}
		for _, rule := range flagging {
			flag := rule.Flag
			if got[flag] < want[flag] || whole && got[flag] > want[flag] {
				t.Fatalf("seed %d, %s: %d flags, %d findings\n%s", seed, flag, got[flag], want[flag], asJSON(t, in))
			}
		}
	}
	if compared < int(seeds)/4 || compared-differ < compared/2 {
		t.Errorf("%d of %d batches compared, %d differ: the test shows little", compared, seeds, differ)
	}
}

// A report does not depend on the order of hostile spans either, nor on the format of the file.
func TestReportsOfHostileSpansAreTheSameInAnyOrder(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 30
	}
	config := analyzer.Config{Top: 1000, AllowDetached: []string{"a GET /a", "支*"}}
	findings := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 21))
		in := hostileBatch(t, rng, 1+rng.IntN(40))
		report := func(in ptrace.Traces, format string) string {
			r, err := analyzer.Analyze(t.Context(), config, written(t, in, format))
			if err != nil {
				return err.Error()
			}
			r.Input.Files, r.Input.Notes = nil, nil // a resource of each span's own repeats what is wrong with it
			for i := range r.Endpoints {
				findings += len(r.Endpoints[i].Findings)
			}
			text, err := json.MarshalIndent(r, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		want := report(in, "otlp-proto")
		for _, format := range []string{"otlp-proto", "otlp-json"} {
			if diff := cmp.Diff(want, report(shuffled(rng, in), format)); diff != "" {
				t.Fatalf("seed %d, shuffled and in %s:\n%s\n%s", seed, format, diff, asJSON(t, in))
			}
		}
	}
	if findings < int(seeds) {
		t.Errorf("%d findings in %d files: the test shows little", findings, seeds)
	}
}

// verdictsOn lists what judged spans have, but for findings.
func verdictsOn(in ptrace.Traces) (out []string) {
	for _, s := range eachSpan(in) {
		line := fmt.Sprint(s.TraceID(), s.SpanID())
		for _, key := range []string{attr.Caller, attr.Callee, attr.Operation, attr.Utilization, attr.Consumed, attr.Partial, attr.Attempt, attr.PlanRevision} {
			if v, set := s.Attributes().Get(key); set {
				line += " " + key + "=" + v.AsString()
			}
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// A first tier of Collectors sees the spans of one process each, a second one whole traces: it finds
// what it would have found alone.
func TestASecondTierFindsWhatItWouldFindAlone(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	differ := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 41))
		in := hostileBatch(t, rng, 1+rng.IntN(3))
		var first []string
		whole := ptrace.NewTraces()
		for _, r := range clone(in).ResourceSpans().All() {
			part := ptrace.NewTraces()
			r.MoveTo(part.ResourceSpans().AppendEmpty())
			part = run(t, defaults(), part)
			first = append(first, foundOn(part)...)
			part.ResourceSpans().MoveAndAppendTo(whole.ResourceSpans())
		}
		alone := run(t, defaults(), clone(in))
		want := foundOn(alone)
		slices.Sort(first)
		if !slices.Equal(first, want) {
			differ++
		}
		behind := run(t, defaults(), whole)
		if diff := cmp.Diff(want, foundOn(behind)); diff != "" {
			t.Fatalf("seed %d (-alone +behind others):\n%s\n%s", seed, diff, asJSON(t, in))
		}
		if diff := cmp.Diff(verdictsOn(alone), verdictsOn(behind)); diff != "" {
			t.Fatalf("seed %d, besides findings (-alone +behind others):\n%s\n%s", seed, diff, asJSON(t, in))
		}
	}
	if differ < int(seeds)/10 {
		t.Errorf("in %d of %d traces the first tier finds something else: the test shows little", differ, seeds)
	}
}

// Each span is counted once: as judged, or under the reason why not; and each finding once.
func TestHostileSpansAreCountedOnce(t *testing.T) {
	config := defaults()
	config.AllowDetached = []string{"b *"}
	remaining, err := config.remaining()
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge(config, remaining, newHopNames(config.MaxHops))
	for seed := range uint64(1000) {
		in := hostileBatch(t, rand.New(rand.NewPCG(seed, 31)), 3)
		got := j.judge(in, nil)
		spans, flags := int64(0), int64(0)
		for _, n := range append(got.judged[:], got.unjudged[:]...) {
			spans += n
			if n < 0 {
				t.Errorf("seed %d: %+v", seed, got)
			}
		}
		for _, n := range got.flags {
			flags += n
		}
		if found := foundOn(in); spans != int64(in.SpanCount()) || flags != int64(len(found)) {
			t.Fatalf("seed %d: %d of %d spans and %d of %d findings are counted: %+v\n%s", seed, spans, in.SpanCount(), flags, len(found), got, asJSON(t, in))
		}
	}
}

// heapSize is the memory in use, with what lies in pools: that survives one collection.
func heapSize() int64 {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return int64(mem.HeapAlloc)
}

// A batch may be of any size; what it takes is given up with it.
func TestTheMemoryOfAHugeBatchIsGivenUp(t *testing.T) {
	const spans = 200_000
	batch := func(n int) ptrace.Traces {
		traces := ptrace.NewTraces()
		to := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		to.EnsureCapacity(n)
		for i := range uint32(n) {
			s := to.AppendEmpty()
			id := pcommon.TraceID{15: 1}
			binary.BigEndian.PutUint32(id[:], i)
			s.SetTraceID(id)
			s.SetSpanID(pcommon.SpanID{1})
			s.SetKind(ptrace.SpanKindClient)
			s.SetStartTimestamp(at(0))
			s.SetEndTimestamp(at(90))
			s.Attributes().PutDouble(attr.RemainingStart, 0.1)
		}
		return traces
	}
	p := start(t, defaults(), new(counting))
	for _, n := range []int{10, spans} {
		before := heapSize()
		if err := p.ConsumeTraces(t.Context(), batch(n)); err != nil {
			t.Fatal(err)
		}
		if grew := heapSize() - before; grew > spans*50 {
			t.Errorf("%d bytes are kept of a batch of %d spans", grew, n)
		}
	}
}

// Names are kept, so that each is made once, and those of hops for as long as the
// Collector runs. Some services put whole statements and payloads into them.
func TestLongNamesAreNotKept(t *testing.T) {
	const spans, length = 400, 256 << 10
	p := start(t, defaults(), new(counting))
	before := heapSize()
	for i := range spans {
		name := fmt.Sprint(strings.Repeat("x", length), i, "y")
		one := build(t, []span{{name: ">edge", start: 0, end: 90, attrs: budget(100)}})
		s := eachSpan(one)[0]
		s.SetName(name)
		s.Attributes().Remove("http.route")
		if err := p.ConsumeTraces(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	if grew := heapSize() - before; grew > spans*length/4 {
		t.Errorf("%d bytes of %d are kept", grew, spans*length)
	}
}

// However the spans of healthy requests are spread over batches: clocks that differ, libraries that
// send 3 % more, and callers that are somewhere else make no reset and no dropped deadline.
func TestHealthyRequestsInPartsHaveNoResets(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, left := range []int64{100e9, 100e6, 30e6} {
		whole := drawnBatch(t, 40, left)
		skew := make(map[string]int64)
		for _, r := range whole.ResourceSpans().All() {
			service, _ := r.Resource().Attributes().Get("service.name")
			if _, known := skew[service.Str()]; !known {
				skew[service.Str()] = rng.Int64N(100e6) - 50e6
			}
			for _, scope := range r.ScopeSpans().All() {
				for _, s := range scope.Spans().All() {
					s.SetStartTimestamp(pcommon.Timestamp(int64(s.StartTimestamp()) + skew[service.Str()]))
					s.SetEndTimestamp(pcommon.Timestamp(int64(s.EndTimestamp()) + skew[service.Str()]))
					remaining, stamped := s.Attributes().Get(attr.RemainingStart)
					if s.Kind() != ptrace.SpanKindServer || !stamped || rng.IntN(3) > 0 {
						continue
					}
					deadline, _ := s.Attributes().Get(attr.DeadlineRemaining)
					more := 1 + 0.03*rng.Float64()
					deadline.SetDouble(deadline.Double() + (more-1)*math.Abs(deadline.Double()))
					if rng.IntN(2) == 0 {
						remaining.SetDouble(deadline.Double())
					}
				}
			}
		}
		judged := 0
		for parts := range 4 {
			batches := make([]ptrace.Traces, 1+parts)
			for i := range batches {
				batches[i] = ptrace.NewTraces()
			}
			for _, r := range shuffled(rng, whole).ResourceSpans().All() {
				r.MoveTo(batches[rng.IntN(len(batches))].ResourceSpans().AppendEmpty())
			}
			for _, in := range batches {
				for _, s := range eachSpan(run(t, defaults(), in)) {
					if _, set := s.Attributes().Get(attr.RemainingEnd); set {
						judged++
					}
					found, set := s.Attributes().Get(attr.Findings)
					if set && strings.Contains(found.AsString(), "deadline_") {
						t.Errorf("%d ms left, in %d parts: %s at %s %v", left/1e6, 1+parts, found.AsString(), s.Name(), s.Attributes().AsRaw())
					}
				}
			}
		}
		if judged < 1000 {
			t.Errorf("%d spans are judged: the test shows little", judged)
		}
	}
}

// What a batch gets does not depend on those that are in work beside it, nor on those before it.
func TestHostileBatchesDoNotTouchEachOther(t *testing.T) {
	const batches, workers = 400, 4
	var wg sync.WaitGroup
	config := defaults()
	config.BudgetsFile = filepath.Join("testdata", "plan.yaml")
	ins, want := make([]ptrace.Traces, batches), make([]string, batches)
	for i := range ins {
		rng := rand.New(rand.NewPCG(uint64(i), 13))
		ins[i] = hostileBatch(t, rng, 1+rng.IntN(3))
		want[i] = show(run(t, config, clone(ins[i])))
	}
	var next atomic.Int64
	p := start(t, config, consumertest.NewNop())
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < batches; i = int(next.Add(1)) - 1 {
				if err := p.ConsumeTraces(context.Background(), ins[i]); err != nil { // changes them where they stand
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i, in := range ins {
		if diff := cmp.Diff(want[i], show(in)); diff != "" {
			t.Fatalf("batch %d (-alone +beside others):\n%s", i, diff)
		}
	}
}
