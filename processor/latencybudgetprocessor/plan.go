package latencybudgetprocessor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
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

	index  atomic.Pointer[plan.Index]
	text   []byte // that index was made from
	fault  string // why the file cannot be used now, "" where it can
	stop   context.CancelFunc
	polled sync.WaitGroup
}

// start reads the plan, and watches the file until close.
func (f *planFile) start() error {
	if f == nil {
		return nil
	}
	text, index, err := f.read()
	if err != nil {
		return fmt.Errorf("latency_budget: budgets_file: %w", err)
	}
	f.text = text
	f.index.Store(index)
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.polled.Go(func() {
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
	})
	return nil
}

// close ends the watch.
func (f *planFile) close() {
	if f == nil || f.stop == nil {
		return
	}
	f.stop()
	f.polled.Wait()
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
	text, index, err := f.read()
	switch {
	case err != nil && err.Error() != f.fault:
		f.fault = err.Error()
		f.failed()
		f.logger.Warn("budgets_file cannot be used, the plan before it stays in force",
			zap.String("revision", f.index.Load().Revision()), zap.Error(err))
	case err == nil:
		f.fault = ""
		if !bytes.Equal(text, f.text) {
			f.text = text
			f.index.Store(index)
			f.logger.Info("budgets_file was read again", zap.String("revision", index.Revision()))
		}
	}
}

func (f *planFile) read() ([]byte, *plan.Index, error) {
	text, err := os.ReadFile(f.name)
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Read(f.name, bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	return text, plan.NewIndex(p), nil
}
