//go:build !race

package latencybudgetprocessor

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// What is not set costs nothing, and what is set costs one allocation each, and one
// for the map that holds it.
func TestAllocations(t *testing.T) {
	const rounds = 5
	for name, left := range map[string]int64{"no budget": 0, "stamped": 100e9} {
		t.Run(name, func(t *testing.T) {
			in := drawnBatch(t, 64, left)
			batches := make([]ptrace.Traces, rounds+2)
			for i := range batches {
				batches[i] = ptrace.NewTraces()
				in.CopyTo(batches[i])
			}
			j := newJudge(defaults(), nil, newHopNames(100))
			set, grown := 0, 0
			before := eachSpan(in)
			j.judge(batches[0], nil) // buffers grow
			for i, s := range eachSpan(batches[0]) {
				if n := s.Attributes().Len() - before[i].Attributes().Len(); n > 0 {
					set, grown = set+n, grown+1
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
			if allocs > float64(set+grown) {
				t.Errorf("%v allocations for %d attributes on %d spans of %d", allocs, set, grown, len(before))
			}
		})
	}
}
