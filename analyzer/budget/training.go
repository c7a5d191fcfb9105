package budget

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// Training are the whole requests that a problem was made from. A problem that
// is made to be judged by a fold of the requests leaves that fold out.
type Training struct {
	*requestTable
	fold []uint8 // by row; nil where no fold is left out
	out  uint8
}

// requestTable are the rows with what is derived from them once for all folds.
type requestTable struct {
	rows *profile.Rows
	// effective is the number of independent requests of the same weight that
	// tell as much as the rows that did not fail.
	effective float64
	weight    []int64 // by row, in units that make every sum of them exact
	ascending []column
}

// column is one hop of the table.
type column struct {
	once sync.Once
	rows []int32 // with a call that did not fail, ascending by duration, ties by row
}

// weightUnits is the integer weight of the rows with the largest one. A hundred
// thousand such rows add up to under 2^57.
const weightUnits = 1 << 40

// newTraining returns the rows of a profile, nil if it has none of all its hops.
func newTraining(p *profile.Profile) *Training {
	if p.Rows == nil || p.Rows.Len() == 0 || len(p.Rows.Duration) < max(len(p.Hops), 1) {
		return nil
	}
	t := &requestTable{
		rows: p.Rows, weight: make([]int64, p.Rows.Len()), ascending: make([]column, len(p.Rows.Duration)),
	}
	heaviest := quantile.Weight(slices.Max(p.Rows.Threshold))
	counts := make(map[uint64]int)
	for r, threshold := range p.Rows.Threshold {
		t.weight[r] = int64(max(1, math.Round(quantile.Weight(threshold)/heaviest*weightUnits)))
		if !p.Rows.FailedAt(0, r) {
			counts[threshold]++
		}
	}
	thresholds := make([]uint64, 0, len(counts))
	for threshold := range counts {
		thresholds = append(thresholds, threshold)
	}
	slices.Sort(thresholds)
	var sum, squares float64
	for _, threshold := range thresholds {
		w, n := quantile.Weight(threshold), float64(counts[threshold])
		sum, squares = sum+n*w, squares+n*w*w
	}
	if squares > 0 {
		t.effective = sum * sum / squares * p.Shrink
	}
	return &Training{requestTable: t}
}

// without returns the requests outside a fold.
func (t *Training) without(fold []uint8, out uint8) *Training {
	if t == nil {
		return nil
	}
	return &Training{requestTable: t.requestTable, fold: fold, out: out}
}

// has tells whether row r is one of the training: in no fold that is left out,
// and a request that did not fail.
func (t *Training) has(r int32) bool {
	return (t.fold == nil || t.fold[r] != t.out) && !t.rows.FailedAt(0, int(r))
}

// order returns the rows in which hop h was called and did not fail, ascending
// by duration, those of all folds. It is safe for concurrent use.
func (t *requestTable) order(h int) []int32 {
	c := &t.ascending[h]
	c.once.Do(func() {
		durations := t.rows.Duration[h]
		c.rows = make([]int32, 0, len(durations))
		for r, d := range durations {
			if d >= 0 && !t.rows.FailedAt(h, r) {
				c.rows = append(c.rows, int32(r))
			}
		}
		slices.SortFunc(c.rows, func(a, b int32) int {
			return cmp.Or(cmp.Compare(durations[a], durations[b]), cmp.Compare(a, b))
		})
	})
	return c.rows
}
