//go:build !race

package latencybudgetprocessor

import (
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// What is not set costs nothing, and what is set costs one allocation each, and one
// for the map that holds it. A list is an attribute, what holds its texts, and
// the texts; a caller that used most of its budget is told by the name of who spent it.
func TestAllocations(t *testing.T) {
	const rounds = 5
	for name, left := range map[string]int64{"no budget": 0, "stamped": 100e9, "all too slow": 30e6} {
		t.Run(name, func(t *testing.T) {
			in := drawnBatch(t, 64, left)
			batches := make([]ptrace.Traces, rounds+2)
			for i := range batches {
				batches[i] = ptrace.NewTraces()
				in.CopyTo(batches[i])
			}
			j := newJudge(defaults(), nil, newHopNames(100))
			set, grown, lists, named := 0, 0, 0, 0
			before := eachSpan(in)
			j.judge(batches[0], nil) // buffers grow
			for i, s := range eachSpan(batches[0]) {
				if n := s.Attributes().Len() - before[i].Attributes().Len(); n > 0 {
					set, grown = set+n, grown+1
				}
				for _, key := range []string{attr.Flags, attr.Findings} {
					if list, ok := s.Attributes().Get(key); ok {
						lists += 2 + list.Slice().Len()
						if key == attr.Findings && strings.Contains(list.AsString(), attr.FlagBudgetUtilization) {
							named++
						}
					}
				}
			}
			if left > 0 && grown == 0 {
				t.Fatal("nothing is set")
			}
			next := 1
			allocs := testing.AllocsPerRun(rounds, func() {
				j.judge(batches[next], nil)
				next++
			})
			if allocs > float64(set+grown+lists+named) {
				t.Errorf("%v allocations for %d attributes on %d spans of %d, %d for lists, %d for names", allocs, set, grown, len(before), lists, named)
			}
		})
	}
}
