package analyzer

import (
	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// fewestForFloor is how many good calls a hop must have so that their P50 is
// taken for its floor.
const fewestForFloor = 5

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
	floor := func(hop int32) finding.Floor {
		if f, set := floors[int(hop)]; set {
			return finding.Floor{Time: f, Set: true}
		}
		d := e.p.Hops[hop].Duration
		if d.N() < fewestForFloor {
			return finding.Floor{}
		}
		p50 := d.Estimate(quantile.P50, quantile.EstimateOptions{})
		if p50.Censored { // so many ran out of time that they say what they were given, not what they need
			return finding.Floor{}
		}
		return finding.Floor{Time: p50.Value}
	}
	for _, c := range placed.List(floor) {
		e.Findings = append(e.Findings, Finding{
			Rule: c.Rule.Name, Severity: c.Rule.Severity.String(), Hop: e.Hops[c.Hop].ID,
			Count: c.Findings, Ratio: float64(c.Requests) / float64(requests),
			Example: c.Example, Text: c.Rule.Text(c.Most, c.By),
		})
	}
}
