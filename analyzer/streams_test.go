package analyzer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// How long a stream is open is no latency: a table that has such a duration in it says
// so, also where all that is left of the request is what a profile counted.
func TestATableWithStreamsSaysSo(t *testing.T) {
	for _, marked := range []string{"", "do", "get"} {
		var spans memory
		for i := range uint64(requests) {
			one := retried(i, 2)
			for k := range one {
				if i%100 == 0 && one[k].Desc.Operation == marked {
					one[k].Flags |= trace.FlagStream
				}
			}
			spans = append(spans, one...)
		}
		for name, in := range map[string]trace.Source{
			"traces": spans, "a profile": input{profile: profiled(t, 1, spans).Encode()},
		} {
			report, err := analyzer.Analyze(t.Context(), analyzer.Config{}, in)
			if err != nil {
				t.Fatal(err)
			}
			e := &report.Endpoints[0]
			for i := range e.Hops {
				h := &e.Hops[i]
				said := strings.Contains(strings.Join(e.Warnings, "\n"), h.Label+": some calls are streams")
				if want := h.Operation == marked; said != want || slices.Contains(h.Flags, "stream") != want {
					t.Errorf("%s with streams at %q: %s has flags %q, and warnings are %q", name, marked, h.Label, h.Flags, e.Warnings)
				}
			}
		}
	}
}
