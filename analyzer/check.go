package analyzer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// CheckReport is what holding traces against a plan found; its JSON form is
// version 1 of docs/check.schema.json. All durations are integer nanoseconds.
type CheckReport struct {
	Version  int               `json:"version"` // 1
	Revision string            `json:"plan_revision"`
	Measured bool              `json:"measured"`        // there were traces; otherwise the plan is only described
	Point    bool              `json:"point,omitempty"` // judged by measured values alone, without their intervals
	Passed   bool              `json:"passed"`
	Failures []CheckFailure    `json:"failures"` // in the order of endpoints, hops, gate
	Input    Input             `json:"input"`
	Checked  []CheckedEndpoint `json:"endpoints"` // in the order of the plan
	// Settings are those that the rules judged by, where they are not finding.Defaults.
	Settings Opt[finding.Settings] `json:"settings,omitzero"`
}

// StrainedOver is the share of its budget that a call may use without being strained.
func (r *CheckReport) StrainedOver() float64 {
	if r.Settings.Known {
		return r.Settings.V.Utilization
	}
	return finding.Defaults.Utilization
}

// CheckFailure is one reason for which a plan does not hold.
type CheckFailure struct {
	Endpoint string `json:"endpoint"`
	Name     string `json:"name"` // the hop, as "callee operation", or the key in the gate
	Text     string `json:"text"` // one line
}

// CheckedEndpoint is an endpoint of the plan.
type CheckedEndpoint struct {
	Service   string   `json:"service"`
	Operation string   `json:"operation"`
	Traces    int      `json:"traces"`           // requests measured; 0 where there are none
	Failed    int      `json:"failed,omitempty"` // of them: their durations do not count, only that they were late
	Budget    int64    `json:"budget_ns"`
	Reserve   int64    `json:"reserve_ns"`
	Chain     []string `json:"chain"`         // ids of the hops that take longest one after the other
	ChainSum  int64    `json:"chain_ns"`      // sum of their shares
	Spare     int64    `json:"unassigned_ns"` // of the budget, what neither chain nor reserve takes
	// Aside are the other hops that the endpoint calls and waits for: they run
	// beside the chain. Unwaited are those that nobody waits for; ChainUnwaited is
	// what the chain would be if somebody did, and they came one after the other.
	Aside         []string `json:"beside_chain,omitempty"`
	Unwaited      []string `json:"unwaited,omitempty"`
	ChainUnwaited int64    `json:"chain_and_unwaited_ns,omitempty"`

	Hops []CheckedHop  `json:"hops"` // those of the plan, in its order; Hops[0] is the endpoint
	Gate []CheckedGate `json:"gate"`
	// NotInPlan are the topmost hops of the traces that the plan does not have, as
	// people know them.
	NotInPlan []string  `json:"not_in_plan,omitempty"`
	Findings  []Finding `json:"findings,omitempty"` // worst first, with the names of hops instead of ids
}

// Results of a check.
const (
	CheckOK          = "ok"
	CheckOverBudget  = "over_budget"  // the P99 is over the share
	CheckOverTimeout = "over_timeout" // the P99 is over the cap
	CheckFailed      = "failed"       // of the gate: over its limit
	CheckByCalls     = "by_calls"     // over, but only by what calls below take too long, which are listed
	CheckNotSeen     = "not_seen"     // no call was measured; of the gate: nothing in the traces would tell
	CheckNoBudget    = "no_budget"    // nobody waits for the hop
	CheckOff         = "off"          // of the gate: turned off
)

// CheckedHop is one hop of the plan.
type CheckedHop struct {
	ID        string     `json:"id"` // place in the plan: "0", "0.2", "0.2.1"
	Parent    string     `json:"parent"`
	Depth     int        `json:"depth"`
	Callee    string     `json:"callee"`
	Operation string     `json:"operation"`
	Label     string     `json:"label"` // short name for people
	Share     Opt[int64] `json:"share_ns,omitzero"`
	Cap       Opt[int64] `json:"cap_ns,omitzero"`
	// Overlaps tells that the hop may run beside another.
	Overlaps bool `json:"overlaps,omitempty"`
	Calls    int  `json:"calls"`
	// P99 and its 95 % interval. Requests without a call count as 0, as they do in
	// shares; caps are held against the P99 of the calls that were made.
	P99   Opt[int64] `json:"p99_ns,omitzero"`
	P99Lo Opt[int64] `json:"p99_lo_ns,omitzero"`
	P99Hi Opt[int64] `json:"p99_hi_ns,omitzero"`
	// Strained is the share of the calls that used more of their budget than
	// CheckReport.StrainedOver.
	Strained Opt[float64] `json:"strained_ratio,omitzero"`
	Warning  bool         `json:"warning,omitempty"` // more than 5 % of the calls are strained
	Result   string       `json:"result"`
	Reason   string       `json:"reason,omitempty"` // one clause, where Result is a failure
	// AlsoOver are the hops above, by id, that are over only by this one.
	AlsoOver []string `json:"also_over,omitempty"`
}

// CheckedGate is one line of the gate.
type CheckedGate struct {
	Name   string `json:"name"`   // key in the gate
	Result string `json:"result"` // ok | failed | by_calls | off | not_seen
	Reason string `json:"reason,omitempty"`
	Count  int    `json:"count"` // requests, or calls that worked on
	Of     int    `json:"of"`    // requests
	// A ratio with its Wilson interval, or a P99 with that of order statistics.
	Ratio      Opt[float64] `json:"ratio,omitzero"`
	RatioLo    Opt[float64] `json:"ratio_lo,omitzero"`
	RatioHi    Opt[float64] `json:"ratio_hi,omitzero"`
	LimitRatio Opt[float64] `json:"limit_ratio,omitzero"`
	P99        Opt[int64]   `json:"p99_ns,omitzero"`
	P99Lo      Opt[int64]   `json:"p99_lo_ns,omitzero"`
	P99Hi      Opt[int64]   `json:"p99_hi_ns,omitzero"`
	LimitNS    Opt[int64]   `json:"limit_ns,omitzero"`
}

// Check holds traces against a plan. A hop fails where its P99 is over its share
// or its cap, a ratio of the gate where it is over its limit: each only when its
// whole 95 % interval is, unless Config.Point is set. What fails is in the report;
// the error is for what stops the check, as with [Analyze].
//
// Endpoints of the plan are looked for among the entries of the traces, and below
// the entries in traces without one; Config.Endpoints picks some of them. Without
// sources the plan is only described.
func Check(ctx context.Context, c Config, p *plan.Plan, sources ...trace.Source) (*CheckReport, error) {
	c.Plan = p
	if err := c.validate(); err != nil {
		return nil, configError{err}
	}
	checked, err := picked(p, c.Endpoints)
	if err != nil {
		return nil, configError{err}
	}
	out := &CheckReport{Version: 1, Revision: p.Revision, Measured: len(sources) > 0, Point: c.Point, Settings: c.changed()}
	a := analysis{
		config: c, report: &Report{Version: 1}, allowed: finding.NewAllowed(c.AllowDetached),
		gates: make(map[profile.Endpoint]*observed), planOnly: true,
	}
	for _, e := range checked {
		a.asked = append(a.asked, func(d *trace.Desc) bool {
			return profile.EndpointOf(d) == profile.Endpoint{Service: e.Service, Operation: e.Operation}
		})
	}
	if out.Measured {
		if err := a.profile(ctx, sources); err != nil {
			return nil, err
		}
	}
	profiles := make(map[profile.Endpoint]*endpoint)
	for _, from := range a.profiles {
		e := &endpoint{
			Endpoint: &Endpoint{
				Service: from.Service, Operation: from.Operation, Traces: from.Requests, Failed: from.Hops[0].Failed, BudgetSource: sourcePlan,
			},
			p: from, config: &a.config,
		}
		if from.Sampled < from.Requests {
			e.Sampled = Some(from.Sampled)
		}
		e.measure()
		e.start()
		e.Budget = int64(e.given.Budget)
		e.findings(&a, nil)
		profiles[e.key()] = e
		a.report.Endpoints = append(a.report.Endpoints, *e.Endpoint)
	}
	if out.Measured {
		a.finish()
		out.Input = a.report.Input
	}
	for _, e := range checked {
		key := profile.Endpoint{Service: e.Service, Operation: e.Operation}
		j := judge{plan: e, gate: &p.Gate, seen: profiles[key], observed: a.gates[key], point: c.Point, strained: out.StrainedOver()}
		out.Checked = append(out.Checked, j.endpoint(out.Measured))
		out.Failures = append(out.Failures, j.failures...)
	}
	out.Passed = len(out.Failures) == 0
	return out, nil
}

// picked returns the endpoints of a plan that one of the globs matches, all where
// there is no glob.
func picked(p *plan.Plan, globs []string) ([]*plan.Endpoint, error) {
	var out []*plan.Endpoint
	var names []string
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		names = append(names, fmt.Sprintf("%q", e.Key()))
		if len(globs) == 0 || slices.ContainsFunc(globs, func(g string) bool { return trace.Match(g, e.Key()) }) {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no endpoint of the plan matches --endpoint %s; there are %s",
			strings.Join(globs, ", "), enumerate(names, 10))
	}
	return out, nil
}

// noneOfThePlan explains that no endpoint of the plan is in the traces, which have
// others.
func (a *analysis) noneOfThePlan(have []string) error {
	var want []string
	for i := range a.config.Plan.Endpoints {
		want = append(want, fmt.Sprintf("%q", a.config.Plan.Endpoints[i].Key()))
	}
	return errors.Join(append(slices.Clone(a.report.Input.Failed), fmt.Errorf("%w: the plan is about %s, the traces about %s",
		ErrNothingUsable, enumerate(want, 10), enumerate(have, 10)))...)
}

// observed is what the gate needs to know of the requests of an endpoint. It adds
// up in any order.
type observed struct {
	requests, expansions, late int
	deadlines                  int // requests that say what was left of their budgets
	stops                      quantile.Sample
}

// ruleStrained finds calls that use more of their budget than the settings allow.
const ruleStrained = "budget-utilization"

var (
	ruleReset   = finding.Named("deadline-reset")
	ruleDropped = finding.Named("deadline-dropped")
	ruleLate    = finding.Named("call-after-deadline")
	ruleStop    = finding.Named("work-after-deadline")
)

// add looks at one request. Work after the deadline counts from its first moment:
// the grace that makes a finding would leave out those who stop in time.
func (o *observed) add(r *finding.Request) {
	o.requests++
	found := false
	note := func(finding.Finding) { found = true }
	ruleReset.Check(r, note)
	ruleDropped.Check(r, note)
	if found {
		o.expansions++
	}
	if r.SaysDeadlines() {
		o.deadlines++
	}
	found = false
	if ruleLate.Check(r, note); found {
		o.late++
	}
	r.NoGrace = true
	ruleStop.Check(r, func(f finding.Finding) { o.stops.Add(f.Amount, 0) })
	r.NoGrace = false
}
