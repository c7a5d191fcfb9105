package finding_test

import (
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// A POST that is sent again after it failed.
//
//	edge>a#1   |----failed|
//	edge>a#2                |-----ok|
func TestUnsafeRetry(t *testing.T) {
	spans := []span{
		{name: ">edge", start: 0, end: 100},
		{name: "edge>a#1", under: ">edge", start: 10, end: 30, outcome: failed},
		{name: "edge>a#2", under: ">edge", start: 40, end: 60, outcome: ok},
	}
	for _, c := range []struct {
		name   string
		unsafe bool
		first  trace.Outcome
		want   int
	}{
		{"sent again", true, failed, 1},
		{"another method, or with a key", false, failed, 0},
		{"a loop", true, ok, 0},
	} {
		spans[1].outcome = c.first
		tr, names := tree(t, spans)
		for i := range tr.Trace.Spans {
			if s := &tr.Trace.Spans[i]; c.unsafe && s.Kind == trace.KindClient {
				s.Flags |= trace.FlagUnsafe
			}
		}
		n := 0
		finding.Named("unsafe-retry").Check(finding.NewRequest(tr, nil, finding.Defaults), func(f finding.Finding) {
			n++
			if names[tr.Trace.Spans[f.Span].ID] != "edge>a#1" || f.Amount != 2 {
				t.Errorf("%s: %+v", c.name, f)
			}
		})
		if n != c.want {
			t.Errorf("%s: %d findings, want %d", c.name, n, c.want)
		}
	}
}
