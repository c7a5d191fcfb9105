//go:build unix

package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// rounds is how often each of the things that are compared is run; what is short
// and close to its goal is run more often.
const (
	rounds     = 5
	moreRounds = 11
)

// run is what one run of something cost.
type run struct {
	cpu    time.Duration // user and system time of the process, garbage collection included
	wall   time.Duration
	allocs uint64
	bytes  uint64 // allocated
}

// interleave runs each of the variants once a round, one after the other, so
// that whatever else the machine does meets all of them alike. The result is
// indexed by variant and round.
func interleave(rounds int, variants ...func()) [][]run {
	runs := make([][]run, len(variants))
	for range rounds {
		for i, variant := range variants {
			// One variant must not pay for the garbage of the other.
			runtime.GC()
			before := now()
			variant()
			after := now()
			runs[i] = append(runs[i], run{after.cpu - before.cpu, after.wall - before.wall, after.allocs - before.allocs, after.bytes - before.bytes})
		}
	}
	return runs
}

var started = time.Now()

// now reads the clocks and the number of allocations since the start.
func now() run {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it fails for bad arguments only
	}
	return run{time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), time.Since(started), mem.Mallocs, mem.TotalAlloc}
}

// figures holds one figure a round.
type figures []float64

// perRound computes a figure of every round.
func perRound(runs []run, figure func(run) float64) figures {
	out := make(figures, len(runs))
	for i, r := range runs {
		out[i] = figure(r)
	}
	return out
}

func cpuSeconds(r run) float64  { return r.cpu.Seconds() }
func wallSeconds(r run) float64 { return r.wall.Seconds() }

// ratio returns, round by round, the figure of a divided by that of b.
func ratio(figure func(run) float64, a, b []run) figures {
	out := perRound(a, figure)
	for i := range out {
		out[i] /= figure(b[i])
	}
	return out
}

func (f figures) median() float64 {
	sorted := slices.Sorted(slices.Values(f))
	return sorted[len(sorted)/2]
}

// String returns the median with the least and the greatest figure.
func (f figures) String() string {
	return fmt.Sprintf("%.3g (%.3g-%.3g)", f.median(), slices.Min(f), slices.Max(f))
}

// goal is the bound that a figure must keep.
type goal struct {
	text string
	met  func(float64) bool
}

func atLeast(bound float64) goal {
	return goal{fmt.Sprintf("at least %g", bound), func(v float64) bool { return v >= bound }}
}

func atMost(bound float64) goal {
	return goal{fmt.Sprintf("at most %g", bound), func(v float64) bool { return v <= bound }}
}

// assert prints what was measured and fails where the median misses the goal.
// unit is also the name of the metric in the output of the benchmark.
func (g goal) assert(b *testing.B, f figures, unit string) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // of all rounds together: it says nothing
	b.ReportMetric(f.median(), unit)
	line := fmt.Sprintf("%v %s; the goal is %s", f, unit, g.text)
	if !g.met(f.median()) {
		b.Errorf("MISSED: %s", line)
		return
	}
	b.Log(line)
}

// input is a generated file.
type input struct {
	name  string
	bytes int64
	spans int
}

// The inputs by number of traces; a trace has 15.5 spans on average.
const (
	traces30K  = 2_000
	traces100K = 6_500
	traces1M   = 65_000
)

var inputs struct {
	dir  string // made by the first, removed by TestMain
	made map[string]input
}

// generated returns a file with that many traces of [tracegen.Stream]. It is
// written once and stays in the page cache.
func generated(b *testing.B, name string, traces int, write func(dst []byte, spans []tracegen.Span) []byte) input {
	b.Helper()
	if in, ok := inputs.made[name]; ok {
		return in
	}
	in := create(b, name, func(w io.Writer) (int, error) {
		return tracegen.Stream(w, tracegen.StreamConfig{Seed: 1, Traces: traces, Append: write})
	})
	if inputs.made == nil {
		inputs.made = make(map[string]input)
	}
	inputs.made[name] = in
	return in
}

// create writes a file into the temporary folder.
func create(b *testing.B, name string, write func(io.Writer) (spans int, err error)) input {
	b.Helper()
	if inputs.dir == "" {
		dir, err := os.MkdirTemp("", "latencybudget-bench-")
		if err != nil {
			b.Fatal(err)
		}
		inputs.dir = dir
	}
	in := input{name: filepath.Join(inputs.dir, name)}
	file, err := os.Create(in.name)
	if err != nil {
		b.Fatal(err)
	}
	buffer := bufio.NewWriterSize(file, 1<<20)
	in.spans, err = write(buffer)
	if err := errors.Join(err, buffer.Flush(), file.Close()); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(in.name)
	if err != nil {
		b.Fatal(err)
	}
	in.bytes = info.Size()
	return in
}

// table lays out rows for the log.
func table(rows [][]string) string {
	var width [16]int
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		out.WriteByte('\n')
		for i, cell := range row {
			if i == 0 {
				fmt.Fprintf(&out, "%-*s", width[i], cell)
			} else {
				fmt.Fprintf(&out, "  %*s", width[i], cell)
			}
		}
	}
	return out.String()
}
