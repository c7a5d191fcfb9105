package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/report"
)

// equal compares reports up to the six digits that floats are given.
var equal = cmp.Options{
	cmpopts.EquateApprox(1e-5, 0), cmpopts.EquateEmpty(),
	cmpopts.IgnoreFields(analyzer.Hop{}, "Overlaps"), cmpopts.IgnoreFields(analyzer.Input{}, "Failed"),
	cmpopts.IgnoreFields(analyzer.InputNote{}, "Where"),
}

func TestJSONReadsBackAsTheReport(t *testing.T) {
	for _, s := range samples {
		want := s.build()
		var got analyzer.Report
		if err := json.Unmarshal([]byte(render(t, want, "json", report.Options{})), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, &got, equal); diff != "" {
			t.Errorf("%s (-report +json):\n%s", s.name, diff)
		}
	}
}

// TestCSVHoldsEveryValueOfTheJSON compares cell by cell, and so makes sure
// that no key of a hop lacks its column.
func TestCSVHoldsEveryValueOfTheJSON(t *testing.T) {
	for _, s := range samples {
		r := s.build()
		rows, err := csv.NewReader(strings.NewReader(render(t, r, "csv", report.Options{}))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		head, rows := rows[0], rows[1:]
		dec := json.NewDecoder(strings.NewReader(render(t, r, "json", report.Options{})))
		dec.UseNumber()
		var v struct {
			Endpoints []struct {
				Service, Operation string
				Budget             json.Number `json:"budget_ns"`
				Hops               []map[string]any
			}
		}
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		for _, e := range v.Endpoints {
			for _, hop := range e.Hops {
				row := map[string]string{}
				for i, cell := range rows[0] {
					row[head[i]] = cell
				}
				rows = rows[1:]
				if row["endpoint_service"] != e.Service || row["endpoint_operation"] != e.Operation ||
					row["endpoint_budget_ns"] != e.Budget.String() {
					t.Errorf("%s: row of %q %q %s is %v", s.name, e.Service, e.Operation, e.Budget, row)
				}
				for key, val := range hop {
					cell, ok := row[key]
					if !ok {
						t.Errorf("%s: no column %s", s.name, key)
					}
					switch val := val.(type) {
					case json.Number:
						if !sameNumber(cell, val.String()) {
							t.Errorf("%s: %s is %q, in JSON %s", s.name, key, cell, val)
						}
					case bool:
						if cell != strconv.FormatBool(val) {
							t.Errorf("%s: %s is %q, in JSON %v", s.name, key, cell, val)
						}
					case string:
						if cell != val && s.name != "names" {
							t.Errorf("%s: %s is %q, in JSON %q", s.name, key, cell, val)
						}
					case []any:
						if want := strings.Trim(fmt.Sprint(val...), "[]"); cell != want {
							t.Errorf("%s: %s is %q, in JSON %v", s.name, key, cell, val)
						}
					}
					delete(row, key)
				}
				for key, cell := range row {
					if cell != "" && !strings.HasPrefix(key, "endpoint_") {
						t.Errorf("%s: %s is %q, absent from JSON", s.name, key, cell)
					}
				}
			}
		}
		if len(rows) != 0 {
			t.Errorf("%s: %d rows too many", s.name, len(rows))
		}
	}
}

// TestReplayCSVHoldsEveryValueOfTheJSON compares the rows of the replay with its
// JSON form, incidents behind the requests as they were.
func TestReplayCSVHoldsEveryValueOfTheJSON(t *testing.T) {
	for _, s := range samples {
		r := s.build()
		rows, err := csv.NewReader(strings.NewReader(render(t, r, "csv", report.Options{Replay: true}))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		head, rows := rows[0], rows[1:]
		dec := json.NewDecoder(strings.NewReader(render(t, r, "json", report.Options{})))
		dec.UseNumber()
		type table struct {
			Hop      string
			Low      json.Number `json:"low_ns"`
			Policies []map[string]any
		}
		var v struct {
			Endpoints []struct {
				Replay *struct {
					table
					Incidents []table
				}
			}
		}
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		for _, e := range v.Endpoints {
			if e.Replay == nil {
				continue
			}
			for _, table := range append([]table{e.Replay.table}, e.Replay.Incidents...) {
				for _, policy := range table.Policies {
					row := map[string]string{}
					for i, cell := range rows[0] {
						row[head[i]] = cell
					}
					rows = rows[1:]
					if row["incident_hop"] != table.Hop || row["incident_low_ns"] != table.Low.String() {
						t.Errorf("%s: incident of %v, want %v", s.name, row, table)
					}
					for key, val := range policy {
						cell := row[key]
						switch val := val.(type) {
						case json.Number:
							if !sameNumber(cell, val.String()) {
								t.Errorf("%s: %s is %q, in JSON %s", s.name, key, cell, val)
							}
						case string:
							if cell != val && s.name != "names" {
								t.Errorf("%s: %s is %q, in JSON %q", s.name, key, cell, val)
							}
						case []any:
							if n := strings.Count(cell, "="); n != len(val) {
								t.Errorf("%s: %s is %q, in JSON %v", s.name, key, cell, val)
							}
						}
						delete(row, key)
					}
					for key, cell := range row {
						if cell != "" && !strings.HasPrefix(key, "endpoint_") && !strings.HasPrefix(key, "incident_") {
							t.Errorf("%s: %s is %q, absent from JSON", s.name, key, cell)
						}
					}
				}
			}
		}
		if len(rows) != 0 {
			t.Errorf("%s: %d rows too many", s.name, len(rows))
		}
	}
}

// TestReplayTableIsThatOfTheMarkdown: in full, and as wide as it likes, the
// terminal shows the cells of the Markdown; in short, some of its rows.
func TestReplayTableIsThatOfTheMarkdown(t *testing.T) {
	rows := func(text string) [][]string {
		var out [][]string
		for l := range strings.Lines(text) {
			for _, first := range []string{"today ", "deadline only", "BUDGET as", "TIMEOUT with", "half of"} {
				if l = strings.Trim(l, "| \n"); strings.HasPrefix(l, first) {
					out = append(out, strings.Fields(html.UnescapeString(strings.ReplaceAll(l, "|", " "))))
				}
			}
		}
		return out
	}
	want := rows(render(t, order(), "markdown", report.Options{}))
	if len(want) != 6 {
		t.Fatalf("%d rows of Markdown", len(want))
	}
	if diff := cmp.Diff(want, rows(render(t, order(), "table", report.Options{Width: 200, Replay: true}))); diff != "" {
		t.Errorf("(-markdown +table):\n%s", diff)
	}
	short := [][]string{want[0], want[1], want[3], want[4]}
	if diff := cmp.Diff(short, rows(render(t, order(), "table", report.Options{Width: 200}))); diff != "" {
		t.Errorf("(-markdown +short table):\n%s", diff)
	}
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// markdownRows returns the cells of the first table, the header first.
func markdownRows(text string) [][]string {
	var rows [][]string
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(l, "|\n"), "|")
		for i := range cells {
			cells[i] = html.UnescapeString(strings.TrimSpace(cells[i]))
		}
		rows = append(rows, cells)
	}
	return slices.Delete(rows, 1, 2) // The line under the header.
}

// TestMarkdownShowsTheNumbersOfTheReport reads each cell back and allows for
// half of its last digit.
func TestMarkdownShowsTheNumbersOfTheReport(t *testing.T) {
	ns := func(o analyzer.Opt[int64]) analyzer.Opt[float64] {
		return analyzer.Opt[float64]{V: float64(o.V) / 1e6, Known: o.Known}
	}
	part := func(o analyzer.Opt[float64]) analyzer.Opt[float64] {
		return analyzer.Opt[float64]{V: o.V * 100, Known: o.Known}
	}
	want := map[string]func(*analyzer.Hop) analyzer.Opt[float64]{
		"P50":     func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.P50) },
		"P95":     func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.P95) },
		"P97.5":   func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.PercentileNS) },
		"NET":     func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.NetP50) },
		"BUDGET":  func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.Share) },
		"TIMEOUT": func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.Cap) },
		"NOW":     func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.Now) },
		"CHANGE":  func(h *analyzer.Hop) analyzer.Opt[float64] { return ns(h.Change) },
		"%":       func(h *analyzer.Hop) analyzer.Opt[float64] { return part(h.ShareRatio) },
		"CUTS":    func(h *analyzer.Hop) analyzer.Opt[float64] { return part(h.CutRatio) },
		"PATH":    func(h *analyzer.Hop) analyzer.Opt[float64] { return part(h.CriticalPath) },
		"SLOW":    func(h *analyzer.Hop) analyzer.Opt[float64] { return part(h.SlowPath) },
		"SLACK":   func(h *analyzer.Hop) analyzer.Opt[float64] { return h.Slack },
		"CALLS":   func(h *analyzer.Hop) analyzer.Opt[float64] { return analyzer.Some(float64(h.Calls)) },
		"P99": func(h *analyzer.Hop) analyzer.Opt[float64] {
			if h.Confidence == "refused" {
				return ns(h.Max)
			}
			return ns(h.P99)
		},
	}
	number := regexp.MustCompile(`<?[-+]?[0-9]+(\.[0-9]+)?`)
	seen := map[string]bool{}
	for _, s := range samples {
		r := s.build()
		rows := markdownRows(render(t, r, "markdown", report.Options{}))
		for i := range r.Endpoints[0].Hops {
			h := &r.Endpoints[0].Hops[i]
			for j, head := range rows[0] {
				value := want[head]
				if value == nil {
					continue
				}
				seen[head] = true
				v, cell := value(h), rows[i+1][j]
				text := number.FindString(cell)
				if !v.Known || text == "" {
					if v.Known || cell != "-" {
						t.Errorf("%s %s %s: %q for %v", s.name, h.ID, head, cell, v)
					}
					continue
				}
				if below, ok := strings.CutPrefix(text, "<"); ok {
					if limit, _ := strconv.ParseFloat(below, 64); v.V <= 0 || v.V >= limit {
						t.Errorf("%s %s %s: %q for %v", s.name, h.ID, head, cell, v.V)
					}
					continue
				}
				got, err := strconv.ParseFloat(text, 64)
				_, fraction, _ := strings.Cut(text, ".")
				if err != nil || math.Abs(got-v.V) > 0.5*math.Pow10(-len(fraction))+1e-6 {
					t.Errorf("%s %s %s: %q for %v", s.name, h.ID, head, cell, v.V)
				}
			}
		}
	}
	for head := range want {
		if !seen[head] {
			t.Errorf("no sample has the column %s", head)
		}
	}
}

// tableRows returns the lines of the first table, the header first.
func tableRows(text string) []string {
	_, rest, _ := strings.Cut(text, "\n\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	return strings.Split(table, "\n")
}

// TestTableHasTheCellsOfTheMarkdown: where there is room for all columns, both
// show the same texts in the same order.
func TestTableHasTheCellsOfTheMarkdown(t *testing.T) {
	for _, s := range samples {
		if s.name == "names" { // Escaped in Markdown, so the texts differ.
			continue
		}
		rows := tableRows(render(t, s.build(), "table", report.Options{Width: 400}))
		want := markdownRows(render(t, s.build(), "markdown", report.Options{}))
		if len(rows) != len(want) {
			t.Fatalf("%s: %d lines, want %d", s.name, len(rows), len(want))
		}
		for i, cells := range want {
			text := strings.ReplaceAll(strings.Join(cells, " "), "\u00a0", " ")
			text = strings.NewReplacer(`\*`, "*").Replace(text)
			if got, want := strings.Fields(rows[i]), strings.Fields(text); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", s.name, got, want)
			}
		}
	}
}

// verdictColumns returns the column at which the last cell of each row starts.
func verdictColumns(rows []string) []int {
	at := []int{displaywidth.String(strings.TrimSuffix(rows[0], "VERDICT"))}
	for _, row := range rows[1:] {
		i := strings.LastIndex(row, "  ")
		at = append(at, displaywidth.String(row[:i+2]))
	}
	return at
}

func TestLinesFitTheWidthAndColumnsLineUp(t *testing.T) {
	for _, s := range samples {
		for _, width := range []int{80, 100, 120, 200} {
			for _, ascii := range []bool{false, true} {
				r := s.build()
				text := render(t, r, "table", report.Options{Width: width, ASCII: ascii, Replay: ascii})
				for l := range strings.Lines(text) {
					if w := displaywidth.String(strings.TrimRight(l, "\n")); w > width {
						t.Errorf("%s: %d columns of %d: %s", s.name, w, width, l)
					}
				}
				at := verdictColumns(tableRows(text))
				if len(slices.Compact(slices.Clone(at))) != 1 {
					t.Errorf("%s at %d: last column starts at %v:\n%s", s.name, width, at, text)
				}
			}
		}
	}
}

// TestBelowTheLeastWidthNumbersStayWhole: in few columns the table is wider than
// asked, and every number is that of the wide one.
func TestBelowTheLeastWidthNumbersStayWhole(t *testing.T) {
	for width := 1; width < 60; width++ {
		rows := tableRows(render(t, hotel(), "table", report.Options{Width: width}))
		for i, want := range []string{"34.7 139 (≤157) 200 200", "16.8 40.4 (≤76) 49 121", "3.7 11.4 (≤15) 13 34"} {
			if len(rows) != 7 {
				t.Fatalf("%d rows at %d", len(rows), width)
			}
			if got := strings.Join(strings.Fields(rows[i+1]), " "); !strings.Contains(got, want) {
				t.Errorf("at %d %q lacks %q", width, got, want)
			}
		}
	}
}

// TestDeepTreesKeepTheirNames: 60 levels of branches would fill 180 columns.
func TestDeepTreesKeepTheirNames(t *testing.T) {
	r := hotel()
	e := &r.Endpoints[0]
	model := e.Hops[1]
	e.Hops = e.Hops[:1]
	id := "0"
	for depth := 1; depth <= 60; depth++ {
		h := model
		h.Parent, h.Depth = id, depth
		id += ".0"
		h.ID, h.Label = id, fmt.Sprintf("service%02d Call", depth)
		e.Hops = append(e.Hops, h)
	}
	for _, width := range []int{80, 120} {
		text := render(t, r, "table", report.Options{Width: width})
		for i, row := range tableRows(text)[2:] {
			if w := displaywidth.String(row); w > width {
				t.Errorf("%d columns of %d: %s", w, width, row)
			}
			if want := fmt.Sprintf("service%02d", i+1); !strings.Contains(row, want) {
				t.Errorf("width %d: %q lacks %s", width, row, want)
			}
		}
	}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9]+m")

func TestColoursChangeNothingElse(t *testing.T) {
	for _, s := range samples {
		for _, width := range []int{80, 120} {
			bare := render(t, s.build(), "table", report.Options{Width: width})
			coloured := render(t, s.build(), "table", report.Options{Width: width, Color: true})
			if !sgr.MatchString(coloured) {
				t.Errorf("%s: no colour", s.name)
			}
			if got := sgr.ReplaceAllString(coloured, ""); got != bare {
				t.Errorf("%s at %d (-bare +coloured):\n%s", s.name, width, cmp.Diff(bare, got))
			}
		}
	}
}

func TestASCIIDrawsWithASCIIOnly(t *testing.T) {
	for _, s := range samples {
		if s.name == "names" {
			continue
		}
		for _, format := range []string{"table", "markdown"} {
			text := render(t, s.build(), format, report.Options{ASCII: true, Width: 80})
			for _, r := range text {
				if r > unicode.MaxASCII && (format == "table" || r != '\u00a0') {
					t.Errorf("%s: %s has %q", s.name, format, r)
					break
				}
			}
		}
	}
}

func TestRenderLeavesTheReportAsItIsAndIsStable(t *testing.T) {
	for _, s := range samples {
		r := s.build()
		for _, format := range report.Formats() {
			first := render(t, r, format, report.Options{})
			for range 20 {
				if again := render(t, r, format, report.Options{}); again != first {
					t.Fatalf("%s: %s differs:\n%s", s.name, format, cmp.Diff(first, again))
				}
			}
		}
		if diff := cmp.Diff(s.build(), r); diff != "" {
			t.Errorf("%s was changed:\n%s", s.name, diff)
		}
	}
}

func TestUnknownFormatIsAnErrorThatListsTheValidOnes(t *testing.T) {
	var b bytes.Buffer
	err := report.Render(&b, hotel(), "yaml", report.Options{})
	if err == nil || err.Error() != `unknown output format "yaml": use one of table, json, markdown, csv` || b.Len() > 0 {
		t.Errorf("error %v, %d bytes written", err, b.Len())
	}
}

func TestEmptyReportsRender(t *testing.T) {
	for _, r := range []*analyzer.Report{
		{Version: 1},
		{Version: 1, Endpoints: []analyzer.Endpoint{{}}},
		{Version: 1, Endpoints: []analyzer.Endpoint{{Hops: make([]analyzer.Hop, 3)}}},
	} {
		for _, format := range report.Formats() {
			if text := render(t, r, format, report.Options{}); !strings.HasSuffix(text, "\n") {
				t.Errorf("%s: %q", format, text)
			}
		}
	}
}

var noNumber = regexp.MustCompile(`NaN|Inf\b|null`)

// TestNumbersThatAreNoneReachNoFormat puts NaN and infinities where sums and
// quotients could leave them: unknown values are left out, needed ones are an
// error that names the key.
func TestNumbersThatAreNoneReachNoFormat(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
	for range 200 {
		r := samples[rng.IntN(len(samples))].build()
		e := &r.Endpoints[0]
		h := &e.Hops[rng.IntN(len(e.Hops))]
		for _, o := range []*analyzer.Opt[float64]{
			&h.UtilizationP99, &h.CriticalPath, &h.SlowPath, &h.ShareRatio, &h.Slack, &h.CutRatio, &e.Percentile,
		} {
			if rng.IntN(2) == 0 {
				*o = ratio(odd[rng.IntN(len(odd))])
			}
		}
		for _, format := range report.Formats() {
			text := render(t, r, format, report.Options{})
			if noNumber.MatchString(text) {
				t.Fatalf("%s:\n%s", format, text)
			}
			if format == "json" && !json.Valid([]byte(text)) {
				t.Fatalf("no JSON:\n%s", text)
			}
		}
	}
	for key, spoil := range map[string]func(*analyzer.Endpoint){
		"deadline_miss_ratio": func(e *analyzer.Endpoint) { e.DeadlineMissRatio = math.NaN() },
		"kind_inferred_ratio": func(e *analyzer.Endpoint) { e.KindInferredRatio = math.Inf(1) },
		"presence":            func(e *analyzer.Endpoint) { e.Hops[1].Presence = math.NaN() },
		"censored_ratio":      func(e *analyzer.Endpoint) { e.Hops[1].CensoredRatio = math.NaN() },
		"violated_ratio":      func(e *analyzer.Endpoint) { e.Replay.Policies[1].Violated = math.NaN() },
		"cuts ratio":          func(e *analyzer.Endpoint) { e.Replay.Policies[7].Cuts[0].Ratio = math.Inf(1) },
		"to_slack":            func(e *analyzer.Endpoint) { e.Moves[0].ToSlack = math.Inf(1) },
	} {
		r := order()
		spoil(&r.Endpoints[0])
		for _, format := range report.Formats() {
			var b bytes.Buffer
			err := report.Render(&b, r, format, report.Options{})
			if err == nil || !strings.Contains(err.Error(), key) || b.Len() > 0 {
				t.Errorf("%s: error %v, %d bytes written", key, err, b.Len())
			}
		}
	}
}

func TestFloatsAreShort(t *testing.T) {
	r := hotel()
	h := &r.Endpoints[0].Hops[1]
	h.ShareRatio, h.CutRatio, h.Slack = ratio(0.1+0.2), ratio(1.0/3e7), ratio(49/40.4)
	text := render(t, r, "json", report.Options{})
	for _, want := range []string{`"share_ratio": 0.3,`, `"cut_ratio": 3.33333e-8,`, `"slack": 1.21287,`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the JSON", want)
		}
	}
}

func TestCSVCellsAreNoFormulas(t *testing.T) {
	for in, want := range map[string]string{
		"=1+1": "'=1+1", "+a": "'+a", "-a": "'-a", "@a": "'@a", "\ta": "'␉a", "\ra": "'␍a", "a=b": "a=b", "a\nb": "a␊b",
	} {
		r := hotel()
		r.Endpoints[0].Hops[0].Label = in
		rows, err := csv.NewReader(strings.NewReader(render(t, r, "csv", report.Options{}))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if got := rows[1][slices.Index(rows[0], "label")]; got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// hostile puts name wherever a report has text from outside.
func hostile(name string) *analyzer.Report {
	r := order()
	e := &r.Endpoints[0]
	e.Service, e.Operation = name, name
	for i := range e.Hops {
		h := &e.Hops[i]
		h.Caller, h.Callee, h.Operation, h.Label = name, name, name, name
		h.Flags = []string{name}
	}
	e.Warnings = []string{name}
	e.Feasible, e.BindingChain = len(name)%2 == 0, []string{"0.1"}
	r.Others[0].Service = name
	r.Input.Files[0].Name = name
	r.Input.Sampling.Note = name
	r.Input.Notes[0].Text, r.Input.Notes[1].Text = name, name
	return r
}

// FuzzNamesCannotHarmAnyOutput: no control, line break or reordering character
// of a name reaches text, no name changes the shape of a table or becomes
// markup, and JSON keeps every name.
func FuzzNamesCannotHarmAnyOutput(f *testing.F) {
	for _, seed := range []string{
		"", " ", "checkout POST /orders", "支付服务", "⚠️", "👩‍👩‍👧", "🏴\U000e0067\U000e0062\U000e007f", "zh_CN",
		"\u0301\u0301", "\u200d", "\u0d4e",
		"evil\x1b]0;pwn\a", "\x1b[2J", "a\rOK", "\u009b31m", "\u202e\u2066", "a\nb\u2028c\u0085", "\xff\xfe",
		"|", "\\|", "`", "<script>", "</td>", "[x](http://a.example)",
		"http://a.example", "www.a.example", "@all", "&lt;", "***", "| --- |\n| x |",
		"=HYPERLINK(1)", "+1", "-1", "@x", "\t=1",
		strings.Repeat("長い", 100), strings.Repeat("x", 300), strings.Repeat("a ", 200),
	} {
		f.Add(seed)
	}
	f.Fuzz(harmless)
}

// TestRandomHostileNamesCannotHarmAnyOutput mixes what is hard on its own.
func TestRandomHostileNamesCannotHarmAnyOutput(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	parts := []string{
		"a", "svc-", " ", "  ", "\u00a0", "\x1b[31m", "\x00", "\u0085", "\u202e", "\n", "\t", "\r\n", "\xff",
		"|", "\\", "`", "<b>", "&", "@", "://", "www.",
		"[", "](", "*", "_", "~", "=", "支付", "⚠️", "👩‍👩‍👧", "\u0301", "\u200d", "🇨🇳", "ﷺ", "한", "-", "+", "\"", ",", "'",
	}
	for range 100 {
		var name strings.Builder
		for range rng.IntN(40) {
			name.WriteString(parts[rng.IntN(len(parts))])
		}
		harmless(t, name.String())
	}
}

var markup = regexp.MustCompile("[<>`]|://|www\\.|(^|[^\\\\])[\\[\\]_~]|@[^&]")

// harmless fails where name does harm to a report.
func harmless(t *testing.T, name string) {
	t.Helper()
	r := hostile(name)
	// Some letters of Indic scripts form one character with whatever
	// follows, a space too, so whole lines cannot be measured.
	measurable := !strings.ContainsFunc(name, func(c rune) bool {
		return displaywidth.String(string(c)+" ") != displaywidth.String(string(c))+1
	})
	for _, format := range []string{"table", "markdown", "csv"} {
		for _, width := range []int{80, 120} {
			text := render(t, r, format, report.Options{Width: width})
			if !utf8.ValidString(text) {
				t.Fatalf("%s is no UTF-8", format)
			}
			for _, c := range text {
				if c != '\n' && unicode.In(c, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp) {
					t.Fatalf("%s has %U", format, c)
				}
			}
			switch format {
			case "table":
				rows := tableRows(text)
				if len(rows) != len(r.Endpoints[0].Hops)+1 {
					t.Fatalf("%d lines of table:\n%s", len(rows), text)
				}
				if !measurable {
					continue
				}
				for l := range strings.Lines(text) {
					if w := displaywidth.String(strings.TrimRight(l, "\n")); w > width {
						t.Fatalf("%d columns of %d: %q", w, width, l)
					}
				}
				if at := slices.Compact(verdictColumns(rows)); len(at) != 1 {
					t.Fatalf("last column starts at %v:\n%s", at, text)
				}
			case "markdown":
				rows := markdownRows(text)
				if len(rows) != len(r.Endpoints[0].Hops)+1 {
					t.Fatalf("%d lines of table:\n%s", len(rows), text)
				}
				for _, row := range rows {
					if len(row) != len(rows[0]) {
						t.Fatalf("%d cells of %d: %q", len(row), len(rows[0]), row)
					}
				}
				if found := markup.FindString(text); found != "" {
					t.Fatalf("markup %q in\n%s", found, text)
				}
			case "csv":
				rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
				if err != nil || len(rows) != len(r.Endpoints[0].Hops)+1 {
					t.Fatalf("%d rows, error %v", len(rows), err)
				}
				label := rows[1][slices.Index(rows[0], "label")]
				if label != "" && strings.ContainsRune("=+-@\t\r", rune(label[0])) {
					t.Fatalf("formula %q", label)
				}
			}
		}
	}
	var got analyzer.Report
	if err := json.Unmarshal([]byte(render(t, r, "json", report.Options{})), &got); err != nil {
		t.Fatal(err)
	}
	if want := strings.ToValidUTF8(name, "\ufffd"); utf8.ValidString(name) && got.Endpoints[0].Service != want {
		t.Fatalf("JSON has %q for %q", got.Endpoints[0].Service, name)
	}
}
