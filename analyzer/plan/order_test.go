package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/plan"
)

// TestChainOfRandomOrders compares with the longest of all chains, for orders
// that are written in full or by the nearest alone.
func TestChainOfRandomOrders(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		hops := make([]plan.Hop, 1+r.IntN(7))
		for i := range hops {
			hops[i] = plan.Hop{Callee: "s", Operation: fmt.Sprint(i), Share: plan.Duration(1+r.IntN(9)) * ms, Async: r.IntN(6) == 0}
			if r.IntN(3) == 0 {
				hops[i].Exclusive = 1 + r.IntN(2)
			}
			for a := range i {
				if !hops[a].Async && !hops[i].Async && r.IntN(2) == 0 {
					hops[i].After = append(hops[i].After, hops[a].Key())
				}
			}
		}
		var most func(i int) plan.Duration
		most = func(i int) plan.Duration {
			best := plan.Duration(0)
			for _, name := range hops[i].After {
				for a := range i {
					if hops[a].Key() == name && (hops[a].Exclusive == 0 || hops[a].Exclusive != hops[i].Exclusive) {
						best = max(best, most(a))
					}
				}
			}
			return best + hops[i].Share
		}
		want := plan.Duration(0)
		for i := range hops {
			if !hops[i].Async {
				want = max(want, most(i))
			}
		}
		r.Shuffle(len(hops), func(i, j int) { hops[i], hops[j] = hops[j], hops[i] })
		chain, got := plan.Chain(hops)
		sum := plan.Duration(0)
		for i, h := range chain {
			sum += h.Share
			if i > 0 && !strings.Contains(strings.Join(h.After, ","), chain[i-1].Key()) {
				t.Fatalf("seed %d: %s does not come after %s", seed, h.Key(), chain[i-1].Key())
			}
		}
		if got != want || sum != want {
			t.Fatalf("seed %d: chain %v, hops of it %v; want %v", seed, got, sum, want)
		}
	}
}

// TestOrdersInFullTakeNoTime: among 400 hops, each of which names all before it,
// there are 2^398 ways from the first to the last.
func TestOrdersInFullTakeNoTime(t *testing.T) {
	hops := make([]plan.Hop, 400)
	for i := range hops {
		hops[i] = plan.Hop{Callee: "s", Operation: fmt.Sprint(i), Share: ms}
		for a := range i {
			hops[i].After = append(hops[i].After, hops[a].Key())
		}
	}
	if chain, sum := plan.Chain(hops); len(chain) != len(hops) || sum != 400*ms {
		t.Errorf("%d hops, %v", len(chain), sum)
	}
	o := plan.NewOrder(hops)
	if !o.Precedes(0, 399) || o.Precedes(399, 0) || o.Precedes(5, 5) || len(o.Sequence) != 400 {
		t.Error("the order is not that of the hops")
	}
}

func TestPrecedenceGoesThroughOthers(t *testing.T) {
	o := plan.NewOrder(read(t, "testdata/hand.yaml").Endpoints[0].Hops) // A B C D E F G H
	for _, c := range []struct {
		a, b int
		want bool
	}{{0, 7, true}, {7, 0, false}, {2, 3, false}, {3, 2, false}, {3, 4, true}, {6, 7, false}, {0, 6, false}} {
		if got := o.Precedes(c.a, c.b); got != c.want {
			t.Errorf("%c before %c: %v", 'A'+c.a, 'A'+c.b, got)
		}
	}
}
