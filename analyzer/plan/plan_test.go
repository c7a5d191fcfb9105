package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/internal/goldentest"
)

func read(t *testing.T, path string) *plan.Plan {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Read(path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const ms = plan.Duration(time.Millisecond)

// full has a value under every key.
func full() *plan.Plan {
	from := time.Date(2026, 11, 28, 9, 0, 0, 123456789, time.UTC)
	to := from.Add(time.Hour)
	low, high := 71*ms, 92*ms+plan.Duration(333)
	return &plan.Plan{
		Version: plan.Version, Revision: "2026-11-29 first, of 订单",
		Gate: plan.Gate{
			Expansions:         plan.RatioLimit{Ratio: 0.0123456},
			CallsAfterDeadline: plan.RatioLimit{Off: true},
			StopAfterCancelP99: plan.DurationLimit{Off: true},
			DeadlineMiss:       plan.RatioLimit{Ratio: 1},
		},
		Endpoints: []plan.Endpoint{{
			Service: "gateway", Operation: "POST /orders", Budget: 800 * ms, Reserve: 20*ms + 1, Tail: 5 * ms,
			Evidence: &plan.Evidence{
				Calls: 12345, P50: 40 * ms, P99: 80 * ms, P99Interval: []*plan.Duration{&low, nil},
				From: &from, To: &to, Strategy: "p99prop", FalseCuts: &plan.FalseCuts{Share: 0.0264, Cap: 0.002},
			},
			Hops: []plan.Hop{
				{Callee: "gateway", Operation: "validate", Stage: true, Share: 3 * ms},
				{
					Callee: "库存", Operation: "预留: #1 'x' \"y\"", Share: 300 * ms, Cap: 500 * ms, Max: 600 * ms, Floor: 20 * ms,
					AttemptTimeout: 90 * ms, MaxAttempts: 3, Backoff: 15 * ms, Reserve: 4 * ms, Tail: 2 * ms, MaxQueue: 60 * ms,
					Degradable: true, After: []string{"gateway validate"}, Exclusive: 1,
					Evidence: &plan.Evidence{Calls: 12000, Reserve: 3 * ms, P50: 30 * ms, P99: 81 * ms, P99Interval: []*plan.Duration{&low, &high}},
					Hops:     []plan.Hop{{Operation: "SELECT", Share: 296 * ms}, {Callee: "cache", Share: 10 * ms}},
				},
				{Callee: "coupon\n\t ", Operation: "off", Share: 200 * ms, After: []string{"gateway validate"}, Exclusive: 1},
				{Callee: "mail", Operation: "123", Async: true, Hops: []plan.Hop{{Callee: "smtp", Operation: "null", Async: true, Share: 3 * 3600 * 1000 * ms}}},
			},
		}, {Service: "gateway", Operation: "~", Budget: 1500 * plan.Duration(time.Microsecond)}},
	}
}

func TestWrittenPlansReadBackTheSame(t *testing.T) {
	for name, p := range map[string]*plan.Plan{"full": full(), "hand": read(t, "testdata/hand.yaml")} {
		var b bytes.Buffer
		if err := plan.Write(&b, p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		goldentest.Compare(t, filepath.Join("testdata", name+".golden.yaml"), b.String())
		back, err := plan.Read(name, &b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(p, back); diff != "" {
			t.Errorf("%s (-written +read):\n%s", name, diff)
		}
	}
}

// TestEveryMistakeIsNamedWithItsLine compares what is said of the plans in
// testdata/broken.
func TestEveryMistakeIsNamedWithItsLine(t *testing.T) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Read("budgets.yaml", bytes.NewReader(text))
		var all plan.Errors
		if p != nil || !errors.As(err, &all) {
			t.Errorf("%s: %v, %v; want no plan and all errors", path, p, err)
			continue
		}
		goldentest.Compare(t, strings.TrimSuffix(path, ".yaml")+".err", err.Error()+"\n")
	}
}

func TestReadTakesTheGateThatIsNotWrittenFromTheDefaults(t *testing.T) {
	const text = "version: 1\nrevision: r\ngate: {deadline_miss: off}\nendpoints: [{service: a, operation: b, budget: 1s}]\n"
	p, err := plan.Read("x", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := plan.DefaultGate()
	want.DeadlineMiss = plan.RatioLimit{Off: true}
	if p.Gate != want {
		t.Errorf("gate %+v, want %+v", p.Gate, want)
	}
}

func TestReadReturnsErrorsOfTheReader(t *testing.T) {
	if _, err := plan.Read("x", iotest.ErrReader(os.ErrPermission)); !errors.Is(err, os.ErrPermission) {
		t.Errorf("got %v", err)
	}
	if _, err := plan.Read("x", strings.NewReader(strings.Repeat(" ", plan.MaxBytes+1))); err == nil {
		t.Error("a file over MaxBytes was read")
	}
}

func TestAPlanWithMistakesIsNotWritten(t *testing.T) {
	p := full()
	p.Endpoints[0].Hops[1].Share = 900 * ms
	p.Endpoints[0].Hops[0].Operation = "a\x00b\xff"
	p.Endpoints[0].Evidence.P99Interval = p.Endpoints[0].Evidence.P99Interval[:1]
	p.Gate.DeadlineMiss.Ratio = -1
	p.Gate.StopAfterCancelP99.Duration = -1
	var b bytes.Buffer
	err := plan.Write(&b, p)
	var all plan.Errors
	if !errors.As(err, &all) || len(all) != 9 || strings.Count(err.Error(), "\n") != 8 || b.Len() != 0 {
		t.Errorf("%d bytes, %d errors: %v", b.Len(), len(all), err)
	}
}

// TestMessagesStayShort: a mistake is told in a line that people read, however many
// hops it is about, and the work for all of them grows with the file.
func TestMessagesStayShort(t *testing.T) {
	sequence := make([]plan.Hop, 5000)
	for i := range sequence {
		sequence[i] = plan.Hop{Callee: "c", Operation: strconv.Itoa(i), Share: ms}
		if i > 0 {
			sequence[i].After = []string{sequence[i-1].Key()}
		}
	}
	circle := slices.Clone(sequence)
	circle[0].After = []string{"c 4999"}
	var deep []plan.Hop
	for i := range 2 * plan.MaxDepth { // each has more than its caller
		deep = []plan.Hop{{Callee: "d", Operation: "D", Share: plan.Duration(3*plan.MaxDepth-i) * ms, Hops: deep}}
	}
	for name, c := range map[string]struct {
		hops []plan.Hop
		errs int
		want string
	}{
		"sequence": {sequence, 1, "c 0 1ms + c 1 1ms + c 2 1ms + c 3 1ms + c 4 1ms + c 5 1ms + (4988 more) + c 4994 1ms"},
		"circle":   {circle, 1, "(4989 more) after"},
		"deep":     {deep, plan.MaxDepth + 1, "d D 205ms > (189 more) > d D"},
	} {
		p := &plan.Plan{Version: plan.Version, Revision: "r", Endpoints: []plan.Endpoint{{Service: "a", Operation: "A", Budget: 20 * ms, Hops: c.hops}}}
		err := p.Validate()
		var all plan.Errors
		if !errors.As(err, &all) || len(all) != c.errs || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d errors; want %d and %q: %.2000v", name, len(all), c.errs, c.want, err)
		}
		for _, e := range all {
			if len(e.Text) > 400 {
				t.Errorf("%s: a message of %d bytes: %.1000s", name, len(e.Text), e.Text)
			}
		}
	}
}

// TestAPlanThatIsNotReadIsNotWritten: because of its size.
func TestAPlanThatIsNotReadIsNotWritten(t *testing.T) {
	p := full()
	for i := range 100_000 {
		p.Endpoints = append(p.Endpoints, plan.Endpoint{Service: "many", Operation: strconv.Itoa(i), Budget: ms})
	}
	var b bytes.Buffer
	if err := plan.Write(&b, p); err == nil || !strings.Contains(err.Error(), "more than the 4194304 that are read") || b.Len() != 0 {
		t.Errorf("%d bytes, %v", b.Len(), err)
	}
}

// TestChainIsTheLongestSequence: a plan of 8, 3, 20 beside 15, 35, 10, 3 and a
// message takes 79, whatever the order of the lines.
func TestChainIsTheLongestSequence(t *testing.T) {
	e := &read(t, "testdata/hand.yaml").Endpoints[0]
	for range e.Hops {
		chain, sum := plan.Chain(e.Hops)
		var names []string
		for _, h := range chain {
			names = append(names, h.Operation)
		}
		if got := strings.Join(names, " "); got != "A B C E F H" || sum != 79*ms {
			t.Errorf("%s: %v; want A B C E F H: 79ms", got, sum)
		}
		e.Hops = append(e.Hops[1:], e.Hops[0])
	}
	if chain, sum := plan.Chain(nil); chain != nil || sum != 0 {
		t.Errorf("no hops: %v, %v", chain, sum)
	}
}

func TestRatiosKeepEveryDigit(t *testing.T) {
	for _, text := range []string{"0%", "0.1%", "1%", "100%", "0.07%", "33.3333%", "0.000000001%", "12.5%"} {
		p, err := plan.Read("x", strings.NewReader("version: 1\nrevision: r\ngate: {deadline_miss: "+text+
			"}\nendpoints: [{service: a, operation: b, budget: 1s}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Gate.DeadlineMiss.Ratio.String(); got != text {
			t.Errorf("%s is written as %s", text, got)
		}
	}
}

// A file of something else may be wrong in each of its lines.
func TestTheFirstErrorsAreToldAndTheOthersCounted(t *testing.T) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "key%d: 1\n", i)
	}
	_, err := plan.Read("x", strings.NewReader(text.String()))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 101 || !strings.HasPrefix(lines[99], "x:100: ") || lines[100] != "x: and 4900 more" {
		t.Errorf("%d lines, the last: %s", len(lines), lines[len(lines)-1])
	}
	// Values that cannot hold together are as many.
	text.Reset()
	text.WriteString("version: 1\nrevision: a\nendpoints:\n")
	for range 300 {
		text.WriteString("  - {service: a, operation: x, budget: 1s}\n")
	}
	_, err = plan.Read("x", strings.NewReader(text.String()))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 101 {
		t.Errorf("%d lines, the last: %s", len(lines), lines[len(lines)-1])
	}
}

func FuzzRead(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/broken/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := plan.Read("x", bytes.NewReader(text))
		if err != nil {
			if p != nil || strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%v, %q", p, err)
			}
			return
		}
		plan.NewIndex(p)
		var b bytes.Buffer
		if err := plan.Write(&b, p); err != nil {
			t.Fatalf("a plan that was read is not written: %v", err)
		}
		written := b.String()
		back, err := plan.Read("y", &b)
		if err != nil {
			t.Fatalf("%v in what was written:\n%s", err, written)
		}
		if diff := cmp.Diff(p, back); diff != "" {
			t.Fatalf("(-read +read back):\n%s", diff)
		}
	})
}
