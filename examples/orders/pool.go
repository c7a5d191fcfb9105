package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// pool is the bounded worker pool of a service. A request waits for a worker
// until its deadline, and the worker is busy until the request is done, however
// long that is.
type pool struct {
	workers chan struct{} // holds a token for every busy worker

	mu      sync.Mutex
	waiting int
	highest int // most requests inside at once, waiting or served
	own     window
	queued  window
}

// window holds the last windowSize of any number of durations.
type window struct {
	values []time.Duration
	n      int
}

const windowSize = 10_000

func (w *window) add(d time.Duration) {
	if len(w.values) < windowSize {
		w.values = append(w.values, d)
	} else {
		w.values[w.n%windowSize] = d
	}
	w.n++
}

func newPool(workers int) *pool {
	return &pool{workers: make(chan struct{}, workers)}
}

// queuedKey is the key of when a request came into the queue of fault Queue.
type queuedKey struct{}

// acquire waits for a worker. The caller must call release when it gets one.
func (p *pool) acquire(ctx context.Context) (release func(), err error) {
	start, ok := ctx.Value(queuedKey{}).(time.Time)
	if !ok {
		start = time.Now()
	}
	p.mu.Lock()
	p.waiting++
	p.highest = max(p.highest, p.waiting+len(p.workers))
	p.mu.Unlock()
	select {
	case p.workers <- struct{}{}:
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	p.waiting--
	p.queued.add(time.Since(start))
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return func() { <-p.workers }, nil
}

// worked notes the own time of a request: without queue and calls.
func (p *pool) worked(d time.Duration) {
	p.mu.Lock()
	p.own.add(d)
	p.mu.Unlock()
}

// idle tells whether nobody works or waits.
func (p *pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting == 0 && len(p.workers) == 0
}

// PoolStats is what a pool has seen.
type PoolStats struct {
	Service  string
	Served   int           // requests that got a worker
	OwnP50   time.Duration // of their own time
	QueueP99 time.Duration // of the wait for a worker, with that of fault Queue
	Highest  int           // most requests inside at once
}

func (p *pool) stats(service string) PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{
		Service:  service,
		Served:   p.own.n,
		OwnP50:   percentile(p.own.values, 50),
		QueueP99: percentile(p.queued.values, 99),
		Highest:  p.highest,
	}
}

// percentile returns the smallest value that p percent of all do not exceed; 0
// if there are none.
func percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
