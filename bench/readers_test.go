//go:build unix

package bench

import (
	"context"
	"fmt"
	"hash/maphash"
	"os"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// BenchmarkReaders compares reading alone: files to spans. It asserts that all
// readers give the same spans; the figures are for information.
func BenchmarkReaders(b *testing.B) {
	plain := generated(b, "30k.jsonl", traces30K, tracegen.AppendOTLPJSONLines)
	proto := generated(b, "30k.pb", traces30K, tracegen.AppendOTLPProtoFramed)
	seed := uint64(0)
	scrambled := generated(b, "30k-scrambled.jsonl", traces30K, func(dst []byte, spans []tracegen.Span) []byte {
		seed++
		return append(dst, scrambleLines(b, seed, tracegen.AppendOTLPJSONLines(nil, spans), false)...)
	})

	ours := func(in input, workers int) func() (uint64, int) {
		return func() (uint64, int) {
			src, err := source.Open([]string{in.name}, nil, source.Options{Workers: workers})
			if err != nil {
				b.Fatal(err)
			}
			return checksum(b, src)
		}
	}
	pdata := func(in input, proto bool) func() (uint64, int) {
		return func() (uint64, int) { return checksum(b, pdataFile{in.name, proto}) }
	}
	variants := []struct {
		name  string
		in    input
		read  func() (uint64, int)
		pdata int // index of the variant to compare with
	}{
		{"JSON, pdata", plain, pdata(plain, false), 0},
		{"JSON, 1 worker", plain, ours(plain, 1), 0},
		{"JSON, 2 workers", plain, ours(plain, 2), 0},
		{"scrambled JSON, pdata", scrambled, pdata(scrambled, false), 3},
		{"scrambled JSON, 1 worker", scrambled, ours(scrambled, 1), 3},
		{"protobuf, pdata", proto, pdata(proto, true), 5},
		{"protobuf, 1 worker", proto, ours(proto, 1), 5},
	}
	sum, _ := variants[0].read()
	calls := make([]func(), len(variants))
	for i, v := range variants {
		calls[i] = func() {
			if got, n := v.read(); got != sum || n != v.in.spans {
				b.Errorf("%s: %d spans with checksum %x, want %d with %x", v.name, n, got, v.in.spans, sum)
			}
		}
	}
	data, err := os.ReadFile(plain.name)
	if err != nil {
		b.Fatal(err)
	}
	memory := make([]byte, len(data))
	const copies = 20 // one is too short to be measured
	calls = append(calls, func() {
		for range copies {
			copy(memory, data)
		}
	})

	runs := interleave(rounds, calls...)
	rows := [][]string{{"CPU time, median (min-max)", "MB/s", "spans/s", "allocs/span", "x pdata"}}
	for i, v := range variants {
		size, spans := float64(v.in.bytes)/1e6, float64(v.in.spans)
		rows = append(rows, []string{
			v.name,
			perRound(runs[i], func(r run) float64 { return size / r.cpu.Seconds() }).String(),
			fmt.Sprintf("%.0f", perRound(runs[i], func(r run) float64 { return spans / r.cpu.Seconds() }).median()),
			fmt.Sprintf("%.2f", perRound(runs[i], func(r run) float64 { return float64(r.allocs) / spans }).median()),
			ratio(cpuSeconds, runs[v.pdata], runs[i]).String(),
		})
	}
	rows = append(rows, []string{
		"copy in memory",
		perRound(runs[len(variants)], func(r run) float64 { return copies * float64(len(data)) / 1e6 / r.cpu.Seconds() }).String(),
	})
	b.ReportMetric(0, "ns/op")
	b.Log(table(rows))
	b.Logf("1 worker takes %v of the wall time and %v of the CPU time of 2",
		ratio(wallSeconds, runs[1], runs[2]), ratio(cpuSeconds, runs[1], runs[2]))
}

var checksumSeed = maphash.MakeSeed()

// checksum reads the source and returns a sum over all that the spans hold, in
// whatever order they come, and their number.
func checksum(b *testing.B, src trace.Source) (sum uint64, spans int) {
	b.Helper()
	for batch, err := range src.Batches(context.Background()) {
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range batch.Spans {
			sum += maphash.Comparable(checksumSeed, flatten(s))
		}
		spans += len(batch.Spans)
	}
	return sum, spans
}
