package profile

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// chains writes for each hop what it follows: "b after a".
func (p *Profile) chains() []string {
	var out []string
	for _, h := range p.Hops {
		for _, a := range h.After {
			out = append(out, h.Operation+" after "+p.Hops[a].Operation)
		}
	}
	return out
}

func TestOrderNeedsNinetyPercent(t *testing.T) {
	// a [0,40]; b starts at 40, or at 30 in some requests. 1 % of 100 ms is tolerated.
	requests := func(n, overlapping int, overlap int64) *Profile {
		return one(t, Options{}, many(n, func(i int) work {
			start := int64(40 * ms)
			if i < overlapping {
				start -= overlap
			}
			return serverSpan("s", "GET /", 0, 100*ms, call("s", "a", "a", 0, 40*ms), call("s", "b", "b", start, 80*ms))
		}))
	}
	tests := []struct {
		name           string
		n, overlapping int
		overlap        int64
		want           []string
	}{
		{"always before", 30, 0, 0, []string{"b after a"}},
		{"before in 27 of 30", 30, 3, 10 * ms, []string{"b after a"}},
		{"before in 26 of 30", 30, 4, 10 * ms, nil},
		{"overlap within the tolerance", 30, 30, ms, []string{"b after a"}},
		{"overlap over the tolerance", 30, 30, ms + 1, nil},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, requests(test.n, test.overlapping, test.overlap).chains()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestToleranceIsAtMostHalfOfEitherCall(t *testing.T) {
	// 1 % of the parent is 1 ms, but b takes 0.2 ms: it must start at most 0.1 ms early.
	for early, want := range map[int64][]string{100_000: {"b after a"}, 100_001: nil} {
		p := one(t, Options{}, many(30, func(int) work {
			return serverSpan("s", "GET /", 0, 100*ms, call("s", "a", "a", 0, 40*ms),
				call("s", "b", "b", 40*ms-early, 40*ms-early+200_000))
		}))
		if diff := cmp.Diff(want, p.chains()); diff != "" {
			t.Errorf("%d ns early (-want +got):\n%s", early, diff)
		}
	}
}

func TestOrderIsSureFromThirtyMeetings(t *testing.T) {
	for n, want := range map[int]Order{29: OrderUncertain, 30: OrderSure} {
		p := one(t, Options{}, many(n, func(int) work {
			return serverSpan("s", "GET /", 0, 100*ms, call("s", "a", "a", 0, 40*ms), call("s", "b", "b", 50*ms, 80*ms))
		}))
		for _, h := range p.Hops[1:] {
			if h.Order != want {
				t.Errorf("%d meetings: order of %s is %d, want %d", n, h.Operation, h.Order, want)
			}
		}
		if sure := map[Order]int{OrderSure: 1}[want]; p.Pairs != 1 || p.SurePairs != sure {
			t.Errorf("%d meetings: %d of %d pairs sure", n, p.SurePairs, p.Pairs)
		}
	}
}

func TestADiamondKeepsItsShape(t *testing.T) {
	// A(5) then B(2) then C(15) beside D(10), then E(30).
	//
	//	A |-|
	//	B   |-|
	//	C     |------|
	//	D     |----|
	//	E            |-----------|
	p := one(t, Options{}, many(40, func(int) work {
		return serverSpan("s", "GET /", 0, 60*ms, call("s", "a", "A", 0, 5*ms), call("s", "b", "B", 5*ms, 7*ms),
			call("s", "c", "C", 7*ms, 22*ms), call("s", "d", "D", 7*ms, 17*ms), call("s", "e", "E", 22*ms, 52*ms))
	}))
	want := []string{
		"B after A", "C after A", "C after B", "D after A", "D after B", "E after A", "E after B",
		"E after C", "E after D",
	}
	if diff := cmp.Diff(want, p.chains()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"0 root s GET /", "0.1 call a A", "0.2 call b B", "0.3 call c C",
		"0.4 call d D", "0.5 call e E",
	}, p.names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSiblingsStandInOrderOfTheirWeightedStart(t *testing.T) {
	// x starts at 10 in two requests and at 50 in one that stands for four; y at 30.
	p := one(t, Options{}, many(3, func(i int) work {
		start, threshold := int64(10*ms), uint64(0)
		if i == 2 {
			start, threshold = 50*ms, 3<<54
		}
		return serverSpan("s", "GET /", 0, 100*ms, call("s", "a", "x", start, start+ms),
			call("s", "b", "y", 30*ms, 31*ms)).sampled(threshold)
	}))
	if diff := cmp.Diff([]string{"0 root s GET /", "0.1 call b y", "0.2 call a x"}, p.names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAlternativesShareOneSlot(t *testing.T) {
	// Of each request's three choices one is called, then pay.
	choices := func(first, second, third, all int) *Profile {
		return one(t, Options{}, many(all, func(i int) work {
			root := serverSpan("s", "GET /", 0, 100*ms)
			switch {
			case i < first:
				root.below = append(root.below, call("s", "c", "first", 0, 10*ms))
			case i < first+second:
				root.below = append(root.below, call("s", "c", "second", 0, 10*ms))
			case i < first+second+third:
				root.below = append(root.below, call("s", "c", "third", 0, 10*ms))
			}
			root.below = append(root.below, call("s", "p", "pay", 50*ms, 60*ms))
			return root
		}))
	}
	// 14*5/25 + 14*6/25 + 5*6/25 = 7.4 meetings expected by chance, none seen.
	p := choices(14, 5, 6, 25)
	slot := p.hop(t, "first").Slot
	if slot == 0 {
		t.Fatal("no slot")
	}
	for _, name := range []string{"first", "second", "third"} {
		if h := p.hop(t, name); h.Slot != slot || h.Order < OrderExclusive {
			t.Errorf("%s has slot %d and order %d, want slot %d, exclusive", name, h.Slot, h.Order, slot)
		}
	}
	if p.hop(t, "pay").Slot != 0 {
		t.Error("pay has a slot")
	}
	if diff := cmp.Diff([]string{"pay after first", "pay after second", "pay after third"}, p.chains()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p.Pairs != 6 || p.SurePairs != 3 {
		t.Errorf("%d of %d pairs sure, want 3 of 6: the alternatives", p.SurePairs, p.Pairs)
	}

	// 20*25/100 = 5 is just enough.
	if p = choices(20, 25, 0, 100); p.hop(t, "first").Slot == 0 {
		t.Error("no slot at 5 expected meetings")
	}

	// 20*24/100 is not: they may well be in sequence.
	p = choices(20, 24, 0, 100)
	if p.hop(t, "first").Slot != 0 || p.hop(t, "second").Slot != 0 {
		t.Error("a slot without evidence")
	}
	if diff := cmp.Diff([]string{"second after first", "pay after first", "pay after second"}, p.chains()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if h := p.hop(t, "second"); h.Order != OrderUncertain {
		t.Errorf("order of second is %d, want uncertain", h.Order)
	}
}

func TestSlowRequestsInRunsShrinkTheSample(t *testing.T) {
	requests := func(slow func(i int) bool) *Profile {
		return one(t, Options{}, many(100, func(i int) work {
			if slow(i) {
				return serverSpan("s", "GET /", 0, 100*ms+int64(i))
			}
			return serverSpan("s", "GET /", 0, 10*ms+int64(i))
		}))
	}
	p := requests(func(i int) bool { return i >= 40 && i < 50 })
	// 10 of 100 are above the P90. With d = 0.9 or -0.1: sum of d*d = 9; of neighbours
	// 9*0.81 - 2*0.09 + 88*0.01 = 7.99.
	a := 7.99 / 9
	if want := (1 - a) / (1 + a); !p.Clustered || math.Abs(p.Shrink-want) > 1e-9 {
		t.Errorf("one run of ten: clustered %v, shrink %v, want %v", p.Clustered, p.Shrink, want)
	}
	p = requests(func(i int) bool { return i%10 == 5 })
	if p.Clustered || p.Shrink != 1 {
		t.Errorf("every tenth: clustered %v, shrink %v", p.Clustered, p.Shrink)
	}
}

func TestServerOnlyIsSaidOfOtherServicesAlone(t *testing.T) {
	p := one(t, Options{}, many(1, func(int) work {
		return serverSpan("s", "GET /", 0, 100*ms, serverSpan("t", "remote", 1*ms, 9*ms),
			serverSpan("s", "local", 11*ms, 19*ms), call("s", "t", "pair", 20*ms, 30*ms))
	}))
	for name, want := range map[string]bool{"remote": true, "local": false, "pair": false} {
		if got := p.hop(t, name).ServerOnly; got != want {
			t.Errorf("%s: server only %v, want %v", name, got, want)
		}
	}
}

func TestTheSameOperationOnTwoWaysIsTwoHops(t *testing.T) {
	p := one(t, Options{}, many(3, func(int) work {
		return serverSpan("s", "GET /", 0, 100*ms,
			call("s", "a", "A", 0, 40*ms, call("a", "db", "Get", 10*ms, 20*ms)),
			call("s", "b", "B", 50*ms, 90*ms, call("b", "db", "Get", 60*ms, 80*ms)))
	}))
	want := []string{"0 root s GET /", "0.1 call a A", "0.1.1 call db Get", "0.2 call b B", "0.2.1 call db Get"}
	if diff := cmp.Diff(want, p.names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a, b := p.Hops[2].Caller, p.Hops[4].Caller; a != "a" || b != "b" {
		t.Errorf("callers %q and %q", a, b)
	}
}
