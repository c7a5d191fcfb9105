package profile

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// TestCostGrowsWithTheSpansNotWithTheirShape compares the whole way from spans
// to profiles at full size with ten times a tenth of it. Linear work takes as
// long, or up to 1.7 times where only the tenth fits into the processor's
// caches; quadratic work takes 10 times as long.
func TestCostGrowsWithTheSpansNotWithTheirShape(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const most = 4
	same := func(int) string { return "op" }
	different := func(i int) string { return fmt.Sprint("op", i) }
	chain := func(kinds ...trace.Kind) func(int, func(int) string) []trace.Span {
		return func(n int, name func(int) string) []trace.Span {
			return spansOf(n, func(i int) (parent int, s trace.Span) {
				return i - 1, trace.Span{
					Kind: kinds[i%len(kinds)], Start: int64(i), Duration: int64(2*n-2*i) + 1,
					Desc: &trace.Desc{Service: fmt.Sprint("s", (i+1)/2%2), Operation: name(i)},
				}
			})
		}
	}
	flat := func(kind trace.Kind, overlap int64) func(int, func(int) string) []trace.Span {
		return func(n int, name func(int) string) []trace.Span {
			return spansOf(n, func(i int) (parent int, s trace.Span) {
				s = trace.Span{
					Kind: kind, Start: int64(10 * i), Duration: 9 + overlap,
					Desc: &trace.Desc{Service: "s", Operation: name(i)},
				}
				if i == 0 {
					s.Kind, s.Duration, parent = trace.KindServer, int64(10*n)+overlap, -1
				}
				return parent, s
			})
		}
	}
	pairs := func(n int, name func(int) string) []trace.Span {
		return spansOf(n, func(i int) (parent int, s trace.Span) {
			s = trace.Span{
				Kind: trace.KindClient, Start: int64(i), Duration: 2,
				Desc: &trace.Desc{Service: "s", Operation: name(i)},
			}
			switch {
			case i == 0:
				s.Kind, s.Duration, parent = trace.KindServer, int64(n), -1
			case i%2 == 0:
				s.Kind, s.Desc, parent = trace.KindServer, &trace.Desc{Service: "t", Operation: "op"}, i-1
			}
			return parent, s
		})
	}
	broken := func(damage func(i int, s *trace.Span)) func(int, func(int) string) []trace.Span {
		return func(n int, name func(int) string) []trace.Span {
			spans := chain(trace.KindServer)(n, name)
			for i := range spans {
				damage(i, &spans[i])
			}
			return spans
		}
	}
	const S, C, I, U = trace.KindServer, trace.KindClient, trace.KindInternal, trace.KindUnspecified
	tests := []struct {
		name string
		n    int
		make func(int, func(int) string) []trace.Span
		op   func(int) string
	}{
		{"a chain of calls, names equal", 100_000, chain(S, C), same},
		{"a chain of calls, names different", 100_000, chain(S, C), different},
		{"a chain of SERVER spans, names different", 100_000, chain(S), different},
		{"a chain of CLIENT spans", 100_000, chain(C), same},
		{"a chain of calls and parts of them", 100_000, chain(I, C), different},
		{"a chain of INTERNAL spans", 100_000, chain(I), same},
		{"a chain without kinds", 100_000, chain(U), different},
		{"many children, names equal", 50_000, flat(C, 0), same},
		{"many children, names different", 50_000, flat(C, 0), different},
		{"many pairs, CLIENT names different", 50_000, pairs, different},
		{"many overlapping children, names equal", 50_000, flat(C, 1_000_000), same},
		{"many stages, names different", 50_000, flat(I, 0), different},
		{"many queues, names different", 50_000, flat(trace.KindProducer, 0), different},
		{"a long circle", 100_000, broken(func(i int, s *trace.Span) {
			if i == 0 {
				binary.BigEndian.PutUint64(s.Parent[:], 100)
			}
		}), same},
		{"every second span of negative duration", 100_000, broken(func(i int, s *trace.Span) {
			if i%2 == 1 {
				s.Duration = -1
			}
		}), same},
		{"a long run of negative durations", 100_000, broken(func(i int, s *trace.Span) {
			if i > 0 && i%10 != 0 { // the other spans hang on far ends of the run
				s.Duration = -1
			} else if i > 0 {
				binary.BigEndian.PutUint64(s.ID[:], 1<<40+uint64(i))
			}
		}), same},
		{"one id for all", 100_000, broken(func(i int, s *trace.Span) { s.ID = trace.SpanID{1} }), same},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tenth, whole := test.make(test.n/10, test.op), test.make(test.n, test.op)
			small, large := timeOf(tenth, 10), timeOf(whole, 1)
			for round := 1; round < 15 && large > most*small; round++ { // a busy machine only adds time
				small, large = min(small, timeOf(tenth, 10)), min(large, timeOf(whole, 1))
			}
			if large > most*small {
				t.Errorf("%d spans take %v, ten times a tenth of them %v", test.n, large, small)
			}
		})
	}
}

// spansOf makes n spans; parent -1 is none.
func spansOf(n int, build func(i int) (parent int, s trace.Span)) []trace.Span {
	spans := make([]trace.Span, n)
	for i := range spans {
		parent, s := build(i)
		s.TraceID[0] = 1
		binary.BigEndian.PutUint64(s.ID[:], uint64(i+1))
		binary.BigEndian.PutUint64(s.Parent[:], uint64(parent+1))
		spans[i] = s
	}
	return spans
}

func timeOf(spans []trace.Span, times int) time.Duration {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the small run has no collections either
	began := time.Now()
	for range times {
		tr := trace.NewTrace(spans)
		survey := NewSurvey()
		survey.AddTrace(tr)
		entries := tr.Entries()
		for _, e := range entries {
			survey.Add(tr, e)
		}
		c := NewCollector(survey.Decide(Options{}))
		for _, e := range entries {
			c.Add(tr, e)
		}
		c.Resolve()
	}
	return time.Since(began)
}
