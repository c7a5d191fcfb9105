package finding_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

const ms = int64(1_000_000)

const (
	ok        = trace.OutcomeOK
	failed    = trace.OutcomeFailed
	timedOut  = trace.OutcomeTimedOut
	cancelled = trace.OutcomeCancelled
)

// span is one span of a test, in ms. It is named "service>" on the side that
// calls and ">service" on the side that is called, with what tells it apart.
type span struct {
	name, under string
	start, end  float64
	outcome     trace.Outcome
	stamp       *trace.Stamp
	host        string
	stream      bool
	final       bool // the outcome
}

// budget makes the stamp of a span that had so much left, in ms, on a context
// with that deadline.
func budget(left float64) *trace.Stamp { return reset(left, left) }

// reset makes the stamp of a span whose deadline is not what was left.
func reset(left, deadline float64) *trace.Stamp {
	return &trace.Stamp{Remaining: ns(left), HasRemaining: true, DeadlineRemaining: ns(deadline), HasDeadline: true}
}

// dropped makes the stamp of a span whose context has no deadline.
func dropped(left float64) *trace.Stamp {
	return &trace.Stamp{Remaining: ns(left), HasRemaining: true}
}

func ns(v float64) int64 { return int64(math.Round(v * 1e6)) }

// tree builds the call tree of spans; the first is the entry.
func tree(t testing.TB, spans []span) (*trace.Tree, map[trace.SpanID]string) {
	t.Helper()
	ids := make(map[string]trace.SpanID)
	names := make(map[trace.SpanID]string)
	descs := make(map[string]*trace.Desc)
	built := make([]trace.Span, 0, len(spans))
	for i, s := range spans {
		if _, twice := ids[s.name]; twice {
			t.Fatalf("two spans are named %s", s.name)
		}
		var id trace.SpanID
		binary.BigEndian.PutUint64(id[:], uint64(i+1))
		ids[s.name], names[id] = id, s.name
		label, _, _ := strings.Cut(s.name, "#")
		kind, service, peer := trace.KindInternal, label, ""
		switch before, after, arrow := strings.Cut(label, ">"); {
		case arrow && before == "":
			kind, service = trace.KindServer, after
		case arrow:
			kind, service, peer = trace.KindClient, before, after
		case strings.HasSuffix(label, "!"):
			kind = trace.KindProducer
		}
		d := trace.Desc{Service: service, Operation: "op", Peer: peer, Host: s.host}
		key := fmt.Sprint(d)
		if descs[key] == nil {
			descs[key] = &d
		}
		flags := trace.Flags(0)
		if s.final {
			flags |= trace.FlagFinal
		}
		if s.stream {
			flags |= trace.FlagStream
		}
		built = append(built, trace.Span{
			TraceID: trace.TraceID{15: 1}, ID: id, Parent: ids[s.under], Start: ns(s.start), Duration: ns(s.end) - ns(s.start),
			Desc: descs[key], Kind: kind, Outcome: s.outcome, Stamp: s.stamp, Flags: flags,
		})
	}
	tr := new(trace.Tree)
	whole := trace.NewTrace(built)
	tr.Build(whole, whole.Entries()[0], new(trace.Paths), nil)
	return tr, names
}

// found runs one rule over spans and says what it found, "span amount by".
func found(t testing.TB, rule string, spans []span) []string {
	t.Helper()
	return foundBy(t, rule, spans, nil)
}

// foundBy is found with a plan.
func foundBy(t testing.TB, rule string, spans []span, by *plan.Plan) []string {
	t.Helper()
	tr, names := tree(t, spans)
	r := finding.Named(rule)
	var out []string
	request := finding.NewRequest(tr, nil, finding.Defaults)
	if by != nil {
		request.Plan = plan.NewIndex(by)
	}
	r.Check(request, func(f finding.Finding) {
		s := &tr.Trace.Spans[f.Span]
		if c := &tr.Calls[f.Call]; c.Span != f.Span && c.Callee != f.Span {
			t.Errorf("the span %s is no half of the call", names[s.ID])
		}
		amount := fmt.Sprint(f.Amount)
		if r.Unit == finding.Nanoseconds {
			amount = fmt.Sprint(float64(f.Amount)/1e6) + "ms"
		}
		out = append(out, strings.TrimSpace(names[s.ID]+" "+amount+" "+f.By))
	})
	return out
}

// example is one request and what a rule finds in it.
type example struct {
	name  string
	spans []span
	want  []string
}

func check(t *testing.T, rule string, examples []example) {
	t.Helper()
	checkBy(t, rule, nil, examples)
}

// checkBy is check with a plan.
func checkBy(t *testing.T, rule string, by *plan.Plan, examples []example) {
	t.Helper()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			if diff := cmp.Diff(e.want, foundBy(t, rule, e.spans, by)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", rule, diff)
			}
		})
	}
}

func TestRulesAreWholeAndInOrder(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	flags := make(map[string]bool)
	rules := finding.Rules()
	for i, r := range rules {
		if !name.MatchString(r.Name) || r.Name == "info" || r.Name == "error" || r.Name == "warning" {
			t.Errorf("%q is no name of a rule", r.Name)
		}
		if finding.Named(r.Name) != r {
			t.Errorf("%s is not found by its name", r.Name)
		}
		for _, text := range []string{r.Summary, r.Formula, r.Tolerance, r.Mistakes, r.Remedy} {
			if !strings.HasSuffix(text, ".") || strings.Contains(text, "  ") {
				t.Errorf("%s: %q is no sentence", r.Name, text)
			}
		}
		if r.Flag != "" && flags[r.Flag] {
			t.Errorf("%s: another rule has the flag %s", r.Name, r.Flag)
		}
		flags[r.Flag] = true
		if i > 0 && (r.Severity > rules[i-1].Severity || r.Severity == rules[i-1].Severity && r.Name <= rules[i-1].Name) {
			t.Errorf("%s comes after %s", r.Name, rules[i-1].Name)
		}
	}
	if finding.Named("deadline") != nil {
		t.Error("a part of a name is taken for it")
	}
}

func TestTextHasTheAmountInItsUnit(t *testing.T) {
	for _, c := range []struct {
		rule string
		most int64
		by   string
		want string
	}{
		{"deadline-reset", 14_780 * ms, "orders", "a deadline up to 14780 ms later than what was left, set by orders"},
		{"budget-overrun", 9_540_000, "", "ran up to 9.5 ms over what was left of the budget"},
		{"budget-overrun", 12_000, "", "ran up to 0.012 ms over what was left of the budget"},
		{"exhausted-at-start", 0, "", "began up to 0 ms after the budget was spent"},
		{"budget-utilization", 857, "risk Score", "used up to 85.7 % of what it had, most of it in risk Score"},
		{"retry-amplification", 27, "", "up to 27 attempts for one call, the layers multiplied"},
	} {
		if got := finding.Named(c.rule).Text(c.most, c.by); got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

// TestAHealthyRequestHasNoFindings: the deadline shrinks on the way, by transit,
// by rounding and on purpose, and grows by less than gRPC libraries may.
//
//	>gateway        0 |-----------------------------------| 100
//	gateway>orders      10 |-------------------------| 80
//	>orders             11 |------------------------| 79
//	orders>stock          20 |---------| 50
//	>stock                 21 |-------| 49
func TestAHealthyRequestHasNoFindings(t *testing.T) {
	for name, at := range map[string][4]float64{
		"exact":                      {290, 289.4, 280, 279.5},
		"transit hidden":             {290, 290.3, 281, 281.3},
		"3 % longer on the wire":     {290, 298.7, 289.7, 298.3},
		"shaved on purpose":          {190, 189, 80, 79},
		"a shorter timeout per call": {150, 149, 70, 69},
	} {
		spans := []span{
			{name: ">gateway", start: 0, end: 100, stamp: budget(300)},
			{name: "gateway>orders", under: ">gateway", start: 10, end: 80, stamp: budget(at[0])},
			{name: ">orders", under: "gateway>orders", start: 11, end: 79, stamp: budget(at[1])},
			{name: "orders>stock", under: ">orders", start: 20, end: 50, stamp: budget(at[2])},
			{name: ">stock", under: "orders>stock", start: 21, end: 49, stamp: budget(at[3])},
		}
		for _, r := range finding.Rules() {
			if got := found(t, r.Name, spans); len(got) > 0 {
				t.Errorf("%s: %s finds %v", name, r.Name, got)
			}
		}
	}
}

// TestNobodyJudgesDetachedWork: what nobody waits for may do as it likes, and so
// may everything below it.
func TestNobodyJudgesDetachedWork(t *testing.T) {
	spans := []span{
		{name: ">gateway", start: 0, end: 100, stamp: budget(300)},
		{name: "queue!", under: ">gateway", start: 50, end: 51, stamp: reset(250, 9000)},
		{name: "queue>mail", under: "queue!", start: 60, end: 900, stamp: reset(240, 9000), outcome: timedOut},
		{name: ">mail", under: "queue>mail", start: 70, end: 1900, stamp: reset(-5, 9000)},
	}
	for _, r := range finding.Rules() {
		if got := found(t, r.Name, spans); len(got) > 0 {
			t.Errorf("%s finds %v", r.Name, got)
		}
	}
	// The caller can know more than the spans say.
	spans[1] = span{name: "gateway>audit", under: ">gateway", start: 50, end: 51, stamp: reset(250, 9000)}
	tr, _ := tree(t, spans[:2])
	reset := finding.Named("deadline-reset")
	for _, async := range []bool{false, true} {
		n := 0
		reset.Check(finding.NewRequest(tr, func(call int32) bool { return async && call == 1 }, finding.Defaults),
			func(finding.Finding) { n++ })
		if (n == 0) != async {
			t.Errorf("asynchronous %v: %d findings", async, n)
		}
	}
}

// TestRulesTakeAnySpans runs every rule over random trees: whatever the times,
// outcomes and figures, each finding names a call and a span of it, is made at
// most once for each call, and has an amount that is not negative.
func TestRulesTakeAnySpans(t *testing.T) {
	for seed := range uint64(400) {
		tr, _ := tree(t, randomSpans(seed))
		for _, r := range finding.Rules() {
			seen := make(map[int32]bool)
			r.Check(finding.NewRequest(tr, nil, finding.Defaults), func(f finding.Finding) {
				c := &tr.Calls[f.Call]
				if f.Amount < 0 || seen[f.Call] || f.Span != c.Span && f.Span != c.Callee {
					t.Errorf("seed %d, %s: %+v of call %+v, seen before: %v", seed, r.Name, f, *c, seen[f.Call])
				}
				seen[f.Call] = true
			})
		}
	}
}

func TestDeepAndWideRequestsTakeLinearTime(t *testing.T) {
	const n = 50_000
	deep := make([]span, 0, n)
	wide := []span{{name: ">edge", start: 0, end: 100, stamp: budget(100)}}
	for i := range n {
		name, under := fmt.Sprintf("a>b#%d", i), ""
		if i > 0 {
			under = deep[i-1].name
		}
		if i%2 == 0 {
			name = fmt.Sprintf(">b#%d", i)
		}
		deep = append(deep, span{name: name, under: under, start: 0, end: 100, stamp: budget(100), outcome: cancelled})
		wide = append(wide, span{
			name: fmt.Sprintf("edge>b#w%d", i), under: ">edge", start: 0, end: 100, stamp: budget(90), outcome: cancelled,
		})
	}
	for name, spans := range map[string][]span{"deep": deep, "wide": wide} {
		tr, _ := tree(t, spans)
		var tally finding.Tally
		tally.Add(finding.NewRequest(tr, nil, finding.Defaults), func(call int32) int32 { return 0 })
		if got := tally.List(nil); len(got) == 0 || got[0].Findings < n/4 {
			t.Errorf("%s: %v, want a finding for every call", name, got)
		}
	}
}

// A trace may hold many requests: each costs what it has, not what the trace has.
func TestARequestCostsTheSameInATraceOfMany(t *testing.T) {
	cost := func(n int) uint64 {
		spans := make([]span, 0, 2*n)
		for i := range n {
			server := fmt.Sprintf(">b#%d", i)
			spans = append(spans, span{name: server, start: 0, end: 120, stamp: budget(100)},
				span{name: fmt.Sprintf("b>c#%d", i), under: server, start: 110, end: 115, stamp: budget(-10), outcome: cancelled})
		}
		tr, _ := tree(t, spans)
		whole, paths, entries := tr.Trace, new(trace.Paths), tr.Trace.Entries()
		if len(entries) != n {
			t.Fatalf("%d entries, want %d", len(entries), n)
		}
		var before, after runtime.MemStats
		found := 0
		runtime.ReadMemStats(&before)
		for _, entry := range entries {
			tr.Build(whole, entry, paths, nil)
			r := finding.NewRequest(tr, nil, finding.Defaults)
			for _, rule := range finding.Rules() {
				rule.Check(r, func(finding.Finding) { found++ })
			}
		}
		runtime.ReadMemStats(&after)
		if found < 5*n {
			t.Fatalf("%d findings in %d requests", found, n)
		}
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n)
	}
	if few, many := cost(100), cost(3000); many > 2*few {
		t.Errorf("a request takes %d bytes in a trace of 3000, and %d in one of 100", many, few)
	}
}

// TestTheRulesOfAnEntryThatIsTheOnlySpan: nothing above, nothing below.
func TestTheRulesOfAnEntryThatIsTheOnlySpan(t *testing.T) {
	spans := []span{{name: ">edge", start: 0, end: 100, stamp: reset(-1, 200), outcome: timedOut}}
	var got []string
	for _, r := range finding.Rules() {
		for _, f := range found(t, r.Name, spans) {
			got = append(got, r.Name+": "+f)
		}
	}
	want := []string{
		"deadline-reset: >edge 201ms edge, or the call to it", "exhausted-at-start: >edge 1ms",
		"deadline-exceeded: >edge 100ms", "work-after-deadline: >edge 100ms", "tightest-deadline: >edge 0ms edge",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
