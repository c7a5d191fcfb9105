package analyzer

import (
	"github.com/latencybudget/latencybudget/analyzer/finding"
)

// findings writes what the rules found in the requests of an endpoint.
func (a *analysis) findings(e *Endpoint) {
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
	for _, c := range placed.List() {
		e.Findings = append(e.Findings, Finding{
			Rule: c.Rule.Name, Severity: c.Rule.Severity.String(), Hop: e.Hops[c.Hop].ID,
			Count: c.Findings, Ratio: float64(c.Requests) / float64(requests),
			Example: c.Example, Text: c.Rule.Text(c.Most, c.By),
		})
	}
}
