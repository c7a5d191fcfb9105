// Package plan holds the plan file: the budget of every hop of an endpoint, as
// people review it, keep it under version control and hold the system to.
//
// A plan is made from traces by `budgetctl analyze --write-plan`, and edited by
// hand. The Collector processor and `budgetctl check` read it. It is YAML, with
// durations as Go writes them (1.5s, 200ms) and ratios in percent (0.1%).
//
// The package is pure: it reads from an io.Reader and writes to an io.Writer.
package plan

import (
	"strings"
	"time"
)

// Version is the version of the format that this package reads and writes.
const Version = 1

// Plan is a plan file.
type Plan struct {
	Version  int    `yaml:"version"`
	Revision string `yaml:"revision"` // names this state of the plan; any text of one line
	Gate     Gate   `yaml:"gate"`
	// Endpoints have different keys.
	Endpoints []Endpoint `yaml:"endpoints"`
}

// Gate says what `budgetctl check` fails on besides the hops. A ratio is that of
// the requests.
type Gate struct {
	Expansions         RatioLimit    `yaml:"expansions"`            // requests in which a hop made the deadline later, or dropped it
	CallsAfterDeadline RatioLimit    `yaml:"calls_after_deadline"`  // requests with a call after the deadline
	StopAfterCancelP99 DurationLimit `yaml:"stop_after_cancel_p99"` // how long hops work on after their caller gave up or the deadline passed
	DeadlineMiss       RatioLimit    `yaml:"deadline_miss"`         // requests over the budget of their endpoint
}

// RatioLimit is the most a ratio may be, from 0 to 1. In YAML it is a percentage,
// or off.
type RatioLimit struct {
	Ratio Ratio
	Off   bool
}

// DurationLimit is the most a duration may be. In YAML it is a duration, or off.
type DurationLimit struct {
	Duration Duration
	Off      bool
}

// DefaultGate is the gate of a file that says nothing else.
func DefaultGate() Gate {
	return Gate{
		StopAfterCancelP99: DurationLimit{Duration: Duration(100 * time.Millisecond)},
		DeadlineMiss:       RatioLimit{Ratio: 0.001},
	}
}

// Duration is a time in ns; in YAML it is written with its unit.
type Duration time.Duration

// Ratio is a share of a whole, 0 to 1; in YAML it is a percentage.
type Ratio float64

// Endpoint is an entry operation and the split of its budget.
type Endpoint struct {
	Service   string    `yaml:"service"`
	Operation string    `yaml:"operation"`
	Budget    Duration  `yaml:"budget"`            // > 0
	Reserve   Duration  `yaml:"reserve,omitempty"` // kept for the endpoint's own work, never given to hops
	Tail      Duration  `yaml:"tail,omitempty"`    // kept at run time for what comes after the last call
	Evidence  *Evidence `yaml:"evidence,omitempty"`
	Hops      []Hop     `yaml:"hops,omitempty"`
}

// Hop is one hop at its place in the call tree. Siblings have different keys.
type Hop struct {
	Callee    string `yaml:"callee"` // may be empty where spans do not tell it
	Operation string `yaml:"operation"`
	// Stage tells that the hop is a step of its caller's own work, so callee is
	// the caller.
	Stage bool `yaml:"stage,omitempty"`
	// Async tells that nobody waits for the hop: it is in no chain, and so are all
	// hops below it. Its Share is a deadline of its own, or 0 for none.
	Async bool `yaml:"async,omitempty"`

	Share Duration `yaml:"share,omitempty"` // BUDGET: part of the strict partition; 0 only where nobody waits
	Cap   Duration `yaml:"cap,omitempty"`   // TIMEOUT where deadlines are passed on; 0: as Share

	Max Duration `yaml:"max,omitempty"` // most that share and cap may be, set by hand; 0: no limit

	AttemptTimeout Duration `yaml:"attempt_timeout,omitempty"` // of a single attempt; 0: no retries are planned
	MaxAttempts    int      `yaml:"max_attempts,omitempty"`    // most attempts of one call; 1 or 0 for no retry
	Backoff        Duration `yaml:"backoff,omitempty"`         // between attempts

	Floor    Duration `yaml:"floor,omitempty"`     // least with which a call is worth sending
	Reserve  Duration `yaml:"reserve,omitempty"`   // kept for the hop's own work, never given to the hops below
	Tail     Duration `yaml:"tail,omitempty"`      // kept at run time for what comes after the last call
	MaxQueue Duration `yaml:"max_queue,omitempty"` // most between sending and start of work; 0: no limit

	// Degradable tells that the caller may skip the hop or answer by a fallback.
	Degradable bool `yaml:"degradable,omitempty"`

	// After names the siblings, as "callee operation", that end before this hop
	// starts. Siblings without an order may run beside each other.
	After []string `yaml:"after,omitempty,flow"`
	// Exclusive is the same positive number for siblings of which a request calls
	// only one: they share one place in every chain.
	Exclusive int `yaml:"exclusive,omitempty"`

	Evidence *Evidence `yaml:"evidence,omitempty"`
	Hops     []Hop     `yaml:"hops,omitempty"`
}

// Key returns "callee operation", by which siblings name a hop; the one alone
// where the other is empty.
func (h *Hop) Key() string { return strings.TrimSpace(h.Callee + " " + h.Operation) }

// Key returns "service operation".
func (e *Endpoint) Key() string { return strings.TrimSpace(e.Service + " " + e.Operation) }

// Evidence says what the numbers of the plan rest on. It is for people, and to
// tell later whether the hop has changed; nobody has to keep it up by hand.
type Evidence struct {
	Calls       int         `yaml:"calls"` // calls, or requests of an endpoint
	P50         Duration    `yaml:"p50,omitempty"`
	P99         Duration    `yaml:"p99,omitempty"`
	P99Interval []*Duration `yaml:"p99_interval,omitempty,flow"` // 95 %, low and high; high is null where it is not known
	Reserve     Duration    `yaml:"reserve,omitempty"`           // that this evidence asks for
	// Of endpoints only:
	From      *time.Time `yaml:"from,omitempty"` // start of the first request
	To        *time.Time `yaml:"to,omitempty"`   // start of the last request
	Strategy  string     `yaml:"strategy,omitempty"`
	FalseCuts *FalseCuts `yaml:"false_cuts,omitempty"`
}

// FalseCuts are the predicted shares of good requests that would be cut.
type FalseCuts struct {
	Share Ratio `yaml:"share"` // with shares as timeouts
	Cap   Ratio `yaml:"cap"`   // with caps as timeouts, and the deadline passed on
}
