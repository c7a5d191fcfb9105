package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/report"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

const checkLong = `Hold exported traces against a plan file: exit with 3 where the system does not keep
what the plan says, with one line for each reason.

A hop fails where its P99 is over its BUDGET (share) or its TIMEOUT (cap). The gate of
the plan says how many requests may be over the endpoint's budget, make a deadline
later, or call after it, and how long hops may work on when nobody waits. Each fails
only when its whole 95 % interval is over the limit, so that few traces do not fail by
chance; --point judges by the measured value alone. A caller that is over only by what
it calls is listed with that call, and does not fail by itself.

Hops that use over 80 % of their budget (--utilization-threshold) in more than 5 % of
their calls are a warning.
Hops and endpoints without traces are said, and do not fail.

Without INPUT the plan is checked by itself and described: which calls in sequence take
longest, and what of the budget nobody has.

Exit codes: 0 the plan holds, 1 some input could not be used, 2 wrong usage, 3 it does
not hold.`

const checkExample = `  budgetctl check --plan budgets.yaml
  budgetctl check --plan budgets.yaml testdata/orders
  budgetctl check --plan budgets.yaml testdata/orders --utilization-threshold 0.9
  budgetctl check --plan budgets.yaml testdata/orders -o github -o junit=check.xml`

type checkFlags struct {
	inputFlags
	outputFlags
	plan   string
	config analyzer.Config
}

func newCheck() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:     "check --plan FILE [INPUT...]",
		Short:   "Hold exported traces against a plan",
		Long:    checkLong,
		Example: checkExample,
		RunE:    f.run,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.plan, "plan", "", "plan file (required)")
	flags.StringArrayVar(&f.config.Endpoints, "endpoint", nil, "only endpoints of the plan that match this glob on 'service operation' (repeatable)")
	flags.BoolVar(&f.config.Point, "point", false, "judge by measured values alone, without their intervals")
	f.addOutput(flags, report.CheckFormats())
	addRules(flags, &f.config)
	flags.BoolVar(&f.config.Unweighted, "unweighted", false, "count every trace once, whatever its sampling threshold")
	flags.IntVar(&f.config.MaxHops, "max-hops", profile.DefaultMaxHops, "hops of one endpoint; the rest is folded into \"other\"")
	flags.IntVar(&f.config.Sample, "sample", profile.DefaultSample, "requests of one endpoint kept whole to tell what a slow hop does to its callers")
	f.add(flags)
	f.addLook(flags)
	return cmd
}

func (f *checkFlags) run(cmd *cobra.Command, args []string) error {
	if f.plan == "" {
		return usageError{errors.New("check needs --plan FILE; analyze --write-plan FILE makes one")}
	}
	if err := errors.Join(atLeastOne("max-hops", f.config.MaxHops), atLeastOne("sample", f.config.Sample), checkRules(&f.config), f.check()); err != nil {
		return err
	}
	f.config.MaxTraceSpans = f.maxTraceSpans
	outs, err := f.destinations()
	if err != nil {
		return err
	}
	p, err := readPlan(f.plan)
	if err != nil {
		return err
	}
	var sources []trace.Source
	done := func() {}
	if len(args) > 0 {
		src, finished, err := f.open(cmd, args)
		if err != nil {
			return err
		}
		sources, done = append(sources, src), finished
	}
	rep, err := analyzer.Check(cmd.Context(), f.config, p, sources...)
	done()
	if err != nil {
		return err
	}
	told := tell(cmd.ErrOrStderr(), &rep.Input, f.strict)
	written := f.write(outs, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(w io.Writer, format string, o report.Options) error {
		return report.RenderCheck(w, rep, format, o)
	})
	if !rep.Passed && !slices.ContainsFunc(outs, func(o output) bool { return o.file == "" }) { // nobody has read it yet
		complain(cmd.ErrOrStderr(), fmt.Errorf("the plan does not hold (failures: %d)", len(rep.Failures)))
	}
	switch {
	case !told || !written:
		return errReported
	case !rep.Passed:
		return errFindings
	}
	return nil
}
