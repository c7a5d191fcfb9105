package analyzer

import (
	"math"
	"testing"
)

// TestWilson compares with the formula of Wilson (1927) worked out by hand.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		ratio, n float64
		lo, hi   float64
	}{
		{0, 20, 0, 0.16113},
		{0.1, 10, 0.01788, 0.40415},
		{0.05, 100, 0.02154, 0.11175},
		{0.5, 1000, 0.46907, 0.53093},
		{1, 20, 0.83887, 1},
		{0, 0, 0, 1},
	} {
		lo, hi := wilson(c.ratio, c.n)
		if math.Abs(lo-c.lo) > 1e-5 || math.Abs(hi-c.hi) > 1e-5 {
			t.Errorf("%v of %v: %.5f to %.5f, want %v to %v", c.ratio, c.n, lo, hi, c.lo, c.hi)
		}
	}
	// The first request is over a limit of 0, however many there are.
	if lo, _ := wilson(1e-7, 1e7); lo <= 0 {
		t.Errorf("one of 10,000,000: low end %v", lo)
	}
	if lo, _ := wilson(0, 1e7); lo != 0 {
		t.Errorf("none of 10,000,000: low end %v", lo)
	}
}

// Findings of a check name hops: of one that several callers have, with the caller.
func TestTwoHopsOfOneNameAreToldByTheirCallers(t *testing.T) {
	hops := []Hop{
		{ID: "0", Label: "edge GET /"},
		{ID: "0.0", Parent: "0", Label: "risk Score"},
		{ID: "0.0.0", Parent: "0.0", Label: "bank Pay"},
		{ID: "0.1", Parent: "0", Label: "bank Pay"},
		{ID: "0.2", Parent: "0", Label: "mail Send"},
	}
	for id, want := range map[string]string{
		"0": "edge GET /", "0.0": "risk Score", "0.0.0": "bank Pay from risk Score", "0.1": "bank Pay from edge GET /",
		"0.2": "mail Send", "other": "other",
	} {
		if got := nameIn(hops, id); got != want {
			t.Errorf("hop %s is %q, want %q", id, got, want)
		}
	}
}
