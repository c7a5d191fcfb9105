package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// The scenario avalanche: more requests than the order chain can serve while
// some of the answers of risk take 900 ms, once with a fixed timeout of 3 s at
// every hop and once with 800 ms that are propagated. Load, faults and workers
// are the same, request by request.
const (
	avalancheFixed    = 3 * time.Second
	avalancheBudget   = 800 * time.Millisecond
	avalancheWorkers  = 4
	avalancheRequests = 160
	avalancheRate     = 25  // requests a second; four workers serve about 9
	avalancheShare    = 0.4 // of the answers of risk are slow
)

// AvalancheRun is one of the two runs.
type AvalancheRun struct {
	Name    string
	Summary Summary
	Pools   []PoolStats
	Drained time.Duration // from the last request on, until no service had work
}

// runAvalanche makes one of the two runs with so many requests.
func runAvalanche(ctx context.Context, cfg Config, mode Mode, requests int) (AvalancheRun, error) {
	cfg.Mode, cfg.Workers = mode, avalancheWorkers
	cfg.Fresh, cfg.Max = avalancheFixed, avalancheFixed
	cfg.Faults = append([]Fault{{
		Kind: Slow, Service: "risk", Value: 900 * time.Millisecond, Share: avalancheShare,
	}}, cfg.Faults...)
	load := Load{Requests: requests, Rate: avalancheRate, Budget: avalancheFixed, Seed: cfg.Seed}
	run := AvalancheRun{Name: "fixed 3 s at every hop"}
	if mode == Propagated {
		run.Name = "800 ms, propagated"
		load.Budget = avalancheBudget
		// What has waited for most of its time is not begun any more, so that
		// the workers do what can still succeed.
		cfg.Minimum = 2 * degradeBelow
	}
	s, err := Start(ctx, cfg)
	if err != nil {
		return run, err
	}
	outcomes, err := load.Run(ctx, s)
	if err == nil {
		err = s.Drain(ctx)
		run.Drained = time.Since(outcomes[len(outcomes)-1].Sent)
	}
	run.Summary, run.Pools = Summarise(outcomes), s.Stats()
	return run, errors.Join(err, s.close())
}

// scenarios are the runs of each scenario, by how services treat deadlines there.
var scenarios = map[string][]Mode{
	"avalanche":            {Fresh, Propagated},
	"avalanche-fixed":      {Fresh},
	"avalanche-propagated": {Propagated},
}

// avalanche makes the runs and reports them. The spans of each go into a file of
// its own, by the name of out.
func avalanche(ctx context.Context, cfg Config, runs []Mode, requests int, out string, stdout io.Writer) error {
	arm := func(mode Mode) func(newClient) error {
		return func(export newClient) error {
			cfg.Export = export
			run, err := runAvalanche(ctx, cfg, mode, requests)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "=== %s\n%sdrained   %s after the last request\n\n",
				run.Name, run.Summary.text(run.Pools), ms(run.Drained))
			return err
		}
	}
	for _, mode := range runs {
		var err error
		if out == "" {
			err = arm(mode)(cfg.Export)
		} else {
			err = toFile(armFile(out, mode), arm(mode))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// armFile is the file for the spans of one of the two runs: a-fixed.jsonl or
// a-propagated.jsonl for a.jsonl.
func armFile(out string, mode Mode) string {
	arm := string(mode)
	if mode == Fresh {
		arm = "fixed"
	}
	ext := filepath.Ext(out)
	return strings.TrimSuffix(out, ext) + "-" + arm + ext
}
