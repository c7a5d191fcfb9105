package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latencybudget/latencybudget/analyzer"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // could not do it
	exitUsage  = 2 // wrong usage
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errReported ends a command whose errors are on stderr already.
var errReported = errors.New("some inputs could not be used")

// run executes the command line and returns the exit code. stdout carries the
// report alone; everything else goes to stderr, a line each.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "budgetctl",
		Short: "Latency budgets from OpenTelemetry traces",
		Long: `budgetctl shows where a request's time budget goes, which hop takes it, and what
budget every hop should have, from exported OpenTelemetry traces alone.

Exit codes: 0 fine, 1 could not do it, 2 wrong usage.`,
		Example:       "  budgetctl analyze testdata/orders --budget 800ms",
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
	root.AddCommand(newAnalyze(), newVersion())
	root.InitDefaultCompletionCmd(args...)

	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
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

// complain writes an error, a line for each of its parts.
func complain(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(w, "budgetctl: %s\n", plain(strings.TrimRight(line, "\n")))
	}
}

// plain replaces control characters, which names from the input may carry.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\ufffd'
		}
		return r
	}, s)
}
