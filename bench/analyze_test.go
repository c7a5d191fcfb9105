//go:build unix

package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/report"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// childFile names, in the environment, the file that this program analyses
// instead of running benchmarks, so that the memory of one analysis can be told
// from all else. Nothing is analysed if it is empty.
const childFile = "LATENCYBUDGET_BENCH_FILE"

func TestMain(m *testing.M) {
	if name, isChild := os.LookupEnv(childFile); isChild {
		if err := child(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := os.RemoveAll(inputs.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// child analyses a file and writes its peak of resident memory in bytes.
func child(name string) error {
	if name != "" {
		src, err := source.Open([]string{name}, nil, source.Options{})
		if err != nil {
			return err
		}
		if _, err := analyze(src); err != nil {
			return err
		}
	}
	peak, err := peakMemory()
	fmt.Println(peak)
	return err
}

// peakMemory returns the largest resident set that the process has had, bytes.
// getrusage would not do: there it starts with that of the parent.
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("no VmHWM in /proc/self/status")
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	return kib << 10, err
}

// analyze is the whole job of `budgetctl analyze -o json`: from a source to
// the bytes of the report. The list of files is left out of the report, so that
// it is the same for other forms of the same spans.
func analyze(src trace.Source) ([]byte, error) {
	r, err := analyzer.Analyze(context.Background(), analyzer.Config{}, src)
	if err != nil {
		return nil, err
	}
	if len(r.Input.Failed) > 0 {
		return nil, errors.Join(r.Input.Failed...)
	}
	r.Input.Files = nil
	var out bytes.Buffer
	err = report.Render(&out, r, "json", report.Options{})
	return out.Bytes(), err
}

// analyzeFile is analyze of a file that the project's reader reads.
func analyzeFile(b *testing.B, name string) []byte {
	b.Helper()
	src, err := source.Open([]string{name}, nil, source.Options{})
	if err != nil {
		b.Fatal(err)
	}
	out, err := analyze(src)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// BenchmarkAnalyze compares the whole analysis with the same one on pdata and
// asserts that both say the same.
func BenchmarkAnalyze(b *testing.B) {
	in := generated(b, "100k.jsonl", traces100K, tracegen.AppendOTLPJSONLines)
	var ours, theirs []byte
	runs := interleave(moreRounds,
		func() { ours = analyzeFile(b, in.name) },
		func() {
			var err error
			if theirs, err = analyze(pdataFile{name: in.name}); err != nil {
				b.Fatal(err)
			}
		},
	)
	if !bytes.Equal(ours, theirs) {
		b.Errorf("the reports differ:\n%s\non pdata:\n%s", ours, theirs)
	}
	b.Logf("%d spans, %d MB: %v s of CPU time, on pdata %v s", in.spans, in.bytes/1e6, perRound(runs[0], cpuSeconds), perRound(runs[1], cpuSeconds))
	atLeast(1.5).assert(b, ratio(cpuSeconds, runs[1], runs[0]), "x-pdata-cpu")
}

// BenchmarkMillion measures whole processes on 100,000 and on 1,000,000 spans:
// their memory, and how the time for one span grows.
func BenchmarkMillion(b *testing.B) {
	if _, err := peakMemory(); err != nil {
		b.Skipf("peak memory is read from /proc: %v", err)
	}
	small := generated(b, "100k.jsonl", traces100K, tracegen.AppendOTLPJSONLines)
	large := generated(b, "1m.jsonl", traces1M, tracegen.AppendOTLPJSONLines)
	if large.spans < 1e6 {
		b.Fatalf("%d spans were generated, want 1,000,000", large.spans)
	}
	var empty, hundredK, million process
	var memory, smallMemory, growth figures
	for range rounds {
		empty, hundredK, million = spawn(b, ""), spawn(b, small.name), spawn(b, large.name)
		perSpan := func(p process, in input) (bytes, ns float64) {
			return float64(p.peak-empty.peak) / float64(in.spans), float64(p.cpu-empty.cpu) / float64(in.spans)
		}
		bytesLarge, nsLarge := perSpan(million, large)
		bytesSmall, nsSmall := perSpan(hundredK, small)
		memory, smallMemory = append(memory, bytesLarge), append(smallMemory, bytesSmall)
		growth = append(growth, nsLarge/nsSmall)
	}
	b.Logf("last round: empty %d MB; %d spans %d MB, %v of CPU; %d spans %d MB, %v of CPU",
		empty.peak/1e6, small.spans, hundredK.peak/1e6, hundredK.cpu, large.spans, million.peak/1e6, million.cpu)
	b.Logf("%v B/span at %d spans", smallMemory, small.spans)
	atMost(400).assert(b, memory, "B/span")
	atMost(1.3).assert(b, growth, "x-time-per-span")
}

// process is what a process cost.
type process struct {
	peak int64 // resident memory, bytes
	cpu  time.Duration
}

// spawn analyses a file in a process of its own; none if name is empty.
func spawn(b *testing.B, name string) process {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childFile+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	peak, err := strconv.ParseInt(string(bytes.TrimSpace(out)), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return process{peak, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
}

// BenchmarkShapes asserts that traces of extreme shape take a time that is close
// to proportional to their size.
func BenchmarkShapes(b *testing.B) {
	for _, shape := range []struct {
		name  string
		spans int
		make  func(spans int, name func(int) string) []tracegen.Span
	}{
		{"chain", 100_000, chain},
		{"wide", 50_001, wide},
	} {
		for _, names := range []struct {
			name string
			of   func(int) string
		}{
			{"equal", func(int) string { return "operation" }},
			{"different", func(i int) string { return fmt.Sprintf("operation%d", i) }},
		} {
			b.Run(shape.name+"/names="+names.name, func(b *testing.B) {
				file := func(spans int) input {
					name := fmt.Sprintf("%s-%s-%d.jsonl", shape.name, names.name, spans)
					return create(b, name, func(w io.Writer) (int, error) {
						_, err := w.Write(tracegen.AppendOTLPJSONLines(nil, shape.make(spans, names.of)))
						return spans, err
					})
				}
				full, tenth := file(shape.spans), file(shape.spans/10)
				// Both run about as long, so that what disturbs one disturbs the other.
				runs := interleave(moreRounds,
					func() {
						for range 10 {
							analyzeFile(b, tenth.name)
						}
					},
					func() { analyzeFile(b, full.name) },
				)
				b.Logf("10 x %d spans: %v s of CPU time, %d spans: %v s", tenth.spans, perRound(runs[0], cpuSeconds),
					full.spans, perRound(runs[1], cpuSeconds))
				growth := ratio(cpuSeconds, runs[1], runs[0])
				for i := range growth {
					growth[i] *= 10
				}
				atMost(15).assert(b, growth, "x-time-of-tenth")
			})
		}
	}
}

// chain is a trace in which every span has one child.
//
//	|----------- 0 -----------|
//	 |---------- 1 ----------|
//	  |--------- 2 ---------|
func chain(spans int, name func(int) string) []tracegen.Span {
	out := make([]tracegen.Span, spans)
	for i := range out {
		out[i] = shapeSpan(i, name(i))
		out[i].Start, out[i].End = int64(i)*1000, int64(2*spans-i)*1000
		if i > 0 {
			out[i].Parent = out[i-1].ID
		}
	}
	return finished(out)
}

// wide is a trace of one span with all others as its children, at any time.
//
//	|----------- 0 -----------|
//	  |-- 1 --|  |---- 2 ----|
//	     |---- 3 ----|  |-4-|
func wide(spans int, name func(int) string) []tracegen.Span {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]tracegen.Span, spans)
	length := int64(spans) * 10_000
	for i := range out {
		out[i] = shapeSpan(i, name(i))
		out[i].End = length
		if i > 0 {
			out[i].Parent = out[0].ID
			out[i].Start = rng.Int64N(length)
			out[i].End = out[i].Start + rng.Int64N(length-out[i].Start)
		}
	}
	return finished(out)
}

func shapeSpan(i int, name string) tracegen.Span {
	s := tracegen.Span{Service: "service", Name: name, Kind: tracegen.KindServer, TraceID: [16]byte{1}}
	binary.BigEndian.PutUint64(s.ID[:], uint64(i)+1)
	return s
}

// finished moves the spans to this century and into the order of their ends.
func finished(spans []tracegen.Span) []tracegen.Span {
	from := time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC).UnixNano()
	for i := range spans {
		spans[i].Start += from
		spans[i].End += from
	}
	tracegen.SortByEnd(spans)
	return spans
}
