package profile

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

func TestWhatNobodyWaitsForIsAsync(t *testing.T) {
	// Each request is GET / of 100 ms, so that 1 ms is tolerated, with one CLIENT
	// call; times in ns.
	//
	//	GET /  |----------------|
	//	child          |------------|
	request := func(start, end int64) work {
		return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindClient, "a", "child", start, end))
	}
	tests := []struct {
		name    string
		n       int
		request func(i int) work
		want    HopKind
	}{
		{"inside", 10, func(int) work { return request(10, 100*ms) }, KindCall},
		{"outlives in 2 of 10", 10, func(i int) work {
			if i < 2 {
				return request(10, 101*ms+1)
			}
			return request(10, 90*ms)
		}, KindAsync},
		{"outlives in 1 of 10", 10, func(i int) work {
			if i < 1 {
				return request(10, 900*ms)
			}
			return request(10, 90*ms)
		}, KindCall},
		{"outlives by no more than the tolerance", 10, func(int) work { return request(10, 101*ms) }, KindCall},
		{"outlives in all of 4: too few", 4, func(int) work { return request(10, 900*ms) }, KindCall},
		{"outlives in all of 5", 5, func(int) work { return request(10, 900*ms) }, KindAsync},
		{"starts after the end, once seen", 1, func(int) work { return request(101*ms+1, 102*ms) }, KindAsync},
		{"starts after the end in half of them", 4, func(i int) work {
			if i < 2 {
				return request(102*ms, 103*ms)
			}
			return request(10, 90*ms)
		}, KindAsync},
		{"a failed parent was cut short", 10, func(int) work {
			return request(10,
				900*ms).ended(trace.OutcomeFailed)
		}, KindCall},
		{"0.3 ms are tolerated under short parents", 10, func(int) work {
			return serverSpan("a", "GET /", 0, 5*ms, of(trace.KindClient, "a", "child", 10, 5*ms+300_000))
		}, KindCall},
		{"and no more", 10, func(int) work {
			return serverSpan("a", "GET /", 0, 5*ms, of(trace.KindClient, "a", "child", 10, 5*ms+300_001))
		}, KindAsync},
		{"a PRODUCER", 1, func(int) work {
			return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindProducer, "a", "child", 10, 20))
		}, KindAsync},
		{"a CONSUMER", 1, func(int) work {
			return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindConsumer, "b", "child", 10, 20))
		}, KindAsync},
		{"follows from its parent", 1, func(int) work {
			return serverSpan("a", "GET /", 0, 100*ms,
				of(trace.KindClient, "a", "child", 10, 20).flagged(trace.FlagFollowsFrom))
		}, KindAsync},
		{"a stage that outlives", 5, func(int) work {
			return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindInternal, "a", "child", 90*ms, 120*ms))
		}, KindAsync},
		{"outlives its stage, which may turn out to be nothing, but not the entry", 5, func(int) work {
			return serverSpan("a", "GET /", 0, 100*ms,
				of(trace.KindInternal, "a", "stage", 0, 20*ms, of(trace.KindClient, "a", "child", 10*ms, 60*ms)))
		}, KindCall},
		{"clocks that differ are no evidence", 10, func(i int) work {
			shift := int64(50 * ms)
			if i == 0 {
				shift = -shift
			}
			return serverSpan("a", "GET /", 0, 100*ms, serverSpan("b", "child", 10*ms+shift, 90*ms+shift))
		}, KindCall},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			traces := many(test.n, test.request)
			parts := surveyOf(traces[test.n/2:])
			parts.Merge(surveyOf(traces[:test.n/2]))
			for _, s := range []*Survey{surveyOf(traces), parts} {
				p := collectorOf(s.Decide(Options{}), traces).Resolve()[0]
				if got := p.hop(t, "child").Kind; got != test.want {
					t.Errorf("child is %s, want %s", kindNames[got], kindNames[test.want])
				}
			}
		})
	}
}

func TestACoarseClockWidensTheTolerance(t *testing.T) {
	tests := []struct {
		name  string
		late  int64 // how much later than its parent the child ends
		unit  int64 // of all times
		want  HopKind
		clock int64
	}{
		{"whole ms, 2 ms late", 2 * ms, ms, KindCall, ms},
		{"whole ms, 3 ms late", 3 * ms, ms, KindAsync, ms},
		{"whole 10 ms, 20 ms late", 20 * ms, 10 * ms, KindCall, 10 * ms},
		{"whole s, 2 s late", 2000 * ms, 1000 * ms, KindCall, 1000 * ms},
		{"fine clock, 2 ms late", 2 * ms, 0, KindAsync, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var traces []*trace.Trace
			for i := range 30 {
				length := max(test.unit, 10*ms)
				tr := assemble(i, serverSpan("a", "GET /", 0, length,
					of(trace.KindClient, "a", "child", 0, length+test.late)))
				for s := range tr.Spans {
					if test.unit > 0 {
						tr.Spans[s].Start -= tr.Spans[s].Start % test.unit
					}
				}
				traces = append(traces, tr)
			}
			p := one(t, Options{}, traces)
			if got := p.hop(t, "child").Kind; got != test.want || p.Resolution != test.clock {
				t.Errorf("child is %s at a resolution of %d, want %s at %d", kindNames[got], p.Resolution,
					kindNames[test.want], test.clock)
			}
		})
	}
}

func TestTheClockIsCoarseFrom99PercentOf100Times(t *testing.T) {
	// Each request has two spans, so four times; some are fine.
	resolution := func(requests, fine int) int64 {
		var traces []*trace.Trace
		for i := range requests {
			tr := assemble(i, serverSpan("a", "GET /", 0, 10*ms, of(trace.KindClient, "a", "child", 0, 5*ms)))
			for s := range tr.Spans {
				tr.Spans[s].Start -= tr.Spans[s].Start % ms
				if fine > 0 {
					tr.Spans[s].Duration++
					fine--
				}
			}
			traces = append(traces, tr)
		}
		return one(t, Options{}, traces).Resolution
	}
	for _, test := range []struct {
		requests, fine int
		want           int64
	}{{100, 4, ms}, {100, 5, 0}, {25, 0, ms}, {24, 0, 0}} {
		if r := resolution(test.requests, test.fine); r != test.want {
			t.Errorf("%d of %d times are fine: resolution %d, want %d", test.fine, 4*test.requests, r, test.want)
		}
	}
}

func TestEverythingBelowAnAsyncHopIsAsync(t *testing.T) {
	p := one(t, Options{}, many(3, func(int) work {
		return serverSpan("a", "GET /", 0, 50*ms,
			of(trace.KindProducer, "a", "send", 10*ms, 12*ms,
				of(trace.KindConsumer, "b", "process", 300*ms, 900*ms,
					call("b", "c", "Get", 310*ms, 400*ms, of(trace.KindClient, "c", "SELECT", 320*ms, 330*ms)),
					call("b", "c", "Put", 410*ms, 500*ms))))
	}))
	want := []string{
		"0 root a GET /", "0.1 async a send", "0.1.1 async b process", "0.1.1.1 async c Get",
		"0.1.1.1.1 async SELECT", "0.1.1.2 async c Put",
	}
	if diff := cmp.Diff(want, p.names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p.Hops[0].CriticalPath != 1 || p.Pairs != 0 || at(t, p.Hops[0].Self, quantile.P50) != 50*ms {
		t.Errorf("root has %v of the path and %d pairs", p.Hops[0].CriticalPath, p.Pairs)
	}
}

func TestAnAsyncChildChangesNoOtherHop(t *testing.T) {
	base := func(seed uint64, extra ...work) []*trace.Trace {
		return many(40, func(i int) work {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			a, b, c := r.Int64N(30*ms), 30*ms+r.Int64N(30*ms), 70*ms+r.Int64N(20*ms)
			below := []work{
				call("a", "b", "first", 0, a, call("b", "d", "deep", a/4, a/2)),
				call("a", "c", "second", 30*ms, b).ended(trace.Outcome(r.IntN(4))),
				of(trace.KindInternal, "a", "stage", 60*ms, 68*ms, call("a", "b", "staged", 61*ms, 66*ms)),
				call("a", "c", "third", 65*ms, c),
			}
			return serverSpan("a", "GET /", 0, 100*ms, append(below, extra...)...)
		})
	}
	children := map[string]work{
		"PRODUCER": of(trace.KindProducer, "a", "extra", 20*ms, 21*ms,
			of(trace.KindConsumer, "z", "extra2", 25*ms, 95*ms, call("z", "b", "first", 30*ms, 90*ms))),
		"outlives by 500 ms": call("a", "z", "extra", 20*ms, 600*ms, of(trace.KindClient, "z", "extra2", 21*ms, 90*ms)),
		"follows from":       of(trace.KindServer, "z", "extra", 20*ms, 90*ms).flagged(trace.FlagFollowsFrom),
	}
	for name, child := range children {
		for seed := range uint64(5) {
			plain, got := one(t, Options{}, base(seed)), one(t, Options{}, base(seed, child))
			var rest []Hop
			var failed [][]bool
			for h, hop := range got.Hops {
				if hop.Kind == KindAsync {
					for _, c := range [][][]int64{got.Rows.Duration, got.Rows.Start, got.Rows.Self, got.Rows.Tail} {
						c[h] = nil
					}
					continue
				}
				rest = append(rest, hop)
				failed = append(failed, got.Rows.Failed[h])
			}
			if len(rest) == len(got.Hops) {
				t.Fatalf("%s: not async: %v", name, got.names())
			}
			got.Hops, got.Rows.Failed = rest, failed
			for _, c := range []*[][]int64{&got.Rows.Duration, &got.Rows.Start, &got.Rows.Self, &got.Rows.Tail} {
				*c = slices.DeleteFunc(*c, func(col []int64) bool { return col == nil })
			}
			if diff := cmp.Diff(plain, got, exact); diff != "" {
				t.Fatalf("%s, seed %d (-without +with):\n%s", name, seed, diff)
			}
		}
	}
}

func TestAWrapperIsTransparentAndAStageIsNot(t *testing.T) {
	// GET /  |----------|  100
	// inner  |--------|    covers 90, or 89
	request := func(i, wide int) work {
		end := int64(89 * ms)
		if i < wide {
			end = 90 * ms
		}
		return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindInternal, "a", "inner", 0, end,
			call("a", "b", "Get", 10*ms, 20*ms)))
	}
	stage := []string{"0 root a GET /", "0.1 stage a inner", "0.1.1 call b Get"}
	wrapper := []string{"0 root a GET /", "0.1 call b Get"}
	for _, test := range []struct {
		n, wide int
		want    []string
	}{{1, 0, stage}, {1, 1, wrapper}, {10, 5, stage}, {10, 6, wrapper}, {11, 5, stage}, {11, 6, wrapper}} {
		p := one(t, Options{}, many(test.n, func(i int) work { return request(i, test.wide) }))
		if diff := cmp.Diff(test.want, p.names()); diff != "" {
			t.Errorf("%d of %d cover 90 %% (-want +got):\n%s", test.wide, test.n, diff)
		}
	}
}

func TestStepsAreShownOnRequest(t *testing.T) {
	traces := many(3, func(int) work {
		return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindUnspecified, "a", "MmcGet", 10*ms, 40*ms),
			call("a", "b", "Get", 50*ms, 60*ms))
	})
	plain, steps := one(t, Options{}, traces), one(t, Options{Steps: true}, traces)
	if diff := cmp.Diff([]string{"0 root a GET /", "0.1 call b Get"}, plain.names()); diff != "" {
		t.Errorf("without steps: %s", diff)
	}
	if diff := cmp.Diff([]string{"0 root a GET /", "0.1 step a MmcGet", "0.2 call b Get"}, steps.names()); diff != "" {
		t.Errorf("with steps: %s", diff)
	}
	for _, p := range []*Profile{plain, steps} {
		if self := at(t, p.Hops[0].Self, quantile.P50); self != 90*ms || p.Pairs != 0 {
			t.Errorf("root's own time %d with %d pairs; steps are part of it", self, p.Pairs)
		}
	}
}

func TestHopsOverTheLimitBecomeOther(t *testing.T) {
	// GET / calls op0..op9 one after the other, each 1 ms longer; op9 calls deep.
	request := func(int) work {
		root := serverSpan("a", "GET /", 0, 100*ms)
		from := int64(0)
		for k := range int64(10) {
			name := string(rune('0' + k))
			c := call("a", "b", "op"+name, from, from+(k+1)*ms)
			if k == 9 {
				c = call("a", "b", "op9", from, from+10*ms, call("b", "c", "deep", from, from+5*ms))
			}
			if k == 0 {
				c = call("a", "b", "op0", from, from+ms, call("b", "c", "shallow", from, from+ms/2))
			}
			root.below = append(root.below, c, of(trace.KindUnspecified, "a", "step"+name, 70*ms, 70*ms+k*1000))
			from += (k + 1) * ms
		}
		return root
	}
	traces := many(4, request)
	s := surveyOf(traces)
	rules := s.Decide(Options{MaxHops: 4, Steps: true})
	p := collectorOf(rules, traces).Resolve()[0]
	want := []string{
		"0 root a GET /", "0.1 call other", "0.2 call b op7", "0.3 call b op8", "0.4 call b op9",
		"0.4.1 call other",
	}
	if diff := cmp.Diff(want, p.names()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	// 11 calls, shallow, deep and 10 steps, less what is kept.
	if got, want := rules.Folded(Endpoint{"a", "GET /"}), 23-4; got != want {
		t.Errorf("%d operations folded, want %d", got, want)
	}
	other := p.hop(t, OtherOperation)
	if d, n := at(t, other.Duration, quantile.P50), at(t, other.Count,
		quantile.P50); d != 28*ms || n != 7 || other.Retried || other.Looped {
		t.Errorf("other took %d ns in %d calls, want 28 ms in 7; %+v", d, n, other)
	}
	total := 0.0
	for _, h := range p.Hops {
		total += h.CriticalPath
	}
	if total < 1-1e-12 || total > 1+1e-12 || other.CriticalPath != 0.28 {
		t.Errorf("path shares sum to %v, other has %v", total, other.CriticalPath)
	}
}

func TestAsyncHopsTakeNoRoomFromOthers(t *testing.T) {
	// However long they take: they have no budget.
	p := one(t, Options{MaxHops: 3}, many(3, func(int) work {
		return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindProducer, "a", "send", 1*ms, 900*ms),
			of(trace.KindProducer, "a", "push", 1*ms, 800*ms),
			call("a", "b", "Get", 0, 3*ms), call("a", "b", "Put", 5*ms, 6*ms))
	}))
	want := []string{"0 root a GET /", "0.1 call b Get", "0.2 call b Put", "0.3 async other"}
	if diff := cmp.Diff(want, p.names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOtherDoesNotDependOnWhatCameFirst(t *testing.T) {
	// Under the limit of 2, GET / keeps big; a call, a stage, a step and a queue are folded.
	parts := []work{
		call("a", "b", "small", 0, 2*ms), of(trace.KindInternal, "a", "stage", 3*ms, 4*ms),
		of(trace.KindUnspecified, "a", "step", 5*ms, 6*ms),
		of(trace.KindProducer, "a", "send", 7*ms, 8*ms),
	}
	var want []string
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 3, 0, 1}, {1, 0, 3, 2}} {
		traces := many(len(order), func(i int) work {
			return serverSpan("a", "GET /", 0, 100*ms, call("a", "b", "big", 10*ms, 90*ms), parts[order[i]])
		})
		p := one(t, Options{MaxHops: 2, Steps: true}, traces)
		got := p.names()
		if want == nil {
			want = got
			if diff := cmp.Diff([]string{
				"0 root a GET /", "0.1 call other", "0.2 call b big",
				"0.3 async other",
			}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order %v (-first +got):\n%s", order, diff)
		}
	}
}

// pairOf is a request whose call's SERVER half is off by some ns.
func pairOf(client, server [2]int64) work {
	return serverSpan("a", "GET /", 0, 20*ms, of(trace.KindClient, "a", "Get", client[0], client[1],
		serverSpan("b", "Get", server[0], server[1])))
}

func TestOneOffsetPutsEveryCalleeIntoItsCaller(t *testing.T) {
	const S, C = trace.KindServer, trace.KindClient
	tests := []struct {
		name   string
		traces []*trace.Trace
		want   []Shift
		skew   int64 // median, of hop Get
	}{
		{
			// What may be added to b's clock:
			//	[-22,-18]  |----|
			//	[-21,-16]    |------|
			//	common       |--|     middle -19.5
			name: "the middle of what all traces allow",
			traces: []*trace.Trace{
				assemble(0, pairOf([2]int64{0, 10 * ms}, [2]int64{22 * ms, 28 * ms})),
				assemble(1, pairOf([2]int64{0, 10 * ms}, [2]int64{21 * ms, 26 * ms})),
			},
			want: []Shift{{"a", "b", -19_500_000}}, skew: -19_500_000,
		},
		{
			name: "none where none is needed",
			traces: []*trace.Trace{
				assemble(0, pairOf([2]int64{0, 10 * ms}, [2]int64{1 * ms, 9 * ms})),
				assemble(1, pairOf([2]int64{0, 10 * ms}, [2]int64{0, 9 * ms})),
			},
		},
		{
			// [1,3] and [-3,-1] have nothing in common: each is centred.
			name: "none where no offset explains all: each trace is centred",
			traces: []*trace.Trace{
				assemble(0, pairOf([2]int64{0, 10 * ms}, [2]int64{-1 * ms, 7 * ms})),
				assemble(1, pairOf([2]int64{0, 10 * ms}, [2]int64{3 * ms, 11 * ms})),
				assemble(2, pairOf([2]int64{0, 10 * ms}, [2]int64{3 * ms, 11 * ms})),
			},
			skew: -2 * ms,
		},
		{
			name: "a callee longer than its caller says nothing",
			traces: []*trace.Trace{
				assemble(0, pairOf([2]int64{0, 10 * ms}, [2]int64{22 * ms, 28 * ms})),
				assemble(1, pairOf([2]int64{0, 10 * ms}, [2]int64{-5 * ms, 40 * ms})),
			},
			want: []Shift{{"a", "b", -20 * ms}}, skew: -20 * ms,
		},
		{
			name: "one host has one clock",
			traces: []*trace.Trace{assemble(0, serverSpan("a", "GET /", 0, 20*ms, work{
				kind: C, service: "a", name: "Get", end: 10 * ms, host: "h",
				below: []work{{kind: S, service: "b", name: "Get", start: 30 * ms, end: 35 * ms, host: "h"}},
			}))},
		},
		{
			name: "a SERVER without CLIENT",
			traces: many(6, func(i int) work {
				return serverSpan("a", "GET /", 0, 20*ms, serverSpan("b", "Get", -10*ms, -2*ms))
			}),
			// [10,22]
			want: []Shift{{"a", "b", 16 * ms}}, skew: 16 * ms,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rules := surveyOf(test.traces).Decide(Options{})
			if diff := cmp.Diff(test.want, rules.Shifts()); diff != "" {
				t.Errorf("shifts (-want +got):\n%s", diff)
			}
			p := collectorOf(rules, test.traces).Resolve()[0]
			if got := p.hop(t, "Get").Skew; got != test.skew {
				t.Errorf("median shift %d, want %d", got, test.skew)
			}
		})
	}
}

func TestClocksAreNotJudgedByWhatNobodyWaitsFor(t *testing.T) {
	// The call outlives its parent, so it is async; b's clock seems to be 700 ms ahead.
	traces := many(6, func(int) work {
		return serverSpan("a", "GET /", 0, 20*ms, of(trace.KindClient, "a", "Get", 0, 800*ms,
			serverSpan("b", "Get", 900*ms, 1000*ms, of(trace.KindClient, "b", "SELECT", 910*ms, 920*ms))))
	})
	rules := surveyOf(traces).Decide(Options{})
	p := collectorOf(rules, traces).Resolve()[0]
	if h := p.hop(t, "Get"); h.Kind != KindAsync || h.Skew != 0 || len(rules.Shifts()) != 0 {
		t.Errorf("Get is %s, shifted by %d; shifts %v", kindNames[h.Kind], h.Skew, rules.Shifts())
	}
	if start := p.Rows.Start[2][0]; start != 910*ms {
		t.Errorf("SELECT starts at %d, want 910 ms as recorded", start)
	}
}

func TestTheMostExtremeOffsetsAreDropped(t *testing.T) {
	// 400 calls allow [-22,-18]; two on each side may be dropped.
	for _, test := range []struct {
		odd  int
		want []Shift
	}{{2, []Shift{{"a", "b", -20 * ms}}}, {3, nil}} {
		traces := many(400, func(i int) work {
			if i < test.odd {
				return pairOf([2]int64{0, 10 * ms}, [2]int64{1 * ms, 9 * ms})
			}
			return pairOf([2]int64{0, 10 * ms}, [2]int64{22 * ms, 28 * ms})
		})
		if diff := cmp.Diff(test.want, surveyOf(traces).Decide(Options{}).Shifts()); diff != "" {
			t.Errorf("%d odd ones (-want +got):\n%s", test.odd, diff)
		}
	}
}

func TestOffsetsAreKeptByServicePairNotByPath(t *testing.T) {
	// The same hop is called by a itself and by a's sidecar, whose clock is off.
	request := func(i int) work {
		from, off := "a", int64(20*ms)
		if i%2 == 1 {
			from, off = "sidecar", -30*ms
		}
		return serverSpan("a", "GET /", 0, 20*ms, of(trace.KindClient, from, "Get", 0, 10*ms,
			serverSpan("b", "Get", 2*ms+off, 8*ms+off)))
	}
	traces := many(6, request)
	want := []Shift{{"a", "b", -20 * ms}, {"sidecar", "b", 30 * ms}}
	for range 2 {
		if diff := cmp.Diff(want, surveyOf(traces).Decide(Options{}).Shifts()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		parts := surveyOf(traces[:1])
		parts.Merge(surveyOf(traces[1:]))
		if diff := cmp.Diff(want, parts.Decide(Options{}).Shifts()); diff != "" {
			t.Errorf("merged (-want +got):\n%s", diff)
		}
		slices.Reverse(traces)
	}
}

func TestTheShiftMovesWhatTheCalleeCalled(t *testing.T) {
	// b's clock is 20 ms ahead. Get [0,10] is b's [22,28], in which b calls c [23,26]:
	// shifted, c is inside and b's own time is 10-3.
	p := one(t, Options{}, many(5, func(int) work {
		return serverSpan("a", "GET /", 0, 20*ms, of(trace.KindClient, "a", "Get", 0, 10*ms,
			serverSpan("b", "Get", 22*ms, 28*ms, of(trace.KindClient, "b", "SELECT", 23*ms, 26*ms))))
	}))
	get := p.hop(t, "Get")
	if self := at(t, get.Self, quantile.P50); self != 7*ms {
		t.Errorf("own time %d, want 7 ms", self)
	}
	if net := at(t, get.Net, quantile.P50); net != 4*ms {
		t.Errorf("net %d, want 4 ms", net)
	}
	if share := p.hop(t, "SELECT").CriticalPath; share != 0.15 {
		t.Errorf("SELECT has %v of the path, want 3 of 20 ms", share)
	}
}

func TestUnansweredCallsBelongToTheirSiblings(t *testing.T) {
	client := func(peer, name string, start int64, below ...work) work {
		w := of(trace.KindClient, "a", name, start*ms, (start+5)*ms, below...)
		w.peer = peer
		return w
	}
	answer := func(service, name string, start int64) work {
		return serverSpan(service, name, (start+1)*ms, (start+4)*ms)
	}
	tests := []struct {
		name     string
		requests []work // below GET /, one a request
		want     []string
		lost     map[string]int // unanswered calls by operation
	}{
		{
			"same peer, same operation",
			[]work{
				client("risk", "POST", 0, answer("risk", "Score", 0)),
				client("risk", "POST", 0).ended(trace.OutcomeTimedOut),
			},
			[]string{"0 root a GET /", "0.1 call risk Score"},
			map[string]int{"Score": 1},
		},
		{
			"neither names a peer",
			[]work{client("", "Score", 0).ended(trace.OutcomeTimedOut), client("", "Score", 0, answer("risk", "Score", 0))},
			[]string{"0 root a GET /", "0.1 call risk Score"},
			map[string]int{"Score": 1},
		},
		{
			"what ends well without SERVER span was answered by somebody else",
			[]work{client("", "GET", 0), client("", "GET", 0, answer("risk", "Score", 0))},
			[]string{"0 root a GET /", "0.1 call GET", "0.2 call risk Score"},
			map[string]int{"Score": 0, "GET": 0},
		},
		{
			"another peer is somebody else, whatever the method",
			[]work{client("risk", "POST", 0, answer("risk", "Score", 0)), client("api.example.com", "POST", 9)},
			[]string{"0 root a GET /", "0.1 call risk Score", "0.2 call api.example.com POST"},
			map[string]int{"Score": 0, "POST": 0},
		},
		{
			"two operations answer to the same call: nobody knows which",
			[]work{
				client("risk", "POST", 0, answer("risk", "Score", 0)),
				client("risk", "POST", 9, answer("risk", "Train", 9)), client("risk", "POST", 19),
			},
			[]string{"0 root a GET /", "0.1 call risk Score", "0.2 call risk Train", "0.3 call risk POST"},
			map[string]int{"Score": 0, "Train": 0, "POST": 0},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			traces := many(len(test.requests), func(i int) work {
				return serverSpan("a", "GET /", 0, 50*ms, test.requests[i])
			})
			for range 2 {
				parts := surveyOf(traces[:1])
				parts.Merge(surveyOf(traces[1:]))
				p := collectorOf(parts.Decide(Options{}), traces).Resolve()[0]
				if diff := cmp.Diff(test.want, p.names()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				for name, want := range test.lost {
					if got := p.hop(t, name).Unanswered; got != want {
						t.Errorf("%d calls of %s unanswered, want %d", got, name, want)
					}
				}
				slices.Reverse(traces)
			}
		})
	}
}

func TestTracesCountByThresholdOrNotAtAll(t *testing.T) {
	plain := func(int) work { return serverSpan("a", "GET /", 0, 10*ms) }
	half := func(i int) work { return plain(i).sampled(1 << 55) }
	invalid := func(i int) work { return plain(i).flagged(trace.FlagThresholdInvalid) }
	mix := func(fs ...func(int) work) []*trace.Trace {
		return many(len(fs), func(i int) work { return fs[i](i) })
	}
	tests := []struct {
		name       string
		traces     []*trace.Trace
		unweighted bool
		requests   int
		weighted   bool
		evidence   SamplingEvidence
	}{
		{"none has one", mix(plain, plain), false, 2, false, SamplingEvidence{Traces: 2}},
		{"all have one", mix(half, half), false, 2, true, SamplingEvidence{Traces: 2, Weighted: 2}},
		{
			"mixed: those without are left out", mix(half, plain, half), false, 2, true,
			SamplingEvidence{Traces: 3, Weighted: 2},
		},
		{"unreadable: left out", mix(plain, invalid), false, 1, false, SamplingEvidence{Traces: 2, Invalid: 1}},
		{
			"unweighted takes all", mix(half, plain, invalid), true, 3, false,
			SamplingEvidence{Traces: 3, Weighted: 1, Invalid: 1},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := surveyOf(test.traces)
			rules := s.Decide(Options{Unweighted: test.unweighted})
			p := collectorOf(rules, test.traces).Resolve()[0]
			if p.Requests != test.requests || rules.Weighted() != test.weighted {
				t.Errorf("%d requests, weighted %v; want %d, %v", p.Requests, rules.Weighted(), test.requests,
					test.weighted)
			}
			if diff := cmp.Diff(test.evidence, s.Sampling()); diff != "" {
				t.Errorf("evidence (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATraceCountsByItsRarestSpan(t *testing.T) {
	for _, th := range [][2]uint64{{1 << 55, 3 << 54}, {3 << 54, 1 << 55}} {
		p := one(t, Options{}, many(1, func(int) work {
			return serverSpan("a", "GET /", 0, 10*ms, call("a", "b", "Get", 0, ms).sampled(th[1])).sampled(th[0])
		}))
		if p.Rows.Threshold[0] != 3<<54 {
			t.Errorf("threshold %#x, want %#x", p.Rows.Threshold[0], uint64(3<<54))
		}
	}
}

func TestUnmeasuredEntriesAreRefused(t *testing.T) {
	traces := many(1, func(int) work { return serverSpan("a", "GET /", 0, 0).flagged(trace.FlagUnmeasured) })
	s := NewSurvey()
	if s.Add(traces[0], 0) {
		t.Error("the survey took an entry without times")
	}
	if len(s.Endpoints()) != 0 {
		t.Errorf("endpoints %v", s.Endpoints())
	}
	other := NewSurvey()
	other.Merge(s)
	rules := other.Decide(Options{})
	if NewCollector(rules).Add(traces[0], 0) {
		t.Error("the collector took an entry without times")
	}
}

func TestEndpointsAreListedBusiestFirst(t *testing.T) {
	traces := many(6, func(i int) work { return serverSpan("a", []string{"x", "z", "y"}[i/2%3], 0, ms) })
	traces = append(traces, assemble(9, serverSpan("a", "z", 0, ms)))
	want := []Count{{Endpoint{"a", "z"}, 3}, {Endpoint{"a", "x"}, 2}, {Endpoint{"a", "y"}, 2}}
	if diff := cmp.Diff(want, surveyOf(traces).Endpoints()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var got []string
	for _, p := range profiles(Options{}, traces) {
		got = append(got, p.Operation)
	}
	if diff := cmp.Diff([]string{"z", "x", "y"}, got); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
}
