package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/report"
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

--write-plan writes the table as a plan file, for people to review and edit and for
budgetctl check to hold the system to: docs/plan.md. --plan starts from such a file.

FINDING lines say where a deadline was lost or overrun, worst first: docs/findings.md
says of each what to do. Most need spans that carry latency_budget attributes, captured
headers such as x-timeout-budget-ms, or what --remaining-attribute names. Where the
Collector's processor has other settings than its defaults, --utilization-threshold,
--reset-tolerance-absolute, --reset-tolerance-fraction, --max-clock-skew and
--allow-detached take the same, so that both find the same.

Exit codes: 0 fine, 1 some input could not be used, 2 wrong usage, 3 what --fail-on
names was found.`

const analyzeExample = `  budgetctl analyze testdata/orders --budget 800ms
  budgetctl analyze testdata/orders --budget 'gateway POST /orders=800ms' --cap 'auth*=5%'
  budgetctl analyze testdata/orders --current 'inventory*=200ms' --current 'risk*=240ms'
  budgetctl analyze testdata/orders --budget 800ms --replay --incident 'risk*=slow 400ms..4s @10%'
  budgetctl analyze testdata/orders --budget 800ms --write-plan budgets.yaml
  budgetctl analyze testdata/orders --plan budgets.yaml --write-plan budgets.yaml
  budgetctl analyze testdata/orders --budget 800ms --strategy optimised --objective cuts+waste
  budgetctl analyze testdata/orders --fail-on deadline-reset,deadline-dropped
  budgetctl analyze testdata/orders --utilization-threshold 0.9 --reset-tolerance-absolute 20ms
  budgetctl analyze testdata/orders --remaining-attribute app.budget_left=us
  budgetctl analyze testdata/orders testdata/dag -o table -o json=report.json
  budgetctl analyze - -o csv < testdata/formats/trace.otlp.jsonl`

// analyzeFlags are the flags as they are written; config makes sense of them.
type analyzeFlags struct {
	inputFlags
	outputFlags
	budgets, endpoints, floors, caps, current []string
	reserve, strategy, objective              string
	percentile, quantum                       string
	failOn                                    []string
	replay                                    bool
	degradable, incidents                     []string
	config                                    analyzer.Config
	plan                                      planFlags
}

func newAnalyze() *cobra.Command {
	var f analyzeFlags
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
	flags.StringVar(&f.plan.from, "plan", "", "plan file to start from: its budgets and what was set in it by hand hold, its shares are NOW")
	flags.StringVar(&f.plan.to, "write-plan", "", "write the plan of the endpoints shown to this file, for check and the Collector processor")
	flags.StringVar(&f.plan.revision, "revision", "", "name of the plan that is written (default: the day of the last request, and a digest)")
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
	f.addOutput(flags, report.Formats())
	flags.StringSliceVar(&f.failOn, "fail-on", nil,
		"exit with 3 on findings of these rules, or at least so severe: warning, error (comma-separated, repeatable)")
	addRules(flags, &f.config)
	flags.IntVar(&f.config.Top, "top", analyzer.DefaultTop, "endpoints shown in detail, busiest first")
	flags.BoolVar(&f.config.Steps, "steps", false, "show leaf spans of the same service, without budgets")
	flags.BoolVar(&f.config.Unweighted, "unweighted", false, "count every trace once, whatever its sampling threshold")
	flags.IntVar(&f.config.MaxHops, "max-hops", profile.DefaultMaxHops, "hops of one endpoint; the rest is folded into \"other\"")
	flags.IntVar(&f.config.Sample, "sample", profile.DefaultSample, "requests of one endpoint kept whole to predict the effect of a budget")
	f.add(flags)
	f.addLook(flags)
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
	errs = append(errs, f.plan.parse(c))
	strategy, err := budget.StrategyNamed(f.strategy)
	if err == nil {
		_, err = budget.WithObjective(strategy, f.objective)
	}
	if err != nil {
		errs = append(errs, usageError{fmt.Errorf("--%w", err)})
	}
	c.MaxTraceSpans = f.maxTraceSpans
	errs = append(errs, atLeastOne("top", c.Top), atLeastOne("max-hops", c.MaxHops), atLeastOne("sample", c.Sample), checkRules(c), f.check())
	return errors.Join(errs...)
}

func (f *analyzeFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.parse(); err != nil {
		return err
	}
	if f.plan.from != "" && !cmd.Flags().Changed("strategy") {
		f.config.Strategy = "" // that of the plan
	}
	outs, err := f.destinations()
	if err != nil {
		return err
	}
	src, done, err := f.open(cmd, args)
	if err != nil {
		return err
	}
	rep, err := analyzer.Analyze(cmd.Context(), f.config, src)
	done()
	if err != nil {
		return err
	}
	failed := !tell(cmd.ErrOrStderr(), &rep.Input, f.strict)
	if err := f.plan.write(rep, cmd.ErrOrStderr()); err != nil {
		complain(cmd.ErrOrStderr(), err)
		failed = true
	}
	if !f.write(outs, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(w io.Writer, format string, o report.Options) error {
		o.Replay = f.replay
		return report.Render(w, rep, format, o)
	}) {
		failed = true
	}
	found := f.found(rep)
	if len(found) > 0 { // the report may be in a file
		complain(cmd.ErrOrStderr(), fmt.Errorf("--fail-on: found %s", strings.Join(found, ", ")))
	}
	switch {
	case failed:
		return errReported
	case len(found) > 0:
		return errFindings
	}
	return nil
}

// checkFailOn checks the names in --fail-on. None at all is a mistake too: an empty
// variable in a script must not let everything pass.
func (f *analyzeFlags) checkFailOn() error {
	valid := []string{finding.Warning.String(), finding.Error.String()}
	for _, rule := range finding.Rules() {
		valid = append(valid, rule.Name)
	}
	names := f.failOn
	if names != nil && len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		if !slices.Contains(valid, name) {
			return fmt.Errorf("%q: want one of %s", name, strings.Join(valid, ", "))
		}
	}
	return nil
}

// found lists the rules that --fail-on names, by themselves or by their severity, where
// warning includes errors, and that found something, with the number of calls.
func (f *analyzeFlags) found(rep *analyzer.Report) []string {
	calls := make(map[string]int)
	for _, e := range rep.Endpoints {
		for _, found := range e.Findings {
			calls[found.Rule] += found.Count
		}
	}
	for _, e := range rep.Others {
		for _, found := range e.Findings {
			calls[found.Rule] += found.Count
		}
	}
	var list []string
	for _, rule := range finding.Rules() { // the worst first
		named := slices.ContainsFunc(f.failOn, func(name string) bool {
			return name == rule.Name || name == rule.Severity.String() ||
				name == finding.Warning.String() && rule.Severity == finding.Error
		})
		if n := calls[rule.Name]; named && n > 0 {
			list = append(list, fmt.Sprintf("%s (%d×)", rule.Name, n))
		}
	}
	return list
}
