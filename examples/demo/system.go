package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Times of the system. Everything is faster than in production, so that a phase
// shows soon after it has ended.
const (
	// collect is how long the Collector waits for the spans of one trace: longer
	// than the longest request, and than spans lie in the services.
	collect       = 5 * time.Second
	scrape        = time.Second
	settleTimeout = 2 * time.Minute
	startTimeout  = 30 * time.Second
	stopTimeout   = 10 * time.Second
)

//go:generate go run ../../dashboards/planrules -o plan-rules.yaml budgets.yaml

// System is the Collector and Prometheus, as processes of their own.
type System struct {
	Collector, Prometheus, Orders, Budgetctl string // programs
	Config                                   string // folder of collector.yaml and alerts.yaml
	Histograms                               string // native or classic
	Plan                                     string // plan file; beside it lies plan-rules.yaml

	// After Start:
	OTLP string // host:port of the Collector, OTLP over HTTP
	GRPC string // the same over gRPC
	Web  string // host:port of Prometheus

	dir       string // of everything that is written, removed by Stop
	spans     *os.File
	processes []*process
}

// process is one that was started.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *bytes.Buffer // what it wrote, complete once done is closed
	done chan struct{}
}

// Phase is a load of the order chain.
type Phase struct {
	Name string
	Args []string // of orders
}

// Seen is what a phase has shown.
type Seen struct {
	Phase      Phase
	Start, End time.Time // End: its metrics are in Prometheus
	Spans      string    // file with its spans, as the Collector wrote them
	Report     string    // of orders
	Rules      []RuleCount
}

// Start starts the Collector and Prometheus and waits until they answer.
func (s *System) Start(ctx context.Context) (err error) {
	for _, p := range []struct{ program, from string }{
		{s.Collector, "make collector builds it"},
		{s.Prometheus, "Debian has it in the package prometheus"},
		{s.Orders, "make demo builds it"},
		{s.Budgetctl, "make build builds it"},
	} {
		if _, err := exec.LookPath(p.program); err != nil {
			return fmt.Errorf("%w; %s", err, p.from)
		}
	}
	if s.dir, err = os.MkdirTemp("", "latencybudget-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	local := func(i int) string { return net.JoinHostPort("127.0.0.1", ports[i]) }
	s.GRPC, s.OTLP, s.Web = local(0), local(1), local(3)
	name := filepath.Join(s.dir, "traces.jsonl")
	if err := s.start(ctx, "the Collector", s.Collector, []string{
		"LATENCY_BUDGET_GRPC_PORT=" + ports[0],
		"LATENCY_BUDGET_HTTP_PORT=" + ports[1],
		"LATENCY_BUDGET_METRICS_PORT=" + ports[2],
		"LATENCY_BUDGET_HISTOGRAMS=" + s.Histograms,
		"LATENCY_BUDGET_FILE=" + name,
		"LATENCY_BUDGET_WAIT=" + collect.String(),
		"LATENCY_BUDGET_FLUSH=" + scrape.String(),
		"LATENCY_BUDGET_PLAN=" + s.Plan,
	}, "--config", filepath.Join(s.Config, "collector.yaml")); err != nil {
		return err
	}
	config, err := s.prometheusConfig(local(2))
	if err != nil {
		return err
	}
	if err := s.start(ctx, "Prometheus", s.Prometheus, nil,
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(s.dir, "data"),
		"--web.listen-address="+s.Web, "--enable-feature=native-histograms,exemplar-storage",
		"--log.level=warn"); err != nil {
		return err
	}
	if err := s.until(ctx, "http://"+s.Web+"/-/ready"); err != nil {
		return err
	}
	if err := s.until(ctx, "http://"+local(2)+"/metrics"); err != nil {
		return err
	}
	s.spans, err = os.Open(name)
	return err
}

// prometheusConfig writes the configuration of Prometheus.
func (s *System) prometheusConfig(target string) (string, error) {
	var rules bytes.Buffer
	for _, file := range []string{
		filepath.Join(s.Config, "alerts.yaml"), filepath.Join(filepath.Dir(s.Plan), "plan-rules.yaml"),
	} {
		path, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&rules, "  - %q\n", path)
	}
	text := fmt.Sprintf("global:\n  scrape_interval: %[1]v\n  evaluation_interval: %[1]v\nrule_files:\n%[2]sscrape_configs:\n"+
		"  - job_name: collector\n    static_configs:\n      - targets: [%[3]q]\n", scrape, &rules, target)
	name := filepath.Join(s.dir, "prometheus.yml")
	return name, os.WriteFile(name, []byte(text), 0o600)
}

// start starts a process that lives until Stop.
func (s *System) start(ctx context.Context, name, program string, env []string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := &process{name: name, cmd: exec.Command(program, args...), log: new(bytes.Buffer), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("%s cannot be started: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState tells how it went
		close(p.done)
	}()
	s.processes = append(s.processes, p)
	return nil
}

// until waits for an answer of a server, and gives up when a process has ended.
func (s *System) until(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := s.dead(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nobody answers at %s: %w", url, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// dead returns an error with the last line of a process that has ended by itself.
func (s *System) dead() error {
	for _, p := range s.processes {
		select {
		case <-p.done:
			log := bytes.TrimSpace(p.log.Bytes())
			last := log[bytes.LastIndexByte(log, '\n')+1:]
			return fmt.Errorf("%s has ended (%s): %s", p.name, p.cmd.ProcessState, cmp.Or(string(last), "it said nothing"))
		default:
		}
	}
	return nil
}

// Stop ends what Start started, in reverse order, and removes what it wrote. It
// may be called more than once.
func (s *System) Stop() error {
	var errs []error
	for len(s.processes) > 0 {
		p := s.processes[len(s.processes)-1]
		s.processes = s.processes[:len(s.processes)-1]
		// An interrupt of the terminal has reached the process already.
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(stopTimeout):
			errs = append(errs, fmt.Errorf("%s did not stop within %v and was killed", p.name, stopTimeout), p.cmd.Process.Kill())
			<-p.done
		}
	}
	if s.spans != nil {
		errs = append(errs, s.spans.Close())
		s.spans = nil
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
		s.dir = ""
	}
	return errors.Join(errs...)
}

// Run drives one phase, waits until all of it has arrived, and writes its spans
// into a file.
func (s *System) Run(ctx context.Context, p Phase, spans string) (Seen, error) {
	seen := Seen{Phase: p, Start: time.Now(), Spans: spans}
	before, err := s.total(ctx)
	if err != nil {
		return seen, err
	}
	cmd := exec.CommandContext(ctx, s.Orders, append([]string{"-endpoint", "http://" + s.OTLP}, p.Args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeout
	// Services that keep spans for 5 s would be in the way of short phases.
	cmd.Env = append(os.Environ(), "OTEL_BSP_SCHEDULE_DELAY=200")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return seen, fmt.Errorf("orders: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	seen.Report = string(out)
	if err := s.settle(ctx, before); err != nil {
		return seen, err
	}
	seen.End = time.Now()
	// The file grows by whole lines, and everything of the phase is in it by now.
	to, err := os.Create(spans)
	if err != nil {
		return seen, err
	}
	_, err = io.Copy(to, s.spans)
	if err := errors.Join(err, to.Close()); err != nil {
		return seen, err
	}
	seen.Rules, err = s.analyze(ctx, spans)
	return seen, err
}

// freePorts returns n ports of the loopback interface that nobody listens on.
func freePorts(n int) ([]string, error) {
	ports := make([]string, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all are held until all are known, so no two are the same
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
	}
	return ports, nil
}
