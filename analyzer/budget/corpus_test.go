package budget

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// realProfile reads a set of real traces and returns the profile of its busiest
// endpoint.
func realProfile(t *testing.T, name string) *profile.Profile {
	t.Helper()
	dir := os.Getenv("LATENCYBUDGET_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); err != nil {
		t.Skipf("no real traces: set LATENCYBUDGET_CORPUS to their folder (%v)", err)
	}
	src, err := source.Open([]string{file}, nil, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	builder := trace.NewBuilder()
	for batch, err := range src.Batches(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		builder.Add(batch.Spans)
	}
	builder.Seal()
	traces := make([]*trace.Trace, builder.Len())
	for i := range traces {
		traces[i] = new(trace.Trace)
		if err := builder.Assemble(i, trace.DefaultMaxTraceSpans, traces[i]); err != nil {
			t.Fatal(err)
		}
	}
	return build(traces)
}

// pick returns the rows of a fold.
func pick(rows *profile.Rows, fold []uint8, which uint8) *profile.Rows {
	out := &profile.Rows{}
	for r, f := range fold {
		if f == which {
			out.Hash = append(out.Hash, rows.Hash[r])
			out.Threshold = append(out.Threshold, rows.Threshold[r])
			out.Started = append(out.Started, rows.Started[r])
		}
	}
	column := func(all []int64) (part []int64) {
		for r, f := range fold {
			if f == which {
				part = append(part, all[r])
			}
		}
		return part
	}
	for h := range rows.Duration {
		out.Duration = append(out.Duration, column(rows.Duration[h]))
		out.Start = append(out.Start, column(rows.Start[h]))
		out.Self = append(out.Self, column(rows.Self[h]))
		out.Tail = append(out.Tail, column(rows.Tail[h]))
	}
	return out
}

// TestTimeoutsCutFewGoodRequestsOfRealTraces: made from a random half of real
// requests and tried on the other, over ten such halves TIMEOUT cuts at most
// 0.3 % of the requests that are within the budget.
func TestTimeoutsCutFewGoodRequestsOfRealTraces(t *testing.T) {
	for _, name := range []string{"tw-hotel-load150.jaeger.json", "tw-node-load100.jaeger.json"} {
		t.Run(name, func(t *testing.T) {
			p := realProfile(t, name)
			p99, _ := p.Hops[0].Duration.At(quantile.P99)
			for _, times := range []float64{1, 1.25, 1.5, 2} {
				budget := times * float64(p99)
				var timeouts, shares float64
				const halves = 10
				for seed := range uint64(halves) {
					rng := rand.New(rand.NewPCG(seed, 77))
					parts := divide(p.Rows, false)
					for r := range parts.fold {
						parts.fold[r] = uint8(rng.IntN(2))
					}
					problem := parts.train(p, Options{Quantum: QuantumFor(int64(budget))})[0]
					split := Solve(problem, budget, P99Prop{})
					if !split.Feasible {
						t.Fatalf("no split of %v ns", budget)
					}
					others := pick(p.Rows, parts.fold, 0)
					caps := problem.replay(others, budget, limitSet{Timeouts: split.Cap, Propagate: true})
					timeouts += caps.FalseCut / halves
					shares += problem.replay(others, budget, limitSet{Timeouts: split.Share}).FalseCut / halves
				}
				t.Logf("%d requests at %.2f x P99: TIMEOUT cuts %.2f %%, BUDGET %.2f %%", p.Requests, times, 100*timeouts, 100*shares)
				if timeouts > 0.003 {
					t.Errorf("at %.2f x P99 TIMEOUT cuts %.2f %% of good requests", times, 100*timeouts)
				}
			}
		})
	}
}
