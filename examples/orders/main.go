// Command orders is a small order system to try out budgets and deadlines with:
// eight services in one process, each on its own port of the loopback interface,
// that call each other over HTTP and gRPC. It has modes in which the services
// treat deadlines wrongly, faults, and a load generator. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// closeTimeout bounds how long a system may take to stop.
const closeTimeout = 10 * time.Second

// run runs the command with its arguments and returns its exit code: 0, 1 if
// something failed or ctx ended before the load was sent, 2 for wrong arguments.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg := Config{Nodes: Orders}
	var load Load
	var mode, wire, scenario, out, endpoint string
	var verbose bool
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&scenario, "scenario", "",
		"avalanche compares fixed timeouts with a propagated deadline, with settings of its own; "+
			"avalanche-fixed and avalanche-propagated are its halves")
	flags.StringVar(&mode, "mode", string(Propagated),
		"how services treat deadlines: propagated, fresh, dropped, ratio, background, header or ctx3s")
	flags.StringVar(&wire, "deadline", "relative",
		"what HTTP requests carry: relative ("+BudgetHeader+") or absolute ("+DeadlineHeader+")")
	flags.Func("fault", "`KIND=SERVICE[:VALUE][@SHARE]`, more than once for several", func(text string) error {
		fault, err := ParseFault(text)
		cfg.Faults = append(cfg.Faults, fault)
		return err
	})
	flags.IntVar(&cfg.Port, "port", 0, "port of the gateway on the loopback interface; 0 takes a free one")
	flags.DurationVar(&load.Budget, "budget", 800*time.Millisecond,
		"what every request announces to have; 0 announces nothing")
	flags.DurationVar(&cfg.Fresh, "fresh", 3*time.Second,
		"timeout of the modes that make new ones, and of requests that announce none")
	flags.DurationVar(&cfg.Max, "max", 10*time.Second, "what a request gets at most")
	flags.DurationVar(&cfg.Reserve, "reserve", 0, "time the gateway keeps for its own answer")
	flags.DurationVar(&cfg.Minimum, "minimum", 0, "least time left with which the gateway begins anything")
	flags.IntVar(&cfg.Workers, "workers", 16, "workers of each service")
	flags.Float64Var(&cfg.Spread, "spread", 0.5,
		"how much shorter than its longest a service's own time may be, 0 to 1")
	flags.DurationVar(&cfg.Skew, "skew", 0, "how far the clocks of callers and callees are apart")
	flags.DurationVar(&cfg.Tolerance, "tolerance", 5*time.Millisecond,
		"how much later than the inherited deadline another may be without a flag")
	flags.BoolVar(&cfg.Inside, "inside", false, "put the deadline middleware inside the tracing middleware")
	flags.IntVar(&load.Requests, "requests", 200, "requests to send; 0 serves until interrupted")
	flags.Float64Var(&load.Rate, "rate", 50,
		"requests a second; 0 sends as fast as -concurrency clients get answers")
	flags.IntVar(&load.Concurrency, "concurrency", 8, "clients, with -rate 0")
	flags.Uint64Var(&cfg.Seed, "seed", 1, "of all that is random: same seed, same requests, same faults")
	flags.StringVar(&out, "out", "", "file for the spans, as OTLP JSON lines; avalanche adds -fixed and -propagated to its name")
	flags.StringVar(&endpoint, "endpoint", "",
		"OTLP endpoint for the spans: http://HOST:PORT or grpc://HOST:PORT")
	flags.BoolVar(&verbose, "v", false, "log to stderr why requests run out of time")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	load.Seed = cfg.Seed
	usage := func(format string, args ...any) int {
		_, _ = fmt.Fprintf(stderr, "orders: "+format+"\n", args...)
		return 2
	}
	var err error
	if cfg.Mode, err = parseMode(mode); err != nil {
		return usage("%v", err)
	}
	if err = checkFaults(cfg.Nodes, cfg.Faults); err != nil {
		return usage("%v", err)
	}
	switch {
	case flags.NArg() > 0:
		return usage("unexpected argument %q", flags.Arg(0))
	case wire == "absolute":
		cfg.Wire = Absolute
	case wire != "relative":
		return usage("-deadline is relative or absolute, not %q", wire)
	case scenario != "" && scenarios[scenario] == nil:
		return usage("unknown scenario %q; there are %s", scenario, strings.Join(slices.Sorted(maps.Keys(scenarios)), ", "))
	case out != "" && endpoint != "":
		return usage("give -out or -endpoint, not both")
	case cfg.Workers < 1 || load.Concurrency < 1 || load.Requests < 0 || !(load.Rate >= 0) || !(cfg.Spread >= 0 && cfg.Spread <= 1):
		return usage("-workers and -concurrency are at least 1, -requests and -rate at least 0, -spread is 0 to 1")
	case cfg.Fresh <= 0 || cfg.Max <= 0 || load.Budget < 0 || cfg.Reserve < 0 || cfg.Minimum < 0 || cfg.Skew < 0 || cfg.Tolerance < 0:
		return usage("durations cannot be negative, and -fresh and -max must be over 0")
	case cfg.Port < 0 || cfg.Port > 65535:
		return usage("-port is 0 to 65535")
	}
	cfg.Log = slog.New(slog.DiscardHandler)
	if verbose {
		cfg.Log = slog.New(slog.NewJSONHandler(stderr, nil))
	}
	if endpoint != "" {
		if cfg.Export, err = toEndpoint(endpoint); err != nil {
			return usage("%v", err)
		}
	}
	switch {
	case scenario != "":
		err = avalanche(ctx, cfg, scenarios[scenario], avalancheRequests, out, stdout)
	case out != "":
		err = toFile(out, func(export newClient) error {
			cfg.Export = export
			return drive(ctx, cfg, load, stdout)
		})
	default:
		err = drive(ctx, cfg, load, stdout)
	}
	if err != nil {
		// Joined errors are lines of their own.
		_, _ = fmt.Fprintf(stderr, "orders: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

// drive starts the services, sends the load and reports.
func drive(ctx context.Context, cfg Config, load Load, stdout io.Writer) error {
	s, err := Start(ctx, cfg)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "gateway   http://%s/order, mode %s\n", s.services[0].address, cfg.Mode)
	if err != nil {
		return errors.Join(err, s.close())
	}
	if load.Requests == 0 {
		<-ctx.Done()
		return s.close()
	}
	outcomes, err := load.Run(ctx, s)
	err = errors.Join(err, s.close())
	_, writeErr := io.WriteString(stdout, Summarise(outcomes).text(s.Stats()))
	return errors.Join(err, writeErr)
}

// close stops the system in bounded time, also after an interrupt.
func (s *System) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.Close(ctx)
}
