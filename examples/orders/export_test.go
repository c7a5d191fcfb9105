package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/internal/ontime"
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
			code, out, errs := command(t, "-mode", string(mode), "-requests", "20", "-rate", "0", "-concurrency", "4",
				"-budget", "8s", "-fresh", "9s", "-out", file)
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
			if len(in.Failed) != 0 || in.Files[0].Format != "otlp-json" || in.Spans != 20*16 {
				t.Errorf("read %+v, failed %v; want 320 spans of otlp-json", in.Files, in.Failed)
			}
			if mode == Background {
				if in.Traces != 20*8 {
					t.Errorf("%d traces, want one a call", in.Traces)
				}
				return
			}
			if in.Traces != 20 || in.Analysed != in.Spans || len(in.Notes) != 0 {
				t.Errorf("%d traces, %d spans analysed, notes %v; want 20 and all 320", in.Traces, in.Analysed, in.Notes)
			}
			if len(report.Endpoints) != 1 {
				t.Fatalf("%d endpoints, want 1", len(report.Endpoints))
			}
			e := report.Endpoints[0]
			// Besides the calls, the work that is detached is a hop.
			if e.Service != "gateway" || e.Operation != "POST /order" || len(e.Hops) != len(Orders)+1 {
				t.Errorf("endpoint %s %s with %d hops", e.Service, e.Operation, len(e.Hops))
			}
			for _, h := range e.Hops {
				if detached := h.Callee == "audit" || h.Operation == "leave to audit"; detached != (h.Kind == analyzer.HopAsync) {
					t.Errorf("hop %s %s: %s", h.Callee, h.Operation, h.Kind)
				}
			}
			if budget := time.Duration(e.Budget); e.BudgetSource != "observed" || budget > 8*time.Second || budget < 7500*time.Millisecond {
				t.Errorf("budget %v (%s), want the 8 s that the spans carry", budget, e.BudgetSource)
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
			ontime.Judge(t, func(t *ontime.Trial) {
				got, texts := findings(t, "-mode", string(mode), "-budget", "2s")
				if !slices.Equal(got, want.rules) {
					t.Errorf("found %q, want %q", got, want.rules)
				}
				if all := strings.Join(texts, "\n"); !strings.Contains(all, want.text) {
					t.Errorf("no finding says %q:\n%s", want.text, all)
				}
			})
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
			ontime.Judge(t, func(t *ontime.Trial) {
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
		})
	}
}

// findings sends some requests and returns which rules of the analyzer found
// something, and what they say. The times of modes and faults are what they are;
// the room for a busy machine comes from fewer requests at once.
func findings(t *ontime.Trial, args ...string) (rules, texts []string) {
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	clients := strconv.Itoa(max(1, 8/int(t.Scale)))
	code, out, errs := command(t.T, append(args, "-requests", "20", "-rate", "0", "-concurrency", clients, "-out", file)...)
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
		code, _, errs := command(t, "-requests", "4", "-rate", "0", "-budget", "8s", "-endpoint", endpoint)
		if code != 0 || spans != 4*16 {
			t.Errorf("%s: exit code %d, %d spans, %s; want 64 spans", endpoint, code, spans, errs)
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
		"nobody":               {"-fault", "slow=nobody"},
		"does not speak HTTP":  {"-fault", "proxy=risk"},
		"a duration over 0":    {"-fault", "slow=risk:fast"},
		"has no value":         {"-fault", "fail=risk:3"},
		"leave out the share":  {"-fault", "stall=risk@0.5"},
		"-port":                {"-port", "65536"},
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
	if code, _, _ := command(t, "-h"); code != 0 {
		t.Errorf("-h: exit code %d, want 0", code)
	}
}

func TestReasonsAreLogged(t *testing.T) {
	_, out, errs := command(t, "-requests", "20", "-budget", "40ms", "-spread", "0", "-v")
	line := regexp.MustCompile(`"service":"[a-z]+","reason":"deadline_exceeded","stage":"handler","dependency":"",` +
		`"remaining_ms":-?\d+,"budget_ms":\d+,"elapsed_ms":\d+`)
	if !strings.Contains(out, "20 x 504") || !line.MatchString(errs) {
		t.Errorf("output %s\nlog %s", out, errs)
	}
}

// asCommand makes the test binary be the command, so that it can get signals.
const asCommand = "ORDERS_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// Serving has no end of its own, so a signal is none before its time; a load has.
func TestASignalEndsTheCommandInOrder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot send these signals")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		for requests, want := range map[string]int{"0": 0, "100000": 1} {
			t.Run(sig.String()+" with -requests "+requests, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "spans.jsonl")
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-requests", requests, "-spread", "0.9", "-out", file)
				cmd.Env = append(os.Environ(), asCommand+"=1")
				var errs strings.Builder
				cmd.Stderr = &errs
				stdout, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				out := bufio.NewReader(stdout)
				line, err := out.ReadString('\n')
				fields := strings.Fields(line)
				if err != nil || len(fields) < 2 {
					t.Fatalf("%q, %v", line, err)
				}
				resp, err := http.Post(strings.TrimSuffix(fields[1], ","), "application/json", strings.NewReader(`{"order": 1}`))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				rest, _ := io.ReadAll(out)
				err = cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); code != want {
					t.Errorf("exit code %d, want %d: %v, %s", code, want, err, errs.String())
				}
				if want != 0 && (!strings.Contains(errs.String(), "of 100000 requests") || !strings.Contains(string(rest), "answers ")) {
					t.Errorf("output %serrors %s; want what was found until then", rest, errs.String())
				}
				if spans, _ := os.ReadFile(file); !bytes.Contains(spans, []byte(`"gateway"`)) {
					t.Errorf("the spans are not in the file: %d bytes", len(spans))
				}
			})
		}
	}
}

func TestAnExportThatFailsIsAFailure(t *testing.T) {
	overHTTP := httptest.NewServer(http.NotFoundHandler())
	defer overHTTP.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	overGRPC := grpc.NewServer() // without the service
	go func() { _ = overGRPC.Serve(listener) }()
	defer overGRPC.Stop()
	closed := httptest.NewServer(nil)
	closed.Close() // nobody is there
	tests := map[string][]string{
		"refused over HTTP": {"-endpoint", overHTTP.URL},
		"refused over gRPC": {"-endpoint", "grpc://" + listener.Addr().String()},
		"nobody over HTTP":  {"-endpoint", closed.URL},
		"nobody over gRPC":  {"-endpoint", "grpc://" + closed.Listener.Addr().String()},
		"no directory":      {"-out", filepath.Join(t.TempDir(), "missing", "spans.jsonl")},
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		tests["a full disk"] = []string{"-out", "/dev/full"}
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			code, _, errs := command(t, append(args, "-requests", "2", "-rate", "0", "-budget", "8s")...)
			if code != 1 || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "orders: ") {
				t.Errorf("exit code %d, %q; want 1 and one line", code, errs)
			}
			if name != "no directory" && !strings.Contains(errs, "export failed, 32 spans are lost") {
				t.Errorf("%q; want the 32 spans that are lost", errs)
			}
		})
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
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The set-up in the README of package propagation is a program that compiles.
func TestTheSetUpOfPropagationCompiles(t *testing.T) {
	text, err := os.ReadFile("../../propagation/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```go\n")
	program, _, ok := strings.Cut(program, "```")
	if !ok {
		t.Fatal("there is no Go in it")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The commands of the README are run, with few requests.
func TestTheReadmeHoldsCommandsThatWork(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	run := 0
	for line := range strings.Lines(readme(t)) {
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
