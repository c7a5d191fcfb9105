package report

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer"
)

func TestMillisKeepsOneDigitUnderHundredAndTwoSignificantUnderOne(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0", 1: "0.000001", 12: "0.000012", 4_200: "0.0042", 42_000: "0.042", 350_000: "0.35",
		994_999: "0.99", 995_000: "1.0", 1_000_000: "1.0", 3_700_000: "3.7", 34_676_000: "34.7",
		99_949_999: "99.9", 99_950_000: "100", 139_115_000: "139", 15_000_000_000: "15000",
		-350_000: "-0.35", -1_500_000: "-1.5", math.MaxInt64: "9223372036855", math.MinInt64: "-9223372036855",
	} {
		if got := millis(ns); got != want {
			t.Errorf("millis(%d) = %s, want %s", ns, got, want)
		}
	}
}

func TestPlannedTimesHaveTheDigitsOfTheQuantum(t *testing.T) {
	const us, ms = int64(1_000), int64(1_000_000)
	for _, c := range []struct {
		ns, quantum   int64
		exact, nearby string
	}{
		{49 * ms, ms, "49", "49"},
		{49 * ms, 100 * us, "49.0", "49.0"},
		{350 * us, 10 * us, "0.35", "0.35"},
		{900 * us, 100 * us, "0.9", "0.9"},
		{500 * us, 250 * us, "0.50", "0.50"},
		{33_500 * us, ms, "33.5", "34"},
		{187_349_231, ms, "187.349231", "187"},
		{400 * us, ms, "0.4", "0.40"},
		{-42 * ms, ms, "-42", "-42"},
		{0, ms, "0", "0"},
		{123, 0, "0.000123", "0.00012"},
	} {
		if got := exact(c.ns, c.quantum); got != c.exact {
			t.Errorf("exact(%d, %d) = %s, want %s", c.ns, c.quantum, got, c.exact)
		}
		if got := nearQuantum(c.ns, c.quantum); got != c.nearby {
			t.Errorf("nearQuantum(%d, %d) = %s, want %s", c.ns, c.quantum, got, c.nearby)
		}
	}
}

// TestNoTimeIsPrintedAsZeroOrOffByMoreThanHalfADigit draws times of every
// magnitude.
func TestNoTimeIsPrintedAsZeroOrOffByMoreThanHalfADigit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	quanta := []int64{1, 1_000, 10_000, 100_000, 250_000, 1_000_000, 5_000_000}
	for range 200_000 {
		ns := rng.Int64N(1 << rng.IntN(53))
		quantum := quanta[rng.IntN(len(quanta))]
		for name, text := range map[string]string{
			"millis": millis(ns), "bound": bound(ns), "exact": exact(ns, quantum), "nearQuantum": nearQuantum(ns, quantum),
		} {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatalf("%s(%d) = %q", name, ns, text)
			}
			if (v == 0) != (ns == 0) {
				t.Fatalf("%s(%d) = %s", name, ns, text)
			}
			_, fraction, _ := strings.Cut(text, ".")
			half := 0.5 * math.Pow10(6-len(fraction))
			if name == "exact" {
				half = 0
			}
			if off := math.Abs(v*1e6 - float64(ns)); off > half+1e-9*float64(ns) {
				t.Fatalf("%s(%d) = %s, off by %v ns", name, ns, text, off)
			}
		}
	}
}

func TestOnlyZeroIsPrintedAsZeroRatio(t *testing.T) {
	for _, c := range []struct {
		ratio         float64
		percent, rate string
	}{
		{0, "0", "0.0 %"},
		{1e-12, "<0.1", "<0.1 %"},
		{0.0004, "<0.1", "<0.1 %"},
		{0.0005, "0.1", "0.1 %"},
		{0.008, "0.8", "0.8 %"},
		{0.0095, "1", "0.9 %"},
		{0.026, "3", "2.6 %"},
		{0.246, "25", "25 %"},
		{0.0999, "10", "10 %"},
		{1, "100", "100 %"},
	} {
		if got := percent(c.ratio); got != c.percent {
			t.Errorf("percent(%v) = %s, want %s", c.ratio, got, c.percent)
		}
		if got := strings.ReplaceAll(rate(c.ratio), glue, " "); got != c.rate {
			t.Errorf("rate(%v) = %s, want %s", c.ratio, got, c.rate)
		}
	}
	for f, want := range map[float64]string{0: "0.0×", 0.001: "<0.1×", 1.2129: "1.2×", 6.6667: "6.7×", 123.4: "123×"} {
		if got := multiple(f, drawnGlyphs); got != want {
			t.Errorf("multiple(%v) = %s, want %s", f, got, want)
		}
	}
}

func TestPrintableReplacesWhatSteersATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain /users/{id}":            "plain /users/{id}",
		"支付服务 ⚠️ 👩‍👩‍👧":                "支付服务 ⚠️ 👩‍👩‍👧",
		"\x1b]0;pwn\a":                 "␛]0;pwn␇",
		"a\r\n\tb\x00\x7f":             "a␍␊␉b␀␡",
		"\u009b31m":                    "\ufffd31m",
		"\u202egnp\u2066\u2069\u200f.": "\ufffdgnp\ufffd\ufffd\ufffd.",
		"a\u2028b\ufeffc\u00add":       "a\ufffdb\ufffdc\ufffdd",
		"bad \xff\xc3 bytes":           "bad \ufffd\ufffd bytes",
		"می\u200cخواهم":                "می\u200cخواهم",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestClipAndWrapKeepWholeCharactersWithinTheWidth(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"abcdef", 6, "abcdef"},
		{"abcdef", 5, "abcd…"},
		{"支付服务", 7, "支付服…"},
		{"支付服务", 6, "支付…"},
		{"⚠️⚠️⚠️", 5, "⚠️⚠️…"},
		{"👩‍👩‍👧👩‍👩‍👧", 3, "👩‍👩‍👧…"},
		{"abc", 0, "…"},
	} {
		if got := clip(c.in, c.width, "…"); got != c.want {
			t.Errorf("clip(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
	text := "支付服务 takes 30 ms, 95 % of " + strings.Repeat("x", 25) + " and more"
	for width := 10; width < 60; width++ {
		lines := wrap(text, width)
		for _, l := range lines {
			if columns(l) > width {
				t.Errorf("width %d: %q", width, l)
			}
		}
		if all := strings.Join(lines, "\n"); strings.Count(all, "30 ms") != 1 || strings.Count(all, "95 %") != 1 {
			t.Errorf("width %d: a number lost its unit in %q", width, lines)
		}
		squeeze := strings.NewReplacer(" ", "", glue, "").Replace
		if got := squeeze(strings.Join(lines, "")); got != squeeze(text) {
			t.Errorf("width %d: %q", width, got)
		}
	}
}

// TestBranchesDrawTheTree: a line goes down to the last child of each hop and
// no further.
func TestBranchesDrawTheTree(t *testing.T) {
	e := &analyzer.Endpoint{}
	for _, h := range []struct {
		depth    int
		overlaps bool
	}{{0, false}, {1, false}, {2, true}, {2, true}, {3, false}, {1, false}, {2, false}, {1, true}, {2, false}, {3, false}} {
		e.Hops = append(e.Hops, analyzer.Hop{Depth: h.depth, Overlaps: h.overlaps})
	}
	s := &sheet{glyphs: drawnGlyphs, e: e}
	var got strings.Builder
	for _, b := range s.branches() {
		got.WriteString(strings.Join(b, "") + "x\n")
	}
	want := `x
├─ x
│  ├═ x
│  └═ x
│     └─ x
├─ x
│  └─ x
└═ x
   └─ x
      └─ x
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}
