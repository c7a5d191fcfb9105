package report

import (
	"bytes"
	"io"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

// renderMarkdown writes a GitHub table for each endpoint, with the columns of
// the wide layout, and the lines below it as a list.
func renderMarkdown(w io.Writer, r *analyzer.Report, o Options) error {
	var b bytes.Buffer
	for i := range r.Endpoints {
		s := &sheet{glyphs: glyphsOf(o), r: r, e: &r.Endpoints[i]}
		endpoint, facts := s.title()
		b.WriteString("### " + markdown(endpoint) + "\n\n" + markdown(strings.Join(facts, s.dot)) + "\n\n")
		s.markdownTable(&b)
		b.WriteString("\n")
		markdownList(&b, s.footer())
		b.WriteString("\n")
		s.markdownReplay(&b)
	}
	b.WriteString("### Input and assumptions\n\n")
	markdownList(&b, closing(r))
	_, err := w.Write(b.Bytes())
	return err
}

func (s *sheet) markdownTable(b *bytes.Buffer) {
	cols := s.wide()
	b.WriteString("| HOP |")
	for _, c := range cols {
		b.WriteString(" " + c.head + " |")
	}
	b.WriteString("\n| :--- |")
	for _, c := range cols {
		if c.left {
			b.WriteString(" :--- |")
		} else {
			b.WriteString(" ---: |")
		}
	}
	b.WriteString("\n")
	branches := s.branches()
	for i := range s.e.Hops {
		h := &s.e.Hops[i]
		// Plain spaces at the start of a cell, and all but one elsewhere, are
		// not shown; these are.
		tree := strings.ReplaceAll(markdown(strings.Join(branches[i], "")), " ", glue)
		b.WriteString("| " + tree + markdown(name(h)) + " |")
		for _, c := range cols {
			b.WriteString(" " + markdown(c.cell(h)) + " |")
		}
		b.WriteString("\n")
	}
}

func markdownList(b *bytes.Buffer, lines []line) {
	for _, l := range lines {
		b.WriteString("- **" + l.key + "** " + markdown(l.text) + "\n")
	}
}

// markdownEscapes make text that shows as it is: no HTML, no code, no
// emphasis, no table cell, no formula, and no link, neither by brackets nor by
// the mere look of an address or a user name (the word joiner behind @).
var markdownEscapes = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "&#124;", "`", "&#96;", "$", "&#36;",
	`\`, `\\`, "*", `\*`, "_", `\_`, "~", `\~`, "[", `\[`, "]", `\]`, "#", `\#`,
	"://", "&#58;//", "www.", "www&#46;", "@", "@&#8288;",
)

func markdown(s string) string { return markdownEscapes.Replace(plain(s)) }
