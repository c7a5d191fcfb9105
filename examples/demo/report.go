package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// RuleCount is how often a rule of budgetctl has found something.
type RuleCount struct {
	Rule  string
	Count int
}

// analyze runs budgetctl on a file and adds up what its rules found, the worst
// first, as it lists them.
func (s *System) analyze(ctx context.Context, spans string) ([]RuleCount, error) {
	cmd := exec.CommandContext(ctx, s.Budgetctl, "analyze", spans, "-o", "json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("budgetctl analyze: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var report struct {
		Endpoints []struct {
			Findings []struct {
				Rule  string `json:"rule"`
				Count int    `json:"count"`
			} `json:"findings"`
		} `json:"endpoints"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("budgetctl analyze: %w", err)
	}
	var rules []RuleCount
	place := map[string]int{}
	for _, e := range report.Endpoints {
		for _, f := range e.Findings {
			i, known := place[f.Rule]
			if !known {
				i = len(rules)
				place[f.Rule] = i
				rules = append(rules, RuleCount{Rule: f.Rule})
			}
			rules[i].Count += f.Count
		}
	}
	return rules, nil
}

// What orders says about a load.
var (
	answersLine = regexp.MustCompile(`(?m)^answers +(.*)$`)
	latencyLine = regexp.MustCompile(`(?m)^latency +P50 (.*?), P99 (.*?); P50 of successes (.*?), P99 of failures (.*)$`)
	gatewayLine = regexp.MustCompile(`(?m)^ +gateway .* (\d+)$`)
)

// first returns the n-th group of the first match, or a dash.
func first(re *regexp.Regexp, text string, n int) string {
	if m := re.FindStringSubmatch(text); m != nil {
		return m[n]
	}
	return "-"
}

// table compares phases, a column each.
func table(seen []Seen) string {
	cells := [][]string{{""}, {"answers"}, {"P50 of all"}, {"P99 of all"}, {"P99 of failures"}, {"most inside the gateway"}}
	for _, s := range seen {
		for i, cell := range []string{
			s.Phase.Name, first(answersLine, s.Report, 1), first(latencyLine, s.Report, 1),
			first(latencyLine, s.Report, 2), first(latencyLine, s.Report, 4), first(gatewayLine, s.Report, 1),
		} {
			cells[i] = append(cells[i], cell)
		}
	}
	var b strings.Builder
	for _, row := range cells {
		line := fmt.Sprintf("%-24s", row[0])
		for _, cell := range row[1:] {
			line += fmt.Sprintf("%-22s", cell)
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	for _, s := range seen {
		var rules []string
		for _, r := range s.Rules {
			rules = append(rules, fmt.Sprintf("%s %d", r.Rule, r.Count))
		}
		if rules == nil {
			rules = []string{"nothing"}
		}
		fmt.Fprintf(&b, "\nfound in %s:\n  %s\n", s.Phase.Name, strings.Join(rules, ", "))
	}
	return b.String()
}
