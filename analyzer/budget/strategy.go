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
	// Demand returns base and weight of a hop, both >= 0 and in any unit that
	// is the same for all hops of a problem. It is a pure function of the hop.
	Demand(h *Hop) (base, weight float64)
}

// Strategies are all strategies, the default first.
var Strategies = []Strategy{P99Prop{}, Equal{}}

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
	return nil, fmt.Errorf("strategy %q: want %s", name, strings.Join(names, " or "))
}
