package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/budget"
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
