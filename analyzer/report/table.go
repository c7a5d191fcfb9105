package report

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/latencybudget/latencybudget/analyzer"
)

const (
	defaultWidth = 120 // where Options.Width is 0
	wideWidth    = 120 // from here on always the wide layout
	proseWidth   = 120 // longer lines are hard to read
	leastName    = 14  // the name column never gets narrower
	keyWidth     = 9   // keyword of a line below the table, and the space behind it
)

// The colours, as SGR parameters.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
)

// renderTable draws one table for each endpoint, for a terminal or a channel
// that shows fixed-width text.
func renderTable(w io.Writer, r *analyzer.Report, o Options) error {
	width := o.Width
	if width <= 0 {
		width = defaultWidth
	}
	var b bytes.Buffer
	for i := range r.Endpoints {
		s := &sheet{glyphs: glyphsOf(o), r: r, e: &r.Endpoints[i], nameWidth: 40}
		if err := s.draw(&b, width, o); err != nil {
			return err
		}
		b.WriteString("\n")
	}
	writeLines(&b, closing(r), width)
	_, err := w.Write(b.Bytes())
	return err
}

// draw writes title, table, footer and replay of one endpoint.
func (s *sheet) draw(b *bytes.Buffer, width int, o Options) error {
	head := column{head: "HOP", left: true}
	cols := s.wide()
	branches := s.branches()
	names := 0 // width of the longest name
	for i := range s.e.Hops {
		names = max(names, 3*len(branches[i])+columns(name(&s.e.Hops[i])))
	}
	if s.narrow = width < wideWidth && names+s.widthOf(cols) > width; s.narrow {
		cols = s.slim()
		head.head = "HOP (ms)"
		names = max(names, columns(head.head))
	}
	cols = s.fit(cols, names, width)
	room := max(leastName, width-s.widthOf(cols))

	endpoint, facts := s.title()
	title := strings.Join(append([]string{clip(endpoint, width, s.dots)}, facts...), s.dot)
	for i, l := range wrap(title, width-2) {
		b.WriteString(strings.Repeat("  ", min(i, 1)) + l + "\n")
	}
	b.WriteString("\n")

	rows := make([][]string, len(s.e.Hops)+1)
	rows[0] = []string{head.head}
	for _, c := range cols {
		rows[0] = append(rows[0], c.head)
	}
	for i := range s.e.Hops {
		h := &s.e.Hops[i]
		row := []string{s.clipName(branches[i], name(h), room)}
		for _, c := range cols {
			row = append(row, plain(c.cell(h)))
		}
		rows[i+1] = row
	}
	paint := func(int, bool) string { return "" }
	if o.Color {
		paint = s.colour
	}
	lines, err := grid(append([]column{head}, cols...), rows, paint)
	if err != nil {
		return err
	}
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	b.WriteString("\n")
	writeLines(b, s.footer(), width)
	return s.drawReplay(b, width, o.Replay)
}

// plain makes a cell printable, with plain spaces.
func plain(cell string) string { return strings.ReplaceAll(Printable(cell), glue, " ") }

// widthOf returns the columns that cols take together.
func (s *sheet) widthOf(cols []column) int {
	sum := 0
	for _, c := range cols {
		w := columns(c.head)
		for i := range s.e.Hops {
			w = max(w, columns(plain(c.cell(&s.e.Hops[i]))))
		}
		sum += c.gap + w
	}
	return sum
}

// fit leaves out columns until the name column has the width that each of the
// others leaves it; those that ask for most go first.
func (s *sheet) fit(cols []column, names, width int) []column {
	for {
		room := width - s.widthOf(cols)
		drop := -1
		for i, c := range cols {
			if c.leaves > 0 && room < min(c.leaves, names) && (drop < 0 || c.leaves > cols[drop].leaves) {
				drop = i
			}
		}
		if drop < 0 {
			return cols
		}
		cols = slices.Delete(cols, drop, drop+1)
	}
}

// colour returns the SGR parameters of a cell, "" for none. Of a row that
// somebody waits for only the last cell, the verdict, has one.
func (s *sheet) colour(row int, last bool) string {
	if row == 0 {
		return ""
	}
	h := &s.e.Hops[row-1]
	if h.Kind == analyzer.HopAsync {
		return dim
	}
	if !last {
		return ""
	}
	switch h.Verdict {
	case analyzer.VerdictOver, analyzer.VerdictInfeasible:
		return red
	case analyzer.VerdictTight, analyzer.VerdictMisses:
		return yellow
	case analyzer.VerdictOK, analyzer.VerdictFits:
		return green
	}
	return ""
}

// grid lays rows out in columns, rows[0] being the header, and returns the
// lines. paint gives the colour of a cell, or of the last one, in SGR parameters.
//
// The table writer measures text by rules of its own, which follow the locale
// and miscount some emoji. It is therefore given a row of "x" as wide as each
// cell, and the cells are put in place of the x's afterwards, where colours
// cannot disturb a width either.
func grid(cols []column, rows [][]string, paint func(row int, last bool) string) ([]string, error) {
	var (
		buf    bytes.Buffer
		align  = make([]tw.Align, len(cols))
		shapes = make([][]string, len(rows))
	)
	for i, c := range cols {
		align[i] = tw.AlignRight
		if c.left {
			align[i] = tw.AlignLeft
		}
	}
	for i, row := range rows {
		shapes[i] = make([]string, len(row))
		for j, cell := range row {
			shapes[i][j] = strings.Repeat("x", cols[j].gap+columns(cell))
		}
	}
	cell := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
		Alignment:  tw.CellAlignment{PerColumn: align},
		Padding:    tw.CellPadding{Global: tw.PaddingNone},
	}
	table := tablewriter.NewTable(&buf,
		tablewriter.WithConfig(tablewriter.Config{Header: cell, Row: cell}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		})),
	)
	table.Header(shapes[0])
	if err := table.Bulk(shapes[1:]); err != nil {
		return nil, err
	}
	if err := table.Render(); err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(buf.String(), "\n"), "\n")
	if len(lines) != len(rows) {
		return nil, errors.New("the table writer broke a row")
	}
	for i, shape := range lines {
		var line strings.Builder
		for j, cell := range rows[i] {
			at := strings.IndexByte(shape, 'x')
			if at < 0 {
				return nil, errors.New("the table writer lost a cell")
			}
			line.WriteString(shape[:at] + strings.Repeat(" ", cols[j].gap))
			shape = shape[at+cols[j].gap+columns(cell):]
			if sgr := paint(i, j == len(cols)-1); sgr != "" {
				cell = "\x1b[" + sgr + "m" + cell + "\x1b[0m"
			}
			line.WriteString(cell)
		}
		lines[i] = line.String()
	}
	return lines, nil
}

// writeLines writes keyword and text, the text wrapped beside the keyword.
func writeLines(b *bytes.Buffer, lines []line, width int) {
	indent := strings.Repeat(" ", keyWidth)
	for _, l := range lines {
		for i, text := range wrap(l.text, max(min(width, proseWidth)-keyWidth, 20)) {
			if i == 0 {
				b.WriteString(l.key + indent[min(len(l.key), keyWidth-1):] + text + "\n")
			} else {
				b.WriteString(indent + text + "\n")
			}
		}
	}
}
