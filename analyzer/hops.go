package analyzer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// hopID is the form of Hop.ID.
var hopID = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*$`)

// namedEndpoints checks that every budget for a named endpoint finds one.
func (a *analysis) namedEndpoints() error {
	all := a.evidence.Endpoints()
	for _, b := range a.config.Budgets {
		if !slices.ContainsFunc(all, func(e profile.Count) bool { return b.names(e.Endpoint) }) {
			names := make([]string, len(all))
			for i, e := range all {
				names[i] = fmt.Sprintf("%q", e.Endpoint)
			}
			return fmt.Errorf("--budget: no endpoint matches %q; there are %s", b.Endpoint, enumerate(names, 10))
		}
	}
	return nil
}

// names tells whether the budget holds for an endpoint.
func (b *EndpointBudget) names(e profile.Endpoint) bool {
	return b.Endpoint == "" || trace.Match(b.Endpoint, e.String())
}

// enumerate lists names, at most so many.
func enumerate(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// patterns are the hop names of all flags, in one order.
func (a *analysis) patterns() []string {
	var out []string
	for _, list := range [][]HopAmount{a.config.Floors, a.config.Caps, a.config.Current} {
		for _, h := range list {
			out = append(out, h.Hop)
		}
	}
	out = append(out, a.config.Degradable...)
	for _, i := range a.config.Incidents {
		out = append(out, i.Hop)
	}
	return out
}

func (a *analysis) hopNames(most int) string {
	var names []string
	for _, e := range a.report.Endpoints {
		for _, h := range e.Hops {
			names = append(names, fmt.Sprintf("%s (%s)", h.ID, strings.TrimSpace(h.Callee+" "+h.Operation)))
		}
	}
	return enumerate(names, most)
}

// find returns the hop that a pattern names, -1 if none. Two are an error.
func find(hops []Hop, pattern string) (int, error) {
	var found []int
	for i := range hops {
		h := &hops[i]
		if h.ID == pattern {
			return i, nil
		}
		if trace.Match(pattern, strings.TrimSpace(h.Callee+" "+h.Operation)) || trace.Match(pattern, h.Callee) ||
			trace.Match(pattern, h.Operation) || trace.Match(pattern, h.Label) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return -1, nil
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, f := range found {
		names[i] = fmt.Sprintf("%s (%s)", hops[f].ID, hops[f].Label)
	}
	return -1, fmt.Errorf("%q names %d hops: %s; use the id of one", pattern, len(found), strings.Join(names, ", "))
}

// locate returns the hop that each pattern names, -1 where there is none. used
// counts the endpoints in which a pattern named a hop.
func locate(hops []Hop, patterns []string, used []int) ([]int, error) {
	out := make([]int, len(patterns))
	for i, pattern := range patterns {
		at, err := find(hops, pattern)
		if err != nil {
			return nil, err
		}
		if out[i] = at; at < 0 {
			continue
		}
		used[i]++
		if !planned(&hops[at]) {
			return nil, fmt.Errorf("%q: nobody waits for hop %s (%s), so it has no budget", pattern, hops[at].ID, hops[at].Label)
		}
	}
	return out, nil
}

// resolve maps the amounts to hops.
func resolve(hops []Hop, list []HopAmount, used []int) (map[int]Amount, error) {
	patterns := make([]string, len(list))
	for i := range list {
		patterns[i] = list[i].Hop
	}
	places, err := locate(hops, patterns, used)
	if err != nil {
		return nil, err
	}
	out := make(map[int]Amount)
	for i, at := range places {
		if at < 0 {
			continue
		}
		if _, twice := out[at]; twice {
			return nil, fmt.Errorf("%q: hop %s (%s) is named twice", patterns[i], hops[at].ID, hops[at].Label)
		}
		out[at] = list[i].Amount
	}
	return out, nil
}
