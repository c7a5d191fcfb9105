package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

// line is one statement below a table: a keyword and a sentence.
type line struct {
	key, text string
}

// duration formats a planned time with the unit, exactly.
func duration(ns int64) string { return exact(ns, 0) + glue + "ms" }

// about formats a time that need not be a multiple of the quantum.
func (s *sheet) about(ns int64) string { return s.nearQuantum(ns) + glue + "ms" }

// measured formats ns with the unit, for sentences about what was measured.
func measured(ns int64) string { return millis(ns) + glue + "ms" }

// hop returns the hop with the id, or nil.
func (s *sheet) hop(id string) *analyzer.Hop {
	for i := range s.e.Hops {
		if s.e.Hops[i].ID == id {
			return &s.e.Hops[i]
		}
	}
	return nil
}

// called returns the name of a hop inside a sentence. Where several callers have a
// hop of that name, it tells whose it is.
func (s *sheet) called(id string) string {
	h := s.hop(id)
	if h == nil {
		return Printable(id)
	}
	text := s.clipped(h)
	caller := s.hop(h.Parent)
	twin := func(o analyzer.Hop) bool { return o.ID != h.ID && name(&o) == name(h) }
	if caller != nil && slices.ContainsFunc(s.e.Hops, twin) {
		text += " from " + s.clipped(caller)
	}
	return text
}

func (s *sheet) clipped(h *analyzer.Hop) string {
	if s.nameWidth > 0 {
		return clip(name(h), s.nameWidth, s.dots)
	}
	return name(h)
}

// title names the endpoint, its budget and how it fares today.
func (s *sheet) title() (endpoint string, facts []string) {
	endpoint = Printable(strings.TrimSpace(s.e.Service + " " + s.e.Operation))
	if endpoint == "" {
		endpoint = unknown
	}
	budget := "budget " + duration(s.e.Budget)
	if s.e.BudgetSource != "flag" && s.e.BudgetSource != "" {
		budget += " (" + s.e.BudgetSource + ")"
	}
	misses, cut := rate(s.e.DeadlineMissRatio), ""
	if len(s.e.Hops) > 0 && s.e.Hops[0].CensoredRatio > 0 {
		cut = fmt.Sprintf(", %s are cut", rate(s.e.Hops[0].CensoredRatio))
	}
	if s.narrow {
		facts = []string{budget, fmt.Sprintf("%s, %s miss it today%s", count(s.e.Traces, "request"), misses, cut)}
		if s.e.Failed > 0 {
			facts = append(facts, fmt.Sprintf("%d failed", s.e.Failed))
		}
		return endpoint, facts
	}
	facts = []string{budget, fmt.Sprintf("%s of %s miss it today%s", misses, count(s.e.Traces, "request"), cut)}
	if s.e.Failed > 0 {
		facts = append(facts, fmt.Sprintf("%d failed", s.e.Failed))
	}
	q := s.e.Duration
	switch few := len(s.e.Hops) > 0 && fewCalls(&s.e.Hops[0]); {
	case few && q.Max.Known:
		facts = append(facts, "slowest "+measured(q.Max.V)+", too few for a P99")
	case !few && q.P99.Known:
		p99 := "P99 " + measured(q.P99.V)
		if q.P99Lo.Known || q.P99Hi.Known {
			p99 += " (95" + glue + "%: " + openEnd(q.P99Lo) + "-" + openEnd(q.P99Hi) + ")"
		}
		facts = append(facts, p99)
	}
	return endpoint, facts
}

// level names the quantile that verdicts go by.
func (s *sheet) level() string {
	if s.e.Percentile.Known {
		return "P" + strconv.FormatFloat(s.e.Percentile.V, 'f', -1, 64)
	}
	return "P99"
}

// footer returns the statements about one endpoint in their fixed order. The
// narrow layout says the same in fewer words.
func (s *sheet) footer() []line {
	lines := []line{{"BUDGET", s.budgetLine()}, {"TIMEOUT", s.timeoutLine()}}
	if h := s.hop(s.e.Hot); h != nil && h.CriticalPath.Known {
		text := s.called(s.e.Hot) + ": " + wholeRate(h.CriticalPath.V) + " of the critical path"
		if h.SlowPath.Known {
			text += ", " + wholeRate(h.SlowPath.V) + " in the slowest 5" + glue + "% of requests"
		}
		lines = append(lines, line{"HOT", text + "."})
	}
	lines = append(lines, line{"DATA", s.dataLine()})
	for _, m := range s.e.Moves {
		from, to := multiple(m.FromSlack, s.glyphs), multiple(m.ToSlack, s.glyphs)
		lines = append(lines, line{"MOVE", fmt.Sprintf("%s could move from %s (%s its %s) to %s (%s).",
			s.about(m.Amount), s.called(m.From), from, s.level(), s.called(m.To), to)})
	}
	for _, w := range s.e.Warnings {
		lines = append(lines, line{"WARNING", Printable(w)})
	}
	return append(lines, s.findingLines()...)
}

// mostFindings is how many findings an endpoint shows: who has more has to begin
// with the worst anyway.
const mostFindings = 10

// findingLines say what the rules found, worst first.
func (s *sheet) findingLines() []line {
	var lines []line
	for i, f := range s.e.Findings {
		if i == mostFindings {
			lines = append(lines, line{"FINDING", fmt.Sprintf("%d more, in the JSON output.", len(s.e.Findings)-i)})
			break
		}
		lines = append(lines, line{"FINDING", fmt.Sprintf("%s %s, %s: %s. %s in %s of requests, such as %s.",
			f.Severity, Printable(f.Rule), s.called(f.Hop), Printable(f.Text),
			count(f.Count, "call"), rate(f.Ratio), Printable(f.Example))})
	}
	return lines
}

// budgetLine says what the shares mean, what they would cost as hard timeouts,
// and, where there is no plan, what it takes to have one.
func (s *sheet) budgetLine() string {
	var parts []string
	if s.e.BudgetSource == "suggested" {
		parts = append(parts, fmt.Sprintf("None was given: %s is a suggestion, %s of today's requests miss it.",
			duration(s.e.Budget), rate(s.e.DeadlineMissRatio)))
	}
	if !s.e.Feasible {
		return strings.Join(append(parts, s.infeasibleLine()), " ")
	}
	if !s.narrow && !s.alone() {
		parts = append(parts, "Strict shares: sequential hops and own time fit into the parent's share.")
	}
	if s.alone() {
		return strings.Join(append(parts, "Nothing to split: no call was seen below the endpoint."), " ")
	}
	if p := s.e.Replay; p == nil || !p.BudgetFalseCut.Known {
		parts = append(parts, "Too few requests to predict what they would cut as hard timeouts.")
	} else {
		text := "As hard timeouts they would cut " + rate(p.BudgetFalseCut.V) + " of good requests"
		if p.Folds > 1 && !s.narrow {
			text += fmt.Sprintf(" (%d-fold)", p.Folds)
		}
		if p.BudgetFalseCut.V > mostFalseCut {
			limit := wholeRate(mostFalseCut)
			if b := budgetForFewCuts(p); b.Known {
				text += "; cutting only " + limit + " takes a budget of " + duration(b.V)
			} else {
				text += "; no budget was found that brings it to " + limit
			}
		}
		parts = append(parts, text+".")
	}
	if !s.narrow && s.e.MinBudget > 0 {
		parts = append(parts, "The smallest budget with a plan is "+duration(s.e.MinBudget)+".")
	}
	return strings.Join(parts, " ")
}

// infeasibleLine names the smallest budget and the chain of floors behind it.
func (s *sheet) infeasibleLine() string {
	if s.allFailed() {
		return "No plan: every request failed."
	}
	text := fmt.Sprintf("Infeasible: no plan obeys %s, the smallest feasible budget is %s.",
		duration(s.e.Budget), duration(s.e.MinBudget))
	if len(s.e.BindingChain) == 0 {
		return text
	}
	// What lies below a hop of the chain is part of its floor, so it is named
	// inside of it.
	var chain []string
	top := 0
	for _, id := range s.e.BindingChain {
		h := s.hop(id)
		if h == nil {
			continue
		}
		name := s.called(id)
		if h.Floor.Known {
			name += " " + measured(h.Floor.V)
		}
		if len(chain) == 0 || h.Depth <= top {
			top = h.Depth
			chain = append(chain, name)
		} else {
			chain[len(chain)-1] += " (in it " + name + ")"
		}
	}
	text += " The chain that binds, with its floors: " + strings.Join(chain, s.then)
	if s.e.Reserve > 0 {
		text += ", and " + s.about(s.e.Reserve) + " of own time"
	}
	text += "."
	if p := s.e.Replay; p != nil {
		if b := budgetForFewCuts(p); b.Known {
			text += " With " + duration(b.V) + ", BUDGETs as hard timeouts would cut only " + wholeRate(mostFalseCut) + " of good requests."
		}
	}
	return text
}

// allFailed tells that there is no good request to plan from.
func (s *sheet) allFailed() bool { return s.e.Traces > 0 && s.e.Failed == s.e.Traces }

// alone tells whether the endpoint has no hop that its budget could be split
// over.
func (s *sheet) alone() bool {
	for i := range s.e.Hops[1:] {
		if k := s.e.Hops[1+i].Kind; k == analyzer.HopCall || k == analyzer.HopStage {
			return false
		}
	}
	return true
}

// mostFalseCut is the ratio of good requests cut by hard shares above which
// the reader is warned.
const mostFalseCut = 0.01

// budgetForFewCuts is the smallest budget that keeps them to that.
func budgetForFewCuts(p *analyzer.Replay) analyzer.Opt[int64] {
	for _, b := range p.BudgetForFalseCut {
		if b.Ratio == mostFalseCut {
			return b.Budget
		}
	}
	return analyzer.Opt[int64]{}
}

func (s *sheet) timeoutLine() string {
	var parts []string
	switch p := s.e.Replay; {
	case !s.e.Feasible:
		parts = append(parts, "None without a plan.")
	case s.alone():
		parts = append(parts, "That of the endpoint.")
	case p == nil || !p.TimeoutFalseCut.Known:
		parts = append(parts, "For clients that pass the remaining deadline on.")
	default:
		parts = append(parts, "For clients that pass the remaining deadline on: would cut "+rate(p.TimeoutFalseCut.V)+".")
	}
	if s.e.WorstCase.Known {
		parts = append(parts, "Without a deadline the worst case is "+duration(s.e.WorstCase.V)+".")
	}
	if s.e.WorstCaseNow.Known {
		parts = append(parts, "Today's timeouts allow "+s.about(s.e.WorstCaseNow.V)+".")
	}
	return strings.Join(parts, " ")
}

// grades say how far a P99 may be trusted, best first, and what more calls
// would bring.
var grades = []struct {
	confidence, alone string
	next              int // independent calls of the next better grade
}{
	{"good", "P99 good", math.MaxInt},
	{"fair", "P99 fair (good from 3000)", 3000},
	{"low", "P99 low (fair from 368)", 368},
	{"refused", "no P99 (low from 100)", 100},
}

// dependent says that a hop has the calls of a better grade, but they tell less
// than as many independent ones: slow ones come in runs, or weights differ.
func dependent(h *analyzer.Hop) bool {
	for _, g := range grades {
		if g.confidence == h.Confidence {
			return h.Calls >= g.next
		}
	}
	return false
}

// dataLine says how much evidence the table stands on.
func (s *sheet) dataLine() string {
	var facts []string

	// The hops with a budget; an endpoint without calls is judged by itself.
	var judged []*analyzer.Hop
	async, skewed, skew := 0, 0, int64(0)
	for i := range s.e.Hops {
		h := &s.e.Hops[i]
		switch h.Kind {
		case analyzer.HopCall, analyzer.HopStage:
			judged = append(judged, h)
		case analyzer.HopAsync:
			async++
		}
		if h.Skew.Known && h.Skew.V != 0 {
			skewed++
			if magnitude(h.Skew.V) > magnitude(skew) {
				skew = h.Skew.V
			}
		}
	}
	unit := " per hop"
	if len(judged) == 0 && len(s.e.Hops) > 0 {
		judged, unit = []*analyzer.Hop{&s.e.Hops[0]}, ""
	}
	if len(judged) > 0 {
		if slices.ContainsFunc(judged, dependent) {
			unit += ", not all independent"
		}
		facts = append(facts, callRange(judged)+unit+": "+gradeOf(judged))
	}
	if s.e.OrderPairs > 0 {
		text := "order sure in %d of %d pairs"
		if s.narrow {
			text = "order sure %d/%d"
		}
		facts = append(facts, fmt.Sprintf(text, s.e.OrderSure, s.e.OrderPairs))
	}

	trouble := []string{"no skew", "no drops", "no async"}
	if skewed > 0 {
		trouble[0] = fmt.Sprintf("clocks shifted up to %s at %s", measured(int64(magnitude(skew))), count(skewed, "hop"))
	}
	dropped := 0
	for kind, n := range s.r.Input.LeftOut {
		if kind != analyzer.NotSelected {
			dropped += n
		}
	}
	if dropped > 0 {
		trouble[1] = count(dropped, "span") + " left out"
	}
	if async > 0 {
		trouble[2] = count(async, "async hop")
	}
	facts = append(facts, strings.Join(trouble, ", "))
	if !s.narrow {
		facts = append(facts, "ms")
	}
	return strings.Join(append(facts, s.legend()...), s.dot)
}

// legend explains the marks that the table uses.
func (s *sheet) legend() []string {
	var few, open, cut, runs bool
	var mostCut float64
	for i := range s.e.Hops {
		h := &s.e.Hops[i]
		isFew := fewCalls(h) || s.e.Percentile.Known && h.Verdict == analyzer.VerdictFewSamples
		isOpen := !fewCalls(h) && h.P99Lo.Known && !h.P99Hi.Known
		few, open = few || isFew, open || isOpen
		runs = runs || (isFew || isOpen) && dependent(h)
		if censored(h) {
			cut, mostCut = true, max(mostCut, h.CensoredRatio)
		}
	}
	calls := "calls"
	if runs {
		calls = "independent calls"
	}
	var marks []string
	if few {
		text := "under 100 " + calls + ": the largest seen, no P99"
		if s.e.Percentile.Known {
			text = "too few calls: the largest seen"
		}
		marks = append(marks, "*"+glue+text)
	}
	if open {
		marks = append(marks, "?"+glue+"no upper bound under 368 "+calls)
	}
	if cut {
		text := s.atLeast + glue + "lower bound: up to " + rate(mostCut) + " of calls are cut by today's timeouts"
		marks = append(marks, text)
	}
	return marks
}

// callRange is the smallest and the largest number of calls of the hops.
func callRange(hops []*analyzer.Hop) string {
	lo, hi := hops[0].Calls, hops[0].Calls
	for _, h := range hops {
		lo, hi = min(lo, h.Calls), max(hi, h.Calls)
	}
	if lo == hi {
		return count(lo, "call")
	}
	return strconv.Itoa(lo) + " to " + count(hi, "call")
}

// gradeOf says what the confidence of the hops is, each grade with the number
// of its hops where there is more than one.
func gradeOf(hops []*analyzer.Hop) string {
	var mixed []string
	alone := ""
	for _, g := range grades {
		n := 0
		for _, h := range hops {
			if h.Confidence == g.confidence {
				n++
			}
		}
		if n > 0 {
			mixed = append(mixed, g.confidence+" at "+strconv.Itoa(n))
			alone = g.alone
		}
	}
	switch len(mixed) {
	case 0:
		return "P99 not graded"
	case 1:
		return alone
	}
	return "P99 " + strings.Join(mixed, ", ")
}

// count writes a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// closing returns the statements that stand once, below the last table: what
// has no table, what was read and left out, and what the numbers assume.
func closing(r *analyzer.Report) []line {
	var lines []line
	for _, o := range r.Others {
		endpoint := Printable(strings.TrimSpace(o.Service + " " + o.Operation))
		text := endpoint + ": " + count(o.Traces, "request") + ", no table of its own."
		var found []string
		for _, f := range o.Findings {
			found = append(found, f.Rule+" "+count(f.Count, "call"))
		}
		if len(found) > 0 {
			text += " Findings: " + strings.Join(found, ", ") + "."
		}
		lines = append(lines, line{"ALSO", text})
	}
	notes := map[string]analyzer.InputNote{}
	for _, n := range r.Input.Notes {
		notes[n.Kind] = n
	}
	read := count(r.Input.Traces, "trace") + ", " + count(r.Input.Spans, "span") + " read; "
	var left []string
	for _, kind := range slices.Sorted(maps.Keys(r.Input.LeftOut)) {
		n := r.Input.LeftOut[kind]
		switch note := notes[kind]; {
		case n == 0:
		case note.Text == "":
			left = append(left, count(n, "span")+" ("+Printable(kind)+")")
		case note.Count == n:
			left = append(left, Printable(note.Text))
		default: // The note counts something else, such as traces.
			left = append(left, count(n, "span")+" ("+Printable(note.Text)+")")
		}
	}
	for _, n := range r.Input.Notes {
		if n.Lost {
			left = append(left, Printable(n.Text))
		}
	}
	if len(left) == 0 {
		read += "nothing left out."
	} else {
		read += "left out: " + strings.Join(left, "; ") + "."
	}
	lines = append(lines, line{"INPUT", read + unused(r.Input.Failed)})
	var kept []string
	for _, n := range r.Input.Notes {
		if r.Input.LeftOut[n.Kind] > 0 || n.Lost {
			continue
		}
		if n.Text != "" {
			kept = append(kept, Printable(n.Text))
		} else {
			kept = append(kept, strconv.Itoa(n.Count)+" "+Printable(n.Kind))
		}
	}
	if len(kept) > 0 {
		lines = append(lines, line{"NOTED", strings.Join(kept, "; ") + "."})
	}
	sampling := "The numbers stand for all requests only as far as these traces do."
	if r.Input.Sampling.Note != "" {
		sampling += " " + Printable(r.Input.Sampling.Note)
	}
	if slices.ContainsFunc(r.Endpoints, func(e analyzer.Endpoint) bool { return len(e.Findings) > 0 }) ||
		slices.ContainsFunc(r.Others, func(o analyzer.OtherEndpoint) bool { return len(o.Findings) > 0 }) {
		lines = append(lines, line{"RULES", "docs/findings.md says what to do about each finding, and how it can be wrong."})
	}
	if s := r.Settings.V; r.Settings.Known {
		lines = append(lines, line{"SETTINGS", fmt.Sprintf("The rules allow a hop %s of its budget, a deadline to be later by %s or %s "+
			"of what was left, the larger of the two, and clocks to differ by %s.",
			exactRate(s.Utilization), duration(s.ResetFloor), exactRate(s.ResetShare), duration(s.MaxSkew))})
	}
	return append(append(lines, assumptions(r)...),
		line{"SAMPLING", sampling},
		line{"SUMS", "P99s do not add up: a chain's is not the sum of those of its hops."})
}

// unused says how many inputs could not be used, and why the first could not;
// nothing where all could.
func unused(failed analyzer.Failures) string {
	switch len(failed) {
	case 0:
		return ""
	case 1:
		return " An input could not be used: " + Printable(failed[0].Error()) + "."
	}
	return fmt.Sprintf(" %d inputs could not be used; the first: %s.", len(failed), Printable(failed[0].Error()))
}
