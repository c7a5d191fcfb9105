package budget

// P99Prop shares time in proportion to the unconditional P99 (or the chosen
// percentile): a hop that is slow today gets more, one that is rarely called
// gets less.
type P99Prop struct{}

var _ Strategy = P99Prop{}

// Name returns "p99prop".
func (P99Prop) Name() string { return "p99prop" }

func (p P99Prop) demand(s *solver, _ float64) (Strategy, string) {
	s.each(func(h *Hop) (base, weight float64) { return 0, h.Weight })
	return p, ""
}
