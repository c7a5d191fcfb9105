package finding_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// randomSpans makes up a tree: spans in any order of time, with any outcome and
// any figures.
func randomSpans(seed uint64) []span {
	rng := rand.New(rand.NewPCG(seed, 7))
	services := []string{"a", "b", "c"}
	spans := []span{{name: ">a", start: 0, end: 100}}
	for i := range rng.IntN(30) {
		name := fmt.Sprintf("%s>%s#%d", services[rng.IntN(3)], services[rng.IntN(3)], i)
		if rng.IntN(2) == 0 {
			name = fmt.Sprintf(">%s#%d", services[rng.IntN(3)], i)
		}
		start := rng.Float64()*120 - 10
		spans = append(spans, span{
			name: name, under: spans[rng.IntN(len(spans))].name, start: start, end: start + rng.Float64()*200,
			outcome: trace.Outcome(rng.IntN(4)), host: []string{"", "x"}[rng.IntN(2)],
		})
	}
	for i := range spans {
		if rng.IntN(3) > 0 {
			spans[i].stamp = &trace.Stamp{
				Remaining: ns(rng.Float64()*400 - 50), HasRemaining: rng.IntN(4) > 0,
				DeadlineRemaining: ns(rng.Float64()*400 - 50), HasDeadline: rng.IntN(4) > 0,
				Announced: ns(rng.Float64() * 400), HasAnnounced: rng.IntN(2) > 0,
				Stale: rng.IntN(4) == 0, Absolute: rng.IntN(4) == 0,
			}
		}
	}
	return spans
}

var unexported = cmpopts.IgnoreUnexported(finding.Rule{})

func TestTalliesMergeInAnyOrderAndSplit(t *testing.T) {
	const n = 60
	trees := make([]*trace.Tree, n)
	for i := range trees {
		trees[i], _ = tree(t, randomSpans(uint64(i)))
		trees[i].Trace.ID = trace.TraceID{0: byte(i)}
	}
	add := func(tally *finding.Tally, tr *trace.Tree) {
		tally.Add(finding.NewRequest(tr, nil, finding.Defaults), func(call int32) int32 { return call % 3 })
	}
	var whole finding.Tally
	for _, tr := range trees {
		add(&whole, tr)
	}
	if len(whole.List(nil)) < 10 {
		t.Fatalf("%d places, too few to mean anything", len(whole.List(nil)))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		parts := make([]finding.Tally, 1+rng.IntN(5))
		for _, i := range rng.Perm(n) {
			add(&parts[rng.IntN(len(parts))], trees[i])
		}
		var merged finding.Tally
		for _, i := range rng.Perm(len(parts)) {
			merged.Merge(&parts[i])
		}
		if diff := cmp.Diff(whole.List(nil), merged.List(nil), unexported); diff != "" {
			t.Fatalf("whole and parts differ:\n%s", diff)
		}
	}
}

// Who looks an example up sees the amount that the finding tells of.
func TestTheExampleShowsTheAmountThatIsTold(t *testing.T) {
	type shown struct {
		place   finding.Place
		example string
	}
	amounts := make(map[shown]int64)
	hop := func(call int32) int32 { return call % 3 }
	var parts [3]finding.Tally
	for i := range 60 {
		tr, _ := tree(t, randomSpans(uint64(i)))
		tr.Trace.ID = trace.TraceID{0: byte(i)}
		r := finding.NewRequest(tr, nil, finding.Defaults)
		for _, rule := range finding.Rules() {
			rule.Check(r, func(f finding.Finding) {
				name := tr.Trace.ID.String() + "/" + tr.Trace.Spans[f.Span].ID.String()
				amounts[shown{finding.Place{Rule: rule, Hop: hop(f.Call), By: f.By}, name}] = f.Amount
			})
		}
		parts[i%3].Add(r, hop)
	}
	var whole finding.Tally
	for i := range parts {
		whole.Merge(&parts[i])
	}
	checked := 0
	for _, c := range whole.List(nil) {
		switch amount, known := amounts[shown{c.Place, c.Example}]; {
		case known:
			checked++
			if amount != c.Most {
				t.Errorf("%s: the example %s has %d, want %d", c.Text(), c.Example, amount, c.Most)
			}
		case c.Rule.Name != "doomed-call": // the floor is known in the end only
			t.Errorf("%s: the example %s is no finding", c.Text(), c.Example)
		}
	}
	if checked < 10 {
		t.Errorf("%d places, too few to mean anything", checked)
	}
}

// A request with two findings of one rule at one hop counts once among the
// requests; the largest amount stays, and an example of it.
func TestTallyCountsFindingsAndRequests(t *testing.T) {
	spans := []span{
		{name: ">edge", start: 0, end: 100, stamp: budget(500)},
		{name: "edge>b", under: ">edge", start: 10, end: 20, stamp: reset(490, 900)},
		{name: "edge>b#2", under: ">edge", start: 30, end: 40, stamp: reset(470, 1000)},
	}
	tr, _ := tree(t, spans)
	var tally finding.Tally
	for range 2 {
		tally.Add(finding.NewRequest(tr, nil, finding.Defaults), func(int32) int32 { return 7 })
	}
	want := []finding.Count{{
		Place:    finding.Place{Rule: finding.Named("deadline-reset"), Hop: 7, By: "edge"},
		Findings: 4, Requests: 2, Most: 530 * ms, Example: "00000000000000000000000000000001/0000000000000003",
	}}
	if diff := cmp.Diff(want, tally.List(nil), unexported); diff != "" {
		t.Error(diff)
	}
}
