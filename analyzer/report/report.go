// Package report renders the result of an analysis as a table for a terminal,
// as JSON, as Markdown and as CSV.
//
// A renderer computes nothing: it selects, scales and lays out what the
// [analyzer.Report] holds, so all formats carry the same numbers. Text formats
// replace whatever in a name could steer a terminal or turn into markup; JSON
// keeps names as they are.
package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

// Options say how text is laid out. JSON needs none of them.
type Options struct {
	Width int  // columns of the table; 0 means 120
	Color bool // ANSI colours in the table; the caller knows whether it writes to a terminal
	ASCII bool // draw with ASCII only; names stay as they are
	// Replay shows every policy of the replay in the table, where it is short
	// otherwise, and makes CSV hold the replay instead of the hops.
	Replay bool
}

// renderers are those of one kind of result by name, in the order in which help
// lists them.
type renderers[R any] []struct {
	name   string
	render func(io.Writer, *R, Options) error
}

func (l renderers[R]) names() []string {
	names := make([]string, len(l))
	for i := range l {
		names[i] = l[i].name
	}
	return names
}

func (l renderers[R]) find(name string) (func(io.Writer, *R, Options) error, error) {
	for i := range l {
		if l[i].name == name {
			return l[i].render, nil
		}
	}
	return nil, fmt.Errorf("unknown output format %q: use one of %s", name, strings.Join(l.names(), ", "))
}

var formats = renderers[analyzer.Report]{
	{"table", renderTable},
	{"json", writeJSON[analyzer.Report]},
	{"markdown", renderMarkdown},
	{"csv", renderCSV},
}

// Formats returns the names that [Render] knows.
func Formats() []string { return formats.names() }

// Render writes r to w in the named format and leaves r as it is. An unknown
// format is an error that lists the valid names; a number in r that is needed
// and is not finite is an error that says where it stands.
func Render(w io.Writer, r *analyzer.Report, format string, opts Options) error {
	render, err := formats.find(format)
	if err != nil {
		return err
	}
	settled, err := settle(r)
	if err != nil {
		return err
	}
	return render(w, settled, opts)
}

// settle returns a copy of r whose floats are fit for every format: rounded to
// six significant digits, so that the last bits of a sum show nowhere, and
// absent where they are no finite number and may be absent. Lists that must be
// there are empty, not nil.
func settle(r *analyzer.Report) (*analyzer.Report, error) {
	out := *r
	out.Input.Files = append([]analyzer.InputFile{}, r.Input.Files...)
	out.Endpoints = append([]analyzer.Endpoint{}, r.Endpoints...)
	for i := range out.Endpoints {
		e := &out.Endpoints[i]
		e.Hops = append([]analyzer.Hop{}, e.Hops...)
		settleOpt(&e.Percentile)
		must := []needed{
			{"deadline_miss_ratio", &e.DeadlineMissRatio},
			{"kind_inferred_ratio", &e.KindInferredRatio},
		}
		must = append(must, settleReplay(e)...)
		e.Findings = slices.Clone(e.Findings)
		for j := range e.Findings {
			must = append(must, needed{"finding ratio", &e.Findings[j].Ratio})
		}
		e.Moves = slices.Clone(e.Moves)
		for j := range e.Moves {
			must = append(must, needed{"from_slack", &e.Moves[j].FromSlack}, needed{"to_slack", &e.Moves[j].ToSlack})
		}
		for j := range e.Hops {
			h := &e.Hops[j]
			must = append(must, needed{"presence", &h.Presence}, needed{"censored_ratio", &h.CensoredRatio})
			for _, o := range []*analyzer.Opt[float64]{
				&h.UtilizationP99, &h.CriticalPath, &h.SlowPath, &h.ShareRatio, &h.Slack, &h.CutRatio,
			} {
				settleOpt(o)
			}
		}
		for _, n := range must {
			if !finite(*n.value) {
				return nil, fmt.Errorf("endpoint %q %q: %s is %v, which no format can carry",
					e.Service, e.Operation, n.key, *n.value)
			}
			*n.value = sixDigits(*n.value)
		}
	}
	return &out, nil
}

// settleReplay gives the endpoint a replay of its own and returns its floats.
func settleReplay(e *analyzer.Endpoint) []needed {
	if e.Replay == nil {
		return nil
	}
	replay := *e.Replay
	e.Replay = &replay
	settleOpt(&replay.BudgetFalseCut)
	settleOpt(&replay.TimeoutFalseCut)
	var must []needed
	replay.BudgetForFalseCut = slices.Clone(replay.BudgetForFalseCut)
	for i := range replay.BudgetForFalseCut {
		must = append(must, needed{"budget_for_false_cut ratio", &replay.BudgetForFalseCut[i].Ratio})
	}
	effects := func(list *[]analyzer.PolicyEffect) {
		*list = append([]analyzer.PolicyEffect{}, *list...)
		for i := range *list {
			p := &(*list)[i]
			must = append(must, needed{"miss_ratio", &p.Miss}, needed{"violated_ratio", &p.Violated},
				needed{"false_cut_ratio", &p.FalseCut}, needed{"degraded_ratio", &p.Degraded})
			p.Cuts = slices.Clone(p.Cuts)
			for j := range p.Cuts {
				must = append(must, needed{"cuts ratio", &p.Cuts[j].Ratio})
			}
		}
	}
	effects(&replay.Policies)
	replay.Assumptions = append([]string{}, replay.Assumptions...)
	replay.Incidents = slices.Clone(replay.Incidents)
	for i := range replay.Incidents {
		must = append(must, needed{"incident ratio", &replay.Incidents[i].Ratio})
		effects(&replay.Incidents[i].Policies)
	}
	return must
}

// needed is a float that JSON cannot leave out.
type needed struct {
	key   string
	value *float64
}

func settleOpt(o *analyzer.Opt[float64]) {
	if !finite(o.V) {
		*o = analyzer.Opt[float64]{}
	}
	o.V = sixDigits(o.V)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func sixDigits(v float64) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil { // Rounding up left the range.
		return v
	}
	return short
}
