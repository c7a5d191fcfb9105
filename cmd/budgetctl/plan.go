package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/budget"
	"github.com/latencybudget/latencybudget/analyzer/plan"
)

// readPlan reads a plan file.
func readPlan(name string) (*plan.Plan, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	p, err := plan.Read(name, f)
	return p, errors.Join(err, f.Close())
}

// planFlags are those of analyze that are about plan files.
type planFlags struct {
	from, to, revision string
}

// parse reads the plan to start from.
func (f *planFlags) parse(c *analyzer.Config) error {
	if f.revision != "" && f.to == "" {
		return usageError{errors.New("--revision names the plan that --write-plan writes: give both")}
	}
	if f.to != "" && c.Strategy == (budget.CriticalPath{}).Name() {
		return usageError{errors.New("--write-plan: the shares of critpath are to look at, and no recommendation: plan with another --strategy")}
	}
	if f.from == "" {
		return nil
	}
	var err error
	c.Plan, err = readPlan(f.from)
	return err
}

// write writes the plan of a report. A file that is there already may hold what
// people set by hand: it is overwritten only if the plan started from it.
func (f *planFlags) write(rep *analyzer.Report, stderr io.Writer) error {
	if f.to == "" {
		return nil
	}
	if rep.Plan == nil {
		return fmt.Errorf("--write-plan: of no endpoint is there a plan (see BUDGET in the table, and its warnings), so %s is not written", f.to)
	}
	for i := range rep.Endpoints {
		e := &rep.Endpoints[i]
		at := slices.IndexFunc(rep.Plan.Endpoints, func(p plan.Endpoint) bool { return p.Service == e.Service && p.Operation == e.Operation })
		switch {
		case !e.Feasible && at < 0:
			complain(stderr, fmt.Errorf("note: %s %s is not in %s: no plan obeys its budget", e.Service, e.Operation, f.to))
		case !e.Feasible:
			complain(stderr, fmt.Errorf("note: %s %s stays in %s as it was: no plan obeys its budget", e.Service, e.Operation, f.to))
		case at < 0:
			complain(stderr, fmt.Errorf("note: %s %s is not in %s: more than %d of its hops stand below each other",
				e.Service, e.Operation, f.to, plan.MaxDepth))
		case !rep.Plan.Gate.DeadlineMiss.Off && e.DeadlineMissRatio > float64(rep.Plan.Gate.DeadlineMiss.Ratio):
			complain(stderr, fmt.Errorf("note: %.3g %% of the requests of %s %s miss its budget of %v, and the gate allows %v: "+
				"check may fail until one of them is raised", 100*e.DeadlineMissRatio, e.Service, e.Operation,
				plan.Duration(e.Budget), rep.Plan.Gate.DeadlineMiss.Ratio))
		}
	}
	p := *rep.Plan
	if f.revision != "" {
		p.Revision = f.revision
	}
	var b bytes.Buffer
	if err := plan.Write(&b, &p); err != nil {
		return fmt.Errorf("--write-plan: %w", err)
	}
	old, err := os.ReadFile(f.to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !bytes.Equal(old, b.Bytes()) && !sameFile(f.from, f.to):
		return fmt.Errorf("%s is there already, and people may have edited it: start from it with --plan %[1]s, or write another file", f.to)
	}
	return replace(f.to, b.Bytes())
}

func sameFile(a, b string) bool {
	if a == "" {
		return false
	}
	x, err := os.Stat(a)
	if err != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
