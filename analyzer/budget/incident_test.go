package budget

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/profile"
)

// TestIncidentMovesWhatWaits: siblings after the slow hop start later, callers
// end later, and nothing else changes.
func TestIncidentMovesWhatWaits(t *testing.T) {
	// R |------------------------------------------| 100
	// a   |------------| 10-40          slow by 25
	// x    |-------| 12-35              called by a
	// b   |---------------| 10-50       beside a
	// c                      |----| 55-70   after a and b
	// d                             |----| 75-90   after c, here not called in the second request
	recorded := [][]interval{
		{{0, 100}, {10, 40}, {12, 35}, {10, 50}, {55, 70}, {75, 90}, {0, 300}},
		{{0, 60}, {5, 10}, {6, 8}, {5, 50}, absent, absent, {0, 300}},
		{{0, 60}, absent, absent, {5, 50}, {50, 55}, absent, {0, 300}},
	}
	p := endpoint(call(1), Hop{Parent: 1}, call(1), call(1, 1, 3), call(1, 4), Hop{Excluded: true})
	got, hit := p.Slow(requests(recorded...), Incident{Hop: 1, Low: 25, High: 25, Ratio: 1})
	want := requests(
		[]interval{{0, 115}, {10, 65}, {12, 35}, {10, 50}, {70, 85}, {90, 105}, {0, 300}},
		[]interval{{0, 60}, {5, 35}, {6, 8}, {5, 50}, absent, absent, {0, 300}},
		recorded[2],
	)
	if diff := cmp.Diff(want, got); diff != "" || hit != 2 {
		t.Errorf("%d hit: %s", hit, diff)
	}
}

func TestIncidentHitsTheShareThatIsAskedFor(t *testing.T) {
	p := chain(20_000, 0)
	problem := NewProblem(p, Options{})
	incident := Incident{Hop: 3, Low: 4e8, High: 4e9, Ratio: 0.1}
	slowed, said := problem.Slow(p.Rows, incident)
	with, hit, sum := 0, 0, 0.0
	for r := range p.Rows.Len() {
		before := p.Rows.Duration[3][r]
		if before < 0 {
			continue
		}
		with++
		extra := slowed.Duration[3][r] - before
		if extra != 0 {
			if extra < incident.Low || extra > incident.High {
				t.Fatalf("request %d is %d slower", r, extra)
			}
			hit++
			sum += float64(extra)
		}
		if got := slowed.Duration[0][r] - p.Rows.Duration[0][r]; got != extra {
			t.Fatalf("request %d is %d slower, its hop %d", r, got, extra)
		}
	}
	if with != 5000 || hit != said || hit < 430 || hit > 570 || math.Abs(sum/float64(hit)-2.2e9) > 1.5e8 {
		t.Errorf("%d of %d calls are slower, by %v in the mean", hit, with, sum/float64(hit))
	}
	if again, _ := problem.Slow(p.Rows, incident); !reflect.DeepEqual(slowed, again) {
		t.Error("the second time other requests are hit")
	}
}

// TestNothingMovesWithoutCause: retimed by nothing, any requests stay as they are.
func TestNothingMovesWithoutCause(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		p := endpoint(call(1), call(1, 1), Hop{Parent: 2}, call(1, 1, 2), Hop{Parent: 4}, Hop{Parent: 4, After: []int{5}})
		rows := randomRows(rng, len(p.Hops))
		incident := Incident{Hop: rng.IntN(len(p.Hops)), Ratio: 1}
		if got, _ := p.Slow(rows, incident); !reflect.DeepEqual(rows, got) {
			t.Fatal(cmp.Diff(rows, got))
		}
		// And slower by something nothing gets faster or starts earlier.
		incident.Low, incident.High = 1, 50
		slowed, _ := p.Slow(rows, incident)
		for h := range p.Hops {
			for r := range rows.Len() {
				if slowed.Duration[h][r] < rows.Duration[h][r] || slowed.Start[h][r] < rows.Start[h][r] ||
					h == incident.Hop && rows.Duration[h][r] >= 0 && slowed.Duration[h][r] == rows.Duration[h][r] {
					t.Fatalf("hop %d of request %d ran from %d for %d, with the incident at %d from %d for %d", h, r,
						rows.Start[h][r], rows.Duration[h][r], incident.Hop, slowed.Start[h][r], slowed.Duration[h][r])
				}
			}
		}
	}
}

// orders is a chain of five calls: auth 25 ms, inventory 30 ms, coupon 45 ms,
// risk 120 ms and persist 70 ms at the P99, log-normal, one time in 200 with a
// cold start of risk of 200 to 900 ms.
func orders(n int) *profile.Profile {
	hops := []profile.Hop{{Parent: -1}}
	p99 := []float64{25e6, 30e6, 45e6, 120e6, 70e6}
	for h := range p99 {
		hop := profile.Hop{Parent: 0, Kind: profile.KindCall}
		for a := 1; a <= h; a++ {
			hop.After = append(hop.After, a)
		}
		hops = append(hops, hop)
	}
	return observed(n, hops, 0, func(rng *rand.Rand, _ int) []interval {
		const sigma, z99 = 0.45, 2.3263
		at := int64(1e6)
		row := []interval{{}}
		for h, q := range p99 {
			d := int64(q * math.Exp(sigma*(rng.NormFloat64()-z99)))
			if h == 3 && rng.IntN(200) == 0 {
				d = int64(2e8 + 7e8*rng.Float64())
			}
			row = append(row, interval{at, at + d})
			at += d + 2e5
		}
		row[0].end = at + 1e6
		return row
	})
}

// TestTimeoutsSaveWorkInAnIncident: of what is wasted when one hop becomes slow,
// a deadline spares most, shares more, for under one more request in a hundred.
func TestTimeoutsSaveWorkInAnIncident(t *testing.T) {
	p := orders(20_000)
	incident := Incident{Hop: 4, Low: 4e8, High: 4e9, Ratio: 0.1}
	v := CrossValidate(p, Options{Quantum: 1e6}, 8e8, P99Prop{}, Questions{Incidents: []Incident{incident}})
	slow := v.Incidents[0].Trials
	today, deadline := slow[0], slow[1]
	shares, caps := Of(slow, PolicyShares, "p99prop"), Of(slow, PolicyCaps, "p99prop")
	if today.Miss < 0.08 || today.Miss > 0.1 {
		t.Errorf("%v of the requests miss in the incident", today.Miss)
	}
	if spared := 1 - deadline.Wasted/today.Wasted; spared < 0.6 || spared > 0.75 {
		t.Errorf("a deadline spares %v of the waste", spared)
	}
	if spared := 1 - shares.Wasted/today.Wasted; spared < 0.8 || spared > 0.92 {
		t.Errorf("shares spare %v of the waste", spared)
	}
	if spared := 1 - caps.Wasted/today.Wasted; spared < 0.78 {
		t.Errorf("caps spare %v of the waste", spared)
	}
	if shares.FalseCut <= caps.FalseCut/2 || shares.FalseCut > 0.013 || deadline.FalseCut != 0 {
		t.Errorf("shares cut %v of good requests, caps %v, a deadline %v", shares.FalseCut, caps.FalseCut, deadline.FalseCut)
	}
	if deadline.Early != 0 || shares.Early < 3e8 || shares.Cut[4] < 0.08 {
		t.Errorf("shares return %v before the budget", shares.Early)
	}
	for _, trial := range slow {
		t.Logf("%-13s violated %.4f false %.4f executed %.1f wasted %.1f early %.0f ms", trial.Policy,
			trial.Violated, trial.FalseCut, trial.Executed/1e6, trial.Wasted/1e6, trial.Early/1e6)
	}
}
