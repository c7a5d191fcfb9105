package analyzer

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// falseCutGoal is the share of good requests that a plan may cut by mistake.
const falseCutGoal = 0.01

// Where the budget of an endpoint came from.
const (
	sourceFlag      = "flag"
	sourceObserved  = "observed"
	sourceSuggested = "suggested"
)

// looseFrom is how many times its P99 a hop must have to count as loose.
const looseFrom = 5

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
	return b.Endpoint == "" || match(b.Endpoint, e.String())
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
		if match(pattern, strings.TrimSpace(h.Callee+" "+h.Operation)) || match(pattern, h.Callee) ||
			match(pattern, h.Operation) || match(pattern, h.Label) {
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

// resolve maps the amounts to hops. used counts the endpoints in which a pattern
// named a hop.
func resolve(hops []Hop, list []HopAmount, used []int) (map[int]Amount, error) {
	out := make(map[int]Amount)
	for i, want := range list {
		at, err := find(hops, want.Hop)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			continue
		}
		used[i]++
		if !planned(&hops[at]) {
			return nil, fmt.Errorf("%q: nobody waits for hop %s (%s), so it has no budget", want.Hop, hops[at].ID, hops[at].Label)
		}
		if _, twice := out[at]; twice {
			return nil, fmt.Errorf("%q: hop %s (%s) is named twice", want.Hop, hops[at].ID, hops[at].Label)
		}
		out[at] = want.Amount
	}
	return out, nil
}

// endpoint is the split of one endpoint.
type endpoint struct {
	*Endpoint
	p        *profile.Profile
	config   *Config
	solution budget.Solution
	estimate []quantile.Estimate // of each hop at the level of the verdicts
	now      map[int]Amount
	before   [][]uint64 // by hop: the siblings that end before it starts; made when needed
}

func (a *analysis) endpoint(p *profile.Profile, used []int) (*Endpoint, error) {
	e := endpoint{
		Endpoint: &Endpoint{
			Service: p.Service, Operation: p.Operation, Strategy: a.config.strategy(),
			Traces: p.Requests, Failed: p.Hops[0].Failed,
		},
		p: p, config: &a.config,
	}
	e.measure()
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
	options := e.options(floors, caps)
	strategy, err := budget.StrategyNamed(e.Strategy)
	if err != nil {
		return nil, err
	}
	problem := budget.NewProblem(p, options)
	e.solution = budget.Solve(problem, float64(e.Budget), strategy)
	raised := e.BudgetSource == sourceSuggested && !e.solution.Feasible
	if raised { // a suggestion that no plan obeys would be none
		e.Budget = nanos(e.solution.MinBudget)
		e.DeadlineMissRatio = p.Every.FractionAbove(e.Budget)
		e.solution = budget.Solve(problem, float64(e.Budget), strategy)
	}
	if e.Failed == e.Traces { // nothing is known of how long a good request takes
		e.solution = budget.Solution{}
	}
	e.plan(problem)
	e.today()
	e.judge()
	e.moves()
	e.replay(options, strategy)
	e.warn(a, low)
	if raised {
		e.Warnings = append(e.Warnings, "the suggestion is the smallest budget that any plan obeys")
	}
	return e.Endpoint, nil
}

// options are the user's constraints for the solver.
func (e *endpoint) options(floors, caps map[int]Amount) budget.Options {
	o := budget.Options{
		Percentile: e.config.level(), Quantum: e.Quantum,
		Reserve: int64(e.config.Reserve.Time), Fraction: e.config.Reserve.Share,
		TrustSelf: e.BudgetSource == sourceSuggested,
		Floors:    make(map[int]int64), Caps: make(map[int]int64), CapRatios: make(map[int]float64),
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

// quantileOf returns the quantile where there is one.
func quantileOf(d *quantile.Dist, l quantile.Level) Opt[int64] {
	v, ok := d.At(l)
	return Opt[int64]{v, ok}
}

// doubt is what is known of the measurement besides its values.
func (e *endpoint) doubt() quantile.EstimateOptions {
	return quantile.EstimateOptions{Resolution: e.p.Resolution, Shrink: e.p.Shrink}
}

// measure fills in what was seen: it needs no budget.
func (e *endpoint) measure() {
	p := e.p
	doubt := e.doubt()
	level := e.config.level()
	if level != quantile.P99 {
		e.Percentile = Some(100 * level.Float())
	}
	e.Hops = make([]Hop, len(p.Hops))
	e.estimate = make([]quantile.Estimate, len(p.Hops))
	labels := labels(p.Hops)
	hottest := 0.0
	for i := range p.Hops {
		from := &p.Hops[i]
		e.estimate[i] = from.Duration.Estimate(level, doubt)
		p99 := from.Duration.Estimate(quantile.P99, doubt)
		h := &e.Hops[i]
		*h = Hop{
			ID: from.ID, Depth: from.Depth, Caller: from.Caller, Callee: from.Callee, Operation: from.Operation,
			Label: labels[i], Kind: kindNames[from.Kind], Calls: from.Calls, Presence: from.Presence,
			MaxAttempts: from.MaxAttempts,
			P50:         quantileOf(from.Duration, quantile.P50), P90: quantileOf(from.Duration, quantile.P90),
			P95: quantileOf(from.Duration, quantile.P95), P99: quantileOf(from.Duration, quantile.P99),
			CensoredRatio: from.Duration.CensoredRatio(),
			NetP50:        quantileOf(from.Net, quantile.P50),
			Confidence:    quantile.Grade(e.estimate[i].EffN).String(),
		}
		if from.Parent >= 0 {
			h.Parent = p.Hops[from.Parent].ID
		}
		if k, ok := from.Count.At(quantile.P99); ok {
			h.CallsPerTraceP99 = k
		}
		if v, ok := from.Duration.Max(); ok {
			h.Max = Some(v)
		}
		if p99.N > 0 {
			h.P99Lo = Some(p99.Lo)
			h.P99Hi = Opt[int64]{p99.Hi, p99.HiKnown}
		}
		if level != quantile.P99 {
			h.PercentileNS = quantileOf(from.Duration, level)
		}
		if from.Kind.Waited() {
			h.SelfP50, h.SelfP99 = quantileOf(from.Self, quantile.P50), quantileOf(from.Self, quantile.P99)
			h.TailP50 = quantileOf(from.Tail, quantile.P50)
			h.CriticalPath, h.SlowPath = Some(from.CriticalPath), Some(from.SlowPath)
			if i > 0 {
				h.Order = orderNames[from.Order]
			}
			if from.CriticalPath > hottest {
				hottest, e.Hot = from.CriticalPath, from.ID
			}
		}
		for _, before := range from.After {
			h.After = append(h.After, p.Hops[before].ID)
		}
		if from.Skew != 0 {
			h.Skew = Some(from.Skew)
		}
		h.Flags = flags(from, p99.Censored)
	}
	e.overlaps()
	root := &e.Hops[0]
	e.Duration = Quantiles{
		P50: root.P50, P90: root.P90, P95: root.P95, P99: root.P99, P999: quantileOf(p.Hops[0].Duration, quantile.P999),
		P99Lo: root.P99Lo, P99Hi: root.P99Hi, Max: root.Max,
	}
	e.OrderPairs, e.OrderSure = p.Pairs, p.SurePairs
	e.Resolution = p.Resolution
}

var kindNames = map[profile.HopKind]string{
	profile.KindRoot: HopRoot, profile.KindCall: HopCall, profile.KindStage: HopStage,
	profile.KindStep: HopStep, profile.KindAsync: HopAsync,
}

var orderNames = map[profile.Order]string{
	profile.OrderSure: "sure", profile.OrderUncertain: "uncertain", profile.OrderExclusive: "exclusive",
}

// flags are single facts of a hop, in alphabetical order.
func flags(h *profile.Hop, censored bool) []string {
	var out []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"censored", censored},
		{"failed_calls_left_out", h.Failed > 0},
		{"hedged", h.Hedged},
		{"looped", h.Looped},
		{"optional", h.Optional},
		{"retried", h.Retried},
		{"server_side_only", h.ServerOnly},
		{"server_spans_missing", h.Unanswered > 0},
		{"skew_not_fitted", h.Unfitted > 0},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// overlaps marks hops that may run beside a sibling.
func (e *endpoint) overlaps() {
	after := func(b, a int) bool { return slices.Contains(e.p.Hops[b].After, a) }
	siblings := make([][]int, len(e.p.Hops)) // that come earlier, by parent
	for b := range e.p.Hops {
		y := &e.p.Hops[b]
		if y.Parent < 0 || !y.Kind.Waited() {
			continue
		}
		earlier := siblings[y.Parent]
		siblings[y.Parent] = append(earlier, b)
		for _, a := range earlier {
			x := &e.p.Hops[a]
			if !after(b, a) && (x.Slot == 0 || x.Slot != y.Slot) {
				e.Hops[a].Overlaps, e.Hops[b].Overlaps = true, true
			}
		}
	}
}

// method finds the short name in a full RPC name such as "shop.v1.Cart/Add".
var method = regexp.MustCompile(`^[\w.$-]+/([\w$-]+)$`)

// labels names the hops for people: callee and operation, an RPC by its method
// alone where that is unambiguous. Stages and steps need no callee.
func labels(hops []profile.Hop) []string {
	full, short := make([]string, len(hops)), make([]string, len(hops))
	meaning := make(map[string]string) // full name that a short one stands for; "" if several
	for i := range hops {
		h := &hops[i]
		callee := h.Callee
		if h.Kind == profile.KindStage || h.Kind == profile.KindStep {
			callee = ""
		}
		full[i] = strings.TrimSpace(callee + " " + h.Operation)
		short[i] = full[i]
		if m := method.FindStringSubmatch(h.Operation); m != nil {
			short[i] = strings.TrimSpace(callee + " " + m[1])
		}
		if other, ok := meaning[short[i]]; ok && other != full[i] {
			meaning[short[i]] = ""
		} else {
			meaning[short[i]] = full[i]
		}
	}
	for i := range short {
		if meaning[short[i]] == "" {
			short[i] = full[i]
		}
	}
	return short
}

// budget chooses the budget of the endpoint: a flag, what its spans carry, or
// a suggestion. It returns whether a suggestion rests on few requests.
func (e *endpoint) budget() (low bool) {
	named := false
	for _, b := range e.config.Budgets { // one for a named endpoint beats one for all
		if b.names(profile.Endpoint{Service: e.Service, Operation: e.Operation}) && !named {
			e.Budget, e.BudgetSource, named = int64(b.Budget), sourceFlag, b.Endpoint != ""
		}
	}
	root := e.p.Hops[0].Duration
	switch {
	case e.Budget > 0:
	case e.p.Limit > 0:
		e.Budget, e.BudgetSource = e.p.Limit, sourceObserved
	default:
		e.Budget, low = budget.Suggest(root, e.doubt())
		e.BudgetSource = sourceSuggested
	}
	e.DeadlineMissRatio = e.p.Every.FractionAbove(e.Budget)
	return low
}

// plan copies the solution to the hops.
func (e *endpoint) plan(problem *budget.Problem) {
	s := &e.solution
	e.Feasible, e.MinBudget = s.Feasible, nanos(s.MinBudget)
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
			timeout := budget.AttemptTimeout(share, attempt, h.P99.V, h.Floor.V)
			if timeout >= e.Quantum {
				timeout -= timeout % e.Quantum
			}
			h.AttemptTimeout = Some(max(timeout, min(h.Floor.V, share)))
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

// today fills in the timeouts that are configured now: what the user says,
// else what the CLIENT spans said they had left.
func (e *endpoint) today() {
	for i := range e.Hops {
		h := &e.Hops[i]
		if amount, ok := e.now[i]; ok {
			h.Now = Some(int64(amount.of(e.Budget)))
		} else if v, ok := e.p.Hops[i].DeadlineRemaining.At(quantile.P50); ok && len(e.config.Current) == 0 && v > 0 {
			h.Now = Some(v)
		}
		if h.Now.Known && h.Share.Known {
			h.Change = Some(h.Share.V - h.Now.V)
		}
	}
	e.WorstCaseNow = e.longestNow(0)
}

// longestNow returns the longest chain of today's timeouts under a hop. A hop
// without one takes what its own calls may take; where that is not known either,
// nothing is.
func (e *endpoint) longestNow(parent int) Opt[int64] {
	ends := make(map[int]int64) // longest chain that ends with the child
	longest := int64(0)
	for i := range e.p.Hops { // siblings that come before have smaller indices
		if e.p.Hops[i].Parent != parent || !planned(&e.Hops[i]) {
			continue
		}
		own := e.Hops[i].Now
		if !own.Known {
			own = e.longestNow(i)
		}
		if !own.Known {
			return Opt[int64]{}
		}
		before := int64(0)
		for _, a := range e.p.Hops[i].After {
			before = max(before, ends[a])
		}
		ends[i] = before + own.V
		longest = max(longest, ends[i])
	}
	return Opt[int64]{longest, len(ends) > 0}
}

// given is the time that a verdict judges: today's where it is known, else the
// share.
func (h *Hop) given() Opt[int64] {
	if h.Now.Known {
		return h.Now
	}
	return h.Share
}

// judge gives each hop its verdict, the first that applies.
func (e *endpoint) judge() {
	for i := range e.Hops {
		h := &e.Hops[i]
		if h.P99.Known && h.P99.V > 0 && h.Share.Known && h.Share.V > 0 {
			h.Slack = Some(float64(h.Share.V) / float64(h.P99.V))
			h.UtilizationP99 = Some(float64(h.P99.V) / float64(h.Share.V))
		}
		h.Verdict = e.verdict(i)
	}
	for i := range e.Hops {
		h := &e.Hops[i]
		if h.Verdict == VerdictOK && i > 0 && h.given().V > looseFrom*e.estimate[i].Value && e.taker(i) >= 0 {
			h.Verdict = VerdictLoose
		}
	}
}

// taker returns the hop that could use the time of hop i, -1 if none: a tight
// one, or one over, that runs in sequence with it and is neither its caller nor
// its callee. Of several it is the one that lacks most to the upper bound of its
// P99. A share that was only filled up beside a longer sibling has nothing to
// give: it takes nothing from anybody.
func (e *endpoint) taker(i int) int {
	best := -1
	if !e.Hops[i].Now.Known && (!e.Feasible || !e.solution.OnSaturatedChain[i]) {
		return best
	}
	for j := range e.Hops {
		v := e.Hops[j].Verdict
		if (v == VerdictTight || v == VerdictOver) && e.inSequence(i, j) && (best < 0 || e.lacks(j) > e.lacks(best)) {
			best = j
		}
	}
	return best
}

// inSequence tells whether two hops run one after the other: below their lowest
// common caller, the call that leads to one ends before the call that leads to
// the other starts.
func (e *endpoint) inSequence(i, j int) bool {
	hops := e.p.Hops
	for i != j && hops[i].Parent != hops[j].Parent {
		if hops[i].Depth >= hops[j].Depth {
			i = hops[i].Parent
		} else {
			j = hops[j].Parent
		}
		if i < 0 || j < 0 {
			return false
		}
	}
	return i != j && (e.precedes(i, j) || e.precedes(j, i))
}

// precedes tells whether sibling a ends before b starts, directly or by others
// between them.
func (e *endpoint) precedes(a, b int) bool {
	if e.before == nil {
		words := (len(e.p.Hops) + 63) / 64
		e.before = make([][]uint64, len(e.p.Hops))
		for h := range e.p.Hops { // what comes before has a smaller index
			e.before[h] = make([]uint64, words)
			for _, p := range e.p.Hops[h].After {
				e.before[h][p/64] |= 1 << (p % 64)
				for w, bits := range e.before[p] {
					e.before[h][w] |= bits
				}
			}
		}
	}
	return e.before[b][a/64]&(1<<(a%64)) != 0
}

func (e *endpoint) verdict(i int) string {
	h, est := &e.Hops[i], &e.estimate[i]
	g := h.given()
	switch {
	case i == 0 && !e.Feasible:
		return VerdictInfeasible
	case i == 0 && e.DeadlineMissRatio > 0:
		return VerdictMisses
	case i == 0:
		return VerdictFits
	case h.Kind == HopAsync:
		return VerdictAsync
	case h.Kind == HopStep:
		return ""
	case est.Censored:
		return VerdictCensored
	case est.EffN*(1-est.P.Float()) < 1: // the quantile is the largest value seen: under 100 calls for a P99
		return VerdictFewSamples
	case !g.Known:
		return ""
	case g.V < est.Value:
		return VerdictOver
	case !est.HiKnown || g.V < est.Hi:
		return VerdictTight
	}
	return VerdictOK
}

// moves says what loose hops could give: all over five times their P99.
func (e *endpoint) moves() {
	for i := range e.Hops {
		from := &e.Hops[i]
		if from.Verdict != VerdictLoose {
			continue
		}
		to := e.taker(i)
		amount := (from.given().V - looseFrom*e.estimate[i].Value) / e.Quantum * e.Quantum
		if to >= 0 && amount > 0 {
			e.Moves = append(e.Moves, Move{
				From: from.ID, To: e.Hops[to].ID, Amount: amount, FromSlack: e.room(i), ToSlack: e.room(to),
			})
		}
	}
	slices.SortStableFunc(e.Moves, func(a, b Move) int { return cmp.Compare(b.Amount, a.Amount) })
}

// lacks is what a hop is short of the upper bound of its P99, or of the largest
// call seen where there is no bound, ns.
func (e *endpoint) lacks(i int) int64 {
	bound := e.estimate[i].Hi
	if !e.estimate[i].HiKnown {
		bound = e.Hops[i].Max.V
	}
	return bound - e.Hops[i].given().V
}

// room is how many times its P99 a hop is given.
func (e *endpoint) room(i int) float64 {
	return float64(e.Hops[i].given().V) / float64(max(e.estimate[i].Value, 1))
}

// replay predicts what the split would have done to the requests that were
// seen, each judged by a split that other requests made.
func (e *endpoint) replay(o budget.Options, s budget.Strategy) {
	if !e.Feasible {
		return
	}
	r := budget.CrossValidate(e.p, o, e.Budget, s, falseCutGoal)
	if r.Folds == 0 {
		return
	}
	e.Replay = &Replay{
		Folds: r.Folds, Traces: r.Requests,
		BudgetFalseCut: r.BudgetFalseCut, TimeoutFalseCut: r.TimeoutFalseCut,
	}
	for _, b := range r.BudgetFor {
		e.Replay.BudgetForFalseCut = append(e.Replay.BudgetForFalseCut, BudgetFor{
			Ratio: b.Ratio, Budget: Opt[int64]{b.Budget, b.Known},
		})
	}
}

// warn lists what the reader of the table should know, the gravest first.
func (e *endpoint) warn(a *analysis, low bool) {
	say := func(format string, args ...any) { e.Warnings = append(e.Warnings, fmt.Sprintf(format, args...)) }
	if e.Traces < 100 {
		say("only %s: every figure is a first look, no recommendation", count(e.Traces, "request"))
	} else if low {
		say("the suggested budget rests on %d requests: take it as a first guess", e.Traces)
	}
	if e.BudgetSource == sourceObserved && e.p.LimitDisagrees {
		say("entry spans carry different latency_budget.limit values: the most frequent is used")
	}
	for _, w := range e.solution.Warnings {
		say("%s: %s", e.Hops[w.Hop].Label, w.Text)
	}
	for i := range e.Hops {
		h := &e.Hops[i]
		attempts := int64(h.MaxAttempts)
		if h.AttemptTimeout.Known && h.MaxAttempts > 1 && attempts*h.AttemptTimeout.V > h.Share.V {
			say("%s: up to %d attempts were seen; at %v each its BUDGET of %v holds %d", h.Label, attempts,
				time.Duration(h.AttemptTimeout.V), time.Duration(h.Share.V), h.Share.V/max(h.AttemptTimeout.V, 1))
		}
	}
	if e.Failed == e.Traces {
		say("all %s failed: there is nothing to plan from", count(e.Traces, "request"))
		return
	}
	var failed []string
	for i := range e.Hops {
		if n := e.p.Hops[i].Failed; n > 0 {
			failed = append(failed, fmt.Sprintf("%s %d", e.Hops[i].Label, n))
		}
	}
	for i := range e.Hops {
		if h := &e.Hops[i]; planned(h) && h.Calls > 0 && e.p.Hops[i].Duration.N() == 0 {
			say("%s: no call succeeded, so it has no budget", h.Label)
		}
	}
	if len(failed) > 0 {
		say("failed calls are left out of the durations: %s", strings.Join(failed, ", "))
	}
	for i := range e.Hops {
		if n := e.p.Hops[i].Unanswered; n > 0 {
			say("%s: %d of its calls have no SERVER span: those that hung may be missing elsewhere too", e.Hops[i].Label, n)
		}
	}
	for i := range e.Hops {
		if n := e.p.Hops[i].Unfitted; n > 0 {
			say("%s: %s longer at the callee than at the caller: not fitted", e.Hops[i].Label, count(n, "call"))
		}
	}
	for i := range e.Hops {
		if h := &e.p.Hops[i]; h.TimedAsync && h.ServerOnly {
			say("%s: counted as asynchronous by its times alone, which are from another clock; CLIENT spans would tell", e.Hops[i].Label)
		}
	}
	if name := map[int64]string{1e6: "1 ms", 1e7: "10 ms", 1e9: "1 s"}[e.Resolution]; name != "" {
		say("coarse clock (%s)", name)
	}
	if e.p.Clustered {
		say("clustered: slow requests come in runs, so %d requests tell as much as %.0f independent ones",
			e.Traces, float64(e.Traces)*e.p.Shrink)
	}
	key := profile.Endpoint{Service: e.Service, Operation: e.Operation}
	if n := a.rules.Folded(key); n > 0 {
		say("%d operations over --max-hops are folded into %q", n, profile.OtherOperation)
	}
	if n := a.inferred[key]; n != nil && n.without > 0 {
		e.KindInferredRatio = float64(n.without) / float64(n.spans)
		say("kind inferred for %.0f %% of spans", max(1, 100*e.KindInferredRatio))
	}
	for _, s := range a.rules.Shifts() {
		if slices.ContainsFunc(e.Hops, func(h Hop) bool {
			return h.Skew.Known && h.Caller == s.Caller && h.Callee == s.Callee
		}) {
			say("%s", s)
		}
	}
}

// nanos turns the solver's time into whole ns.
func nanos(v float64) int64 {
	const most = math.MaxInt64 / 4
	return int64(min(v, most))
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
