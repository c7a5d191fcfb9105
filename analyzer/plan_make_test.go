package analyzer_test

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// A plan names the calls after which a call starts, in their order, but for those that
// end before another of them starts.
//
//	gw     |-----------------------|
//	a        |--|                       also before b, which tells it
//	b            |----|
//	c         |------|
//	d                    |------|       after b and c
func TestAPlanNamesTheCallsThatComeBefore(t *testing.T) {
	var spans memory
	for i := range uint64(requests) {
		const epoch, ms = 1_700_000_000_000_000_000, 1_000_000
		for id, s := range []struct {
			name       string
			start, end int64
		}{{"gw", 0, 100}, {"a", 2, 20}, {"b", 22, 50}, {"c", 3 + int64(i%40), 45}, {"d", 60, 90}} {
			span := trace.Span{
				Start: epoch + s.start*ms, Duration: (s.end-s.start)*ms + int64(i)*1000, Kind: trace.KindServer,
				Desc: &trace.Desc{Service: s.name, Operation: "do"},
			}
			binary.BigEndian.PutUint64(span.TraceID[8:], i+1)
			span.ID[7] = byte(id + 1)
			if id > 0 {
				span.Parent[7] = 1
			}
			spans = append(spans, span)
		}
	}
	report, err := analyzer.Analyze(t.Context(), analyzer.Config{}, spans)
	if err != nil {
		t.Fatal(err)
	}
	after := make(map[string][]string)
	for _, h := range report.Plan.Endpoints[0].Hops {
		after[h.Callee] = h.After
	}
	want := map[string][]string{"a": nil, "b": {"a do"}, "c": nil, "d": {"b do", "c do"}}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
