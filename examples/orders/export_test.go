package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/source"
)

// command runs the command and returns its exit code and output.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestTheFileOfEveryModeIsReadByTheAnalyzer(t *testing.T) {
	for _, mode := range Modes {
		t.Run(string(mode), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "spans.jsonl")
			code, out, errs := command(t, "-mode", string(mode), "-requests", "20", "-rate", "0", "-budget", "2s", "-out", file)
			if code != 0 || errs != "" || !strings.Contains(out, "20 x 200") {
				t.Fatalf("exit code %d, output %s%s", code, out, errs)
			}
			spans, err := source.Open([]string{file}, nil, source.Options{})
			if err != nil {
				t.Fatal(err)
			}
			report, err := analyzer.Analyze(t.Context(), analyzer.Config{}, spans)
			if err != nil {
				t.Fatal(err)
			}
			in := report.Input
			if len(in.Failed) != 0 || in.Files[0].Format != "otlp-json" || in.Spans != 20*15 {
				t.Errorf("read %+v, failed %v; want 300 spans of otlp-json", in.Files, in.Failed)
			}
			if mode == Background {
				if in.Traces != 20*8 {
					t.Errorf("%d traces, want one a call", in.Traces)
				}
				return
			}
			if in.Traces != 20 || in.Analysed != in.Spans || len(in.Notes) != 0 {
				t.Errorf("%d traces, %d spans analysed, notes %v; want 20 and all 300", in.Traces, in.Analysed, in.Notes)
			}
			if len(report.Endpoints) != 1 {
				t.Fatalf("%d endpoints, want 1", len(report.Endpoints))
			}
			e := report.Endpoints[0]
			if e.Service != "gateway" || e.Operation != "POST /order" || len(e.Hops) != len(Orders) {
				t.Errorf("endpoint %s %s with %d hops", e.Service, e.Operation, len(e.Hops))
			}
			if budget := time.Duration(e.Budget); e.BudgetSource != "observed" || budget > 2*time.Second || budget < 1900*time.Millisecond {
				t.Errorf("budget %v (%s), want the 2 s that the spans carry", budget, e.BudgetSource)
			}
		})
	}
}

// Every mode has its own mistake, and the rules find that one and no other.
func TestTheRulesFindTheMistakeOfEveryMode(t *testing.T) {
	for mode, want := range map[Mode]struct {
		rules []string
		text  string // in one of the findings
	}{
		Propagated: {},
		Ratio:      {},
		Ctx3s:      {},
		Fresh:      {[]string{"deadline-reset"}, "set by gateway"},
		// The HTTP services give themselves 3 s where no deadline arrives.
		Dropped: {[]string{"deadline-dropped", "deadline-reset"}, "by gateway"},
		// Only HTTP has the header that always says 3 s.
		Header:     {[]string{"deadline-reset"}, "set by auth, or the call to it"},
		Background: {[]string{"trace-restarted"}, "began traces of their own"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			got, texts := findings(t, "-mode", string(mode), "-budget", "2s")
			if !slices.Equal(got, want.rules) {
				t.Errorf("found %q, want %q", got, want.rules)
			}
			if all := strings.Join(texts, "\n"); !strings.Contains(all, want.text) {
				t.Errorf("no finding says %q:\n%s", want.text, all)
			}
		})
	}
}

// Every fault shows in the rules that are made for it.
func TestTheRulesFindFaults(t *testing.T) {
	for fault, want := range map[string]struct {
		budget string
		rules  []string // all of them are found
		alone  bool     // and no others
	}{
		"hedge=auth:1ms":                            {"2s", nil, true},
		"proxy=coupon:15s":                          {"2s", []string{"deadline-reset"}, true},
		"queue=auth:1500ms":                         {"2s", []string{"queue-wait"}, false}, // and most of the budget is used
		"stall=inventory:600ms":                     {"2s", []string{"queue-wait"}, true},
		"retry=risk:2 retry=payment:3 fail=payment": {"2s", []string{"retry-amplification"}, true},
		"ignore=persist:500ms":                      {"300ms", []string{"budget-overrun", "deadline-exceeded", "work-after-deadline"}, false},
		"lostresponse=payment":                      {"300ms", []string{"deadline-exceeded", "outcome-unknown"}, false},
		"lateretry=inventory:100ms slow=inventory:400ms": {"300ms", []string{
			"call-after-deadline", "deadline-reset", "exhausted-at-start", "retry-overspend", "work-after-deadline",
		}, false},
	} {
		t.Run(fault, func(t *testing.T) {
			args := []string{"-budget", want.budget}
			for f := range strings.FieldsSeq(fault) {
				args = append(args, "-fault", f)
			}
			got, _ := findings(t, args...)
			for _, rule := range want.rules {
				if !slices.Contains(got, rule) {
					t.Errorf("found %q, want %s", got, rule)
				}
			}
			if want.alone && len(got) != len(want.rules) {
				t.Errorf("found %q, want %q alone", got, want.rules)
			}
		})
	}
}

// findings sends some requests and returns which rules of the analyzer found
// something, and what they say.
func findings(t *testing.T, args ...string) (rules, texts []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	code, out, errs := command(t, append(args, "-requests", "20", "-rate", "0", "-out", file)...)
	if code != 0 {
		t.Fatalf("exit code %d, output %s%s", code, out, errs)
	}
	spans, err := source.Open([]string{file}, nil, source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	report, err := analyzer.Analyze(t.Context(), analyzer.Config{}, spans)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range report.Endpoints {
		for _, f := range e.Findings {
			rules, texts = append(rules, f.Rule), append(texts, f.Text)
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), texts
}

func TestIDsAreHexAndIntegersAreStrings(t *testing.T) {
	var out bytes.Buffer
	client := toWriter(&out)()
	err := client.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{
		TraceId:           []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255},
		SpanId:            []byte{0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7, 0},
		Kind:              tracepb.Span_SPAN_KIND_CLIENT,
		StartTimeUnixNano: 1_700_000_000_000_000_001,
		Links:             []*tracepb.Span_Link{{TraceId: bytes.Repeat([]byte{0xee}, 16), SpanId: bytes.Repeat([]byte{0x11}, 8)}},
	}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"000102030405060708090a0b0c0d0eff",` +
		`"spanId":"f067aa0ba902b700","kind":3,"startTimeUnixNano":"1700000000000000001",` +
		`"links":[{"traceId":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","spanId":"1111111111111111"}]}]}]}]}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// collected counts the spans of an export request.
func collected(r *collectorpb.ExportTraceServiceRequest) (n int) {
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			n += len(ss.Spans)
		}
	}
	return n
}

// grpcCollector is an OTLP endpoint.
type grpcCollector struct {
	collectorpb.UnimplementedTraceServiceServer
	count func(*collectorpb.ExportTraceServiceRequest)
}

func (c grpcCollector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.count(r)
	return new(collectorpb.ExportTraceServiceResponse), nil
}

func TestSpansGoToAnEndpoint(t *testing.T) {
	var mu sync.Mutex
	var spans int
	count := func(r *collectorpb.ExportTraceServiceRequest) {
		mu.Lock()
		defer mu.Unlock()
		spans += collected(r)
	}
	overHTTP := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		text, err := io.ReadAll(body)
		request := new(collectorpb.ExportTraceServiceRequest)
		if err == nil {
			err = proto.Unmarshal(text, request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("request to %s: %v", r.URL.Path, err)
		}
		count(request)
	}))
	defer overHTTP.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overGRPC := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(overGRPC, grpcCollector{count: count})
	go func() { _ = overGRPC.Serve(listener) }()
	defer overGRPC.Stop()
	for _, endpoint := range []string{overHTTP.URL, "grpc://" + listener.Addr().String()} {
		spans = 0
		code, _, errs := command(t, "-requests", "4", "-rate", "0", "-endpoint", endpoint)
		if code != 0 || spans != 4*15 {
			t.Errorf("%s: exit code %d, %d spans, %s; want 60 spans", endpoint, code, spans, errs)
		}
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	tests := map[string][]string{
		"unknown mode":         {"-mode", "careless"},
		"careless":             {"-mode", "careless"},
		"-deadline is":         {"-deadline", "soon"},
		"unknown scenario":     {"-scenario", "flood"},
		"KIND=SERVICE":         {"-fault", "slow"},
		"not both":             {"-out", "x", "-endpoint", "http://127.0.0.1:4318"},
		"http://HOST:PORT":     {"-endpoint", "localhost:4318"},
		"-workers":             {"-workers", "0"},
		"cannot be negative":   {"-budget", "-1s"},
		"unexpected argument":  {"fresh"},
		"flag provided but no": {"-modus", "fresh"},
	}
	for want, args := range tests {
		if code, _, errs := command(t, args...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %q; want 2 and %q", args, code, errs, want)
		}
	}
	if code, _, errs := command(t, "-fault", "slow=nobody"); code != 1 || !strings.Contains(errs, "nobody") {
		t.Errorf("unknown service: exit code %d, %q; want 1", code, errs)
	}
	if code, _, _ := command(t, "-h"); code != 0 {
		t.Errorf("-h: exit code %d, want 0", code)
	}
}

func TestReasonsAreLogged(t *testing.T) {
	_, out, errs := command(t, "-requests", "3", "-budget", "40ms", "-spread", "0", "-v")
	line := regexp.MustCompile(`"service":"[a-z]+","reason":"deadline_exceeded","stage":"handler","dependency":"",` +
		`"remaining_ms":-?\d+,"budget_ms":\d+,"elapsed_ms":\d+`)
	if !strings.Contains(out, "3 x 504") || !line.MatchString(errs) {
		t.Errorf("output %s\nlog %s", out, errs)
	}
}

func TestAnInterruptEndsServing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if code := run(ctx, []string{"-requests", "0"}, io.Discard, io.Discard); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, mode := range Modes {
		r := new(recorder)
		s, err := Start(t.Context(), Config{
			Nodes: Orders, Mode: mode, Spread: 0.9, Fresh: 300 * time.Millisecond, Max: time.Second, Workers: 2,
			Log: silent, Export: recordTo(r), Faults: []Fault{
				{Kind: Ignore, Service: "persist", Value: 150 * time.Millisecond, Share: 0.5},
				{Kind: Hedge, Service: "auth", Value: time.Millisecond, Share: 0.5},
				{Kind: Slow, Service: "audit", Value: time.Minute, Share: 0.5},
				{Kind: LostResponse, Service: "payment", Share: 0.2},
				{Kind: Stall, Service: "inventory", Value: time.Millisecond, Share: 1},
				{Kind: Proxy, Service: "coupon", Value: time.Second, Share: 1},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		send(t, s, Load{Requests: 20, Budget: 200 * time.Millisecond, Concurrency: 10})
		if err := s.close(); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	// Goroutines that have got their last message need a moment to end.
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
}

// The commands of the README are run, with few requests.
func TestTheReadmeHoldsCommandsThatWork(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	run := 0
	for line := range strings.Lines(string(readme)) {
		line, _, _ = strings.Cut(line, "#")
		args, ok := strings.CutPrefix(line, "go run ./examples/orders")
		if !ok || strings.Contains(args, "-scenario") || strings.Contains(args, "-requests") {
			continue // these take long; they have tests of their own
		}
		fields := strings.Fields(args)
		for i, field := range fields {
			if field == "-endpoint" {
				fields[i], fields[i+1] = "-out", file
			}
			if field == "-out" {
				fields[i+1] = file
			}
		}
		if code, out, errs := command(t, append(fields, "-requests", "2", "-rate", "0")...); code != 0 {
			t.Errorf("%v: exit code %d, %s%s", fields, code, out, errs)
		}
		run++
	}
	if run < 8 {
		t.Errorf("%d commands were run, want 8 at least", run)
	}
}
