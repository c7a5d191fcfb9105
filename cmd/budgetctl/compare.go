package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
	config         analyzer.Config
	output, plan   string
	ascii, noColor bool
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
	flags.StringVarP(&f.output, "output", "o", "table", "output format: "+strings.Join(report.ComparisonFormats(), ", "))
	flags.StringVar(&f.plan, "plan", "", "plan file to hold the changes against")
	flags.StringArrayVar(&f.config.Endpoints, "endpoint", nil, "only endpoints that match this glob on 'service operation' (repeatable)")
	flags.IntVar(&f.config.Top, "top", analyzer.DefaultTop, "endpoints shown in detail, busiest first")
	flags.IntVar(&f.config.MaxHops, "max-hops", profile.DefaultMaxHops, "hops of one endpoint; the rest is folded into \"other\"")
	flags.BoolVar(&f.config.Steps, "steps", false, "compare leaf spans of the same service too")
	flags.BoolVar(&f.config.Unweighted, "unweighted", false, "count every trace once, whatever its sampling threshold")
	f.add(flags)
	flags.BoolVar(&f.ascii, "ascii", false, "draw the tree with ASCII characters")
	flags.BoolVar(&f.noColor, "no-color", false, "no colours on a terminal (also: NO_COLOR)")
	return cmd
}

func (f *compareFlags) run(cmd *cobra.Command, args []string) error {
	if !slices.Contains(report.ComparisonFormats(), f.output) {
		return usageError{fmt.Errorf("--output %q: want one of %s", f.output, strings.Join(report.ComparisonFormats(), ", "))}
	}
	if err := errors.Join(f.check(), atLeastOne("top", f.config.Top), atLeastOne("max-hops", f.config.MaxHops)); err != nil {
		return err
	}
	held, err := f.readPlan()
	if err != nil {
		return err
	}
	var sides [2][]trace.Source
	for i, arg := range args {
		src, done, err := f.open(cmd, inputsOf(arg))
		if err != nil {
			return err
		}
		defer done()
		sides[i] = []trace.Source{src}
	}
	f.config.MaxTraceSpans = f.maxTraceSpans
	c, err := analyzer.Compare(cmd.Context(), f.config, sides[0], sides[1], held)
	if err != nil {
		return err
	}
	whole := true
	for _, side := range []*analyzer.Side{&c.Before, &c.After} {
		whole = tell(cmd.ErrOrStderr(), &analyzer.Input{Notes: side.Notes, Failed: side.Failed}, f.strict) && whole
	}
	opts := report.Options{ASCII: f.ascii}
	opts.Width, opts.Color = terminal(cmd.OutOrStdout())
	opts.Color = opts.Color && !f.noColor
	if err := report.RenderComparison(cmd.OutOrStdout(), c, f.output, opts); err != nil {
		return err
	}
	if !whole {
		return errReported
	}
	return nil
}

// readPlan reads the file of --plan, if there is one.
func (f *compareFlags) readPlan() (*plan.Plan, error) {
	if f.plan == "" {
		return nil, nil
	}
	file, err := os.Open(f.plan)
	if err != nil {
		return nil, err
	}
	held, err := plan.Read(f.plan, file)
	return held, errors.Join(err, file.Close())
}

// inputsOf are the inputs of one side: a file of that very name, or what stands
// between commas.
func inputsOf(arg string) []string {
	if _, err := os.Stat(arg); err == nil {
		return []string{arg}
	}
	return strings.Split(arg, ",")
}
