package finding_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Each test here is a case that users of such tools ran into.

// header is what a captured header says on a span below another.
func header(kind trace.Kind, name, value string) *trace.Stamp {
	var a trace.Attributes
	if key, wanted := a.See([]byte("http.request.header." + name)); wanted {
		a.SetString(key, []byte(value))
	}
	var in trace.Interner
	s := trace.Span{Kind: kind, Parent: trace.SpanID{1}}
	a.Describe(&s, trace.Resource{}, in.NewCache())
	return s.Stamp
}

func relative(kind trace.Kind, left float64) *trace.Stamp {
	return header(kind, "x-timeout-budget-ms", strconv.Itoa(int(left)))
}

// all is what every rule finds, "rule span amount by".
func all(t *testing.T, spans []span) []string {
	t.Helper()
	var out []string
	for _, r := range finding.Rules() {
		for _, f := range found(t, r.Name, spans) {
			out = append(out, r.Name+" "+f)
		}
	}
	return out
}

func expect(t *testing.T, spans []span, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, all(t, spans)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// A relative timeout starts again when it arrives.
//
//	>edge      0 |------------------------| 100    1000 left
//	edge>a       10 |-------------------| 90       990
//	>a             13 |---------------| 88         990: 3 ms were on the way
func TestFieldCaseG7ATimeoutThatRestartsAtReceiptIsNoReset(t *testing.T) {
	for _, kind := range []string{"stamps", "headers"} {
		exit, entry := budget(990), budget(990)
		if kind == "headers" {
			exit, entry = relative(trace.KindClient, 990), relative(trace.KindServer, 990)
		}
		expect(t, []span{
			{name: ">edge", start: 0, end: 100, stamp: budget(1000)},
			{name: "edge>a", under: ">edge", start: 10, end: 90, stamp: exit},
			{name: ">a", under: "edge>a", start: 13, end: 88, stamp: entry},
		})
	}
}

// gRPC libraries in C++ and Python may send 3 % more than they have.
func TestFieldCaseG8ThreePercentMoreOnTheWireAreNoReset(t *testing.T) {
	spans := []span{{name: ">s0", start: 0, end: 900, stamp: budget(2000)}}
	left := 2000.0
	for i := range 4 {
		at := float64(i+1) * 50
		exit := span{name: fmt.Sprintf("s%d>s%d", i, i+1), under: spans[len(spans)-1].name, start: at, end: 900 - at, stamp: budget(left - 50)}
		left = (left - 50) * 1.03
		entry := span{name: fmt.Sprintf(">s%d", i+1), under: exit.name, start: at, end: 900 - at, stamp: header(trace.KindServer, "grpc-timeout", fmt.Sprintf("%du", int(left*1000)))}
		spans = append(spans, exit, entry)
	}
	expect(t, spans)
}

// The proxy of the callee ignores what arrives and begins its own 15 s.
//
//	>svcA      2000 ms
//	>envoy    15000 ms    the one who did it
//	>svcB     14990 ms    has what it was given
func TestFieldCaseG9TheFirstThatGrewIsNamed(t *testing.T) {
	for name, stamp := range map[string]func(trace.Kind, float64) *trace.Stamp{
		"stamps":           func(_ trace.Kind, left float64) *trace.Stamp { return budget(left) },
		"authority header": relative,
	} {
		got := all(t, []span{
			{name: ">svcA", start: 0, end: 100, stamp: stamp(trace.KindServer, 2000)},
			{name: "svcA>envoy", under: ">svcA", start: 10, end: 90},
			{name: ">envoy", under: "svcA>envoy", start: 11, end: 89, stamp: stamp(trace.KindServer, 15000)},
			{name: "envoy>svcB", under: ">envoy", start: 20, end: 80, stamp: stamp(trace.KindClient, 14991)},
			{name: ">svcB", under: "envoy>svcB", start: 21, end: 79, stamp: stamp(trace.KindServer, 14990)},
		})
		if want := []string{"deadline-reset >envoy 13010ms envoy, or the call to it"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Services that say nothing pass on what they were given.
//
//	>edge      300 ms
//	>silent           200 ms later in its own work
//	>bank     1000 ms
func TestAResetIsSeenAcrossServicesThatSayNothing(t *testing.T) {
	chain := func(bank float64) []span {
		return []span{
			{name: ">edge", start: 0, end: 290, stamp: budget(2000)},
			{name: "edge>silent", under: ">edge", start: 50, end: 280},
			{name: ">silent", under: "edge>silent", start: 51, end: 279},
			{name: "silent>bank", under: ">silent", start: 251, end: 270},
			{name: ">bank", under: "silent>bank", start: 252, end: 269, stamp: budget(bank)},
		}
	}
	expect(t, chain(1750))
	expect(t, chain(1820)) // 4 % more
	expect(t, chain(1900), "deadline-reset >bank 150ms bank, or the call to it")
}

// A proxy's own timeout says nothing of the request: two proxies with 15 s each
// reset nothing, though the second begins later.
func TestFieldCaseG9TimeoutsOfProxiesAreNotHeldAgainstEachOther(t *testing.T) {
	envoy := func(kind trace.Kind) *trace.Stamp { return header(kind, "x-envoy-expected-rq-timeout-ms", "15000") }
	spans := []span{
		{name: ">a", start: 0, end: 9000, stamp: envoy(trace.KindServer)},
		{name: "a>b", under: ">a", start: 3000, end: 8000},
		{name: ">b", under: "a>b", start: 3001, end: 7999, stamp: envoy(trace.KindServer)},
	}
	expect(t, spans)
	spans[0].stamp = relative(trace.KindServer, 10000)
	expect(t, spans, "deadline-reset >b 8000ms b, or the call to it", "budget-utilization >a 900 b op")
}

// Hops that keep a part for themselves set an earlier deadline on purpose.
func TestFieldCaseG11AShavedDeadlineIsNoReset(t *testing.T) {
	expect(t, []span{
		{name: ">edge", start: 0, end: 100, stamp: relative(trace.KindServer, 1000)},
		{name: "edge>a", under: ">edge", start: 10, end: 90, stamp: relative(trace.KindClient, 800)},
		{name: ">a", under: "edge>a", start: 11, end: 89, stamp: relative(trace.KindServer, 700)},
	})
}

// WithoutCancel loses the deadline, and a new one may be set: two findings.
func TestFieldCaseG12DroppedAndResetAreTwoFindings(t *testing.T) {
	expect(t, []span{
		{name: ">edge", start: 0, end: 100, stamp: budget(300)},
		{name: "edge>a", under: ">edge", start: 10, end: 50, stamp: dropped(290)},
		{name: "edge>b", under: ">edge", start: 50, end: 90, stamp: reset(250, 5000)},
	}, "deadline-dropped edge>a 290ms edge", "deadline-reset edge>b 4750ms edge")
}

// Work that is meant to go on is marked, by its span.
//
//	>edge      0 |----------| 100
//	mail           |====================| 900    detached
//	edge>smtp         |----------------| 890     5 s of its own
func TestFieldCaseG14DetachingOnPurposeIsNoFinding(t *testing.T) {
	spans := func() []span {
		return []span{
			{name: ">edge", start: 0, end: 100, stamp: budget(300)},
			{name: "mail", under: ">edge", start: 10, end: 900},
			{name: "edge>smtp", under: "mail", start: 20, end: 890, stamp: reset(280, 5000)},
			{name: ">smtp", under: "edge>smtp", start: 21, end: 889, stamp: reset(279, 4999)},
		}
	}
	if got := all(t, spans()); !slices.Contains(got, "deadline-reset edge>smtp 4720ms edge") {
		t.Errorf("not marked: %q", got)
	}
	tr, _ := tree(t, spans())
	marked := tr.Trace.Spans
	for i := range marked {
		if marked[i].Desc.Service == "mail" {
			marked[i].Flags |= trace.FlagFollowsFrom
		}
	}
	whole := trace.NewTrace(marked)
	tr.Build(whole, whole.Entries()[0], new(trace.Paths), nil)
	for _, r := range finding.Rules() {
		r.Check(finding.NewRequest(tr, nil, finding.Defaults), func(f finding.Finding) { t.Errorf("marked: %s %+v", r.Name, f) })
	}
}

// At the deadline a callee sees CANCELLED or DEADLINE_EXCEEDED by chance: both are
// its expiry, and neither long before.
func TestFieldCaseG17BothEndsAtTheDeadlineAreExpiry(t *testing.T) {
	for _, c := range []struct {
		outcome trace.Outcome
		end     float64
		want    []string
	}{
		{timedOut, 100, []string{">edge 100ms"}},
		{cancelled, 100, []string{">edge 100ms"}},
		{cancelled, 40, nil},
		{failed, 100, nil},
	} {
		got := found(t, "deadline-exceeded", []span{{name: ">edge", start: 0, end: c.end, outcome: c.outcome, stamp: relative(trace.KindServer, 100)}})
		if !slices.Equal(got, c.want) {
			t.Errorf("outcome %d after %v ms: %q, want %q", c.outcome, c.end, got, c.want)
		}
	}
}

// The proxy says 100, 100, 100 for its attempts, and the caller has 250.
//
//	>edge     0 |------------------------|------| 300    250 left
//	            |--f 100|--f 100|--------|--f 100        the third may take twice what is left
func TestFieldCaseR1AnAttemptMayNotTakeMoreThanIsLeft(t *testing.T) {
	spans := []span{{name: ">edge", start: 0, end: 240, stamp: relative(trace.KindServer, 250)}}
	for i, end := range []float64{99, 199, 240} {
		spans = append(spans, span{
			name: fmt.Sprintf("edge>a#%d", i+1), under: ">edge", start: float64(i) * 100, end: end, outcome: failed,
			stamp: header(trace.KindClient, "x-envoy-expected-rq-timeout-ms", "100"),
		})
	}
	expect(t, spans, "deadline-reset edge>a#3 50ms edge", "retry-overspend edge>a#3 50ms edge",
		"budget-utilization >edge 960 a op", "budget-utilization edge>a#1 990", "budget-utilization edge>a#2 990")
}

// Retries that go on when the caller's time was up long ago.
func TestFieldCaseR3RetriesAfterTheDeadline(t *testing.T) {
	spans := []span{{name: ">edge", start: 0, end: 9000, stamp: budget(5000)}}
	for i := range 4 {
		at := float64(i) * 2000
		spans = append(spans, span{name: fmt.Sprintf("edge>a#%d", i+1), under: ">edge", start: at + 1500, end: at + 3000, outcome: failed})
	}
	if got, want := found(t, "call-after-deadline", spans), []string{"edge>a#3 500ms edge", "edge>a#4 2500ms edge"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A timeout for each try and none for all: two tries of 500 ms under 600.
func TestFieldCaseR4TriesTimesTheirTimeoutIsMoreThanThereIs(t *testing.T) {
	got := found(t, "retry-overspend", []span{
		{name: ">edge", start: 0, end: 1000, stamp: budget(600)},
		{name: "edge>a#1", under: ">edge", start: 0, end: 500, outcome: timedOut, stamp: reset(600, 500)},
		{name: "edge>a#2", under: ">edge", start: 500, end: 1000, outcome: timedOut, stamp: reset(100, 500)},
	})
	if want := []string{"edge>a#2 400ms edge"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// gRPC reports one span for the call and one for each attempt.
//
//	Sent.m      0 |--------------------------| 300
//	Attempt.m     |-----| 100  |-----|  |----|
func TestFieldCaseR5AttemptsInsideACallAreOneCall(t *testing.T) {
	spans := []span{
		{name: ">edge", start: 0, end: 310},
		{name: "edge>a", under: ">edge", start: 0, end: 300},
	}
	for i, at := range [][2]float64{{0, 100}, {110, 210}, {220, 300}} {
		spans = append(spans, span{name: fmt.Sprintf("edge>a#%d", i+1), under: "edge>a", start: at[0], end: at[1], outcome: failed})
	}
	tr, _ := tree(t, spans)
	if len(tr.Calls) != 2 || tr.Calls[1].Attempts != 3 {
		t.Errorf("%+v", tr.Calls)
	}
}

// What is left is signed: below zero it says by how much the call came too late.
func TestFieldCaseR8WhatIsLeftIsSigned(t *testing.T) {
	got := found(t, "exhausted-at-start", []span{
		{name: ">edge", start: 0, end: 200, stamp: budget(100)},
		{name: "edge>a", under: ">edge", start: 140, end: 150, stamp: budget(-40)},
	})
	if want := []string{"edge>a 40ms"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
