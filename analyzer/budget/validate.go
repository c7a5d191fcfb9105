package budget

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// folds is the number of parts that requests are divided into: each part is
// replayed with numbers that were made from the others.
const folds = 5

// Validation is the predicted effect of a split on requests that did not make
// it. Ratios are weighted shares of the requests that did not fail, which are
// also the shares of the good ones, those within the budget, as long as few miss
// it. A failed call teaches no duration, and cutting it costs nothing.
type Validation struct {
	Folds    int // 0 where there are too few requests to say anything
	Requests int // replayed

	// BudgetFalseCut is the share of requests that are within the budget and
	// would be cut if the shares were timeouts.
	BudgetFalseCut float64
	// TimeoutFalseCut is the same for the caps, with the deadline passed on.
	TimeoutFalseCut float64
	BudgetFor       []BudgetFor // one for each ratio asked for
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
func CrossValidate(p *profile.Profile, o Options, budget int64, strategy Strategy, ratios ...float64) Validation {
	v := newValidator(p, o, strategy)
	if v == nil {
		return Validation{}
	}
	result := Validation{Folds: folds, Requests: p.Rows.Len()}
	result.BudgetFalseCut = v.shareCuts(float64(budget), v.rounded)
	result.TimeoutFalseCut = v.capCuts(float64(budget))
	for _, ratio := range ratios {
		b := BudgetFor{Ratio: ratio}
		b.Budget, b.Known = v.search(ratio)
		result.BudgetFor = append(result.BudgetFor, b)
	}
	return result
}

// validator replays each fold with the numbers of the others.
type validator struct {
	rows     *profile.Rows
	strategy Strategy
	parts    partition
	planned  []bool
	problems [folds]*Problem // made without the requests of the fold
	solvers  [folds]solver
	solution [folds]Solution
	limits   [folds][]int64 // shares by hop
	total    float64        // weight of the requests that did not fail
	rounded  float64        // quantum of the plan
}

// newValidator returns nil where there are not enough rows for the folds.
func newValidator(p *profile.Profile, o Options, strategy Strategy) *validator {
	if p.Rows == nil || p.Rows.Len() < folds || len(p.Hops) == 0 {
		return nil
	}
	v := &validator{rows: p.Rows, strategy: strategy, rounded: float64(o.Quantum)}
	v.parts = divide(p.Rows, p.Clustered)
	v.problems = v.parts.train(p, o)
	v.planned = v.problems[0].planned(nil)
	for f := range v.solvers {
		v.solvers[f].reset(v.problems[f])
		v.limits[f] = make([]int64, len(p.Hops))
	}
	for class, n := range v.parts.count(func(r int) bool { return !v.rows.FailedAt(0, r) }) {
		v.total += float64(n) * v.parts.weights[class]
	}
	return v
}

// solve splits the budget for each fold.
func (v *validator) solve(budget, quantum float64) {
	for f := range v.problems {
		v.problems[f].Quantum = quantum
		v.solvers[f].solve(budget, v.strategy, &v.solution[f])
		for h, share := range v.solution[f].Share {
			v.limits[f][h] = int64(min(share, math.MaxInt64/2))
		}
	}
}

// shareCuts returns the weighted share of requests that are within the budget
// and would be cut with shares, in steps of the quantum, as timeouts.
func (v *validator) shareCuts(budget, quantum float64) float64 {
	v.solve(budget, quantum)
	whole := int64(min(budget, math.MaxInt64/2))
	return v.ratio(func(r int) bool {
		if v.rows.Duration[0][r] > whole || v.rows.FailedAt(0, r) {
			return false
		}
		fold := v.parts.fold[r]
		if !v.solution[fold].Feasible {
			return true
		}
		limits := v.limits[fold]
		for h := 1; h < len(limits); h++ {
			if v.planned[h] && v.rows.Duration[h][r] > limits[h] && !v.rows.FailedAt(h, r) {
				return true
			}
		}
		return false
	})
}

// capCuts returns the same with caps as timeouts and the deadline passed on.
func (v *validator) capCuts(budget float64) float64 {
	v.solve(budget, v.rounded)
	deadlines := make([]float64, len(v.planned))
	return v.ratio(func(r int) bool {
		if float64(v.rows.Duration[0][r]) > budget || v.rows.FailedAt(0, r) {
			return false
		}
		fold := v.parts.fold[r]
		if !v.solution[fold].Feasible {
			return true
		}
		limits := Limits{Budget: budget, Timeouts: v.solution[fold].Cap, Propagate: true}
		return !math.IsInf(v.problems[fold].cut(v.rows, r, v.planned, &limits, deadlines), 1)
	})
}

// ratio returns the weighted share of requests for which is holds.
func (v *validator) ratio(is func(r int) bool) float64 {
	sum := 0.0
	for class, n := range v.parts.count(is) {
		sum += float64(n) * v.parts.weights[class]
	}
	if v.total == 0 {
		return 0
	}
	return sum / v.total
}

// search returns the smallest budget from which on at most the given share of
// requests is cut. With more budget shares grow, but more requests are within
// it too, so the share of cuts need not fall everywhere: it is followed down
// from a budget that holds to the first that does not, in steps of a tenth and
// then of a hundredth. The result is a multiple of its quantum and holds itself.
func (v *validator) search(ratio float64) (int64, bool) {
	quantum := func(budget float64) float64 { return max(v.rounded, float64(QuantumFor(int64(budget)))) }
	holds := func(budget float64) bool { return v.shareCuts(budget, quantum(budget)) <= ratio }
	least := 0.0 // no split of every fold below
	for f := range v.solvers {
		least = max(least, v.solvers[f].minimum(minSelfLevel, v.solvers[f].median))
	}
	slowest := float64(slices.Max(v.rows.Duration[0]))
	high := max(least, slowest, 1)
	for limit := 64 * high; !holds(high); high *= 2 {
		if high >= limit {
			return 0, false
		}
	}
	for _, step := range []float64{1.1, 1.01} {
		for low := high / step; low > least && holds(low); low /= step {
			high = low
		}
	}
	low := max(high/1.01, least*(1-tolerance))
	for range 8 { // to a 25,000th
		if middle := low + (high-low)/2; holds(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	for range 100 { // rounding moves it, and a request or two with it
		high = roundUp(high, quantum(high))
		if holds(high) {
			return int64(high), true
		}
		high += quantum(high)
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
	p := partition{fold: make([]uint8, n), class: make([]uint32, n)}
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

// count returns how many rows of each class satisfy is.
func (p *partition) count(is func(r int) bool) []int {
	counts := make([]int, len(p.weights))
	for r, class := range p.class {
		if is(r) {
			counts[class]++
		}
	}
	return counts
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
