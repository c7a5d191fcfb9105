package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
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
	var b strings.Builder
	row := func(head string, cell func(*Seen) string) {
		line := fmt.Sprintf("%-24s", head)
		for i := range seen {
			line += fmt.Sprintf("%-22s", cell(&seen[i]))
		}
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	row("", func(s *Seen) string { return s.Phase.Name })
	for _, r := range []struct {
		head  string
		line  *regexp.Regexp
		group int
	}{
		{"answers", answersLine, 1},
		{"P50 of all", latencyLine, 1},
		{"P99 of all", latencyLine, 2},
		{"P99 of failures", latencyLine, 4},
		{"most inside the gateway", gatewayLine, 1},
	} {
		row(r.head, func(s *Seen) string { return first(r.line, s.Report, r.group) })
	}
	var rules []string // those of the first phase that has any come first
	for _, s := range seen {
		for _, r := range s.Rules {
			if !slices.Contains(rules, r.Rule) {
				rules = append(rules, r.Rule)
			}
		}
	}
	fmt.Fprintln(&b, "\nfound by budgetctl")
	for _, rule := range rules {
		row("  "+rule, func(s *Seen) string {
			i := slices.IndexFunc(s.Rules, func(r RuleCount) bool { return r.Rule == rule })
			if i < 0 {
				return "-"
			}
			return strconv.Itoa(s.Rules[i].Count)
		})
	}
	return b.String()
}
