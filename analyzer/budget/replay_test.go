package budget

import (
	"math"
	"math/rand/v2"
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

var noLimit = math.Inf(1)

func TestReplayOfOneRequest(t *testing.T) {
	// R |------------------------------------------------| 100
	// a |-------------------| 40
	// b                      |------------------------| 90
	rows := requests([]interval{{0, 100}, {0, 40}, {40, 90}})
	p := serial(40, 50)
	none := []float64{noLimit, noLimit, noLimit}
	for _, c := range []struct {
		name   string
		limits Limits
		want   Effect
	}{
		{
			"b is cut at 70",
			Limits{Budget: 80, Timeouts: []float64{noLimit, 50, 30}},
			Effect{Requests: 1, Miss: 1, Violated: 1, Executed: 140, Saved: 50, Wasted: 140, Early: 10},
		},
		{"today nothing is cut", Limits{Budget: noLimit, Timeouts: none}, Effect{Requests: 1, Executed: 190}},
		{
			"deadline only",
			Limits{Budget: 80, Timeouts: none},
			Effect{Requests: 1, Miss: 1, Violated: 1, Executed: 160, Saved: 30, Wasted: 160},
		},
		{
			"the deadline cuts before a later timeout",
			Limits{Budget: 80, Timeouts: []float64{noLimit, noLimit, 45}},
			Effect{Requests: 1, Miss: 1, Violated: 1, Executed: 160, Saved: 30, Wasted: 160},
		},
		{
			"a good request is cut",
			Limits{Budget: 100, Timeouts: []float64{noLimit, 39, noLimit}},
			Effect{Requests: 1, Violated: 1, FalseCut: 1, Executed: 78, Saved: 112, Wasted: 78},
		},
		{
			"limits that are just met cut nothing",
			Limits{Budget: 100, Timeouts: []float64{noLimit, 40, 50}},
			Effect{Requests: 1, Executed: 190},
		},
	} {
		if diff := cmp.Diff(c.want, p.Replay(rows, c.limits)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestDeadlineKeepsOnlyTheTail: what a caller did before the call has passed.
func TestDeadlineKeepsOnlyTheTail(t *testing.T) {
	p := serial(35)
	p.Hops[0].Tail = 5
	p.Hops[0].Self = [selfLevels]float64{65, 65} // head and tail
	limits := Limits{Budget: 100, Timeouts: []float64{noLimit, noLimit}, Propagate: true}
	// R |----------------------------------------------------------| 100
	// a                                       |-----------------|    95, or 96
	if e := p.Replay(requests([]interval{{0, 100}, {60, 95}}), limits); e.Violated != 0 {
		t.Errorf("a call that ends as the tail begins is cut: %+v", e)
	}
	if e := p.Replay(requests([]interval{{0, 100}, {60, 96}}), limits); e.FalseCut != 1 || e.Executed != 95+35 {
		t.Errorf("a call that runs into the tail ran on: %+v", e)
	}
}

func TestDeadlinesArePassedDown(t *testing.T) {
	p := endpoint(call(50), Hop{Parent: 1, SelfCount: 99, Floor: 5}, Hop{Parent: 2, SelfCount: 99})
	p.Hops[1].Tail, p.Hops[2].Tail = 10, 2
	limits := func(first, second float64) Limits {
		return Limits{Budget: 100, Timeouts: []float64{noLimit, first, second, noLimit}, Propagate: true}
	}
	for _, c := range []struct {
		name   string
		row    []interval
		limits Limits
		cut    float64
	}{
		{
			"the grandchild's deadline is that of the call less two tails",
			[]interval{{0, 90}, {10, 80}, {20, 60}, {20, 59}},
			limits(60, noLimit), 58,
		},
		{
			"its caller's own timeout binds first",
			[]interval{{0, 90}, {10, 80}, {20, 50}, {20, 49}},
			limits(noLimit, 25), 43,
		},
		{"a call below its floor is not sent", []interval{{0, 100}, {10, 95}, {86, 89}, absent}, limits(noLimit, noLimit), 86},
		{"at its floor it is", []interval{{0, 100}, {10, 95}, {85, 89}, absent}, limits(noLimit, noLimit), noLimit},
		{
			"through a caller that the row does not know",
			[]interval{{0, 100}, {10, 80}, absent, {85, 91}},
			limits(noLimit, noLimit), 88,
		},
	} {
		deadlines := make([]float64, 4)
		if got := p.cut(requests(c.row), 0, p.planned(nil), &c.limits, deadlines); got != c.cut {
			t.Errorf("%s: cut at %v, want %v", c.name, got, c.cut)
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
	e := p.Replay(requests(rows...), Limits{Budget: 100, Timeouts: s.Share})
	if e.FalseCut != 0.3 || e.Violated != 0.3 || e.Miss != 0 {
		t.Errorf("shares %v: %+v, want 30 %% cut", s.Share, e)
	}
}

func TestReplayWeighsRequests(t *testing.T) {
	rows := requests([]interval{{0, 10}, {0, 10}}, []interval{{0, 50}, {0, 50}})
	rows.Threshold[1] = 3 << 54 // one kept of four
	e := serial(1).Replay(rows, Limits{Budget: 20, Timeouts: []float64{noLimit, 5}})
	want := Effect{Requests: 2, Miss: 0.8, Violated: 1, FalseCut: 0.2, Executed: 10, Saved: 74, Wasted: 10, Early: 15}
	if diff := cmp.Diff(want, e, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Error(diff)
	}
	if e := serial(1).Replay(requests(), Limits{}); e != (Effect{}) {
		t.Errorf("no requests: %+v", e)
	}
}

// TestReplayLaws holds the replay to its own arithmetic on random requests.
func TestReplayLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 500 {
		p := endpoint(call(1), call(1, 1), Hop{Parent: 2, Floor: float64(rng.IntN(4)), Tail: float64(rng.IntN(4))})
		var rows [][]interval
		for range 1 + rng.IntN(30) {
			row := []interval{{0, rng.Int64N(100)}}
			for range 3 {
				start := rng.Int64N(60)
				row = append(row, interval{start, start + rng.Int64N(60)})
			}
			if rng.IntN(3) == 0 {
				row[3] = absent
			}
			rows = append(rows, row)
		}
		limits := Limits{Budget: float64(rng.IntN(120)), Timeouts: []float64{noLimit, 0, 0, 0}, Propagate: rng.IntN(2) == 0}
		for h := 1; h < 4; h++ {
			limits.Timeouts[h] = float64(rng.IntN(70))
		}
		r := requests(rows...)
		e := p.Replay(r, limits)
		none := p.Replay(r, Limits{Budget: noLimit, Timeouts: []float64{noLimit, noLimit, noLimit, noLimit}})
		const exact = 1e-9
		if none.Saved != 0 || none.Violated != 0 || math.Abs(e.Executed+e.Saved-none.Executed) > exact {
			t.Fatalf("executed + saved are %v + %v of %v", e.Executed, e.Saved, none.Executed)
		}
		if e.Violated < e.Miss || math.Abs(e.FalseCut-(e.Violated-e.Miss)) > exact || e.Wasted > e.Executed+exact {
			t.Fatalf("rates do not add up: %+v", e)
		}
		h := 1 + rng.IntN(3)
		limits.Timeouts[h] += float64(rng.IntN(40))
		if raised := p.Replay(r, limits); raised.Violated > e.Violated+exact {
			t.Fatalf("a longer timeout of hop %d violates %v instead of %v", h, raised.Violated, e.Violated)
		}
	}
}
