package analyzer

import (
	"encoding/json"
	"errors"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Opt is a value that may be unknown. Unknown values are absent from JSON,
// never null or zero.
type Opt[T any] struct {
	V     T
	Known bool
}

// Some returns a known value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, Known: true} }

// IsZero makes `omitzero` leave unknown values out.
func (o Opt[T]) IsZero() bool { return !o.Known }

// MarshalJSON writes the value.
func (o Opt[T]) MarshalJSON() ([]byte, error) { return json.Marshal(o.V) }

// UnmarshalJSON reads a value, which is then known unless it is null.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	o.Known = string(b) != "null"
	return json.Unmarshal(b, &o.V)
}

// Report is the result of one analysis; its JSON form is version 1 of
// docs/report.schema.json. All durations are integer nanoseconds. Renderers
// print it and compute nothing.
type Report struct {
	Version   int        `json:"version"` // 1
	Input     Input      `json:"input"`
	Endpoints []Endpoint `json:"endpoints"` // busiest first, at most Config.Top in detail

	// Others are the endpoints beyond Config.Top, busiest first: one line each.
	Others []OtherEndpoint `json:"other_endpoints,omitempty"`

	// Settings are those that the rules judged by, where they are not finding.Defaults.
	Settings Opt[finding.Settings] `json:"settings,omitzero"`

	// Plan is the recommendation as a plan file, for plan.Write: the endpoints
	// with a feasible budget, and those of Config.Plan that are not in the traces
	// as they are there. Its revision is made of the day of the last request and a
	// digest. It is nil where there is nothing to plan.
	Plan *plan.Plan `json:"-"`
}

// OtherEndpoint is an endpoint that got no table of its own.
type OtherEndpoint struct {
	Service   string `json:"service"`
	Operation string `json:"operation"`
	Traces    int    `json:"traces"`
	// Findings are counted by rule, worst first.
	Findings []OtherFinding `json:"findings,omitempty"`
}

// OtherFinding is what one rule of package finding found at an endpoint without a
// table.
type OtherFinding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"` // error | warning | info
	Count    int    `json:"count"`    // calls
	Example  string `json:"example"`  // TRACEID/SPANID
}

// NotSelected is the key of Input.LeftOut for spans that Config.Endpoints leaves out: as
// was asked for.
const NotSelected = string(trace.NoteNotSelected)

// Input says what was read and what was left out.
type Input struct {
	Files    []InputFile `json:"files"`
	Traces   int         `json:"traces"` // distinct trace ids read
	Spans    int         `json:"spans"`  // spans read, analysed or not
	Sampling Sampling    `json:"sampling"`
	Notes    []InputNote `json:"notes,omitempty"` // ordered by kind

	// AllowedNothing are the globs of Config.AllowDetached that match no call which rules
	// would judge.
	AllowedNothing []string `json:"-"`

	// Accounting of every span read: Spans = Analysed + sum of LeftOut.
	Analysed int            `json:"analysed_spans"`
	LeftOut  map[string]int `json:"left_out_spans,omitempty"` // by reason; keys are note kinds

	// Failed are the inputs that could not be used, in their order.
	Failed Failures `json:"failed,omitempty"`
}

// Failures are errors, one for each input that could not be used. Their JSON form
// is their texts.
type Failures []error

// MarshalJSON writes the texts.
func (f Failures) MarshalJSON() ([]byte, error) {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return json.Marshal(texts)
}

// UnmarshalJSON reads the texts; of what the errors wrapped nothing is known then.
func (f *Failures) UnmarshalJSON(b []byte) error {
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		return err
	}
	*f = nil
	for _, text := range texts {
		*f = append(*f, errors.New(text))
	}
	return nil
}

// InputFile is one file that was read.
type InputFile struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Bytes  int64  `json:"bytes"`
	Spans  int    `json:"spans"`
}

// Sampling says how the traces stand for all requests.
type Sampling struct {
	Weighted bool   `json:"weighted"` // weights from `ot=th` were used
	Biased   bool   `json:"biased,omitempty"`
	Note     string `json:"note"` // one sentence
}

// InputNote is one kind of imperfection of the input.
type InputNote struct {
	Kind    string `json:"kind"`
	Count   int    `json:"count"`
	Example string `json:"example,omitempty"` // TRACEID/SPANID
	Text    string `json:"text"`              // one clause for people, e.g. "3 duplicate spans"
	Where   string `json:"-"`                 // first "file:line", for stderr
	Lost    bool   `json:"-"`                 // data was left out that could not be counted as spans
}

// Quantiles are nearest-rank quantiles of the endpoint's duration in ns, and the
// order-statistic 95 % interval of the P99. The upper bound is absent where
// the sample is too small to have one.
type Quantiles struct {
	P50   Opt[int64] `json:"p50_ns,omitzero"`
	P90   Opt[int64] `json:"p90_ns,omitzero"`
	P95   Opt[int64] `json:"p95_ns,omitzero"`
	P99   Opt[int64] `json:"p99_ns,omitzero"`
	P999  Opt[int64] `json:"p999_ns,omitzero"`
	P99Lo Opt[int64] `json:"p99_lo_ns,omitzero"`
	P99Hi Opt[int64] `json:"p99_hi_ns,omitzero"`
	Max   Opt[int64] `json:"max_ns,omitzero"`
}

// Endpoint is one entry operation, its budget and its hops.
type Endpoint struct {
	Service           string       `json:"service"`
	Operation         string       `json:"operation"`
	Traces            int          `json:"traces"`                  // requests analysed
	Failed            int          `json:"failed_traces,omitempty"` // of these, the failed ones: they are in no quantile
	Sampled           Opt[int]     `json:"sampled_traces,omitzero"` // of these, the ones that a profile kept whole; absent where all were at hand
	Duration          Quantiles    `json:"duration"`
	Budget            int64        `json:"budget_ns"`
	BudgetSource      string       `json:"budget_source"` // flag | plan | observed | suggested
	Reserve           int64        `json:"reserve_ns"`    // kept for the endpoint's own work
	Quantum           int64        `json:"quantum_ns"`    // shares and caps are multiples of it, unless that would be less than a floor
	Strategy          string       `json:"strategy"`
	Percentile        Opt[float64] `json:"percentile,omitzero"` // --percentile, e.g. 97.5, where it is not 99
	Feasible          bool         `json:"feasible"`
	MinBudget         int64        `json:"min_budget_ns"`
	DeadlineMissRatio float64      `json:"deadline_miss_ratio"`        // share of requests over the budget today
	Hops              []Hop        `json:"hops"`                       // preorder: a parent before its children, siblings in order of median start, async last; Hops[0] is the endpoint itself
	WorstCase         Opt[int64]   `json:"worst_case_ns,omitzero"`     // longest chain of TIMEOUTs at the root
	WorstCaseNow      Opt[int64]   `json:"worst_case_now_ns,omitzero"` // longest chain of today's timeouts (Now)
	BindingChain      []string     `json:"binding_chain,omitempty"`    // hop ids of the chain that sets MinBudget
	Hot               string       `json:"hot,omitempty"`              // id of the hop with the largest share of the critical path
	OrderPairs        int          `json:"order_pairs"`                // sibling pairs
	OrderSure         int          `json:"order_sure"`                 // of these, the pairs whose order is known well enough
	KindInferredRatio float64      `json:"kind_inferred_ratio,omitempty"`
	Resolution        int64        `json:"clock_resolution_ns,omitempty"` // of a coarse clock; absent when finer than 1 ms
	Moves             []Move       `json:"moves,omitempty"`               // room that could change hands
	Warnings          []string     `json:"warnings,omitempty"`
	Replay            *Replay      `json:"replay,omitempty"`
	Findings          []Finding    `json:"findings,omitempty"` // worst first
}

// Finding is what one rule of package finding has to say about one hop. The
// same rule speaks more than once of a hop where different services did it.
type Finding struct {
	Rule     string  `json:"rule"`
	Severity string  `json:"severity"` // error | warning | info
	Hop      string  `json:"hop"`      // hop id
	Count    int     `json:"count"`    // calls
	Ratio    float64 `json:"ratio"`    // share of the requests (of the sampled ones, where there are), each counted once whatever its weight
	Example  string  `json:"example"`  // TRACEID/SPANID
	Text     string  `json:"text"`     // one clause for people, with the largest amount
	// P99 is that of how long work went on, over all calls that should have stopped,
	// of which there are P99Calls: of work-after-deadline alone. It takes 100 of them.
	P99      Opt[int64] `json:"p99_ns,omitzero"`
	P99Calls int        `json:"p99_calls,omitempty"`
}

// Move is time that a loose hop could give to a tight one.
type Move struct {
	From   string `json:"from"` // hop id
	To     string `json:"to"`   // hop id
	Amount int64  `json:"amount_ns"`

	// How many times its P99 each of them has.
	FromSlack float64 `json:"from_slack"`
	ToSlack   float64 `json:"to_slack"`
}

// Kinds of a hop row.
const (
	HopRoot  = "root"  // the endpoint itself
	HopCall  = "call"  // an RPC
	HopStage = "stage" // an INTERNAL step of the endpoint with a budget of its own
	HopStep  = "step"  // a same-service leaf, no budget (--steps)
	HopAsync = "async" // nobody waits for it: no budget
)

// Verdicts of a hop, in order of precedence.
const (
	VerdictAsync      = "async"
	VerdictCensored   = "censored"    // today's timeouts cut it: P99 is a lower bound
	VerdictFewSamples = "few_samples" // under 100 calls
	VerdictOver       = "over"        // BUDGET (or NOW) < P99
	VerdictTight      = "tight"       // P99 <= BUDGET < upper bound of P99
	VerdictLoose      = "loose"       // > 5 x P99 while another hop could use it
	VerdictOK         = "ok"          // BUDGET >= upper bound of P99
	VerdictFits       = "fits"        // root: no request was over the budget, nor cut before
	VerdictMisses     = "misses"      // root: some requests are over the budget today
	VerdictInfeasible = "infeasible"  // root: no plan obeys the budget
)

// Hop is one row: a hop at one place of the merged call tree.
type Hop struct {
	ID               string       `json:"id"`     // "0", "0.2", "0.2.1": place in the merged tree
	Parent           string       `json:"parent"` // id; "" for the root
	Depth            int          `json:"depth"`
	Caller           string       `json:"caller"` // service
	Callee           string       `json:"callee"` // service
	Operation        string       `json:"operation"`
	Label            string       `json:"label"` // short name for people: callee + shortest unambiguous operation
	Kind             string       `json:"kind"`  // root | call | stage | step | async
	Calls            int          `json:"calls"` // logical calls (retries and loops count once)
	Presence         float64      `json:"presence"`
	CallsPerTraceP99 int64        `json:"calls_per_trace_p99"`
	MaxAttempts      int          `json:"max_attempts"`
	P50              Opt[int64]   `json:"p50_ns,omitzero"`
	P90              Opt[int64]   `json:"p90_ns,omitzero"`
	P95              Opt[int64]   `json:"p95_ns,omitzero"`
	P99              Opt[int64]   `json:"p99_ns,omitzero"`
	P99Lo            Opt[int64]   `json:"p99_lo_ns,omitzero"`
	P99Hi            Opt[int64]   `json:"p99_hi_ns,omitzero"` // absent: unknown, more than max
	Max              Opt[int64]   `json:"max_ns,omitzero"`
	PercentileNS     Opt[int64]   `json:"percentile_ns,omitzero"` // at Endpoint.Percentile
	UtilizationP99   Opt[float64] `json:"utilization_p99,omitzero"`
	Confidence       string       `json:"confidence,omitempty"` // refused | low | fair | good
	CensoredRatio    float64      `json:"censored_ratio"`
	NetP50           Opt[int64]   `json:"net_p50_ns,omitzero"` // client - server
	SelfP50          Opt[int64]   `json:"self_p50_ns,omitzero"`
	SelfP99          Opt[int64]   `json:"self_p99_ns,omitzero"`
	TailP50          Opt[int64]   `json:"tail_p50_ns,omitzero"`
	CriticalPath     Opt[float64] `json:"critical_path_ratio,omitzero"`
	SlowPath         Opt[float64] `json:"slow_path_ratio,omitzero"` // in the slowest 5 %
	After            []string     `json:"after,omitempty"`          // siblings that end first
	Order            string       `json:"order,omitempty"`          // sure | uncertain | exclusive
	Overlaps         bool         `json:"overlaps,omitempty"`       // may run beside a sibling
	Floor            Opt[int64]   `json:"floor_ns,omitzero"`
	Share            Opt[int64]   `json:"share_ns,omitzero"`    // BUDGET
	ShareRatio       Opt[float64] `json:"share_ratio,omitzero"` // before rounding, of the endpoint's budget
	Cap              Opt[int64]   `json:"cap_ns,omitzero"`      // TIMEOUT
	Slack            Opt[float64] `json:"slack,omitzero"`       // Share / P99
	CutRatio         Opt[float64] `json:"cut_ratio,omitzero"`   // share of the hop's calls above Share
	AttemptTimeout   Opt[int64]   `json:"attempt_timeout_ns,omitzero"`
	BackoffP99       Opt[int64]   `json:"backoff_p99_ns,omitzero"` // longest pause before a retry, of each retried operation
	AttemptsFit      Opt[int]     `json:"attempts_fit,omitzero"`   // attempts and pauses that Share holds, where retries were seen
	Now              Opt[int64]   `json:"now_ns,omitzero"`
	Change           Opt[int64]   `json:"change_ns,omitzero"` // Share - Now
	Skew             Opt[int64]   `json:"skew_ns,omitzero"`   // shift applied to the callee's clock
	Flags            []string     `json:"flags,omitempty"`
	Verdict          string       `json:"verdict,omitempty"`
}

// Replay is the predicted effect of the table, and of what it compares with, on
// traces that did not make it.
type Replay struct {
	Folds int `json:"folds"` // 0 where there are too few requests to judge a plan by
	// Both are unknown where there is no plan, or too few requests to judge it by.
	BudgetFalseCut    Opt[float64]     `json:"budget_false_cut_ratio,omitzero"`  // shares as hard timeouts
	TimeoutFalseCut   Opt[float64]     `json:"timeout_false_cut_ratio,omitzero"` // caps with the deadline passed on
	BudgetForFalseCut []BudgetFor      `json:"budget_for_false_cut,omitempty"`
	Traces            int              `json:"traces"`               // requests replayed: whole ones that did not fail
	Degradable        []string         `json:"degradable,omitempty"` // ids of hops that callers do without
	Policies          []PolicyEffect   `json:"policies"`             // the last three are those of the table, if it has a plan
	Incidents         []ReplayIncident `json:"incidents,omitempty"`
	Assumptions       []string         `json:"assumptions"` // a clause each
}

// PolicyEffect is what a policy would have done to the requests. Ratios are
// shares of the requests. Times are means over them: the ns of a request are the
// span-seconds of 1,000 million, and so its ms are those of 1,000.
type PolicyEffect struct {
	Policy   string     `json:"policy"`             // see budget.Policy
	Strategy string     `json:"strategy,omitempty"` // that made BUDGET and TIMEOUT
	Miss     float64    `json:"miss_ratio"`         // over the budget
	Violated float64    `json:"violated_ratio"`     // over the budget or cut
	FalseCut float64    `json:"false_cut_ratio"`    // cut although within the budget
	Degraded float64    `json:"degraded_ratio"`     // answered without some degradable hop
	Executed int64      `json:"executed_ns"`        // span time that ran
	Saved    int64      `json:"saved_ns"`           // span time that did not run any more
	Wasted   int64      `json:"wasted_ns"`          // span time that ran in violated requests
	Early    Opt[int64] `json:"early_ns,omitzero"`  // how long before the budget those that miss it returned
	Cuts     []HopCut   `json:"cuts,omitempty"`     // in order of the hops
}

// HopCut is the share of requests that the deadline of a hop ended: the first
// that passed in the request.
type HopCut struct {
	Hop   string  `json:"hop"` // hop id; "0" for the deadline of the request
	Ratio float64 `json:"ratio"`
}

// ReplayIncident is the replay with one hop slower in some of the requests that
// call it.
type ReplayIncident struct {
	Hop      string         `json:"hop"` // hop id
	Low      int64          `json:"low_ns"`
	High     int64          `json:"high_ns"`
	Ratio    float64        `json:"ratio"`
	Requests int            `json:"requests"` // in which it was slow
	Policies []PolicyEffect `json:"policies"`
}

// BudgetFor is the smallest endpoint budget whose shares cut at most Ratio of
// the good requests; absent where none was found.
type BudgetFor struct {
	Ratio  float64    `json:"ratio"`
	Budget Opt[int64] `json:"budget_ns,omitzero"`
}
