package report_test

import (
	"fmt"
	"os"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/report"
)

func ExampleRender() {
	r := &analyzer.Report{
		Version: 1,
		Input: analyzer.Input{
			Traces: 500, Spans: 1500, Analysed: 1500,
			Sampling: analyzer.Sampling{Note: "Every request was recorded."},
		},
		Endpoints: []analyzer.Endpoint{{
			Service: "shop", Operation: "POST /orders", Traces: 500,
			Budget: 300_000_000, BudgetSource: "flag", Quantum: 1_000_000, Feasible: true,
			Hops: []analyzer.Hop{{
				ID: "0", Label: "shop POST /orders", Kind: analyzer.HopRoot, Calls: 500, Presence: 1, Confidence: "fair",
				P50: analyzer.Some[int64](80_400_000), P99: analyzer.Some[int64](151_000_000),
				P99Lo: analyzer.Some[int64](140_000_000), P99Hi: analyzer.Some[int64](170_000_000),
				Share: analyzer.Some[int64](300_000_000), Cap: analyzer.Some[int64](300_000_000),
				CriticalPath: analyzer.Some(0.2), Verdict: analyzer.VerdictFits,
			}, {
				ID: "0.0", Parent: "0", Depth: 1, Label: "risk Score", Kind: analyzer.HopCall, Calls: 500, Presence: 1,
				Confidence: "fair",
				P50:        analyzer.Some[int64](61_000_000), P99: analyzer.Some[int64](120_000_000),
				P99Lo: analyzer.Some[int64](111_000_000), P99Hi: analyzer.Some[int64](133_000_000),
				Share: analyzer.Some[int64](270_000_000), Cap: analyzer.Some[int64](290_000_000),
				CriticalPath: analyzer.Some(0.8), Verdict: analyzer.VerdictOK,
			}},
			Replay: &analyzer.Replay{Folds: 5, Traces: 500, BudgetFalseCut: analyzer.Some(0.002), TimeoutFalseCut: analyzer.Some(0.0)},
		}},
	}
	if err := report.Render(os.Stdout, r, "table", report.Options{Width: 80, ASCII: true}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop POST /orders - budget 300 ms - 500 requests, 0.0 % miss it today
	//
	// HOP (ms)            P50  P99 (<= 95%) BUDGET  % TIMEOUT  PATH  VERDICT
	// shop POST /orders  80.4  151  (<=170)    300  -     300  20 %  fits
	// `- risk Score      61.0  120  (<=133)    270  -     290  80 %  ok
	//
	// BUDGET   As hard timeouts they would cut 0.2 % of good requests.
	// TIMEOUT  For clients that pass the remaining deadline on: would cut 0.0 %.
	// DATA     500 calls per hop: P99 fair (good from 3000) - no skew, no drops, no
	//          async
	//
	// INPUT    500 traces, 1500 spans read; nothing left out.
	// SAMPLING The numbers stand for all requests only as far as these traces do.
	//          Every request was recorded.
	// SUMS     P99s do not add up: a chain's is not the sum of those of its hops.
}
