package latencybudgetprocessor

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/otlp"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// judge judges one batch after the other. Its buffers are reused; it is for one
// goroutine.
type judge struct {
	config *Config
	names  *hopNames
	counts counts

	// The batch.
	reader otlp.Reader
	spans  []trace.Span  // Ref is the index into from
	from   []ptrace.Span // what they were made from
	of     []int32       // number of the trace, by span
	number map[trace.TraceID]int32
	traces []group
	last   int32         // number of the trace of the last span: neighbours often share it
	lastID trace.TraceID // that isChosen was asked for
	chosen bool          // what it said
	// rootCalls tells that calls began traces: others may have lost theirs.
	rootCalls bool
	want      func(trace.TraceID) bool
	keep      func(*trace.Span, ptrace.Span)
	order     []int32 // spans of the traces that are judged, by trace

	// The trace, and the request in it, that is being judged.
	members []trace.Span
	trace   trace.Trace
	tree    trace.Tree
	paths   *trace.Paths
	request finding.Request
	hops    []named  // by path
	flags   []uint32 // by span: the rules that flag it
	after   []int64  // by span: how long it worked after its deadline, ns
	own     []int32  // by span: the call it is a half of, plus 1; 0: of none
	stack   []visit
	entries []int32 // scratch of judgeBelow
	rule    int     // that reports
	report  func(finding.Finding)
	found   []string // flags of the rules that found something at the span
	merged  []string // with those that the service stamped
}

// group is the spans of one trace in a batch.
type group struct {
	first, count int32 // in order
	judged       bool  // something in it says what time was left, or that it was up
}

// visit is a span that is still to be visited, and the call that it is part of.
type visit struct{ span, call int32 }

// named is a hop with the name that it has on spans.
type named struct{ hop, as hop }

// maxPaths is the number of places in call trees after which a judge forgets those
// it has met.
const maxPaths = 1 << 14

func newJudge(config *Config, remaining []trace.RemainingAttribute, names *hopNames) *judge {
	j := &judge{
		config: config, names: names,
		number: make(map[trace.TraceID]int32), paths: new(trace.Paths),
	}
	j.reader.Remaining = remaining
	j.request.Settings = config.settings()
	j.want, j.keep = j.isChosen, j.add // once: they are values on the heap
	j.report = func(f finding.Finding) {
		j.flags[f.Span] |= 1 << j.rule
		if flagging[j.rule].Flag == attr.FlagWorkAfterDeadline {
			j.after[f.Span] = f.Amount
		}
	}
	return j
}

// judge sets the attributes of the spans of a batch, and returns what it did. A nil
// plan is none.
func (j *judge) judge(traces ptrace.Traces, budgets *plan.Index) counts {
	j.counts = counts{}
	j.request.Plan = budgets
	j.spans, j.from, j.of, j.traces = j.spans[:0], j.from[:0], j.of[:0], j.traces[:0]
	clear(j.number)
	j.reader.Reset()
	j.rootCalls = false
	identified := j.choose(traces)
	j.counts.unjudged[reasonNoID] = int64(traces.SpanCount() - identified)
	if len(j.traces) > 0 || budgets != nil {
		j.read(traces)
		j.group()
	}
	j.counts.unjudged[reasonNoBudget] = int64(identified - len(j.spans))
	j.request.Restarts = nil
	if j.rootCalls {
		j.request.Restarts = new(finding.Restarts)
		j.request.Restarts.Collect(j.spans)
		j.request.Restarts.Cover(j.spans)
	}
	for i := range j.traces {
		if g := &j.traces[i]; g.judged {
			j.judgeTrace(j.order[g.first : g.first+g.count])
		} else {
			j.counts.unjudged[reasonNoBudget] += int64(g.count)
		}
	}
	// Nothing of the batch is kept alive until the next one comes.
	clear(j.from)
	return j.counts
}

// choose numbers the traces in which a span may tell what there is to judge, and
// counts the spans that have ids. In many systems most batches have no such
// trace, so this is what the processor costs them.
func (j *judge) choose(traces ptrace.Traces) (identified int) {
	for _, resource := range traces.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() {
					continue
				}
				identified++
				if j.request.Plan != nil {
					continue // any span may be a hop of it
				}
				// One span that tells something is enough for its trace.
				if _, chosen := j.number[trace.TraceID(s.TraceID())]; !chosen && j.reader.Telling(s) {
					j.numberOf(trace.TraceID(s.TraceID()))
				}
			}
		}
	}
	return identified
}

// numberOf is the number of a trace, which gets one if it has none yet.
func (j *judge) numberOf(id trace.TraceID) int32 {
	n, known := j.number[id]
	if !known {
		n = int32(len(j.traces))
		j.number[id] = n
		j.traces = append(j.traces, group{})
	}
	return n
}

// read fills spans with those of the chosen traces, and counts them by trace.
func (j *judge) read(traces ptrace.Traces) {
	j.last, j.lastID, j.chosen = -1, trace.TraceID{}, false
	want := j.want
	if j.request.Plan != nil {
		want = nil
	}
	j.reader.Read(traces, want, j.keep)
}

// isChosen tells whether a trace has a number.
func (j *judge) isChosen(id trace.TraceID) bool {
	if id != j.lastID {
		j.lastID = id
		_, j.chosen = j.number[id]
	}
	return j.chosen
}

// add takes a span into the batch.
func (j *judge) add(s *trace.Span, from ptrace.Span) {
	s.Ref = int32(len(j.spans))
	if j.last < 0 || s.TraceID != j.spans[len(j.spans)-1].TraceID {
		j.last = j.numberOf(s.TraceID)
	}
	j.spans, j.from, j.of = append(j.spans, *s), append(j.from, from), append(j.of, j.last)
	j.rootCalls = j.rootCalls || s.Kind == trace.KindClient && s.Parent.IsZero()
	g := &j.traces[j.last]
	g.count++
	g.judged = g.judged || j.worthJudging(s)
}

// worthJudging tells whether a span can give a rule something to look at.
func (j *judge) worthJudging(s *trace.Span) bool {
	if s.Stamp != nil && (s.Stamp.HasRemaining || s.Stamp.HasDeadline) ||
		s.Outcome == trace.OutcomeTimedOut || s.Outcome == trace.OutcomeCancelled {
		return true
	}
	if j.request.Plan == nil {
		return false
	}
	_, planned := j.request.Plan.Find("", s.Desc.Service, s.Desc.Operation)
	if !planned && s.Desc.Peer != "" {
		_, planned = j.request.Plan.Find("", s.Desc.Peer, s.Desc.Operation)
	}
	return planned
}

// group orders the spans of the traces that are judged by trace.
func (j *judge) group() {
	n := int32(0)
	for i := range j.traces {
		if g := &j.traces[i]; g.judged {
			g.first, n = n, n+g.count
			g.count = 0
		}
	}
	j.order = slices.Grow(j.order[:0], int(n))[:n]
	for i, t := range j.of {
		if g := &j.traces[t]; g.judged {
			j.order[g.first+g.count] = int32(i)
			g.count++
		}
	}
}

func (j *judge) judgeTrace(members []int32) {
	j.members = j.members[:0]
	for _, i := range members {
		j.members = append(j.members, j.spans[i])
	}
	if j.paths.Len() > maxPaths {
		j.paths, j.hops = new(trace.Paths), j.hops[:0]
	}
	t := &j.trace
	t.Set(j.members)
	dropped, twice := len(members)-len(t.Spans), t.LeftOut[trace.NoteDuplicate]+t.LeftOut[trace.NoteConflict]
	j.counts.unjudged[reasonDuplicate] += int64(twice)
	j.counts.unjudged[reasonNoDuration] += int64(dropped - twice)
	j.flags = zeroed(j.flags, len(t.Spans))
	j.after = zeroed(j.after, len(t.Spans))
	j.own = zeroed(j.own, len(t.Spans))
	for i, p := range t.Parent {
		if p < 0 {
			if p == trace.LostParent {
				j.counts.parentless++
			}
			j.judgeBelow(int32(i), p == trace.LostParent)
		}
	}
}

// judgeBelow judges the request that enters at a topmost span. Of one without its
// times nothing can be said, nor of the whole: what it called stands alone.
func (j *judge) judgeBelow(topmost int32, partial bool) {
	t := &j.trace
	j.entries = append(j.entries[:0], topmost)
	for len(j.entries) > 0 {
		entry := j.entries[len(j.entries)-1]
		j.entries = j.entries[:len(j.entries)-1]
		if !t.Spans[entry].Is(trace.FlagUnmeasured) {
			j.judgeRequest(entry, partial)
			continue
		}
		j.counts.unjudged[reasonNoDuration]++
		j.entries = append(j.entries, t.Children(entry)...)
		partial = true
	}
}

func (j *judge) judgeRequest(entry int32, partial bool) {
	j.tree.Build(&j.trace, entry, j.paths, nil)
	j.request.Reset(&j.tree, nil)
	for i, rule := range flagging {
		j.rule = i
		rule.Check(&j.request, j.report)
	}
	j.writeAll(entry, partial)
}

// writeAll sets the attributes of all spans at and below entry.
func (j *judge) writeAll(entry int32, partial bool) {
	t := &j.trace
	calls := j.tree.Calls
	// A span belongs to the call it is a half of, or else to that of its parent.
	for i := range calls {
		j.own[calls[i].Span], j.own[calls[i].Callee] = int32(i)+1, int32(i)+1
	}
	j.stack = append(j.stack[:0], visit{entry, 0})
	for len(j.stack) > 0 {
		at := j.stack[len(j.stack)-1]
		j.stack = j.stack[:len(j.stack)-1]
		half := j.own[at.span] > 0
		if half {
			at.call = j.own[at.span] - 1
		}
		j.write(at, half, partial)
		for _, c := range t.Children(at.span) {
			j.stack = append(j.stack, visit{c, at.call})
		}
	}
}

// hopOf names a call.
func (j *judge) hopOf(call int32) *hop {
	var h hop
	h.caller, h.callee, h.operation = j.request.Names(call)
	path := int(j.tree.Calls[call].Path)
	if path >= len(j.hops) {
		j.hops = append(j.hops, make([]named, path+1-len(j.hops))...)
	}
	at := &j.hops[path]
	if at.hop != h || at.as == (hop{}) {
		at.hop, at.as = h, j.names.admit(h)
	}
	return &at.as
}

// zeroed returns n zeros, in the memory of s where that suffices.
func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}
