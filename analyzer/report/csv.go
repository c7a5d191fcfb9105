package report

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer"
)

// csvColumns are the endpoint's columns and then those of the hop, named as
// the keys of the JSON form. Numbers are exact: durations in ns, ratios as
// they are; an unknown value is an empty cell. Lists are joined by spaces.
var csvColumns = []struct {
	name string
	cell func(*analyzer.Endpoint, *analyzer.Hop) string
}{
	{"endpoint_service", func(e *analyzer.Endpoint, _ *analyzer.Hop) string { return csvText(e.Service) }},
	{"endpoint_operation", func(e *analyzer.Endpoint, _ *analyzer.Hop) string { return csvText(e.Operation) }},
	{"endpoint_traces", func(e *analyzer.Endpoint, _ *analyzer.Hop) string { return strconv.Itoa(e.Traces) }},
	{"endpoint_budget_ns", func(e *analyzer.Endpoint, _ *analyzer.Hop) string { return integer(e.Budget) }},
	{"endpoint_budget_source", func(e *analyzer.Endpoint, _ *analyzer.Hop) string { return csvText(e.BudgetSource) }},
	{"id", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.ID) }},
	{"parent", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Parent) }},
	{"depth", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return strconv.Itoa(h.Depth) }},
	{"caller", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Caller) }},
	{"callee", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Callee) }},
	{"operation", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Operation) }},
	{"label", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Label) }},
	{"kind", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Kind) }},
	{"calls", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return strconv.Itoa(h.Calls) }},
	{"presence", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return number(h.Presence) }},
	{"calls_per_trace_p99", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return integer(h.CallsPerTraceP99) }},
	{"max_attempts", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return strconv.Itoa(h.MaxAttempts) }},
	{"p50_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.P50, integer) }},
	{"p90_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.P90, integer) }},
	{"p95_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.P95, integer) }},
	{"p99_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.P99, integer) }},
	{"p99_lo_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.P99Lo, integer) }},
	{"p99_hi_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.P99Hi, integer) }},
	{"max_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Max, integer) }},
	{"percentile_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.PercentileNS, integer) }},
	{"utilization_p99", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.UtilizationP99, number) }},
	{"confidence", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Confidence) }},
	{"censored_ratio", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return number(h.CensoredRatio) }},
	{"net_p50_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.NetP50, integer) }},
	{"self_p50_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.SelfP50, integer) }},
	{"self_p99_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.SelfP99, integer) }},
	{"tail_p50_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.TailP50, integer) }},
	{"critical_path_ratio", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.CriticalPath, number) }},
	{"slow_path_ratio", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.SlowPath, number) }},
	{"after", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(strings.Join(h.After, " ")) }},
	{"order", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Order) }},
	{"floor_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Floor, integer) }},
	{"share_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Share, integer) }},
	{"share_ratio", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.ShareRatio, number) }},
	{"cap_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Cap, integer) }},
	{"slack", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Slack, number) }},
	{"cut_ratio", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.CutRatio, number) }},
	{"attempt_timeout_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.AttemptTimeout, integer) }},
	{"now_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Now, integer) }},
	{"change_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Change, integer) }},
	{"skew_ns", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return optional(h.Skew, integer) }},
	{"flags", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(strings.Join(h.Flags, " ")) }},
	{"verdict", func(_ *analyzer.Endpoint, h *analyzer.Hop) string { return csvText(h.Verdict) }},
}

// renderCSV writes one header and one row for each hop of every endpoint.
func renderCSV(w io.Writer, r *analyzer.Report, _ Options) error {
	out := csv.NewWriter(w)
	row := make([]string, len(csvColumns))
	for i, c := range csvColumns {
		row[i] = c.name
	}
	if err := out.Write(row); err != nil {
		return err
	}
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		for j := range e.Hops {
			for k, c := range csvColumns {
				row[k] = c.cell(e, &e.Hops[j])
			}
			if err := out.Write(row); err != nil {
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
	return printable(s)
}

func integer(v int64) string { return strconv.FormatInt(v, 10) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// optional formats a known value and leaves an unknown one empty.
func optional[T any](o analyzer.Opt[T], format func(T) string) string {
	if !o.Known {
		return ""
	}
	return format(o.V)
}
