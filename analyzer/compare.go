package analyzer

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// CompareLevel is the share of the changes that are told apart from noise which are
// expected to be noise after all.
const CompareLevel = 0.05

// Comparison is what changed between two sets of traces; its JSON form is version 1
// of docs/compare.schema.json. All durations are integer nanoseconds. Renderers
// print it and compute nothing.
type Comparison struct {
	Version int     `json:"version"` // 1
	Level   float64 `json:"level"`   // CompareLevel
	Tests   int     `json:"tests"`   // tests that were made, for which p is adjusted
	Before  Side    `json:"before"`
	After   Side    `json:"after"`
	// Endpoints are those of either side, busiest first, at most Config.Top.
	Endpoints []EndpointChange `json:"endpoints"`
	// Others are the endpoints beyond Config.Top.
	Others []OtherEndpoint `json:"other_endpoints,omitempty"`
	// PlanRevision is that of the plan, if there is one.
	PlanRevision string   `json:"plan_revision,omitempty"`
	Warnings     []string `json:"warnings,omitempty"`
}

// Side is what was read of one side.
type Side struct {
	Files  []InputFile `json:"files"`
	Traces int         `json:"traces"`
	Spans  int         `json:"spans"`

	Failed Failures    `json:"failed,omitempty"` // inputs that could not be used
	Notes  []InputNote `json:"-"`                // for stderr
}

// Where an endpoint or a hop was seen.
const (
	SeenBoth = "both"
	SeenNew  = "new"  // after alone
	SeenGone = "gone" // before alone
)

// EndpointChange is the change of one endpoint.
type EndpointChange struct {
	Service   string        `json:"service"`
	Operation string        `json:"operation"`
	Seen      string        `json:"seen"`             // both | new | gone
	Before    *EndpointSide `json:"before,omitempty"` // nil where it was not seen
	After     *EndpointSide `json:"after,omitempty"`
	// Budget is that of the plan; unknown where the plan does not have the endpoint.
	Budget Opt[int64] `json:"plan_budget_ns,omitzero"`
	// Hops are those of either side in preorder; the first is the endpoint.
	Hops []HopChange `json:"hops"`
}

// EndpointSide is an endpoint on one side.
type EndpointSide struct {
	Traces    int          `json:"traces"`
	Failed    int          `json:"failed"`              // requests that ended in an error that is not about time
	MissRatio Opt[float64] `json:"miss_ratio,omitzero"` // requests over the budget of the plan
}

// HopChange is the change of one hop.
type HopChange struct {
	Depth     int      `json:"depth"`
	Callee    string   `json:"callee"`
	Operation string   `json:"operation"`
	Label     string   `json:"label"`
	Kind      string   `json:"kind"` // root | call | stage | step | async; after, where it was seen then
	Seen      string   `json:"seen"` // both | new | gone
	Before    *HopSide `json:"before,omitempty"`
	After     *HopSide `json:"after,omitempty"`
	P50       Change   `json:"p50"`
	P99       Change   `json:"p99"`
	// Share is that of the plan, of an endpoint its budget.
	Share Opt[int64] `json:"plan_share_ns,omitzero"`
	// Plan says in one clause what the change means for the plan; "" for nothing.
	Plan string `json:"plan,omitempty"`
}

// HopSide is a hop on one side.
type HopSide struct {
	ID       string   `json:"id"` // in the table of that side
	Calls    int      `json:"calls"`
	Presence float64  `json:"presence"`
	P50      Interval `json:"p50"`
	P99      Interval `json:"p99"`
	// Held is the P99 that is held against the share of the plan: requests without
	// a call count as 0, as they do in shares.
	Held *Interval `json:"plan_p99,omitempty"`
	Fit  string    `json:"plan_fit,omitempty"` // of Held to the share: fits | over | unsure
}

// Interval is a quantile with its 95 % interval. Hi is unknown where the sample is
// too small to have one.
type Interval struct {
	Value Opt[int64] `json:"ns,omitzero"`
	Lo    Opt[int64] `json:"lo_ns,omitzero"`
	Hi    Opt[int64] `json:"hi_ns,omitzero"`
}

// Verdicts on a change.
const (
	ChangeSlower   = "slower"
	ChangeFaster   = "faster"
	ChangeNoise    = "noise"       // no difference that chance does not explain
	ChangeFew      = "few_samples" // samples of these sizes could not differ significantly, or a quantile is its maximum
	ChangeFailed   = "all_failed"  // every call of a side failed: there are no durations of good calls
	ChangeCensored = "censored"    // timeouts cut the calls of a side: its quantile is a lower bound
)

// Change is that of one quantile of a hop.
type Change struct {
	Ratio Opt[float64] `json:"ratio,omitzero"` // after / before
	// P is adjusted for the number of tests, as by Benjamini and Hochberg; unknown
	// where none was made.
	P       Opt[float64] `json:"p,omitzero"`
	Verdict string       `json:"verdict,omitempty"` // "" where a side has no such hop
}

// Where the P99 of a hop is against its share of the plan.
const (
	FitFits   = "fits"   // the whole interval is within the share
	FitOver   = "over"   // the whole interval is beyond the share
	FitUnsure = "unsure" // the share is inside the interval
)

// Compare reads two sets of sources and tells what changed between them. Endpoints
// are compared that have the same name, and hops that have the same path of names.
// p, unless nil, is the plan to say what the changes mean for.
//
// Errors are those of [Analyze], with the side they are of.
func Compare(ctx context.Context, c Config, before, after []trace.Source, p *plan.Plan) (*Comparison, error) {
	top := cmp.Or(c.Top, DefaultTop)
	c.Top = math.MaxInt
	var sides [2]*analysis
	if err := c.validate(); err != nil {
		return nil, configError{err}
	}
	for i, sources := range [][]trace.Source{before, after} {
		a := newAnalysis(c)
		if err := a.profile(ctx, sources); err != nil {
			return nil, fmt.Errorf("%s: %w", [...]string{"before", "after"}[i], err)
		}
		a.note()
		sides[i] = a
	}
	out := &Comparison{Version: 1, Level: CompareLevel, Before: sides[0].side(), After: sides[1].side()}
	if p != nil {
		out.PlanRevision = p.Revision
	}
	for _, e := range pairUp(sides) {
		change := e.compare()
		if p != nil {
			change.hold(e, p)
		}
		out.Endpoints = append(out.Endpoints, change)
	}
	slices.SortStableFunc(out.Endpoints, func(a, b EndpointChange) int {
		return cmp.Compare(b.busy(), a.busy())
	})
	if len(out.Endpoints) > top {
		for _, e := range out.Endpoints[top:] {
			out.Others = append(out.Others, OtherEndpoint{Service: e.Service, Operation: e.Operation, Traces: e.busy()})
		}
		out.Endpoints = out.Endpoints[:top]
	}
	out.adjust()
	out.warn(sides, p)
	return out, nil
}

// side says what was read.
func (a *analysis) side() Side {
	in := &a.report.Input
	return Side{Files: in.Files, Traces: in.Traces, Spans: in.Spans, Notes: in.Notes, Failed: in.Failed}
}

// endpointPair is an endpoint before and after; nil where it was not seen.
type endpointPair [2]*profile.Profile

// pairUp returns the endpoints of either side, by name.
func pairUp(sides [2]*analysis) []endpointPair {
	index := make(map[profile.Endpoint]int)
	var out []endpointPair
	for i, a := range sides {
		for _, p := range a.profiles {
			key := profile.Endpoint{Service: p.Service, Operation: p.Operation}
			at, ok := index[key]
			if !ok {
				at = len(out)
				index[key] = at
				out = append(out, endpointPair{})
			}
			out[at][i] = p
		}
	}
	slices.SortFunc(out, func(a, b endpointPair) int {
		x, y := a.any(), b.any()
		return cmp.Or(cmp.Compare(x.Service, y.Service), cmp.Compare(x.Operation, y.Operation))
	})
	return out
}

// any returns the profile of a side that has one, the later first.
func (e endpointPair) any() *profile.Profile {
	if e[1] != nil {
		return e[1]
	}
	return e[0]
}

// hopPair is a hop before and after, by index; -1 where it was not seen.
type hopPair [2]int

// hops pairs the hops up: those of after in their order, and behind the last of
// its siblings each that was seen before alone.
func (e endpointPair) hops() []hopPair {
	type key struct {
		callee, operation string
		kind              profile.HopKind
		nth               int // of equal siblings
	}
	var children [2][][]int
	for s, p := range e {
		if p == nil {
			continue
		}
		children[s] = make([][]int, len(p.Hops))
		for i := 1; i < len(p.Hops); i++ {
			children[s][p.Hops[i].Parent] = append(children[s][p.Hops[i].Parent], i)
		}
	}
	var out []hopPair
	var visit func(pair hopPair)
	visit = func(pair hopPair) {
		out = append(out, pair)
		index := make(map[key]int)
		var below []hopPair
		for _, s := range []int{1, 0} {
			if pair[s] < 0 {
				continue
			}
			count := make(map[key]int)
			for _, i := range children[s][pair[s]] {
				h := &e[s].Hops[i]
				k := key{callee: h.Callee, operation: h.Operation, kind: h.Kind}
				if k.kind == profile.KindAsync { // whether somebody waits is decided anew for each side
					k.kind = profile.KindCall
				}
				count[k]++
				k.nth = count[key{k.callee, k.operation, k.kind, 0}]
				at, ok := index[k]
				if !ok {
					at = len(below)
					index[k] = at
					below = append(below, hopPair{-1, -1})
				}
				below[at][s] = i
			}
		}
		for _, b := range below {
			visit(b)
		}
	}
	root := hopPair{-1, -1}
	for s, p := range e {
		if p != nil {
			root[s] = 0
		}
	}
	visit(root)
	return out
}

// seen says on which sides something is.
func seen(before, after bool) string {
	switch {
	case before && after:
		return SeenBoth
	case after:
		return SeenNew
	}
	return SeenGone
}

// busy is the number of requests of the side that has more.
func (c *EndpointChange) busy() int {
	n := 0
	for _, side := range []*EndpointSide{c.Before, c.After} {
		if side != nil {
			n = max(n, side.Traces)
		}
	}
	return n
}

func (e endpointPair) compare() EndpointChange {
	out := EndpointChange{Service: e.any().Service, Operation: e.any().Operation, Seen: seen(e[0] != nil, e[1] != nil)}
	var names [2][]string
	for s, side := range []**EndpointSide{&out.Before, &out.After} {
		if p := e[s]; p != nil {
			*side = &EndpointSide{Traces: p.Requests, Failed: p.Hops[0].Failed}
			names[s] = labels(p.Hops)
		}
	}
	for _, pair := range e.hops() {
		c := HopChange{Seen: seen(pair[0] >= 0, pair[1] >= 0)}
		for s, side := range []**HopSide{&c.Before, &c.After} { // what is said of both is that of after
			if pair[s] < 0 {
				continue
			}
			h := &e[s].Hops[pair[s]]
			c.Depth, c.Callee, c.Operation, c.Label, c.Kind = h.Depth, h.Callee, h.Operation, names[s][pair[s]], kindNames[h.Kind]
			*side = &HopSide{
				ID: h.ID, Calls: h.Calls, Presence: h.Presence,
				P50: intervalOf(h.Duration.Estimate(quantile.P50, e.doubt(s))),
				P99: intervalOf(h.Duration.Estimate(quantile.P99, e.doubt(s))),
			}
		}
		if c.Seen == SeenBoth {
			c.P50 = e.change(pair, quantile.P50, &c.Before.P50, &c.After.P50)
			c.P99 = e.change(pair, quantile.P99, &c.Before.P99, &c.After.P99)
		}
		out.Hops = append(out.Hops, c)
	}
	return out
}

func intervalOf(e quantile.Estimate) Interval {
	if e.N == 0 {
		return Interval{}
	}
	return Interval{Some(e.Value), Some(e.Lo), Opt[int64]{e.Hi, e.HiKnown}}
}

// doubt is what is known of the measurements of a side besides their values.
func (e endpointPair) doubt(s int) quantile.EstimateOptions {
	return quantile.EstimateOptions{Resolution: e[s].Resolution, Shrink: e[s].Shrink}
}

// change compares one quantile of a hop. Its P is not adjusted yet.
func (e endpointPair) change(pair hopPair, l quantile.Level, before, after *Interval) Change {
	var c Change
	if before.Value.V > 0 && after.Value.Known {
		c.Ratio = Some(float64(after.Value.V) / float64(before.Value.V))
	}
	a, b := e[0].Hops[pair[0]].Duration, e[1].Hops[pair[1]].Duration
	d := quantile.Differ(a, b, l, e.doubt(0), e.doubt(1))
	switch {
	case a.N() == 0, b.N() == 0:
		c.Verdict = ChangeFailed
	case a.Estimate(l, e.doubt(0)).Censored, b.Estimate(l, e.doubt(1)).Censored:
		c.Verdict = ChangeCensored
	case d.Few, isMaximum(a, l, e.doubt(0)), isMaximum(b, l, e.doubt(1)):
		c.Verdict = ChangeFew
	case before.Value == after.Value, d.Up != (before.Value.V < after.Value.V):
		// With ties fewer calls can lie above the quantile of both, and yet that of
		// their side is the same or higher: a change of the shape, not of the quantile.
		c.P, c.Verdict = Some(d.P), ChangeNoise
	case d.Up:
		c.P, c.Verdict = Some(d.P), ChangeSlower
	default:
		c.P, c.Verdict = Some(d.P), ChangeFaster
	}
	return c
}

// isMaximum tells whether a sample is so small that its quantile is its maximum:
// under 100 calls for a P99.
func isMaximum(d *quantile.Dist, l quantile.Level, o quantile.EstimateOptions) bool {
	return d.Estimate(l, o).EffN*(1-l.Float()) < 1
}

// adjust takes the number of tests into account, and calls noise what is.
func (c *Comparison) adjust() {
	var tested []*Change
	var p []float64
	for i := range c.Endpoints {
		for j := range c.Endpoints[i].Hops {
			h := &c.Endpoints[i].Hops[j]
			for _, change := range []*Change{&h.P50, &h.P99} {
				if change.P.Known {
					tested, p = append(tested, change), append(p, change.P.V)
				}
			}
		}
	}
	c.Tests = len(p)
	for i, adjusted := range quantile.AdjustP(p) {
		change := tested[i]
		change.P = Some(adjusted)
		if adjusted > c.Level {
			change.Verdict = ChangeNoise
		}
	}
}

// hold says what the changes of an endpoint mean for its plan.
func (c *EndpointChange) hold(e endpointPair, p *plan.Plan) {
	at := slices.IndexFunc(p.Endpoints, func(x plan.Endpoint) bool { return x.Service == c.Service && x.Operation == c.Operation })
	if at < 0 {
		return
	}
	planned := &p.Endpoints[at]
	c.Budget = Some(int64(planned.Budget))
	for s, side := range []*EndpointSide{c.Before, c.After} {
		if side != nil {
			side.MissRatio = Some(e[s].Every.FractionAbove(c.Budget.V))
		}
	}
	way := [][]plan.Hop{planned.Hops} // hops below the last one of each depth
	pairs := e.hops()
	for i := range c.Hops {
		h := &c.Hops[i]
		if h.Depth == 0 {
			h.hold(e, pairs[i], c.Budget.V, "budget")
			continue
		}
		way = way[:h.Depth]
		below := way[h.Depth-1]
		match := slices.IndexFunc(below, func(x plan.Hop) bool { return x.Callee == h.Callee && x.Operation == h.Operation })
		if match < 0 {
			way = append(way, nil)
			continue
		}
		way = append(way, below[match].Hops)
		if share := int64(below[match].Share); share > 0 {
			h.hold(e, pairs[i], share, "share")
		}
	}
}

// hold compares the P99 with what the plan gives.
func (h *HopChange) hold(e endpointPair, pair hopPair, share int64, what string) {
	h.Share = Some(share)
	var fit [2]string
	over := [2]bool{} // the P99 itself, whatever its interval
	for s, side := range []*HopSide{h.Before, h.After} {
		if side == nil || !side.P99.Value.Known {
			continue
		}
		held := intervalOf(e[s].Hops[pair[s]].Unconditional.Estimate(quantile.P99, e.doubt(s)))
		side.Held = &held
		over[s] = held.Value.V > share
		switch {
		case held.Lo.V > share:
			side.Fit = FitOver
		case held.Hi.Known && held.Hi.V <= share:
			side.Fit = FitFits
		default:
			side.Fit = FitUnsure
		}
		fit[s] = side.Fit
	}
	given := fmt.Sprintf("its %s of %s", what, ms(share))
	switch {
	case fit[1] == FitOver && fit[0] == FitOver:
		h.Plan = "still over " + given
	case fit[1] == FitOver:
		h.Plan = "now over " + given
	case fit[1] == FitFits && over[0]:
		h.Plan = "fits " + given + " again"
	case fit[1] == FitUnsure && over[1] && fit[0] != "" && !over[0]:
		h.Plan = "may be over " + given + " now"
	case fit[1] == FitUnsure && !over[1] && over[0]:
		h.Plan = "may fit " + given + " again"
	}
}

// warn says what the reader of the comparison should know.
func (c *Comparison) warn(sides [2]*analysis, p *plan.Plan) {
	for s, name := range [...]string{"before", "after"} {
		for _, x := range sides[s].profiles {
			if x.Clustered {
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s, %s %s: slow requests come in runs, so %d requests count as %.0f",
					name, x.Service, x.Operation, x.Requests, float64(x.Requests)*x.Shrink))
			}
			if x.Sampled < x.Requests {
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s, %s %s: durations are from a profile, within %.1f %%",
					name, x.Service, x.Operation, 100*quantile.ErrorBound))
			}
		}
	}
	if sides[0].rules.Weighted() != sides[1].rules.Weighted() {
		c.Warnings = append(c.Warnings, "only one side has sampling thresholds (ot=th): the other may be a biased sample; --unweighted takes all alike")
	}
	if len(c.Endpoints) > 0 && !slices.ContainsFunc(c.Endpoints, func(e EndpointChange) bool { return e.Seen == SeenBoth }) {
		c.Warnings = append(c.Warnings, "no endpoint is on both sides, so nothing is compared")
	}
	if p != nil && !slices.ContainsFunc(c.Endpoints, func(e EndpointChange) bool { return e.Budget.Known }) {
		c.Warnings = append(c.Warnings, "the plan has none of these endpoints")
	}
}
