package source

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// timesCase writes a span a/1 whose start, and whose end or duration, are two
// numbers in units of unit ns.
type timesCase struct {
	format string
	unit   int64
	ends   bool // the second number is the end
	zero   bool // zero can mean that there is none
	write  func(first, second int64) string
}

var timesCases = []timesCase{
	{"otlp-json", 1, true, true, func(a, b int64) string {
		return otlp(fmt.Sprintf(`{"traceId":"a","spanId":"1","startTimeUnixNano":"%d","endTimeUnixNano":%d}`, a, b))
	}},
	{"otlp-proto", 1, true, true, func(a, b int64) string {
		// A negative number is one of the upper half of uint64 here.
		return string(protoData(sub(2, fixed(8, uint64(b)), fixed(7, uint64(a)), str(2, protoID(1, 8)), str(1, protoID(0xa, 16)))))
	}},
	{"jaeger", 1000, false, false, func(a, b int64) string {
		return fmt.Sprintf(`{"data":[{"spans":[{"traceID":"a","spanID":"1","startTime":%d,"duration":%d}]}]}`, a, b)
	}},
	{"zipkin", 1000, false, true, func(a, b int64) string {
		return fmt.Sprintf(`[{"traceId":"a","id":"1","timestamp":%d,"duration":%d}]`, a, b)
	}},
	{"zipkin, version 1", 1000, true, false, func(a, b int64) string {
		return fmt.Sprintf(`[{"traceId":"a","id":"1","annotations":[{"value":"sr","timestamp":%d,"endpoint":{"serviceName":"s"}},`+
			`{"value":"ss","timestamp":%d}]}]`, a, b)
	}},
	{"zipkin, version 1, start and receive", 1000, true, true, func(a, b int64) string {
		return fmt.Sprintf(`[{"traceId":"a","id":"1","timestamp":%d,"annotations":[{"value":"cr","timestamp":%d,`+
			`"endpoint":{"serviceName":"s"}}]}]`, a, b)
	}},
}

// holdTimes holds a span to the range in which its end and sums of a few
// durations cannot overflow.
func holdTimes(t *testing.T, s trace.Span) {
	t.Helper()
	if s.Start < 0 || s.Start >= 1<<62 || s.Duration <= -1<<61 || s.Duration >= 1<<61 {
		t.Errorf("times out of range: %s", show(s))
	}
	if s.Is(trace.FlagUnmeasured) && s.Duration != 0 {
		t.Errorf("an unmeasured span has a duration: %s", show(s))
	}
}

// TestTimesNeverWrap compares with arithmetic that has no bounds: a span comes
// out with exactly the times that were written, or unmeasured, or is counted as
// bad.
func TestTimesNeverWrap(t *testing.T) {
	edges := []int64{
		0, 1, -1, 1e12 - 1, 1e13, 1e15, 1e18, -1e18, 1 << 61, 1<<61 - 1, -1 << 61, 1 << 62, 1<<62 - 1, math.MaxInt64, -math.MaxInt64,
		(1 << 62) / 1000, (1<<62)/1000 - 1, (1 << 61) / 1000, (1<<61)/1000 - 1, -(1 << 61) / 1000, math.MaxInt64 / 1000, math.MaxInt64/1000 + 1,
		1_700_000_000_000_000_000, 1_700_000_000_000_000,
	}
	rng := rand.New(rand.NewPCG(5, 6))
	random := func() int64 {
		n := rng.Int64N(1 << (1 + rng.IntN(62)))
		if rng.IntN(4) == 0 {
			n = -n
		}
		return n
	}
	for _, c := range timesCases {
		t.Run(c.format, func(t *testing.T) {
			check := func(a, b int64) {
				if a >= minMillis && a < maxMillis && c.format == "jaeger" {
					return // milliseconds, see TestJaegerMillisecondsNeverWrap
				}
				start := new(big.Int).Mul(big.NewInt(a), big.NewInt(c.unit))
				duration := new(big.Int).Mul(big.NewInt(b), big.NewInt(c.unit))
				end := new(big.Int).Set(duration)
				if c.ends {
					duration.Sub(end, start)
				} else {
					end.SetInt64(0)
				}
				got := readStdin(t, Options{}, c.write(a, b), "-")
				lost := got.notes.Count(trace.NoteBadSpan)
				if len(got.spans)+lost != 1 {
					t.Fatalf("%d, %d: %d spans and %d counted as bad", a, b, len(got.spans), lost)
				}
				inRange := start.Sign() >= 0 && start.Cmp(big.NewInt(1<<62)) < 0 && duration.CmpAbs(big.NewInt(1<<61)) < 0 &&
					end.Sign() >= 0 && end.Cmp(big.NewInt(1<<62)) < 0
				zero := c.zero && (a == 0 || b == 0)
				if lost > 0 {
					if inRange && !zero {
						t.Errorf("%d, %d: lost for no reason: %v", a, b, got.errs)
					}
					return
				}
				s := got.spans[0]
				holdTimes(t, s)
				if s.Is(trace.FlagUnmeasured) {
					if got.notes.Count(trace.NoteNoTime) != 1 || inRange && !zero {
						t.Errorf("%d, %d: unmeasured without reason or not counted: %s", a, b, show(s))
					}
					return
				}
				if !inRange || s.Start != start.Int64() || s.Duration != duration.Int64() {
					t.Errorf("%d, %d: got %s", a, b, show(s))
				}
			}
			for _, a := range edges {
				for _, b := range edges {
					check(a, b)
				}
			}
			for range 300 {
				check(random(), random())
			}
		})
	}
}

func TestJaegerMillisecondsNeverWrap(t *testing.T) {
	for _, c := range []struct {
		start, duration string
		want            string // "" if the span is lost
	}{
		{"4611686018426", "1", "4611686018426000000+1000000"},
		{"4611686018428", "1", ""},
		{"9999999999999", "1", ""},
		{"1700000000000", "2305843009212", "1700000000000000000+2305843009212000000"},
		{"1700000000000", "2305843009214", ""},
		{"1700000000000", "-2305843009214", ""},
		{"1700000000000", "1000000000000000000", ""},
	} {
		got := readStdin(t, Options{}, `{"data":[{"spans":[{"traceID":"a","spanID":"1","startTime":`+c.start+`,"duration":`+c.duration+`}]}]}`, "-")
		if c.want == "" {
			if len(got.spans) > 0 || got.notes.Count(trace.NoteBadSpan) != 1 {
				t.Errorf("%s, %s: %v, want none", c.start, c.duration, showAll(got.spans))
			}
			continue
		}
		if len(got.spans) != 1 || !strings.HasSuffix(show(got.spans[0]), c.want) {
			t.Errorf("%s, %s: %v, want %s", c.start, c.duration, showAll(got.spans), c.want)
		}
	}
}

func TestStdouttraceTimesNeverWrap(t *testing.T) {
	for year := 1; year <= 9999; year += 7 {
		for _, other := range []string{"1970-01-01T00:00:01Z", "2024-01-01T00:00:00Z"} {
			text := strconv.Itoa(10000 + year)[1:] + "-06-01T00:00:00+01:00"
			for _, times := range [][2]string{{text, other}, {other, text}} {
				got := readStdin(t, Options{}, fmt.Sprintf(`{"SpanContext":{"TraceID":"aa","SpanID":"1"},"StartTime":%q,"EndTime":%q}`,
					times[0], times[1]), "-")
				for _, s := range got.spans {
					holdTimes(t, s)
				}
				if len(got.spans)+got.notes.Count(trace.NoteBadSpan) != 1 || len(got.spans) != 1 && year >= 1970 && year < 2024+73-1 && other[0] == '2' {
					t.Errorf("%v: %d spans, errors %v", times, len(got.spans), got.errs)
				}
			}
		}
	}
}
