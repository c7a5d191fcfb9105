package budget

import (
	"math"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/profile"
)

const (
	// stepwiseBy is the step between the budgets that a costly strategy is fitted
	// at while the smallest budget for a rate of false cuts is looked for.
	stepwiseBy = 1.1
	// stepwiseRows is the number of requests that it is then fitted to: with more
	// its rate on other requests falls by under a tenth.
	stepwiseRows = 20_000
)

// stepwise is a strategy whose demands between two steps are those of the step
// above: they grow and shrink in proportion there. It is for one goroutine.
type stepwise struct {
	of   Strategy
	fits map[stepOf]*fit
}

type stepOf struct {
	solver *solver
	step   float64
}

type fit struct {
	base, weight []float64
	used         Strategy
	lacking      string
}

func (w *stepwise) Name() string { return w.of.Name() }

func (w *stepwise) demand(s *solver, budget float64) (Strategy, string) {
	step := math.Ceil(math.Log(budget) / math.Log(stepwiseBy))
	key := stepOf{s, step}
	f := w.fits[key]
	if f == nil {
		f = new(fit)
		f.used, f.lacking = w.of.demand(s, math.Pow(stepwiseBy, step))
		f.base, f.weight = slices.Clone(s.base), slices.Clone(s.weight)
		w.fits[key] = f
	}
	copy(s.base, f.base)
	copy(s.weight, f.weight)
	return f.used, f.lacking
}

// cheaply returns the strategy as it can be asked for many budgets. One that
// searches is fitted at steps, to a sample; the problems are then for nothing else.
func (v *validator) cheaply(s Strategy) Strategy {
	if _, searches := s.(Optimised); !searches {
		return s
	}
	if every := (v.rows.Len() + stepwiseRows - 1) / stepwiseRows; every > 1 {
		var fold []uint8
		for r := 0; r < v.rows.Len(); r += every {
			fold = append(fold, v.parts.fold[r])
		}
		sample := newTraining(&profile.Profile{Rows: everyNth(v.rows, every), Shrink: 1})
		// It stands for all of them: what may be fitted to all may be to it.
		sample.effective = v.problems[0].Training.effective
		for f := range v.problems {
			v.problems[f].Training = sample.without(fold, uint8(f))
			v.solvers[f].reset(v.problems[f])
		}
	}
	return &stepwise{of: s, fits: make(map[stepOf]*fit)}
}

// everyNth returns what strategies need of every n-th row. Rows stand in order of
// a hash, so these are a random sample.
func everyNth(rows *profile.Rows, n int) *profile.Rows {
	out := &profile.Rows{Hash: nth(rows.Hash, n), Threshold: nth(rows.Threshold, n)}
	for h := range rows.Duration {
		out.Duration = append(out.Duration, nth(rows.Duration[h], n))
		out.Start = append(out.Start, nth(rows.Start[h], n))
	}
	for _, failed := range rows.Failed {
		out.Failed = append(out.Failed, nth(failed, n))
	}
	return out
}

// nth returns every n-th value; nil of nil.
func nth[T any](values []T, n int) (out []T) {
	for i := 0; i < len(values); i += n {
		out = append(out, values[i])
	}
	return out
}
