package report

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/clipperhouse/displaywidth"

	"github.com/latencybudget/latencybudget/analyzer"
)

// unknown stands for a value that is not known or does not apply.
const unknown = "-"

// glue is a space at which no line may break, between a number and its unit.
// It is written as a plain space.
const glue = "\u00a0"

// glyphs are the characters that are not letters or digits.
type glyphs struct {
	branch, last               string // after the sibling above
	overlap, lastOverlap       string // may overlap with a sibling
	pipe, gap                  string // 3 columns each
	dots, times, dot, then     string
	atMost, atLeast, ellipsis3 string // ellipsis3: dots, 3 columns wide
}

var (
	drawnGlyphs = glyphs{
		branch: "├─ ", last: "└─ ", overlap: "├═ ", lastOverlap: "└═ ", pipe: "│  ", gap: "   ",
		dots: "…", times: "×", dot: " · ", then: " → ", atMost: "≤", atLeast: "≥", ellipsis3: "…  ",
	}
	asciiGlyphs = glyphs{
		branch: "|- ", last: "`- ", overlap: "|= ", lastOverlap: "`= ", pipe: "|  ", gap: "   ",
		dots: "...", times: "x", dot: " - ", then: " -> ", atMost: "<=", atLeast: ">=", ellipsis3: "...",
	}
)

func glyphsOf(o Options) glyphs {
	if o.ASCII {
		return asciiGlyphs
	}
	return drawnGlyphs
}

// Printable replaces every character that could steer a terminal, break a line
// or reorder text: C0 controls and DEL by their control pictures, which say
// what was there; C1 controls, line separators and invisible format characters
// (bidi overrides and isolates among them) by U+FFFD, as bytes that are no
// UTF-8. The two joiners that emoji and Persian need stay, and so do the tags
// that make regional flags.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		const joiner, nonJoiner, firstTag, lastTag = '\u200d', '\u200c', '\U000e0020', '\U000e007f'
		switch {
		case r < 0x20:
			return '\u2400' + r
		case r == 0x7f:
			return '\u2421'
		case r == joiner, r == nonJoiner, firstTag <= r && r <= lastTag:
			return r
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// columns returns the width of s on a terminal. East-Asian ambiguous
// characters count one column whatever the locale says, since the tree glyphs
// are among them.
func columns(s string) int { return displaywidth.String(s) }

// clip shortens s to the given number of columns, at the boundary of a visible
// character, and marks the cut.
func clip(s string, width int, dots string) string {
	if columns(s) <= width {
		return s
	}
	return displaywidth.TruncateString(s, max(width, columns(dots)), dots)
}

// quantity is a number with its unit.
var quantity = regexp.MustCompile(`([0-9]) (%|ms)`)

// wrap breaks text at spaces into lines of at most width columns, but not
// between a number and its unit. A word that is longer than a line is broken where the line ends.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.SplitSeq(quantity.ReplaceAllString(text, "$1"+glue+"$2"), " ") {
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
		for {
			head := displaywidth.TruncateString(line, width, "")
			if len(head) == len(line) || head == "" { // It fits, or not one character does.
				break
			}
			lines = append(lines, head)
			line = line[len(head):]
		}
	}
	lines = append(lines, line)
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], glue, " ")
	}
	return lines
}

// millis formats ns as ms: none after the point from 100 ms on, one digit from
// 1 ms on, two significant digits below, so that no duration but 0 shows as 0.
func millis(ns int64) string {
	switch a := magnitude(ns); {
	case a == 0:
		return "0"
	case a >= 99_950_000:
		return decimal(ns, 0)
	case a >= 995_000:
		return decimal(ns, 1)
	default:
		return decimal(ns, leading(a, 2))
	}
}

// bound formats an end of an interval, coarser than [millis]: whole ms from
// 10 ms on.
func bound(ns int64) string {
	if magnitude(ns) >= 9_950_000 {
		return decimal(ns, 0)
	}
	return millis(ns)
}

// exact formats ns as ms with the digits of the quantum, and more where the
// value needs them: it is meant to be typed into a configuration.
func exact(ns, quantum int64) string { return decimal(ns, max(digits(quantum), digits(ns))) }

// nearQuantum formats ns as ms with the digits of the quantum, for values that
// need not be multiples of it.
func nearQuantum(ns, quantum int64) string {
	d := digits(quantum)
	if a := magnitude(ns); a != 0 && a < pow10(6-d)/2 {
		d = leading(a, 2)
	}
	return decimal(ns, d)
}

// digits returns how many digits after the point ns needs as ms.
func digits(ns int64) int {
	if ns == 0 {
		return 0
	}
	d := 6
	for d > 0 && ns%10 == 0 {
		ns /= 10
		d--
	}
	return d
}

// leading returns the digits after the point that show n significant digits
// of 0 < ns < 1 ms.
func leading(ns uint64, n int) int {
	d := n - 1
	for ns < 1_000_000 {
		ns *= 10
		d++
	}
	return min(d, 6)
}

// decimal formats ns as ms with d <= 6 digits after the point, rounded half away
// from zero, in integers.
func decimal(ns int64, d int) string {
	unit := pow10(6 - d)
	a := magnitude(ns)
	q := a / unit
	if a%unit >= (unit+1)/2 {
		q++
	}
	s := strconv.FormatUint(q, 10)
	if d > 0 {
		if len(s) <= d {
			s = strings.Repeat("0", d+1-len(s)) + s
		}
		s = s[:len(s)-d] + "." + s[len(s)-d:]
	}
	if ns < 0 && q != 0 {
		s = "-" + s
	}
	return s
}

func pow10(n int) uint64 {
	v := uint64(1)
	for range n {
		v *= 10
	}
	return v
}

// magnitude is the absolute value, for the smallest int64 too.
func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// percent formats a ratio without its sign: whole numbers from 1 on, one digit
// below; only 0 shows as 0.
func percent(ratio float64) string {
	switch p := ratio * 100; {
	case p == 0:
		return "0"
	case p > 0 && p < 0.05:
		return "<0.1"
	case p > 0 && p < 0.95:
		return strconv.FormatFloat(p, 'f', 1, 64)
	default:
		return strconv.FormatFloat(p, 'f', 0, 64)
	}
}

// wholeRate is percent with the sign.
func wholeRate(ratio float64) string { return percent(ratio) + glue + "%" }

// rate formats a small ratio with its sign: one digit after the point below 10 %.
func rate(ratio float64) string {
	switch p := ratio * 100; {
	case p == 0:
		return "0.0" + glue + "%"
	case p > 0 && p < 0.05:
		return "<0.1" + glue + "%"
	case p < 9.95:
		return strconv.FormatFloat(p, 'f', 1, 64) + glue + "%"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + glue + "%"
	}
}

// exactRate formats a ratio that somebody set, with its sign.
func exactRate(ratio float64) string {
	return strconv.FormatFloat(sixDigits(100*ratio), 'f', -1, 64) + glue + "%"
}

// multiple formats a factor such as slack: one digit after the point up to 100.
func multiple(f float64, g glyphs) string {
	switch {
	case f > 0 && f < 0.05:
		return "<0.1" + g.times
	case f < 99.95:
		return strconv.FormatFloat(f, 'f', 1, 64) + g.times
	case f < 1000:
		return strconv.FormatFloat(f, 'f', 0, 64) + g.times
	}
	return ">999" + g.times
}

// known formats a value that is known, and a dash for one that is not.
func known[T any](o analyzer.Opt[T], format func(T) string) string {
	if !o.Known {
		return unknown
	}
	return format(o.V)
}
