package budget

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latencybudget/latencybudget/analyzer/profile"
)

// interval is a call from its start to its end, after the start of the request.
type interval struct{ start, end int64 }

var absent = interval{0, -1}

// requests returns rows of unsampled requests, one interval for each hop.
func requests(rows ...[]interval) *profile.Rows {
	r := &profile.Rows{}
	for i, row := range rows {
		r.Hash = append(r.Hash, uint64(i))
		r.Threshold = append(r.Threshold, 0)
		r.Started = append(r.Started, int64(i))
		for h, call := range row {
			if i == 0 {
				r.Duration, r.Start = append(r.Duration, nil), append(r.Start, nil)
				r.Self, r.Tail = append(r.Self, nil), append(r.Tail, nil)
			}
			r.Duration[h] = append(r.Duration[h], call.end-call.start)
			r.Start[h] = append(r.Start[h], call.start)
			own := int64(0)
			if call == absent {
				own = -1
			}
			r.Self[h], r.Tail[h] = append(r.Self[h], own), append(r.Tail[h], own)
		}
	}
	return r
}

// replay applies limits to all rows alike.
func (p *Problem) replay(rows *profile.Rows, budget float64, limits limitSet) Effect {
	parts := undivided(rows)
	return replay(rows, &parts, budget, []regime{{p, limits}})
}

var noLimit = math.Inf(1)

// TestReplayOfOneRequest: two calls in sequence, under the limits that a table
// of budgets compares.
//
//	R |------------------------------------------------| 100
//	a |-------------------| 40
//	b                      |------------------------| 90
func TestReplayOfOneRequest(t *testing.T) {
	rows := requests([]interval{{0, 100}, {0, 40}, {40, 90}})
	p := serial(40, 50)
	for _, c := range []struct {
		name     string
		budget   float64
		timeouts []float64
		want     Effect
	}{
		{
			"b is cut at 70", 80,
			[]float64{80, 50, 30},
			Effect{Miss: 1, Violated: 1, Executed: 140, Saved: 50, Wasted: 140, Early: 10, Cut: []float64{0, 0, 1}},
		},
		{
			"today nothing is cut", 80,
			[]float64{noLimit, noLimit, noLimit},
			Effect{Miss: 1, Violated: 1, Executed: 190, Wasted: 190, Cut: []float64{0, 0, 0}},
		},
		{
			"deadline only", 80,
			[]float64{80, noLimit, noLimit},
			Effect{Miss: 1, Violated: 1, Executed: 160, Saved: 30, Wasted: 160, Cut: []float64{1, 0, 0}},
		},
		{
			"the deadline cuts before a later timeout", 80,
			[]float64{80, noLimit, 45},
			Effect{Miss: 1, Violated: 1, Executed: 160, Saved: 30, Wasted: 160, Cut: []float64{1, 0, 0}},
		},
		{
			"of two at once the smaller index fails", 80,
			[]float64{80, noLimit, 40},
			Effect{Miss: 1, Violated: 1, Executed: 160, Saved: 30, Wasted: 160, Cut: []float64{1, 0, 0}},
		},
		{
			"without a deadline a late cut is not early", 80,
			[]float64{noLimit, noLimit, 45},
			Effect{Miss: 1, Violated: 1, Executed: 170, Saved: 20, Wasted: 170, Cut: []float64{0, 0, 1}},
		},
		{
			"a good request is cut", 100,
			[]float64{100, 39, noLimit},
			Effect{Violated: 1, FalseCut: 1, Executed: 78, Saved: 112, Wasted: 78, Cut: []float64{0, 1, 0}},
		},
		{
			"limits that are just met cut nothing", 100,
			[]float64{100, 40, 50},
			Effect{Executed: 190, Cut: []float64{0, 0, 0}},
		},
	} {
		c.want.Requests = 1
		if diff := cmp.Diff(c.want, p.replay(rows, c.budget, limitSet{Timeouts: c.timeouts})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestDeadlineKeepsOnlyTheTail: what a caller did before the call has passed.
func TestDeadlineKeepsOnlyTheTail(t *testing.T) {
	p := serial(35)
	p.Hops[0].Tail = 5
	p.Hops[0].Self = [selfLevels]float64{65, 65} // head and tail
	limits := limitSet{Timeouts: []float64{100, noLimit}, Propagate: true}
	// R |----------------------------------------------------------| 100
	// a                                       |-----------------|    95, or 96
	if e := p.replay(requests([]interval{{0, 100}, {60, 95}}), 100, limits); e.Violated != 0 {
		t.Errorf("a call that ends as the tail begins is cut: %+v", e)
	}
	if e := p.replay(requests([]interval{{0, 100}, {60, 96}}), 100, limits); e.FalseCut != 1 || e.Executed != 95+35 {
		t.Errorf("a call that runs into the tail ran on: %+v", e)
	}
}

// engines are the two ways to replay a request: as it was recorded, and with
// calls that may move.
func engines(p *Problem, limits limitSet) map[string]*replayer {
	still, moving := new(replayer), new(replayer)
	still.reset(&regime{p, limits})
	moving.reset(&regime{p, limits})
	moving.moving = true
	moving.shift.reset(p)
	return map[string]*replayer{"still": still, "moving": moving}
}

func TestDeadlinesArePassedDown(t *testing.T) {
	p := endpoint(call(50), Hop{Parent: 1, SelfCount: 99, Floor: 5}, Hop{Parent: 2, SelfCount: 99})
	p.Hops[1].Tail, p.Hops[2].Tail = 10, 2
	limits := func(first, second float64) limitSet {
		return limitSet{Timeouts: []float64{100, first, second, noLimit}, Propagate: true}
	}
	for _, c := range []struct {
		name   string
		row    []interval
		limits limitSet
		cut    float64
		hop    int
	}{
		{
			"the grandchild's deadline is that of the call less two tails",
			[]interval{{0, 90}, {10, 80}, {20, 60}, {20, 59}},
			limits(60, noLimit), 58, 3,
		},
		{
			"its caller's own timeout binds first",
			[]interval{{0, 90}, {10, 80}, {20, 50}, {20, 49}},
			limits(noLimit, 25), 43, 3,
		},
		{"a call below its floor is not sent", []interval{{0, 100}, {10, 95}, {86, 89}, absent}, limits(noLimit, noLimit), 86, 2},
		{"at its floor it is", []interval{{0, 100}, {10, 95}, {85, 89}, absent}, limits(noLimit, noLimit), noLimit, -1},
		{
			"through a caller that the row does not know",
			[]interval{{0, 100}, {10, 80}, absent, {85, 91}},
			limits(noLimit, noLimit), 88, 3,
		},
	} {
		for name, e := range engines(p, c.limits) {
			if o := e.request(requests(c.row), 0); o.cut != c.cut || o.hop != c.hop {
				t.Errorf("%s, %s: cut at %v by %d, want %v by %d", c.name, name, o.cut, o.hop, c.cut, c.hop)
			}
		}
	}
}

func TestSharesOfATenRequestSampleCutThree(t *testing.T) {
	var rows [][]interval
	for range 7 {
		rows = append(rows, []interval{{0, 20}, {0, 10}, {10, 20}})
	}
	for range 2 {
		rows = append(rows, []interval{{0, 60}, {0, 50}, {50, 60}})
	}
	rows = append(rows, []interval{{0, 100}, {0, 10}, {10, 100}})
	p := serial(50, 90)
	s := Solve(p, 100, P99Prop{})
	e := p.replay(requests(rows...), 100, limitSet{Timeouts: s.Share})
	if e.FalseCut != 0.3 || e.Violated != 0.3 || e.Miss != 0 {
		t.Errorf("shares %v: %+v, want 30 %% cut", s.Share, e)
	}
}

func TestReplayWeighsRequests(t *testing.T) {
	rows := requests([]interval{{0, 10}, {0, 10}}, []interval{{0, 50}, {0, 50}}, []interval{{0, 90}, {0, 90}})
	rows.Threshold[1] = 3 << 54 // one kept of four
	rows.Failed = [][]bool{{false, false, true}, nil}
	e := serial(1).replay(rows, 20, limitSet{Timeouts: []float64{20, 5}})
	want := Effect{
		Requests: 2, Miss: 0.8, Violated: 1, FalseCut: 0.2, Executed: 10, Saved: 74, Wasted: 10, Early: 15, Cut: []float64{0, 1},
	}
	if diff := cmp.Diff(want, e, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Error(diff)
	}
}

func TestReplayOfNoRequests(t *testing.T) {
	e := serial(1).replay(requests(), 20, limitSet{Timeouts: []float64{20, 5}})
	if diff := cmp.Diff(Effect{Cut: []float64{0, 0}}, e); diff != "" {
		t.Error(diff)
	}
}

// randomRows makes requests of a tree in which calls lie anywhere, also outside
// of their callers and before their predecessors.
func randomRows(rng *rand.Rand, hops int) *profile.Rows {
	var rows [][]interval
	for range 1 + rng.IntN(30) {
		row := []interval{{0, rng.Int64N(100)}}
		for range hops - 1 {
			start := rng.Int64N(60)
			call := interval{start, start + rng.Int64N(60)}
			if rng.IntN(4) == 0 {
				call = absent
			}
			row = append(row, call)
		}
		rows = append(rows, row)
	}
	r := requests(rows...)
	for i := range r.Hash {
		r.Hash[i] = rng.Uint64()
		r.Threshold[i] = []uint64{0, 1 << 55}[rng.IntN(2)]
	}
	return r
}

// randomLimits are limits of a random kind.
func randomLimits(rng *rand.Rand, hops int) limitSet {
	limits := limitSet{Propagate: rng.IntN(2) == 0, Timeouts: []float64{float64(rng.IntN(120))}}
	for range hops - 1 {
		limits.Timeouts = append(limits.Timeouts, float64(rng.IntN(70)))
	}
	return limits
}

// TestReplayLaws holds the replay to its own arithmetic on random requests.
func TestReplayLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const exact = 1e-9
	for round := range 2000 {
		p := endpoint(call(1), call(1, 1), Hop{Parent: 2, Floor: float64(rng.IntN(4)), Tail: float64(rng.IntN(4))}, call(1, 1, 2))
		n := len(p.Hops)
		r, limits, budget := randomRows(rng, n), randomLimits(rng, n), float64(rng.IntN(120))
		e := p.replay(r, budget, limits)
		none := p.replay(r, budget, limitSet{Timeouts: slices.Repeat([]float64{noLimit}, n)})
		if none.Saved != 0 || none.FalseCut != 0 || math.Abs(e.Executed+e.Saved-none.Executed) > exact {
			t.Fatalf("%d: executed + saved are %v + %v of %v", round, e.Executed, e.Saved, none.Executed)
		}
		cut := 0.0
		for _, c := range e.Cut {
			cut += c
		}
		if e.Violated < e.Miss || math.Abs(e.FalseCut-(e.Violated-e.Miss)) > exact || e.Wasted > e.Executed+exact ||
			e.Miss != none.Miss || cut > e.Violated+exact || cut < e.FalseCut-exact || e.Early > budget {
			t.Fatalf("%d: rates do not add up: %+v", round, e)
		}
		for name, engine := range engines(p, limits) {
			for i := range r.Len() {
				o := engine.request(r, i)
				want := float64(r.Duration[0][i])
				if other := engines(p, limits)["still"].request(r, i); o != other || o.duration != want {
					t.Fatalf("%d, %s: with nothing degradable %+v, else %+v", round, name, o, other)
				}
			}
		}
		raised := limitSet{Timeouts: slices.Clone(limits.Timeouts), Propagate: limits.Propagate}
		raised.Timeouts[rng.IntN(n)] += float64(rng.IntN(40))
		if longer := p.replay(r, budget, raised); longer.Violated > e.Violated+exact {
			t.Fatalf("%d: %v instead of %v violates %v instead of %v", round, raised.Timeouts, limits.Timeouts,
				longer.Violated, e.Violated)
		}

		// Only degradable hops can lower the miss rate, and they cut nothing.
		limits.Degradable = []bool{false, true, false, true, false}
		d := p.replay(r, budget, limits)
		if d.Miss > none.Miss || math.Abs(d.Executed+d.Saved-none.Executed) > exact || d.Cut[1] != 0 || d.Cut[3] != 0 ||
			d.Saved < -exact || math.Abs(d.FalseCut-(d.Violated-d.Miss)) > exact {
			t.Fatalf("%d: with degradable hops %+v, without %+v", round, d, none)
		}
	}
}

// TestDegradedCallsShortenTheRequest: what waited for a hop that is given up
// starts earlier, and only that can lower the rate of misses.
func TestDegradedCallsShortenTheRequest(t *testing.T) {
	// R |--------------------------------------------------| 100
	// a  |-------------------------| 2-50       degradable
	// x   |-------------------| 4-40            called by a
	// b  |----------| 2-20                      beside a
	// c                             |------| 52-66   after a and b
	// d                                     |--| 66-70  after c
	recorded := []interval{{0, 100}, {2, 50}, {4, 40}, {2, 20}, {52, 66}, {66, 70}}
	p := endpoint(call(1), Hop{Parent: 1}, call(1), call(1, 1, 3), call(1, 1, 3, 4))
	limits := func(t ...float64) limitSet {
		return limitSet{Timeouts: t, Degradable: []bool{false, true, false, false, false, false}}
	}
	for _, c := range []struct {
		name   string
		limits limitSet
		want   Effect
	}{
		{
			"at its timeout",
			limits(80, 18, noLimit, noLimit, noLimit, noLimit),
			// a 2-20, x 4-20, b 2-20, c 22-36, d 36-40, R 0-70
			Effect{Degraded: 1, Executed: 70 + 18 + 16 + 18 + 14 + 4, Saved: 30 + 30 + 20, Cut: []float64{0, 0, 0, 0, 0, 0}},
		},
		{
			"no further than to what ran beside it",
			limits(80, 3, noLimit, noLimit, noLimit, noLimit),
			Effect{Degraded: 1, Executed: 70 + 3 + 1 + 18 + 14 + 4, Saved: 30 + 45 + 35, Cut: []float64{0, 0, 0, 0, 0, 0}},
		},
		{
			"by a call below it that is cut",
			limits(80, noLimit, 16, noLimit, noLimit, noLimit),
			Effect{Degraded: 1, Executed: 70 + 18 + 16 + 18 + 14 + 4, Saved: 30 + 30 + 20, Cut: []float64{0, 0, 0, 0, 0, 0}},
		},
		{
			"and a cut elsewhere still ends the request",
			limits(80, 18, noLimit, noLimit, 10, noLimit),
			// c is cut at 32
			Effect{
				Violated: 1, FalseCut: 1, Executed: 32 + 18 + 16 + 18 + 10, Wasted: 32 + 18 + 16 + 18 + 10,
				Saved: 68 + 30 + 20 + 4 + 4, Cut: []float64{0, 0, 0, 0, 1, 0},
			},
		},
		{
			"as long as it is not late nothing moves",
			limits(100, 48, noLimit, noLimit, noLimit, noLimit),
			Effect{
				Miss: 1, Violated: 1, Executed: 100 + 48 + 36 + 18 + 14 + 4, Wasted: 100 + 48 + 36 + 18 + 14 + 4,
				Cut: []float64{0, 0, 0, 0, 0, 0},
			},
		},
	} {
		c.want.Requests = 1
		if diff := cmp.Diff(c.want, p.replay(requests(recorded), 80, c.limits)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	// With 50 of 90 for the tail, a is given up at 40, and c, now at 42, is not sent.
	passed := limits(90, noLimit, noLimit, noLimit, noLimit, noLimit)
	passed.Propagate = true
	p.Hops[0].Tail, p.Hops[4].Floor = 50, 8
	want := Effect{
		Requests: 1, Miss: 1, Violated: 1, Executed: 42 + 38 + 36 + 18, Wasted: 42 + 38 + 36 + 18,
		Saved: 58 + 10 + 14 + 4, Early: 38, Cut: []float64{0, 0, 0, 0, 1, 0},
	}
	if diff := cmp.Diff(want, p.replay(requests(recorded), 80, passed)); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkReplay replays 100,000 requests of 16 hops.
func BenchmarkReplay(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	hops := []Hop{call(1)}
	for h := 2; h < 16; h++ {
		hops = append(hops, Hop{Parent: (h + 1) / 3, Tail: 1})
		for a := 1; a < h; a++ {
			if hops[a-1].Parent == (h+1)/3 {
				hops[h-1].After = append(hops[h-1].After, a)
			}
		}
	}
	p := endpoint(hops...)
	var rows [][]interval
	for range 100_000 {
		row := []interval{{0, 100}}
		for range hops {
			start := rng.Int64N(60)
			row = append(row, interval{start, start + rng.Int64N(40)})
		}
		rows = append(rows, row)
	}
	r := requests(rows...)
	timeouts := slices.Repeat([]float64{39}, 16)
	timeouts[0] = 100
	for _, c := range []struct {
		name   string
		limits limitSet
	}{
		{"hard", limitSet{Timeouts: timeouts}},
		{"passed on", limitSet{Timeouts: timeouts, Propagate: true}},
		{"degradable", limitSet{Timeouts: timeouts, Degradable: []bool{false, true, 15: false}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				p.replay(r, 100, c.limits)
			}
		})
	}
}
