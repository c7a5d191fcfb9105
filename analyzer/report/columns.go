package report

import (
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

// column is one column of a text table.
type column struct {
	head string
	left bool // aligned to the left
	gap  int  // spaces in front
	// leaves is the width that the name column must keep for this column to
	// be shown; the name column never needs more than its longest name. Zero:
	// the column is always shown.
	leaves int
	cell   func(*analyzer.Hop) string
}

// sheet holds what the cells and the lines of one endpoint depend on.
type sheet struct {
	glyphs
	r      *analyzer.Report
	e      *analyzer.Endpoint
	narrow bool
	// nameWidth limits names inside sentences; 0 means no limit.
	nameWidth int
}

// wholeName is a column.leaves that no column gets if a name would be clipped.
const wholeName = 1 << 30

// wide returns the columns of the wide layout, after the name.
func (s *sheet) wide() []column {
	cols := []column{
		{head: "CALLS", gap: 2, cell: s.calls},
		{head: "P50", gap: 2, cell: p50},
	}
	cols = append(cols, s.doubt()...)
	cols = append(cols,
		column{head: "P99", gap: 2, cell: s.p99},
		column{head: "P99 95%", gap: 2, cell: s.interval},
	)
	cols = append(cols, s.percentile()...)
	cols = append(cols,
		column{head: "NET", gap: 2, leaves: 28, cell: net},
		column{head: "BUDGET", gap: 1, cell: s.budget},
		column{head: "%", gap: 2, leaves: 20, cell: part},
		column{head: "TIMEOUT", gap: 1, cell: s.timeout},
	)
	cols = append(cols, s.current()...)
	return append(cols,
		column{head: "SLACK", gap: 1, cell: s.slack},
		column{head: "CUTS", gap: 2, cell: cuts},
		column{head: "PATH", gap: 2, cell: path},
		column{head: "SLOW", gap: 2, leaves: 24, cell: slow},
		column{head: "VERDICT", gap: 2, left: true, cell: s.verdict},
	)
}

// slim returns the columns of the narrow layout, after the name: P99 with the
// upper bound alone, no calls, net, slack, cuts or slow path.
func (s *sheet) slim() []column {
	cols := []column{{head: "P50", gap: 2, cell: p50}}
	cols = append(cols, s.doubt()...)
	cols = append(cols,
		column{head: "P99", gap: 2, cell: s.p99},
		column{head: "(" + s.atMost + " 95%)", gap: 1, cell: s.upper},
	)
	cols = append(cols, s.percentile()...)
	cols = append(cols,
		column{head: "BUDGET", gap: 1, cell: s.budget},
		column{head: "%", gap: 2, leaves: wholeName, cell: part},
		column{head: "TIMEOUT", gap: 1, cell: s.timeout},
	)
	cols = append(cols, s.current()...)
	return append(cols,
		column{head: "PATH", gap: 2, leaves: 20, cell: path},
		column{head: "VERDICT", gap: 2, left: true, cell: s.verdict},
	)
}

// doubt is the P95, where the P99 of some hop has no upper bound for want of
// calls.
func (s *sheet) doubt() []column {
	for i := range s.e.Hops {
		if s.e.Hops[i].Confidence == "low" {
			return []column{{head: "P95", gap: 2, cell: p95}}
		}
	}
	return nil
}

// percentile is the quantile that was asked for in place of the P99.
func (s *sheet) percentile() []column {
	if !s.e.Percentile.Known {
		return nil
	}
	head := "P" + strconv.FormatFloat(s.e.Percentile.V, 'f', -1, 64)
	return []column{{head: head, gap: 2, cell: atPercentile}}
}

// current compares with what is configured today, where that is known.
func (s *sheet) current() []column {
	for i := range s.e.Hops {
		if s.e.Hops[i].Now.Known {
			return []column{
				{head: "NOW", gap: 2, cell: s.now},
				{head: "CHANGE", gap: 1, cell: s.change},
			}
		}
	}
	return nil
}

func p50(h *analyzer.Hop) string { return known(h.P50, millis) }

func p95(h *analyzer.Hop) string { return known(h.P95, millis) }

// atPercentile marks a quantile that is the largest call seen.
func atPercentile(h *analyzer.Hop) string {
	text := known(h.PercentileNS, millis)
	if h.Verdict == analyzer.VerdictFewSamples && text != unknown {
		text += "*"
	}
	return text
}

func net(h *analyzer.Hop) string { return known(h.NetP50, millis) }

func part(h *analyzer.Hop) string { return known(h.ShareRatio, percent) }

func cuts(h *analyzer.Hop) string { return known(h.CutRatio, rate) }

func path(h *analyzer.Hop) string { return known(h.CriticalPath, wholeRate) }

func slow(h *analyzer.Hop) string { return known(h.SlowPath, wholeRate) }

func (s *sheet) nearQuantum(ns int64) string { return nearQuantum(ns, s.e.Quantum) }

func (s *sheet) exact(ns int64) string { return exact(ns, s.e.Quantum) }

func (s *sheet) budget(h *analyzer.Hop) string { return known(h.Share, s.exact) }

func (s *sheet) timeout(h *analyzer.Hop) string { return known(h.Cap, s.exact) }

func (s *sheet) now(h *analyzer.Hop) string { return known(h.Now, s.nearQuantum) }

func (s *sheet) change(h *analyzer.Hop) string {
	text := known(h.Change, s.nearQuantum)
	if h.Change.V > 0 {
		text = "+" + text
	}
	return text
}

func (s *sheet) slack(h *analyzer.Hop) string {
	return known(h.Slack, func(f float64) string { return multiple(f, s.glyphs) })
}

// calls shows next to the count how many requests make the call at all, where
// some do not.
func (s *sheet) calls(h *analyzer.Hop) string {
	text := strconv.Itoa(h.Calls)
	if h.Presence < 1 && h.Kind != analyzer.HopRoot {
		text += " (" + wholeRate(h.Presence) + ")"
	}
	return text
}

// fewCalls tells that the P99 is refused: of so few calls it is the largest.
func fewCalls(h *analyzer.Hop) bool {
	return h.Confidence == "refused"
}

// p99 marks a P99 that is the largest call seen, and one that is a lower bound.
func (s *sheet) p99(h *analyzer.Hop) string {
	text := known(h.P99, millis)
	if fewCalls(h) {
		text = known(h.Max, millis)
	}
	if text == unknown {
		return text
	}
	if censored(h) {
		text = s.atLeast + text
	}
	if fewCalls(h) {
		text += "*"
	}
	return text
}

// censored tells that so many calls were cut that the P99 is a lower bound.
func censored(h *analyzer.Hop) bool {
	return h.Verdict == analyzer.VerdictCensored || slices.Contains(h.Flags, "censored")
}

// interval is the 95 % interval of the P99; an open end shows as "?".
func (s *sheet) interval(h *analyzer.Hop) string {
	switch {
	case fewCalls(h), !h.P99Lo.Known && !h.P99Hi.Known:
		return unknown
	default:
		return openEnd(h.P99Lo) + "-" + openEnd(h.P99Hi)
	}
}

// upper is the upper end of the interval alone.
func (s *sheet) upper(h *analyzer.Hop) string {
	if fewCalls(h) || !h.P99Lo.Known && !h.P99Hi.Known {
		return unknown
	}
	return "(" + s.atMost + openEnd(h.P99Hi) + ")"
}

func openEnd(o analyzer.Opt[int64]) string {
	if !o.Known {
		return "?"
	}
	return bound(o.V)
}

// verdict puts the verdict into words. The narrow layout leaves the numbers to
// the lines above and below the table.
func (s *sheet) verdict(h *analyzer.Hop) string {
	switch h.Verdict {
	case analyzer.VerdictFewSamples:
		return "low n"
	case analyzer.VerdictCensored:
		return "cut today"
	case analyzer.VerdictMisses:
		if !s.narrow {
			return "misses " + rate(s.e.DeadlineMissRatio)
		}
	case analyzer.VerdictInfeasible:
		if !s.narrow {
			if s.allFailed() {
				return "all failed"
			}
			return "infeasible, needs " + duration(s.e.MinBudget)
		}
	case "":
		if h.Kind == analyzer.HopStep {
			return h.Kind
		}
		return unknown
	}
	return h.Verdict
}

// name returns the hop's label for people; a hop without one shows as unknown.
func name(h *analyzer.Hop) string {
	label := h.Label
	if label == "" {
		label = strings.TrimSpace(h.Callee + " " + h.Operation)
	}
	if label = Printable(label); columns(label) == 0 {
		return unknown
	}
	return label
}

// branches returns the tree glyphs in front of each hop, one element for each
// level.
func (s *sheet) branches() [][]string {
	n := len(s.e.Hops)
	depth := make([]int, n)
	for i := 1; i < n; i++ {
		depth[i] = min(max(s.e.Hops[i].Depth, 1), depth[i-1]+1)
	}
	// more[i]: a sibling follows. Going back, open[d] tells that the sub-tree
	// seen so far has a hop of depth d under the same parent.
	more := make([]bool, n)
	open := make([]bool, 0, 8)
	for i := n - 1; i > 0; i-- {
		for len(open) <= depth[i] {
			open = append(open, false)
		}
		open = open[:depth[i]+1]
		more[i] = open[depth[i]]
		open[depth[i]] = true
	}
	out := make([][]string, n)
	var above []string // what the levels above draw beside this one
	for i := 1; i < n; i++ {
		above = above[:depth[i]-1]
		mark := [2]string{s.last, s.branch}
		if s.e.Hops[i].Overlaps {
			mark = [2]string{s.lastOverlap, s.overlap}
		}
		line, below := mark[0], s.gap
		if more[i] {
			line, below = mark[1], s.pipe
		}
		out[i] = append(append([]string{}, above...), line)
		above = append(above, below)
	}
	return out
}

// clipName fits the branches and the name of a hop into width columns. Deep
// levels lose their outer branches before the name gets too short to read.
func (s *sheet) clipName(branches []string, name string, width int) string {
	const readable = 10
	levels := max(1, (width-min(columns(name), readable))/3)
	if len(branches) > levels {
		branches = append([]string{s.ellipsis3}, branches[len(branches)-levels+1:]...)
	}
	return strings.Join(branches, "") + clip(name, width-3*len(branches), s.dots)
}
