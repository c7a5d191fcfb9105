package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

var checkFormats = renderers[analyzer.CheckReport]{
	{"table", checkTable},
	{"json", writeJSON[analyzer.CheckReport]},
	{"junit", checkJUnit},
	{"github", checkGitHub},
}

// CheckFormats returns the names that [RenderCheck] knows.
func CheckFormats() []string { return checkFormats.names() }

// RenderCheck writes the result of a check to w in the named format: a table, JSON
// (docs/check.schema.json), JUnit XML with a test case for every hop and every
// line of the gate, or the workflow commands of GitHub Actions.
func RenderCheck(w io.Writer, r *analyzer.CheckReport, format string, o Options) error {
	render, err := checkFormats.find(format)
	if err != nil {
		return err
	}
	return render(w, settleCheck(r), o)
}

// settleCheck is settle for checks.
func settleCheck(r *analyzer.CheckReport) *analyzer.CheckReport {
	out := *r
	out.Failures = append([]analyzer.CheckFailure{}, r.Failures...)
	out.Input.Files = append([]analyzer.InputFile{}, r.Input.Files...)
	out.Checked = slices.Clone(r.Checked)
	for i := range out.Checked {
		e := &out.Checked[i]
		e.Hops, e.Gate, e.Findings = slices.Clone(e.Hops), slices.Clone(e.Gate), slices.Clone(e.Findings)
		for j := range e.Hops {
			settleOpt(&e.Hops[j].Strained)
		}
		for j := range e.Gate {
			g := &e.Gate[j]
			for _, v := range []*analyzer.Opt[float64]{&g.Ratio, &g.RatioLo, &g.RatioHi, &g.LimitRatio} {
				settleOpt(v)
			}
		}
		for j := range e.Findings {
			e.Findings[j].Ratio = sixDigits(e.Findings[j].Ratio)
		}
	}
	return &out
}

// wideCheck is the width from which a table of a check shows how many calls there
// were.
const wideCheck = 100

func checkTable(w io.Writer, r *analyzer.CheckReport, o Options) error {
	width := o.Width
	if width <= 0 {
		width = defaultWidth
	}
	var b bytes.Buffer
	for i := range r.Checked {
		if err := drawCheck(&b, r, &r.Checked[i], width, o); err != nil {
			return err
		}
		b.WriteString("\n")
	}
	var lines []line
	for _, f := range r.Failures {
		lines = append(lines, line{"FAIL", Printable(f.Endpoint + ": " + f.Name + ": " + f.Text + ".")})
	}
	switch {
	case !r.Measured:
		lines = append(lines, line{"PLAN", "The plan is valid. Give check some traces to hold it against."})
	case r.Passed:
		lines = append(lines, line{"PASS", "The plan holds."})
	}
	if r.Measured {
		lines = append(lines, closing(&analyzer.Report{Input: r.Input, Settings: r.Settings})...)
	}
	writeLines(&b, lines, width)
	_, err := w.Write(b.Bytes())
	return err
}

// drawCheck writes title, table and lines of one endpoint.
func drawCheck(b *bytes.Buffer, r *analyzer.CheckReport, e *analyzer.CheckedEndpoint, width int, o Options) error {
	tree := &analyzer.Endpoint{Hops: make([]analyzer.Hop, len(e.Hops))}
	for i := range e.Hops {
		h := &e.Hops[i]
		tree.Hops[i] = analyzer.Hop{ID: h.ID, Depth: h.Depth, Label: h.Label, Overlaps: h.Overlaps}
	}
	s := &sheet{glyphs: glyphsOf(o), e: tree, nameWidth: 40}
	title := []string{clip(Printable(strings.TrimSpace(e.Service+" "+e.Operation)), width, s.dots), "budget " + duration(e.Budget), "plan " + Printable(r.Revision)}
	if r.Measured {
		title = append(title, count(e.Traces, "request"))
	}
	if e.Failed > 0 {
		title = append(title, strconv.Itoa(e.Failed)+" failed")
	}
	for i, l := range wrap(strings.Join(title, s.dot), width-2) {
		b.WriteString(strings.Repeat("  ", min(i, 1)) + l + "\n")
	}
	b.WriteString("\n")

	cols := []column{{head: "HOP (ms)", left: true}}
	if r.Measured {
		if width >= wideCheck {
			cols = append(cols, column{head: "CALLS", gap: 2})
		}
		cols = append(cols, column{head: "P99", gap: 2}, column{head: "P99 95%", gap: 2})
	}
	cols = append(cols, column{head: "BUDGET", gap: 2}, column{head: "TIMEOUT", gap: 1})
	if r.Measured {
		cols = append(cols, column{head: ">" + plain(exactRate(r.StrainedOver())), gap: 2})
	}
	cols = append(cols, column{head: "RESULT", gap: 2, left: true})
	rows := make([][]string, len(e.Hops)+1)
	for _, c := range cols {
		rows[0] = append(rows[0], c.head)
	}
	for i := range e.Hops {
		h := &e.Hops[i]
		for _, c := range cols[1:] {
			rows[i+1] = append(rows[i+1], plain(checkCell(e, h, c.head)))
		}
	}
	room := width
	for i := range cols[1:] {
		w := 0
		for k := range rows {
			at := i
			if k == 0 {
				at++
			}
			w = max(w, columns(rows[k][at]))
		}
		room -= w + cols[i+1].gap
	}
	branches := s.branches()
	for i := range e.Hops {
		rows[i+1] = append([]string{s.clipName(branches[i], name(&tree.Hops[i]), max(room, leastName))}, rows[i+1]...)
	}
	paint := func(row int, last bool) string {
		if row == 0 || !o.Color {
			return ""
		}
		return checkColour(&e.Hops[row-1], last)
	}
	lines, err := grid(cols, rows, paint)
	if err != nil {
		return err
	}
	for _, l := range lines {
		b.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	b.WriteString("\n")
	writeLines(b, s.checkLines(r, e), width)
	return nil
}

func checkColour(h *analyzer.CheckedHop, last bool) string {
	switch h.Result {
	case analyzer.CheckNoBudget, analyzer.CheckNotSeen:
		return dim
	case analyzer.CheckOverBudget, analyzer.CheckOverTimeout:
		if last {
			return red
		}
	case analyzer.CheckByCalls:
		if last {
			return yellow
		}
	case analyzer.CheckOK:
		if last && h.Warning {
			return yellow
		}
		if last {
			return green
		}
	}
	return ""
}

// checkCell is the cell of a hop in the column of that name.
func checkCell(e *analyzer.CheckedEndpoint, h *analyzer.CheckedHop, head string) string {
	switch head {
	case "CALLS":
		return strconv.Itoa(h.Calls)
	case "P99":
		return known(h.P99, millis)
	case "P99 95%":
		if !h.P99Lo.Known {
			return unknown
		}
		return openEnd(h.P99Lo) + "-" + openEnd(h.P99Hi)
	case "BUDGET":
		return known(h.Share, planned)
	case "TIMEOUT":
		return known(h.Cap, planned)
	case "RESULT":
		return checkResult(e, h)
	}
	return known(h.Strained, rate)
}

func checkResult(e *analyzer.CheckedEndpoint, h *analyzer.CheckedHop) string {
	switch h.Result {
	case analyzer.CheckOverBudget:
		return "over BUDGET"
	case analyzer.CheckOverTimeout:
		return "over TIMEOUT"
	case analyzer.CheckByCalls:
		return "by its calls"
	case analyzer.CheckNotSeen:
		return "not seen"
	case analyzer.CheckNoBudget:
		return "async"
	case analyzer.CheckOK:
		if h.Warning {
			return "strained"
		}
		return "ok"
	}
	if slices.Contains(e.Unwaited, h.ID) {
		return "async"
	}
	if slices.Contains(e.Chain, h.ID) {
		return "in the chain"
	}
	return unknown
}

func planned(ns int64) string { return exact(ns, 0) }

// checkLines are the statements below the table.
func (s *sheet) checkLines(r *analyzer.CheckReport, e *analyzer.CheckedEndpoint) []line {
	names := func(ids []string) []string {
		out := make([]string, len(ids))
		for i, id := range ids {
			out[i] = s.called(id)
		}
		return out
	}
	var lines []line
	if len(e.Chain) > 0 {
		text := strings.Join(names(e.Chain), s.then) + ": " + duration(e.ChainSum)
		if e.ChainUnwaited > 0 {
			text += ", not " + duration(e.ChainUnwaited) + ", since nobody waits for " + strings.Join(names(e.Unwaited), ", ")
		}
		text += "."
		if e.Reserve > 0 {
			text += " " + duration(e.Reserve) + " are reserved for own work."
		}
		lines = append(lines, line{"CHAIN", text + " " + duration(e.Spare) + " of " + duration(e.Budget) + " are unassigned."})
	}
	if len(e.Aside) > 0 {
		lines = append(lines, line{"BESIDE", strings.Join(names(e.Aside), ", ") + ": not in the longest chain."})
	}
	if !r.Measured {
		return lines
	}
	if e.Traces == 0 {
		return append(lines, line{"UNSEEN", "No request of this endpoint is in the traces: nothing was checked."})
	}
	for i := range e.Gate {
		lines = append(lines, line{"GATE", gateText(&e.Gate[i])})
	}
	var unseen, strained []string
	for i := range e.Hops {
		switch h := &e.Hops[i]; {
		case h.Result == analyzer.CheckNotSeen:
			unseen = append(unseen, s.called(h.ID))
		case h.Warning:
			strained = append(strained, s.called(h.ID)+" ("+rate(h.Strained.V)+")")
		}
	}
	if len(strained) > 0 {
		lines = append(lines, line{"WARNING", "Over " + exactRate(r.StrainedOver()) + " of their budget in more than 5" + glue + "% of their calls: " + strings.Join(strained, ", ") + "."})
	}
	if len(unseen) > 0 {
		lines = append(lines, line{"UNSEEN", "In the plan, but without a good call in the traces: " + strings.Join(unseen, ", ") + "."})
	}
	if len(e.NotInPlan) > 0 {
		lines = append(lines, line{"UNKNOWN", "In the traces, but not in the plan: " + Printable(strings.Join(e.NotInPlan, ", ")) + "."})
	}
	for i := range e.Findings {
		f := &e.Findings[i]
		lines = append(lines, line{"FINDING", fmt.Sprintf("%s %s, %s: %s. %s in %s of requests, such as %s.", f.Severity, f.Rule,
			Printable(f.Hop), Printable(f.Text), count(f.Count, "call"), rate(f.Ratio), f.Example)})
	}
	return lines
}

// strainedText says how many calls of a hop are strained.
func strainedText(r *analyzer.CheckReport, h *analyzer.CheckedHop) string {
	return rate(h.Strained.V) + " of the calls used over " + exactRate(r.StrainedOver()) + " of their budget"
}

// gateText says of a line of the gate what was seen and what is allowed.
func gateText(g *analyzer.CheckedGate) string {
	seen := strconv.Itoa(g.Count) + " of " + count(g.Of, "request")
	allowed := ""
	switch {
	case g.P99.Known:
		seen = count(g.Count, "call") + ", P99 " + measured(g.P99.V)
	case g.LimitNS.Known:
		seen = "none"
	case g.Ratio.Known && g.Count > 0:
		seen += ", " + rate(g.Ratio.V)
		if g.RatioLo.Known && g.RatioHi.Known {
			seen += " (95" + glue + "%: " + rate(g.RatioLo.V) + " to " + rate(g.RatioHi.V) + ")"
		}
	}
	switch {
	case g.LimitNS.Known:
		allowed = "; allowed " + duration(g.LimitNS.V)
	case g.LimitRatio.Known:
		allowed = "; allowed " + rate(g.LimitRatio.V)
	}
	verdict := "ok"
	switch g.Result {
	case analyzer.CheckFailed:
		verdict = "failed"
	case analyzer.CheckByCalls:
		verdict = "only by the calls that fail"
	case analyzer.CheckOff:
		verdict = "off"
	case analyzer.CheckNotSeen:
		verdict, seen = "not seen", "nothing in "+count(g.Of, "request")+" would tell"
	}
	return g.Name + " " + verdict + ": " + seen + allowed + "."
}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// checkJUnit writes a suite for each endpoint. What was not measured is skipped.
func checkJUnit(w io.Writer, r *analyzer.CheckReport, _ Options) error {
	all := junitSuites{Name: "latency budget plan " + r.Revision}
	for i := range r.Checked {
		e := &r.Checked[i]
		suite := junitSuite{Name: strings.TrimSpace(e.Service + " " + e.Operation)}
		add := func(name, result, reason, note string) {
			c := junitCase{Class: suite.Name, Name: name, Out: note}
			switch result {
			case analyzer.CheckOverBudget, analyzer.CheckOverTimeout, analyzer.CheckFailed:
				c.Failure = &junitMessage{reason}
				suite.Failures++
			case analyzer.CheckNotSeen, analyzer.CheckOff, "":
				c.Skipped = &junitMessage{map[string]string{
					analyzer.CheckNotSeen: "not seen in the traces", analyzer.CheckOff: "turned off", "": "no traces",
				}[result]}
				suite.Skipped++
			}
			suite.Tests++
			suite.Cases = append(suite.Cases, c)
		}
		for k := range e.Hops {
			h := &e.Hops[k]
			if k == 0 || h.Result == analyzer.CheckNoBudget {
				continue // the gate judges the endpoint
			}
			note := ""
			if h.Warning {
				note = strainedText(r, h)
			}
			add(h.ID+" "+strings.TrimSpace(h.Callee+" "+h.Operation), h.Result, h.Reason, plain(note))
		}
		for k := range e.Gate {
			add("gate "+e.Gate[k].Name, e.Gate[k].Result, e.Gate[k].Reason, "")
		}
		all.Tests, all.Failures, all.Skipped = all.Tests+suite.Tests, all.Failures+suite.Failures, all.Skipped+suite.Skipped
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// checkGitHub writes a workflow command for each failure and warning, which GitHub
// shows beside the run, and one line for people.
func checkGitHub(w io.Writer, r *analyzer.CheckReport, _ Options) error {
	var b bytes.Buffer
	command := func(kind, title, text string) {
		fmt.Fprintf(&b, "::%s title=%s::%s\n", kind, gitHubTitle.Replace(Printable("latency budget: "+title)), gitHubText.Replace(Printable(text)))
	}
	for _, f := range r.Failures {
		command("error", f.Endpoint, f.Name+": "+f.Text)
	}
	for i := range r.Checked {
		e := &r.Checked[i]
		endpoint := strings.TrimSpace(e.Service + " " + e.Operation)
		var unseen []string
		for k := range e.Hops {
			h := &e.Hops[k]
			name := strings.TrimSpace(h.Callee + " " + h.Operation)
			if h.Warning {
				command("warning", endpoint, name+": "+plain(strainedText(r, h)))
			}
			if k > 0 && h.Result == analyzer.CheckNotSeen {
				unseen = append(unseen, name)
			}
		}
		switch {
		case r.Measured && e.Traces == 0:
			command("notice", endpoint, "not in the traces: nothing was checked")
		case len(unseen) > 0:
			command("notice", endpoint, "without a good call in the traces, so not checked: "+strings.Join(unseen, ", "))
		}
		if e.Failed > 0 {
			command("notice", endpoint, strconv.Itoa(e.Failed)+" of "+count(e.Traces, "request")+" failed: how long they took is left out")
		}
	}
	switch {
	case !r.Measured:
		fmt.Fprintf(&b, "Plan %s is valid; there are no traces to hold it against.\n", Printable(r.Revision))
	case r.Passed:
		fmt.Fprintf(&b, "Plan %s holds.\n", Printable(r.Revision))
	default:
		fmt.Fprintf(&b, "Plan %s does not hold: %s.\n", Printable(r.Revision), count(len(r.Failures), "failure"))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// What a workflow command escapes, in its text and in its properties.
var (
	gitHubText  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	gitHubTitle = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
