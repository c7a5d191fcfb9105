package report

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

// effectColumn is one column of a replay table, after the name of the policy.
type effectColumn struct {
	head  string
	leave int // the columns with the largest number leave a narrow table first; 0 never
	cell  func(*analyzer.PolicyEffect) string
}

// effectColumns returns the columns of the replay tables of an endpoint.
func (s *sheet) effectColumns() []effectColumn {
	columns := []effectColumn{
		{head: "MISS", leave: 2, cell: func(p *analyzer.PolicyEffect) string { return rate(p.Miss) }},
		{head: "VIOLATED", cell: func(p *analyzer.PolicyEffect) string { return rate(p.Violated) }},
		{head: "FALSE CUTS", cell: func(p *analyzer.PolicyEffect) string { return rate(p.FalseCut) }},
	}
	if len(s.e.Replay.Degradable) > 0 {
		columns = append(columns, effectColumn{head: "DEGRADED", cell: func(p *analyzer.PolicyEffect) string { return rate(p.Degraded) }})
	}
	return append(columns,
		effectColumn{head: "WASTED", cell: func(p *analyzer.PolicyEffect) string { return millis(p.Wasted) }},
		effectColumn{head: "SAVED", leave: 3, cell: func(p *analyzer.PolicyEffect) string { return millis(p.Saved) }},
		effectColumn{head: "EARLY", leave: 1, cell: func(p *analyzer.PolicyEffect) string { return known(p.Early, millis) }},
	)
}

// policyName says what a policy does, and who made its numbers where that is not
// the strategy of the table.
func (s *sheet) policyName(p *analyzer.PolicyEffect) string {
	by := ""
	if p.Strategy != "" && p.Strategy != s.e.Strategy {
		by = " by " + Printable(p.Strategy)
	}
	switch p.Policy {
	case "today":
		return "today"
	case "deadline":
		return "deadline only"
	case "same":
		return duration(s.e.Budget) + " for every call"
	case "half":
		return "half of it for every call"
	case "budget":
		return "BUDGET" + by + " as timeouts"
	case "timeout":
		return "TIMEOUT" + by + " with deadlines"
	case "timeout_only":
		return "TIMEOUT" + by + " without deadlines"
	}
	return Printable(p.Policy)
}

// brief are the rows of a short table: what is recommended beside what there is.
var brief = []string{"today", "deadline", "budget", "timeout"}

// effects returns the header and the rows of a replay table. The short one has
// the policies that a reader chooses between.
func (s *sheet) effects(policies []analyzer.PolicyEffect, columns []effectColumn, whole bool) [][]string {
	rows := [][]string{{""}}
	for _, c := range columns {
		rows[0] = append(rows[0], c.head)
	}
	for i := range policies {
		p := &policies[i]
		if !whole && (!slices.Contains(brief, p.Policy) || p.Strategy == "equal" && s.e.Strategy != "equal") {
			continue
		}
		row := []string{plain(s.policyName(p))}
		for _, c := range columns {
			row = append(row, plain(c.cell(p)))
		}
		rows = append(rows, row)
	}
	return rows
}

// replayTitle heads the table of the requests as they were, and incidentTitle
// that of an incident.
func (s *sheet) replayTitle() string {
	requests := count(s.e.Replay.Traces, "request")
	switch {
	case !s.e.Feasible:
		return "REPLAY of " + requests + " without a plan"
	case s.e.Replay.Folds == 0:
		return "REPLAY of " + requests + ", too few to judge a plan by"
	}
	return "REPLAY of " + requests + " under budgets made from other requests"
}

func (s *sheet) incidentTitle(i *analyzer.ReplayIncident) string {
	added := measured(i.Low)
	if i.High != i.Low {
		added = millis(i.Low) + " to " + measured(i.High)
	}
	return fmt.Sprintf("INCIDENT: %s takes %s longer in %s of its requests: %d of %s",
		s.called(i.Hop), added, wholeRate(i.Ratio), i.Requests, count(s.e.Replay.Traces, "request"))
}

// replayed tells whether there is a replay to show: not where there was nothing
// to split.
func (s *sheet) replayed() bool {
	return s.e.Replay != nil && len(s.e.Replay.Policies) > 0 && !s.alone()
}

// drawReplay writes what the plan would have done, as small tables.
func (s *sheet) drawReplay(b *bytes.Buffer, width int, whole bool) error {
	r := s.e.Replay
	if !s.replayed() {
		return nil
	}
	if err := s.drawEffects(b, s.replayTitle(), r.Policies, width, whole); err != nil {
		return err
	}
	if whole {
		writeLines(b, s.cutLines(r.Policies), width)
		if err := s.drawBudgetsFor(b); err != nil {
			return err
		}
	}
	for i := range r.Incidents {
		in := &r.Incidents[i]
		if err := s.drawEffects(b, s.incidentTitle(in), in.Policies, width, whole); err != nil {
			return err
		}
		if whole {
			writeLines(b, s.cutLines(in.Policies), width)
		}
	}
	return nil
}

// drawEffects writes one replay table under its title, without the columns that
// do not fit.
func (s *sheet) drawEffects(b *bytes.Buffer, title string, policies []analyzer.PolicyEffect, width int, whole bool) error {
	columns := s.effectColumns()
	var lines []string
	for {
		var err error
		if lines, err = s.small(s.effects(policies, columns, whole)); err != nil {
			return err
		}
		drop := -1
		for i, c := range columns {
			if c.leave > 0 && (drop < 0 || c.leave > columns[drop].leave) {
				drop = i
			}
		}
		if drop < 0 || widest(lines) <= width {
			break
		}
		columns = slices.Delete(columns, drop, drop+1)
	}
	b.WriteString("\n")
	for i, l := range wrap(title, width-2) {
		b.WriteString(strings.Repeat("  ", min(i, 1)) + l + "\n")
	}
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	return nil
}

// drawBudgetsFor writes how the rate of false cuts depends on the budget.
func (s *sheet) drawBudgetsFor(b *bytes.Buffer) error {
	rows := s.budgetsFor()
	if rows == nil {
		return nil
	}
	lines, err := s.small(rows)
	if err != nil {
		return err
	}
	b.WriteString("\n" + strings.Join(lines, "\n") + "\n")
	return nil
}

// budgetsFor returns the table of the smallest budgets.
func (s *sheet) budgetsFor() [][]string {
	list := s.e.Replay.BudgetForFalseCut
	if len(list) == 0 {
		return nil
	}
	rows := [][]string{{"FALSE CUTS by BUDGET at most"}, {"from a budget of, ms"}}
	for _, f := range list {
		rows[0] = append(rows[0], plain(wholeRate(f.Ratio)))
		rows[1] = append(rows[1], known(f.Budget, func(ns int64) string { return exact(ns, 0) }))
	}
	return rows
}

// cutLines say which hops end requests, worst first.
func (s *sheet) cutLines(policies []analyzer.PolicyEffect) []line {
	var lines []line
	for i := range policies {
		p := &policies[i]
		if p.Policy != "budget" && p.Policy != "timeout" || p.Strategy != s.e.Strategy || len(p.Cuts) == 0 {
			continue
		}
		cuts := slices.Clone(p.Cuts)
		slices.SortStableFunc(cuts, func(a, b analyzer.HopCut) int {
			switch {
			case a.Ratio > b.Ratio:
				return -1
			case a.Ratio < b.Ratio:
				return 1
			}
			return 0
		})
		var parts []string
		for _, c := range cuts {
			name := s.called(c.Hop)
			if c.Hop == "0" {
				name = "the deadline of the request"
			}
			parts = append(parts, name+" "+rate(c.Ratio))
		}
		lines = append(lines, line{"CUT BY", s.policyName(p) + ": " + strings.Join(parts, ", ") + " of requests."})
	}
	return lines
}

// small lays out a table whose first column is text and whose others are numbers.
func (s *sheet) small(rows [][]string) ([]string, error) {
	cols := []column{{left: true}}
	for range rows[0][1:] {
		cols = append(cols, column{gap: 2})
	}
	return grid(cols, rows, func(int, bool) string { return "" })
}

func widest(lines []string) int {
	w := 0
	for _, l := range lines {
		w = max(w, columns(l))
	}
	return w
}

// markdownReplay writes the replay tables in full.
func (s *sheet) markdownReplay(b *bytes.Buffer) {
	r := s.e.Replay
	if !s.replayed() {
		return
	}
	write := func(title string, policies []analyzer.PolicyEffect) {
		b.WriteString("#### " + markdown(title) + "\n\n")
		markdownRows(b, s.effects(policies, s.effectColumns(), true))
		b.WriteString("\n")
		if lines := s.cutLines(policies); len(lines) > 0 {
			markdownList(b, lines)
			b.WriteString("\n")
		}
	}
	write(s.replayTitle(), r.Policies)
	if rows := s.budgetsFor(); rows != nil {
		markdownRows(b, rows)
		b.WriteString("\n")
	}
	for i := range r.Incidents {
		write(s.incidentTitle(&r.Incidents[i]), r.Incidents[i].Policies)
	}
}

// markdownRows writes a table whose first column is text.
func markdownRows(b *bytes.Buffer, rows [][]string) {
	for i, row := range rows {
		b.WriteString("|")
		for _, cell := range row {
			b.WriteString(" " + markdown(cell) + " |")
		}
		b.WriteString("\n")
		if i == 0 {
			b.WriteString("| :--- |" + strings.Repeat(" ---: |", len(row)-1) + "\n")
		}
	}
}

// assumptions returns what the replays of the report take for granted, each
// once, with what their columns mean.
func assumptions(r *analyzer.Report) []line {
	var all []string
	for i := range r.Endpoints {
		s := &sheet{e: &r.Endpoints[i]}
		if !s.replayed() {
			continue
		}
		for _, a := range s.e.Replay.Assumptions {
			if !slices.Contains(all, Printable(a)) {
				all = append(all, Printable(a))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return []line{{"REPLAY", "VIOLATED requests miss the budget or are cut, FALSE CUTS are cut although they would be in time." +
		" WASTED is what ran for the violated, in span-seconds per 1000 requests; EARLY is how long before the budget those" +
		" that miss it end, in ms. Assumed: " + strings.Join(all, "; ") + "."}}
}

// csvEffects returns the cells of one row of the replay as CSV.
func csvEffects(e *analyzer.Endpoint, in *analyzer.ReplayIncident, p *analyzer.PolicyEffect) []csvCell {
	low, high, ratio, hit := "", "", "", ""
	if in.Hop != "" {
		low, high, ratio, hit = integer(in.Low), integer(in.High), number(in.Ratio), strconv.Itoa(in.Requests)
	}
	var cuts []string
	for _, c := range p.Cuts {
		cuts = append(cuts, c.Hop+"="+number(c.Ratio))
	}
	return []csvCell{
		{"endpoint_service", csvText(e.Service)},
		{"endpoint_operation", csvText(e.Operation)},
		{"endpoint_budget_ns", integer(e.Budget)},
		{"incident_hop", csvText(in.Hop)},
		{"incident_low_ns", low},
		{"incident_high_ns", high},
		{"incident_ratio", ratio},
		{"incident_requests", hit},
		{"policy", csvText(p.Policy)},
		{"strategy", csvText(p.Strategy)},
		{"miss_ratio", number(p.Miss)},
		{"violated_ratio", number(p.Violated)},
		{"false_cut_ratio", number(p.FalseCut)},
		{"degraded_ratio", number(p.Degraded)},
		{"executed_ns", integer(p.Executed)},
		{"saved_ns", integer(p.Saved)},
		{"wasted_ns", integer(p.Wasted)},
		{"early_ns", optional(p.Early, integer)},
		{"cuts", csvText(strings.Join(cuts, " "))},
	}
}

// csvReplay writes the replay tables of an endpoint, first that of the requests
// as they were.
func csvReplay(e *analyzer.Endpoint, write func([]csvCell) error) error {
	if e.Replay == nil {
		return nil
	}
	tables := append([]analyzer.ReplayIncident{{Policies: e.Replay.Policies}}, e.Replay.Incidents...)
	for i := range tables {
		for j := range tables[i].Policies {
			if err := write(csvEffects(e, &tables[i], &tables[i].Policies[j])); err != nil {
				return err
			}
		}
	}
	return nil
}
