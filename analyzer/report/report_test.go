package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/report"
)

var update = flag.Bool("update", false, "rewrite the golden files; the tests then fail")

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

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s was rewritten: look at the difference and run again without -update", path)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
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
				golden(t, s.name+"."+c.file, render(t, s.build(), c.format, c.o))
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
