package finding_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// The faults that a grown request can have, one at most.
const (
	faultNone = iota
	faultReset
	faultDropped
	faultOverrun
	faultRetries
	faultExhausted
	faultDoomed
	faults
)

// grower makes up a request in which budgets are handed on as they should be,
// but for one fault. All that is healthy varies: transit, clocks that are up to
// 200 ms apart, libraries that send 3 % more, callers that keep a reserve, streams
// that outlive it all.
//
//	>s0         |--------------------------------|   at most half of what it has
//	s0>s1        |-------------|                     one window after the other
//	>s1           ..|--------|..                     within it, transit left out
//	s0>s2                       |------------|
type grower struct {
	rng   *rand.Rand
	skew  [4]float64 // of each service's clock, ms
	spans []span
	want  []string // "rule span"
	fault int      // still to be planted
	n     int
}

func (g *grower) between(lo, hi float64) float64 { return lo + g.rng.Float64()*(hi-lo) }

func (g *grower) name(label string) string { g.n++; return fmt.Sprintf("%s#%d", label, g.n) }

// stamp is what a span says: what is left of the request, and the deadline of
// its context; extra is by how much a reset made that longer.
func stamp(left, extra float64, hasDeadline bool) *trace.Stamp {
	if !hasDeadline {
		return dropped(left)
	}
	return reset(left, left+extra)
}

// handed is what arrives of a deadline: less by the transit, or a little more.
func (g *grower) handed(left, transit float64) float64 {
	if g.rng.IntN(3) == 0 {
		return left * g.between(1, 1.03)
	}
	return left - transit*g.rng.Float64()
}

// serve makes a server span and its calls. at and length are true times.
func (g *grower) serve(service int, under string, depth int, at, length, left, extra float64, hasDeadline bool) {
	name := g.name(fmt.Sprintf(">s%d", service))
	clock := g.skew[service]
	g.spans = append(g.spans, span{
		name: name, under: under, start: at + clock, end: at + length + clock, stamp: stamp(left, extra, hasDeadline),
	})
	if depth == 0 {
		return
	}
	if left > 0 && g.rng.IntN(4) == 0 {
		g.stream(service, name, at+g.between(0, 0.9)*length, left-length)
	}
	calls := 1 + g.rng.IntN(3)
	for i := range calls {
		window := length / float64(calls)
		start := at + float64(i)*window
		took := window * g.between(0.5, 0.95)
		rest := left - (start - at)
		if g.rng.IntN(4) == 0 {
			rest *= g.between(0.9, 1) // a reserve
		}
		callee := g.rng.IntN(4)
		label := fmt.Sprintf("s%d>s%d", service, callee)
		call := span{name: g.name(label), under: name, start: start + clock, end: start + took + clock}
		rextra, rdeadline := extra, hasDeadline
		if g.rng.IntN(3) == 0 {
			fault := g.fault
			g.fault = faultNone
			switch fault {
			case faultReset:
				rest = left - (start - at)
				rextra = max(5, 0.04*rest)*2.2 + g.between(0, 5000)
				g.want = append(g.want, "deadline-reset "+call.name)
			case faultDropped:
				rextra, rdeadline = 0, false
				g.want = append(g.want, "deadline-dropped "+call.name)
			case faultOverrun: // a timeout that is too short, and not kept
				call.stamp = budget(took * g.between(0.3, 0.9))
				g.spans = append(g.spans, call)
				g.want = append(g.want, "budget-overrun "+call.name, "budget-utilization "+call.name)
				if call.stamp.Remaining < 4*ms { // and of no use with so little
					g.want = append(g.want, "doomed-call "+call.name)
				}
				continue
			case faultRetries:
				tries := 4 + g.rng.IntN(4)
				for k := range tries {
					try := call
					try.start += took / float64(tries) * float64(k)
					try.end = try.start + took/float64(tries)*0.9
					try.stamp = stamp(rest-(try.start-call.start), extra, hasDeadline)
					if k > 0 {
						try.name = g.name(label)
					}
					if k < tries-1 {
						try.outcome = failed
					}
					g.spans = append(g.spans, try)
				}
				g.want = append(g.want, "retry-amplification "+call.name)
				continue
			case faultExhausted: // a caller that had kept all for itself
				call.stamp = budget(-g.between(0, 50))
				g.spans = append(g.spans, call)
				g.want = append(g.want, "exhausted-at-start "+call.name)
				continue
			case faultDoomed: // the rest of a budget, too little to be of use
				call.stamp = budget(g.between(0.5, 3.9))
				call.end = call.start + float64(call.stamp.Remaining)/1e6*g.between(0.1, 0.75)
				g.spans = append(g.spans, call)
				g.want = append(g.want, "doomed-call "+call.name)
				continue
			}
		}
		call.stamp = stamp(rest, rextra, rdeadline)
		g.spans = append(g.spans, call)
		transit := took * g.between(0, 0.05)
		arrived, stretch := g.handed(rest, transit), 0.0
		if rextra > 0 {
			stretch = g.handed(rest+rextra, transit) - arrived - rextra
		}
		g.serve(callee, call.name, depth-1, start+transit, took-2*transit, arrived, max(rextra+stretch, 0), rdeadline)
	}
}

// stream opens a long stream with a deadline of its own or none, in which calls go on
// when nothing is left any more. It ends as it likes. What is left at its opening is
// at least left.
func (g *grower) stream(service int, under string, at, left float64) {
	outcomes := []trace.Outcome{ok, failed, timedOut, cancelled}
	clock, lives := g.skew[service], left*g.between(0.5, 20)
	label := fmt.Sprintf("s%d>feed", service)
	client := span{
		name: g.name(label), under: under, start: at + clock, end: at + lives + clock,
		stamp: stamp(left, g.between(-0.5, 100)*left, g.rng.IntN(2) == 0), outcome: outcomes[g.rng.IntN(4)], stream: true,
	}
	server := span{
		name: g.name(">feed"), under: client.name, start: at, end: at + lives*g.between(0.9, 1.1),
		stamp: client.stamp, outcome: outcomes[g.rng.IntN(4)], stream: g.rng.IntN(2) == 0,
	}
	g.spans = append(g.spans, client, server)
	if lives <= left {
		return // what is called in time is judged like anything else
	}
	for range g.rng.IntN(4) {
		passed := lives * g.rng.Float64()
		g.spans = append(g.spans, span{
			name: g.name("feed>db"), under: server.name, start: at + passed, end: at + passed + lives*g.rng.Float64(),
			stamp: dropped(left - passed), outcome: outcomes[g.rng.IntN(4)],
		})
	}
}

// floors is a plan by which no call is worth sending with less than 4 ms.
func floors() *plan.Index {
	hops := func(below []plan.Hop) []plan.Hop {
		out := make([]plan.Hop, 4)
		for i := range out {
			out[i] = plan.Hop{
				Callee: fmt.Sprintf("s%d", i), Operation: "op", Hops: below,
				Share: plan.Duration(time.Hour), Floor: plan.Duration(4 * time.Millisecond),
			}
		}
		return out
	}
	p := plan.Plan{Endpoints: []plan.Endpoint{{
		Service: "s0", Operation: "op", Budget: plan.Duration(time.Hour), Hops: hops(hops(nil)),
	}}}
	return plan.NewIndex(&p)
}

// TestPlantedFaultsAreFoundAndNothingElse: in 100,000 requests, half of them
// healthy, the rules find what was planted, at the call where it was, and
// nothing anywhere else.
func TestPlantedFaultsAreFoundAndNothingElse(t *testing.T) {
	requests := 100_000
	if testing.Short() {
		requests = 10_000
	}
	rules := finding.Rules()
	planted := make([]int, faults)
	floors := floors()
	for seed := range uint64(requests) {
		g := &grower{rng: rand.New(rand.NewPCG(seed, 11))}
		if seed%2 == 0 {
			g.fault = 1 + g.rng.IntN(faults-1)
		}
		fault := g.fault
		for i := range g.skew {
			g.skew[i] = g.between(-100, 100)
		}
		left := g.between(50, 3000)
		g.serve(0, "", 1+g.rng.IntN(3), 1000, left*g.between(0.1, 0.5), left, 0, true)
		if len(g.want) > 0 {
			planted[fault]++
		}
		tr, names := tree(t, g.spans)
		request := finding.NewRequest(tr, nil, finding.Defaults)
		request.Plan = floors
		var got []string
		for _, rule := range rules {
			rule.Check(request, func(f finding.Finding) {
				got = append(got, rule.Name+" "+names[tr.Trace.Spans[f.Span].ID])
			})
		}
		slices.Sort(got)
		slices.Sort(g.want)
		if !slices.Equal(got, g.want) {
			for _, s := range g.spans {
				t.Logf("%-10s under %-10s %.3f-%.3f %+v", s.name, s.under, s.start, s.end, *s.stamp)
			}
			t.Fatalf("seed %d: found %q, planted %q", seed, got, g.want)
		}
	}
	for fault, n := range planted[1:] {
		if n < requests/40 {
			t.Errorf("fault %d was planted in %d requests only", fault+1, n)
		}
	}
}
