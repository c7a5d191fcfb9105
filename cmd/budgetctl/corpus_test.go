package main

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// corpus returns a file of the real exports, or skips the test.
func corpus(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("LATENCYBUDGET_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "shared", "traces")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no real traces: set LATENCYBUDGET_CORPUS to their folder (%v)", err)
	}
	return path
}

// reportOf analyses and reads the JSON report back.
func reportOf(t *testing.T, args ...string) *analyzer.Report {
	t.Helper()
	code, stdout, stderr := outcome(t, "", append([]string{"analyze", "-o", "json"}, args...)...)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var r analyzer.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// TestHotel holds the analysis of 1,000 real requests against figures that
// were worked out independently: a cell may differ by 2 ms, a rate by half a
// point, the budget for 1 % of false cuts by 5 %.
func TestHotel(t *testing.T) {
	r := reportOf(t, corpus(t, "tw-hotel-load150.jaeger.json"), "--budget", "200ms")
	if r.Input.Traces != 1000 || r.Input.Spans != 11000 || r.Input.Analysed != 11000 {
		t.Errorf("read %d traces, %d spans, analysed %d; want 1000, 11000, 11000",
			r.Input.Traces, r.Input.Spans, r.Input.Analysed)
	}
	e := r.Endpoints[0]
	if e.Duration.P50.V != 34_676_000 || e.Duration.P99.V != 139_115_000 {
		t.Errorf("P50 %d, P99 %d; want 34676000, 139115000", e.Duration.P50.V, e.Duration.P99.V)
	}
	type row struct {
		label                                string
		p50, p99, lo, hi, net, budget, share float64
		timeout, slack, cuts, path, slow     float64
		verdict                              string
	}
	want := []row{
		{"frontend HTTP GET /hotels", 34.7, 139, 130, 157, -1, 200, 100, 200, 1.4, 0.0, 3, 1, "fits"},
		{"search Nearby", 16.8, 40.4, 34, 76, 3.1, 49, 25, 121, 1.2, 0.8, 11, 4, "tight"},
		{"geo Nearby", 3.7, 11.4, 11, 15, 2.9, 13, 7, 34, 1.1, 0.8, 10, 5, "tight"},
		{"rate GetRates", 8.1, 24.1, 22, 35, 2.8, 28, 14, 72, 1.2, 0.6, 19, 12, "tight"},
		{"reservation CheckAvailability", 8.8, 107, 94, 124, 3.1, 130, 65, 178, 1.2, 0.3, 45, 72, "ok"},
		{"profile GetProfiles", 4.3, 15.0, 14, 18, 3.0, 18, 9, 44, 1.2, 0.2, 11, 6, "ok"},
	}
	if len(e.Hops) != len(want) {
		t.Fatalf("%d hops, want %d", len(e.Hops), len(want))
	}
	near := func(what string, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within {
			t.Errorf("%s: %.2f, want %.2f", what, got, want)
		}
	}
	const ms = 1e6
	for i, w := range want {
		h := e.Hops[i]
		if h.Label != w.label || h.Calls != 1000 || h.Verdict != w.verdict {
			t.Errorf("row %d: %s, %d calls, %s; want %s, 1000, %s", i, h.Label, h.Calls, h.Verdict, w.label, w.verdict)
		}
		near(w.label+" P50", float64(h.P50.V)/ms, w.p50, 2)
		near(w.label+" P99", float64(h.P99.V)/ms, w.p99, 2)
		near(w.label+" P99 low", float64(h.P99Lo.V)/ms, w.lo, 2)
		near(w.label+" P99 high", float64(h.P99Hi.V)/ms, w.hi, 2)
		near(w.label+" BUDGET", float64(h.Share.V)/ms, w.budget, 2)
		near(w.label+" TIMEOUT", float64(h.Cap.V)/ms, w.timeout, 2)
		near(w.label+" %", 100*h.ShareRatio.V, w.share, 0.5)
		near(w.label+" SLACK", h.Slack.V, w.slack, 0.1)
		near(w.label+" CUTS", 100*h.CutRatio.V, w.cuts, 0.5)
		near(w.label+" PATH", 100*h.CriticalPath.V, w.path, 1)
		near(w.label+" SLOW", 100*h.SlowPath.V, w.slow, 1)
		if w.net >= 0 {
			near(w.label+" NET", float64(h.NetP50.V)/ms, w.net, 2)
		}
	}
	near("miss %", 100*e.DeadlineMissRatio, 0, 0.5)
	near("false cuts of BUDGET %", 100*e.Replay.BudgetFalseCut.V, 2.6, 0.5)
	near("false cuts of TIMEOUT %", 100*e.Replay.TimeoutFalseCut.V, 0.2, 0.5)
	near("worst case", float64(e.WorstCase.V)/ms, 343, 4)
	near("smallest plan", float64(e.MinBudget)/ms, 31, 2)
	near("budget for 1 %", float64(budgetFor(&e, 0.01).Budget.V)/ms, 256, 256*0.05)
	hard, passed := effect(t, e.Replay.Policies, "budget", "p99prop"), effect(t, e.Replay.Policies, "timeout", "p99prop")
	near("false cuts of BUDGET % in the replay", 100*hard.FalseCut, 2.45, 0.25)
	near("false cuts of TIMEOUT % in the replay", 100*passed.FalseCut, 0.2, 0.1)
	near("false cuts of equal %", 100*effect(t, e.Replay.Policies, "budget", "equal").FalseCut, 7.7, 2)
	if e.OrderPairs != 4 || e.OrderSure != 4 {
		t.Errorf("order sure in %d of %d pairs, want 4 of 4", e.OrderSure, e.OrderPairs)
	}
}

// budgetFor returns the smallest budget for a rate of false cuts.
func budgetFor(e *analyzer.Endpoint, ratio float64) analyzer.BudgetFor {
	for _, b := range e.Replay.BudgetForFalseCut {
		if b.Ratio == ratio {
			return b
		}
	}
	return analyzer.BudgetFor{}
}

// effect returns the row of a policy.
func effect(t *testing.T, policies []analyzer.PolicyEffect, policy, strategy string) analyzer.PolicyEffect {
	t.Helper()
	i := slices.IndexFunc(policies, func(p analyzer.PolicyEffect) bool { return p.Policy == policy && p.Strategy == strategy })
	if i < 0 {
		t.Fatalf("no %s %s in %+v", policy, strategy, policies)
	}
	return policies[i]
}

// TestHotelIncident compares with what was worked out independently of an inner
// hop that takes half a second to three seconds longer in every tenth request:
// most of the waste goes by a deadline, most of the rest by either number.
func TestHotelIncident(t *testing.T) {
	r := reportOf(t, corpus(t, "tw-hotel-load150.jaeger.json"), "--budget", "174ms", "--incident", "geo*=slow 500ms..3s @10%")
	policies := r.Endpoints[0].Replay.Incidents[0].Policies
	today, deadline := effect(t, policies, "today", ""), effect(t, policies, "deadline", "")
	hard, passed := effect(t, policies, "budget", "p99prop"), effect(t, policies, "timeout", "p99prop")
	if today.Miss < 0.08 || today.Miss > 0.13 || today.Wasted < 400e6 || today.Wasted > 700e6 {
		t.Errorf("today %.3f miss, %d ns are wasted a request", today.Miss, today.Wasted)
	}
	if deadline.Wasted > today.Wasted/6 || passed.Wasted > deadline.Wasted/3 || hard.Wasted > passed.Wasted {
		t.Errorf("wasted %d today, %d with a deadline, %d with TIMEOUT, %d with BUDGET",
			today.Wasted, deadline.Wasted, passed.Wasted, hard.Wasted)
	}
	if passed.FalseCut > 0.004 || hard.FalseCut < 0.02 || hard.FalseCut > 0.06 {
		t.Errorf("TIMEOUT cuts %.4f of good requests, BUDGET %.4f", passed.FalseCut, hard.FalseCut)
	}
}

// TestWithoutAPlanWhatNeedsNoneIsReplayed: under a budget that holds no plan, or
// with too few requests to judge one by, incidents too.
func TestWithoutAPlanWhatNeedsNoneIsReplayed(t *testing.T) {
	for _, c := range []struct {
		input, budget, incident, title string
		budgets                        bool
	}{
		{"testdata/orders", "60ms", "risk*=slow 1s..2s @10%", "REPLAY of 1000 requests without a plan", true},
		{"testdata/deadline-reset", "150ms", "inventory*=slow 1s @100%", "REPLAY of 2 requests without a plan", false},
		{"testdata/deadline-reset", "300ms", "inventory*=slow 1s @100%", "REPLAY of 2 requests, too few to judge a plan by", false},
	} {
		e := reportOf(t, c.input, "--budget", c.budget, "--incident", c.incident).Endpoints[0]
		for _, policies := range [][]analyzer.PolicyEffect{e.Replay.Policies, e.Replay.Incidents[0].Policies} {
			var names []string
			for _, p := range policies {
				names = append(names, p.Policy)
			}
			if diff := cmp.Diff([]string{"today", "deadline", "same", "half"}, names); diff != "" {
				t.Errorf("%s, %s: %s", c.input, c.budget, diff)
			}
		}
		if incident := e.Replay.Incidents[0].Policies; incident[0].Miss < 0.1 || incident[0].Saved != 0 || incident[1].Saved == 0 {
			t.Errorf("%s, %s: incident %+v", c.input, c.budget, incident)
		}
		known := len(e.Replay.BudgetForFalseCut) > 0 && e.Replay.BudgetForFalseCut[1].Budget.V > e.MinBudget
		if e.Replay.BudgetFalseCut.Known || e.Replay.TimeoutFalseCut.Known || known != c.budgets {
			t.Errorf("%s, %s: %+v", c.input, c.budget, e.Replay)
		}
		out := must(t, "analyze", c.input, "--budget", c.budget, "--incident", c.incident)
		if !strings.Contains(out, "\n"+c.title+"\n") {
			t.Errorf("no %q in:\n%s", c.title, out)
		}
	}
}

// TestOnlyDegradableHopsLowerTheMissRate: a caller that goes on without its
// slowest hop meets a budget that it misses otherwise.
func TestOnlyDegradableHopsLowerTheMissRate(t *testing.T) {
	plain := reportOf(t, "testdata/orders", "--budget", "150ms").Endpoints[0].Replay
	giveUp := reportOf(t, "testdata/orders", "--budget", "150ms", "--degradable", "risk*").Endpoints[0].Replay
	today := effect(t, plain.Policies, "today", "")
	for _, p := range plain.Policies {
		if p.Miss != today.Miss || p.Degraded != 0 {
			t.Errorf("%s %s: %v miss and %v degraded, today %v", p.Policy, p.Strategy, p.Miss, p.Degraded, today.Miss)
		}
	}
	hard := effect(t, giveUp.Policies, "budget", "p99prop")
	if hard.Miss > 0.7*today.Miss || hard.Degraded == 0 || hard.FalseCut >= plain.BudgetFalseCut.V {
		t.Errorf("with a degradable hop %+v, today %+v", hard, today)
	}
}

// withoutFiles renders a report without what depends on the files' names and
// split.
func withoutFiles(t *testing.T, r *analyzer.Report) string {
	t.Helper()
	r.Input.Files = nil
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSameSpansSameReport holds that forms of one set of spans give one report.
func TestSameSpansSameReport(t *testing.T) {
	for _, pair := range [][2]string{
		{"jaegerui-multi-combined.otlp.json", "jaegerui-multi-in.otlp.jsonl"},
		{"otlp2parquet-traces.otlp.jsonl", "otlp2parquet-traces.otlp.pb"},
	} {
		a := withoutFiles(t, reportOf(t, corpus(t, pair[0])))
		b := withoutFiles(t, reportOf(t, corpus(t, pair[1])))
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s and %s differ:\n%s", pair[0], pair[1], diff)
		}
	}
	otlp := reportOf(t, corpus(t, "jaegerui-multi-combined.otlp.json"))
	jaeger := reportOf(t, corpus(t, "jaegerui-multi-out.jaeger.json"))
	if got, want := jaeger.Endpoints[0].Duration.Max.V, otlp.Endpoints[0].Duration.Max.V; got/1000 != want/1000 {
		t.Errorf("Jaeger form: %d ns, OTLP form: %d ns; want equal to the microsecond", got, want)
	}
	for i, h := range otlp.Endpoints[0].Hops {
		if j := jaeger.Endpoints[0].Hops[i]; h.Label != j.Label || h.P50.V-j.P50.V > 1000 || j.P50.V-h.P50.V > 1000 {
			t.Errorf("hop %s: %d ns, in Jaeger form %s: %d ns", h.Label, h.P50.V, j.Label, j.P50.V)
		}
	}
}

// TestFormatsAgree holds the same for every format that testdata has.
func TestFormatsAgree(t *testing.T) {
	files, err := filepath.Glob("testdata/formats/trace.*")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	want := withoutFiles(t, reportOf(t, files[0]))
	for _, f := range files[1:] {
		if diff := cmp.Diff(want, withoutFiles(t, reportOf(t, f))); diff != "" {
			t.Errorf("%s differs from %s:\n%s", f, files[0], diff)
		}
	}
}

// TestOrderAndWorkersDoNotMatter writes a span a line, shuffles the lines, spreads
// them over files, and reads with 1 and 8 workers: the report is the same to the
// byte.
func TestOrderAndWorkersDoNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, story := range tracegen.Stories() {
		if len(story.Spans) > 6000 {
			continue
		}
		lines := make([][]byte, len(story.Spans))
		for i := range lines {
			lines[i] = tracegen.AppendOTLPJSONLines(nil, story.Spans[i:i+1])
		}
		var want string
		for round := range 3 {
			dir := t.TempDir()
			var parts [3]bytes.Buffer
			for _, line := range lines {
				parts[rng.IntN(1+round)].Write(line)
			}
			for i := range parts {
				if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".jsonl"), parts[i].Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			workers := []string{"1", "8", "8"}[round]
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"analyze", "-o", "json", "--workers", workers}
			for _, f := range files {
				if info, err := os.Stat(f); err == nil && info.Size() > 0 {
					args = append(args, f)
				}
			}
			code, stdout, stderr := outcome(t, "", args...)
			if code != exitOK {
				t.Fatalf("%s: exit %d: %s", story.Name, code, stderr)
			}
			var r analyzer.Report
			if err := json.Unmarshal([]byte(stdout), &r); err != nil {
				t.Fatal(err)
			}
			got := withoutFiles(t, &r)
			if round == 0 {
				want = got
			} else if got != want {
				t.Errorf("%s: %d files, %s workers differ:\n%s", story.Name, 1+round, workers, cmp.Diff(want, got))
			}
			rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		}
	}
}

// TestCorpus analyses every real export: each gives a report or an error that
// names the file, and never an empty report.
func TestCorpus(t *testing.T) {
	dir := filepath.Dir(corpus(t, "SOURCES.md"))
	var files []string
	for _, pattern := range []string{"*.json", "*.jsonl", "*.pb", "crisp/*.json"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	unusable := map[string]string{
		"dataprepper-test-request-no-spans.otlp.json":     "no spans",
		"otlp2parquet-bad-malformed.otlp.json":            "",
		"otlp2parquet-bad-trace_invalid_base64.otlp.json": "",
		"otlp2parquet-bad-trace_mixed_encoding.otlp.json": "",
		"expected.json": "",
		"dataprepper-test-request-multiple-traces.otlp.json": "no request",
	}
	for _, f := range files {
		name := filepath.Base(f)
		code, stdout, stderr := outcome(t, "", "analyze", f)
		why, bad := unusable[name]
		switch {
		case bad && (code != exitFailed || stdout != "" || !strings.Contains(stderr, why) || !strings.Contains(stderr, name) && why != "no request"):
			t.Errorf("%s: exit %d, %q; want an error that names it", name, code, stderr)
		case !bad && (code != exitOK || !strings.Contains(stdout, "traces")):
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}

// TestEverySpanIsAccountedFor holds that spans read are analysed or left out for
// a named reason, in every story and every real export that can be analysed.
func TestEverySpanIsAccountedFor(t *testing.T) {
	files, err := filepath.Glob("testdata/*/trace.*")
	if err != nil {
		t.Fatal(err)
	}
	if dir := os.Getenv("LATENCYBUDGET_CORPUS"); dir != "" {
		files = append(files, filepath.Join(dir, "*.json*"), filepath.Join(dir, "crisp", "*.json"))
	}
	for _, f := range append(files, "testdata/*/trace.*") {
		for _, flags := range [][]string{nil, {"--endpoint", "*a*"}, {"--top", "1", "--max-hops", "2"}, {"--unweighted", "--steps"}} {
			code, stdout, _ := outcome(t, "", append([]string{"analyze", "-o", "json", f}, flags...)...)
			if stdout == "" {
				if code == exitOK {
					t.Errorf("%s %v: nothing printed, exit 0", f, flags)
				}
				continue
			}
			var r analyzer.Report
			if err := json.Unmarshal([]byte(stdout), &r); err != nil {
				t.Fatal(err)
			}
			sum := r.Input.Analysed
			for _, n := range r.Input.LeftOut {
				sum += n
			}
			if sum != r.Input.Spans {
				t.Errorf("%s %v: %d spans read, %d accounted for: analysed %d, left out %v",
					f, flags, r.Input.Spans, sum, r.Input.Analysed, r.Input.LeftOut)
			}
			perFile := 0
			for _, file := range r.Input.Files {
				perFile += file.Spans
			}
			if perFile != r.Input.Spans {
				t.Errorf("%s %v: files hold %d spans, the report says %d", f, flags, perFile, r.Input.Spans)
			}
		}
	}
}

// TestTodaysTimeouts holds the two findings of the order chain's timeouts of
// today: inventory has 6.7 times its P99 and could give 50 ms to risk, which has
// twice its P99 and rare cold starts; five hops of 3 s allow 15 s.
func TestTodaysTimeouts(t *testing.T) {
	e := reportOf(t, "testdata/orders", "--budget", "800ms",
		"--current", "auth*=40ms", "--current", "inventory*=200ms", "--current", "coupon*=160ms",
		"--current", "risk*=240ms", "--current", "*persist=160ms").Endpoints[0]
	verdicts := make(map[string]string)
	byID := make(map[string]analyzer.Hop)
	for _, h := range e.Hops {
		verdicts[h.Callee] = h.Verdict
		byID[h.ID] = h
	}
	if verdicts["inventory"] != analyzer.VerdictLoose || verdicts["risk"] != analyzer.VerdictTight {
		t.Errorf("verdicts %v: want inventory loose, risk tight", verdicts)
	}
	if len(e.Moves) != 1 || byID[e.Moves[0].From].Callee != "inventory" || byID[e.Moves[0].To].Callee != "risk" ||
		e.Moves[0].Amount != 50_000_000 || math.Abs(e.Moves[0].FromSlack-6.67) > 0.01 || math.Abs(e.Moves[0].ToSlack-2) > 0.01 {
		t.Errorf("moves %+v: want 50 ms from inventory (6.7) to risk (2.0)", e.Moves)
	}
	for _, h := range e.Hops {
		if h.Now.Known && h.Change.V != h.Share.V-h.Now.V {
			t.Errorf("%s: change %d, want share - now", h.Label, h.Change.V)
		}
	}
	e = reportOf(t, "testdata/orders", "--budget", "800ms",
		"--current", "auth*=3s", "--current", "inventory*=3s", "--current", "coupon*=3s",
		"--current", "risk*=3s", "--current", "*persist=3s").Endpoints[0]
	if e.WorstCaseNow.V != 15_000_000_000 {
		t.Errorf("worst case today %d ns, want 15 s", e.WorstCaseNow.V)
	}
}

// TestStampsSayWhatIsConfigured holds that without --current the timeouts of
// today come from the CLIENT spans, and the budget from the entry spans.
func TestStampsSayWhatIsConfigured(t *testing.T) {
	e := reportOf(t, "testdata/stamped").Endpoints[0]
	if e.Budget != 800_000_000 || e.BudgetSource != "observed" {
		t.Errorf("budget %d from %s, want 800 ms observed", e.Budget, e.BudgetSource)
	}
	for _, h := range e.Hops {
		if h.Callee == "inventory" && h.Now.V != 200_000_000 {
			t.Errorf("inventory has %d ns today, want 200 ms", h.Now.V)
		}
	}
}

// checkout makes n requests of one endpoint with one call each: 10 ms and 5 ms.
func checkout(n int, change func(i int, server, call *tracegen.Span)) []tracegen.Span {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	var spans []tracegen.Span
	for i := range n {
		id := [16]byte{1, byte(i >> 8), byte(i)}
		at := start + int64(i)*1e9 + int64(i)*1237
		server := tracegen.Span{TraceID: id, ID: [8]byte{1}, Service: "shop", Name: "GET /", Kind: tracegen.KindServer, Start: at, End: at + 10e6}
		call := tracegen.Span{
			TraceID: id, ID: [8]byte{2}, Parent: [8]byte{1}, Service: "shop", Name: "Get", Kind: tracegen.KindClient,
			Attrs: []tracegen.Attr{{Key: "peer.service", Value: "stock"}}, Start: at + 1e6, End: at + 6e6,
		}
		change(i, &server, &call)
		spans = append(spans, server, call)
	}
	return spans
}

func analyzeSpans(t *testing.T, spans []tracegen.Span, args ...string) analyzer.Endpoint {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trace.otlp.jsonl")
	if err := os.WriteFile(file, tracegen.AppendOTLPJSONLines(nil, spans), 0o600); err != nil {
		t.Fatal(err)
	}
	return reportOf(t, append([]string{file}, args...)...).Endpoints[0]
}

// TestFailedRequestsAreSaid holds that failed requests are counted, stay out of
// the quantiles but not out of the misses, and that of failures alone no plan is
// made.
func TestFailedRequestsAreSaid(t *testing.T) {
	e := analyzeSpans(t, checkout(400, func(i int, server, _ *tracegen.Span) {
		if i%4 == 0 { // fails, and late
			server.Status, server.End = tracegen.StatusError, server.Start+500e6
		}
	}), "--budget", "100ms")
	if e.Traces != 400 || e.Failed != 100 || e.Duration.Max.V != 10e6 || e.DeadlineMissRatio != 0.25 || e.Hops[0].Verdict != analyzer.VerdictMisses {
		t.Errorf("%d requests, %d failed, longest good one %d ns, %v over the budget, %s; want 400, 100, 10 ms, 0.25, misses",
			e.Traces, e.Failed, e.Duration.Max.V, e.DeadlineMissRatio, e.Hops[0].Verdict)
	}
	e = analyzeSpans(t, checkout(400, func(_ int, server, call *tracegen.Span) {
		server.Status, call.Status = tracegen.StatusError, tracegen.StatusError
	}), "--budget", "100ms")
	if e.Feasible || e.Failed != 400 || e.Replay != nil || e.Hops[1].Share.Known || e.Hops[0].Verdict == analyzer.VerdictFits {
		t.Errorf("all requests failed: feasible %v, %d failed, replay %v, share %v, %s; want no plan",
			e.Feasible, e.Failed, e.Replay, e.Hops[1].Share, e.Hops[0].Verdict)
	}
}

// TestTimeoutsAtTheEndpointShow holds that an endpoint whose own requests were
// cut says that its P99 is a lower bound.
func TestTimeoutsAtTheEndpointShow(t *testing.T) {
	spans := checkout(400, func(i int, server, _ *tracegen.Span) {
		if i%4 == 0 {
			server.Status, server.End = tracegen.StatusError, server.Start+30e6
			server.Attrs = []tracegen.Attr{{Key: "http.response.status_code", Value: int64(504)}}
		}
	})
	e := analyzeSpans(t, spans, "--budget", "100ms")
	if !slices.Contains(e.Hops[0].Flags, "censored") || e.Hops[0].CensoredRatio != 0.25 || e.Failed != 0 {
		t.Errorf("flags %v, censored %v, failed %d; want censored, 0.25, 0", e.Hops[0].Flags, e.Hops[0].CensoredRatio, e.Failed)
	}
	file := filepath.Join(t.TempDir(), "trace.otlp.jsonl")
	if err := os.WriteFile(file, tracegen.AppendOTLPJSONLines(nil, spans), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, table, _ := outcome(t, "", "analyze", file); !strings.Contains(table, "≥30.0") {
		t.Errorf("the table does not mark the P99 as a lower bound:\n%s", table)
	}
}

// TestTodayIsSaidOnlyWhereItIsKnown holds that the worst case of today is given
// only where every hop's timeout is.
func TestTodayIsSaidOnlyWhereItIsKnown(t *testing.T) {
	e := reportOf(t, "testdata/orders", "--budget", "800ms", "--current", "risk*=240ms").Endpoints[0]
	if e.WorstCaseNow.Known {
		t.Errorf("one timeout of five is known, and today's worst case is %d ns", e.WorstCaseNow.V)
	}
}

// TestBudgetForFewCutsHolds holds that the budget named for 1 % of false cuts
// brings them down to it, and so do the budgets above.
func TestBudgetForFewCutsHolds(t *testing.T) {
	for _, story := range []string{"testdata/nested", "testdata/tiny", "testdata/dag", "testdata/optional"} {
		for _, budget := range []string{"20ms", "48ms", "100ms"} {
			e := reportOf(t, story, "--budget", budget).Endpoints[0]
			if e.Replay == nil || !budgetFor(&e, 0.01).Budget.Known {
				continue
			}
			enough := time.Duration(budgetFor(&e, 0.01).Budget.V)
			for _, factor := range []float64{1, 1.1, 2} {
				at := time.Duration(float64(enough) * factor).Round(100 * time.Microsecond)
				again := reportOf(t, story, "--budget", at.String()).Endpoints[0]
				if again.Replay.BudgetFalseCut.V > 0.0101 {
					t.Errorf("%s: 1 %% is said to take %v, but %v cuts %v", story, enough, at, again.Replay.BudgetFalseCut.V)
				}
			}
		}
	}
}

// TestConfidenceFollowsThePercentile holds that a quantile that is only the
// largest value seen is called so.
func TestConfidenceFollowsThePercentile(t *testing.T) {
	for percentile, want := range map[string]string{"99": analyzer.VerdictTight, "99.9": analyzer.VerdictFewSamples, "90": analyzer.VerdictOK} {
		e := analyzeSpans(t, checkout(300, func(i int, server, call *tracegen.Span) {
			call.End += int64(i) * 1000
		}), "--budget", "40ms", "--percentile", percentile)
		if got := e.Hops[1].Verdict; got != want {
			t.Errorf("P%s of 300 calls: %s, want %s", percentile, got, want)
		}
	}
}

// TestFailedCallsTeachNothing holds that calls that fail slowly, and that the
// request survives, change neither the plan nor the predicted cuts.
func TestFailedCallsTeachNothing(t *testing.T) {
	good := checkout(500, func(int, *tracegen.Span, *tracegen.Span) {})
	bad := checkout(500, func(i int, server, call *tracegen.Span) {
		if i%10 == 0 {
			call.Status, call.End, server.End = tracegen.StatusError, call.Start+300e6, server.Start+305e6
		}
	})
	want, got := analyzeSpans(t, good, "--budget", "400ms"), analyzeSpans(t, bad, "--budget", "400ms")
	if got.Hops[1].P99 != want.Hops[1].P99 || got.Hops[1].Cap != want.Hops[1].Cap {
		t.Errorf("P99 %v, cap %v; want those without the failures, %v, %v", got.Hops[1].P99, got.Hops[1].Cap, want.Hops[1].P99, want.Hops[1].Cap)
	}
	if got.Replay.BudgetFalseCut.V != 0 || got.Replay.TimeoutFalseCut.V != 0 {
		t.Errorf("cuts %v and %v of good requests, want none: only failed calls are over their budget",
			got.Replay.BudgetFalseCut.V, got.Replay.TimeoutFalseCut.V)
	}
}

// TestTimeoutsAreNoFloor holds that what calls were given, and spent, is not
// taken for what they need.
func TestTimeoutsAreNoFloor(t *testing.T) {
	for every, want := range map[int]int{1: 0, 2: 50, 5: 20} {
		e := analyzeSpans(t, checkout(100, func(i int, _, call *tracegen.Span) {
			left := int64(20e6)
			if i%every == 0 {
				left = 2e6 + int64(i)*1e3
				call.End, call.Status = call.Start+left+1e3, tracegen.StatusError
				call.Attrs = append(call.Attrs, tracegen.Attr{Key: "error.type", Value: "timeout"})
			}
			call.Attrs = append(call.Attrs, tracegen.Attr{Key: "latency_budget.remaining.start", Value: float64(left) / 1e9})
		}), "--budget", "400ms")
		doomed := 0
		for _, f := range e.Findings {
			if f.Rule == "doomed-call" {
				doomed += f.Count
			}
		}
		if doomed != want {
			t.Errorf("every %d. call times out: %d are doomed, want %d", every, doomed, want)
		}
	}
}

// TestOnlySequentialHopsShareTime holds that a hop beside a tight one has
// nothing to give it, and one before it has.
//
//	request  |---------------------------------|
//	cheap      |-|
//	slow       |---------------------|            beside
//	slow            |---------------------|       after
func TestOnlySequentialHopsShareTime(t *testing.T) {
	for name, after := range map[string]int64{"beside": 0, "after": 10e6} {
		spans := checkout(500, func(i int, server, call *tracegen.Span) {
			server.End = server.Start + 200e6
			call.Name, call.End = "cheap", call.Start+5e6
		})
		var all []tracegen.Span
		for i := 0; i < len(spans); i += 2 {
			slow := spans[i+1]
			slow.ID, slow.Name = [8]byte{3}, "slow"
			slow.Start += after
			slow.End = slow.Start + 100e6 + int64(i)*20_000
			all = append(all, spans[i], spans[i+1], slow)
		}
		e := analyzeSpans(t, all, "--budget", "300ms", "--current", "*cheap=400ms", "--current", "*slow=119900us")
		if moves, want := len(e.Moves), map[string]int{"beside": 0, "after": 1}[name]; moves != want {
			t.Errorf("%s: moves %+v, want %d", name, e.Moves, want)
		}
		for _, h := range e.Hops {
			if h.Operation == "cheap" && (h.Verdict == analyzer.VerdictLoose) != (name == "after") {
				t.Errorf("%s: cheap is %s", name, h.Verdict)
			}
		}
	}
}

// TestNamedEndpointsAreShown holds that an endpoint whose budget was given has a
// table, however many are busier.
func TestNamedEndpointsAreShown(t *testing.T) {
	r := reportOf(t, "testdata/orders", "testdata/dag", "--top", "1", "--budget", "api GET*=100ms")
	if len(r.Endpoints) != 2 || r.Endpoints[1].Service != "api" || r.Endpoints[1].Budget != 100_000_000 {
		t.Errorf("%d endpoints; want gateway, and api with its budget", len(r.Endpoints))
	}
}

// TestOneBrokenClockCostsItself holds that one span of half a century changes
// nothing but the count of what was left out.
func TestOneBrokenClockCostsItself(t *testing.T) {
	e := analyzeSpans(t, checkout(200, func(i int, server, _ *tracegen.Span) {
		if i == 7 {
			server.Start = 1_700_000_000 // seconds where ns belong
		}
	}))
	if e.Budget > 20_000_000 || e.Traces != 199 {
		t.Errorf("budget %d ns from %d requests, want about 13 ms from 199", e.Budget, e.Traces)
	}
	for _, h := range e.Hops {
		if h.CriticalPath.V < 0 || h.CriticalPath.V > 1 {
			t.Errorf("%s has %v of the critical path", h.Label, h.CriticalPath.V)
		}
	}
}

// TestSuggestionsStayNearWhatRequestsTake holds that few requests with deep
// trees get no budget of many times their duration.
func TestSuggestionsStayNearWhatRequestsTake(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	var spans []tracegen.Span
	for i := range 50 {
		for depth := range 100 {
			s := tracegen.Span{
				TraceID: [16]byte{2, byte(i)}, ID: [8]byte{1, byte(depth)}, Kind: tracegen.KindServer,
				Service: "s", Name: "op", Start: start + int64(i)*1e9 + int64(depth)*1e6, End: start + int64(i)*1e9 + 500e6 - int64(depth)*1e6,
			}
			if depth > 0 {
				s.Parent = [8]byte{1, byte(depth - 1)}
			}
			spans = append(spans, s)
		}
	}
	e := analyzeSpans(t, spans)
	if e.Budget > 1_000_000_000 || !e.Feasible {
		t.Errorf("requests of 500 ms get a suggestion of %v, feasible: %v", time.Duration(e.Budget), e.Feasible)
	}
}

// TestHopsWithoutAGoodCallGetNoBudget holds that no budget is made from no
// duration.
func TestHopsWithoutAGoodCallGetNoBudget(t *testing.T) {
	e := analyzeSpans(t, checkout(400, func(_ int, _, call *tracegen.Span) { call.Status = tracegen.StatusError }), "--budget", "100ms")
	h := e.Hops[1]
	if h.Share.Known || h.Cap.Known || h.P99.Known || h.Calls != 400 || h.Verdict != analyzer.VerdictFewSamples {
		t.Errorf("share %v, cap %v, P99 %v, %d calls, %s; want no budget", h.Share, h.Cap, h.P99, h.Calls, h.Verdict)
	}
}

// TestNobodyBelowAnAsyncHopHasABudget holds it where a call without SERVER span
// counts to an asynchronous hop.
//
//	gw      |--|
//	notify   |---------------|    CLIENT, and mostly a SERVER span
//	query      |---|              below it
func TestNobodyBelowAnAsyncHopHasABudget(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	var spans []tracegen.Span
	for i := range 10 {
		at := start + int64(i)*1e9
		id := [16]byte{3, byte(i)}
		spans = append(spans,
			tracegen.Span{TraceID: id, ID: [8]byte{1}, Service: "gw", Name: "GET /", Kind: tracegen.KindServer, Start: at, End: at + 3e6},
			tracegen.Span{TraceID: id, ID: [8]byte{2}, Parent: [8]byte{1}, Service: "gw", Name: "notify", Kind: tracegen.KindClient, Start: at + 3e5, End: at + 20e6})
		if i == 0 {
			spans[len(spans)-1].Status = tracegen.StatusError
			spans = append(spans, tracegen.Span{
				TraceID: id, ID: [8]byte{3}, Parent: [8]byte{2}, Service: "db", Name: "query", Kind: tracegen.KindClient,
				Start: at + 2e6, End: at + 6e6,
			})
		} else {
			spans = append(spans, tracegen.Span{
				TraceID: id, ID: [8]byte{3}, Parent: [8]byte{2}, Service: "notify", Name: "Send", Kind: tracegen.KindServer,
				Start: at + 1e6, End: at + 19e6,
			})
		}
	}
	e := analyzeSpans(t, spans, "--budget", "50ms")
	for _, h := range e.Hops[1:] {
		if h.Kind != analyzer.HopAsync || h.Share.Known {
			t.Errorf("%s %s: kind %s, share %v; want async, none", h.ID, h.Label, h.Kind, h.Share)
		}
	}
}

// TestCalleeLongerThanCallerIsSaid holds that such a call is not shifted and is
// marked.
func TestCalleeLongerThanCallerIsSaid(t *testing.T) {
	var spans []tracegen.Span
	for i, s := range checkout(10, func(int, *tracegen.Span, *tracegen.Span) {}) {
		spans = append(spans, s)
		if i%2 == 1 {
			half := s
			half.ID, half.Parent, half.Service, half.Kind = [8]byte{3}, s.ID, "stock", tracegen.KindServer
			half.Start, half.End = s.Start-5e6, s.End+5e6
			spans = append(spans, half)
		}
	}
	h := analyzeSpans(t, spans).Hops[1]
	if !slices.Contains(h.Flags, "skew_not_fitted") || h.Skew.Known {
		t.Errorf("flags %v, skew %v; want skew_not_fitted and no shift", h.Flags, h.Skew)
	}
}

// TestNothingIsPlannedBelowAHopWithoutAGoodCall holds that no hop gets a budget
// of 0 because its caller has none.
func TestNothingIsPlannedBelowAHopWithoutAGoodCall(t *testing.T) {
	var spans []tracegen.Span
	for i, s := range checkout(200, func(_ int, _, call *tracegen.Span) { call.Status = tracegen.StatusError }) {
		spans = append(spans, s)
		if i%2 == 1 {
			half, below := s, s
			half.ID, half.Parent, half.Service, half.Kind = [8]byte{3}, s.ID, "stock", tracegen.KindServer
			below.ID, below.Parent, below.Service, below.Name, below.Status = [8]byte{4}, [8]byte{3}, "stock", "query", tracegen.StatusOK
			below.Attrs = []tracegen.Attr{{Key: "db.system.name", Value: "pg"}}
			spans = append(spans, half, below)
		}
	}
	for _, h := range analyzeSpans(t, spans, "--budget", "100ms").Hops[1:] {
		if h.Share.Known || h.Cap.Known {
			t.Errorf("%s: share %v, cap %v; want none", h.Label, h.Share, h.Cap)
		}
	}
}

// TestWhatIsLeftOutDecidesNothing holds that the sampling threshold of a trace
// without an entry does not weigh the others.
func TestWhatIsLeftOutDecidesNothing(t *testing.T) {
	spans := checkout(200, func(int, *tracegen.Span, *tracegen.Span) {})
	stray := spans[1]
	stray.TraceID, stray.Parent, stray.TraceState = [16]byte{9}, [8]byte{7}, "ot=th:8"
	if e := analyzeSpans(t, append(spans, stray)); e.Traces != 200 {
		t.Errorf("%d requests analysed, want 200", e.Traces)
	}
}

// TestASuggestionCanBeAskedFor holds that the budget that is suggested is
// feasible when it is given.
func TestASuggestionCanBeAskedFor(t *testing.T) {
	stories, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, story := range stories {
		if info, err := os.Stat(story); err != nil || !info.IsDir() {
			continue
		}
		for _, e := range reportOf(t, story).Endpoints {
			if e.BudgetSource != "suggested" || e.Failed == e.Traces {
				continue
			}
			budget := time.Duration(e.Budget).String()
			again := reportOf(t, story, "--endpoint", e.Service+" "+e.Operation, "--budget", budget).Endpoints[0]
			if !e.Feasible || !again.Feasible {
				t.Errorf("%s: %s is suggested for %s: feasible %v, and when it is given %v", story, budget, e.Operation, e.Feasible, again.Feasible)
			}
		}
	}
}
