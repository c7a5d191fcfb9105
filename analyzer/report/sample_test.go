package report_test

import (
	"math"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/finding"
)

const (
	us = int64(1_000)
	ms = int64(1_000_000)
)

// at turns ms into ns.
func at(v float64) analyzer.Opt[int64] { return analyzer.Some(int64(math.Round(v * 1e6))) }

func ratio(v float64) analyzer.Opt[float64] { return analyzer.Some(v) }

// hop is a call with the values that most samples need. times are P50, P99 and
// the two ends of its interval in ms, plan is BUDGET and TIMEOUT in ms.
func hop(id, parent, label string, calls int, times [4]float64, net float64, plan [2]float64,
	share, cut, path, slow float64, verdict string,
) analyzer.Hop {
	callee, operation, _ := strings.Cut(label, " ")
	h := analyzer.Hop{
		ID: id, Parent: parent, Depth: strings.Count(id, "."), Callee: callee, Operation: operation, Label: label,
		Kind: analyzer.HopCall, Calls: calls, Presence: 1, CallsPerTraceP99: 1, MaxAttempts: 1,
		P50: at(times[0]), P90: at(times[0] * 1.5), P95: at(times[0] * 1.7), P99: at(times[1]),
		P99Lo: at(times[2]), P99Hi: at(times[3]), Max: at(times[3] * 1.1),
		Confidence: "fair", NetP50: at(net), Floor: at(times[0]), Order: "sure",
		Share: at(plan[0]), Cap: at(plan[1]), ShareRatio: ratio(share), Slack: ratio(plan[0] / times[1]),
		CutRatio: ratio(cut), CriticalPath: ratio(path), SlowPath: ratio(slow), Verdict: verdict,
	}
	if parent == "" {
		h.Kind, h.NetP50, h.Order = analyzer.HopRoot, analyzer.Opt[int64]{}, ""
	}
	return h
}

// unplan takes a hop's budget away.
func unplan(h *analyzer.Hop) {
	h.Share, h.Cap = analyzer.Opt[int64]{}, analyzer.Opt[int64]{}
	h.ShareRatio, h.Slack, h.CutRatio = analyzer.Opt[float64]{}, analyzer.Opt[float64]{}, analyzer.Opt[float64]{}
}

func input(traces, spans int) analyzer.Input {
	return analyzer.Input{
		Files:    []analyzer.InputFile{{Name: "traces.json", Format: "otlp-json", Bytes: 4096, Spans: spans}},
		Traces:   traces,
		Spans:    spans,
		Analysed: spans,
		Sampling: analyzer.Sampling{Note: "No sampling threshold is recorded, so every trace counts once."},
	}
}

// policies are replay tables: all requests of one miss, more of each that
// follows are violated.
func policies(strategy string, miss float64, cuts []analyzer.HopCut) []analyzer.PolicyEffect {
	out := []analyzer.PolicyEffect{{Policy: "today", Miss: miss, Violated: miss, Executed: 98 * ms, Wasted: int64(miss * 5e9)}}
	for i, name := range []string{"deadline", "same", "half", "budget equal", "timeout equal", "budget", "timeout", "timeout_only"} {
		policy, by, _ := strings.Cut(name, " ")
		if by == "" && i > 2 {
			by = strategy
		}
		p := analyzer.PolicyEffect{
			Policy: policy, Strategy: by, Miss: miss, FalseCut: float64(i) * 0.004, Violated: miss + float64(i)*0.004,
			Executed: 90*ms - int64(i)*ms, Saved: 8*ms + int64(i)*ms, Wasted: int64(i)*ms + int64(miss*float64(9-i)*1e8),
		}
		if miss > 0 {
			p.Early = analyzer.Some(int64(i) * 20 * ms)
		}
		if i > 2 {
			p.Cuts = cuts
		}
		out = append(out, p)
	}
	return out
}

// hotel is a serial endpoint with one nested level and slow clients.
func hotel() *analyzer.Report {
	e := analyzer.Endpoint{
		Service: "frontend", Operation: "HTTP GET /hotels", Traces: 1000,
		Duration: analyzer.Quantiles{P50: at(34.676), P99: at(139.115), P99Lo: at(129.6), P99Hi: at(157.0), Max: at(199)},
		Budget:   200 * ms, BudgetSource: "flag", Reserve: 10 * ms, Quantum: ms, Strategy: "p99prop", Feasible: true,
		MinBudget: 31 * ms, WorstCase: at(343), Hot: "0.1", OrderPairs: 4, OrderSure: 4,
		Hops: []analyzer.Hop{
			hop("0", "", "frontend HTTP GET /hotels", 1000, [4]float64{34.676, 139.115, 129.6, 157}, 0, [2]float64{200, 200},
				1, 0, 0.03, 0.01, "fits"),
			hop("0.0", "0", "search Nearby", 1000, [4]float64{16.8, 40.4, 34.3, 76.2}, 3.1, [2]float64{49, 121},
				0.246, 0.008, 0.11, 0.04, "tight"),
			hop("0.0.0", "0.0", "geo Nearby", 1000, [4]float64{3.7, 11.4, 11.0, 15.2}, 2.9, [2]float64{13, 34},
				0.067, 0.008, 0.10, 0.05, "tight"),
			hop("0.0.1", "0.0", "rate GetRates", 1000, [4]float64{8.1, 24.1, 22.2, 35.1}, 2.8, [2]float64{28, 72},
				0.142, 0.006, 0.19, 0.12, "tight"),
			hop("0.1", "0", "reservation CheckAvailability", 1000, [4]float64{8.8, 107.2, 94.4, 124}, 3.1, [2]float64{130, 178},
				0.653, 0.003, 0.45, 0.72, "ok"),
			hop("0.2", "0", "profile GetProfiles", 1000, [4]float64{4.3, 15.0, 14.1, 17.7}, 2.3, [2]float64{18, 44},
				0.091, 0.002, 0.11, 0.06, "ok"),
		},
		Replay: &analyzer.Replay{
			Folds: 5, Traces: 1000, BudgetFalseCut: analyzer.Some(0.026), TimeoutFalseCut: analyzer.Some(0.002),
			BudgetForFalseCut: []analyzer.BudgetFor{
				{Ratio: 0.05, Budget: at(163)}, {Ratio: 0.01, Budget: at(256)}, {Ratio: 0.005, Budget: at(301)}, {Ratio: 0.001},
			},
			Policies: policies("p99prop", 0, []analyzer.HopCut{{Hop: "0.0", Ratio: 0.004}, {Hop: "0.0.0", Ratio: 0.008}}),
			Incidents: []analyzer.ReplayIncident{{
				Hop: "0.0.0", Low: 500 * ms, High: 3000 * ms, Ratio: 0.1, Requests: 98,
				Policies: policies("p99prop", 0.1, []analyzer.HopCut{{Hop: "0", Ratio: 0.02}, {Hop: "0.0.0", Ratio: 0.11}}),
			}},
			Assumptions: []string{"whoever is cancelled stops", "today's timeouts cut none of these requests"},
		},
	}
	return &analyzer.Report{Version: 1, Input: input(1000, 11000), Endpoints: []analyzer.Endpoint{e}}
}

// degraded gives up a hop in some requests.
func degraded(policies []analyzer.PolicyEffect) []analyzer.PolicyEffect {
	for i := range policies {
		policies[i].Degraded = float64(i) * 0.001
	}
	return policies
}

// order is a chain whose budgets of today are known: inventory has room that
// risk could use. It has an optional hop and one that nobody waits for.
func order() *analyzer.Report {
	names := []string{"auth Validate", "inventory Reserve", "coupon Apply", "risk Score", "payment Persist"}
	p99 := []float64{25, 30, 45, 120, 70}
	now := []float64{40, 200, 160, 240, 160}
	share := []float64{65, 79, 118, 316, 184}
	verdict := []string{"ok", "loose", "ok", "tight", "ok"}
	hops := []analyzer.Hop{
		hop("0", "", "gateway POST /orders", 4000, [4]float64{170, 420, 390, 470}, 0, [2]float64{800, 800},
			1, 0, 0.02, 0.01, "misses"),
	}
	for i, n := range names {
		h := hop("0."+string(rune('0'+i)), "0", n, 4000, [4]float64{p99[i] / 2, p99[i], p99[i] * 0.9, p99[i] * 1.2}, 1.2,
			[2]float64{share[i], share[i] + 200}, share[i]/800, 0.001, 0.18, 0.2, verdict[i])
		h.Now, h.Change = at(now[i]), at(share[i]-now[i])
		h.Confidence = "good"
		hops = append(hops, h)
	}
	hops[3].Calls, hops[3].Presence = 296, 0.074
	hops[3].Confidence, hops[3].P99Hi = "low", analyzer.Opt[int64]{}
	async := hop("0.5", "0", "mail Send", 4000, [4]float64{300, 900, 880, 950}, 0.4, [2]float64{}, 0, 0, 0, 0, "async")
	async.Kind, async.Order = analyzer.HopAsync, ""
	unplan(&async)
	async.CriticalPath, async.SlowPath = analyzer.Opt[float64]{}, analyzer.Opt[float64]{}
	hops = append(hops, async)
	in := input(4000, 28312)
	in.Analysed = 28300
	in.LeftOut = map[string]int{"no_root": 9, "duplicate": 3}
	in.Notes = []analyzer.InputNote{
		{Kind: "duplicate", Count: 3, Example: "0a/0b", Text: "3 spans that were there twice"},
		{Kind: "missing_parent", Count: 2, Text: "2 spans without their parent"},
		{Kind: "no_root", Count: 9, Text: "9 spans of traces without a root"},
	}
	e := analyzer.Endpoint{
		Service: "gateway", Operation: "POST /orders", Traces: 4000,
		Duration: analyzer.Quantiles{P50: at(170), P99: at(420), P99Lo: at(390), P99Hi: at(470), Max: at(990)},
		Budget:   800 * ms, BudgetSource: "plan", Reserve: 38 * ms, Quantum: ms, Strategy: "p99prop", Feasible: true,
		MinBudget: 190 * ms, DeadlineMissRatio: 0.0004, Hops: hops, WorstCase: at(1762), WorstCaseNow: at(800), Hot: "0.3",
		OrderPairs: 10, OrderSure: 9, Moves: []analyzer.Move{{From: "0.1", To: "0.3", Amount: 50 * ms, FromSlack: 200.0 / 30, ToSlack: 2}},
		Warnings: []string{"clustered: slow requests come in runs"},
		Replay: &analyzer.Replay{
			Folds: 5, Traces: 3990, BudgetFalseCut: analyzer.Some(0.004), TimeoutFalseCut: analyzer.Some(0.0), Degradable: []string{"0.2"},
			Policies: degraded(policies("p99prop", 0.0004, []analyzer.HopCut{{Hop: "0.3", Ratio: 0.004}})),
			Assumptions: []string{
				"whoever is cancelled stops", "today's timeouts cut none of these requests",
				"without a degradable hop its caller goes on at once",
			},
		},
		Findings: []analyzer.Finding{
			{
				Rule: "deadline-reset", Severity: "error", Hop: "0.1", Count: 31, Ratio: 0.00775,
				Example: "5b8efff798038103d269b633813fc60c/eee19b7ec3c1b174",
				Text:    "a deadline up to 14780 ms later than what was left, set by gateway",
			},
			{
				Rule: "budget-utilization", Severity: "warning", Hop: "0.3", Count: 1, Ratio: 1.0 / 4000,
				Example: "5b8efff798038103d269b633813fc60d/eee19b7ec3c1b175", Text: "used up to 85.7 % of what was left",
			},
		},
	}
	return &analyzer.Report{
		Version: 1, Input: in, Endpoints: []analyzer.Endpoint{e},
		Others: []analyzer.OtherEndpoint{{
			Service: "gateway", Operation: "GET /health", Traces: 12,
			Findings: []analyzer.OtherFinding{
				{Rule: "deadline-reset", Severity: "error", Count: 3, Example: "0af7651916cd43dd8448eb211c80319c/b7ad6b7169203331"},
				{Rule: "queue-wait", Severity: "warning", Count: 1, Example: "0af7651916cd43dd8448eb211c80319c/b7ad6b7169203332"},
			},
		}},
	}
}

// infeasible has a budget below what its floors need.
func infeasible() *analyzer.Report {
	r := hotel()
	e := &r.Endpoints[0]
	e.Budget, e.Quantum, e.Feasible, e.DeadlineMissRatio = 20*ms, 100*us, false, 0.734
	e.MinBudget = 31_400 * us
	e.BindingChain = []string{"0.0", "0.1", "0.2"}
	e.Replay, e.WorstCase = nil, analyzer.Opt[int64]{}
	for i := range e.Hops {
		h := &e.Hops[i]
		unplan(h)
		h.Verdict = ""
	}
	e.Hops[0].Verdict = analyzer.VerdictInfeasible
	return r
}

// small is an endpoint of 50 ms whose hops take fractions of a ms.
func small() *analyzer.Report {
	e := analyzer.Endpoint{
		Service: "edge", Operation: "GET /ping", Traces: 5000,
		Duration: analyzer.Quantiles{P50: at(6.4), P99: at(14.9), P99Lo: at(14.2), P99Hi: at(15.6), Max: at(21)},
		Budget:   50 * ms, BudgetSource: "suggested", Quantum: 100 * us, Strategy: "p99prop", Feasible: true, MinBudget: 7_300 * us,
		DeadlineMissRatio: 0.0021, WorstCase: at(77.7), Hot: "0.2", OrderPairs: 3, OrderSure: 3,
		Hops: []analyzer.Hop{
			hop("0", "", "edge GET /ping", 5000, [4]float64{6.4, 14.9, 14.2, 15.6}, 0, [2]float64{50, 50},
				1, 0, 0.2, 0.1, "fits"),
			hop("0.0", "0", "cache Get", 5000, [4]float64{0.042, 0.3, 0.28, 0.35}, 0.0042, [2]float64{0.9, 1.2},
				0.018, 0.0001, 0.004, 0, "ok"),
			hop("0.1", "0", "flags Read", 5000, [4]float64{0.35, 1.02, 0.999, 1.1}, 0.2, [2]float64{3.1, 4},
				0.062, 0, 0.1, 0.0001, "ok"),
			hop("0.2", "0", "users Find", 5000, [4]float64{4.9, 9.94, 9.4, 9.96}, 0.9, [2]float64{30.2, 40.1},
				0.604, 0, 0.696, 0.9, "ok"),
		},
		Replay: &analyzer.Replay{
			Folds: 5, Traces: 5000, BudgetFalseCut: analyzer.Some(0.0001), TimeoutFalseCut: analyzer.Some(0.0),
			Policies:    policies("equal", 0.0021, nil),
			Assumptions: []string{"whoever is cancelled stops"},
		},
	}
	for i := range e.Hops {
		e.Hops[i].Confidence = "good"
	}
	return &analyzer.Report{Version: 1, Input: input(5000, 35000), Endpoints: []analyzer.Endpoint{e}}
}

// doubtful has every mark of doubt: too few calls, few calls, cut calls,
// overlapping siblings, another percentile, a coarse and a skewed clock.
func doubtful() *analyzer.Report {
	r := hotel()
	e := &r.Endpoints[0]
	r.Settings = analyzer.Some(finding.Settings{Utilization: 0.875, ResetFloor: 20 * ms, ResetShare: 0.07, MaxSkew: 100 * ms})
	e.Traces, e.DeadlineMissRatio = 90, 0.12
	e.Percentile = ratio(97.5)
	e.KindInferredRatio, e.Resolution = 0.42, ms
	e.OrderSure = 1
	e.Replay.BudgetForFalseCut = []analyzer.BudgetFor{{Ratio: 0.01}}
	for i := range e.Hops {
		h := &e.Hops[i]
		h.PercentileNS = analyzer.Some(h.P99.V * 9 / 10)
		h.Calls = 90
		h.Confidence, h.Verdict = "refused", analyzer.VerdictFewSamples
		h.P99Hi = analyzer.Opt[int64]{}
	}
	e.Hops[0].Verdict = analyzer.VerdictMisses
	low, cut := &e.Hops[4], &e.Hops[5]
	low.Calls, low.Confidence, low.Verdict = 110, "low", analyzer.VerdictTight
	cut.Calls, cut.Confidence, cut.Verdict, cut.CensoredRatio = 400, "fair", analyzer.VerdictCensored, 0.05
	e.Hops[2].Overlaps, e.Hops[3].Overlaps = true, true
	e.Hops[1].Skew, e.Hops[4].Skew = analyzer.Some(-1500*us), analyzer.Some(int64(0))
	step := hop("0.2.0", "0.2", "profile redis GET", 400, [4]float64{0.8, 2, 1.9, 2.2}, 0, [2]float64{}, 0, 0, 0, 0, "")
	unplan(&step)
	step.Kind, step.NetP50 = analyzer.HopStep, analyzer.Opt[int64]{}
	e.Hops = append(e.Hops, step)
	return r
}

// names holds labels that are hard on a terminal.
func names() *analyzer.Report {
	r := hotel()
	e := &r.Endpoints[0]
	e.Service, e.Operation = "网关", "GET /订单/{id}"
	for i, n := range []string{
		"网关 GET /订单/{id}",
		"支付服务 扣款",
		"⚠️ risky ⚠️ call",
		"👩‍👩‍👧 family",
		"evil\x1b]0;pwn\a \x1b[2J a\rOK\nnext\tcell \u009b31m \u202egnp.exe <b>|`x` [a](http://evil.example) @all",
		"=cmd()|" + strings.Repeat("very-long-name/", 12),
	} {
		callee, operation, _ := strings.Cut(n, " ")
		e.Hops[i].Label, e.Hops[i].Callee, e.Hops[i].Operation = n, callee, operation
	}
	e.Replay.Incidents[0].Hop = "0.0"
	e.Replay.Incidents[0].Policies[6].Strategy = "evil\x1b[31m"
	e.Replay.Assumptions = append(e.Replay.Assumptions, "nothing is evil\x1b[31m\u2066")
	e.Warnings = []string{"two hops are named evil\x1b[31m\u2066"}
	e.Findings = slices.Repeat([]analyzer.Finding{{
		Rule: "deadline-reset", Severity: "error", Hop: "0.2", Count: 2, Ratio: 0.002,
		Example: "5b8efff798038103d269b633813fc60c/eee19b7ec3c1b174",
		Text:    "a deadline up to 14780 ms later than what was left, set by evil\x1b[31m <b>\u2066",
	}}, 12)
	return r
}
