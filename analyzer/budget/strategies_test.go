package budget

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	var b strings.Builder
	for _, w := range workloads() {
		train, held := w.run(20000, 1), w.run(100_000, 2)
		p := w.profileOf(train)
		problem := NewProblem(p, Options{})
		for i := range w.budgets {
			budget := float64(w.budget(i, held))
			fmt.Fprintf(&b, "%-16s %7.1f", w.name, budget/1e6)
			for _, s := range Strategies {
				at := time.Now()
				sol := Solve(problem, budget, s)
				took := time.Since(at)
				e := problem.Replay(held, Limits{Budget: budget, Timeouts: sol.RawShare})
				tr := problem.Replay(train, Limits{Budget: budget, Timeouts: sol.RawShare})
				if s.Name() == "p99prop" {
					fmt.Fprintf(&b, "  miss %.2f", 100*e.Miss)
				}
				fmt.Fprintf(&b, "  %s %.2f (%.2f)", s.Name(), 100*e.Violated, 100*tr.Violated)
				if s.Name() == "p99prop" || s.Name() == "optimised" {
					c := problem.Replay(held, Limits{Budget: budget, Timeouts: sol.Cap, Propagate: true})
					fmt.Fprintf(&b, "[%.2f]", 100*(c.Violated-e.Miss))
				}
				if s.Name() == "optimised" {
					fmt.Fprintf(&b, " in %v", took)
				}
			}
			fmt.Fprintln(&b)
		}
	}
	t.Log("\n" + b.String())
	_ = math.Pi
}
