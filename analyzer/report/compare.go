package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

var comparisonFormats = renderers[analyzer.Comparison]{
	{"table", tableComparison},
	{"json", writeJSON[analyzer.Comparison]},
	{"markdown", markdownComparison},
}

// ComparisonFormats returns the names that [RenderComparison] knows.
func ComparisonFormats() []string { return comparisonFormats.names() }

// RenderComparison writes c to w in the named format and leaves c as it is. An
// unknown format is an error that lists the valid names.
func RenderComparison(w io.Writer, c *analyzer.Comparison, format string, opts Options) error {
	render, err := comparisonFormats.find(format)
	if err != nil {
		return err
	}
	return render(w, settleComparison(c), opts)
}

// settleComparison returns a copy whose floats have six digits and whose lists are
// not nil.
func settleComparison(c *analyzer.Comparison) *analyzer.Comparison {
	out := *c
	out.Before.Files = append([]analyzer.InputFile{}, c.Before.Files...)
	out.After.Files = append([]analyzer.InputFile{}, c.After.Files...)
	out.Endpoints = append([]analyzer.EndpointChange{}, c.Endpoints...)
	for i := range out.Endpoints {
		e := &out.Endpoints[i]
		for _, side := range []**analyzer.EndpointSide{&e.Before, &e.After} {
			if *side != nil {
				s := **side
				settleOpt(&s.MissRatio)
				*side = &s
			}
		}
		e.Hops = slices.Clone(e.Hops)
		for j := range e.Hops {
			h := &e.Hops[j]
			for _, side := range []**analyzer.HopSide{&h.Before, &h.After} {
				if *side != nil {
					s := **side
					s.Presence = sixDigits(s.Presence)
					*side = &s
				}
			}
			for _, o := range []*analyzer.Opt[float64]{&h.P50.Ratio, &h.P50.P, &h.P99.Ratio, &h.P99.P} {
				settleOpt(o)
			}
		}
	}
	return &out
}

// comparison lays out the change of one endpoint.
type comparison struct {
	glyphs
	c *analyzer.Comparison
	e *analyzer.EndpointChange
}

// heads are the columns; the second is left out where it is narrow.
var heads = []column{
	{head: "HOP (ms)", left: true},
	{head: "CALLS", gap: 2},
	{head: "P50", gap: 2},
	{head: "CHANGE", gap: 2},
	{head: "P99", gap: 2},
	{head: "CHANGE", gap: 2},
}

const callsColumn = 1

// cells are those of one hop, without the name.
func (s *comparison) cells(h *analyzer.HopChange) []string {
	calls := s.pair(h, func(x *analyzer.HopSide) string { return strconv.Itoa(x.Calls) })
	value := func(of func(*analyzer.HopSide) *analyzer.Interval) string {
		return s.pair(h, func(x *analyzer.HopSide) string { return known(of(x).Value, millis) })
	}
	return []string{
		calls,
		value(func(x *analyzer.HopSide) *analyzer.Interval { return &x.P50 }), s.change(h, &h.P50),
		value(func(x *analyzer.HopSide) *analyzer.Interval { return &x.P99 }), s.change(h, &h.P99),
	}
}

// pair writes what is known before and after, once where it is the same.
func (s *comparison) pair(h *analyzer.HopChange, text func(*analyzer.HopSide) string) string {
	before, after := unknown, unknown
	if h.Before != nil {
		before = text(h.Before)
	}
	if h.After != nil {
		after = text(h.After)
	}
	if before == after {
		return after
	}
	return before + s.then + after
}

// change writes what is to be said of a quantile.
func (s *comparison) change(h *analyzer.HopChange, c *analyzer.Change) string {
	switch c.Verdict {
	case analyzer.ChangeNoise:
		return "~"
	case analyzer.ChangeFew:
		return "few"
	case analyzer.ChangeFailed:
		return "failed"
	case analyzer.ChangeCensored:
		return "cut"
	case "":
		return h.Seen
	}
	if !c.Ratio.Known {
		return c.Verdict
	}
	p := 100 * (c.Ratio.V - 1)
	switch {
	case p >= 199.5:
		return multiple(c.Ratio.V, s.glyphs)
	case p > -9.95 && p < 9.95:
		return fmt.Sprintf("%+.1f%s%%", p, glue)
	}
	return fmt.Sprintf("%+.0f%s%%", p, glue)
}

// title names the endpoint and what its plan says of it.
func (s *comparison) title() (endpoint string, facts []string) {
	if endpoint = Printable(strings.TrimSpace(s.e.Service + " " + s.e.Operation)); endpoint == "" {
		endpoint = unknown
	}
	count := func(of func(*analyzer.EndpointSide) int) string {
		text := func(e *analyzer.EndpointSide) string {
			if e == nil {
				return "none"
			}
			return strconv.Itoa(of(e))
		}
		return text(s.e.Before) + s.then + text(s.e.After)
	}
	facts = append(facts, count(func(e *analyzer.EndpointSide) int { return e.Traces })+" requests")
	for _, e := range []*analyzer.EndpointSide{s.e.Before, s.e.After} {
		if e != nil && e.Failed > 0 {
			facts = append(facts, count(func(e *analyzer.EndpointSide) int { return e.Failed })+" failed")
			break
		}
	}
	if s.e.Budget.Known {
		miss := func(e *analyzer.EndpointSide) string {
			if e == nil {
				return unknown
			}
			return known(e.MissRatio, rate)
		}
		facts = append(facts, "plan "+duration(s.e.Budget.V), miss(s.e.Before)+s.then+miss(s.e.After)+" miss it")
	}
	return endpoint, facts
}

// plans are the lines on what the changes mean for the plan.
func (s *comparison) plans(width int) []line {
	var out []line
	for i := range s.e.Hops {
		h := &s.e.Hops[i]
		if h.Plan == "" {
			continue
		}
		label := Printable(h.Label)
		if width > 0 {
			label = clip(label, width, s.dots)
		}
		text := label + ": " + h.Plan
		if h.After != nil && h.After.Held != nil {
			p99, high := h.After.Held, "unknown"
			if p99.Hi.Known {
				high = measured(p99.Hi.V)
			}
			text += ", P99 " + measured(p99.Value.V) + " (95" + glue + "%: " + measured(p99.Lo.V) + " to " + high + ")"
		}
		out = append(out, line{"PLAN", text + "."})
	}
	return out
}

// closing are the lines below all endpoints.
func (s *comparison) closing() []line {
	share := strconv.FormatFloat(100*s.c.Level, 'f', -1, 64) + glue + "%"
	out := []line{{"CHANGE", "~ is noise: chance explains the difference. Counts above the quantile of both sides are compared by Fisher's exact " +
		"test, " + strconv.Itoa(s.c.Tests) + " times; " + share + " of the changes shown are expected to be noise (Benjamini-Hochberg). " +
		"few: too few calls to tell, or a P99 that is the maximum; failed: every call of a side failed; " +
		"cut: timeouts cut calls, so the quantile is a lower bound."}}
	for _, side := range []struct {
		key  string
		side *analyzer.Side
	}{{"BEFORE", &s.c.Before}, {"AFTER", &s.c.After}} {
		out = append(out, line{side.key, fmt.Sprintf("%d traces, %d spans in %s.", side.side.Traces, side.side.Spans, filesText(side.side.Files)) + unused(side.side.Failed)})
	}
	for _, w := range s.c.Warnings {
		out = append(out, line{"WARNING", Printable(w)})
	}
	for _, o := range s.c.Others {
		out = append(out, line{"OTHER", Printable(strings.TrimSpace(o.Service+" "+o.Operation)) + ", " + strconv.Itoa(o.Traces) + " requests"})
	}
	return out
}

// filesText names a single file and counts several.
func filesText(files []analyzer.InputFile) string {
	if len(files) == 1 {
		return Printable(files[0].Name)
	}
	return strconv.Itoa(len(files)) + " files"
}

// branches are those of a report's table.
func (s *comparison) branches() [][]string {
	hops := make([]analyzer.Hop, len(s.e.Hops))
	for i := range hops {
		hops[i].Depth = s.e.Hops[i].Depth
	}
	return (&sheet{glyphs: s.glyphs, e: &analyzer.Endpoint{Hops: hops}}).branches()
}

func tableComparison(w io.Writer, c *analyzer.Comparison, o Options) error {
	width := o.Width
	if width <= 0 {
		width = defaultWidth
	}
	var b bytes.Buffer
	s := &comparison{glyphs: glyphsOf(o), c: c}
	for i := range c.Endpoints {
		s.e = &c.Endpoints[i]
		if err := s.draw(&b, width, o.Color); err != nil {
			return err
		}
	}
	writeLines(&b, s.closing(), width)
	_, err := w.Write(b.Bytes())
	return err
}

func (s *comparison) draw(b *bytes.Buffer, width int, color bool) error {
	endpoint, facts := s.title()
	title := strings.Join(append([]string{clip(endpoint, width, s.dots)}, facts...), s.dot)
	for i, l := range wrap(title, width-2) {
		b.WriteString(strings.Repeat("  ", min(i, 1)) + l + "\n")
	}
	b.WriteString("\n")
	cols := slices.Clone(heads)
	rows := make([][]string, len(s.e.Hops)+1)
	for _, col := range cols {
		rows[0] = append(rows[0], col.head)
	}
	for i := range s.e.Hops {
		rows[i+1] = []string{""}
		for _, cell := range s.cells(&s.e.Hops[i]) {
			rows[i+1] = append(rows[i+1], plain(cell))
		}
	}
	branches := s.branches()
	names := columns(cols[0].head)
	for i := range s.e.Hops {
		names = max(names, 3*len(branches[i])+columns(Printable(s.e.Hops[i].Label)))
	}
	room := width - widthOf(cols[1:], rows, 1)
	if room < names {
		cols = slices.Delete(cols, callsColumn, callsColumn+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], callsColumn, callsColumn+1)
		}
		room = width - widthOf(cols[1:], rows, 1)
	}
	inner := sheet{glyphs: s.glyphs}
	for i := range s.e.Hops {
		rows[i+1][0] = inner.clipName(branches[i], Printable(s.e.Hops[i].Label), max(leastName, room))
	}
	paint := func(int, bool) string { return "" }
	if color {
		paint = s.colour
	}
	lines, err := grid(cols, rows, paint)
	if err != nil {
		return err
	}
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	b.WriteString("\n")
	if plans := s.plans(40); len(plans) > 0 {
		writeLines(b, plans, width)
		b.WriteString("\n")
	}
	return nil
}

// widthOf returns the columns that cols take together, of which the first holds
// the cells with the given index.
func widthOf(cols []column, rows [][]string, first int) int {
	sum := 0
	for i, c := range cols {
		w := 0
		for _, row := range rows {
			w = max(w, columns(row[first+i]))
		}
		sum += c.gap + w
	}
	return sum
}

// colour paints the change of the P99.
func (s *comparison) colour(row int, last bool) string {
	if row == 0 || !last {
		return ""
	}
	switch s.e.Hops[row-1].P99.Verdict {
	case analyzer.ChangeSlower:
		return red
	case analyzer.ChangeFaster:
		return green
	}
	return dim
}

func markdownComparison(w io.Writer, c *analyzer.Comparison, o Options) error {
	var b bytes.Buffer
	s := &comparison{glyphs: glyphsOf(o), c: c}
	for i := range c.Endpoints {
		s.e = &c.Endpoints[i]
		endpoint, facts := s.title()
		b.WriteString("### " + markdown(endpoint) + "\n\n" + markdown(strings.Join(facts, s.dot)) + "\n\n")
		rule := "|"
		b.WriteString("|")
		for _, col := range heads {
			b.WriteString(" " + col.head + " |")
			if col.left {
				rule += " :--- |"
			} else {
				rule += " ---: |"
			}
		}
		b.WriteString("\n" + rule + "\n")
		branches := s.branches()
		for j := range s.e.Hops {
			tree := strings.ReplaceAll(markdown(strings.Join(branches[j], "")), " ", glue)
			b.WriteString("| " + tree + markdown(Printable(s.e.Hops[j].Label)) + " |")
			for _, cell := range s.cells(&s.e.Hops[j]) {
				b.WriteString(" " + markdown(cell) + " |")
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
		if plans := s.plans(0); len(plans) > 0 {
			markdownList(&b, plans)
			b.WriteString("\n")
		}
	}
	b.WriteString("### Input and test\n\n")
	markdownList(&b, s.closing())
	_, err := w.Write(b.Bytes())
	return err
}
