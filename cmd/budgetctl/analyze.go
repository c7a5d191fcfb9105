package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/report"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

const analyzeLong = `Read exported traces and print, for each endpoint, what every hop takes, what part
of the budget it should get, where it is too tight or too loose, and how far to
trust it.

INPUT is a file, a folder (searched for *.json *.jsonl *.ndjson *.pb *.otlp *.profile,
also .gz and .zst), a glob, or - for standard input. OTLP JSON and protobuf, Jaeger,
Zipkin, Tempo, the Go SDK's stdouttrace, and what budgetctl profile wrote are told
apart by their content.

Every hop gets two numbers. BUDGET is its part of a strict partition: budgets of
calls in sequence and the caller's own time never exceed the caller's budget. Use
it for objectives and alerts, and as timeout where deadlines are not passed on.
TIMEOUT is what to configure in clients that pass the remaining deadline on.

REPLAY says what the requests that were read would have gone through: today, with a
deadline alone, with BUDGET and with TIMEOUT, each request under numbers that other
requests made (docs/replay.md). --degradable names hops that callers can do without,
--incident makes a hop slow, --replay shows everything it compares with.

A hop is named by its id (0.2) or by a glob on "callee operation".

FINDING lines say where a deadline was lost or overrun, worst first: docs/findings.md
explains each rule. Most need spans that carry latency_budget attributes.

Exit codes: 0 fine, 1 some input could not be used, 2 wrong usage, 3 what --fail-on
names was found.`

const analyzeExample = `  budgetctl analyze testdata/orders --budget 800ms
  budgetctl analyze testdata/orders --budget 'gateway POST /orders=800ms' --cap 'auth*=5%'
  budgetctl analyze testdata/orders --current 'inventory*=200ms' --current 'risk*=240ms'
  budgetctl analyze testdata/orders --budget 800ms --replay --incident 'risk*=slow 400ms..4s @10%'
  budgetctl analyze testdata/orders --budget 800ms --strategy optimised --objective cuts+waste
  budgetctl analyze testdata/orders --fail-on deadline-reset,deadline-dropped
  budgetctl analyze testdata/orders testdata/dag -o table -o json=report.json
  budgetctl analyze - -o csv < testdata/formats/trace.otlp.jsonl`

// analyzeFlags are the flags as they are written; config makes sense of them.
type analyzeFlags struct {
	budgets, endpoints, floors, caps, current []string
	reserve, strategy, objective              string
	percentile, quantum                       string
	outputs                                   []string
	failOn, remaining                         []string
	noColor, ascii, strict, replay            bool
	degradable, incidents                     []string
	config                                    analyzer.Config
	source                                    source.Options
	maxBytes                                  byteSize
	maxString                                 byteSize
}

func newAnalyze() *cobra.Command {
	f := analyzeFlags{maxBytes: source.DefaultMaxBytes, maxString: source.DefaultMaxString}
	cmd := &cobra.Command{
		Use:     "analyze INPUT...",
		Short:   "Derive a budget table from exported traces",
		Long:    analyzeLong,
		Example: analyzeExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("analyze needs an INPUT: a file, a folder, a glob, or - for standard input")}
			}
			return nil
		},
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.budgets, "budget", nil, "budget: 800ms for every endpoint, or 'service operation=800ms' (repeatable)")
	flags.StringArrayVar(&f.endpoints, "endpoint", nil, "only endpoints that match this glob on 'service operation', also below the entries (repeatable)")
	flags.StringVar(&f.reserve, "reserve", "", "kept for own work: 20ms for the endpoint, or 10% for every hop that calls others")
	flags.StringArrayVar(&f.floors, "floor", nil, "least useful budget of a hop, 'hop=20ms' (repeatable; default: its P50)")
	flags.StringArrayVar(&f.caps, "cap", nil, "most a hop may get, 'hop=40ms' or 'hop=5%' of the budget (repeatable)")
	flags.StringArrayVar(&f.current, "current", nil, "timeout that is configured today, 'hop=200ms' (repeatable): adds NOW and CHANGE")
	flags.StringVar(&f.strategy, "strategy", budget.Strategies[0].Name(),
		"how to share: p99prop (by P99), equal, p50spread (median first, then by what varies), eqq (one quantile for all), "+
			"optimised (fewest requests cut) or critpath (to look at: never a recommendation)")
	flags.StringVar(&f.objective, "objective", budget.Objectives[0], "what --strategy optimised minimises: "+strings.Join(budget.Objectives, " or "))
	flags.StringVar(&f.percentile, "percentile", "99", "percentile for weights and verdicts, for example 99.9")
	flags.StringVar(&f.quantum, "quantum", "", "round budgets down to multiples of this (default: 1ms, finer for small budgets)")
	flags.StringArrayVar(&f.degradable, "degradable", nil, "hop that callers can do without: replayed as if they went on at its timeout (repeatable)")
	flags.StringArrayVar(&f.incidents, "incident", nil,
		"replay a what-if too: 'hop=slow 400ms..4s @10%' makes a hop take that much longer in 10% of its requests (repeatable)")
	flags.BoolVar(&f.replay, "replay", false, "show the replay in full; with -o csv, the replay instead of the hops")
	flags.StringArrayVarP(&f.outputs, "output", "o", nil,
		"output format: "+strings.Join(report.Formats(), ", ")+"; json=FILE writes to a file (repeatable; default table)")
	flags.StringSliceVar(&f.failOn, "fail-on", nil,
		"exit with 3 on findings of these rules, or at least so severe: warning, error (comma-separated, repeatable)")
	flags.StringArrayVar(&f.remaining, "remaining-attribute", nil,
		"attribute in which services write what is left of the budget, 'name=unit' with ns, us, ms or s (repeatable; default deadline_remaining_ms=ms)")
	flags.IntVar(&f.config.Top, "top", analyzer.DefaultTop, "endpoints shown in detail, busiest first")
	flags.BoolVar(&f.config.Steps, "steps", false, "show leaf spans of the same service, without budgets")
	flags.BoolVar(&f.config.Unweighted, "unweighted", false, "count every trace once, whatever its sampling threshold")
	flags.StringVar(&f.source.Format, "format", "", "input format instead of guessing: "+strings.Join(source.Formats(), ", "))
	flags.BoolVar(&f.strict, "strict", false, "treat lines, documents and spans that cannot be read as an error")
	flags.IntVar(&f.config.MaxHops, "max-hops", profile.DefaultMaxHops, "hops of one endpoint; the rest is folded into \"other\"")
	flags.IntVar(&f.config.MaxTraceSpans, "max-trace-spans", trace.DefaultMaxTraceSpans, "spans of one trace")
	flags.IntVar(&f.config.Sample, "sample", profile.DefaultSample, "requests of one endpoint kept whole to predict the effect of a budget")
	flags.Var(&f.maxBytes, "max-bytes", "bytes of one input after decompression")
	flags.IntVar(&f.source.MaxDepth, "max-depth", source.DefaultMaxDepth, "nesting of a document")
	flags.Var(&f.maxString, "max-string", "length of a text; longer ones are cut")
	flags.IntVar(&f.source.Workers, "workers", runtime.GOMAXPROCS(0), "parallel readers")
	flags.BoolVar(&f.ascii, "ascii", false, "draw the tree with ASCII characters")
	flags.BoolVar(&f.noColor, "no-color", false, "no colours on a terminal (also: NO_COLOR)")
	return cmd
}

// parse turns the flags into a Config.
func (f *analyzeFlags) parse() error {
	var errs []error
	check := func(flag string, err error) bool {
		if err != nil {
			errs = append(errs, usageError{fmt.Errorf("--%s %w", flag, err)})
		}
		return err == nil
	}
	c := &f.config
	c.Endpoints, c.Degradable = f.endpoints, f.degradable
	c.Strategy, c.Objective = f.strategy, f.objective
	for _, s := range f.budgets {
		b, err := analyzer.ParseEndpointBudget(s)
		if check("budget", err) {
			c.Budgets = append(c.Budgets, b)
		}
	}
	for _, list := range []struct {
		flag string
		from []string
		to   *[]analyzer.HopAmount
	}{{"floor", f.floors, &c.Floors}, {"cap", f.caps, &c.Caps}, {"current", f.current, &c.Current}} {
		for _, s := range list.from {
			h, err := analyzer.ParseHopAmount(s)
			if check(list.flag, err) {
				*list.to = append(*list.to, h)
			}
		}
	}
	for _, s := range f.incidents {
		i, err := analyzer.ParseIncident(s)
		if check("incident", err) {
			c.Incidents = append(c.Incidents, i)
		}
	}
	var err error
	if f.reserve != "" {
		c.Reserve, err = analyzer.ParseAmount(f.reserve)
		check("reserve", err)
	}
	if f.quantum != "" {
		c.Quantum, err = analyzer.ParseDuration(f.quantum)
		check("quantum", err)
	}
	if c.Percentile, err = quantile.ParseLevel(f.percentile); err != nil {
		errs = append(errs, usageError{fmt.Errorf("--%w", err)})
	}
	check("fail-on", f.checkFailOn())
	for _, s := range f.remaining {
		r, err := trace.ParseRemainingAttribute(s)
		if check("remaining-attribute", err) {
			f.source.Remaining = append(f.source.Remaining, r)
		}
	}
	check("remaining-attribute", trace.CheckRemainingAttributes(f.source.Remaining))
	strategy, err := budget.StrategyNamed(f.strategy)
	if err == nil {
		_, err = budget.WithObjective(strategy, f.objective)
	}
	if err != nil {
		errs = append(errs, usageError{fmt.Errorf("--%w", err)})
	}
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"top", c.Top},
		{"max-hops", c.MaxHops},
		{"max-trace-spans", c.MaxTraceSpans},
		{"sample", c.Sample},
		{"max-depth", f.source.MaxDepth},
		{"workers", f.source.Workers},
	} {
		if n.value < 1 {
			check(n.flag, fmt.Errorf("%d: must be at least 1", n.value))
		}
	}
	f.source.MaxBytes, f.source.MaxString = int64(f.maxBytes), int(f.maxString)
	return errors.Join(errs...)
}

// output is one place that a report goes to.
type output struct{ format, file string }

func (f *analyzeFlags) destinations() ([]output, error) {
	var outs []output
	onStdout := 0
	for _, s := range f.outputs {
		format, file, toFile := strings.Cut(s, "=")
		if !slices.Contains(report.Formats(), format) {
			return nil, usageError{fmt.Errorf("--output %q: want one of %s", format, strings.Join(report.Formats(), ", "))}
		}
		if toFile && file == "" {
			return nil, usageError{fmt.Errorf("--output %q: the name of the file is empty", s)}
		}
		if !toFile {
			onStdout++
		} else if slices.ContainsFunc(outs, func(o output) bool { return o.file == file }) {
			return nil, usageError{fmt.Errorf("--output: two formats go to %s", file)}
		}
		outs = append(outs, output{format, file})
	}
	if onStdout > 1 {
		return nil, usageError{errors.New("--output: only one format can go to standard output; write the others as format=FILE")}
	}
	if len(outs) == 0 {
		outs = []output{{format: "table"}}
	}
	return outs, nil
}

func (f *analyzeFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.parse(); err != nil {
		return err
	}
	outs, err := f.destinations()
	if err != nil {
		return err
	}
	bar := newProgress(cmd.ErrOrStderr())
	f.source.Progress = bar.set
	if f.source.Format != "" && !slices.Contains(source.Formats(), f.source.Format) {
		return usageError{fmt.Errorf("--format %q: want one of %s", f.source.Format, strings.Join(source.Formats(), ", "))}
	}
	src, err := source.Open(args, cmd.InOrStdin(), f.source)
	if err != nil {
		return err
	}
	rep, err := analyzer.Analyze(cmd.Context(), f.config, src)
	bar.done()
	if err != nil {
		return err
	}
	failed := !tell(cmd.ErrOrStderr(), &rep.Input, f.strict)
	for _, o := range outs { // one that cannot be written does not stop the others
		if err := f.write(cmd.OutOrStdout(), rep, o); err != nil {
			complain(cmd.ErrOrStderr(), err)
			failed = true
		}
	}
	switch {
	case failed:
		return errReported
	case f.fails(rep):
		return errFindings
	}
	return nil
}

// checkFailOn checks the names in --fail-on.
func (f *analyzeFlags) checkFailOn() error {
	valid := []string{finding.Warning.String(), finding.Error.String()}
	for _, rule := range finding.Rules() {
		valid = append(valid, rule.Name)
	}
	for _, name := range f.failOn {
		if !slices.Contains(valid, name) {
			return fmt.Errorf("%q: want one of %s", name, strings.Join(valid, ", "))
		}
	}
	return nil
}

// fails tells whether something was found that --fail-on names: by its rule, or
// by its severity, where warning includes errors.
func (f *analyzeFlags) fails(rep *analyzer.Report) bool {
	for i := range rep.Endpoints {
		for _, found := range rep.Endpoints[i].Findings {
			if slices.ContainsFunc(f.failOn, func(name string) bool {
				return name == found.Rule || name == found.Severity ||
					name == finding.Warning.String() && found.Severity == finding.Error.String()
			}) {
				return true
			}
		}
	}
	return false
}

// tell writes notes and failed inputs, a line each. It returns whether all input
// could be used.
func tell(w io.Writer, in *analyzer.Input, strict bool) bool {
	failed := len(in.Failed) > 0
	for _, n := range in.Notes {
		at := strings.TrimPrefix(strings.Join([]string{n.Where, n.Example}, ", "), ", ")
		if at = strings.TrimSuffix(at, ", "); at != "" {
			at = " (first: " + at + ")"
		}
		level := "note"
		if strict && n.Lost {
			level, failed = "error", true
		}
		if n.Kind != string(trace.NoteOutside) && n.Kind != string(trace.NoteNotSelected) { // as asked for
			fmt.Fprintf(w, "budgetctl: %s: %s%s\n", level, report.Printable(n.Text), report.Printable(at))
		}
	}
	for _, err := range in.Failed {
		complain(w, err)
	}
	return !failed
}

func (f *analyzeFlags) write(stdout io.Writer, rep *analyzer.Report, o output) error {
	opts := report.Options{ASCII: f.ascii, Replay: f.replay}
	if o.file == "" {
		opts.Width, opts.Color = terminal(stdout)
		opts.Color = opts.Color && !f.noColor
		return report.Render(stdout, rep, o.format, opts)
	}
	var b bytes.Buffer
	if err := report.Render(&b, rep, o.format, opts); err != nil {
		return err
	}
	return os.WriteFile(o.file, b.Bytes(), 0o644)
}

// terminal returns the width to print at, 0 if any will do, and whether colours
// are welcome.
func terminal(w io.Writer) (width int, color bool) {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return width, false
	}
	if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 && width == 0 {
		width = n
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// byteSize is a flag value such as 64KiB or 2GiB.
type byteSize int64

var byteUnits = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}, {"", 1}}

func (b *byteSize) Set(s string) error {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n <= 0 || n > (1<<62)/u.factor {
			break
		}
		*b = byteSize(n * u.factor)
		return nil
	}
	return fmt.Errorf("write a number of bytes more than 0, with KiB, MiB or GiB if you like")
}

func (b *byteSize) String() string {
	for i := 3; i >= 0; i-- {
		if u := byteUnits[i]; *b > 0 && int64(*b)%u.factor == 0 {
			return strconv.FormatInt(int64(*b)/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type names the value in help texts.
func (b *byteSize) Type() string { return "size" }
