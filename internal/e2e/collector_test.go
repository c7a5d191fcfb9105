// Package e2e runs the parts together, each as the program that users run:
//
//	examples/orders ──OTLP──> otelcol-latencybudget ──file──> budgetctl analyze
//
// It has tests alone. They need a Collector with the latency_budget processor,
// which takes minutes to build; `make e2e` builds it and runs them.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The environment variables that name the Collectors. Who sets one means to test
// it: a program that is not there is then a failure.
const (
	envCollector = "LATENCYBUDGET_COLLECTOR"
	envFirstTier = "LATENCYBUDGET_FIRST_TIER"
)

// orders and budgetctl are the programs, as built from this checkout.
var orders, budgetctl string

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runTests builds the programs if there is anything to run them with.
func runTests(m *testing.M) (code int, err error) {
	if os.Getenv(envCollector) == "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "latencybudget-e2e")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-o", dir, "../../examples/orders", "../../cmd/budgetctl")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("%v: %w\n%s", build, err, out)
	}
	orders, budgetctl = filepath.Join(dir, "orders"), filepath.Join(dir, "budgetctl")
	return m.Run(), nil
}

// program returns the path in an environment variable, and skips the test where
// it has none.
func program(t *testing.T, env string) string {
	t.Helper()
	path := os.Getenv(env)
	if path == "" {
		t.Skipf("%s names no Collector: `make e2e` builds one and runs this test", env)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: %v; build it by `make collector first-tier`", env, err)
	}
	return path
}

// config returns the path of a documented configuration.
func config(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "processor", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// patience bounds every wait for something that takes a second or two.
const patience = 60 * time.Second

// collector is a running Collector.
type collector struct {
	dir  string // where it runs, and writes
	grpc string // host:port for OTLP
	http string
	stop func() // ends it; without effect the second time
	log  *bytes.Buffer
}

// start runs a Collector with a documented configuration and what the test has
// to add, which is YAML, until the test ends. It returns when the Collector is
// ready.
func start(t *testing.T, path, configuration, more string, args ...string) *collector {
	t.Helper()
	for range 3 {
		c, err := tryStart(t, path, configuration, more, args)
		if err == nil {
			return c
		}
		// Somebody may have taken a port that was free a moment before.
		if !strings.Contains(err.Error(), "address already in use") {
			t.Fatal(err)
		}
	}
	t.Fatal("every port that was free was in use a moment later")
	return nil
}

func tryStart(t *testing.T, path, configuration, more string, args []string) (*collector, error) {
	t.Helper()
	c := &collector{dir: t.TempDir(), grpc: freePort(t), http: freePort(t), log: new(bytes.Buffer)}
	health := freePort(t)
	ports := fmt.Sprintf(`
extensions: {health_check: {endpoint: "%s"}}
receivers: {otlp: {protocols: {grpc: {endpoint: "%s"}, http: {endpoint: "%s"}}}}
service: {telemetry: {metrics: {level: none}}}
`, health, c.grpc, c.http)
	args = append(slices.Clone(args), "--config", configuration)
	for i, text := range []string{ports, more} { // a later file overrides an earlier one
		file := filepath.Join(c.dir, fmt.Sprintf("test%d.yaml", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--config", file)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, c.log, c.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			if !cmd.ProcessState.Success() {
				t.Errorf("the Collector ended with %v:\n%s", cmd.ProcessState, c.log)
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("the Collector did not end:\n%s", c.log)
		}
		for line := range strings.Lines(c.log.String()) {
			if strings.Contains(line, "\terror\t") {
				t.Errorf("the Collector says %s", line)
			}
		}
	}
	t.Cleanup(c.stop)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			stopped = true
			return nil, fmt.Errorf("the Collector ended at once, %v:\n%s", cmd.ProcessState, c.log)
		case <-ctx.Done():
			return nil, fmt.Errorf("the Collector is not ready after %v", patience)
		case <-tick.C:
		}
		if healthy(ctx, "http://"+health) {
			return c, nil
		}
	}
}

func healthy(ctx context.Context, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// freePort returns an address of the loopback interface that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// place sends orders through the chain and their spans to an OTLP endpoint.
func place(t *testing.T, endpoint string, args ...string) {
	t.Helper()
	cmd := exec.Command(orders, slices.Concat([]string{"-endpoint", endpoint, "-rate", "0"}, args)...)
	// Every service exports once, when it stops: then traces are whole at once.
	cmd.Env = append(os.Environ(), "OTEL_BSP_SCHEDULE_DELAY=600000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// eventually waits until check has nothing to say any more.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
