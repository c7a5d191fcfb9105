package budget

import "math"

// EqualQuantile gives every child the same quantile of its durations, absent
// calls counting as 0: the largest one that the budget holds everywhere. What
// is left beside the longest chain is shared in proportion to the P99 (or the
// chosen percentile).
type EqualQuantile struct{}

var _ Strategy = EqualQuantile{}

// Name returns "eqq".
func (EqualQuantile) Name() string { return "eqq" }

func (e EqualQuantile) demand(s *solver, budget float64) (Strategy, string) {
	if s.p.Training == nil {
		return orDefault(s, budget, "eqq needs whole requests, and there are none")
	}
	if len(s.quantiles) == 0 {
		s.tabulate()
	}
	// The level of the median fits wherever floors do, by and large; the lowest
	// one, where nobody asks for more than the floor, always does.
	low, high := 0, quantileSteps
	for high-low > 1 {
		if middle := (low + high) / 2; fits(s.boxes(middle), budget) {
			low = middle
		} else {
			high = middle
		}
	}
	s.boxes(low)
	for _, i := range s.kids {
		s.base[i], s.weight[i] = s.box[i], s.p.Hops[i].Weight
	}
	return e, ""
}

// The levels that hops are compared at: above level k are 2^(-k/32) of the
// requests, so that each next one is passed by 2 % fewer, down to one of a
// million.
const (
	stepsPerHalving = 32
	quantileSteps   = 20*stepsPerHalving + 1
)

// quantileLevels are the levels, ascending.
var quantileLevels = func() (levels [quantileSteps]float64) {
	for k := range levels {
		levels[k] = 1 - math.Exp2(-float64(k)/stepsPerHalving)
	}
	return levels
}()

// tabulate fills quantiles with those of every hop, one after the other.
func (s *solver) tabulate() {
	s.quantiles = append(s.quantiles[:0], make([]float64, len(s.p.Hops)*quantileSteps)...)
	t := s.p.Training
	for _, h := range s.kids {
		var absent, total int64
		caller, own := t.rows.Duration[s.p.Hops[h].Parent], t.rows.Duration[h]
		for r, d := range own {
			if d < 0 && caller[r] >= 0 && t.has(int32(r)) {
				absent += t.weight[r]
			}
		}
		order := t.order(int(h))
		for _, r := range order {
			if t.has(r) {
				total += t.weight[r]
			}
		}
		total += absent
		// Absent calls come first and take no time.
		reached, at, value := absent, -1, 0.0
		row := s.quantiles[int(h)*quantileSteps:][:quantileSteps]
		for k := range row {
			need := int64(float64(total) * quantileLevels[k])
			for reached < need && at+1 < len(order) {
				at++
				if t.has(order[at]) {
					reached += t.weight[order[at]]
					value = float64(own[order[at]])
				}
			}
			row[k] = value
		}
	}
}

// boxes fills box with what each hop needs where no hop has less than its
// quantile at level k, and returns the endpoint's.
func (s *solver) boxes(k int) float64 {
	for i := len(s.p.Hops) - 1; i >= 0; i-- {
		s.box[i] = s.least[i]
		if !s.planned[i] {
			continue
		}
		if c := s.children(i); len(c.hops) > 0 {
			v := gather(s.filling.v, &c, s.box)
			s.box[i] = max(s.box[i], s.p.Hops[i].need(c.ending(v, s.filling.head), s.level))
		}
		if i > 0 {
			s.box[i] = min(max(s.box[i], s.quantiles[i*quantileSteps+k]), s.most[i])
		}
	}
	return s.box[0]
}
