package finding_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Requests of 100 ms, one every 200 ms, and calls that begin traces of their own.
//
//	>edge      0 |---------| 100   200 |---------| 300
//	edge>a       20 |---| 50         220 |---| 250        inside: by the handler
//	edge>b                 150 |--| 160          350 |--|  between: a job
func TestTraceRestarted(t *testing.T) {
	for _, c := range []struct {
		name    string
		calls   []float64 // start of the call of each request, after the request's
		service string
		host    string
		want    []int64 // of each request
	}{
		{"in every request", []float64{20, 20, 20, 20, 20}, "edge", "", []int64{1, 1, 1, 1, 1}},
		{"at its first moment, not after its last", []float64{0, 0, 0, 0, 0}, "edge", "", []int64{1, 1, 1, 1, 1}},
		{"a job between the requests", []float64{150, 150, 150, 150, 150}, "edge", "", []int64{0, 0, 0, 0, 0}},
		{"a job that meets a request by chance", []float64{150, 150, 20, 150, 150}, "edge", "", []int64{0, 0, 0, 0, 0}},
		{"two calls in one request", []float64{20, -170, 20, 20, 20}, "edge", "", []int64{2, 0, 1, 1, 1}},
		{"too few", []float64{20, 20, 20, 20}, "edge", "", []int64{0, 0, 0, 0}},
		{"of another service", []float64{20, 20, 20, 20, 20}, "load", "", []int64{0, 0, 0, 0, 0}},
		{"of another host of the service", []float64{20, 20, 20, 20, 20}, "edge", "other", []int64{0, 0, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			trees := make([]*trace.Tree, len(c.calls))
			var spans []trace.Span
			desc := &trace.Desc{Service: c.service, Operation: "op", Host: c.host}
			for i, after := range c.calls {
				at := float64(i) * 200
				trees[i], _ = tree(t, []span{{name: ">edge", start: at, end: at + 100}})
				spans = append(spans, trace.Span{
					ID: trace.SpanID{7: byte(i + 1)}, Start: ns(at + after), Duration: ns(30), Desc: desc, Kind: trace.KindClient,
				}, trees[i].Trace.Spans[0])
			}
			rule := finding.Named("trace-restarted")
			rng := rand.New(rand.NewPCG(3, 4))
			for range 5 { // in any order
				var x finding.Restarts
				rng.Shuffle(len(spans), func(a, b int) { spans[a], spans[b] = spans[b], spans[a] })
				x.Collect(spans[:3])
				x.Collect(spans[3:])
				for _, i := range rng.Perm(len(trees)) {
					x.Cover(trees[i].Trace.Spans)
				}
				got := make([]int64, len(trees))
				for i, tr := range trees {
					r := finding.NewRequest(tr, nil, finding.Defaults)
					rule.Check(r, func(f finding.Finding) { t.Error("found without the calls of other traces") })
					r.Restarts = &x
					rule.Check(r, func(f finding.Finding) { got[i] += f.Amount })
				}
				if !slices.Equal(got, c.want) {
					t.Fatalf("found %v, want %v", got, c.want)
				}
			}
		})
	}
}

// A busy service always has some request in work when a job of its own begins. It is
// told from a handler by how many requests have such a call.
//
//	>edge   |------|   |------|   |------|   |------|
//	>edge        |------|   |------|   |------|
//	job                          |-|
func TestAJobOfABusyServiceIsNoRestart(t *testing.T) {
	const requests, every, length = 400, 50, 60 // ms
	desc := &trace.Desc{Service: "edge", Operation: "job"}
	for _, c := range []struct {
		name  string
		apart int // requests from one call to the next
		want  bool
	}{
		{"in each", 1, true},
		{"in every fifth", 5, true},
		{"in one of forty", 40, false},
	} {
		rng := rand.New(rand.NewPCG(6, 7))
		var x finding.Restarts
		trees := make([]*trace.Tree, requests)
		for i := range trees {
			at := float64(i * every)
			trees[i], _ = tree(t, []span{{name: ">edge", start: at, end: at + length}})
			trees[i].Trace.ID = trace.TraceID{0: byte(i), 1: byte(i >> 8)}
			if i%c.apart == 0 {
				x.Collect([]trace.Span{{Start: ns(at + rng.Float64()*every), Duration: ns(5), Desc: desc, Kind: trace.KindClient}})
			}
		}
		for _, tr := range trees {
			x.Cover(tr.Trace.Spans)
		}
		var parts [3]finding.Tally
		for _, i := range rng.Perm(requests) {
			r := finding.NewRequest(trees[i], nil, finding.Defaults)
			r.Restarts = &x
			parts[rng.IntN(len(parts))].Add(r, func(int32) int32 { return 0 })
		}
		var whole finding.Tally
		for i := range parts {
			whole.Merge(&parts[i])
		}
		list := whole.List(nil)
		if found := len(list) == 1 && list[0].Rule.Name == "trace-restarted"; found != c.want || len(list) > 1 {
			t.Errorf("%s: %+v, want it found: %v", c.name, list, c.want)
		}
		if c.want && (list[0].Findings < requests/c.apart || list[0].Most < 1) {
			t.Errorf("%s: %+v", c.name, list[0])
		}
	}
}

// Who begins a trace of its own on purpose marks it, or allows it by name.
func TestACallThatIsMeantToBeginATraceIsNoRestart(t *testing.T) {
	desc := &trace.Desc{Service: "edge", Operation: "GET /audit", Peer: "audit"}
	for _, c := range []struct {
		name  string
		flags trace.Flags
		allow []string
		want  int64
	}{
		{"neither", 0, nil, 5},
		{"marked as detached", trace.FlagFollowsFrom, nil, 0},
		{"allowed", 0, []string{"mail *", "audit *"}, 0},
		{"another is allowed", 0, []string{"mail *"}, 5},
		{"by what it is called, not by who calls", 0, []string{"edge *"}, 5},
	} {
		tr, _ := tree(t, []span{{name: ">edge", start: 0, end: 100}})
		var calls []trace.Span
		for i := range 5 {
			calls = append(calls, trace.Span{
				ID: trace.SpanID{7: byte(i + 1)}, Start: ns(20), Duration: ns(30), Desc: desc, Kind: trace.KindClient, Flags: c.flags,
			})
		}
		for _, allowed := range []*finding.Allowed{nil, finding.NewAllowed(c.allow)} {
			if allowed == nil && c.allow != nil {
				continue
			}
			x := finding.Restarts{Allowed: allowed}
			x.Collect(calls)
			x.Cover(tr.Trace.Spans)
			r := finding.NewRequest(tr, nil, finding.Defaults)
			r.Restarts = &x
			got := int64(0)
			finding.Named("trace-restarted").Check(r, func(f finding.Finding) { got += f.Amount })
			if got != c.want {
				t.Errorf("%s: %d calls, want %d", c.name, got, c.want)
			}
		}
	}
}

// A request that covers all calls of a busy service is looked up, not walked.
func TestManyRestartsAreCountedNotWalked(t *testing.T) {
	const n = 20_000
	var x finding.Restarts
	desc := &trace.Desc{Service: "b", Operation: "op"}
	calls := make([]trace.Span, n)
	for i := range calls {
		calls[i] = trace.Span{Start: int64(i), Duration: 1, Desc: desc, Kind: trace.KindClient}
	}
	x.Collect(calls)
	wide := []span{{name: ">a", start: 0, end: 1}}
	for i := range n {
		wide = append(wide, span{name: fmt.Sprintf(">b#%d", i), under: ">a", start: 0, end: 1})
	}
	tr, _ := tree(t, wide)
	x.Cover(tr.Trace.Spans)
	r := finding.NewRequest(tr, nil, finding.Defaults)
	r.Restarts = &x
	seen := 0
	finding.Named("trace-restarted").Check(r, func(f finding.Finding) {
		if seen++; f.Amount != n {
			t.Fatalf("%d calls, want %d", f.Amount, n)
		}
	})
	if seen != n {
		t.Errorf("%d findings, want one for each of the %d requests", seen, n)
	}
}
