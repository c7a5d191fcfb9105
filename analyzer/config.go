// Package analyzer is the one door for users of the library: it reads traces
// from sources, profiles their endpoints, and recommends a budget for every
// hop together with the predicted effect of applying it.
package analyzer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// DefaultTop is how many endpoints get a table.
const DefaultTop = 10

// Config says what to analyse and under which constraints. The zero value
// analyses every endpoint and suggests a budget for each.
type Config struct {
	// Endpoints are globs on "service operation"; * stands for any text, ? for
	// one character. They pick endpoints, also operations below the entries.
	// Empty: every entry.
	Endpoints []string
	// Budgets name promises. One for a named endpoint beats one for all.
	Budgets []EndpointBudget
	// Reserve is kept by the endpoint (absolute) or by every hop with children
	// (a share of its budget).
	Reserve Amount
	Floors  []HopAmount // least useful budget of a hop
	Caps    []HopAmount // most that a hop may get; limits BUDGET and TIMEOUT
	Current []HopAmount // today's timeouts
	// Plan is the plan to start from, nil for none: endpoints keep its budgets,
	// and what people set in it by hand; its shares stand for today's timeouts.
	Plan *plan.Plan
	// Point has Check judge by measured values alone, without their intervals.
	Point bool
	// Degradable are hops, named as in HopAmount, that callers can do without:
	// in the replay they do not fail a request at their timeout.
	Degradable []string
	Incidents  []Incident // what-ifs to replay, each alone
	// AllowDetached are globs on "service operation" of calls that may outlive the
	// request that makes them: no rule judges them, nor what they call.
	AllowDetached []string
	// Settings are the thresholds of the rules; the zero value: finding.Defaults. Start
	// from those to change one of them.
	Settings finding.Settings
	// Strategy names one of budget.Strategies; "": p99prop.
	Strategy string
	// Objective is one of budget.Objectives, for strategy optimised; "": cuts.
	Objective string
	// Percentile is used instead of the P99 as weight and for verdicts; the
	// zero Level: P99.
	Percentile quantile.Level
	// Quantum rounds budgets down; 0: by the size of the budget.
	Quantum time.Duration

	Top           int  // endpoints in detail, besides those that Budgets name; 0: DefaultTop
	MaxHops       int  // hops of one endpoint; 0: profile.DefaultMaxHops
	Sample        int  // whole requests kept for replay; 0: profile.DefaultSample
	MaxTraceSpans int  // spans of one trace; 0: trace.DefaultMaxTraceSpans
	Steps         bool // show same-service leaves
	Unweighted    bool // ignore `ot=th` sampling thresholds
}

// maxBudget is the largest promise: a day, as for spans. Up to it the solver is
// exact to the ns.
const maxBudget = 24 * time.Hour

// EndpointBudget is the promise of the endpoints that match.
type EndpointBudget struct {
	Endpoint string // glob on "service operation"; "": all
	Budget   time.Duration
}

// Amount is a time, or a share of a budget.
type Amount struct {
	Time  time.Duration
	Share float64 // 0 to 1; used where Time is 0
}

// of resolves the amount against a budget, ns.
func (a Amount) of(budget int64) float64 {
	if a.Time != 0 {
		return float64(a.Time)
	}
	return a.Share * float64(budget)
}

// HopAmount is an Amount for one hop, named by its id ("0.2") or by a glob on
// "callee operation", on the callee, or on the operation.
type HopAmount struct {
	Hop    string
	Amount Amount
}

// Incident is a what-if: a hop takes longer in some of the requests that call it.
type Incident struct {
	Hop string // named as in HopAmount
	// Low and High bound what comes on top of the time that the hop took.
	Low, High time.Duration
	Share     float64 // of the requests with the hop; more than 0, up to 1
}

// ParseIncident reads "hop=slow 400ms..4s @10%". The name ends at the last '='.
func ParseIncident(s string) (Incident, error) {
	at := strings.LastIndexByte(s, '=')
	if at <= 0 {
		return Incident{}, fmt.Errorf("%q: write 'hop=slow 400ms..4s @10%%'", s)
	}
	words := strings.Fields(s[at+1:])
	if len(words) != 3 || words[0] != "slow" || !strings.HasPrefix(words[2], "@") || !strings.HasSuffix(words[2], "%") {
		return Incident{}, fmt.Errorf("%q: write 'hop=slow 400ms..4s @10%%'", s)
	}
	low, high, ok := strings.Cut(words[1], "..")
	if !ok {
		high = low
	}
	i := Incident{Hop: s[:at]}
	var err error
	if i.Low, err = ParseDuration(low); err != nil {
		return Incident{}, err
	}
	if i.High, err = ParseDuration(high); err != nil {
		return Incident{}, err
	}
	share, err := ParseAmount(words[2][1:])
	i.Share = share.Share
	return i, err
}

// ParseAmount reads "20ms" or "10%".
func ParseAmount(s string) (Amount, error) {
	if number, ok := strings.CutSuffix(s, "%"); ok {
		share, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(share) || share < 0 || share > 100 {
			return Amount{}, fmt.Errorf("%q is no share: write a number from 0%% to 100%%", s)
		}
		return Amount{Share: share / 100}, nil
	}
	d, err := ParseDuration(s)
	return Amount{Time: d}, err
}

// ParseDuration reads a positive duration with its unit, such as "800ms".
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no duration: write a number with its unit, such as 800ms or 1.5s", s)
	case d <= 0:
		return 0, fmt.Errorf("%q: a duration must be more than 0", s)
	}
	return d, nil
}

// ParseHopAmount reads "hop=20ms" or "hop=5%". The name ends at the last '='.
func ParseHopAmount(s string) (HopAmount, error) {
	at := strings.LastIndexByte(s, '=')
	if at <= 0 {
		return HopAmount{}, fmt.Errorf("%q: write hop=duration, such as 'inventory Reserve=200ms'", s)
	}
	a, err := ParseAmount(s[at+1:])
	return HopAmount{Hop: s[:at], Amount: a}, err
}

// ParseEndpointBudget reads "800ms" or "service operation=800ms". The name ends
// at the last '='.
func ParseEndpointBudget(s string) (EndpointBudget, error) {
	at := strings.LastIndexByte(s, '=')
	if at == 0 {
		return EndpointBudget{}, fmt.Errorf("%q: the name of the endpoint before '=' is empty", s)
	}
	d, err := ParseDuration(s[at+1:])
	return EndpointBudget{Endpoint: s[:max(at, 0)], Budget: d}, err
}

// validate checks the parts that do not depend on the input.
func (c *Config) validate() error {
	var errs []error
	for _, b := range c.Budgets {
		if b.Budget <= 0 || b.Budget > maxBudget {
			errs = append(errs, fmt.Errorf("budget %v: must be more than 0 and at most %v", b.Budget, maxBudget))
		}
	}
	seen := make(map[string]bool)
	for _, b := range c.Budgets {
		if seen[b.Endpoint] {
			errs = append(errs, fmt.Errorf("budget %v: there are two for %s", b.Budget, orAll(b.Endpoint)))
		}
		seen[b.Endpoint] = true
	}
	if c.Reserve.Time < 0 || !(c.Reserve.Share >= 0 && c.Reserve.Share < 1) {
		errs = append(errs, fmt.Errorf("reserve %.4g %%: must be less than 100 %% of the budget", 100*c.Reserve.Share))
	}
	for _, list := range [][]HopAmount{c.Floors, c.Caps, c.Current} {
		for _, h := range list {
			if h.Amount.Time < 0 || !(h.Amount.Share >= 0) || h.Amount == (Amount{}) {
				errs = append(errs, fmt.Errorf("hop %q: its amount must be more than 0", h.Hop))
			}
		}
	}
	for _, i := range c.Incidents {
		switch {
		case i.Low < 0 || i.High < i.Low || i.High > maxBudget:
			errs = append(errs, fmt.Errorf("incident %q: %v..%v is no range of up to %v", i.Hop, i.Low, i.High, maxBudget))
		case !(i.Share > 0 && i.Share <= 1):
			errs = append(errs, fmt.Errorf("incident %q: %.4g %% of requests: must be more than 0 %% and at most 100 %%", i.Hop, 100*i.Share))
		}
	}
	if _, err := c.strategy(); err != nil {
		errs = append(errs, err)
	}
	if err := finding.CheckAllowed(c.AllowDetached); err != nil {
		errs = append(errs, fmt.Errorf("allow detached: %w", err))
	}
	if err := c.settings().Validate(finding.SettingNames{
		Utilization: "setting Utilization", ResetFloor: "setting ResetFloor", ResetShare: "setting ResetShare", MaxSkew: "setting MaxSkew",
	}); err != nil {
		errs = append(errs, err)
	}
	if c.Plan != nil && len(c.Current) > 0 {
		errs = append(errs, errors.New("both a plan and current timeouts say what is there today: use one"))
	}
	if c.Plan != nil {
		if err := c.Plan.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if l := c.Percentile; l != (quantile.Level{}) && (l.Num <= 0 || l.Num >= l.Den) {
		errs = append(errs, fmt.Errorf("percentile %d/%d: must be between 0 and 1", l.Num, l.Den))
	}
	if c.Quantum < 0 {
		errs = append(errs, fmt.Errorf("quantum %v: must not be negative", c.Quantum))
	}
	for name, n := range map[string]int{"top": c.Top, "max hops": c.MaxHops, "sample": c.Sample, "max trace spans": c.MaxTraceSpans} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s %d: must not be negative", name, n))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func orAll(endpoint string) string {
	if endpoint == "" {
		return "all endpoints"
	}
	return fmt.Sprintf("%q", endpoint)
}

func (c *Config) strategy() (budget.Strategy, error) {
	strategy := budget.Strategies[0]
	if c.Strategy != "" {
		var err error
		if strategy, err = budget.StrategyNamed(c.Strategy); err != nil {
			return nil, err
		}
	}
	return budget.WithObjective(strategy, c.Objective)
}

// settings are those of the rules.
func (c *Config) settings() finding.Settings {
	return cmp.Or(c.Settings, finding.Defaults)
}

// changed are the settings of the rules where they are not those that everybody
// expects.
func (c *Config) changed() Opt[finding.Settings] {
	s := c.settings()
	return Opt[finding.Settings]{s, s != finding.Defaults}
}

// level is the quantile used as weight and for verdicts.
func (c *Config) level() quantile.Level {
	if c.Percentile == (quantile.Level{}) {
		return quantile.P99
	}
	return c.Percentile
}
