package finding_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// everything runs every rule over a request, with floors, and says what they found,
// "rule span".
func everything(t testing.TB, spans []span) []string {
	t.Helper()
	tr, names := tree(t, spans)
	request := finding.NewRequest(tr, nil, finding.Defaults)
	request.Plan = floors()
	var out []string
	for _, rule := range finding.Rules() {
		rule.Check(request, func(f finding.Finding) {
			out = append(out, rule.Name+" "+names[tr.Trace.Spans[f.Span].ID])
		})
	}
	slices.Sort(out)
	return out
}

// unary are the same spans without the signs of streams.
func unary(spans []span) []span {
	out := slices.Clone(spans)
	for i := range out {
		out[i].stream = false
	}
	return out
}

// A long stream is no finding, however it was opened, used and ended. A call of the
// same shape is.
func TestAHealthyLongStreamIsNoFinding(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []span
		unary []string // what is found where the spans show no stream
	}{
		{"a client listens to events until it leaves", []span{
			{name: ">edge", start: 0, end: 60_000, outcome: cancelled, stamp: budget(10_000), stream: true},
		}, []string{"budget-overrun >edge", "budget-utilization >edge", "deadline-exceeded >edge", "tightest-deadline >edge", "work-after-deadline >edge"}},

		{"a stream that was freed of the deadline, and the calls in it", []span{
			{name: ">edge", start: 0, end: 30_000, stamp: budget(1000), stream: true},
			{name: "edge>feed", under: ">edge", start: 10, end: 29_900, outcome: cancelled, stamp: dropped(990), stream: true},
			{name: ">feed", under: "edge>feed", start: 11, end: 29_990, stamp: dropped(989)},
			{name: "feed>db#1", under: ">feed", start: 900, end: 1100, stamp: dropped(100)},
			{name: "feed>db#2", under: ">feed", start: 9000, end: 9100, stamp: dropped(-8011)},
			{name: "feed>db#3", under: ">feed", start: 29_950, end: 29_960, stamp: dropped(-28_950)},
		}, []string{
			"budget-overrun >edge", "budget-overrun edge>feed", "budget-overrun feed>db#1", "budget-utilization >edge",
			"budget-utilization edge>feed", "budget-utilization feed>db#1",
			"call-after-deadline feed>db#2", "call-after-deadline feed>db#3", "deadline-dropped edge>feed",
			"deadline-exceeded edge>feed", "exhausted-at-start feed>db#2", "exhausted-at-start feed>db#3",
			"outcome-unknown >feed", "tightest-deadline >edge", "work-after-deadline >feed", "work-after-deadline >edge",
		}},

		{"a deadline that makes a stream be opened again now and then", []span{
			{name: ">job", start: 0, end: 5000},
			{name: "job>flags#1", under: ">job", start: 0, end: 1000, outcome: timedOut, stamp: reset(500, 1000), stream: true},
			{name: "job>flags#2", under: ">job", start: 1001, end: 2001, outcome: timedOut, stamp: reset(499, 1000), stream: true},
			{name: "job>flags#3", under: ">job", start: 2002, end: 3002, outcome: timedOut, stamp: reset(498, 1000), stream: true},
			{name: "job>flags#4", under: ">job", start: 3003, end: 4003, outcome: timedOut, stamp: reset(497, 1000), stream: true},
		}, nil},

		{"a server that notices late that its client has left", []span{
			{name: ">edge", start: 0, end: 90},
			{name: "edge>feed", under: ">edge", start: 10, end: 80, outcome: cancelled, stream: true},
			{name: ">feed", under: "edge>feed", start: 11, end: 400},
			{name: "feed>db", under: ">feed", start: 300, end: 310},
		}, []string{"call-after-deadline feed>db", "outcome-unknown >feed", "work-after-deadline >feed"}},

		{"streams that are opened again, and tries in them", []span{
			{name: ">edge", start: 0, end: 90},
			{name: "edge>feed#1", under: ">edge", start: 10, end: 20, outcome: failed, stream: true},
			{name: ">feed#1", under: "edge>feed#1", start: 10, end: 20},
			{name: "feed>db#1", under: ">feed#1", start: 11, end: 12, outcome: failed},
			{name: "feed>db#2", under: ">feed#1", start: 13, end: 14},
			{name: "edge>feed#2", under: ">edge", start: 20, end: 30, stream: true},
		}, []string{"retry-amplification feed>db#1"}},

		{"an answer that comes in parts, in time", []span{
			{name: ">edge", start: 0, end: 700, stamp: budget(1000)},
			{name: "edge>model", under: ">edge", start: 10, end: 690, stamp: dropped(700), stream: true},
			{name: ">model", under: "edge>model", start: 300, end: 690, stamp: dropped(690), stream: true},
			{name: "model>db", under: ">model", start: 310, end: 320, stamp: dropped(680)},
		}, []string{"budget-utilization edge>model", "deadline-dropped edge>model", "queue-wait edge>model"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := everything(t, c.spans); len(got) > 0 {
				t.Errorf("found %q", got)
			}
			got := everything(t, unary(c.spans))
			if c.unary == nil && len(got) > 0 {
				return
			}
			slices.Sort(c.unary)
			if !slices.Equal(got, c.unary) {
				t.Errorf("of calls of the same shape\n%q\nis found, want\n%q", got, c.unary)
			}
		})
	}
}

// What goes wrong around a stream is found: when it is opened, in who waits for it, and
// in what it calls while there was time left.
func TestWhatIsWrongAroundAStreamIsFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []span
		want  []string
	}{
		{"opened when nothing was left", []span{
			{name: ">edge", start: 0, end: 90, stamp: budget(100)},
			{name: "edge>feed", under: ">edge", start: 120, end: 5000, stamp: budget(-20), stream: true},
		}, []string{"budget-utilization >edge", "call-after-deadline edge>feed", "exhausted-at-start edge>feed"}},

		{"the caller waits for it for too long", []span{
			{name: ">edge", start: 0, end: 1200, stamp: budget(1000)},
			{name: "edge>rows", under: ">edge", start: 10, end: 1190, stamp: budget(990), stream: true},
		}, []string{"budget-overrun >edge", "budget-utilization >edge", "work-after-deadline >edge"}},

		{"a reset below it, while it had time left", []span{
			{name: ">edge", start: 0, end: 500, stamp: budget(1000), stream: true},
			{name: "edge>risk", under: ">edge", start: 10, end: 400, stamp: reset(990, 5000)},
		}, []string{"deadline-reset edge>risk"}},

		{"retries below it", []span{
			{name: ">edge", start: 0, end: 500, stream: true},
			{name: "edge>risk#1", under: ">edge", start: 10, end: 20, outcome: failed},
			{name: "edge>risk#2", under: ">edge", start: 30, end: 40, outcome: failed},
			{name: "edge>risk#3", under: ">edge", start: 50, end: 60, outcome: failed},
			{name: "edge>risk#4", under: ">edge", start: 70, end: 80},
		}, []string{"retry-amplification edge>risk#1"}},

		{"retries around it", []span{
			{name: ">edge", start: 0, end: 500},
			{name: "edge>risk#1", under: ">edge", start: 10, end: 20, outcome: failed},
			{name: "edge>risk#2", under: ">edge", start: 30, end: 40, outcome: failed},
			{name: "edge>risk#3", under: ">edge", start: 50, end: 60, outcome: failed},
			{name: "edge>risk#4", under: ">edge", start: 70, end: 90},
			{name: ">risk", under: "edge>risk#4", start: 70, end: 90},
			{name: "risk>feed#1", under: ">risk", start: 71, end: 72, outcome: failed, stream: true},
			{name: "risk>feed#2", under: ">risk", start: 73, end: 74, stream: true},
		}, []string{"retry-amplification edge>risk#1"}},

		{"the deadline was dropped below it", []span{
			{name: ">edge", start: 0, end: 500, stamp: budget(1000)},
			{name: "edge>feed", under: ">edge", start: 10, end: 490, stamp: budget(990), stream: true},
			{name: ">feed", under: "edge>feed", start: 11, end: 490, stamp: budget(989)},
			{name: "feed>db", under: ">feed", start: 20, end: 30, stamp: dropped(980)},
		}, []string{"deadline-dropped feed>db"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := everything(t, c.spans); !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// A caller that used its budget up by waiting for a stream is told so.
func TestAStreamIsNamedAsWhatSpentTheBudget(t *testing.T) {
	check(t, "budget-utilization", []example{{"", []span{
		{name: ">edge", start: 0, end: 900, stamp: budget(1000)},
		{name: "edge>auth", under: ">edge", start: 0, end: 100},
		{name: "edge>rows", under: ">edge", start: 110, end: 890, stamp: budget(890), stream: true},
	}, []string{">edge 900 rows op"}}})
}

// Whatever the length, the deadlines and the end of a stream, no rule finds fault with
// it but those that look at its opening.
func TestOnlyTheOpeningOfAStreamIsJudged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	outcomes := []trace.Outcome{ok, failed, timedOut, cancelled}
	opening := map[string]bool{"call-after-deadline": true, "exhausted-at-start": true}
	opened := 0
	for seed := range 20_000 {
		left := 2000*rng.Float64() - 200
		stamps := func(passed float64) *trace.Stamp {
			switch rng.IntN(5) {
			case 0:
				return nil
			case 1:
				return dropped(left - passed)
			case 2:
				return reset(left-passed, 10_000*rng.Float64())
			}
			return budget(left - passed)
		}
		spans := []span{{name: ">s0", start: 0, end: 5000 * rng.Float64(), stamp: budget(left)}}
		at := 100 * rng.Float64()
		for i := range 1 + rng.IntN(5) { // opened again and again
			length := 3000 * rng.Float64() * rng.Float64()
			client := span{
				name: fmt.Sprintf("s0>s1#%d", i), under: ">s0", start: at, end: at + length,
				outcome: outcomes[rng.IntN(4)], stamp: stamps(at), stream: true,
			}
			server := span{
				name: fmt.Sprintf(">s1#%d", i), under: client.name, start: at + 50*rng.Float64(), end: at + 2*length*rng.Float64(),
				outcome: outcomes[rng.IntN(4)], stamp: stamps(at), stream: rng.IntN(2) == 0,
			}
			server.end = max(server.end, server.start)
			spans = append(spans, client, server)
			at = client.end + 10*rng.Float64()
		}
		tr, names := tree(t, spans)
		request := finding.NewRequest(tr, nil, finding.Defaults)
		request.Plan = floors()
		for _, rule := range finding.Rules() {
			rule.Check(request, func(f finding.Finding) {
				switch {
				case f.Call == 0:
				case opening[rule.Name]:
					opened++
				default:
					t.Fatalf("%d: %s finds %s", seed, rule.Name, names[tr.Trace.Spans[f.Span].ID])
				}
			})
		}
		var tally finding.Tally
		tally.Add(request, func(call int32) int32 { return call })
		for _, c := range tally.List(func(int32) int64 { return 1e9 }) {
			if c.Hop != 0 && !opening[c.Rule.Name] {
				t.Fatalf("%d: %s is counted at call %d", seed, c.Rule.Name, c.Hop)
			}
		}
	}
	if opened < 1000 {
		t.Errorf("%d findings at openings: the test shows little", opened)
	}
}

// A long stream runs beside much that it has no part in, and a stream that a service
// opens for itself begins a trace by nature.
func TestStreamsExplainNoTraces(t *testing.T) {
	server := trace.Span{Kind: trace.KindServer, Duration: 1000, Desc: &trace.Desc{Service: "a"}}
	spans := []trace.Span{server}
	d := &trace.Desc{Service: "a", Operation: "refresh"}
	for i := range int64(10) {
		spans = append(spans, trace.Span{Kind: trace.KindClient, Start: 10 * i, Duration: 5, Desc: d})
	}
	tr, _ := tree(t, []span{{name: ">a", start: 0, end: 1}})
	count := func(spans []trace.Span) (n int) {
		var x finding.Restarts
		x.Collect(spans)
		x.Cover(spans)
		request := finding.NewRequest(tr, nil, finding.Defaults)
		request.Restarts = &x
		finding.Named("trace-restarted").Check(request, func(finding.Finding) { n++ })
		return n
	}
	if count(spans) != 1 {
		t.Fatal("calls inside a request are not found")
	}
	spans[0].Flags = trace.FlagStream
	if count(spans) != 0 {
		t.Error("calls beside a stream are found")
	}
	spans[0].Flags = 0
	for i := range spans[1:] {
		spans[1+i].Flags = trace.FlagStream
	}
	if count(spans) != 0 {
		t.Error("streams that a service opened for itself are found")
	}
}
