package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const dashboards = "../../dashboards"

// tools returns a system of the real programs. They are where `make e2e` built
// them; where it did not, the test is skipped.
func tools(t *testing.T) System {
	t.Helper()
	collector := os.Getenv("LATENCYBUDGET_COLLECTOR")
	if collector == "" {
		t.Skip("LATENCYBUDGET_COLLECTOR names no Collector: `make e2e` builds one and runs this test")
	}
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("prometheus is not on PATH; Debian has it in the package prometheus")
	}
	bin := t.TempDir()
	for _, program := range []string{"examples/orders", "cmd/budgetctl"} {
		out, err := exec.Command("go", "build", "-o", bin, "../../"+program).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return System{
		Collector: collector, Prometheus: prometheus, Config: dashboards, Plan: "budgets.yaml", Histograms: "native",
		Orders: filepath.Join(bin, "orders"), Budgetctl: filepath.Join(bin, "budgetctl"),
	}
}

// start starts a system that ends with the test.
func start(t *testing.T, s *System) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// byKey names samples by the hop labels, in the order of span.key.
func byKey(samples []sample, labels ...string) map[string]float64 {
	out := map[string]float64{}
	for _, s := range samples {
		var parts []string
		for _, l := range labels {
			parts = append(parts, s.Metric[labelOf(l)])
		}
		out[strings.Join(parts, "|")] = s.number()
	}
	return out
}

func labelOf(name string) string {
	if name == "dependency" || name == "le" {
		return name
	}
	return "latency_budget_" + name
}

// query is one of a dashboard.
type query struct {
	board, panel, ref, expr string
}

// queries reads those of the committed dashboards.
func queries(t *testing.T) []query {
	t.Helper()
	var all []query
	for _, name := range []string{"overview", "hop"} {
		text, err := os.ReadFile(filepath.Join(dashboards, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Panels []struct {
				Title   string `json:"title"`
				Targets []struct {
					Expr  string `json:"expr"`
					RefID string `json:"refId"`
				} `json:"targets"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		for _, p := range board.Panels {
			for _, q := range p.Targets {
				all = append(all, query{name, p.Title, q.RefID, q.Expr})
			}
		}
	}
	return all
}

// filled is a query with its variables as Grafana would fill them: everything is
// chosen, and the range is one of the test.
func (q query) filled(window time.Duration) string {
	length := strconv.FormatInt(window.Milliseconds(), 10) + "ms"
	return strings.NewReplacer(
		"$__rate_interval", length, "$__range", length, "$service", ".+", "$endpoint", ".+", "$hop", ".+",
	).Replace(q.expr)
}

// replay sends the spans of files to an address again, and waits until they have
// arrived in systems.
func replay(t *testing.T, address string, to []*System, files ...string) {
	t.Helper()
	before := make([]float64, len(to))
	for i, s := range to {
		var err error
		if before[i], err = s.total(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			resp, err := http.Post("http://"+address+"/v1/traces", "application/json", bytes.NewReader(lines.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("the Collector answers %s", resp.Status)
			}
		}
		_ = f.Close()
	}
	for i, s := range to {
		if err := s.settle(t.Context(), before[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// more are phases for what the demo does not show: faults planted in a number
// that is known.
var more = []Phase{
	{Name: "resets", Args: []string{"-fault", "proxy=payment:15s", "-requests", "40", "-rate", "40"}},
	{Name: "retries", Args: []string{"-fault", "fail=persist@0.3", "-fault", "retry=persist", "-requests", "80", "-rate", "40"}},
}

const plantedResets = 40

// fires is in which phases an alert must fire, and in no other.
var fires = map[string][]string{
	"LatencyBudgetUtilizationHigh":    {"fixed 3 s", "800 ms, propagated"},
	"LatencyBudgetDeadlineReset":      {"fixed 3 s", "resets"},
	"LatencyBudgetDeadlineExceededUp": {"fixed 3 s", "800 ms, propagated"},
	"LatencyBudgetRetries":            {"retries"},
	"LatencyBudgetPlanViolated":       {"fixed 3 s", "800 ms, propagated"},
}

func TestEverythingShownIsWhatTheLoadDid(t *testing.T) {
	s := tools(t)
	start(t, &s)
	dir := t.TempDir()
	var seen []Seen
	var files []string
	warm := Phase{Name: "warm-up", Args: []string{"-requests", "10"}}
	for i, p := range slices.Concat([]Phase{warm}, phases, more) {
		one, err := s.Run(t.Context(), p, filepath.Join(dir, strconv.Itoa(i)+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, one)
		files = append(files, one.Spans)
	}
	end := seen[len(seen)-1].End
	shown := readSpans(t, files[1:]...)
	all := readSpans(t, files...)

	t.Run("counters are exact", func(t *testing.T) { exact(t, &s, end, all) })
	t.Run("planted resets", func(t *testing.T) {
		phase := phaseOf(t, seen, "resets")
		const resets = `sum(latency_budget_findings_total{latency_budget_flag="deadline_extended"}`
		got, err := s.ask(t.Context(), fmt.Sprintf("%s) - %s offset %dms)", resets, resets, phase.End.Sub(phase.Start).Milliseconds()), phase.End)
		if err != nil || len(got) != 1 || got[0].number() != plantedResets {
			t.Errorf("%v, %v: want %d", got, err, plantedResets)
		}
	})
	t.Run("the processor and budgetctl find the same", func(t *testing.T) { agree(t, seen, all) })
	t.Run("alerts", func(t *testing.T) { alerts(t, &s, seen) })

	// A rate begins with the second value of a series. So that all of the spans are in
	// those of the panels, they are sent once more, and the panels show that time.
	t.Run("panels", func(t *testing.T) {
		from := time.Now()
		replay(t, s.OTLP, []*System{&s}, files[1:]...)
		now := time.Now()
		panels(t, &s, now, now.Sub(from), shown)
	})
	t.Run("classic buckets", func(t *testing.T) {
		classic := tools(t)
		classic.Histograms = "classic"
		start(t, &classic)
		replay(t, classic.OTLP, []*System{&classic}, files...)
		from := time.Now()
		exact(t, &classic, from, all)
		edges(t, &classic, from, all)
		replay(t, classic.OTLP, []*System{&classic}, files[1:]...)
		now := time.Now()
		panels(t, &classic, now, now.Sub(from), shown)
		exemplars(t, &classic, from.Add(-time.Minute), now, all)
	})
	t.Run("two Collectors", func(t *testing.T) { twoTiers(t, files, all) })
}

func phaseOf(t *testing.T, seen []Seen, name string) Seen {
	t.Helper()
	for _, s := range seen {
		if s.Phase.Name == name {
			return s
		}
	}
	t.Fatalf("no phase %q", name)
	return Seen{}
}

// counters are what every counter must say, exactly.
func counters(spans []span) map[string]map[string]float64 {
	hop := []string{"caller", "callee", "operation"}
	return map[string]map[string]float64{
		"latency_budget_findings_total flag,caller,callee,operation": tally(spans, func(s span) (keys []string) {
			for _, f := range s.list("findings") {
				if s.judged() {
					keys = append(keys, f+"|"+s.key(hop...))
				}
			}
			return keys
		}),
		"latency_budget_deadline_exceeded_calls_total caller,callee,operation": tally(spans, func(s span) []string {
			if s.counts() && s.timedOut() {
				return []string{s.key(hop...)}
			}
			return nil
		}),
		"latency_budget_attempts_total attempt,caller,callee,operation": tally(spans, func(s span) []string {
			if !s.judged() || s.kind != client {
				return nil
			}
			n, ok := s.number("attempt")
			if !ok {
				n = 1
			}
			return []string{strconv.Itoa(int(n)) + "|" + s.key(hop...)}
		}),
		"latency_budget_degraded_calls_total degraded,callee": tally(spans, func(s span) []string {
			if list := s.list("degraded"); s.judged() && s.kind == server && list != nil {
				text, _ := json.Marshal(list)
				return []string{string(text) + "|" + s.text("callee")}
			}
			return nil
		}),
		"latency_budget_plan_excess_calls_total caller,callee,operation": tally(spans, func(s span) []string {
			if s.overPlan() {
				return []string{s.key(hop...)}
			}
			return nil
		}),
		"latency_budget_calls_total caller,callee,operation": tally(spans, func(s span) []string {
			if s.judged() {
				return []string{s.key(hop...)}
			}
			return nil
		}),
	}
}

// exact compares the counters of Prometheus with the spans.
func exact(t *testing.T, s *System, at time.Time, spans []span) {
	for name, want := range counters(spans) {
		metric, labels, _ := strings.Cut(name, " ")
		list := strings.Split(labels, ",")
		var by []string
		for _, l := range list {
			by = append(by, labelOf(l))
		}
		got, err := s.ask(t.Context(), fmt.Sprintf("sum by (%s) (%s{latency_budget_callee!=\"\"})", strings.Join(by, ","), metric), at)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, metric, byKey(got, list...), want)
	}
}

// compare wants equal counts.
func compare(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	if len(want) == 0 {
		t.Errorf("%s: the load has none, so nothing is tested", what)
	}
	for _, k := range keysOf(want) {
		if got[k] != want[k] {
			t.Errorf("%s %s is %v, want %v", what, k, got[k], want[k])
		}
	}
	for _, k := range keysOf(got) {
		if _, ok := want[k]; !ok {
			t.Errorf("%s %s is %v, want nothing", what, k, got[k])
		}
	}
}

// flagOf are the flags of the rules of budgetctl that the processor has too and
// that the plan does not change.
var flagOf = map[string]string{
	"deadline-reset": "deadline_extended", "budget-overrun": "overrun", "exhausted-at-start": "exhausted_at_start",
	"call-after-deadline": "call_after_deadline",
	"work-after-deadline": "work_after_deadline",
}

// agree compares what the processor found with what budgetctl found in the same
// spans.
func agree(t *testing.T, seen []Seen, all []span) {
	found, want := map[string]float64{}, map[string]float64{}
	for _, one := range seen {
		for _, r := range one.Rules {
			if flag := flagOf[r.Rule]; flag != "" {
				want[flag] += float64(r.Count)
			}
			if r.Rule == "deadline-exceeded" {
				want[r.Rule] += float64(r.Count)
			}
		}
	}
	for _, span := range all {
		// Of this rule there is no flag, but a counter.
		if span.counts() && span.timedOut() {
			found["deadline-exceeded"]++
		}
		for _, f := range span.list("findings") {
			if slices.Contains(keysOf(want), f) {
				found[f]++
			}
		}
	}
	compare(t, "finding", found, want)
}

// edges checks that shares over 0.8 and 1 need no interpolation.
func edges(t *testing.T, s *System, at time.Time, spans []span) {
	hop := []string{"caller", "callee", "operation"}
	used := observe(spans, hop, func(s span) (float64, bool) {
		v, ok := s.number("utilization")
		return v, ok && s.counts()
	})
	for le, edge := range map[string]float64{"0.8": 0.8, "1([.]0)?": 1} {
		want := map[string]float64{}
		for k, values := range used {
			for _, v := range values {
				if v <= edge {
					want[k]++
				}
			}
		}
		got, err := s.ask(t.Context(), `sum by (latency_budget_caller, latency_budget_callee, latency_budget_operation) (latency_budget_utilization_bucket{le=~"`+le+`"})`, at)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "utilization up to "+le, byKey(got, hop...), want)
	}
}

// exemplars leads from the durations of a hop to traces that exist.
func exemplars(t *testing.T, s *System, from, to time.Time, spans []span) {
	var series []struct {
		Exemplars []struct {
			Labels map[string]string `json:"labels"`
		} `json:"exemplars"`
	}
	unix := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	err := s.get(t.Context(), "/api/v1/query_exemplars", url.Values{
		"query": {`latency_budget_duration_seconds_bucket{latency_budget_callee="risk"}`}, "start": {unix(from)}, "end": {unix(to)},
	}, &series)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, span := range spans {
		known[span.trace] = true
	}
	n := 0
	for _, one := range series {
		for _, e := range one.Exemplars {
			n++
			if !known[e.Labels["trace_id"]] {
				t.Errorf("an exemplar leads to the trace %q, which is none", e.Labels["trace_id"])
			}
		}
	}
	if n == 0 {
		t.Error("no exemplars at the durations of risk")
	}
}

// alerts evaluates every alert at the end of every phase, with its ranges as long
// as the phase, and that of the time before as long as there is one. How long it
// must hold is tested by promtool.
func alerts(t *testing.T, s *System, seen []Seen) {
	var data struct {
		Groups []struct {
			Rules []struct {
				Type   string `json:"type"`
				Name   string `json:"name"`
				Query  string `json:"query"`
				Health string `json:"health"`
				Err    string `json:"lastError"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := s.get(t.Context(), "/api/v1/rules", nil, &data); err != nil {
		t.Fatal(err)
	}
	ranges := regexp.MustCompile(`(\[|offset )(5m|10m|1h)`)
	tested := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s is %s: %s", r.Name, r.Health, r.Err)
			}
			if r.Type == "recording" { // of the plan
				continue
			}
			want, known := fires[r.Name]
			if !known {
				t.Errorf("nobody says when %s must fire", r.Name)
				continue
			}
			tested++
			for i, phase := range seen[1:] {
				length := phase.End.Sub(phase.Start).Milliseconds()
				before := phase.Start.Sub(seen[0].Start).Milliseconds()
				expr := ranges.ReplaceAllStringFunc(r.Query, func(text string) string {
					m := ranges.FindStringSubmatch(text)
					if m[2] == "1h" {
						return fmt.Sprintf("%s%dms", m[1], before)
					}
					return fmt.Sprintf("%s%dms", m[1], length)
				})
				got, err := s.ask(t.Context(), expr, phase.End)
				if err != nil {
					t.Fatalf("%s: %v\n%s", r.Name, err, expr)
				}
				if fired := len(got) > 0; fired != slices.Contains(want, phase.Phase.Name) {
					t.Errorf("%s in phase %d, %s: fired %t: %v", r.Name, i+1, phase.Phase.Name, fired, got)
				}
			}
		}
	}
	if tested != len(fires) {
		t.Errorf("%d alerts are loaded, want %d", tested, len(fires))
	}
}

// twoTiers sends the same spans through a tier that spreads them over two
// Collectors by trace, and wants the same totals.
func twoTiers(t *testing.T, files []string, all []span) {
	tier := os.Getenv("LATENCYBUDGET_FIRST_TIER")
	if tier == "" {
		t.Skip("LATENCYBUDGET_FIRST_TIER names no Collector: `make e2e` builds one and runs this test")
	}
	two := [2]System{tools(t), tools(t)}
	for i := range two {
		start(t, &two[i])
	}
	ports, err := freePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "tier.yaml")
	text := fmt.Sprintf(`
extensions: {health_check: {endpoint: "127.0.0.1:%s"}}
receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:%s"}, http: {endpoint: "127.0.0.1:%s"}}}}
exporters:
  load_balancing:
    routing_key: traceID
    protocol: {otlp: {tls: {insecure: true}}}
    resolver: {static: {hostnames: [%q, %q]}}
service:
  extensions: [health_check]
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [load_balancing]}}
`, ports[0], ports[1], ports[2], two[0].GRPC, two[1].GRPC)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	front := System{dir: t.TempDir()}
	t.Cleanup(func() {
		if err := front.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := front.start(t.Context(), "the first tier", tier, nil, "--config", config); err != nil {
		t.Fatal(err)
	}
	if err := front.until(t.Context(), "http://127.0.0.1:"+ports[0]); err != nil {
		t.Fatal(err)
	}
	replay(t, "127.0.0.1:"+ports[2], []*System{&two[0], &two[1]}, files...)
	now := time.Now()
	for name, want := range counters(all) {
		metric, labels, _ := strings.Cut(name, " ")
		list := strings.Split(labels, ",")
		sum := map[string]float64{}
		for i := range two {
			got, err := two[i].ask(t.Context(), metric+`{latency_budget_callee!=""}`, now)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				t.Errorf("Collector %d has no %s", i+1, metric)
			}
			for _, one := range got {
				for k, v := range byKey([]sample{one}, list...) {
					sum[k] += v
				}
			}
		}
		compare(t, metric+" of both", sum, want)
	}
}

// leftIn lists what is in a folder.
func leftIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// An interrupt ends the load, the Collector and Prometheus, and leaves no file.
func TestAnInterruptLeavesNothingBehind(t *testing.T) {
	s := tools(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(3*time.Second, cancel)
	var out bytes.Buffer
	if err := demo(ctx, &s, "", false, &out); err == nil {
		t.Error("an interrupted demo says that all is well")
	}
	if left := leftIn(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	for _, address := range []string{s.OTLP, s.Web} {
		if _, err := http.Get("http://" + address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s still answers: %v", address, err)
		}
	}
}

// Services that restart all the time, put ids into the names of their spans, or
// make up names without end, get no more series than hops are named. All calls are
// counted.
func TestNamesAreBounded(t *testing.T) {
	const requests, named = 3000, 1000 // named: max_hops of the processor
	s := tools(t)
	start(t, &s)
	// Letters only, for what looks like an id is folded.
	word := func(i int) string {
		return string([]byte{'a' + byte(i/676%26), 'a' + byte(i/26%26), 'a' + byte(i%26)}) + "ing"
	}
	var lines bytes.Buffer
	now := time.Now().UnixNano()
	for i := range 2 * requests {
		service, name := "users", fmt.Sprintf("GET /users/%[1]d?sessionId=%[1]d", i)
		if i%2 == 1 {
			service, name = "words", word(i/2)
		}
		fmt.Fprintf(&lines, `{"resourceSpans":[{"resource":{"attributes":[`+
			`{"key":"service.name","value":{"stringValue":%[5]q}},{"key":"service.instance.id","value":{"stringValue":"pod-%[1]d"}}]},`+
			`"scopeSpans":[{"spans":[{"traceId":"%032[2]x","spanId":"%016[2]x","kind":2,"name":%[6]q,`+
			`"startTimeUnixNano":"%[3]d","endTimeUnixNano":"%[4]d","attributes":[`+
			`{"key":"latency_budget.limit","value":{"doubleValue":0.5}},{"key":"latency_budget.remaining.start","value":{"doubleValue":0.5}}]}]}]}]}`+"\n",
			i, i+1, now, now+int64(time.Millisecond), service, name)
	}
	file := filepath.Join(t.TempDir(), "names.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	replay(t, s.OTLP, []*System{&s}, file)
	for expr, want := range map[string]float64{
		`count(latency_budget_calls_total{latency_budget_callee="users"})`:                 1,
		`sum(latency_budget_calls_total{latency_budget_callee="users"})`:                   requests,
		`count(latency_budget_calls_total{latency_budget_callee=~"words|_other"})`:         named, // with _other, as one name is that of users
		`count(latency_budget_utilization{latency_budget_callee=~"words|_other"})`:         named,
		`sum(latency_budget_calls_total{latency_budget_callee=~"words|_other"})`:           requests,
		`sum(latency_budget_calls_total{latency_budget_operation="_other"})`:               requests - (named - 1),
		`histogram_count(sum(latency_budget_utilization{latency_budget_callee="_other"}))`: requests - (named - 1),
	} {
		got, err := s.ask(t.Context(), expr, time.Now())
		if err != nil || len(got) != 1 || got[0].number() != want {
			t.Errorf("%s is %v, want %v (%v)", expr, got, want, err)
		}
	}
}
