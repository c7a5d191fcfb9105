package latencybudgetprocessor

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
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
	reader    otlp.Reader
	from      []ptrace.Span // those that have ids and times
	of        []origin      // by span
	resources []resource
	traces    []group
	number    map[trace.TraceID]int32 // index into traces
	order     []int32                 // spans of the traces that are read, by trace
	members   []trace.Span            // of one trace, or where rootCalls of all, as in order; Ref is the index into from
	// rootCalls tells that calls may have begun traces: others may have lost theirs.
	rootCalls bool

	// The trace, and the request in it, that is being judged.
	trace   trace.Trace
	tree    trace.Tree
	paths   *trace.Paths
	request finding.Request
	allowed *finding.Allowed
	async   func(call int32) bool // tells the calls that may outlive it; nil: none are named
	hops    []named               // by path
	flags   []uint32              // by span: the rules that flag it
	after   []int64               // by span: how long it worked after its deadline, ns
	own     []int32               // by span: the call it is a half of, plus 1; 0: of none
	stack   []visit
	entries []int32 // scratch of judgeBelow
	rule    int     // that reports
	report  func(finding.Finding)
	found   []string // flags of the rules that found something at the span
	merged  []string // with those that the service stamped
}

// origin is where a span stands, and what it belongs to.
type origin struct{ resource, trace int32 }

// resource is the process that made spans, read when it is first needed.
type resource struct {
	from pcommon.Resource
	read bool
	is   trace.Resource
}

// group is the spans of one trace in a batch.
type group struct {
	first, count int32 // in order, where it is read
	read         bool  // something in it may say what time was left, or that it was up
	rootCall     bool  // a call may have begun it
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
	j.reader.Reset()
	j.request.Settings = config.settings()
	j.allowed = finding.NewAllowed(config.AllowDetached)
	if j.allowed.Any() {
		j.async = func(call int32) bool { return j.allowed.Has(&j.tree, call) }
	}
	j.report = func(f finding.Finding) { // once: it is a value on the heap
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
	j.request.Plan, j.request.Restarts = budgets, nil
	j.from, j.of, j.resources, j.traces, j.members = j.from[:0], j.of[:0], j.resources[:0], j.traces[:0], j.members[:0]
	clear(j.number)
	j.choose(traces)
	j.group()
	j.counts.unjudged[reasonNoBudget] = int64(len(j.from) - len(j.order))
	if j.rootCalls {
		j.read(j.order)
		j.request.Restarts = &finding.Restarts{Allowed: j.allowed}
		j.request.Restarts.Collect(j.members)
		j.request.Restarts.Cover(j.members)
	}
	for i := range j.traces {
		g := &j.traces[i]
		if !g.read {
			continue
		}
		var members []trace.Span
		if j.rootCalls {
			members = j.members[g.first : g.first+g.count]
		} else {
			// Spans that are written soon after they are read are still in the
			// caches of the processor.
			j.members = j.members[:0]
			j.forget()
			j.read(j.order[g.first : g.first+g.count])
			members = j.members
		}
		if j.worthJudging(members) {
			j.judgeTrace(members)
		} else {
			j.counts.unjudged[reasonNoBudget] += int64(g.count)
		}
	}
	// Nothing of the batch but a few texts is kept alive until the next one comes.
	j.forget()
	clear(j.from)
	clear(j.resources)
	return j.counts
}

// forget gives up the spans that were read, and all names where there are too many.
func (j *judge) forget() {
	if j.reader.Reset() || j.paths.Len() > maxPaths {
		j.paths, j.hops, j.allowed = new(trace.Paths), nil, finding.NewAllowed(j.config.AllowDetached)
	}
}

// choose lists the spans that have ids and times, numbers their traces, and finds those in
// which a span may tell what there is to judge. In many systems most batches have no
// such trace, so this is what the processor costs them.
func (j *judge) choose(traces ptrace.Traces) {
	number, last := int32(-1), trace.TraceID{} // neighbours often share their trace
	for _, r := range traces.ResourceSpans().All() {
		at := int32(len(j.resources))
		j.resources = append(j.resources, resource{from: r.Resource()})
		for _, scope := range r.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				id := trace.TraceID(s.TraceID())
				if id.IsZero() || s.SpanID().IsEmpty() {
					j.counts.unjudged[reasonNoID]++
					continue
				}
				if !otlp.Times(s) {
					j.counts.unjudged[reasonNoDuration]++
					continue
				}
				if number < 0 || id != last {
					number, last = j.numberOf(id), id
				}
				j.from, j.of = append(j.from, s), append(j.of, origin{at, number})
				g := &j.traces[number]
				g.count++
				if k := s.Kind(); s.ParentSpanID().IsEmpty() && (k == ptrace.SpanKindClient || k == ptrace.SpanKindUnspecified) {
					g.rootCall = true
				}
				// Any span may be a hop of a plan. Without one a single span that tells
				// something is enough for its trace.
				g.read = g.read || j.request.Plan != nil || j.reader.Telling(s)
			}
		}
	}
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

// group orders the spans of the traces that are read by trace.
func (j *judge) group() {
	n := int32(0)
	j.rootCalls = false
	for i := range j.traces {
		if g := &j.traces[i]; g.read {
			g.first, n = n, n+g.count
			g.count = 0
			j.rootCalls = j.rootCalls || g.rootCall
		}
	}
	j.order = slices.Grow(j.order[:0], int(n))[:n]
	if n == 0 {
		return
	}
	for i, of := range j.of {
		if g := &j.traces[of.trace]; g.read {
			j.order[g.first+g.count] = int32(i)
			g.count++
		}
	}
}

// read adds spans to members.
func (j *judge) read(order []int32) {
	first := len(j.members)
	j.members = slices.Grow(j.members, len(order))[:first+len(order)]
	for k, i := range order {
		res := &j.resources[j.of[i].resource]
		if !res.read {
			res.is, res.read = j.reader.Resource(res.from), true
		}
		s := &j.members[first+k]
		j.reader.Span(s, j.from[i], res.is)
		s.Ref = i
	}
}

// worthJudging tells whether one of the spans of a trace can give a rule something
// to look at.
func (j *judge) worthJudging(members []trace.Span) bool {
	for i := range members {
		s := &members[i]
		if s.Stamp != nil && (s.Stamp.HasRemaining || s.Stamp.HasDeadline) ||
			s.Outcome == trace.OutcomeTimedOut || s.Outcome == trace.OutcomeCancelled {
			return true
		}
		if j.request.Plan == nil {
			continue
		}
		_, planned := j.request.Plan.Find("", s.Desc.Service, s.Desc.Operation)
		if !planned && s.Desc.Peer != "" {
			_, planned = j.request.Plan.Find("", s.Desc.Peer, s.Desc.Operation)
		}
		if planned {
			return true
		}
	}
	return false
}

func (j *judge) judgeTrace(members []trace.Span) {
	t := &j.trace
	t.Set(members)
	dropped, twice := len(members)-len(t.Spans), t.LeftOut[trace.NoteDuplicate]+t.LeftOut[trace.NoteConflict]
	j.counts.unjudged[reasonDuplicate] += int64(twice)
	j.counts.unjudged[reasonNoDuration] += int64(dropped - twice)
	if dropped > 0 {
		j.passDropped(members)
	}
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

// passDropped leaves the spans as they came that are not in the trace. Of two that are
// the same, a Collector before this one may have judged the other.
func (j *judge) passDropped(members []trace.Span) {
	kept := make(map[int32]bool, len(j.trace.Spans))
	for i := range j.trace.Spans {
		kept[j.trace.Spans[i].Ref] = true
	}
	for i := range members {
		if ref := members[i].Ref; !kept[ref] {
			takeBackVerdict(j.from[ref].Attributes())
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
	j.request.Reset(&j.tree, j.async)
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
