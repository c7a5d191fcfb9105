package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// TestEveryStrategySplits: each strategy makes a plan of the orders, and the
// report names the one that did.
func TestEveryStrategySplits(t *testing.T) {
	var names []string
	for _, s := range budget.Strategies {
		names = append(names, s.Name())
	}
	for _, percentile := range []string{"99", "90"} {
		for _, name := range names {
			r := reportOf(t, "testdata/orders", "--budget", "300ms", "--strategy", name, "--percentile", percentile)
			e := r.Endpoints[0]
			if !e.Feasible || e.Strategy != name || e.Replay == nil {
				t.Fatalf("%s at P%s: feasible %v, by %s", name, percentile, e.Feasible, e.Strategy)
			}
			shares := make(map[string]float64) // violated by BUDGET as timeouts
			for _, p := range e.Replay.Policies {
				if p.Policy == string(budget.PolicyShares) {
					shares[p.Strategy] = p.Violated
				}
			}
			if _, ok := shares["p99prop"]; !ok || len(shares) < 2 {
				t.Errorf("%s at P%s: replayed %v", name, percentile, shares)
			}
		}
	}
}

// TestCriticalPathIsNeverRecommended: it comes with a warning that compares it
// with the default.
func TestCriticalPathIsNeverRecommended(t *testing.T) {
	r := reportOf(t, "testdata/orders", "--budget", "300ms", "--strategy", "critpath")
	if !slices.ContainsFunc(r.Endpoints[0].Warnings, func(w string) bool {
		return strings.Contains(w, "no recommendation") && strings.Contains(w, "those of p99prop")
	}) {
		t.Errorf("warnings %q", r.Endpoints[0].Warnings)
	}
}

// TestOptimisedFallsBack: of too few requests the default makes the plan, the
// replay and the report are its, and a warning says why.
func TestOptimisedFallsBack(t *testing.T) {
	r := reportOf(t, "testdata/orders", "--budget", "300ms", "--strategy", "optimised", "--sample", "500")
	e := r.Endpoints[0]
	said := slices.ContainsFunc(e.Warnings, func(w string) bool {
		return strings.Contains(w, "optimised needs 1000 independent requests") && strings.HasSuffix(w, "split by p99prop")
	})
	plain := reportOf(t, "testdata/orders", "--budget", "300ms", "--sample", "500").Endpoints[0]
	if e.Strategy != "p99prop" || !said || e.Hops[1].Share != plain.Hops[1].Share || len(e.Replay.Policies) != len(plain.Replay.Policies) {
		t.Errorf("by %s, warnings %q", e.Strategy, e.Warnings)
	}
}

func TestObjectiveIsChecked(t *testing.T) {
	for _, args := range [][]string{
		{"--objective", "speed"},
		{"--objective", "cuts+waste"},
		{"--strategy", "best"},
	} {
		code, _, stderr := outcome(t, "", append([]string{"analyze", "testdata/orders"}, args...)...)
		if code != exitUsage || !strings.Contains(stderr, args[1]) {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
	reportOf(t, "testdata/orders", "--strategy", "optimised", "--objective", "cuts+waste")
}

// TestTwoSlowCallsUnderOneBudget: two calls in sequence with a P99.9 of 700 ms
// each, under 1 s. Each gets half of what the endpoint's own work leaves, which
// as timeouts cuts requests that a deadline for both would let through; both
// rates are in the report. Floors of 700 ms are refused.
func TestTwoSlowCallsUnderOneBudget(t *testing.T) {
	call := func(service string) *tracegen.Node {
		own := tracegen.Dist{P50: 109_600 * time.Microsecond, P99: 442_600 * time.Microsecond}
		return &tracegen.Node{Service: service, Operation: "Get", Kind: tracegen.KindServer, Own: own}
	}
	spans := tracegen.Draw(&tracegen.Node{
		Service: "shop", Operation: "GET /", Kind: tracegen.KindServer,
		Own:   tracegen.Dist{P50: 2 * time.Millisecond, P99: 6 * time.Millisecond},
		Steps: [][]*tracegen.Node{{call("catalog")}, {call("stock")}},
	}, tracegen.DrawConfig{Seed: 7, Traces: 5000, Start: time.Unix(1_700_000_000, 0), Every: time.Second})

	e := analyzeSpans(t, spans, "--budget", "1s")
	first, second := e.Hops[1].Share.V, e.Hops[2].Share.V
	if e.Hops[0].P99.V > 700e6 || e.Reserve <= 0 || first < 490e6 || first > 500e6 || second < 490e6 || second > 500e6 ||
		first+second+e.Reserve > 1e9 {
		t.Errorf("shares %d and %d of 1 s, reserve %d", first, second, e.Reserve)
	}
	if r := e.Replay; r.BudgetFalseCut.V < 0.003 || r.TimeoutFalseCut.V > r.BudgetFalseCut.V/5 {
		t.Errorf("the partition cuts %v of the good requests, the shared deadline %v", r.BudgetFalseCut.V, r.TimeoutFalseCut.V)
	}
	e = analyzeSpans(t, spans, "--budget", "1s", "--floor", "catalog*=700ms", "--floor", "stock*=700ms")
	if e.Feasible || e.MinBudget < 1400e6 || !slices.Equal(e.BindingChain, []string{"0.1", "0.2"}) {
		t.Errorf("floors of 700 ms each: feasible %v from %d, chain %v", e.Feasible, e.MinBudget, e.BindingChain)
	}
}

// TestManyFalseCutsNameABetterStrategy: where the default's strict budgets cut many
// good requests, the report says what to try, and only there.
func TestManyFalseCutsNameABetterStrategy(t *testing.T) {
	for _, test := range []struct {
		input, budget, strategy string
		want                    bool
	}{
		{"testdata/orders", "201ms", "p99prop", true},
		{"testdata/orders", "800ms", "p99prop", false},   // few are cut
		{"testdata/orders", "201ms", "optimised", false}, // it was tried
		{"testdata/orders", "50ms", "p99prop", false},    // no split obeys
		{"testdata/dag", "45ms", "p99prop", false},       // too few requests to search with
	} {
		r := reportOf(t, test.input, "--budget", test.budget, "--strategy", test.strategy)
		named := slices.ContainsFunc(r.Endpoints[0].Warnings, func(w string) bool { return strings.Contains(w, "--strategy optimised") })
		if named != test.want {
			t.Errorf("%s at %s by %s: warnings %q", test.input, test.budget, test.strategy, r.Endpoints[0].Warnings)
		}
	}
}
