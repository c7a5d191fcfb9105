package profile

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

func TestRepeatsAreToldApart(t *testing.T) {
	const (
		ok        = trace.OutcomeOK
		failed    = trace.OutcomeFailed
		timedOut  = trace.OutcomeTimedOut
		cancelled = trace.OutcomeCancelled
	)
	get := func(start, end int64, o trace.Outcome) work { return call("a", "b", "Get", start*ms, end*ms).ended(o) }
	type facts struct {
		Duration, Attempt, Count, Self int64 // ms, ms, calls, ms
		MaxAttempts, Failed            int
		Retried, Looped, Hedged        bool
		Censored                       bool
		Path                           int64 // on the critical path, ms
		Backoff                        int64 // ms
	}
	tests := []struct {
		name  string
		below []work
		want  facts
	}{
		{
			// |--failed--|  |-----ok-----|
			name: "retry: starts after a failure", below: []work{get(0, 10, failed), get(12, 30, ok)},
			want: facts{Duration: 30, Attempt: 18, Count: 2, Self: 18, MaxAttempts: 2, Retried: true, Path: 28, Backoff: 2},
		},
		{
			name: "three attempts", below: []work{get(0, 10, failed), get(12, 30, timedOut), get(40, 45, ok)},
			want: facts{Duration: 45, Attempt: 18, Count: 3, Self: 18, MaxAttempts: 3, Retried: true, Path: 33, Backoff: 10},
		},
		{
			name: "no retry after more than a second", below: []work{get(0, 10, failed), get(1011, 1030, ok)},
			want: facts{Duration: 1030, Attempt: 19, Count: 2, Self: 19, MaxAttempts: 1, Looped: true, Path: 29},
		},
		{
			// |--ok--||--ok--||--ok--|
			name: "loop: starts after a success", below: []work{get(0, 10, ok), get(10, 25, ok), get(30, 40, ok)},
			want: facts{Duration: 40, Attempt: 15, Count: 3, Self: 15, MaxAttempts: 1, Looped: true, Path: 35},
		},
		{
			name: "loop: goes on after an answer that another try would get again", below: []work{
				get(0, 10, failed).flagged(trace.FlagFinal), get(10, 25, failed).flagged(trace.FlagFinal), get(30, 40, ok),
			},
			want: facts{Duration: 40, Attempt: 15, Count: 3, Self: 15, MaxAttempts: 1, Looped: true, Path: 35},
		},
		{
			name: "a loop in which one call is retried", below: []work{
				get(0, 10, ok), get(10, 15, failed),
				get(16, 30, ok),
			},
			want: facts{
				Duration: 30, Attempt: 14, Count: 3, Self: 14, MaxAttempts: 2, Looped: true,
				Retried: true, Path: 29, Backoff: 1,
			},
		},
		{
			// |-----------cancelled|
			//     |-----ok|            ends the operation
			name: "hedge: the second answer wins", below: []work{get(0, 100, cancelled), get(20, 60, ok)},
			want: facts{Duration: 60, Attempt: 40, Count: 2, Self: 40, MaxAttempts: 1, Hedged: true, Path: 40},
		},
		{
			name: "hedge: the first answer wins", below: []work{get(0, 50, ok), get(20, 51, cancelled)},
			want: facts{Duration: 50, Attempt: 50, Count: 2, Self: 50, MaxAttempts: 1, Hedged: true, Path: 50},
		},
		{
			// |-------ok|
			//  |---------ok|
			name: "fan-out: overlapping, all answered", below: []work{get(0, 50, ok), get(10, 60, ok)},
			want: facts{Duration: 60, Attempt: 50, Count: 2, Self: 50, MaxAttempts: 1, Path: 50},
		},
		{
			name: "attempts that the client reports",
			below: []work{of(trace.KindClient, "a", "Get", 0, 300*ms,
				of(trace.KindClient, "a", "Get", 0, 100*ms,
					serverSpan("b", "Get", 0, 100*ms)), of(trace.KindClient, "a", "Get", 110*ms, 210*ms),
				of(trace.KindClient, "a", "Get", 220*ms, 300*ms, serverSpan("b", "Get", 220*ms, 300*ms)))},
			want: facts{Duration: 300, Attempt: 100, Count: 3, Self: 300, MaxAttempts: 3, Retried: true, Path: 300, Backoff: 10},
		},
		{
			name: "a failed call has no duration", below: []work{get(0, 10, failed)},
			want: facts{Count: 1, Self: 10, MaxAttempts: 1, Failed: 1, Path: 10},
		},
		{
			name: "a timeout is a lower bound", below: []work{get(0, 10, timedOut)},
			want: facts{Duration: 10, Attempt: 10, Count: 1, Self: 10, MaxAttempts: 1, Censored: true, Path: 10},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := one(t, Options{}, many(1, func(int) work { return serverSpan("a", "GET /", 0, 2000*ms, test.below...) }))
			h := p.hop(t, "Get")
			var got facts
			if d, ok := h.Duration.At(quantile.P99); ok {
				got.Duration = d / ms
				got.Attempt = at(t, h.Attempt, quantile.P99) / ms
			}
			got.Count = at(t, h.Count, quantile.P99)
			got.Self = at(t, h.Self, quantile.P99) / ms
			got.MaxAttempts, got.Failed = h.MaxAttempts, h.Failed
			got.Retried, got.Looped, got.Hedged = h.Retried, h.Looped, h.Hedged
			if pause, ok := h.Backoff.At(quantile.P99); ok {
				got.Backoff = pause / ms
			}
			got.Censored = h.Duration.CensoredRatio() > 0
			got.Path = int64(h.CriticalPath*2000 + 0.5)
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if h.Calls != 1 {
				t.Errorf("%d logical calls, want 1", h.Calls)
			}
			if row := p.Rows; h.Failed == 0 && (row.Duration[1][0] != got.Duration*ms || row.Self[1][0] < 0) {
				t.Errorf("row has duration %d and self %d", row.Duration[1][0], row.Self[1][0])
			}
		})
	}
}

func TestWhatALostHedgeCalledIsNotOnThePath(t *testing.T) {
	lost := call("a", "b", "Get", 0, 100*ms, call("b", "c", "deep", 10*ms, 95*ms)).ended(trace.OutcomeCancelled)
	p := one(t, Options{}, many(1, func(int) work {
		return serverSpan("a", "GET /", 0, 70*ms, lost,
			call("a", "b", "Get", 20*ms, 60*ms))
	}))
	if share := p.hop(t, "deep").CriticalPath; share != 0 {
		t.Errorf("deep has %v of the path", share)
	}
	if self := at(t, p.Hops[0].Self, quantile.P50); self != 30*ms {
		t.Errorf("root's own time %d, want 70-40 ms", self)
	}
}

func TestOptionalHopsCountAsZeroWhereTheyAreAbsent(t *testing.T) {
	// A hop of 50 ms in 200 of 1,000 requests.
	p := one(t, Options{}, many(1000, func(i int) work {
		root := serverSpan("a", "GET /", 0, 100*ms)
		if i%5 == 0 {
			root.below = []work{call("a", "b", "Get", 10*ms, 60*ms)}
		}
		return root
	}))
	h := p.hop(t, "Get")
	level := func(num int64) quantile.Level { return quantile.Level{Num: num, Den: 100} }
	for _, test := range []struct {
		name string
		d    *quantile.Dist
		l    quantile.Level
		want int64
	}{
		{"conditional P99", h.Duration, level(99), 50 * ms},
		{"unconditional P50", h.Unconditional, level(50), 0},
		{"unconditional P80", h.Unconditional, level(80), 0},
		{"unconditional P81", h.Unconditional, level(81), 50 * ms},
	} {
		if got := at(t, test.d, test.l); got != test.want {
			t.Errorf("%s is %d, want %d", test.name, got, test.want)
		}
	}
	if h.Presence != 0.2 || !h.Optional || h.Calls != 200 || p.Hops[0].Presence != 1 || p.Hops[0].Optional {
		t.Errorf("presence %v, optional %v, calls %d", h.Presence, h.Optional, h.Calls)
	}
}

func TestPresenceIsThatOfTheParentsRequests(t *testing.T) {
	// b is called in 2 of 4 requests, three times in all; one of these calls c.
	p := one(t, Options{}, many(4, func(i int) work {
		switch i {
		case 0:
			return serverSpan("a", "GET /", 0, 100*ms, call("a", "b", "Get", 0, 10*ms))
		case 1:
			return serverSpan("a", "GET /", 0, 100*ms,
				call("a", "b", "Get", 0, 10*ms, call("b", "c", "deep", 1*ms, 2*ms)),
				call("a", "b", "Get", 20*ms, 30*ms))
		}
		return serverSpan("a", "GET /", 0, 100*ms)
	}))
	deep := p.hop(t, "deep")
	if deep.Presence != 0.5 || deep.Calls != 1 || deep.Unconditional.N() != 3 {
		t.Errorf("presence %v, %d calls, %d with zeros; want 0.5, 1, 3", deep.Presence, deep.Calls, deep.Unconditional.N())
	}
}

func TestATraceOfWeightTwoEqualsTwoOfWeightOne(t *testing.T) {
	request := func(i int, threshold uint64) work {
		r := rand.New(rand.NewPCG(11, uint64(i)))
		a, b := r.Int64N(40*ms), 40*ms+r.Int64N(40*ms)
		root := serverSpan("a", "GET /", 0, 50*ms+r.Int64N(100*ms))
		if r.IntN(3) > 0 {
			root.below = append(root.below, call("a", "b", "Get", r.Int64N(30*ms), a+30*ms,
				call("b", "c", "deep", a, a+r.Int64N(20*ms))))
		}
		root.below = append(root.below, call("a", "c", "Put", 30*ms, b).ended(trace.Outcome(r.IntN(4))))
		return root.sampled(threshold)
	}
	var split, whole []*trace.Trace
	for i := range 50 {
		// Weights 2 and 4, or twice 1 and four times 1.
		times, threshold := 2, uint64(1<<55)
		if i%3 == 0 {
			times, threshold = 4, 3<<54
		}
		whole = append(whole, assemble(i, request(i, threshold)))
		for k := range times {
			split = append(split, assemble(100*(k+1)+i, request(i, 0)))
		}
	}
	a, b := one(t, Options{}, whole), one(t, Options{}, split)
	if diff := gocmp.Diff(b.names(), a.names()); diff != "" {
		t.Fatalf("hops (-split +whole):\n%s", diff)
	}
	for i := range a.Hops {
		x, y := &a.Hops[i], &b.Hops[i]
		for name, d := range map[string][2]*quantile.Dist{
			"duration": {x.Duration, y.Duration}, "unconditional": {
				x.Unconditional,
				y.Unconditional,
			}, "attempt": {x.Attempt, y.Attempt},
			"count": {x.Count, y.Count}, "self": {x.Self, y.Self}, "tail": {x.Tail, y.Tail}, "net": {x.Net, y.Net},
		} {
			for num := range int64(100) {
				l := quantile.Level{Num: num, Den: 100}
				v, vok := d[0].At(l)
				w, wok := d[1].At(l)
				if v != w || vok != wok {
					t.Errorf("%s of %s: P%d is %d whole and %d split", name, x.ID, num, v, w)
				}
			}
		}
		for name, f := range map[string][2]float64{
			"presence": {x.Presence, y.Presence}, "path": {
				x.CriticalPath,
				y.CriticalPath,
			}, "slow path": {x.SlowPath, y.SlowPath},
		} {
			if d := f[0] - f[1]; d < -1e-12 || d > 1e-12 {
				t.Errorf("%s of %s is %v whole and %v split", name, x.ID, f[0], f[1])
			}
		}
	}
}

func TestSlowMeansTheSlowestTwentiethOfTheRequests(t *testing.T) {
	// 10 slow requests stand for themselves, 90 fast ones for 10 each: the
	// slowest 45.5 of 910 are all the slow and 3 of the fast.
	const tenth = 1<<56 - 1<<56/10
	var traces []*trace.Trace
	for i := range 100 {
		if i < 10 {
			traces = append(traces, assemble(i, serverSpan("a", "GET /", 0, 100*ms,
				call("a", "b", "slow", 0, 100*ms)).sampled(0)))
		} else {
			traces = append(traces, assemble(i, serverSpan("a", "GET /", 0, 10*ms,
				call("a", "b", "fast", 0, 10*ms)).sampled(tenth)))
		}
	}
	p := one(t, Options{}, traces)
	got, want := p.hop(t, "slow").SlowPath, 1000.0/1300
	if d := got - want; d < -1e-9 || d > 1e-9 {
		t.Errorf("slow has %v of the slow path, want %v", got, want)
	}
}

func TestKeptRowsAreThoseOfTheSmallestHashes(t *testing.T) {
	traces := many(100, func(i int) work { return serverSpan("a", "GET /", 0, int64(i+1)*ms) })
	type kept struct {
		hash uint64
		took int64
	}
	var want []kept
	for i, tr := range traces {
		want = append(want, kept{hashID(tr.ID), int64(i+1) * ms})
	}
	slices.SortFunc(want, func(a, b kept) int { return cmp.Compare(a.hash, b.hash) })
	want = want[:10]
	for seed := range uint64(5) {
		p := one(t, Options{Sample: 10}, traces)
		var got []kept
		for i, h := range p.Rows.Hash {
			got = append(got, kept{h, p.Rows.Duration[0][i]})
		}
		if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(kept{})); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if p.Requests != 100 || p.Hops[0].Duration.N() != 100 {
			t.Errorf("%d requests, %d durations: the sample limits the rows alone", p.Requests, p.Hops[0].Duration.N())
		}
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(traces), func(i, j int) { traces[i], traces[j] = traces[j], traces[i] })
	}
}

func TestTraceHashIsFNV1a(t *testing.T) {
	for i := range 100 {
		id := assemble(i*i*i, work{}).ID
		h := fnv.New64a()
		h.Write(id[:])
		if got := hashID(id); got != h.Sum64() {
			t.Errorf("%s: %#x, want %#x", id, got, h.Sum64())
		}
	}
}

func TestRowsHoldWholeRequests(t *testing.T) {
	p := one(t, Options{}, many(1, func(int) work {
		return serverSpan("a", "GET /", 0, 100*ms,
			call("a", "b", "Get", 10*ms, 40*ms, of(trace.KindClient, "b", "SELECT", 15*ms, 20*ms),
				of(trace.KindClient, "b", "SELECT", 25*ms, 32*ms)),
			of(trace.KindProducer, "a", "send", 50*ms, 51*ms))
	}))
	if diff := gocmp.Diff([]string{"0 root a GET /", "0.1 call b Get", "0.1.1 call SELECT", "0.2 async a send"},
		p.names()); diff != "" {
		t.Fatal(diff)
	}
	want := &Rows{
		Hash: []uint64{hashID(assemble(0, work{}).ID)}, Threshold: []uint64{0}, Started: []int64{epoch},
		Failed:   make([][]bool, 4),
		Duration: [][]int64{{100 * ms}, {30 * ms}, {17 * ms}, {1 * ms}},
		Start:    [][]int64{{0}, {10 * ms}, {15 * ms}, {50 * ms}},
		Self:     [][]int64{{70 * ms}, {18 * ms}, {7 * ms}, {-1}},
		Tail:     [][]int64{{60 * ms}, {8 * ms}, {-1}, {-1}},
	}
	if diff := gocmp.Diff(want, p.Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStampsOfEntryAndClientAreCollected(t *testing.T) {
	limits := []int64{800, 800, 500}
	p := one(t, Options{}, many(3, func(i int) work {
		c := call("a", "b", "Get", 0, ms)
		c.stamp = &trace.Stamp{DeadlineRemaining: int64(100*(i+1)) * ms, HasDeadline: true}
		root := serverSpan("a", "GET /", 0, 10*ms, c)
		root.stamp = &trace.Stamp{Limit: limits[i] * ms}
		return root
	}))
	if p.Limit != 800*ms || !p.LimitDisagrees {
		t.Errorf("limit %d, disagrees %v; want 800 ms, true", p.Limit, p.LimitDisagrees)
	}
	if d := p.hop(t, "Get").DeadlineRemaining; d.N() != 3 || at(t, d, quantile.P50) != 200*ms {
		t.Errorf("%d deadlines", d.N())
	}
	if p.Hops[0].DeadlineRemaining != nil {
		t.Error("the entry has a client's deadline")
	}
}

// A limit is measured when the entry span starts, some us after it was set.
func TestLimitsThatDifferByTheirWayAreOne(t *testing.T) {
	for _, limits := range [][]int64{{799_986_000, 799_912_000, 800_000_000}, {4_999_800, 4_996_300, 4_998_000}} {
		p := one(t, Options{}, many(3, func(i int) work {
			root := serverSpan("a", "GET /", 0, 10*ms)
			root.stamp = &trace.Stamp{Limit: limits[i]}
			return root
		}))
		if want := promise(limits[2]); p.Limit != want || p.LimitDisagrees {
			t.Errorf("limits %v: %d, disagree %v; want %d, false", limits, p.Limit, p.LimitDisagrees, want)
		}
	}
}

func TestNetIsTheClientsTimeWithoutTheServers(t *testing.T) {
	p := one(t, Options{}, many(1, func(int) work {
		return serverSpan("a", "GET /", 0, 100*ms, of(trace.KindClient, "a", "Get", 10*ms, 60*ms,
			serverSpan("b", "Get", 30*ms, 32*ms)), of(trace.KindClient, "a", "SELECT", 70*ms, 71*ms))
	}))
	if net := at(t, p.hop(t, "Get").Net, quantile.P50); net != 48*ms {
		t.Errorf("net %d, want 48 ms", net)
	}
	if p.hop(t, "SELECT").Net != nil {
		t.Error("a call without SERVER half has a net time")
	}
}

// A callee that worked on when its caller had given up took no negative time on the way.
//
//	client   |--timeout|
//	server    |------------------|
func TestACallerThatGaveUpTellsNoNet(t *testing.T) {
	for outcome, known := range map[trace.Outcome]bool{
		trace.OutcomeOK: true, trace.OutcomeFailed: true, trace.OutcomeTimedOut: false, trace.OutcomeCancelled: false,
	} {
		p := one(t, Options{}, many(1, func(int) work {
			get := of(trace.KindClient, "a", "Get", 0, 30*ms, serverSpan("b", "Get", ms, 80*ms)).ended(outcome)
			return serverSpan("a", "GET /", 0, 100*ms, get)
		}))
		if net := p.hop(t, "Get").Net; (net != nil) != known {
			t.Errorf("outcome %d: net is known: %v, want %v", outcome, net != nil, known)
		}
	}
}
