package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/report"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// inputFlags say how inputs are read.
type inputFlags struct {
	source              source.Options
	maxBytes, maxString byteSize
	strict              bool
	maxTraceSpans       int
	remaining           []string
}

func (f *inputFlags) add(flags *pflag.FlagSet) {
	f.maxBytes, f.maxString = source.DefaultMaxBytes, source.DefaultMaxString
	flags.StringVar(&f.source.Format, "format", "", "input format instead of guessing: "+strings.Join(source.Formats(), ", "))
	flags.StringArrayVar(&f.remaining, "remaining-attribute", nil,
		"attribute in which services write what is left of the budget, 'name=unit' with ns, us, ms or s (repeatable; default deadline_remaining_ms=ms)")
	flags.BoolVar(&f.strict, "strict", false, "treat lines, documents and spans that cannot be read as an error")
	flags.IntVar(&f.maxTraceSpans, "max-trace-spans", trace.DefaultMaxTraceSpans, "spans of one trace")
	flags.Var(&f.maxBytes, "max-bytes", "bytes of one input after decompression")
	flags.IntVar(&f.source.MaxDepth, "max-depth", source.DefaultMaxDepth, "nesting of a document")
	flags.Var(&f.maxString, "max-string", "length of a text; longer ones are cut")
	flags.IntVar(&f.source.Workers, "workers", runtime.GOMAXPROCS(0), "parallel readers")
}

// check looks for mistakes in the flags.
func (f *inputFlags) check() error {
	for _, s := range f.remaining {
		r, err := trace.ParseRemainingAttribute(s)
		if err != nil {
			return usageError{fmt.Errorf("--remaining-attribute %w", err)}
		}
		f.source.Remaining = append(f.source.Remaining, r)
	}
	if err := trace.CheckRemainingAttributes(f.source.Remaining); err != nil {
		return usageError{fmt.Errorf("--remaining-attribute %w", err)}
	}
	if f.source.Format != "" && !slices.Contains(source.Formats(), f.source.Format) {
		return usageError{fmt.Errorf("--format %q: want one of %s", f.source.Format, strings.Join(source.Formats(), ", "))}
	}
	return errors.Join(atLeastOne("max-trace-spans", f.maxTraceSpans), atLeastOne("max-depth", f.source.MaxDepth),
		atLeastOne("workers", f.source.Workers))
}

func atLeastOne(flag string, n int) error {
	if n < 1 {
		return usageError{fmt.Errorf("--%s %d: must be at least 1", flag, n)}
	}
	return nil
}

// open makes a source of inputs. done removes the progress bar.
func (f *inputFlags) open(cmd *cobra.Command, inputs []string) (src *source.Source, done func(), err error) {
	bar := newProgress(cmd.ErrOrStderr())
	o := f.source
	o.MaxBytes, o.MaxString, o.Progress = int64(f.maxBytes), int(f.maxString), bar.set
	src, err = source.Open(inputs, cmd.InOrStdin(), o)
	return src, bar.done, err
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
	for _, glob := range in.AllowedNothing {
		fmt.Fprintf(w, "budgetctl: note: --allow-detached %q matches no call that somebody waits for\n", glob)
	}
	for _, err := range in.Failed {
		complain(w, err)
	}
	return !failed
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
