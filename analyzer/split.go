package analyzer

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// falseCutGoals are the shares of good requests that a plan may cut by mistake
// for which a budget is looked for.
var falseCutGoals = []float64{0.05, 0.01, 0.005, 0.001}

// Where the budget of an endpoint came from.
const (
	sourceFlag      = "flag"
	sourcePlan      = "plan"
	sourceObserved  = "observed"
	sourceSuggested = "suggested"
)

// split turns the profiles into endpoints with budgets.
func (a *analysis) split() error {
	if err := a.namedEndpoints(); err != nil {
		return err
	}
	used := make([]int, len(a.patterns()))
	for _, p := range a.profiles {
		e, err := a.endpoint(p, used)
		if err != nil {
			return fmt.Errorf("endpoint %s %s: %w", p.Service, p.Operation, err)
		}
		a.report.Endpoints = append(a.report.Endpoints, *e)
	}
	for i, pattern := range a.patterns() {
		switch {
		case used[i] == 0:
			return fmt.Errorf("no hop is named %q; there are %s", pattern, a.hopNames(20))
		case used[i] > 1 && hopID.MatchString(pattern):
			return fmt.Errorf("hop %s is in %d endpoints, and is not the same in each: pick one with --endpoint", pattern, used[i])
		}
	}
	return nil
}

// endpoint is the split of one endpoint.
type endpoint struct {
	*Endpoint
	p        *profile.Profile
	config   *Config
	solution budget.Solution
	estimate []quantile.Estimate // of each hop at the level of the verdicts
	now      map[int]Amount
	given    *plan.Endpoint    // of Config.Plan; nil if it does not have this one
	hops     map[int]*plan.Hop // of given, by hop; those that it has
	before   [][]uint64        // by hop: the siblings that end before it starts; made when needed
}

func (a *analysis) endpoint(p *profile.Profile, used []int) (*Endpoint, error) {
	strategy, err := a.config.strategyOf(p)
	if err != nil {
		return nil, err
	}
	e := endpoint{
		Endpoint: &Endpoint{
			Service: p.Service, Operation: p.Operation, Strategy: strategy.Name(),
			Traces: p.Requests, Failed: p.Hops[0].Failed,
		},
		p: p, config: &a.config,
	}
	if p.Sampled < p.Requests {
		e.Sampled = Some(p.Sampled)
	}
	e.measure()
	e.start()
	low := e.budget()
	e.Quantum = int64(a.config.Quantum)
	if e.Quantum == 0 {
		e.Quantum = budget.QuantumFor(e.Budget)
	}
	if e.Quantum > e.Budget && e.Budget > 0 {
		return nil, fmt.Errorf("--quantum %v is more than the budget of %v", a.config.Quantum, time.Duration(e.Budget))
	}
	floors, err := resolve(e.Hops, a.config.Floors, used)
	if err != nil {
		return nil, fmt.Errorf("--floor %w", err)
	}
	used = used[len(a.config.Floors):]
	caps, err := resolve(e.Hops, a.config.Caps, used)
	if err != nil {
		return nil, fmt.Errorf("--cap %w", err)
	}
	if _, root := caps[0]; root {
		return nil, fmt.Errorf("--cap: hop 0 is the endpoint itself: give it a --budget")
	}
	used = used[len(a.config.Caps):]
	if e.now, err = resolve(e.Hops, a.config.Current, used); err != nil {
		return nil, fmt.Errorf("--current %w", err)
	}
	used = used[len(a.config.Current):]
	questions, err := e.questions(used)
	if err != nil {
		return nil, err
	}
	options := e.options(floors, caps)
	e.keep(&options)
	problem := budget.NewProblem(p, options)
	e.solution = budget.Solve(problem, float64(e.Budget), strategy)
	raised := e.BudgetSource == sourceSuggested && !e.solution.Feasible && e.solution.MinBudget <= float64(maxBudget) && e.Failed < e.Traces
	if raised { // a suggestion that no plan obeys would be none
		e.Budget = nanos(e.solution.MinBudget)
		e.DeadlineMissRatio = p.Every.FractionAbove(e.Budget)
		e.solution = budget.Solve(problem, float64(e.Budget), strategy)
	}
	if e.solution.Feasible && e.solution.Strategy != e.Strategy { // another decided for want of data: a warning says so
		if strategy, err = budget.StrategyNamed(e.solution.Strategy); err != nil {
			return nil, err
		}
		e.Strategy = strategy.Name()
	}
	if e.Failed == e.Traces { // nothing is known of how long a good request takes
		e.solution = budget.Solution{}
	}
	e.plan(problem, options.Floors)
	e.today()
	e.judge()
	e.moves()
	e.replay(options, strategy, questions)
	e.findings(a, options.Floors)
	e.warn(a, low)
	if raised {
		e.Warnings = append(e.Warnings, "the suggestion is the smallest budget that any plan obeys")
	}
	switch {
	case !e.Feasible:
	case slices.ContainsFunc(e.Hops, func(h Hop) bool { return h.Depth > plan.MaxDepth }):
		e.Warnings = append(e.Warnings, fmt.Sprintf("more than %d hops below each other: no plan file can hold them", plan.MaxDepth))
	default:
		a.plans = append(a.plans, e.toPlan(options, questions.Degradable))
	}
	return e.Endpoint, nil
}

// key is the endpoint as package profile names it.
func (e *Endpoint) key() profile.Endpoint {
	return profile.Endpoint{Service: e.Service, Operation: e.Operation}
}

// options are the user's constraints for the solver.
func (e *endpoint) options(floors, caps map[int]Amount) budget.Options {
	o := budget.Options{
		Percentile: e.config.level(), Quantum: e.Quantum,
		Reserve: int64(e.config.Reserve.Time), Fraction: e.config.Reserve.Share,
		Floors: make(map[int]int64), Caps: make(map[int]int64), CapRatios: make(map[int]float64),
	}
	for h, f := range floors {
		o.Floors[h] = int64(f.of(e.Budget))
	}
	for h, c := range caps {
		if c.Time != 0 {
			o.Caps[h] = int64(c.Time)
		} else {
			o.CapRatios[h] = c.Share
		}
	}
	return o
}

// budget chooses the budget of the endpoint: a flag, what its spans carry, or
// a suggestion. It returns whether a suggestion rests on few requests.
func (e *endpoint) budget() (low bool) {
	named := false
	for _, b := range e.config.Budgets { // one for a named endpoint beats one for all
		if b.names(e.key()) && !named {
			e.Budget, e.BudgetSource, named = int64(b.Budget), sourceFlag, b.Endpoint != ""
		}
	}
	root := e.p.Hops[0].Duration
	switch {
	case e.Budget > 0:
	case e.given != nil:
		e.Budget, e.BudgetSource = int64(e.given.Budget), sourcePlan
	case e.p.Limit > 0:
		e.Budget, e.BudgetSource = e.p.Limit, sourceObserved
	default:
		if root.N() == 0 { // all requests failed
			root = e.p.Every
		}
		e.Budget, low = budget.Suggest(root, e.doubt())
		e.BudgetSource = sourceSuggested
	}
	e.DeadlineMissRatio = e.p.Every.FractionAbove(e.Budget)
	return low
}

// plan copies the solution to the hops. floors are those that were set, by hop.
func (e *endpoint) plan(problem *budget.Problem, floors map[int]int64) {
	s := &e.solution
	e.Feasible, e.MinBudget = s.Feasible, nanos(s.MinBudget)
	if e.Feasible { // rounded up to the quantum it may be a step over what holds
		e.MinBudget = min(e.MinBudget, e.Budget)
	}
	for _, h := range s.Binding {
		e.BindingChain = append(e.BindingChain, e.Hops[h].ID)
	}
	for i := range e.Hops {
		h, from := &e.Hops[i], &e.p.Hops[i]
		if !planned(h) || problem.Hops[i].Excluded {
			continue
		}
		if f := problem.Hops[i].Floor; f > 0 {
			h.Floor = Some(int64(f))
		}
		if !s.Feasible {
			continue
		}
		share := int64(s.Share[i])
		h.Share, h.Cap = Some(share), Some(int64(s.Cap[i]))
		if e.Budget > 0 {
			h.ShareRatio = Some(s.RawShare[i] / float64(e.Budget))
		}
		h.CutRatio = Some(from.Duration.FractionAbove(share))
		if h.CallsPerTraceP99 > 1 || h.MaxAttempts > 1 {
			attempt, _ := from.Attempt.At(quantile.P99)
			floor := h.Floor.V
			if usual, known := from.Attempt.At(quantile.P50); known {
				if _, set := floors[i]; !set { // the P50 of the hop is that of all attempts and pauses together
					floor = min(floor, usual)
				}
			}
			timeout := budget.AttemptTimeout(share, attempt, h.P99.V, floor)
			if timeout >= e.Quantum {
				timeout -= timeout % e.Quantum
			}
			h.AttemptTimeout = Some(max(timeout, min(floor, share)))
		}
		if h.AttemptTimeout.Known && h.MaxAttempts > 1 {
			h.AttemptsFit = Some(budget.AttemptsWithin(share, h.AttemptTimeout.V, h.BackoffP99.V))
		}
	}
	switch {
	case !s.Feasible:
		e.Reserve = max(int64(e.config.Reserve.Time), e.Hops[0].SelfP50.V, nanos(e.config.Reserve.Share*s.MinBudget))
	default:
		e.Reserve = int64(s.Reserve[0])
		if s.WorstCase > 0 {
			e.WorstCase = Some(int64(s.WorstCase))
		}
	}
}

// planned tells whether a hop gets a budget.
func planned(h *Hop) bool { return h.Kind == HopRoot || h.Kind == HopCall || h.Kind == HopStage }

// nanos turns the solver's time into whole ns.
func nanos(v float64) int64 {
	const most = math.MaxInt64 / 4
	return int64(min(v, most))
}
