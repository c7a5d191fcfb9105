package budget

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// folds is the number of parts that requests are divided into: each part is
// replayed with numbers that were made from the others.
const folds = 5

// Policy is a way to limit the requests of an endpoint.
type Policy string

// The policies.
const (
	PolicyNone        Policy = "today"        // nothing is cut; what today's timeouts cut is not in the data
	PolicyDeadline    Policy = "deadline"     // the request has a deadline, and everybody stops at it
	PolicySame        Policy = "same"         // every call has the whole budget as timeout, the request no deadline
	PolicyHalf        Policy = "half"         // every call has half of the budget as timeout, the request no deadline
	PolicyShares      Policy = "budget"       // shares as timeouts, nobody passes a deadline on
	PolicyCaps        Policy = "timeout"      // caps as timeouts, the remaining deadline passed on
	PolicyCapsUnaided Policy = "timeout_only" // caps as timeouts, nobody passes a deadline on
)

// Trial is the effect of a policy.
type Trial struct {
	Policy   Policy
	Strategy string // that made shares and caps; empty for other policies
	Effect
}

// Effects are the trials with an incident.
type Effects struct {
	Hit    int // requests in which the hop was slow
	Trials []Trial
}

// Questions are what CrossValidate answers besides the effect of a split.
type Questions struct {
	Degradable []int      // hops that do not fail their callers
	Incidents  []Incident // each is replayed alone
	// Ratios of false cuts to find the smallest budget for.
	Ratios []float64
	// Beside are strategies to compare with.
	Beside []Strategy
	// Unplanned tells that there is no split to judge: the budget holds none.
	Unplanned bool
}

// Validation is the predicted effect of a split, and of what it compares with,
// on requests that did not make it. Requests that failed are not replayed: a
// failed call teaches no duration, and cutting it costs nothing. Ratios are thus
// also those of the good requests, within the budget, as long as few miss it.
type Validation struct {
	Folds    int // 0 where there are too few requests for a split to be judged by
	Requests int // replayed

	// Trials are the effects on the requests as they were: of the policies
	// without a split, then the shares of the strategies to compare with, then
	// the shares and caps of the split. Without folds, or without a split, they
	// are the first of these alone.
	Trials    []Trial
	Incidents []Effects   // the same with each incident
	BudgetFor []BudgetFor // one for each ratio asked for; none without folds
}

// BudgetFor is the smallest budget of the endpoint from which on its shares, as
// timeouts, cut at most Ratio of the requests although they are within it. It is
// rounded up to the quantum, and unknown where no budget up to 64 times the
// slowest request will do.
type BudgetFor struct {
	Ratio  float64
	Budget int64 // ns
	Known  bool
}

// CrossValidate predicts what the split of a budget, in ns, would do, by five-
// fold cross-validation over p.Rows: folds by trace hash or, where slow requests
// come in runs, by time. A fold for which no split exists counts as cut. It
// takes time in proportion to rows times hops.
//
// A row knows the longest operation of a hop in its request. Where no hop is
// called by two calls of a request, all rows together hold exactly what
// NewProblem works from, and quantiles from rows are the same; where one is,
// they are somewhat higher.
func CrossValidate(p *profile.Profile, o Options, budget int64, strategy Strategy, q Questions) Validation {
	v := newValidator(p, o, q.Degradable)
	if v == nil {
		return Validation{}
	}
	var result Validation
	if v.rows.Len() >= folds {
		result.Folds = folds
	}
	var plans []plan
	if result.Folds > 0 && !q.Unplanned {
		for _, s := range q.Beside {
			if s.Name() != strategy.Name() {
				plans = append(plans, v.plan(s, float64(budget)))
			}
		}
		plans = append(plans, v.plan(strategy, float64(budget)))
	}
	result.Trials = v.compare(v.rows, float64(budget), plans)
	result.Requests = result.Trials[0].Requests
	for _, i := range q.Incidents {
		rows, hit := v.problems[0].Slow(v.rows, i)
		result.Incidents = append(result.Incidents, Effects{hit, v.compare(rows, float64(budget), plans)})
	}
	if result.Folds > 0 {
		result.BudgetFor = v.budgetsFor(strategy, q.Ratios)
	}
	return result
}

// Of returns the trial of a policy with the given strategy, "" for one that has
// none; nil if there is none.
func Of(trials []Trial, policy Policy, strategy string) *Trial {
	for i := range trials {
		if trials[i].Policy == policy && trials[i].Strategy == strategy {
			return &trials[i]
		}
	}
	return nil
}

// validator replays each fold with the numbers of the others.
type validator struct {
	rows       *profile.Rows
	parts      partition
	problems   [folds]*Problem // made without the requests of the fold
	solvers    [folds]solver
	degradable []bool
	refused    []float64 // timeouts of a fold without a split: nothing runs at all
	quantum    float64   // of the plan
	total      float64   // weight of the requests that did not fail
}

// plan is the split of one budget for each fold.
type plan struct {
	strategy string
	solution [folds]Solution
}

// newValidator returns nil where there are no rows.
func newValidator(p *profile.Profile, o Options, degradable []int) *validator {
	if p.Rows == nil || p.Rows.Len() == 0 || len(p.Hops) == 0 {
		return nil
	}
	v := &validator{
		rows: p.Rows, parts: divide(p.Rows, p.Clustered), quantum: float64(o.Quantum),
		refused: slices.Repeat([]float64{-1}, len(p.Hops)),
	}
	if len(degradable) > 0 {
		v.degradable = make([]bool, len(p.Hops))
		for _, h := range degradable {
			v.degradable[h] = true
		}
	}
	v.problems = v.parts.train(p, o)
	for f := range v.solvers {
		v.solvers[f].reset(v.problems[f])
	}
	v.total = v.parts.sum(func(r int) bool { return !v.rows.FailedAt(0, r) })
	return v
}

// plan splits a budget for each fold, all at once: a strategy that searches takes
// a while.
func (v *validator) plan(s Strategy, budget float64) plan {
	out := plan{strategy: s.Name()}
	var group sync.WaitGroup
	for f := range v.problems {
		group.Go(func() {
			v.problems[f].Quantum = v.quantum
			v.solvers[f].solve(budget, s, &out.solution[f])
		})
	}
	group.Wait()
	return out
}

func (v *validator) solve(s Strategy, budget, quantum float64, out *plan) {
	for f := range v.problems {
		v.problems[f].Quantum = quantum
		v.solvers[f].solve(budget, s, &out.solution[f])
	}
}

// regimes are the limits that timeouts returns for each fold.
func (v *validator) regimes(propagate bool, timeouts func(fold int) []float64) []regime {
	out := make([]regime, folds)
	for f := range out {
		out[f] = regime{v.problems[f], limitSet{Timeouts: timeouts(f), Propagate: propagate, Degradable: v.degradable}}
	}
	return out
}

// shares are the shares of a plan as timeouts.
func (v *validator) shares(p *plan) []regime {
	return v.regimes(false, func(f int) []float64 {
		if !p.solution[f].Feasible {
			return v.refused
		}
		return p.solution[f].Share
	})
}

// caps are the caps of a plan as timeouts.
func (v *validator) caps(p *plan, propagate bool) []regime {
	return v.regimes(propagate, func(f int) []float64 {
		if !p.solution[f].Feasible {
			return v.refused
		}
		return p.solution[f].Cap
	})
}

// fixed are the same timeouts for each fold: that of the endpoint and that of
// every hop below it.
func (v *validator) fixed(endpoint, hop float64) []regime {
	timeouts := slices.Repeat([]float64{hop}, len(v.problems[0].Hops))
	timeouts[0] = endpoint
	return v.regimes(false, func(int) []float64 { return timeouts })
}

// compare replays the rows under each policy. The last plan, if any, is the one
// that is to be judged.
func (v *validator) compare(rows *profile.Rows, budget float64, plans []plan) []Trial {
	var out []Trial
	try := func(policy Policy, strategy string, r []regime) {
		out = append(out, Trial{policy, strategy, replay(rows, &v.parts, budget, r)})
	}
	none := math.Inf(1)
	try(PolicyNone, "", v.fixed(none, none))
	try(PolicyDeadline, "", v.fixed(budget, none))
	try(PolicySame, "", v.fixed(none, budget))
	try(PolicyHalf, "", v.fixed(none, budget/2))
	for i := range plans {
		p := &plans[i]
		try(PolicyShares, p.strategy, v.shares(p))
		try(PolicyCaps, p.strategy, v.caps(p, true))
	}
	if len(plans) > 0 {
		last := &plans[len(plans)-1]
		try(PolicyCapsUnaided, last.strategy, v.caps(last, false))
	}
	return out
}

// descent finds the smallest budgets for rates of false cuts.
type descent struct {
	*validator
	strategy Strategy
	plan     plan
	known    map[[2]float64]float64 // rate by budget and quantum
}

// falseCuts returns the weighted share of requests that are within the budget
// and would be cut with shares, in steps of the quantum, as timeouts.
func (d *descent) falseCuts(budget, quantum float64) float64 {
	key := [2]float64{budget, quantum}
	if rate, ok := d.known[key]; ok {
		return rate
	}
	d.solve(d.strategy, budget, quantum, &d.plan)
	var replayers [folds]replayer
	for f, r := range d.shares(&d.plan) {
		replayers[f].reset(&r)
	}
	rate := 0.0
	if d.total > 0 {
		rate = d.parts.sum(func(r int) bool {
			if d.rows.FailedAt(0, r) {
				return false
			}
			o := replayers[d.parts.fold[r]].request(d.rows, r)
			return o.hop >= 0 && o.duration <= budget
		}) / d.total
	}
	d.known[key] = rate
	return rate
}

// budgetsFor returns for each ratio the smallest budget from which on at most
// that share of requests is cut. With more budget shares grow, but more requests
// are within it too, so the share of cuts need not fall everywhere: it is
// followed down from a budget that holds to the first that does not, in steps of
// a tenth and then of a hundredth. The smallest ratio comes first, and the next
// goes on from its budget. A result is a multiple of its quantum and holds itself.
func (v *validator) budgetsFor(strategy Strategy, ratios []float64) []BudgetFor {
	d := descent{validator: v, strategy: v.cheaply(strategy), known: make(map[[2]float64]float64)}
	least := 0.0 // no split of every fold below
	for f := range v.solvers {
		least = max(least, v.solvers[f].minimum(minSelfLevel, v.solvers[f].median))
	}
	high := max(least, float64(slices.Max(v.rows.Duration[0])), 1)
	limit := 64 * high
	out := make([]BudgetFor, len(ratios))
	order := make([]int, len(ratios))
	for i := range order {
		order[i] = i
		out[i].Ratio = ratios[i]
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(ratios[a], ratios[b]) })
	for _, i := range order {
		for !d.holds(high, ratios[i]) && high < limit {
			high *= 2
		}
		if d.holds(high, ratios[i]) {
			high = d.descend(high, least, 1.1, ratios[i])
			out[i].Budget, out[i].Known = d.smallest(d.descend(high, least, 1.01, ratios[i]), least, ratios[i])
		}
	}
	return out
}

// step is the quantum of a budget that is looked at.
func (d *descent) step(budget float64) float64 {
	return max(d.quantum, float64(QuantumFor(int64(budget))))
}

// holds tells whether at most the given share of requests is cut.
func (d *descent) holds(budget, ratio float64) bool {
	return d.falseCuts(budget, d.step(budget)) <= ratio
}

// descend returns the last budget that holds, going down by a factor from one
// that does.
func (d *descent) descend(high, least, factor, ratio float64) float64 {
	for low := high / factor; low > least && d.holds(low, ratio); low /= factor {
		high = low
	}
	return high
}

// smallest refines a budget that holds; one that is a hundredth less does not.
func (d *descent) smallest(high, least, ratio float64) (int64, bool) {
	low := max(high/1.01, least*(1-tolerance))
	for range 8 { // to a 25,000th
		if middle := low + (high-low)/2; d.holds(middle, ratio) {
			high = middle
		} else {
			low = middle
		}
	}
	for range 100 { // rounding moves it, and a request or two with it
		step := d.step(high)
		high = roundUp(high, step)
		if d.holds(high, ratio) {
			return int64(high), true
		}
		high += step
	}
	return 0, false
}

// partition divides rows into folds.
type partition struct {
	fold    []uint8   // by row
	class   []uint32  // by row: index of its weight
	weights []float64 // by class, in ascending order
}

// divide returns the folds of the rows.
func divide(rows *profile.Rows, byTime bool) partition {
	n := rows.Len()
	p := undivided(rows)
	if byTime {
		order := make([]int, n)
		for r := range order {
			order[r] = r
		}
		slices.SortFunc(order, func(a, b int) int {
			return cmp.Or(cmp.Compare(rows.Started[a], rows.Started[b]), cmp.Compare(a, b))
		})
		for i, r := range order {
			p.fold[r] = uint8(i * folds / n)
		}
	} else {
		for r, hash := range rows.Hash {
			p.fold[r] = uint8(hash % folds)
		}
	}
	return p
}

// undivided returns the weights of the rows, which are all in one fold.
func undivided(rows *profile.Rows) partition {
	p := partition{fold: make([]uint8, rows.Len()), class: make([]uint32, rows.Len())}
	thresholds := slices.Clone(rows.Threshold)
	slices.Sort(thresholds)
	thresholds = slices.Compact(thresholds)
	for _, t := range thresholds {
		p.weights = append(p.weights, quantile.Weight(t))
	}
	for r, t := range rows.Threshold {
		class, _ := slices.BinarySearch(thresholds, t)
		p.class[r] = uint32(class)
	}
	return p
}

// sum returns the weight of the rows that satisfy is.
func (p *partition) sum(is func(r int) bool) float64 {
	counts := make([]int, len(p.weights))
	for r, class := range p.class {
		if is(r) {
			counts[class]++
		}
	}
	sum := 0.0
	for class, n := range counts {
		sum += float64(n) * p.weights[class]
	}
	return sum
}

// train returns a problem for each fold, from the rows outside it. Every column
// is sorted once, with the fold in the low bits of its values, and walked once
// with five counters.
func (p *partition) train(from *profile.Profile, o Options) (problems [folds]*Problem) {
	whole := newTraining(from)
	for f := range problems {
		problems[f] = structure(from, o)
		problems[f].Training = whole.without(p.fold, uint8(f))
	}
	planned := problems[0].planned(nil)
	median := []quantile.Level{quantile.P50}
	medianAndTail := []quantile.Level{quantile.P50, quantile.P99}
	weight := []quantile.Level{o.percentile()}
	own := make([]quantile.Level, selfLevels)
	for k := range own {
		own[k] = selfLevel(k)
	}
	rows := from.Rows
	column := sortedColumn{partition: p}
	var q [folds]quantiles
	for h := range from.Hops {
		if !planned[h] {
			continue
		}
		var failed []bool
		if h < len(rows.Failed) {
			failed = rows.Failed[h]
		}
		column.sort(rows.Duration[h], failed)
		column.walk(medianAndTail, nil, func(f, level int, v int64) {
			if level == 0 {
				q[f].p50 = v
			} else {
				q[f].p99 = v
			}
		})
		var caller []int64
		if parent := from.Hops[h].Parent; parent >= 0 {
			caller = rows.Duration[parent]
		}
		absent := column.absent(rows.Duration[h], caller)
		column.walk(weight, absent, func(f, _ int, v int64) { q[f].weight = v })
		column.walk(median, absent, func(f, _ int, v int64) { q[f].median = v })
		column.sort(rows.Self[h], nil)
		column.walk(own, nil, func(f, level int, v int64) { q[f].self[level] = v })
		for f := range q {
			q[f].selfCount = column.effective(f)
		}
		column.sort(rows.Tail[h], nil)
		column.walk(median, nil, func(f, _ int, v int64) { q[f].tail = v })
		for f := range problems {
			problems[f].set(h, from, o, &q[f])
		}
		q = [folds]quantiles{}
	}
	return problems
}

// sortedColumn is a column in ascending order that remembers which fold and
// class its values came from.
type sortedColumn struct {
	*partition
	keys   []int64 // value, then class, then fold
	shift  int     // bits for class and fold
	counts []int   // values by class*folds + fold
}

// sort takes over the values of a column; -1 stands for no value, and so does a
// row for which skip, if given, holds.
func (c *sortedColumn) sort(column []int64, skip []bool) {
	c.shift = bits.Len(uint(len(c.weights)*folds - 1))
	// With one weight 41 years fit beside the fold, with a thousand weeks.
	limit := int64(math.MaxInt64) >> c.shift
	c.keys = slices.Grow(c.keys[:0], len(column))
	c.counts = make([]int, len(c.weights)*folds)
	for r, v := range column {
		if v >= 0 && (skip == nil || !skip[r]) {
			source := int(c.class[r])*folds + int(c.fold[r])
			c.counts[source]++
			c.keys = append(c.keys, min(v, limit)<<c.shift|int64(source))
		}
	}
	slices.Sort(c.keys)
}

// absent returns, by fold that is left out, the weight of the requests whose
// caller ran and did not make the call.
func (c *sortedColumn) absent(column, caller []int64) *[folds]float64 {
	counts := make([]int, len(c.counts))
	if caller != nil {
		for r, v := range column {
			if v < 0 && caller[r] >= 0 {
				counts[int(c.class[r])*folds+int(c.fold[r])]++
			}
		}
	}
	var zeros [folds]float64
	for f := range zeros {
		zeros[f], _ = c.weigh(counts, f)
	}
	return &zeros
}

// weigh returns the sums of weights and of their squares over all folds but one.
func (c *sortedColumn) weigh(counts []int, without int) (sum, squares float64) {
	for source, n := range counts {
		if source%folds != without {
			w := c.weights[source/folds]
			sum += float64(n) * w
			squares += float64(n) * w * w
		}
	}
	return sum, squares
}

// effective returns the effective number of values outside a fold.
func (c *sortedColumn) effective(without int) int {
	sum, squares := c.weigh(c.counts, without)
	if squares == 0 {
		return 0
	}
	return int(sum * sum / squares)
}

// walk calls found with the quantiles, at ascending levels, of the values
// outside each fold and of the given weight of zeros beside them. There is no
// call where there is no value and no zero.
func (c *sortedColumn) walk(levels []quantile.Level, zeros *[folds]float64, found func(fold, level int, v int64)) {
	var reached [folds]float64
	var next [folds]int
	targets := make([]float64, folds*len(levels))
	advance := func(f int, v int64) {
		for next[f] < len(levels) && reached[f] >= targets[f*len(levels)+next[f]] {
			found(f, next[f], v)
			next[f]++
		}
	}
	for f := range folds {
		total, _ := c.weigh(c.counts, f)
		if zeros != nil {
			reached[f] = zeros[f]
			total += zeros[f]
		}
		for i, l := range levels {
			targets[f*len(levels)+i] = total * float64(l.Num) / float64(l.Den) * (1 - tolerance)
		}
		if reached[f] > 0 {
			advance(f, 0)
		}
	}
	for _, key := range c.keys {
		source := int(key & (1<<c.shift - 1))
		w := c.weights[source/folds]
		for f := range folds {
			if f != source%folds {
				reached[f] += w
				if i := next[f]; i < len(levels) && reached[f] >= targets[f*len(levels)+i] {
					advance(f, key>>c.shift)
				}
			}
		}
	}
}
