// Command demo shows the whole system at work, on loopback alone: it starts the
// Collector and Prometheus, drives the order chain of examples/orders through a
// healthy phase and through an avalanche with fixed timeouts and with a propagated
// deadline, analyzes what the Collector wrote, and prints what was seen. It stops
// everything that it started, also when it is interrupted.
//
//	make demo
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command and returns its exit code: 0, 1 if something failed or
// ctx ended before it was done, 2 for wrong arguments.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var s System
	var out string
	var hold bool
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.Collector, "collector", "bin/otelcol-latencybudget", "the Collector: make collector builds it")
	flags.StringVar(&s.Prometheus, "prometheus", "prometheus", "Prometheus, of version 2.40 or later")
	flags.StringVar(&s.Orders, "orders", "bin/orders", "the order chain")
	flags.StringVar(&s.Budgetctl, "budgetctl", "bin/budgetctl", "budgetctl")
	flags.StringVar(&s.Config, "dashboards", "dashboards", "the folder of collector.yaml and alerts.yaml")
	flags.StringVar(&s.Plan, "plan", "examples/demo/budgets.yaml", "plan file; plan-rules.yaml is beside it")
	flags.StringVar(&s.Histograms, "histograms", "native", "native or classic")
	flags.StringVar(&out, "out", "", "keep the spans of each phase in this folder, as OTLP JSON lines")
	flags.BoolVar(&hold, "hold", false, "keep the Collector and Prometheus until interrupted, to look at the dashboards")
	flags.Usage = func() {
		_, _ = fmt.Fprint(stderr, "demo runs the order chain, the Collector and Prometheus and shows what they see.\n\n"+
			"  make demo\n  bin/demo -hold -out /tmp/spans\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	switch {
	case flags.NArg() > 0:
		_, _ = fmt.Fprintf(stderr, "demo: unexpected argument %q\n", flags.Arg(0))
		return 2
	case s.Histograms != "native" && s.Histograms != "classic":
		_, _ = fmt.Fprintf(stderr, "demo: -histograms is native or classic, not %q\n", s.Histograms)
		return 2
	}
	err := demo(ctx, &s, out, hold, stdout)
	switch {
	case err != nil && ctx.Err() != nil:
		_, _ = fmt.Fprintln(stderr, "demo: interrupted")
		return 1
	case err != nil:
		_, _ = fmt.Fprintf(stderr, "demo: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// phases are what the demo shows, in this order.
var phases = []Phase{
	{Name: "healthy", Args: []string{"-requests", "300", "-rate", "50"}},
	{Name: "fixed 3 s", Args: []string{"-scenario", "avalanche-fixed"}},
	{Name: "800 ms, propagated", Args: []string{"-scenario", "avalanche-propagated"}},
}

// demo starts everything, shows the phases and stops everything.
func demo(ctx context.Context, s *System, out string, hold bool, stdout io.Writer) (err error) {
	if out == "" {
		if out, err = os.MkdirTemp("", "latencybudget-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	} else if err = os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format, args...) }
	say("Collector at http://%s, Prometheus at http://%s\n", s.OTLP, s.Web)
	var seen []Seen
	for i, p := range phases {
		say("%d of %d  %s: orders %s\n", i+1, len(phases), p.Name, strings.Join(p.Args, " "))
		spans := filepath.Join(out, fmt.Sprintf("%d-%s.jsonl", i+1, fileName(p.Name)))
		one, err := s.Run(ctx, p, spans)
		if err != nil {
			return fmt.Errorf("phase %s: %w", p.Name, err)
		}
		seen = append(seen, one)
	}
	say("\n%s", table(seen))
	say("\nThe services are as fast in both avalanches. What differs is who waits how long for an answer that is too late.\n")
	if !hold {
		say("Where to look: docs/findings.md explains each rule. bin/demo -out DIR keeps the spans, for budgetctl analyze, which names\n" +
			"the hops. bin/demo -hold keeps Prometheus running, for the dashboards in dashboards/, which name them too.\n")
		return nil
	}
	say("Give Grafana http://%s as a data source and import dashboards/overview.json and dashboards/hop.json.\n"+
		"Alerts: http://%s/alerts. Spans: %s. Ctrl-C ends it.\n", s.Web, s.Web, out)
	<-ctx.Done()
	return nil
}

// fileName makes a name of words without blanks.
func fileName(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == ',' }), "-")
}
