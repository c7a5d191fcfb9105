package budget

// Equal gives every child the same time, whatever it takes today.
type Equal struct{}

var _ Strategy = Equal{}

// Name returns "equal".
func (Equal) Name() string { return "equal" }

// Demand returns 0 and 1.
func (Equal) Demand(*Hop) (base, weight float64) { return 0, 1 }
