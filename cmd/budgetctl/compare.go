package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/report"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

const compareLong = `Read two sets of traces or profiles and print, for each endpoint and hop, how its
P50 and P99 changed, which changes are noise, and what is new or gone.

BEFORE and AFTER are each a file, a folder, a glob, or a profile, or several of them
with commas between.

A change is told from noise by counting how many calls of each side lie above the
quantile of both together, and comparing the counts by Fisher's exact test. Of the
changes that are shown, 5 % are expected to be noise; ~ stands for the others.

With --plan it says which hops are over their share of the plan now, and which fit
it again.`

const compareExample = `  budgetctl compare testdata/orders testdata/orders
  budgetctl profile testdata/dag -o monday.profile
  budgetctl compare monday.profile testdata/dag,testdata/tiny -o json`

// compareFlags are the flags of compare.
type compareFlags struct {
	inputFlags
	outputFlags
	config analyzer.Config
	plan   string
}

func newCompare() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:     "compare BEFORE AFTER",
		Short:   "Tell what changed between two sets of traces",
		Long:    compareLong,
		Example: compareExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{errors.New("compare needs BEFORE and AFTER: each a file, a folder, a glob or a profile, or several with commas between")}
			}
			return nil
		},
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.addOutput(flags, report.ComparisonFormats())
	flags.StringVar(&f.plan, "plan", "", "plan file to hold the changes against")
	flags.StringArrayVar(&f.config.Endpoints, "endpoint", nil, "only endpoints that match this glob on 'service operation' (repeatable)")
	flags.IntVar(&f.config.Top, "top", analyzer.DefaultTop, "endpoints shown in detail, busiest first")
	flags.IntVar(&f.config.MaxHops, "max-hops", profile.DefaultMaxHops, "hops of one endpoint; the rest is folded into \"other\"")
	flags.BoolVar(&f.config.Steps, "steps", false, "compare leaf spans of the same service too")
	flags.BoolVar(&f.config.Unweighted, "unweighted", false, "count every trace once, whatever its sampling threshold")
	f.add(flags)
	f.addLook(flags)
	return cmd
}

func (f *compareFlags) run(cmd *cobra.Command, args []string) error {
	if err := errors.Join(f.check(), atLeastOne("top", f.config.Top), atLeastOne("max-hops", f.config.MaxHops)); err != nil {
		return err
	}
	outs, err := f.destinations()
	if err != nil {
		return err
	}
	var held *plan.Plan
	if f.plan != "" {
		if held, err = readPlan(f.plan); err != nil {
			return err
		}
	}
	f.config.MaxTraceSpans = f.maxTraceSpans
	c, err := f.compare(cmd, args, held)
	if err != nil {
		return err
	}
	told := true
	for _, side := range []*analyzer.Side{&c.Before, &c.After} {
		told = tell(cmd.ErrOrStderr(), &analyzer.Input{Notes: side.Notes, Failed: side.Failed}, f.strict) && told
	}
	written := f.write(outs, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(w io.Writer, format string, o report.Options) error {
		return report.RenderComparison(w, c, format, o)
	})
	if !told || !written {
		return errReported
	}
	return nil
}

// compare reads both sides; nothing of its progress is left on the terminal.
func (f *compareFlags) compare(cmd *cobra.Command, args []string, held *plan.Plan) (*analyzer.Comparison, error) {
	var sides [2][]trace.Source
	for i, arg := range args {
		src, done, err := f.open(cmd, inputsOf(arg))
		if err != nil {
			return nil, err
		}
		defer done()
		sides[i] = []trace.Source{src}
	}
	return analyzer.Compare(cmd.Context(), f.config, sides[0], sides[1], held)
}

// inputsOf are the inputs of one side: a file of that very name, or what stands
// between commas.
func inputsOf(arg string) []string {
	if _, err := os.Stat(arg); err == nil {
		return []string{arg}
	}
	return strings.Split(arg, ",")
}
