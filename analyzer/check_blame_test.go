package analyzer_test

import (
	"context"
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// memory is a source of spans that are there.
type memory []trace.Span

func (m memory) Batches(context.Context) iter.Seq2[trace.Batch, error] {
	return func(yield func(trace.Batch, error) bool) {
		yield(trace.Batch{File: &trace.File{Name: "memory"}, Spans: slices.Clone(m)}, nil)
	}
}

// took is how long the parts of one request take, in ms.
//
//	gw     |-----------------------------------------|
//	front   |------------------------------|            own time before, calls, own time after
//	a        |-------|
//	b                 |-------|
//	c        |-----|                                    beside a and b, in some requests
//	last                                    |-------|
type took struct{ own, a, b, c, last float64 }

const requests = 400

// record makes requests of which each takes 80 to 100 % of what change says.
func record(change func(i int, t *took)) memory {
	const epoch = 1_700_000_000_000_000_123
	r := rand.New(rand.NewPCG(1, 2))
	descs := make(map[string]*trace.Desc)
	var spans memory
	for i := range requests {
		t := took{own: 2, a: 10, b: 10, last: 5}
		change(i, &t)
		draw := 0.8 + 0.2*r.Float64()
		ns := func(ms float64) int64 { return int64(ms * draw * 1e6) }
		var id uint64
		span := func(parent trace.SpanID, service string, start, duration int64) trace.SpanID {
			id++
			if descs[service] == nil {
				descs[service] = &trace.Desc{Service: service, Operation: "do"}
			}
			s := trace.Span{Parent: parent, Start: epoch + int64(i)*1e9 + start, Duration: duration, Kind: trace.KindServer, Desc: descs[service]}
			binary.BigEndian.PutUint64(s.TraceID[8:], uint64(i+1))
			binary.BigEndian.PutUint64(s.ID[:], id)
			spans = append(spans, s)
			return s.ID
		}
		calls := max(ns(t.a)+ns(t.b), ns(t.c))
		front := ns(t.own) + calls + ns(t.own)
		root := span(trace.SpanID{}, "gw", 0, ns(1)+front+ns(t.last)+ns(1))
		f := span(root, "front", ns(1), front)
		at := ns(1) + ns(t.own)
		span(f, "a", at, ns(t.a))
		span(f, "b", at+ns(t.a), ns(t.b))
		if t.c > 0 {
			span(f, "c", at, ns(t.c))
		}
		span(root, "last", ns(1)+front, ns(t.last))
	}
	return spans
}

// promised is a plan that the requests keep, as long as nobody changes them.
func promised() *plan.Plan {
	const ms = plan.Duration(time.Millisecond)
	return &plan.Plan{
		Version: 1, Revision: "r", Gate: plan.DefaultGate(),
		Endpoints: []plan.Endpoint{{
			Service: "gw", Operation: "do", Budget: 60 * ms,
			Hops: []plan.Hop{
				{Callee: "last", Operation: "do", Share: 8 * ms, After: []string{"front do"}},
				{Callee: "front", Operation: "do", Share: 30 * ms, Cap: 35 * ms, Hops: []plan.Hop{
					{Callee: "b", Operation: "do", Share: 12 * ms, After: []string{"a do"}},
					{Callee: "a", Operation: "do", Share: 12 * ms},
					{Callee: "c", Operation: "do", Share: 6 * ms, Cap: 25 * ms},
				}},
			},
		}},
	}
}

func check(t *testing.T, p *plan.Plan, c analyzer.Config, sources ...trace.Source) *analyzer.CheckReport {
	t.Helper()
	r, err := analyzer.Check(context.Background(), c, p, sources...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestBlameGoesToTheHopThatIsSlow changes what parts of the requests take. Failures
// name hops and lines of the gate; behind a hop stands what is over only by it.
func TestBlameGoesToTheHopThatIsSlow(t *testing.T) {
	every := func(n int, change func(*took)) func(int, *took) {
		return func(i int, t *took) {
			if i%n == 0 {
				change(t)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(int, *took)
		want   string
	}{
		"nothing":                               {func(int, *took) {}, ""},
		"a leaf, by which its caller is over":   {every(1, func(t *took) { t.a = 30 }), "a (front)"},
		"the caller's own work":                 {every(1, func(t *took) { t.own = 10 }), "front"},
		"both":                                  {every(1, func(t *took) { t.a, t.own = 30, 10 }), "a (gw), front (gw)"},
		"two leaves in sequence, each a little": {every(1, func(t *took) { t.a, t.b = 17, 17 }), "a (front), b (front)"},
		"a leaf so little that its caller keeps time": {every(1, func(t *took) { t.a = 16 }), "a"},
		"a leaf in some requests, so that they are late": {
			every(10, func(t *took) { t.a = 60 }), "a (front, gw)",
		},
		"the endpoint by the sum of what is in time": {
			every(10, func(t *took) { t.own, t.last = 4, 8 }), "",
		},
		"a leaf at the end": {every(10, func(t *took) { t.last = 100 }), "last (gw)"},
		"a hop that few requests call: their P99 is over the share and under the cap": {
			every(200, func(t *took) { t.c = 20 }), "",
		},
		"a hop that many requests call": {every(4, func(t *took) { t.c = 20 }), "c"},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(t, promised(), analyzer.Config{}, record(c.change))
			var got []string
			for _, h := range r.Checked[0].Hops {
				if h.Result == analyzer.CheckOverBudget || h.Result == analyzer.CheckOverTimeout {
					text := h.Callee
					if len(h.AlsoOver) > 0 {
						var also []string
						for _, id := range h.AlsoOver {
							for _, above := range r.Checked[0].Hops {
								if above.ID == id {
									also = append(also, above.Callee)
								}
							}
						}
						text += " (" + strings.Join(also, ", ") + ")"
					}
					got = append(got, text)
				}
			}
			slices.Sort(got)
			if strings.Join(got, ", ") != c.want || len(r.Failures) != len(got) || r.Passed != (len(got) == 0) {
				t.Errorf("over are %q, want %q; failures %+v", got, c.want, r.Failures)
			}
		})
	}
}

// TestCapsAreHeldAgainstTheCallsThatWereMade: a call of two requests in 400 that takes
// 16 to 20 ms is 0 for its share, but over a cap below that, also one that is no more
// than the share; without a cap there is nothing else that it could be over.
func TestCapsAreHeldAgainstTheCallsThatWereMade(t *testing.T) {
	spans := record(func(i int, t *took) {
		if i%200 == 0 {
			t.c = 20
		}
	})
	const ms = plan.Duration(time.Millisecond)
	for limit, want := range map[plan.Duration]string{
		25 * ms: analyzer.CheckOK, 15 * ms: analyzer.CheckOverTimeout, 6 * ms: analyzer.CheckOverTimeout, 0: analyzer.CheckOK,
	} {
		p := promised()
		p.Endpoints[0].Hops[1].Hops[2].Cap = limit
		r := check(t, p, analyzer.Config{}, spans)
		if h := r.Checked[0].Hops[5]; h.Callee != "c" || h.Result != want {
			t.Errorf("cap %v: %s is %q, want %q", limit, h.Callee, h.Result, want)
		}
	}
}

// TestExpansionsAreNotSeenWithoutDeadlines: a gate that nothing could fail does not say
// that it holds. One request that tells its deadline is enough.
func TestExpansionsAreNotSeenWithoutDeadlines(t *testing.T) {
	gate := func(spans memory) analyzer.CheckedGate {
		g := check(t, promised(), analyzer.Config{}, spans).Checked[0].Gate[0]
		if g.Name != "expansions" || g.Of != requests {
			t.Fatalf("%+v", g)
		}
		return g
	}
	spans := record(func(int, *took) {})
	if g := gate(spans); g.Result != analyzer.CheckNotSeen || g.Ratio.Known {
		t.Errorf("without: %+v", g)
	}
	spans[3].Stamp = &trace.Stamp{HasRemaining: true, Remaining: 60e6}
	if g := gate(spans); g.Result != analyzer.CheckOK || !g.Ratio.Known {
		t.Errorf("with one: %+v", g)
	}
}

// TestFewRequestsFailByTheirValueAlone: one late request in 400 is no proof that more
// than 0.1 % are late, and of none late requests nothing fails.
func TestFewRequestsFailByTheirValueAlone(t *testing.T) {
	one := record(func(i int, t *took) {
		if i == 7 {
			t.own = 60
		}
	})
	if r := check(t, promised(), analyzer.Config{}, one); !r.Passed {
		t.Errorf("with intervals: %+v", r.Failures)
	}
	r := check(t, promised(), analyzer.Config{Point: true}, one)
	if len(r.Failures) != 1 || r.Failures[0].Name != "deadline_miss" || !r.Point {
		t.Errorf("by the value alone: %+v", r.Failures)
	}
	p := promised()
	p.Gate.DeadlineMiss.Off = true
	if r := check(t, p, analyzer.Config{Point: true}, one); !r.Passed {
		t.Errorf("turned off: %+v", r.Failures)
	}
}

// TestEndpointsBelowTheEntriesAreFound: a plan for a service that is no entry.
func TestEndpointsBelowTheEntriesAreFound(t *testing.T) {
	p := promised()
	front := p.Endpoints[0].Hops[1]
	p.Endpoints = []plan.Endpoint{
		{Service: "front", Operation: "do", Budget: front.Share, Hops: front.Hops},
		{Service: "nobody", Operation: "do", Budget: front.Share},
	}
	r := check(t, p, analyzer.Config{}, record(func(int, *took) {}))
	if !r.Passed || r.Checked[0].Traces != requests || r.Checked[1].Traces != 0 || r.Checked[0].Hops[2].Calls != requests {
		t.Errorf("%+v", r)
	}
	if got := r.Checked[1].Hops[0].Result; got != analyzer.CheckNotSeen {
		t.Errorf("the endpoint without requests is %q", got)
	}
}

// TestCheckIsTheSameInAnyOrder shuffles spans and the lines of the plan.
func TestCheckIsTheSameInAnyOrder(t *testing.T) {
	spans := record(func(i int, t *took) { t.a = 30 })
	want := check(t, promised(), analyzer.Config{}, spans)
	r := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		p := promised()
		hops := p.Endpoints[0].Hops
		r.Shuffle(len(hops), func(i, j int) { hops[i], hops[j] = hops[j], hops[i] })
		got := check(t, p, analyzer.Config{}, spans)
		if !slices.Equal(got.Failures, want.Failures) {
			t.Errorf("%+v, want %+v", got.Failures, want.Failures)
		}
	}
}
