package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/processor/latencybudgetprocessor"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// nearThresholds draws requests that every setting decides about: calls that use about
// 80 % of what they had, deadlines that are a little later than what was left, as
// durations and as points in time.
//
//	>gateway        |== 1000 left ===================|
//	gateway>risk     |== deadline 999 to 1119 ======|
//	>risk             |== until 998 to 1148 ms =====|
func nearThresholds() ptrace.Traces {
	rng := rand.New(rand.NewPCG(1, 2))
	const epoch, ms = int64(1_700_000_000_000), int64(1_000_000)
	traces := ptrace.NewTraces()
	into := func(service string) ptrace.SpanSlice {
		resource := traces.ResourceSpans().AppendEmpty()
		resource.Resource().Attributes().PutStr("service.name", service)
		resource.Resource().Attributes().PutStr("host.name", service+"-1")
		return resource.ScopeSpans().AppendEmpty().Spans()
	}
	gateway, risk := into("gateway"), into("risk")
	for i := range int64(300) {
		at, took := epoch+2000*i, 600+rng.Int64N(450)
		add := func(to ptrace.SpanSlice, id byte, kind ptrace.SpanKind, from, until int64) ptrace.Span {
			s := to.AppendEmpty()
			var trace [16]byte
			binary.BigEndian.PutUint64(trace[8:], uint64(i+1))
			s.SetTraceID(trace)
			s.SetSpanID([8]byte{id})
			if id > 1 {
				s.SetParentSpanID([8]byte{id - 1})
			}
			s.SetKind(kind)
			s.SetName("GET /score")
			s.SetStartTimestamp(pcommon.Timestamp((at + from) * ms))
			s.SetEndTimestamp(pcommon.Timestamp((at + until) * ms))
			return s
		}
		seconds := func(ms int64) float64 { return float64(ms) / 1000 }
		s := add(gateway, 1, ptrace.SpanKindServer, 0, took)
		s.Attributes().PutDouble(attr.RemainingStart, 1)
		s.Attributes().PutDouble(attr.DeadlineRemaining, 1)
		call := add(gateway, 2, ptrace.SpanKindClient, 1, took-1)
		call.Attributes().PutDouble(attr.RemainingStart, seconds(999))
		later := int64(0)
		if i%2 == 0 {
			later = rng.Int64N(120)
		}
		call.Attributes().PutDouble(attr.DeadlineRemaining, seconds(999+later))
		s = add(risk, 3, ptrace.SpanKindServer, 2, took-2)
		s.Attributes().PutEmptySlice("http.request.header.x-request-deadline").AppendEmpty().
			SetStr(strconv.FormatInt(at+1000+rng.Int64N(150), 10))
	}
	return traces
}

// TestTheProcessorAndAnalyzeFindTheSameBySameSettings sets the same in YAML and by
// flags: of each rule that flags spans, the processor flags as many as analyze counts.
func TestTheProcessorAndAnalyzeFindTheSameBySameSettings(t *testing.T) {
	in := nearThresholds()
	file := filepath.Join(t.TempDir(), "traces.json")
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(in)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	profile := profiled(t, "traces.profile", file)
	type settings = map[string]any
	var byDefault map[string]int
	for _, c := range []struct {
		flags []string
		yaml  settings
		rule  string // of which more or less is found than by default
	}{
		{},
		{[]string{"--utilization-threshold", "0.9"}, settings{"utilization_threshold": 0.9}, "budget-utilization"},
		{[]string{"--reset-tolerance-absolute", "90ms"}, settings{"reset_tolerance": settings{"absolute": "90ms"}}, "deadline-reset"},
		{[]string{"--reset-tolerance-fraction", "0.02"}, settings{"reset_tolerance": settings{"fraction": 0.02}}, "deadline-reset"},
		{[]string{"--max-clock-skew", "0s"}, settings{"max_clock_skew": "0s"}, "deadline-reset"},
		{
			[]string{"--utilization-threshold=1.01", "--reset-tolerance-absolute=0", "--reset-tolerance-fraction=0", "--max-clock-skew=100ms"},
			settings{"utilization_threshold": 1.01, "reset_tolerance": settings{"absolute": 0, "fraction": 0}, "max_clock_skew": "100ms"},
			"budget-utilization",
		},
	} {
		t.Run(strings.Join(c.flags, " "), func(t *testing.T) {
			flagged := flaggedBy(t, in, c.yaml)
			for _, input := range []string{file, profile} {
				if diff := cmp.Diff(flagged, foundIn(t, input, c.flags...)); diff != "" {
					t.Errorf("%s (-processor +analyze):\n%s", filepath.Base(input), diff)
				}
			}
			switch {
			case byDefault == nil:
				byDefault = flagged
			case byDefault[c.rule] == flagged[c.rule]:
				t.Errorf("%d of %s as by default: the test shows nothing", flagged[c.rule], c.rule)
			}
		})
	}
}

// flaggedBy counts the findings that the processor writes, by rule.
func flaggedBy(t *testing.T, in ptrace.Traces, yaml map[string]any) map[string]int {
	t.Helper()
	factory := latencybudgetprocessor.NewFactory()
	config := factory.CreateDefaultConfig()
	err := confmap.NewFromStringMap(yaml).Unmarshal(config)
	if err == nil {
		err = confmap.Validate(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	sink := new(consumertest.TracesSink)
	p, err := factory.CreateTraces(t.Context(), processortest.NewNopSettings(factory.Type()), config, sink)
	if err == nil {
		err = p.Start(t.Context(), componenttest.NewNopHost())
	}
	if err != nil {
		t.Fatal(err)
	}
	batch := ptrace.NewTraces()
	in.CopyTo(batch)
	if err := p.ConsumeTraces(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string)
	for _, rule := range finding.Rules() {
		names[rule.Flag] = rule.Name
	}
	out := make(map[string]int)
	for _, resource := range sink.AllTraces()[0].ResourceSpans().All() {
		for _, s := range resource.ScopeSpans().At(0).Spans().All() {
			if found, ok := s.Attributes().Get(attr.Findings); ok {
				for _, f := range found.Slice().AsRaw() {
					out[names[f.(string)]]++
				}
			}
		}
	}
	return out
}

// foundIn counts the findings of analyze by rule, of those that flag spans.
func foundIn(t *testing.T, input string, flags ...string) map[string]int {
	t.Helper()
	code, stdout, stderr := outcome(t, "", append([]string{"analyze", input, "-o", "json"}, flags...)...)
	var report analyzer.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitOK {
		t.Fatalf("exit %d: %v: %s", code, err, stderr)
	}
	out := make(map[string]int)
	for _, e := range report.Endpoints {
		for _, f := range e.Findings {
			if finding.Named(f.Rule).Flag != "" {
				out[f.Rule] += f.Count
			}
		}
	}
	return out
}

// TestBadSettingsAreRefusedAlike: by the flags of every command that has them and by
// the processor, in the same words after the name.
func TestBadSettingsAreRefusedAlike(t *testing.T) {
	for _, c := range []struct {
		flag  string
		value any
		key   string
		want  string
	}{
		{"utilization-threshold", 0, "utilization_threshold", "must be above 0 and at most 10, such as 0.8 for 80 % (got 0)"},
		{"utilization-threshold", 80, "utilization_threshold", "must be above 0 and at most 10, such as 0.8 for 80 % (got 80)"},
		{"utilization-threshold", math.NaN(), "utilization_threshold", "must be above 0 and at most 10, such as 0.8 for 80 % (got NaN)"},
		{"reset-tolerance-absolute", "-5ms", "reset_tolerance::absolute", "must be from 0s to 1h, such as 5ms (got -5ms)"},
		{
			"reset-tolerance-absolute", "300ns", "reset_tolerance::absolute",
			"must be 0s or at least 1ms, such as 5ms (got 300ns): a number without a unit counts nanoseconds",
		},
		{"reset-tolerance-fraction", 4, "reset_tolerance::fraction", "must be at least 0 and less than 1, such as 0.04 (got 4)"},
		{"reset-tolerance-fraction", -0.1, "reset_tolerance::fraction", "must be at least 0 and less than 1, such as 0.04 (got -0.1)"},
		{"max-clock-skew", "2h", "max_clock_skew", "must be from 0s to 1h, such as 50ms (got 2h0m0s)"},
	} {
		value := fmt.Sprint(c.value)
		t.Run(c.flag+"="+value, func(t *testing.T) {
			for _, command := range [][]string{{"analyze"}, {"check", "--plan", plans + "stamped.yaml"}} {
				code, _, stderr := outcome(t, "", append(command, "testdata/stamped", "--"+c.flag, value)...)
				if want := "budgetctl: --" + c.flag + " " + c.want + "\n"; code != exitUsage || !strings.HasPrefix(stderr, want) {
					t.Errorf("%s: exit %d, %q, want %q", command[0], code, stderr, want)
				}
			}
			config := latencybudgetprocessor.NewFactory().CreateDefaultConfig()
			err := confmap.NewFromStringMap(map[string]any{c.key: c.value}).Unmarshal(config)
			if err == nil {
				err = confmap.Validate(config)
			}
			if want := strings.ReplaceAll(c.key, "::", ": ") + " " + c.want; err == nil || err.Error() != want {
				t.Errorf("the processor says %v, want %q", err, want)
			}
		})
	}
	none := []string{"--utilization-threshold=0", "--reset-tolerance-absolute=0", "--reset-tolerance-fraction=0", "--max-clock-skew=0"}
	if code, _, stderr := outcome(t, "", append([]string{"analyze", "testdata/stamped"}, none...)...); code != exitUsage {
		t.Errorf("all 0: exit %d, %s", code, stderr)
	}
}

// TestReportsSaySettings: all forms name settings that are not the defaults, and none
// does where they are.
func TestReportsSaySettings(t *testing.T) {
	set := []string{"--utilization-threshold", "0.875", "--max-clock-skew", "0s"}
	for name, args := range map[string][]string{
		"SETTINGS The rules allow a hop 87.5 % of its budget, a deadline to be later by 5 ms or 4 % of what was left, " +
			"the larger of the two, and clocks to differ by 0 ms.": {"analyze", "testdata/stamped"},
		"- **SETTINGS** The rules allow a hop 87.5 % of its budget,": {"analyze", "testdata/stamped", "-o", "markdown"},
		`"settings": { "utilization_threshold": 0.875, "reset_tolerance_absolute_ns": 5000000, ` +
			`"reset_tolerance_fraction": 0.04, "max_clock_skew_ns": 0 }`: {"analyze", "testdata/stamped", "-o", "json"},
		`"settings": { "utilization_threshold": 0.875, "reset_`: {"check", "testdata/stamped", "--plan", plans + "stamped.yaml", "-o", "json"},
		">87.5 %": {"check", "testdata/stamped", "--plan", plans + "stamped.yaml"},
		"SETTINGS The rules allow a hop 87.5 % of its budget, a deadline": {"check", "testdata/stamped", "--plan", plans + "stamped.yaml"},
	} {
		_, stdout, stderr := outcome(t, "", append(slices.Clone(args), set...)...)
		if !strings.Contains(strings.Join(strings.Fields(stdout), " "), name) {
			t.Errorf("%v: %q is missing in\n%s%s", args, name, stdout, stderr)
		}
		_, stdout, _ = outcome(t, "", append(args, "--utilization-threshold", "0.8")...)
		if strings.Contains(strings.ToLower(stdout), "settings") {
			t.Errorf("%v: the defaults are named:\n%s", args, stdout)
		}
	}
}
