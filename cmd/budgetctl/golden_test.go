package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/internal/goldentest"
)

// TestMain runs the commands of all tests in the repository's root, where the
// examples of README and help texts are meant to run, without a terminal.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Unsetenv("COLUMNS"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// budgetctl runs a command line and returns all that it does, as one text.
func budgetctl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, stdout, stderr := outcome(t, stdin, args...)
	return fmt.Sprintf("exit %d\n-- stdout --\n%s-- stderr --\n%s", code, stdout, stderr)
}

func outcome(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &err)
	return code, out.String(), err.String()
}

// golden compares got with cmd/budgetctl/testdata/name.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	goldentest.Compare(t, filepath.Join("cmd", "budgetctl", "testdata", name+".golden"), got)
}

// words splits a command line like a shell does, with 'quotes' alone.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quoted, open := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, open = !quoted, true
		case r == ' ' && !quoted:
			if open {
				out = append(out, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if open {
		out = append(out, word.String())
	}
	return out
}

// TestStories runs every folder of testdata with no flags, and some with flags,
// at both widths, and compares all that is printed.
func TestStories(t *testing.T) {
	folders, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if !f.IsDir() || f.Name() == "formats" {
			continue
		}
		for _, columns := range []string{"80", "120"} {
			name := "story-" + f.Name() + "-" + columns
			t.Run(name, func(t *testing.T) {
				t.Setenv("COLUMNS", columns)
				golden(t, name, budgetctl(t, "", "analyze", "testdata/"+f.Name()))
			})
		}
	}
	flags := map[string]string{
		"orders-800ms":      "analyze testdata/orders --budget 800ms",
		"orders-json":       "analyze testdata/orders --budget 800ms -o json",
		"orders-markdown":   "analyze testdata/orders --budget 800ms -o markdown",
		"orders-csv":        "analyze testdata/orders --budget 800ms -o csv",
		"orders-equal":      "analyze testdata/orders --budget 800ms --strategy equal",
		"orders-infeasible": "analyze testdata/orders --budget 60ms",
		"orders-p90":        "analyze testdata/orders --budget 800ms --percentile 90",
		"orders-caps":       "analyze testdata/orders --budget 800ms --cap 'auth*=5%' --floor 'risk*=200ms' --reserve 20ms",
		"orders-now": "analyze testdata/orders --budget 800ms --current auth=40ms --current inventory=200ms" +
			" --current coupon=160ms --current risk=240ms --current persist=160ms",
		"orders-replay":     "analyze testdata/orders --budget 800ms --replay --degradable 'coupon*' --incident 'risk*=slow 400ms..4s @10%'",
		"orders-replay-csv": "analyze testdata/orders --budget 800ms --replay -o csv --incident 'risk*=slow 400ms..4s @10%'",
		"orders-endpoint":   "analyze testdata/orders --endpoint 'risk *'",
		"dag-100ms":         "analyze testdata/dag --budget 100ms",
		"tiny-50ms":         "analyze testdata/tiny --budget 50ms --ascii",
		"steps":             "analyze testdata/no-kinds --steps",
	}
	for name, line := range flags {
		t.Run(name, func(t *testing.T) { golden(t, name, budgetctl(t, "", words(line)...)) })
	}
}

// TestErrors holds the exit code and the one line on stderr of what goes wrong.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, garbage := file("empty.json", ""), file("garbage.json", "hello")
	orders := "testdata/orders"
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		stderr      []string
		stdout      bool
	}{
		{name: "no input", args: []string{"analyze"}, code: exitUsage, stderr: []string{"needs an INPUT"}},
		{name: "no such command", args: []string{"analyse", orders}, code: exitUsage, stderr: []string{`unknown command "analyse"`}},
		{name: "no such flag", args: []string{"analyze", orders, "--bugdet", "1s"}, code: exitUsage, stderr: []string{"--bugdet"}},
		{name: "no such file", args: []string{"analyze", "nowhere.json"}, code: exitFailed, stderr: []string{"nowhere.json"}},
		{name: "empty file", args: []string{"analyze", empty}, code: exitFailed, stderr: []string{"empty.json"}},
		{name: "no traces", args: []string{"analyze", garbage}, code: exitFailed, stderr: []string{"garbage.json"}},
		{name: "empty stdin", args: []string{"analyze", "-"}, code: exitFailed, stderr: []string{"-"}},
		{name: "one of two", args: []string{"analyze", empty, orders}, code: exitFailed, stderr: []string{"empty.json"}, stdout: true},
		{name: "bad budget", args: []string{"analyze", orders, "--budget", "800"}, code: exitUsage, stderr: []string{"--budget", `"800"`, "800ms"}},
		{name: "bad budget 0", args: []string{"analyze", orders, "--budget", "0s"}, code: exitUsage, stderr: []string{"more than 0"}},
		{name: "bad cap", args: []string{"analyze", orders, "--cap", "40ms"}, code: exitUsage, stderr: []string{"--cap", "hop="}},
		{name: "no such hop", args: []string{"analyze", orders, "--cap", "nobody=40ms"}, code: exitUsage, stderr: []string{`"nobody"`, "0.1"}},
		{name: "two hops", args: []string{"analyze", orders, "--cap", "*=40ms"}, code: exitUsage, stderr: []string{"hops", "0.1"}},
		{name: "bad strategy", args: []string{"analyze", orders, "--strategy", "best"}, code: exitUsage, stderr: []string{"p99prop", "equal"}},
		{name: "bad percentile", args: []string{"analyze", orders, "--percentile", "100"}, code: exitUsage, stderr: []string{"--percentile"}},
		{name: "bad format", args: []string{"analyze", orders, "--format", "xml"}, code: exitUsage, stderr: []string{"otlp-json"}},
		{name: "bad output", args: []string{"analyze", orders, "-o", "xml"}, code: exitUsage, stderr: []string{"table", "json"}},
		{name: "two outputs", args: []string{"analyze", orders, "-o", "json", "-o", "csv"}, code: exitUsage, stderr: []string{"standard output"}},
		{name: "no such endpoint", args: []string{"analyze", orders, "--endpoint", "nobody"}, code: exitFailed, stderr: []string{"nobody", "gateway POST /orders"}},
		{name: "budget for no endpoint", args: []string{"analyze", orders, "--budget", "nobody=1s"}, code: exitUsage, stderr: []string{"--budget", `"nobody"`, "gateway POST /orders"}},
		{name: "two budgets", args: []string{"analyze", orders, "--budget", "1s", "--budget", "2s"}, code: exitUsage, stderr: []string{"two for all endpoints"}},
		{name: "all in reserve", args: []string{"analyze", orders, "--reserve", "100%"}, code: exitUsage, stderr: []string{"reserve", "less than 100"}},
		{name: "cap of nothing", args: []string{"analyze", orders, "--cap", "risk*=0%"}, code: exitUsage, stderr: []string{"risk*", "more than 0"}},
		{name: "cap of the endpoint", args: []string{"analyze", orders, "--cap", "0=1s"}, code: exitUsage, stderr: []string{"--cap", "--budget"}},
		{name: "cap of a hop without budget", args: []string{"analyze", "testdata/dag", "--cap", "g G=1s"}, code: exitUsage, stderr: []string{"nobody waits"}},
		{name: "id in two endpoints", args: []string{"analyze", orders, "testdata/dag", "--cap", "0.1=1s"}, code: exitUsage, stderr: []string{"0.1", "2 endpoints", "--endpoint"}},
		{name: "bad incident", args: []string{"analyze", orders, "--incident", "risk*=400ms"}, code: exitUsage, stderr: []string{"--incident", "slow 400ms..4s @10%"}},
		{name: "incident of nothing", args: []string{"analyze", orders, "--incident", "risk*=slow 4s..5s @0%"}, code: exitUsage, stderr: []string{"risk*", "more than 0 %"}},
		{name: "incident backwards", args: []string{"analyze", orders, "--incident", "risk*=slow 4s..1s @1%"}, code: exitUsage, stderr: []string{"risk*", "4s..1s"}},
		{name: "incident at no hop", args: []string{"analyze", orders, "--incident", "nobody=slow 1s..4s @1%"}, code: exitUsage, stderr: []string{`"nobody"`, "0.1"}},
		{name: "degradable endpoint", args: []string{"analyze", orders, "--degradable", "0"}, code: exitUsage, stderr: []string{"--degradable", "endpoint itself"}},
		{name: "degradable nobody", args: []string{"analyze", orders, "--degradable", "nobody"}, code: exitUsage, stderr: []string{`"nobody"`}},
		{name: "degradable async", args: []string{"analyze", "testdata/dag", "--degradable", "g G"}, code: exitUsage, stderr: []string{"--degradable", "nobody waits"}},
		{name: "quantum over the budget", args: []string{"analyze", orders, "--budget", "1s", "--quantum", "2s"}, code: exitUsage, stderr: []string{"--quantum"}},
		{name: "missing file beside a good one", args: []string{"analyze", "nowhere.json", orders}, code: exitFailed, stderr: []string{"nowhere.json"}, stdout: true},
		{name: "zero workers", args: []string{"analyze", orders, "--workers", "0"}, code: exitUsage, stderr: []string{"--workers"}},
		{name: "unknown rule", args: []string{"analyze", orders, "--fail-on", "error,deadline-rest"}, code: exitUsage, stderr: []string{"--fail-on", `"deadline-rest"`, "warning, error", "deadline-reset", "work-after-deadline"}},
		{name: "no rule", args: []string{"analyze", orders, "--fail-on", ""}, code: exitUsage, stderr: []string{"--fail-on", `""`, "warning, error"}},
		{name: "no second rule", args: []string{"analyze", orders, "--fail-on", "error,"}, code: exitUsage, stderr: []string{"--fail-on", `""`}},
		{name: "nothing to fail on", args: []string{"analyze", orders, "--fail-on", "warning"}, code: exitOK, stdout: true},
		{name: "fails on a rule", args: []string{"analyze", "testdata/deadline-reset", "--fail-on", "deadline-dropped,deadline-reset"}, code: exitFindings, stdout: true, stderr: []string{"--fail-on: found deadline-reset (1×)\n"}},
		{name: "fails on an error", args: []string{"analyze", "testdata/deadline-reset", "--fail-on", "error"}, code: exitFindings, stdout: true},
		{name: "an error is a warning too", args: []string{"analyze", "testdata/deadline-reset", "--fail-on", "warning"}, code: exitFindings, stdout: true},
		{name: "at an endpoint without a table", args: []string{"analyze", "testdata/dag", "testdata/deadline-reset", "--top", "1", "--fail-on", "deadline-reset"}, code: exitFindings, stdout: true, stderr: []string{"found deadline-reset"}},
		{name: "meant to outlive", args: []string{"analyze", "testdata/deadline-reset", "--allow-detached", "inventory *", "--fail-on", "warning"}, code: exitOK, stdout: true},
		{name: "meant by mistake", args: []string{"analyze", "testdata/deadline-reset", "--allow-detached", "inventory *", "--allow-detached", "inventry *"}, code: exitOK, stdout: true, stderr: []string{`note: --allow-detached "inventry *" matches no call`}},
		{name: "another is meant to", args: []string{"analyze", "testdata/deadline-reset", "--allow-detached", "risk *", "--fail-on", "error"}, code: exitFindings, stdout: true},
		{name: "attribute without unit", args: []string{"analyze", orders, "--remaining-attribute", "left"}, code: exitUsage, stderr: []string{"--remaining-attribute", "name=unit"}},
		{name: "attribute with a unit that is none", args: []string{"analyze", orders, "--remaining-attribute", "left=min"}, code: exitUsage, stderr: []string{"--remaining-attribute", "ns, us, ms or s"}},
		{name: "attribute twice", args: []string{"analyze", orders, "--remaining-attribute", "left=s", "--remaining-attribute", "left=ms"}, code: exitUsage, stderr: []string{"--remaining-attribute", "twice"}},
		{name: "other rule", args: []string{"analyze", "testdata/deadline-reset", "--fail-on", "budget-overrun"}, code: exitOK, stdout: true},
		{name: "a warning is no error", args: []string{"analyze", "testdata/retry-storm", "--fail-on", "error"}, code: exitOK, stdout: true},
		{name: "a warning", args: []string{"analyze", "testdata/retry-storm", "--fail-on", "warning"}, code: exitFindings, stdout: true},
		{name: "bad input before findings", args: []string{"analyze", empty, "testdata/deadline-reset", "--fail-on", "error"}, code: exitFailed, stderr: []string{"empty.json"}, stdout: true},
		{name: "trace over the limit", args: []string{"analyze", orders, "--max-trace-spans", "3"}, code: exitFailed, stderr: []string{"--max-trace-spans"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := outcome(t, c.stdin, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not name %q:\n%s", want, stderr)
				}
			}
			if (stdout != "") != c.stdout {
				t.Errorf("stdout %q, want any: %v", stdout, c.stdout)
			}
			if c.code == exitFailed && strings.Contains(stderr, "Usage:") {
				t.Errorf("a run-time error prints usage:\n%s", stderr)
			}
		})
	}
}

// TestReportsNameWhatCouldNotBeUsed: a report that is kept says what is missing in
// it, in the words of stderr.
func TestReportsNameWhatCouldNotBeUsed(t *testing.T) {
	dir := t.TempDir()
	empty, garbage := filepath.Join(dir, "empty.json"), filepath.Join(dir, "garbage.json")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(garbage, []byte("hello"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schema string
		args   []string
	}{
		{"report", []string{"analyze", empty, "testdata/dag", garbage}},
		{"check", []string{"check", empty, "testdata/dag", garbage, "--plan", plans + "dag-hand.yaml"}},
		{"compare", []string{"compare", empty + ",testdata/dag," + garbage, "testdata/dag"}},
	} {
		schema, err := jsonschema.NewCompiler().Compile("docs/" + c.schema + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := outcome(t, "", append(c.args, "-o", "json")...)
		var got struct {
			Input, Before struct{ Failed analyzer.Failures }
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
		if err == nil {
			err = errors.Join(schema.Validate(v), json.Unmarshal([]byte(stdout), &got))
		}
		if err != nil || code != exitFailed {
			t.Errorf("%s: exit %d, %v", c.args[0], code, err)
		}
		failed := slices.Concat(got.Input.Failed, got.Before.Failed)
		if len(failed) != 2 || !strings.Contains(failed[0].Error(), "empty.json") || !strings.Contains(failed[1].Error(), "garbage.json") {
			t.Fatalf("%s: the report names %q", c.args[0], failed)
		}
		for _, err := range failed {
			if !strings.Contains(stderr, "budgetctl: "+err.Error()+"\n") {
				t.Errorf("%s: %q is not on stderr:\n%s", c.args[0], err, stderr)
			}
		}
		if _, table, _ := outcome(t, "", c.args...); !strings.Contains(strings.Join(strings.Fields(table), " "),
			"2 inputs could not be used; the first: "+failed[0].Error()+".") {
			t.Errorf("%s: the table does not say what is missing:\n%s", c.args[0], table)
		}
	}
}

// TestDocumentedRuns executes every "$ budgetctl" line of README.md and of the
// docs and compares what is shown below it, and runs the examples of all help
// texts.
func TestDocumentedRuns(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	dir := t.TempDir() // for what the runs write
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range documented(string(text)) {
			ran++
			t.Run(page+"/"+run.line, func(t *testing.T) {
				t.Setenv("COLUMNS", "120")
				line := strings.ReplaceAll(run.line, "budgets.yaml", filepath.Join(dir, "budgets.yaml"))
				code, stdout, stderr := outcome(t, "", words(line)...)
				if code != exitOK {
					t.Fatalf("exit %d: %s", code, stderr)
				}
				if run.output == "" || strings.TrimSpace(run.output) == strings.TrimSpace(stdout) {
					return
				}
				if goldentest.Update() {
					now := strings.Replace(string(text), run.output, stdout, 1)
					if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
						t.Fatal(err)
					}
					text = []byte(now)
				}
				t.Errorf("the page does not show what the command prints (-page +command):\n%s", cmp.Diff(run.output, stdout))
			})
		}
	}
	if ran == 0 {
		t.Error("README.md shows no run of budgetctl")
	}
}

type documentedRun struct{ line, output string }

// documented finds the runs in the code blocks of a page.
func documented(page string) []documentedRun {
	var runs []documentedRun
	inBlock, ran := false, false // ran: a run stands above in the block
	for line := range strings.Lines(page) {
		switch command, ok := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inBlock, ran = !inBlock, false
		case inBlock && ok:
			for _, prefix := range []string{"go run ./cmd/budgetctl ", "budgetctl "} {
				if args, ok := strings.CutPrefix(command, prefix); ok {
					runs = append(runs, documentedRun{line: strings.TrimSpace(args)})
					ran = true
					break
				}
			}
		case inBlock && ran:
			runs[len(runs)-1].output += line
		}
	}
	return runs
}

// TestHelpExamples runs every example of every command's help. What they write
// goes to a folder of the test's own.
func TestHelpExamples(t *testing.T) {
	dir := t.TempDir()
	outcome(t, "", "analyze", "testdata/orders", "--budget", "800ms", "--write-plan", filepath.Join(dir, "budgets.yaml"))
	ran := 0
	for _, command := range [][]string{{"--help"}, {"analyze", "--help"}, {"check", "--help"}, {"profile", "--help"}, {"compare", "--help"}, {"version", "--help"}, {"completion", "bash", "--help"}} {
		code, help, _ := outcome(t, "", command...)
		if code != exitOK || !strings.Contains(help, "Usage:") {
			t.Errorf("%v: exit %d, %q", command, code, help)
		}
		_, examples, _ := strings.Cut(help, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		for line := range strings.Lines(examples) {
			ran++
			line = strings.TrimSpace(line)
			for _, file := range []string{"report.json", "check.xml", "budgets.yaml"} {
				line = strings.ReplaceAll(line, file, filepath.Join(dir, file))
			}
			line, file, redirected := strings.Cut(line, " < ")
			var stdin []byte
			if redirected {
				var err error
				if stdin, err = os.ReadFile(file); err != nil {
					t.Fatal(err)
				}
			}
			args := words(line)
			for i, word := range args {
				if strings.HasSuffix(word, ".profile") {
					args[i] = filepath.Join(dir, word)
				}
			}
			if args[0] != "budgetctl" {
				t.Errorf("example %q does not begin with budgetctl", line)
				continue
			}
			if code, stdout, stderr := outcome(t, string(stdin), args[1:]...); code != exitOK || stdout == "" && args[1] != "profile" {
				t.Errorf("example %q: exit %d: %s", line, code, stderr)
			}
		}
	}
	if ran < 5 {
		t.Errorf("%d examples were found", ran)
	}
	if code, out, _ := outcome(t, "", "completion", "bash"); code != exitOK || !strings.Contains(out, "budgetctl") {
		t.Errorf("completion: exit %d", code)
	}
	if code, out, _ := outcome(t, "", "version"); code != exitOK || !strings.HasPrefix(out, "budgetctl ") {
		t.Errorf("version: exit %d, %q", code, out)
	}
}

// TestEveryFlagOfTheDocumentsExists: a flag in a page is one of some command, or
// one of another program.
func TestEveryFlagOfTheDocumentsExists(t *testing.T) {
	others := []string{"--config", "--enable-feature", "--help"} // the Collector's, Prometheus's
	var help strings.Builder
	for _, command := range []string{"analyze", "check", "profile", "compare"} {
		_, text, _ := outcome(t, "", command, "--help")
		help.WriteString(text)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile("[ `]--[a-z][a-z-]+")
	found := 0
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "processor/latencybudgetprocessor/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range flags.FindAllString(string(text), -1) {
			found++
			flag = flag[1:]
			if !slices.Contains(others, flag) && !strings.Contains(help.String(), "  "+flag+" ") {
				t.Errorf("%s: no command has a flag %s", page, flag)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d flags were found", found)
	}
}

// TestWords holds the splitting that the tests above rest on.
func TestWords(t *testing.T) {
	got := words(`analyze a --cap 'auth *=5%' ''`)
	if want := []string{"analyze", "a", "--cap", "auth *=5%", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReportsObeyTheSchema validates the JSON report of every story.
func TestReportsObeyTheSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("docs/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	stories, err := filepath.Glob("testdata/*/trace.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, story := range stories {
		for _, flags := range [][]string{nil, {"--budget", "1ms"}, {"--budget", "800ms", "--percentile", "97.5", "--steps"}} {
			if strings.HasPrefix(story, "testdata/orders/") {
				flags = append(flags, "--current", "*persist=1s", "--degradable", "coupon*", "--incident", "risk*=slow 1s..2s @5%")
			}
			code, stdout, stderr := outcome(t, "", append([]string{"analyze", "-o", "json", story}, flags...)...)
			if code != exitOK {
				t.Errorf("%s %v: exit %d: %s", story, flags, code, stderr)
				continue
			}
			report, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
			if err != nil {
				t.Errorf("%s %v: %v", story, flags, err)
			} else if err := schema.Validate(report); err != nil {
				t.Errorf("%s %v: %v", story, flags, err)
			}
		}
	}
}
