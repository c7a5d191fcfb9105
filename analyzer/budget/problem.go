// Package budget splits the budget of an endpoint over its hops and predicts
// what the split would have done to the requests that were seen.
//
// Every hop gets two numbers. The share is its part of a strict partition: the
// shares of calls in sequence and the parent's reserve never exceed the share
// of the parent, so shares add up and can serve as objectives. The cap is the
// timeout to configure where callers pass the remaining deadline on: it lets a
// hop use what the others do not need in that request. Time is float64 ns
// inside the package, so that the solver has no rounding of its own; the values
// of a [Solution] are multiples of the quantum.
package budget

import (
	"math"
	"slices"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

const (
	// DefaultKappa is how many times its P99 a hop's cap may be. Three times
	// costs under half a point of false cuts and keeps nearly all of the work
	// that a strict share would save in an incident.
	DefaultKappa = 3

	// Quantiles of own time are kept for every whole percent between these.
	minSelfLevel = 50
	maxSelfLevel = 90
	selfLevels   = maxSelfLevel - minSelfLevel + 1

	// enoughSelf is the least number of observations with a one-sided 95 %
	// upper bound of the P95; below it a fraction of the budget is reserved too.
	enoughSelf  = 59
	fewFraction = 0.05

	// leastWeight, in ns, keeps a hop in the split that is called in under 1 %
	// of the requests and so has an unconditional P99 of 0.
	leastWeight = 1000
)

// Hop is what the solver knows of one hop. Times are in ns.
type Hop struct {
	// Parent is the index of the calling hop, -1 for the endpoint. Parents
	// stand before their children; a hop that breaks this gets no budget.
	Parent int
	// After are the siblings that end before this hop starts. Only those with
	// a smaller index count, so that no order is circular.
	After []int
	// Slot is the same non-zero number for siblings that exclude each other.
	// They share one place in every chain: After does not count between them.
	Slot int
	// Excluded hops and all below them get no budget: nobody waits for them.
	Excluded bool

	// Weight is what a proportional strategy goes by: the unconditional P99 (or
	// another quantile), where a request without the call counts as 0.
	Weight float64
	Median float64 // unconditional: 0 where under half of the requests make the call
	P50    float64 // of the calls that were made
	P99    float64 // of the calls that were made

	Floor    float64 // least useful budget; by default the P50, in whole µs from 100 µs on
	Cap      float64 // the user's limit for share and cap; 0 or +Inf for none
	CapRatio float64 // the same as a share of the endpoint's budget; 0 for none

	// The reserve is what a parent keeps for its own work, at least
	// max(Reserve, own time) and Fraction of its budget.
	Reserve  float64
	Fraction float64
	// Self are the quantiles of own time from P50 to P90, one each percent, and
	// SelfCount the observations behind them: under 59 of these, a Fraction of
	// 0 counts as 5 % at the endpoint. At every level it would grow with the
	// depth of the tree: 60 levels would take 20 times what requests take.
	Self      [selfLevels]float64
	SelfCount int
	Tail      float64 // median own time after the last blocking child: the reserve at run time
}

// fraction returns the part of its budget that the hop reserves in any case.
func (h *Hop) fraction() float64 {
	if h.Fraction == 0 && h.SelfCount < enoughSelf && h.Parent < 0 {
		return fewFraction
	}
	return h.Fraction
}

// reserve returns what a hop with the given budget keeps from its children,
// with own time reserved at the given percentile (50 to 90).
func (h *Hop) reserve(budget float64, level int) float64 {
	return max(h.Reserve, h.Self[level-minSelfLevel], h.fraction()*budget)
}

// need returns the least budget whose reserve leaves x for the children.
func (h *Hop) need(x float64, level int) float64 {
	f := h.fraction()
	if f >= 1 {
		return math.Inf(1)
	}
	return max(x+max(h.Reserve, h.Self[level-minSelfLevel]), x/(1-f))
}

// tail returns the reserve at run time. What came before the last child has
// passed when a child starts, so it must not be subtracted from its deadline.
func (h *Hop) tail() float64 { return max(h.Reserve, h.Tail) }

// limit returns the user's limit of the hop under an endpoint budget.
func (h *Hop) limit(budget float64) float64 {
	limit := math.Inf(1)
	if h.Cap > 0 {
		limit = h.Cap
	}
	if h.CapRatio > 0 {
		limit = min(limit, h.CapRatio*budget)
	}
	return limit
}

// Problem is an endpoint whose budget is to be split. Hops[0] is the endpoint.
type Problem struct {
	Hops []Hop
	// Quantum is the step in ns of the solution's values; 0 for none.
	Quantum float64
	// Kappa limits a cap to Kappa times the hop's P99; 0 for no such limit.
	Kappa float64
	// Training are the requests behind the quantiles, for the strategies that
	// learn from whole requests; nil where there are none.
	Training *Training
}

// planned returns which hops get a budget, in the memory of buffer.
func (p *Problem) planned(buffer []bool) []bool {
	planned := slices.Grow(buffer[:0], len(p.Hops))[:len(p.Hops)]
	for i := range p.Hops {
		h := &p.Hops[i]
		planned[i] = i == 0 || !h.Excluded && 0 <= h.Parent && h.Parent < i && planned[h.Parent]
	}
	return planned
}

// Options are the user's wishes for the split. Maps are keyed by hop index.
type Options struct {
	// Percentile is that of the weights; the zero value stands for P99.
	Percentile quantile.Level
	Reserve    int64   // ns, kept by the endpoint for its own work
	Fraction   float64 // of its budget, kept by every hop that calls others; 0 <= Fraction < 1
	Floors     map[int]int64
	Reserves   map[int]int64   // ns, least that a hop keeps for its own work
	Caps       map[int]int64   // ns
	CapRatios  map[int]float64 // of the endpoint's budget
	Quantum    int64           // ns; 0 for no rounding
}

// NewProblem states the split of an endpoint's budget from all its calls. The
// indices of the problem are those of p.Hops. Steps and hops that nobody waits
// for are excluded, with everything below them.
func NewProblem(p *profile.Profile, o Options) *Problem {
	problem := structure(p, o)
	problem.Training = newTraining(p)
	level := o.percentile()
	for i := range problem.Hops {
		from := &p.Hops[i]
		q := quantiles{
			p50:       value(from.Duration, quantile.P50),
			p99:       value(from.Duration, quantile.P99),
			weight:    value(from.Unconditional, level),
			median:    value(from.Unconditional, quantile.P50),
			tail:      value(from.Tail, quantile.P50),
			selfCount: int(from.Self.EffN()),
		}
		if from.Unconditional.N() == 0 {
			q.weight, q.median = value(from.Duration, level), q.p50
		}
		for k := range q.self {
			q.self[k] = value(from.Self, selfLevel(k))
		}
		problem.set(i, p, o, &q)
	}
	return problem
}

func (o *Options) percentile() quantile.Level {
	if o.Percentile == (quantile.Level{}) {
		return quantile.P99
	}
	return o.Percentile
}

// selfLevel returns the level of the quantile at index k of Hop.Self.
func selfLevel(k int) quantile.Level { return quantile.Level{Num: int64(minSelfLevel + k), Den: 100} }

// value returns the quantile, 0 where there is none.
func value(d *quantile.Dist, l quantile.Level) int64 {
	v, _ := d.At(l)
	return v
}

// structure returns the problem without its quantiles.
func structure(p *profile.Profile, o Options) *Problem {
	problem := &Problem{Hops: make([]Hop, len(p.Hops)), Quantum: float64(o.Quantum), Kappa: DefaultKappa}
	for i := range p.Hops {
		from := &p.Hops[i]
		problem.Hops[i] = Hop{
			Parent: from.Parent,
			After:  from.After,
			Slot:   from.Slot,
			// Without a good call nothing is known of the time it takes.
			Excluded: !from.Kind.Waited() || i > 0 && from.Duration.N() == 0 ||
				from.Parent >= 0 && problem.Hops[from.Parent].Excluded,
			Cap:      float64(o.Caps[i]),
			CapRatio: o.CapRatios[i],
			Reserve:  float64(o.Reserves[i]),
			Fraction: o.Fraction,
		}
	}
	if len(problem.Hops) > 0 {
		problem.Hops[0].Reserve = max(problem.Hops[0].Reserve, float64(o.Reserve))
	}
	return problem
}

// quantiles are what a set of requests says about a hop, in ns.
type quantiles struct {
	p50, p99  int64
	weight    int64 // unconditional, like the median
	median    int64
	self      [selfLevels]int64
	selfCount int
	tail      int64
}

// set fills in the quantiles of a hop. A clock cannot tell durations below its
// resolution apart, so none of the inputs of a budget may be shorter.
func (p *Problem) set(i int, from *profile.Profile, o Options, q *quantiles) {
	h := &p.Hops[i]
	h.P50 = float64(max(q.p50, from.Resolution))
	h.P99 = float64(max(q.p99, from.Resolution))
	h.Weight = float64(max(q.weight, from.Resolution, leastWeight))
	h.Median = min(float64(q.median), h.Weight)
	if i > 0 { // the endpoint's budget is a promise: what it takes today is no bound for it
		h.Floor = h.P50
		if us := float64(time.Microsecond); h.Floor >= 100*us { // a share held at its floor is a number to configure
			h.Floor -= math.Mod(h.Floor, us)
		}
	}
	if floor, ok := o.Floors[i]; ok {
		h.Floor = float64(floor)
	}
	h.Floor = max(h.Floor, 1) // so that no share is 0
	for k, v := range q.self {
		h.Self[k] = float64(v)
	}
	h.SelfCount = q.selfCount
	h.Tail = float64(q.tail)
}
