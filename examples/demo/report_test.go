package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
)

const report = `gateway   http://127.0.0.1:1/order, mode fresh
answers   98 x 200, 62 x 504
degraded  none
latency   P50 3001.5 ms, P99 3905.7 ms; P50 of successes 2872.1 ms, P99 of failures 3018.9 ms

    service  served     own P50   queue P99  most inside
    gateway     116      4.3 ms   3007.4 ms           90
       risk      98     26.9 ms      0.0 ms            4
`

func TestTableComparesPhases(t *testing.T) {
	healthy := strings.NewReplacer("98 x 200, 62 x 504", "300 x 200", "3018.9 ms", "none").Replace(report)
	got := table([]Seen{
		{Phase: Phase{Name: "healthy"}, Report: healthy},
		{Phase: Phase{Name: "fixed 3 s"}, Report: report, Rules: []RuleCount{{"deadline-reset", 405}, {"doomed-call", 31}}},
		{Phase: Phase{Name: "silent"}, Rules: []RuleCount{{"budget-overrun", 7}, {"doomed-call", 2}}},
	})
	const want = `
                        healthy               fixed 3 s             silent
answers                 300 x 200             98 x 200, 62 x 504    -
P50 of all              3001.5 ms             3001.5 ms             -
P99 of all              3905.7 ms             3905.7 ms             -
P99 of failures         none                  3018.9 ms             -
most inside the gateway 90                    90                    -

found by budgetctl
  deadline-reset        -                     405                   -
  doomed-call           -                     31                    2
  budget-overrun        -                     -                     7
`
	if got != want[1:] {
		t.Errorf("got\n%s\nwant%s", got, want)
	}
}

func TestWrongArgumentsAreUsage(t *testing.T) {
	for _, args := range [][]string{{"-histograms", "sparse"}, {"now"}, {"-no-such"}} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), args, &out, &stderr); code != 2 || stderr.Len() == 0 {
			t.Errorf("demo %q: exit code %d, %q", args, code, &stderr)
		}
	}
	var out, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &out, &stderr); code != 0 || !strings.Contains(stderr.String(), "make demo") {
		t.Errorf("demo -h: exit code %d, %q", code, &stderr)
	}
}

// Without one of the programs there is one line that says so and where it comes
// from, and nothing is left.
func TestAMissingProgramIsToldInOneLine(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for missing, from := range map[string]string{
		"collector": "make collector", "prometheus": "Debian", "orders": "make demo", "budgetctl": "make build",
	} {
		var args []string
		for _, program := range []string{"collector", "prometheus", "orders", "budgetctl"} {
			path := self
			if program == missing {
				path = "no-such-program"
			}
			args = append(args, "-"+program, path)
		}
		var out, stderr bytes.Buffer
		code := run(t.Context(), args, &out, &stderr)
		text := stderr.String()
		if code != 1 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "no-such-program") || !strings.Contains(text, from) {
			t.Errorf("without %s: exit code %d, %q", missing, code, text)
		}
	}
	if left := leftIn(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// The Collector counts what every rule that flags spans finds, each once.
func TestEveryFlagIsCounted(t *testing.T) {
	text, err := os.ReadFile(dashboards + "/collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, r := range finding.Rules() {
		if r.Flag != "" {
			flags = append(flags, r.Flag)
		}
	}
	for _, flag := range flags {
		if n := strings.Count(string(text), "latency_budget.flag, default_value: "+flag+"}"); n != 1 {
			t.Errorf("%s has %d entries, want 1", flag, n)
		}
		if n := strings.Count(string(text), `ContainsValue(span.attributes["latency_budget.findings"], "`+flag+`")`); n != 1 {
			t.Errorf("%s is looked for %d times, want once", flag, n)
		}
	}
	if n := strings.Count(string(text), "latency_budget.flag, default_value:"); n != len(slices.Compact(slices.Sorted(slices.Values(flags)))) {
		t.Errorf("%d flags are counted, but rules have %d", n, len(flags))
	}
}
