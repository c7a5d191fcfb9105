package finding_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Real requests that are handed a budget that suffices, as services would stamp it: exactly,
// with 3 % more wherever it arrives, or as a point in time by clocks that are up to 50 ms apart. No
// rule on deadlines speaks of them.
func TestRealRequestsWithBudgetsThatSufficeAreHealthy(t *testing.T) {
	dir := os.Getenv("LATENCYBUDGET_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no real traces: set LATENCYBUDGET_CORPUS to their folder (%v)", err)
	}
	src, err := source.Open([]string{dir}, nil, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	builder := trace.NewBuilder()
	for batch, err := range src.Batches(t.Context()) {
		if err == nil { // some are broken on purpose
			builder.Add(batch.Spans)
		}
	}
	builder.Seal()
	rng := rand.New(rand.NewPCG(15, 16))
	skew := make(map[string]int64)
	stamps := map[string]func(s *trace.Span, left int64) *trace.Stamp{
		"exact": func(_ *trace.Span, left int64) *trace.Stamp { return stampOf(left) },
		"3 % more": func(s *trace.Span, left int64) *trace.Stamp {
			if s.Kind == trace.KindServer {
				left += int64(0.03 * rng.Float64() * float64(left))
			}
			return stampOf(left)
		},
		"another clock": func(s *trace.Span, left int64) *trace.Stamp {
			if _, known := skew[s.Desc.Service]; !known {
				skew[s.Desc.Service] = rng.Int64N(50*ms) - 25*ms
			}
			st := stampOf(left + skew[s.Desc.Service])
			st.Absolute, st.Derived = s.Kind == trace.KindServer, true
			return st
		},
	}
	for _, name := range slices.Sorted(maps.Keys(stamps)) {
		stamp := stamps[name]
		requests := 0
		var whole trace.Trace
		for i := range builder.Len() {
			if err := builder.Assemble(i, trace.DefaultMaxTraceSpans, &whole); err != nil {
				t.Fatal(err)
			}
			for _, entry := range whole.Entries() {
				requests++
				start, end := whole.Spans[entry].Start, whole.Spans[entry].End()
				for k := range whole.Spans {
					end = max(end, whole.Spans[k].End())
				}
				budget := 2*(end-start) + 100*ms
				for k := range whole.Spans {
					s := &whole.Spans[k]
					s.Stamp = nil
					if s.Kind == trace.KindClient || s.Kind == trace.KindServer {
						s.Stamp = stamp(s, budget-max(s.Start-start, 0))
					}
				}
				var tree trace.Tree
				tree.Build(&whole, entry, new(trace.Paths), nil)
				request := finding.NewRequest(&tree, nil, finding.Defaults)
				for _, rule := range finding.Rules() {
					if rule.Severity < finding.Error {
						continue // such as timeouts, of which there are some
					}
					rule.Check(request, func(f finding.Finding) {
						s := &whole.Spans[f.Span]
						t.Errorf("%s: %s at %s/%s, %s %s: %d", name, rule.Name, whole.ID, s.ID, s.Desc.Service, s.Desc.Operation, f.Amount)
					})
				}
			}
		}
		if requests < 1000 {
			t.Errorf("%s: %d requests: the test shows little", name, requests)
		}
	}
}

// stampOf is budget for a time in ns.
func stampOf(left int64) *trace.Stamp { return budget(float64(left) / 1e6) }
