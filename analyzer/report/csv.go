package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

// csvCell is a column's name and its value in one row.
type csvCell struct{ key, value string }

// csvRow returns the endpoint's cells and then those of the hop, named as the
// keys of the JSON form. Numbers are exact: durations in ns, ratios as they
// are; an unknown value is an empty cell. Lists are joined by spaces.
func csvRow(e *analyzer.Endpoint, h *analyzer.Hop) []csvCell {
	return []csvCell{
		{"endpoint_service", csvText(e.Service)},
		{"endpoint_operation", csvText(e.Operation)},
		{"endpoint_traces", strconv.Itoa(e.Traces)},
		{"endpoint_budget_ns", integer(e.Budget)},
		{"endpoint_budget_source", csvText(e.BudgetSource)},
		{"id", csvText(h.ID)},
		{"parent", csvText(h.Parent)},
		{"depth", strconv.Itoa(h.Depth)},
		{"caller", csvText(h.Caller)},
		{"callee", csvText(h.Callee)},
		{"operation", csvText(h.Operation)},
		{"label", csvText(h.Label)},
		{"kind", csvText(h.Kind)},
		{"calls", strconv.Itoa(h.Calls)},
		{"presence", number(h.Presence)},
		{"calls_per_trace_p99", integer(h.CallsPerTraceP99)},
		{"max_attempts", strconv.Itoa(h.MaxAttempts)},
		{"p50_ns", optional(h.P50, integer)},
		{"p90_ns", optional(h.P90, integer)},
		{"p95_ns", optional(h.P95, integer)},
		{"p99_ns", optional(h.P99, integer)},
		{"p99_lo_ns", optional(h.P99Lo, integer)},
		{"p99_hi_ns", optional(h.P99Hi, integer)},
		{"max_ns", optional(h.Max, integer)},
		{"percentile_ns", optional(h.PercentileNS, integer)},
		{"utilization_p99", optional(h.UtilizationP99, number)},
		{"confidence", csvText(h.Confidence)},
		{"censored_ratio", number(h.CensoredRatio)},
		{"net_p50_ns", optional(h.NetP50, integer)},
		{"self_p50_ns", optional(h.SelfP50, integer)},
		{"self_p99_ns", optional(h.SelfP99, integer)},
		{"tail_p50_ns", optional(h.TailP50, integer)},
		{"critical_path_ratio", optional(h.CriticalPath, number)},
		{"slow_path_ratio", optional(h.SlowPath, number)},
		{"after", csvText(strings.Join(h.After, " "))},
		{"order", csvText(h.Order)},
		{"overlaps", map[bool]string{true: "true"}[h.Overlaps]},
		{"floor_ns", optional(h.Floor, integer)},
		{"share_ns", optional(h.Share, integer)},
		{"share_ratio", optional(h.ShareRatio, number)},
		{"cap_ns", optional(h.Cap, integer)},
		{"slack", optional(h.Slack, number)},
		{"cut_ratio", optional(h.CutRatio, number)},
		{"attempt_timeout_ns", optional(h.AttemptTimeout, integer)},
		{"backoff_p99_ns", optional(h.BackoffP99, integer)},
		{"attempts_fit", optional(h.AttemptsFit, strconv.Itoa)},
		{"now_ns", optional(h.Now, integer)},
		{"change_ns", optional(h.Change, integer)},
		{"skew_ns", optional(h.Skew, integer)},
		{"flags", csvText(strings.Join(h.Flags, " "))},
		{"verdict", csvText(h.Verdict)},
	}
}

// renderCSV writes a header and one row for each hop of every endpoint; for each
// policy of every replay where that is asked for.
func renderCSV(w io.Writer, r *analyzer.Report, o Options) error {
	head := csvRow(&analyzer.Endpoint{}, &analyzer.Hop{})
	if o.Replay {
		head = csvEffects(&analyzer.Endpoint{}, &analyzer.ReplayIncident{}, &analyzer.PolicyEffect{})
	}
	out := csv.NewWriter(w)
	row := make([]string, len(head))
	for i, c := range head {
		row[i] = c.key
	}
	if err := out.Write(row); err != nil {
		return err
	}
	write := func(cells []csvCell) error {
		for i, c := range cells {
			row[i] = c.value
		}
		return out.Write(row)
	}
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		if o.Replay {
			if err := csvReplay(e, write); err != nil {
				return err
			}
			continue
		}
		for j := range e.Hops {
			if err := write(csvRow(e, &e.Hops[j])); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// csvText is printable and is no formula to a spreadsheet, which takes a cell
// for one by its first character.
func csvText(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		s = "'" + s
	}
	return Printable(s)
}

func integer(v int64) string { return strconv.FormatInt(v, 10) }

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// optional formats a known value and leaves an unknown one empty.
func optional[T any](o analyzer.Opt[T], format func(T) string) string {
	if !o.Known {
		return ""
	}
	return format(o.V)
}
