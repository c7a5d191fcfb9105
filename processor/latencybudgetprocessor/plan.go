package latencybudgetprocessor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/latencybudget/latencybudget/analyzer/plan"
)

// pollInterval is how often a plan file is looked at. It is small, and files that
// are mounted into containers are replaced in ways that notifications miss.
const pollInterval = 5 * time.Second

// planFile is a plan that is read again when its file changes. A nil planFile has
// no plan.
type planFile struct {
	name   string
	logger *zap.Logger
	failed func() // called once for each state of the file that cannot be used

	index atomic.Pointer[plan.Index]
	text  []byte // that index was made from
	bad   []byte // the last text that is no plan, nil for none
	wrong error  // with it
	fault string // why the file cannot be used now, "" where it can
	stop  context.CancelFunc
	ended chan struct{} // closed when the watch has ended
}

// start reads the plan, and watches the file until close.
func (f *planFile) start() error {
	if f == nil {
		return nil
	}
	if err := f.read(); err != nil {
		return fmt.Errorf("latency_budget: budgets_file: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.ended = make(chan struct{})
	go func() {
		defer close(f.ended)
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				f.poll()
			}
		}
	}()
	return nil
}

// close ends the watch. It waits for the end no longer than ctx: a file system may hang.
func (f *planFile) close(ctx context.Context) error {
	if f == nil || f.stop == nil {
		return nil
	}
	f.stop()
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("latency_budget: budgets_file: %s is still being read: %w", f.name, ctx.Err())
	}
}

// current is the plan in force, or nil.
func (f *planFile) current() *plan.Index {
	if f == nil {
		return nil
	}
	return f.index.Load()
}

// poll takes over a changed file. One that cannot be used leaves the plan before
// it in force; that is said once, until the file changes again.
func (f *planFile) poll() {
	before := f.current()
	err := f.read()
	switch now := f.current(); {
	case err == nil:
		f.fault = ""
		if now != before {
			f.logger.Info("budgets_file was read again", zap.String("revision", now.Revision()))
		}
	case err.Error() != f.fault:
		f.fault = err.Error()
		f.failed()
		f.logger.Warn("budgets_file cannot be used, the plan before it stays in force",
			zap.String("revision", now.Revision()), zap.Error(err))
	}
}

// read reads the file, and takes over the plan in it if its text has changed.
func (f *planFile) read() error {
	info, err := os.Stat(f.name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() { // a pipe would block until somebody writes, and can be read once
		return fmt.Errorf("%s: want a regular file", f.name)
	}
	file, err := os.Open(f.name)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(file, plan.MaxBytes+1)) // what is larger is no plan, and may have no end
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	switch {
	case f.text != nil && bytes.Equal(text, f.text):
		return nil
	case f.bad != nil && bytes.Equal(text, f.bad):
		return f.wrong
	}
	p, err := plan.Read(f.name, bytes.NewReader(text))
	if err != nil {
		f.bad, f.wrong = text, err
		return err
	}
	f.text, f.bad, f.wrong = text, nil, nil
	f.index.Store(plan.NewIndex(p))
	return nil
}
