package budget

import (
	"fmt"
	"strings"
)

// Strategy says in which proportion the children of a hop share its time. At
// filling level t a child demands base + t*weight, within its floor and its
// cap; the level rises until time runs out. A strategy is one file: its type,
// and its line in Strategies.
type Strategy interface {
	// Name is the value of --strategy.
	Name() string
	// demand fills in base and weight of every hop that gets a budget, both >= 0
	// and in a unit that is the same for all of them. Floors and limits at this
	// budget of the endpoint, in ns, are known. It depends on the problem and
	// the budget alone. A strategy that lacks the data it needs lets another
	// decide: it returns the one that did, and what was lacking, a clause.
	demand(s *solver, budget float64) (used Strategy, lacking string)
}

// Strategies are all strategies, the default first.
var Strategies = []Strategy{P99Prop{}, Equal{}, P50Spread{}, EqualQuantile{}, Optimised{}, CriticalPath{}}

// StrategyNamed returns the strategy with the given name. The error names the
// valid ones.
func StrategyNamed(name string) (Strategy, error) {
	names := make([]string, len(Strategies))
	for i, s := range Strategies {
		if s.Name() == name {
			return s, nil
		}
		names[i] = s.Name()
	}
	last := len(names) - 1
	return nil, fmt.Errorf("strategy %q: want %s or %s", name, strings.Join(names[:last], ", "), names[last])
}

// Objectives are what the optimised strategy can minimise, the default first:
// cut requests, or cut requests and the work that is wasted on them.
var Objectives = []string{"cuts", "cuts+waste"}

// WithObjective returns a strategy that minimises one of Objectives; "" stands
// for the default. Only the optimised strategy has another one.
func WithObjective(s Strategy, objective string) (Strategy, error) {
	switch objective {
	case "", Objectives[0]:
		return s, nil
	case Objectives[1]:
		if s.Name() != (Optimised{}).Name() {
			return nil, fmt.Errorf("objective %q: only strategy optimised has it, not %s", objective, s.Name())
		}
		return Optimised{Waste: true}, nil
	}
	return nil, fmt.Errorf("objective %q: want %s", objective, strings.Join(Objectives, " or "))
}

// orDefault lets the default decide where a strategy lacks data.
func orDefault(s *solver, budget float64, lacking string) (Strategy, string) {
	used, _ := Strategies[0].demand(s, budget)
	return used, lacking + ": split by " + used.Name()
}

// each sets the demand of every hop that gets a budget to what of returns.
func (s *solver) each(of func(h *Hop) (base, weight float64)) {
	for _, i := range s.kids {
		s.base[i], s.weight[i] = of(&s.p.Hops[i])
	}
}
