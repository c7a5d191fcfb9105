// Command planrules writes the numbers of a plan file as Prometheus recording
// rules, so that dashboards can draw them beside what was measured:
//
//	planrules -o plan-rules.yaml budgets.yaml
//
// It records latency_budget:plan_share:seconds and latency_budget:plan_cap:seconds,
// with the labels that the Collector gives to the hop. A hop that stands at several
// places of the plan has the looser numbers, as for the processor. Run it again when
// the plan has changed.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/plan"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command and returns its exit code: 0, 1 if a file cannot be used,
// 2 for wrong arguments.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("planrules", flag.ContinueOnError)
	flags.SetOutput(stderr)
	out := flags.String("o", "", "file to write; standard output without it")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "planrules [-o plan-rules.yaml] budgets.yaml\n\nwrites a plan as recording rules of Prometheus.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return 2
	}
	text, err := convert(flags.Arg(0))
	if err == nil {
		if *out == "" {
			_, err = stdout.Write(text)
		} else {
			err = os.WriteFile(*out, text, 0o644)
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "planrules:", err)
		return 1
	}
	return 0
}

// convert reads a plan file and returns its rules.
func convert(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	p, err := plan.Read(name, f)
	if err != nil {
		return nil, err
	}
	return rules(p), nil
}

// hop is how the Collector names a hop. An entry has no caller.
type hop struct{ caller, callee, operation string }

// rules returns the recording rules of a plan, in its order.
func rules(p *plan.Plan) []byte {
	var b bytes.Buffer
	b.WriteString("# Made from a plan file by dashboards/planrules; change the plan.\n" +
		"groups:\n  - name: latency-budget-plan\n    rules:\n")
	index := plan.NewIndex(p)
	written := map[hop]bool{}
	add := func(h hop) {
		limits, known := index.Find(h.caller, h.callee, h.operation)
		if !known || written[h] {
			return
		}
		written[h] = true
		for _, r := range []struct {
			name string
			ns   int64
		}{{"share", limits.Budget}, {"cap", limits.Cap}} {
			if r.ns <= 0 {
				continue // no limit
			}
			fmt.Fprintf(&b, "      - record: latency_budget:plan_%s:seconds\n        expr: vector(%s)\n        labels:\n",
				r.name, strconv.FormatFloat(time.Duration(r.ns).Seconds(), 'g', -1, 64))
			for _, label := range [][2]string{
				{"caller", h.caller}, {"callee", h.callee}, {"operation", h.operation}, {"plan_revision", p.Revision},
			} {
				if label[1] != "" {
					fmt.Fprintf(&b, "          latency_budget_%s: %s\n", label[0], strconv.Quote(label[1]))
				}
			}
		}
	}
	var below func(caller string, hops []plan.Hop)
	below = func(caller string, hops []plan.Hop) {
		for i := range hops {
			h := &hops[i]
			if !h.Stage { // stages are no calls: the Collector does not name them
				add(hop{caller, h.Callee, h.Operation})
			}
			below(h.Callee, h.Hops)
		}
	}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		add(hop{"", e.Service, e.Operation})
		below(e.Service, e.Hops)
	}
	return b.Bytes()
}
