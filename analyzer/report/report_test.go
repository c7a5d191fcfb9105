package report_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/report"
	"github.com/latencybudget/latencybudget/internal/goldentest"
)

// samples are the reports that all tests share.
var samples = []struct {
	name  string
	build func() *analyzer.Report
}{
	{"hotel", hotel},
	{"order", order},
	{"infeasible", infeasible},
	{"small", small},
	{"doubtful", doubtful},
	{"names", names},
}

func render(t testing.TB, r *analyzer.Report, format string, o report.Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Render(&b, r, format, o); err != nil {
		t.Fatalf("%s: %v", format, err)
	}
	return b.String()
}

func TestGoldenFiles(t *testing.T) {
	for _, s := range samples {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range []struct {
				file, format string
				o            report.Options
			}{
				{"80.txt", "table", report.Options{Width: 80}},
				{"100.txt", "table", report.Options{Width: 100}},
				{"120.txt", "table", report.Options{}},
				{"200.txt", "table", report.Options{Width: 200}},
				{"ascii.txt", "table", report.Options{Width: 80, ASCII: true}},
				{"colour.txt", "table", report.Options{Width: 80, Color: true}},
				{"md", "markdown", report.Options{}},
				{"json", "json", report.Options{}},
				{"csv", "csv", report.Options{}},
				{"replay.80.txt", "table", report.Options{Width: 80, Replay: true}},
				{"replay.120.txt", "table", report.Options{Replay: true}},
				{"replay.csv", "csv", report.Options{Replay: true}},
			} {
				goldentest.Compare(t, filepath.Join("testdata", s.name+"."+c.file), render(t, s.build(), c.format, c.o))
			}
		})
	}
}

// TestCallsThatTellLessThanTheirNumberAreSaidToBeDependent: where slow calls come
// in runs, 200 may be too few for a P99, and "under 100" alone would be wrong.
func TestCallsThatTellLessThanTheirNumberAreSaidToBeDependent(t *testing.T) {
	for _, c := range []struct {
		calls int
		data  string
		mark  string
	}{
		{99, "99 calls per hop: no P99 (low from 100)", "* under 100 calls: the largest seen, no P99"},
		{200, "200 calls per hop, not all independent: no P99 (low from 100)", "* under 100 independent calls: the largest seen, no P99"},
	} {
		r := hotel()
		for i := range r.Endpoints[0].Hops {
			h := &r.Endpoints[0].Hops[i]
			h.Calls, h.Confidence, h.Verdict = c.calls, "refused", analyzer.VerdictFewSamples
		}
		text := render(t, r, "table", report.Options{Width: 400})
		for _, want := range []string{c.data, c.mark} {
			if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
				t.Errorf("%d calls: %q is not in\n%s", c.calls, want, text)
			}
		}
	}
}

// A hop that several callers have is one line each in findings: who called tells
// them apart.
func TestSentencesTellTheCallerWhereSeveralHaveSuchAHop(t *testing.T) {
	r := order()
	e := &r.Endpoints[0]
	times, plan := [4]float64{2, 5, 4, 6}, [2]float64{10, 20}
	e.Hops = append(e.Hops,
		hop("0.1.0", "0.1", "bank Pay", 4000, times, 1, plan, 0.01, 0, 0, 0, "ok"),
		hop("0.3.0", "0.3", "bank Pay", 4000, times, 1, plan, 0.01, 0, 0, 0, "ok"),
		hop("0.3.1", "0.3", "ledger Add", 4000, times, 1, plan, 0.01, 0, 0, 0, "ok"))
	e.Findings = nil
	for i, id := range []string{"0.1.0", "0.3.0", "0.3.1"} {
		e.Findings = append(e.Findings, analyzer.Finding{
			Rule: "deadline-exceeded", Severity: "warning", Hop: id, Count: 1 + i, Ratio: 0.001, Example: "0a/0b", Text: "timed out",
		})
	}
	for _, format := range []string{"table", "markdown"} {
		text := strings.Join(strings.Fields(render(t, r, format, report.Options{Width: 400})), " ")
		for _, want := range []string{
			"deadline-exceeded, bank Pay from inventory Reserve: timed out. 1 call ",
			"deadline-exceeded, bank Pay from risk Score: timed out. 2 calls ",
			"deadline-exceeded, ledger Add: timed out. 3 calls ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", format, want, text)
			}
		}
	}
}
