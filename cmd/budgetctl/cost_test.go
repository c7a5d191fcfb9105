package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// TestCostGrowsWithTheInput runs the whole command on one deep and one wide
// trace, with one name and with as many names as spans, at full size and at a
// tenth of it. Ten times the spans may take fifteen times as long, in CPU time,
// the best of some runs each.
func TestCostGrowsWithTheInput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const most = 15.0
	for _, shape := range []struct {
		name   string
		full   int
		parent func(i int) int // of span i, -1 for a root
	}{
		{"chain", 100_000, func(i int) int { return i - 1 }},
		{"children", 50_000, func(i int) int { return min(i, 1) - 1 }},
		{"roots", 50_000, func(int) int { return -1 }},
	} {
		for _, names := range []string{"equal", "different"} {
			t.Run(shape.name+" with "+names+" names", func(t *testing.T) {
				cost := func(n, runs int) time.Duration {
					file := filepath.Join(t.TempDir(), "trace.otlp.jsonl")
					var lines []byte // of 500 spans, as exporters batch them
					for batch := range slices.Chunk(bigTrace(n, shape.parent, names == "different"), 500) {
						lines = tracegen.AppendOTLPJSONLines(lines, batch)
					}
					if err := os.WriteFile(file, lines, 0o600); err != nil {
						t.Fatal(err)
					}
					best := time.Duration(1 << 62)
					for range runs {
						before := cpuTime(t)
						if code, _, stderr := outcome(t, "", "analyze", "-o", "json", file); code != exitOK {
							t.Fatalf("exit %d: %s", code, stderr)
						}
						best = min(best, cpuTime(t)-before)
					}
					return best
				}
				// A busy neighbour can slow down one of the two: the law is broken
				// where it fails three times.
				for attempt := 1; ; attempt++ {
					tenth, full := cost(shape.full/10, 5), cost(shape.full, 3)
					ratio := float64(full) / float64(tenth)
					t.Logf("%d spans %v, %d spans %v: %.1f times", shape.full/10, tenth, shape.full, full, ratio)
					if ratio <= most {
						return
					}
					if attempt == 3 {
						t.Fatalf("ten times the spans take %.1f times as long, want at most %.0f", ratio, most)
					}
				}
			})
		}
	}
}

// bigTrace makes one trace of n SERVER spans.
func bigTrace(n int, parent func(i int) int, different bool) []tracegen.Span {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	spans := make([]tracegen.Span, n)
	for i := range spans {
		s := &spans[i]
		s.TraceID = [16]byte{1}
		s.ID = [8]byte{1, 0, 0, 0, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
		s.Service, s.Name, s.Kind = "svc", "op", tracegen.KindServer
		if different {
			s.Name = fmt.Sprintf("op-%c%c%c%c", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576%26)
		}
		s.Start = start + int64(i)*1000
		s.End = start + int64(3*n-i)*1000
		if p := parent(i); p >= 0 {
			s.Parent = spans[p].ID
			if p != i-1 {
				s.End = s.Start + 3000
			}
		}
	}
	return spans
}

// cpuTime is what this process has used so far.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
