package budget

// Equal gives every child the same time, whatever it takes today.
type Equal struct{}

var _ Strategy = Equal{}

// Name returns "equal".
func (Equal) Name() string { return "equal" }

func (e Equal) demand(s *solver, _ float64) (Strategy, string) {
	s.each(func(*Hop) (base, weight float64) { return 0, 1 })
	return e, ""
}
