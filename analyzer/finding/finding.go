// Package finding holds the rules by which the calls of a request are found to
// spend, lose or overrun its latency budget.
//
// A rule looks at the call tree of one request: at the times of its spans, and
// at the latency_budget attributes that they carry. Where spans carry none, a rule
// that can prove its case by time alone does; the others are silent. Every rule
// has its own file and says in [Rule] what it looks for, by how much figures may
// differ before it speaks, and how it can be wrong.
//
// The package is pure, and its rules keep nothing between requests: the analyzer
// runs them over whole exports, a Collector processor can run them over a batch.
package finding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Severity says how sure it is that a finding has to be looked at.
type Severity uint8

// The severities.
const (
	Info    Severity = iota // explains another finding
	Warning                 // costs time or certainty
	Error                   // breaks the deadline of the request
)

// String returns the name that reports and flags use.
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	}
	return "info"
}

// Unit is what a rule measures in.
type Unit uint8

// The units of an amount.
const (
	Nanoseconds Unit = iota
	PerMille         // thousandths of the budget
	Times            // how often
)

// Rule is one thing that can be wrong with a call.
type Rule struct {
	Name     string // as users write it: lower case, with hyphens
	Severity Severity
	// Flag is the value of latency_budget.flags for it; "" where no span is flagged.
	Flag string
	Unit Unit // of Finding.Amount

	Summary   string // one sentence: what is wrong
	Formula   string // when the rule speaks
	Tolerance string // by how much figures may differ before it does
	Mistakes  string // when it is wrong or silent
	Remedy    string // what to do about what it finds

	// text is the sentence of a report, with %s for the largest amount.
	text string
	// by goes before Finding.By in that sentence.
	by string
	// check reports what one request shows. Nil: a single request proves nothing.
	check func(r *Request, report func(Finding))
	// sample, where it is not nil, takes the place of check where many requests
	// are looked at: it reports every call that the rule has an opinion on, and
	// settle tells in the end which of them are findings and what the amount is.
	sample func(r *Request, report func(Finding))
	// floor is what people set for the hop, in ns; 0 where they set none.
	settle func(seen []sample, floor int64) settled
}

// Finding is one call that a rule has something to say about.
type Finding struct {
	Call   int32  // index of the call in the tree
	Span   int32  // index of the span that shows it
	Amount int64  // how much, in the rule's unit
	By     string // who did it, where that is not the callee; "" otherwise

	// quiet: the call is part of the evidence, but no finding by itself.
	quiet bool
	// took is how long a call took that was good, in ns, where the rule wants it.
	took int64
}

// Rules returns all rules: the more severe ones first, then by name.
func Rules() []*Rule { return slices.Clone(rules) }

// Named returns the rule with that name, or nil.
func Named(name string) *Rule {
	for _, r := range rules {
		if r.Name == name {
			return r
		}
	}
	return nil
}

var rules = []*Rule{
	&budgetOverrun, &callAfterDeadline, &deadlineDropped, &deadlineReset, &doomedCall, &exhaustedAtStart, &retryOverspend,
	&budgetUtilization, &deadlineExceeded, &fixedTimeout, &outcomeUnknown, &queueWait, &reserveIgnored, &retryAmplification,
	&traceRestarted, &workAfterDeadline,
	&lockstepBackoff, &tightestDeadline, &unsafeRetry,
}

// Check reports what the rule finds in a request, each call at most once. A
// rule that needs many requests finds nothing in one: see [Tally].
func (rule *Rule) Check(r *Request, report func(Finding)) {
	if rule.check != nil {
		rule.check(r, report)
	}
}

// Text says for people what was found: the rule's sentence, with the largest
// amount and who did it.
func (rule *Rule) Text(most int64, by string) string {
	amount := ""
	switch rule.Unit {
	case Nanoseconds:
		amount = milliseconds(most)
	case PerMille:
		amount = strconv.FormatFloat(float64(most)/10, 'f', -1, 64) + " %"
	case Times:
		amount = strconv.FormatInt(most, 10)
	}
	text := rule.text
	if strings.Contains(text, "%s") {
		text = fmt.Sprintf(text, amount)
	}
	if by != "" {
		text += rule.by + by
	}
	return text
}

// milliseconds writes ns with three significant digits at least, unless it is 0.
func milliseconds(ns int64) string {
	ms := float64(ns) / 1e6
	switch {
	case ns == 0:
		return "0 ms"
	case ms >= 99.95 || ms <= -99.95:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms >= 1 || ms <= -1:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	}
	return strconv.FormatFloat(ms, 'f', 3, 64) + " ms"
}

// Request is the call tree of one request, as the rules look at it. It is for
// one goroutine.
type Request struct {
	Settings
	// Restarts, unless nil, knows the calls that began traces of their own.
	Restarts *Restarts
	// Plan, unless nil, says what hops may take. It may be shared.
	Plan *plan.Index
	// NoGrace has work-after-deadline count from the first moment on.
	NoGrace bool

	tree       *trace.Tree
	roles      []role          // by call
	losers     []bool          // by call: see overtaken; made when needed
	number, of []int64         // by call: see attempts; made when needed
	before     []int32         // by call: the attempt before it, -1 for none; made with number
	tried      map[int32]int64 // by span that is an attempt inside a call: its number; made with number
	counted    bool            // number, of and before are made
	todo       []int32         // scratch of tries
	given      []giver         // by call: see givers; made when needed
	order      []int32         // scratch of countAttempts and spenders
	spent      []spender       // scratch of spenders
}

// NewRequest returns a request to check. async tells which calls nobody waits
// for, by their index; nil means those that their spans say so of. What such a
// call does, and everything below it, is meant to outlive the request: no rule
// judges it. Of a stream only its opening is judged. The tree is not copied.
func NewRequest(tree *trace.Tree, async func(call int32) bool, s Settings) *Request {
	r := &Request{Settings: s}
	r.Reset(tree, async)
	return r
}

// Reset turns r to another tree. It keeps all exported fields and buffers.
func (r *Request) Reset(tree *trace.Tree, async func(call int32) bool) {
	*r = Request{
		Settings: r.Settings, Restarts: r.Restarts, Plan: r.Plan, NoGrace: r.NoGrace,
		tree: tree, roles: r.roles[:0], losers: r.losers[:0], number: r.number, of: r.of, before: r.before, tried: r.tried, todo: r.todo,
		given: r.given[:0], order: r.order, spent: r.spent,
	}
	for i := range tree.Calls {
		c := &tree.Calls[i]
		above := roleAnswers
		if c.Parent >= 0 {
			above = r.roles[c.Parent]
		}
		is := roleAnswers
		switch {
		case c.Kind == trace.CallAsync || async != nil && async(int32(i)):
			is = roleDetached
		case above == roleDetached || above == roleStreamed:
			is = above
		case above == roleStream && r.outlived(&tree.Calls[c.Parent]):
			is = roleStreamed
		case c.Stream:
			is = roleStream
		}
		r.roles = append(r.roles, is)
	}
}

// role is what a call is to the one that makes it.
type role uint8

const (
	// roleAnswers: somebody waits for its answer.
	roleAnswers role = iota
	// roleStream: a stream. Its duration is a lifetime that no budget bounds, and its end
	// is not an answer, however it comes. That it was opened is a call like any other.
	roleStream
	// roleStreamed: called in a stream that outlived what was left when it was opened.
	// What such calls say was left says nothing of them:
	//
	//	what was left  |== 800 ==|
	//	stream         |--------------------------------|
	//	calls            |--| |--| |--| |--|  |--| |--|     one of them runs over
	roleStreamed
	// roleDetached: nobody waits for it.
	roleDetached
)

// outlived tells whether a stream took longer than what was left when it was opened.
func (r *Request) outlived(c *trace.Call) bool {
	for _, half := range [...]int32{c.Span, c.Callee} {
		if ns, known := left(r.span(half)); known && r.span(half).Duration > ns {
			return true
		}
	}
	return false
}

// Judged tells whether somebody waits for the answer of a call, so that rules judge
// how long it took and how it ended.
func (r *Request) Judged(call int32) bool { return r.roles[call] == roleAnswers }

// Stream tells whether a call is a stream, or was called in one that outlived what was
// left of the budget.
func (r *Request) Stream(call int32) bool {
	return r.roles[call] == roleStream || r.roles[call] == roleStreamed
}

// Attempt returns the number of a span among the attempts of its logical call, 1 for
// the first, and whether there were others. The span is a half of the call, or an
// attempt that is reported inside it.
func (r *Request) Attempt(call, span int32) (number int64, retried bool) {
	numbers, totals := r.attempts()
	if numbers == nil {
		return 1, false
	}
	c := &r.tree.Calls[call]
	if span == c.Span || span == c.Callee {
		return numbers[call], totals[call] > r.inSeries(c)
	}
	if number = r.tried[span]; number == 0 {
		return 1, false
	}
	return number, totals[call] > 1
}

// SaysDeadlines tells whether any span of what somebody waits for says what was left
// of the request's budget: otherwise no deadline that was lost can show.
func (r *Request) SaysDeadlines() bool {
	for i := range r.tree.Calls {
		if c := &r.tree.Calls[i]; r.begins(int32(i)) && (knows(r.span(c.Span)) || knows(r.span(c.Callee))) {
			return true
		}
	}
	return false
}

// waited calls visit for every call whose answer somebody waits for, parents first.
func (r *Request) waited(visit func(i int32, c *trace.Call)) {
	for i := range r.tree.Calls {
		if r.roles[i] == roleAnswers {
			visit(int32(i), &r.tree.Calls[i])
		}
	}
}

// begun is waited with streams: it serves rules that look at how a call begins.
func (r *Request) begun(visit func(i int32, c *trace.Call)) {
	for i := range r.tree.Calls {
		if r.begins(int32(i)) {
			visit(int32(i), &r.tree.Calls[i])
		}
	}
}

func (r *Request) begins(call int32) bool {
	return r.roles[call] == roleAnswers || r.roles[call] == roleStream
}

func (r *Request) span(i int32) *trace.Span { return &r.tree.Trace.Spans[i] }

// exit returns the CLIENT half of a call, or nil.
func (r *Request) exit(c *trace.Call) *trace.Span {
	if s := r.span(c.Span); s.Kind == trace.KindClient {
		return s
	}
	return nil
}

// entry returns the callee's half of a call, or nil.
func (r *Request) entry(c *trace.Call) *trace.Span {
	if s := r.span(c.Callee); s.Kind == trace.KindServer {
		return s
	}
	return nil
}

// process is where a span was made, as far as it says so: there one clock measures.
type process struct{ service, host string }

func processOf(s *trace.Span) process { return process{s.Desc.Service, s.Desc.Host} }

// oneClock tells whether the times of two spans can be compared.
func oneClock(a, b *trace.Span) bool { return processOf(a) == processOf(b) }

// left is what was left of the request's budget when a span began, ns: the
// figure that it carries, or else its own deadline.
func left(s *trace.Span) (ns int64, known bool) {
	switch {
	case s == nil || s.Stamp == nil:
		return 0, false
	case s.Stamp.HasRemaining:
		return s.Stamp.Remaining, true
	}
	return s.Stamp.DeadlineRemaining, s.Stamp.HasDeadline
}

// leftOf is left of the first half of a call that has it, with that span.
func (r *Request) leftOf(c *trace.Call) (ns int64, span int32, known bool) {
	for _, i := range [...]int32{c.Span, c.Callee} {
		if ns, known := left(r.span(i)); known {
			return ns, i, true
		}
	}
	return 0, 0, false
}

// tolerance is how much later than what was left a deadline may lie, ns.
func (r *Request) tolerance(left int64, absolute bool) int64 {
	t := max(r.ResetFloor, int64(r.ResetShare*float64(left)))
	if absolute {
		t += r.MaxSkew
	}
	return t
}

// sentTolerance is tolerance where a deadline was sent that often since something was
// known of it: each time may add to it.
func (r *Request) sentTolerance(left, sent int64, absolute bool) int64 {
	return r.tolerance(left, absolute) + (max(sent, 1)-1)*r.tolerance(left, false)
}

// slack is by how much more a span may have had left than it says, ns: its deadline
// was sent as a point in time, on another clock than its own.
func (r *Request) slack(s *trace.Span) int64 {
	if s.Stamp != nil && s.Stamp.Absolute {
		return r.MaxSkew
	}
	return 0
}

// slackOf is slack of a half of a call. A CLIENT span says what its service measured of a
// deadline that it was sent, or handed on as it came.
func (r *Request) slackOf(c *trace.Call, half int32) int64 {
	s := r.span(half)
	if s.Kind == trace.KindClient {
		return max(r.slack(s), r.slack(r.span(c.Maker)))
	}
	return r.slack(s)
}

// gaveUp tells whether a caller ended without waiting for the answer.
func gaveUp(s *trace.Span) bool {
	return s.Outcome == trace.OutcomeTimedOut || s.Outcome == trace.OutcomeCancelled
}

// overtaken tells whether a call is the loser of a hedge: cancelled because
// another call for the same thing, sent beside it, had answered. What a loser had
// called and was cancelled with it has lost as well.
//
//	call   |--------------cancelled|
//	below     |-----------cancelled|
//	winner      |-------ok|
func (r *Request) overtaken(i int32) bool {
	if r.tree.Calls[i].Outcome != trace.OutcomeCancelled {
		return false
	}
	if len(r.losers) == 0 {
		r.findLosers()
	}
	return r.losers[i]
}

func (r *Request) findLosers() {
	type choice struct{ parent, path int32 } // a way that calls of one caller go
	answers := make(map[choice][]int64)      // when the good calls of each ended
	for i := range r.tree.Calls {
		if c := &r.tree.Calls[i]; c.Outcome == trace.OutcomeOK {
			answers[choice{c.Parent, c.Path}] = append(answers[choice{c.Parent, c.Path}], c.End)
		}
	}
	for _, ends := range answers {
		slices.Sort(ends)
	}
	for i := range r.tree.Calls { // parents come first
		c := &r.tree.Calls[i]
		lost := false
		if c.Outcome == trace.OutcomeCancelled {
			ends := answers[choice{c.Parent, c.Path}]
			at, _ := slices.BinarySearch(ends, c.Start+1)
			lost = at < len(ends) && ends[at] <= c.End || c.Parent >= 0 && r.losers[c.Parent]
		}
		r.losers = append(r.losers, lost)
	}
}
