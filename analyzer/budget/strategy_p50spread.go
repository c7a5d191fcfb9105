package budget

// P50Spread gives every child its median and shares what is left in proportion
// to the distance from there to the P99 (or the chosen percentile), both
// unconditional: who varies most gets the slack.
type P50Spread struct{}

var _ Strategy = P50Spread{}

// Name returns "p50spread".
func (P50Spread) Name() string { return "p50spread" }

func (p P50Spread) demand(s *solver, _ float64) (Strategy, string) {
	s.each(func(h *Hop) (base, weight float64) { return h.Median, h.Weight - h.Median })
	return p, ""
}
