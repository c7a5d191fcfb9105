package analyzer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// findings writes what the rules found in the requests of the endpoint. floors
// are those that the user set, by hop.
func (e *endpoint) findings(a *analysis, floors map[int]int64) {
	key := e.key()
	tally := a.found[key]
	if tally == nil {
		return
	}
	requests := e.Traces
	if e.Sampled.Known {
		requests = e.Sampled.V
	}
	placed := new(finding.Tally)
	placed.MergeAs(tally, func(hop int32) int32 { return int32(a.place(key, hop)) })
	floor := func(hop int32) int64 {
		if f, set := floors[int(hop)]; set {
			return f
		}
		if h := e.hops[int(hop)]; h != nil {
			return int64(h.Floor)
		}
		return 0
	}
	for _, c := range placed.List(floor) {
		c.By = e.called(int(c.Hop), c.By)
		e.Findings = append(e.Findings, Finding{
			Rule: c.Rule.Name, Severity: c.Rule.Severity.String(), Hop: e.Hops[c.Hop].ID,
			Count: c.Findings, Ratio: float64(c.Requests) / float64(requests),
			Example: c.Example, Text: c.Text(), P99Calls: c.Of, P99: Opt[int64]{c.P99, c.Of >= finding.FewestForP99},
		})
	}
}

// called returns the label of what a hop calls, where by names such a hop by callee
// and operation, so that a sentence and the table use the same name; else by.
func (e *endpoint) called(hop int, by string) string {
	for i := range e.Hops {
		if h := &e.Hops[i]; e.p.Hops[i].Parent == hop && by == (trace.Key{Service: h.Callee, Operation: h.Operation}).String() {
			return h.Label
		}
	}
	return by
}

// request is a request for the rules to check.
func (a *analysis) request(r profile.Request) *finding.Request {
	async := r.Async
	if a.allowed.Any() {
		async = func(call int32) bool { return a.allowed.Has(r.Tree, call) || r.Async(call) }
	}
	request := finding.NewRequest(r.Tree, async, a.config.settings())
	request.Restarts, request.Plan = &a.restarts, a.index
	return request
}

// otherFindings counts what the rules found at an endpoint without a table, by
// rule.
func (a *analysis) otherFindings(key profile.Endpoint) []OtherFinding {
	tally := a.found[key]
	if tally == nil {
		return nil
	}
	var out []OtherFinding
	for _, c := range tally.List(nil) {
		i := slices.IndexFunc(out, func(o OtherFinding) bool { return o.Rule == c.Rule.Name })
		if i < 0 {
			out = append(out, OtherFinding{Rule: c.Rule.Name, Severity: c.Rule.Severity.String(), Example: c.Example})
			i = len(out) - 1
		}
		out[i].Count += c.Findings
		out[i].Example = min(out[i].Example, c.Example)
	}
	severity := func(o OtherFinding) finding.Severity { return finding.Named(o.Rule).Severity }
	slices.SortFunc(out, func(x, y OtherFinding) int {
		return cmp.Or(cmp.Compare(severity(y), severity(x)), cmp.Compare(y.Count, x.Count), strings.Compare(x.Rule, y.Rule))
	})
	return out
}
