package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/report"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailed   = 1 // could not do it
	exitUsage    = 2 // wrong usage
	exitFindings = 3 // found what --fail-on names, or a plan does not hold
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errReported ends a command whose errors are on stderr already.
var errReported = errors.New("reported")

// errFindings ends a command that found what it was told to fail on, or that a
// plan does not hold; its report says what.
var errFindings = errors.New("findings")

// run executes the command line and returns the exit code. stdout carries the
// report alone; everything else goes to stderr, a line each.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "budgetctl",
		Short: "Latency budgets from OpenTelemetry traces",
		Long: `budgetctl shows where a request's time budget goes, which hop takes it, and what
budget every hop should have, from exported OpenTelemetry traces alone.

Exit codes: 0 fine, 1 could not do it, 2 wrong usage, 3 found what --fail-on names, or a plan
does not hold.`,
		Example: `  budgetctl analyze testdata/orders --budget 800ms
  budgetctl check --plan budgets.yaml testdata/orders`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newAnalyze(), newCheck(), newProfile(), newCompare(), newVersion())
	root.InitDefaultCompletionCmd(args...)

	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.Is(err, context.Canceled):
		complain(stderr, errors.New("interrupted"))
		return exitFailed
	case errors.As(err, &usage), errors.Is(err, analyzer.ErrConfig):
		complain(stderr, err)
		fmt.Fprintf(stderr, "Run '%s --help' for what it takes.\n", cmd.CommandPath())
		return exitUsage
	}
	complain(stderr, err)
	return exitFailed
}

// complain writes an error, a line for each of those that errors.Join joined.
func complain(w io.Writer, err error) {
	for wrapped := err; wrapped != nil && wrapped.Error() == err.Error(); wrapped = errors.Unwrap(wrapped) {
		//nolint:errorlint // the loop looks at each error of the chain itself
		joined, ok := wrapped.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		parts := joined.Unwrap()
		texts := make([]string, len(parts))
		for i, part := range parts {
			texts[i] = part.Error()
		}
		if strings.Join(texts, "\n") == err.Error() {
			for _, part := range parts {
				complain(w, part)
			}
			return
		}
	}
	fmt.Fprintf(w, "budgetctl: %s\n", report.Printable(err.Error()))
}
