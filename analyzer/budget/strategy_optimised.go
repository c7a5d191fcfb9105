package budget

import "fmt"

// Optimised cuts the fewest of the requests that were seen: shares are chosen
// so that the weighted share of requests over the budget, or over a share, is
// as small as it finds. It is a search that ends near the optimum, without proof.
type Optimised struct {
	// Waste adds to that share the part of today's work that would be done for
	// requests that are over the budget or cut.
	Waste bool

	ofAny bool // number of requests
}

var _ Strategy = Optimised{}

// OptimisedFrom is the number of independent requests below which the search
// follows noise: it promises less than it holds on other requests.
const OptimisedFrom = 1000

// Name returns "optimised".
func (Optimised) Name() string { return "optimised" }

func (o Optimised) demand(s *solver, budget float64) (Strategy, string) {
	switch t := s.p.Training; {
	case t == nil:
		return orDefault(s, budget, "optimised needs whole requests, and there are none")
	case t.effective < OptimisedFrom && !o.ofAny:
		return orDefault(s, budget,
			fmt.Sprintf("optimised needs %d independent requests, and these tell as much as %.0f", OptimisedFrom, t.effective))
	}
	if s.optimiser == nil {
		s.optimiser = new(optimiser)
	}
	f := s.optimiser
	f.begin(s, budget, o.Waste)
	f.find()
	f.retreat()
	for _, h := range s.kids {
		s.base[h], s.weight[h] = f.best[h], f.weigh(h, f.best[h])
	}
	return o, ""
}
