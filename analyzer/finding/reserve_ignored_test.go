package finding_test

import (
	"slices"
	"testing"
)

// A caller whose plan keeps 30 ms for what it does after its calls.
//
//	deadline                                     | 300
//	>edge        0 |-----------------------......| 300
//	edge>bank         50 |-----------------|       may have 300 - 50 - 30 = 220
//	>bank               51 |---------------|
//	bank>ledger             60 |-----|             may have what bank has, less 10
func TestReserveIgnored(t *testing.T) {
	call := func(deadline, below float64) []span {
		return []span{
			{name: ">edge", start: 0, end: 290, stamp: budget(300)},
			{name: "edge>bank", under: ">edge", start: 50, end: 200, stamp: reset(250, deadline)},
			{name: ">bank", under: "edge>bank", start: 51, end: 199, stamp: budget(deadline - 1)},
			{name: "bank>ledger", under: ">bank", start: 60, end: 150, stamp: budget(below)},
		}
	}
	dropping := call(220, 200)
	dropping[1].stamp = dropped(250)
	unstamped := call(250, 100)
	unstamped[0].stamp = nil
	// The retry is given the same 100 ms, and 70 are left that edge may give away.
	//
	//	edge>bank    50 |----------------------------| 290
	//	edge>bank#1  50 |------failed| 140           |
	//	edge>bank#2            200 |-----------------|       200 + 100 > 300 - 30
	attempts := []span{
		{name: ">edge", start: 0, end: 295, stamp: budget(300)},
		{name: "edge>bank", under: ">edge", start: 50, end: 290, stamp: budget(220)},
		{name: "edge>bank#1", under: "edge>bank", start: 50, end: 140, outcome: failed, stamp: budget(100)},
		{name: "edge>bank#2", under: "edge>bank", start: 200, end: 290, stamp: budget(100)},
	}
	checkBy(t, "reserve-ignored", shop(), []example{
		{"all that is left is given away", call(250, 200), []string{"edge>bank 30ms edge"}},
		{"a part of the reserve", call(230, 200), []string{"edge>bank 10ms edge"}},
		{"5 ms are within the tolerance", call(225, 200), nil},
		{"kept", call(220, 200), nil},
		{"kept, but not by the next", call(220, 210), []string{"bank>ledger 10ms bank"}},
		{"an attempt that goes beyond it", attempts, []string{"edge>bank 30ms edge"}},
		{"a later deadline is a reset, nothing else", call(1000, 200), nil},
		{"no deadline is dropped, nothing else", dropping, nil},
		{"a caller without a budget", unstamped[:2], nil},
	})
	if got := found(t, "reserve-ignored", call(250, 200)); got != nil {
		t.Errorf("without a plan: %v", got)
	}
	// Whoever answers at once has a tail of microseconds: to give all away is fine.
	for _, c := range []struct {
		tail, deadline float64
		want           []string
	}{
		{0.016, 250, nil},
		{5, 250, nil},
		{6, 250, []string{"edge>bank 6ms edge"}},
		{100, 159, nil}, // 9 of 100
		{100, 161, []string{"edge>bank 11ms edge"}},
	} {
		p := shop()
		p.Endpoints[0].Tail = millis(c.tail)
		if got := foundBy(t, "reserve-ignored", call(c.deadline, 1), p); !slices.Equal(got, c.want) {
			t.Errorf("tail of %v ms, deadline of %v: %v, want %v", c.tail, c.deadline, got, c.want)
		}
	}
}
