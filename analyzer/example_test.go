package analyzer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/source"
)

// A trace export goes in, a budget for every hop comes out.
func ExampleAnalyze() {
	traces, err := source.Open([]string{"../testdata/orders"}, strings.NewReader(""), source.Options{})
	if err != nil {
		log.Fatal(err)
	}
	report, err := analyzer.Analyze(context.Background(), analyzer.Config{
		Budgets: []analyzer.EndpointBudget{{Budget: 800 * time.Millisecond}},
	}, traces)
	if err != nil {
		log.Fatal(err)
	}
	for _, h := range report.Endpoints[0].Hops {
		fmt.Printf("%-20s P99 %v, budget %v, timeout %v: %s\n", h.Label,
			time.Duration(h.P99.V).Round(time.Millisecond), time.Duration(h.Share.V), time.Duration(h.Cap.V), h.Verdict)
	}
	// Output:
	// gateway POST /orders P99 201ms, budget 800ms, timeout 800ms: misses
	// validate             P99 25ms, budget 69ms, timeout 76ms: ok
	// auth Check           P99 25ms, budget 68ms, timeout 75ms: ok
	// inventory Reserve    P99 30ms, budget 82ms, timeout 90ms: ok
	// coupon Apply         P99 45ms, budget 123ms, timeout 135ms: ok
	// risk Score           P99 120ms, budget 329ms, timeout 360ms: tight
	// orders persist       P99 70ms, budget 192ms, timeout 210ms: ok
}

// A plan file and new traces go in, what does not hold comes out.
func ExampleCheck() {
	text, err := os.Open("../cmd/budgetctl/testdata/plans/orders-tight.yaml")
	if err != nil {
		log.Fatal(err)
	}
	p, err := plan.Read("budgets.yaml", text)
	if err != nil {
		log.Fatal(err)
	}
	traces, err := source.Open([]string{"../testdata/orders"}, strings.NewReader(""), source.Options{})
	if err != nil {
		log.Fatal(err)
	}
	report, err := analyzer.Check(context.Background(), analyzer.Config{}, p, traces)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range report.Failures {
		fmt.Printf("%s: %s\n", f.Name, f.Text)
	}
	// Output:
	// auth Check: P99 25.0 ms (95 %: 22.6 to 30.7) is over its BUDGET of 10 ms; callers over by such calls alone: validate
	// risk Score: P99 120 ms (95 %: 105 to 365) of its calls is over its TIMEOUT of 80 ms
}
