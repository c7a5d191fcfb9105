package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/report"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// inputFlags are those of all commands that read traces.
type inputFlags struct {
	config    *analyzer.Config
	source    source.Options
	strict    bool
	maxBytes  byteSize
	maxString byteSize
}

// register adds the flags to a command. What they say goes to config.
func (f *inputFlags) register(flags *pflag.FlagSet, config *analyzer.Config) {
	f.config, f.maxBytes, f.maxString = config, source.DefaultMaxBytes, source.DefaultMaxString
	flags.BoolVar(&config.Unweighted, "unweighted", false, "count every trace once, whatever its sampling threshold")
	flags.StringVar(&f.source.Format, "format", "", "input format instead of guessing: "+strings.Join(source.Formats(), ", "))
	flags.BoolVar(&f.strict, "strict", false, "treat lines, documents and spans that cannot be read as an error")
	flags.IntVar(&config.MaxHops, "max-hops", profile.DefaultMaxHops, "hops of one endpoint; the rest is folded into \"other\"")
	flags.IntVar(&config.MaxTraceSpans, "max-trace-spans", trace.DefaultMaxTraceSpans, "spans of one trace")
	flags.IntVar(&config.Sample, "sample", profile.DefaultSample, "requests of one endpoint kept whole to predict the effect of a budget")
	flags.Var(&f.maxBytes, "max-bytes", "bytes of one input after decompression")
	flags.IntVar(&f.source.MaxDepth, "max-depth", source.DefaultMaxDepth, "nesting of a document")
	flags.Var(&f.maxString, "max-string", "length of a text; longer ones are cut")
	flags.IntVar(&f.source.Workers, "workers", runtime.GOMAXPROCS(0), "parallel readers")
}

// parse checks the values.
func (f *inputFlags) parse() error {
	var errs []error
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"max-hops", f.config.MaxHops},
		{"max-trace-spans", f.config.MaxTraceSpans},
		{"sample", f.config.Sample},
		{"max-depth", f.source.MaxDepth},
		{"workers", f.source.Workers},
	} {
		if n.value < 1 {
			errs = append(errs, tooSmall(n.flag, n.value))
		}
	}
	if f.source.Format != "" && !slices.Contains(source.Formats(), f.source.Format) {
		errs = append(errs, usageError{fmt.Errorf("--format %q: want one of %s", f.source.Format, strings.Join(source.Formats(), ", "))})
	}
	f.source.MaxBytes, f.source.MaxString = int64(f.maxBytes), int(f.maxString)
	return errors.Join(errs...)
}

func tooSmall(flag string, value int) error {
	return usageError{fmt.Errorf("--%s %d: must be at least 1", flag, value)}
}

// open opens the inputs. done removes the progress bar.
func (f *inputFlags) open(cmd *cobra.Command, inputs []string) (src trace.Source, done func(), err error) {
	bar := newProgress(cmd.ErrOrStderr())
	f.source.Progress = bar.set
	src, err = source.Open(inputs, cmd.InOrStdin(), f.source)
	return src, bar.done, err
}

// tell writes notes and failed inputs, a line each. It returns whether all input
// could be used.
func (f *inputFlags) tell(w io.Writer, in *analyzer.Input) bool {
	failed := len(in.Failed) > 0
	for _, n := range in.Notes {
		at := strings.TrimPrefix(strings.Join([]string{n.Where, n.Example}, ", "), ", ")
		if at = strings.TrimSuffix(at, ", "); at != "" {
			at = " (first: " + at + ")"
		}
		level := "note"
		if f.strict && n.Lost {
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
