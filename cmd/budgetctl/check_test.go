package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/internal/goldentest"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

const plans = "cmd/budgetctl/testdata/plans/"

// TestChecks compares all that check prints, in every format and at two widths.
func TestChecks(t *testing.T) {
	for name, line := range map[string]string{
		"hand":    "check --plan " + plans + "dag-hand.yaml",
		"dag":     "check --plan " + plans + "dag-hand.yaml testdata/dag",
		"tight":   "check --plan " + plans + "orders-tight.yaml testdata/orders",
		"chinese": "check --plan " + plans + "chinese.yaml testdata/chinese --point",
		"stamped": "check --plan " + plans + "stamped.yaml testdata/stamped",
	} {
		for _, columns := range []string{"80", "200"} {
			t.Run(name+"-"+columns, func(t *testing.T) {
				t.Setenv("COLUMNS", columns)
				golden(t, "check-"+name+"-"+columns, budgetctl(t, "", words(line)...))
			})
		}
		for _, format := range []string{"json", "junit", "github"} {
			t.Run(name+"-"+format, func(t *testing.T) {
				golden(t, "check-"+name+"-"+format, budgetctl(t, "", append(words(line), "-o", format)...))
			})
		}
	}
	broken, err := filepath.Glob("analyzer/plan/testdata/broken/*.yaml")
	if err != nil || len(broken) == 0 {
		t.Fatalf("%d files, %v", len(broken), err)
	}
	var all strings.Builder
	for _, path := range broken {
		all.WriteString("$ budgetctl check --plan " + path + "\n" + budgetctl(t, "", "check", "--plan", path))
	}
	golden(t, "check-broken", all.String())
}

// TestAnalyzeFromPlans compares what analyze prints when it starts from plans that
// do not have all hops of the traces, or hops that the traces do not have.
func TestAnalyzeFromPlans(t *testing.T) {
	for name, line := range map[string]string{
		"hand":    "analyze --plan " + plans + "dag-hand.yaml testdata/dag",
		"tight":   "analyze --plan " + plans + "orders-tight.yaml testdata/orders",
		"chinese": "analyze --plan " + plans + "chinese.yaml testdata/chinese",
	} {
		for _, columns := range []string{"80", "200"} {
			t.Run(name+"-"+columns, func(t *testing.T) {
				t.Setenv("COLUMNS", columns)
				golden(t, "plan-"+name+"-"+columns, budgetctl(t, "", words(line)...))
			})
		}
	}
}

// TestNoPlanOfWhatCannotBePlanned: endpoints without a feasible budget are not in
// the file, and without any there is no file.
func TestNoPlanOfWhatCannotBePlanned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budgets.yaml")
	code, _, stderr := outcome(t, "", "analyze", "testdata/orders", "--budget", "1ms", "--write-plan", path)
	if _, err := os.Stat(path); code != exitFailed || !strings.Contains(stderr, "of no endpoint is there a plan") || err == nil {
		t.Errorf("exit %d, %v: %s", code, err, stderr)
	}
	code, _, stderr = outcome(t, "", "analyze", "testdata/orders", "testdata/dag", "--budget", "1ms", "--budget", "api*=100ms", "--write-plan", path)
	if code != exitOK || !strings.Contains(stderr, "gateway POST /orders is not in") || len(planOf(t, path).Endpoints) != 1 {
		t.Errorf("exit %d: %s", code, stderr)
	}
	before := planOf(t, path)
	code, stdout, stderr := outcome(t, "", "analyze", "testdata/orders", "testdata/dag", "--plan", path, "--budget", "1ms", "--write-plan", path)
	if code != exitOK || !strings.Contains(stderr, "api GET /report stays in "+path+" as it was") ||
		strings.Count(stdout, "the plan does not have this endpoint") != 1 {
		t.Errorf("exit %d: %s%s", code, stderr, stdout)
	}
	if diff := cmp.Diff(before.Endpoints, planOf(t, path).Endpoints); diff != "" {
		t.Error(diff)
	}
	code, _, stderr = outcome(t, "", "analyze", "testdata/dag", "--strategy", "critpath", "--write-plan", path)
	if code != exitUsage || !strings.Contains(stderr, "critpath") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestAPlanThatItsOwnRequestsMissIsSaid: check would be the first to tell, otherwise.
func TestAPlanThatItsOwnRequestsMissIsSaid(t *testing.T) {
	for budget, said := range map[string]bool{"430ms": true, "800ms": false, "1500ms": false} {
		path := filepath.Join(t.TempDir(), "budgets.yaml")
		_, _, stderr := outcome(t, "", "analyze", "testdata/orders", "--budget", budget, "--write-plan", path)
		code, _, why := outcome(t, "", "check", "--plan", path, "testdata/orders", "-o", "junit="+path+".xml")
		if strings.Contains(why, "the plan does not hold (failures: ") != (code == exitFindings) {
			t.Errorf("%s: check exits with %d, stderr %q", budget, code, why)
		}
		note := strings.Contains(stderr, "0.3 % of the requests of gateway POST /orders miss its budget of 430ms, and the gate allows 0.1%")
		if note != said || (code == exitFindings) != said {
			t.Errorf("%s: check exits with %d, stderr %q", budget, code, stderr)
		}
	}
}

// TestChecksSayHowManyRequestsFailed: of failed requests only that they were late
// counts, so that a plan may hold because nothing works.
func TestChecksSayHowManyRequestsFailed(t *testing.T) {
	dir := t.TempDir()
	save := func(name string, failing int) string {
		file := filepath.Join(dir, name)
		text := tracegen.AppendOTLPJSONLines(nil, checkout(200, func(i int, server, call *tracegen.Span) {
			if i < failing {
				server.Status, call.Status = tracegen.StatusError, tracegen.StatusError
			}
		}))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	path := filepath.Join(dir, "budgets.yaml")
	must(t, "analyze", save("good.jsonl", 0), "--budget", "20ms", "--write-plan", path)
	for _, c := range []struct {
		failing        int
		title, github  string
		unseen, notice bool
	}{
		{0, "200 requests\n", "", false, false},
		{50, "200 requests · 50 failed\n", "50 of 200 requests failed", false, true},
		{200, "200 requests · 200 failed\n", "200 of 200 requests failed", true, true},
	} {
		file := save("some.jsonl", c.failing)
		if out := must(t, "check", "--plan", path, file); !strings.Contains(out, c.title) || strings.Contains(out, "UNSEEN") != c.unseen {
			t.Errorf("%d failed:\n%s", c.failing, out)
		}
		out := must(t, "check", "--plan", path, file, "-o", "github")
		if !strings.Contains(out, c.github) || strings.Contains(out, "::notice") != c.notice ||
			strings.Contains(out, "without a good call in the traces, so not checked: stock Get") != c.unseen {
			t.Errorf("%d failed:\n%s", c.failing, out)
		}
		if r := checkOf(t, exitOK, "--plan", path, file); r.Checked[0].Failed != c.failing || r.Checked[0].Traces != 200 {
			t.Errorf("%d failed: %+v", c.failing, r.Checked[0])
		}
	}
}

// TestPlannedAttemptsHaveTheirPauses: a second attempt is planned where its pause
// fits in the share as well.
//
//	shop    |----------------------------| in one request of ten
//	stock    |---error|         |--------|
//	          30 ms     pause 30  30 ms
func TestPlannedAttemptsHaveTheirPauses(t *testing.T) {
	dir := t.TempDir()
	var spans []tracegen.Span
	for i, s := range checkout(1000, func(i int, server, call *tracegen.Span) {
		server.End, call.End = server.Start+32e6, call.Start+30e6
		if i%10 == 0 {
			server.End, call.Status = server.Start+92e6, tracegen.StatusError
		}
	}) {
		spans = append(spans, s)
		if i%20 == 1 {
			again := s
			again.ID[1], again.Status = 1, tracegen.StatusUnset
			again.Start, again.End = s.End+30e6, s.End+60e6
			spans = append(spans, again)
		}
	}
	file := filepath.Join(dir, "traces.jsonl")
	if err := os.WriteFile(file, tracegen.AppendOTLPJSONLines(nil, spans), 0o600); err != nil {
		t.Fatal(err)
	}
	for budget, want := range map[string]plan.Hop{
		"80ms":  {MaxAttempts: 0, Backoff: 0},
		"150ms": {MaxAttempts: 2, Backoff: plan.Duration(30 * time.Millisecond)},
	} {
		path := filepath.Join(dir, budget+".yaml")
		must(t, "analyze", file, "--budget", budget, "--write-plan", path)
		h := planOf(t, path).Endpoints[0].Hops[0]
		if h.AttemptTimeout < plan.Duration(30*time.Millisecond) || h.MaxAttempts != want.MaxAttempts || h.Backoff != want.Backoff {
			t.Errorf("%s: share %v, %d attempts of %v with pauses of %v; want %d, %v",
				budget, h.Share, h.MaxAttempts, h.AttemptTimeout, h.Backoff, want.MaxAttempts, want.Backoff)
		}
	}
}

// TestCriticalPathIsNoPlan: nor is it where a plan says that it was made so.
func TestCriticalPathIsNoPlan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budgets.yaml")
	must(t, "analyze", "testdata/orders", "--budget", "800ms", "--write-plan", path)
	made, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := bytes.Replace(made, []byte("strategy: p99prop"), []byte("strategy: critpath"), 1)
	if err := os.WriteFile(path, edited, 0o600); err != nil || bytes.Equal(made, edited) {
		t.Fatal(err)
	}
	must(t, "analyze", "testdata/orders", "--plan", path, "--write-plan", path)
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(made, again) {
		t.Errorf("%v:\n%s", err, again)
	}
}

// TestDeepCallsHaveATableAndNoPlan: a file of them would grow with the square of
// their depth.
//
//	s0 |------------------|
//	s1  |----------------|
//	s2   |--------------|    and so on
func TestDeepCallsHaveATableAndNoPlan(t *testing.T) {
	dir := t.TempDir()
	nested := func(depth int) string {
		var spans []tracegen.Span
		for i := range depth + 1 {
			s := tracegen.Span{TraceID: [16]byte{1}, Service: fmt.Sprint("s", i), Name: "op", Kind: tracegen.KindServer}
			binary.BigEndian.PutUint64(s.ID[:], uint64(i+1))
			binary.BigEndian.PutUint64(s.Parent[:], uint64(i))
			s.Start, s.End = 1e18+int64(i)*1e5, 1e18+int64(2*depth-i+1)*1e5
			spans = append(spans, s)
		}
		file := filepath.Join(dir, fmt.Sprint(depth, ".jsonl"))
		if err := os.WriteFile(file, tracegen.AppendOTLPJSONLines(nil, spans), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file, path := nested(plan.MaxDepth), filepath.Join(dir, "budgets.yaml")
	must(t, "analyze", file, "--max-hops", "1000", "--write-plan", path)
	must(t, "check", "--plan", path, file, "--max-hops", "1000")
	file = nested(plan.MaxDepth + 1)
	out := must(t, "analyze", file, "--max-hops", "1000")
	code, _, stderr := outcome(t, "", "analyze", file, "--max-hops", "1000", "--write-plan", path)
	if !strings.Contains(out, "no plan file can hold them") || code != exitFailed || !strings.Contains(stderr, "of no endpoint is there a plan") {
		t.Errorf("exit %d: %s%s", code, stderr, out)
	}
	must(t, "analyze", nested(3000), "--max-hops", "10000")
}

// TestCheckFlags is about command lines that make no sense.
func TestCheckFlags(t *testing.T) {
	hand := plans + "dag-hand.yaml"
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"check testdata/dag", exitUsage, "check needs --plan FILE"},
		{"check --plan none.yaml", exitFailed, "none.yaml: no such file"},
		{"check --plan " + hand + " -o csv", exitUsage, "want one of table, json, junit, github"},
		{"check --plan " + hand + " --endpoint 'x*'", exitUsage, `there are "api GET /report"`},
		{"check --plan " + hand + " --max-hops 0", exitUsage, "--max-hops 0"},
		{"check --plan " + hand + " testdata/none", exitFailed, "testdata/none"},
		{"check --plan " + hand + " testdata/orders", exitFailed, `the plan is about "api GET /report", the traces about "gateway POST /orders"`},
		{"analyze testdata/dag --revision x", exitUsage, "--write-plan"},
		{"analyze testdata/dag --plan " + hand + " --current 'a*=3ms'", exitUsage, "use one"},
		{"analyze testdata/dag --plan analyzer/plan/testdata/broken/units.yaml", exitFailed, "units.yaml:11: budget: 300 has no unit"},
	} {
		code, _, stderr := outcome(t, "", words(c.line)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, %q; want %d, %q", c.line, code, stderr, c.code, c.want)
		}
	}
}

// checkOf checks and reads the JSON result back.
func checkOf(t *testing.T, want int, args ...string) *analyzer.CheckReport {
	t.Helper()
	code, stdout, stderr := outcome(t, "", append([]string{"check", "-o", "json"}, args...)...)
	if code != want {
		t.Errorf("exit %d, want %d: %s", code, want, stderr)
	}
	var r analyzer.CheckReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func planOf(t *testing.T, path string) *plan.Plan {
	t.Helper()
	p, err := readPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func save(t *testing.T, path string, p *plan.Plan) {
	t.Helper()
	var b bytes.Buffer
	if err := plan.Write(&b, p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := outcome(t, "", args...)
	if code != exitOK {
		t.Fatalf("%v: exit %d: %s", args, code, stderr)
	}
	return stdout
}

// TestPlanRoundTrip goes from traces to a plan, edits it, holds the traces to it,
// and starts from it again.
func TestPlanRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budgets.yaml")
	must(t, "analyze", "testdata/orders", "--budget", "800ms", "--write-plan", path)
	made, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan-orders", string(made))
	if r := checkOf(t, exitOK, "--plan", path, "testdata/orders"); !r.Passed {
		t.Errorf("the traces do not keep the plan that they made: %+v", r.Failures)
	}

	// The same traces have nothing to change.
	again := filepath.Join(t.TempDir(), "again.yaml")
	must(t, "analyze", "testdata/orders", "--plan", path, "--write-plan", again)
	if text, err := os.ReadFile(again); err != nil || !bytes.Equal(text, made) {
		t.Errorf("%v, a plan that starts from itself differs:\n%s", err, cmp.Diff(string(made), string(text)))
	}

	// What people set stays, what was made is made anew.
	p := planOf(t, path)
	hops := p.Endpoints[0].Hops
	risk := &hops[3]
	risk.Share, risk.Floor, risk.MaxQueue, risk.Degradable, risk.Max = risk.Share-20*ms, 50*ms, 30*ms, true, 340*ms
	risk.Cap, risk.MaxAttempts, risk.AttemptTimeout, risk.Backoff = 330*ms, 2, 120*ms, 10*ms
	p.Gate.DeadlineMiss.Off = true
	p.Endpoints[0].Reserve, p.Revision = 20*ms, "by hand"
	save(t, path, p)
	must(t, "analyze", "testdata/orders", "--plan", path, "--write-plan", path, "--revision", "r2")
	next := planOf(t, path)
	got := next.Endpoints[0].Hops[3]
	if next.Revision != "r2" || !next.Gate.DeadlineMiss.Off || next.Endpoints[0].Reserve != 20*ms || next.Endpoints[0].Budget != 800*ms {
		t.Errorf("revision %q, gate %+v, reserve %v", next.Revision, next.Gate, next.Endpoints[0].Reserve)
	}
	if got.Floor != 50*ms || got.MaxQueue != 30*ms || !got.Degradable || got.Max != 340*ms || got.Cap > 340*ms ||
		got.MaxAttempts != 2 || got.AttemptTimeout != 120*ms || got.Backoff != 10*ms {
		t.Errorf("of what was set by hand remains %+v", got)
	}
	if got.Share == risk.Share || next.Endpoints[0].Hops[0].Floor != hops[0].Floor {
		t.Errorf("the share is still %v", got.Share)
	}

	// A plan that was not started from is not overwritten.
	code, _, stderr := outcome(t, "", "analyze", "testdata/orders", "--write-plan", path)
	if code != exitFailed || !strings.Contains(stderr, "--plan "+path) || !cmp.Equal(planOf(t, path), next) {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

const ms = plan.Duration(1e6)

// TestPlanOfAll: the traces of every story keep the plan that they make, or lack
// the budget for it, and the plan obeys the schema.
func TestPlanOfAll(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("docs/plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	stories, err := filepath.Glob("testdata/*/trace.*")
	if err != nil {
		t.Fatal(err)
	}
	planned := 0
	for _, story := range stories {
		path := filepath.Join(t.TempDir(), "budgets.yaml")
		if code, _, stderr := outcome(t, "", "analyze", story, "--budget", "5s", "--write-plan", path); code != exitOK {
			if !strings.Contains(stderr, "no endpoint has a budget") {
				t.Errorf("%s: exit %d: %s", story, code, stderr)
			}
			continue
		}
		planned++
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(goldentest.YAML(t, text)); err != nil {
			t.Errorf("%s: %v", story, err)
		}
		again := filepath.Join(t.TempDir(), "again.yaml")
		must(t, "analyze", story, "--plan", path, "--write-plan", again)
		if a, b := planOf(t, path), planOf(t, again); !cmp.Equal(a, b) {
			t.Errorf("%s: a plan that starts from itself differs:\n%s", story, cmp.Diff(a, b))
		}
		name := filepath.Base(filepath.Dir(story))
		if r := checkOf(t, breaksTheGate[name], "--plan", path, story); !r.Passed {
			for _, f := range r.Failures {
				if !gateKeys[f.Name] {
					t.Errorf("%s: %s: %s", name, f.Name, f.Text)
				}
			}
		}
	}
	if planned < 10 {
		t.Errorf("%d plans were made", planned)
	}
}

// breaksTheGate are the stories in which requests do what no gate allows.
var breaksTheGate = map[string]int{
	"deadline-reset": exitFindings, "stamped": exitFindings,
}

var gateKeys = map[string]bool{
	"expansions": true, "calls_after_deadline": true, "stop_after_cancel_p99": true, "deadline_miss": true,
}

// TestCheckFormatsAgree: every failure is in each of the formats.
func TestCheckFormatsAgree(t *testing.T) {
	args := []string{"--plan", plans + "orders-tight.yaml", "testdata/orders"}
	r := checkOf(t, exitFindings, args...)
	if len(r.Failures) == 0 {
		t.Fatal("nothing fails")
	}
	_, table, _ := outcome(t, "", append([]string{"check"}, args...)...)
	_, github, _ := outcome(t, "", append([]string{"check", "-o", "github"}, args...)...)
	_, junit, _ := outcome(t, "", append([]string{"check", "-o", "junit"}, args...)...)
	table = strings.Join(strings.Fields(table), " ")
	var suites struct {
		Failures int `xml:"failures,attr"`
		Messages []struct {
			Message string `xml:"message,attr"`
		} `xml:"testsuite>testcase>failure"`
	}
	if err := xml.NewDecoder(strings.NewReader(junit)).Decode(&suites); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Failures); suites.Failures != n || len(suites.Messages) != n || strings.Count(github, "::error ") != n {
		t.Errorf("%d failures, in JUnit %d, in GitHub's form:\n%s", n, suites.Failures, github)
	}
	for i, f := range r.Failures {
		if !strings.Contains(table, f.Text) || !strings.Contains(github, strings.ReplaceAll(f.Text, "%", "%25")) {
			t.Errorf("%q is missing in the table or in GitHub's form", f.Text)
		}
		if i < len(suites.Messages) && suites.Messages[i].Message != f.Text {
			t.Errorf("JUnit says %q, want %q", suites.Messages[i].Message, f.Text)
		}
	}
}

// TestChecksObeyTheSchema validates the JSON results that are compared above.
func TestChecksObeyTheSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("docs/check.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("cmd/budgetctl/testdata/check-*-json.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, stdout, _ := strings.Cut(string(text), "-- stdout --\n")
		stdout, _, _ = strings.Cut(stdout, "-- stderr --\n")
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestCheckOfAProfile: a profile that lost nothing gives the result of its traces.
func TestCheckOfAProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orders.profile")
	if code, _, stderr := outcome(t, "", "profile", "testdata/orders", "-o", file); code != exitOK {
		t.Fatal(stderr)
	}
	want := checkOf(t, exitFindings, "--plan", plans+"orders-tight.yaml", "testdata/orders")
	got := checkOf(t, exitFindings, "--plan", plans+"orders-tight.yaml", file)
	want.Input.Files, got.Input.Files = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-traces +profile):\n%s", diff)
	}
}
