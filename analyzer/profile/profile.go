// Package profile adds up many traces of one endpoint: the merged call tree,
// the distributions of every hop, who precedes whom, and a bottom-k sample of
// whole requests.
package profile

import "github.com/latencybudget/latencybudget/analyzer/quantile"

// HopKind says what a hop stands for.
type HopKind uint8

// The kinds of hop.
const (
	KindRoot  HopKind = iota // the endpoint itself
	KindCall                 // an RPC
	KindStage                // an INTERNAL step of the endpoint with a budget of its own
	KindStep                 // a same-service leaf: reported, without a budget
	KindAsync                // nobody waits for it: reported, without a budget
)

// Waited tells whether somebody waits for such a hop, so that it takes part in
// the critical path and gets a budget.
func (k HopKind) Waited() bool { return k == KindRoot || k == KindCall || k == KindStage }

// Order says how well the place of a hop among its siblings is known.
type Order uint8

// The orders.
const (
	OrderSure      Order = iota // every pair with a sibling seen together in 30 traces or more
	OrderUncertain              // some pair was seen together in fewer
	OrderExclusive              // never together with the other members of its slot
)

// Hop is one node of the merged call tree: a class of calls with the same path
// from the endpoint. Distributions hold ns.
type Hop struct {
	ID     string // place in the tree: "0", "0.2", "0.2.1"
	Parent int    // index into Profile.Hops; -1 for the endpoint
	Depth  int
	Kind   HopKind

	Caller, Callee, Operation string

	// Calls counts logical calls: one for each parent call that made any.
	Calls int
	// Presence is the weighted share of the parent's traces that have the hop.
	Presence float64
	// Duration is the operation: the hull of the hop's calls under one parent
	// call. Calls cut by a timeout or a cancellation are censored in it; calls
	// that failed otherwise are not in it.
	Duration *quantile.Dist
	// Unconditional is Duration with a zero for each parent call without the hop.
	Unconditional *quantile.Dist
	Attempt       *quantile.Dist // longest single call of each operation
	Backoff       *quantile.Dist // longest pause between a failed call and its retry, of each operation that had one
	Count         *quantile.Dist // calls of each operation
	Self          *quantile.Dist // own time of each call
	Tail          *quantile.Dist // own time after the last blocking child ended
	Net           *quantile.Dist // client minus server duration; nil where no pair was seen
	MaxAttempts   int            // most attempts (retries) of one operation
	Retried       bool           // at least one operation was retried after an error
	Looped        bool           // at least one operation called again after a success
	Hedged        bool           // at least one operation sent a second call beside the first
	ServerOnly    bool           // measured at the callee alone: a lower bound
	Streamed      bool           // at least one call is a stream, whose duration is a lifetime
	Unanswered    int            // calls without a SERVER half, where others have one: the callee hung, or its span was lost
	Unfitted      int            // calls whose SERVER span, on another clock, is longer than the caller's: no shift fits it
	TimedAsync    bool           // asynchronous by its times alone, not by what its spans say
	Optional      bool           // Presence < 1
	Failed        int            // operations that ended in an error that is not about time
	FromSample    bool           // counts and durations are those of the Sampled requests alone

	CriticalPath float64 // exclusive share of the critical path over all requests
	SlowPath     float64 // the same over the slowest 5 % of requests

	After []int // siblings (ascending indices) that end before this hop starts
	// Slot is the same non-zero number for siblings that exclude each other
	// and so share one place in every chain.
	Slot  int
	Order Order
	Skew  int64 // median shift that was applied to the callee's clock, ns

	// DeadlineRemaining is what the CLIENT spans said they had left
	// (latency_budget.deadline.remaining); nil where no span said so.
	DeadlineRemaining *quantile.Dist
}

// Profile is the resolved evidence of one endpoint.
type Profile struct {
	Service, Operation string
	Requests           int
	// Sampled are the requests that were measured one by one: all of them, unless
	// a [File] had counts and sketches of more.
	Sampled int
	// Unsampled counts the calls that no sampled request made and that have no hop.
	Unsampled int
	// Every holds the durations of all requests, however they ended.
	Every *quantile.Dist
	// Hops are in preorder; siblings in order of median start, then key;
	// children that nobody waits for come last. Hops[0] is the endpoint.
	Hops []Hop
	// Pairs and SurePairs count the sibling pairs and those seen together in
	// at least 30 traces (or proved exclusive).
	Pairs, SurePairs int
	// Resolution is that of a coarse clock (1 ms, 10 ms or 1 s), ns; 0 when finer.
	Resolution int64
	// Clustered tells that slow requests come in runs; Shrink is the factor
	// (1-a)/(1+a) <= 1 for all sample sizes, 1 where not clustered.
	Clustered bool
	Shrink    float64
	// Limit is the most frequent latency_budget.limit of the entry spans, ns; 0 if none.
	Limit int64
	// LimitDisagrees tells that entry spans carried different limits.
	LimitDisagrees bool
	// Rows is the bottom-k sample of whole requests, ordered by (trace hash, trace id, entry span id).
	Rows *Rows
}

// Rows are whole requests in columns: Duration[h][r] is what hop h took in row r.
type Rows struct {
	// Hash is FNV-1a 64 of the trace id; Hash mod k is the fold.
	Hash []uint64
	// Threshold is the sampling threshold T of the request; weight = 2^56/(2^56-T).
	Threshold []uint64
	// Started is the Unix start time in ns.
	Started []int64
	// Failed[h][r] tells that the operation in Duration ended in an error that
	// is not about time; Failed[h] is nil where none did.
	Failed [][]bool
	// Duration of the longest operation of the hop, ns; -1 where the request
	// had none. Duration[0] is the request's own.
	Duration [][]int64
	// Start of that operation after the request's start, ns.
	Start [][]int64
	// Self and Tail are own times, ns; -1 where the hop is absent.
	Self, Tail [][]int64
}

// FailedAt tells whether the operation of hop h in row i failed.
func (r *Rows) FailedAt(h, i int) bool {
	return h < len(r.Failed) && r.Failed[h] != nil && r.Failed[h][i]
}

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.Hash) }
