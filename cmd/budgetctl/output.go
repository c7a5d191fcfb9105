package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/latencybudget/latencybudget/analyzer/report"
)

// outputFlags say where results go and how they look.
type outputFlags struct {
	formats        []string // that there are
	outputs        []string
	noColor, ascii bool
}

// output is one place that a result goes to.
type output struct{ format, file string }

// addOutput adds the flag --output, with the names of the formats.
func (f *outputFlags) addOutput(flags *pflag.FlagSet, formats []string) {
	f.formats = formats
	flags.StringArrayVarP(&f.outputs, "output", "o", nil,
		"output format: "+strings.Join(formats, ", ")+"; json=FILE writes to a file (repeatable; default table)")
}

// addLook adds the flags about terminals.
func (f *outputFlags) addLook(flags *pflag.FlagSet) {
	flags.BoolVar(&f.ascii, "ascii", false, "draw the tree with ASCII characters")
	flags.BoolVar(&f.noColor, "no-color", false, "no colours on a terminal (also: NO_COLOR)")
}

// destinations reads --output.
func (f *outputFlags) destinations() ([]output, error) {
	var outs []output
	onStdout := 0
	for _, s := range f.outputs {
		format, file, toFile := strings.Cut(s, "=")
		if !slices.Contains(f.formats, format) {
			return nil, usageError{fmt.Errorf("--output %q: want one of %s; json=FILE writes to a file", format, strings.Join(f.formats, ", "))}
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

// write renders to each of the places. One that cannot be written does not stop
// the others; it returns whether all could.
func (f *outputFlags) write(outs []output, stdout, stderr io.Writer, render func(w io.Writer, format string, o report.Options) error) bool {
	ok := true
	for _, o := range outs {
		if err := f.writeOne(stdout, o, render); err != nil {
			complain(stderr, err)
			ok = false
		}
	}
	return ok
}

func (f *outputFlags) writeOne(stdout io.Writer, o output, render func(w io.Writer, format string, o report.Options) error) error {
	opts := report.Options{ASCII: f.ascii}
	if o.file == "" {
		opts.Width, opts.Color = terminal(stdout)
		opts.Color = opts.Color && !f.noColor
		return render(stdout, o.format, opts)
	}
	var b bytes.Buffer
	if err := render(&b, o.format, opts); err != nil {
		return err
	}
	return replace(o.file, b.Bytes())
}

// replace writes a file whole or not at all: what it held stays until all of the
// new content is on the disk. What is not a regular file, such as a pipe, what
// others hold open, such as /dev/stdout, and what stands where no file can be made
// beside it, is written to as it is.
func replace(name string, content []byte) error {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(name); err == nil {
		if !info.Mode().IsRegular() || strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/") {
			return os.WriteFile(name, content, mode)
		}
		mode = info.Mode().Perm()
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
	}
	beside := name + "." + strconv.Itoa(os.Getpid())
	file, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return os.WriteFile(name, content, mode) // its error names the file that was asked for
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(beside, name)
	}
	if err != nil {
		return fmt.Errorf("%s is as it was: %w", name, errors.Join(err, os.Remove(beside)))
	}
	return nil
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
