package profile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Decisions on what is asynchronous, what is a wrapper and how clocks differ
// need many traces; measuring needs the decisions. So traces are gone through
// twice: a Survey gathers evidence, Decide turns it into Rules, and a Collector
// measures under those Rules.

// asyncFloor is the least time by which a child must outlive its parent to
// count as not waited for, ns.
const asyncFloor = 300_000

// resolutions are the clock resolutions that are told apart, ns; 0 stands for
// anything finer than 1 ms.
var resolutions = [...]int64{0, 1e6, 1e7, 1e9}

// Endpoint names an entry operation.
type Endpoint struct{ Service, Operation string }

// EndpointOf returns the endpoint that a span with the given description enters.
func EndpointOf(d *trace.Desc) Endpoint { return Endpoint{d.Service, d.Operation} }

// String returns "service operation", or the one that is known.
func (e Endpoint) String() string { return strings.TrimSpace(e.Service + " " + e.Operation) }

func (e Endpoint) compare(o Endpoint) int {
	return cmp.Or(strings.Compare(e.Service, o.Service), strings.Compare(e.Operation, o.Operation))
}

// Survey is the evidence of many requests about their structure. Surveys of
// parts merge into the survey of the whole, in any order.
type Survey struct {
	endpoints map[Endpoint]*evidence
	traces    SamplingEvidence
	tree      trace.Tree
}

// SamplingEvidence counts traces by how they say they were sampled.
type SamplingEvidence struct {
	Traces      int
	Weighted    int // carry a valid `ot=th`
	Invalid     int // carry only an unreadable one
	TailSampled int // carry an attribute of a tail sampler
}

func (s *SamplingEvidence) add(o SamplingEvidence) {
	s.Traces += o.Traces
	s.Weighted += o.Weighted
	s.Invalid += o.Invalid
	s.TailSampled += o.TailSampled
}

// evidence is what is known of one endpoint.
type evidence struct {
	requests int
	paths    trace.Paths
	nodes    []pathEvidence // by path
	// answers tell by which path calls were answered. Where the SERVER span is
	// missing (the callee hung, or its export was lost) the CLIENT span is all
	// there is to tell what was called.
	answers map[clientHalf]int32
	// fits say for each call what the callee's clock may be off by: adding any
	// value of [Start, End] puts the callee inside the caller. Where Start is
	// after End nothing does.
	fits  map[fitKey][]trace.Interval
	whole [len(resolutions)]int
	times int // start times and durations looked at
}

// pathEvidence is what is known of one node of the merged tree.
type pathEvidence struct {
	calls int
	lost  int   // of them, those that did not end well
	total int64 // sum of durations

	// Against the nearest call that could wait for it, where that was OK:
	judged   int
	outlived [len(resolutions)]int // ended later than the parent by more than the tolerance
	detached [len(resolutions)]int // started later than the parent's end by more than it
	early    int                   // a SERVER span without CLIENT span that started before its parent: clocks differ

	answered bool // a SERVER span was seen

	wraps int // covered at least 90 % of the endpoint's span
}

func newEvidence() *evidence {
	return &evidence{answers: make(map[clientHalf]int32), fits: make(map[fitKey][]trace.Interval)}
}

// clientHalf is what a CLIENT span alone says of a call.
type clientHalf struct {
	parent          int32 // path of the caller
	peer, operation string
}

// severalPaths stands for calls that look alike to the caller but were answered
// by different operations.
const severalPaths int32 = -1

// fitKey names the calls of one path between two services: a path does not
// tell which service the CLIENT spans are of.
type fitKey struct {
	path int32
	pair servicePair
}

// NewSurvey returns an empty Survey.
func NewSurvey() *Survey { return &Survey{endpoints: make(map[Endpoint]*evidence)} }

// AddTrace counts how a trace was sampled. Every trace is added once.
func (s *Survey) AddTrace(t *trace.Trace) { s.traces.add(samplingOf(t)) }

// samplingOf is the evidence of one trace.
func samplingOf(t *trace.Trace) SamplingEvidence {
	e := SamplingEvidence{Traces: 1}
	switch t.Sampling {
	case trace.SamplingKnown:
		e.Weighted = 1
	case trace.SamplingInvalid:
		e.Invalid = 1
	}
	for i := range t.Spans {
		if t.Spans[i].Is(trace.FlagTailSampled) {
			e.TailSampled = 1
			break
		}
	}
	return e
}

// Add takes the evidence of the request that enters t at span entry. It returns
// false where the entry cannot be measured.
func (s *Survey) Add(t *trace.Trace, entry int32) bool {
	key := EndpointOf(t.Spans[entry].Desc)
	ev := s.endpoints[key]
	if ev == nil {
		ev = newEvidence()
		s.endpoints[key] = ev
	}
	tree := &s.tree
	tree.Build(t, entry, &ev.paths, nil)
	if len(tree.Calls) == 0 {
		return false
	}
	ev.requests++
	if n := ev.paths.Len(); n > len(ev.nodes) {
		ev.nodes = append(ev.nodes, make([]pathEvidence, n-len(ev.nodes))...)
	}
	root := &tree.Calls[0]
	for i := range tree.Calls {
		c := &tree.Calls[i]
		p := &ev.nodes[c.Path]
		p.calls++
		p.total = add(p.total, c.Duration())
		ev.resolution(t.Spans[c.Span].Start)
		ev.resolution(t.Spans[c.Span].Duration)
		if i == 0 {
			continue
		}
		if c.Kind == trace.CallStage && 10*c.Duration() >= 9*root.Duration() {
			p.wraps++
		}
		if c.Outcome != trace.OutcomeOK {
			p.lost++
		}
		p.answered = p.answered || t.Spans[c.Callee].Kind == trace.KindServer
		if c.Callee != c.Span {
			desc := t.Spans[c.Span].Desc
			ev.addAnswer(clientHalf{tree.Calls[c.Parent].Path, desc.Peer, desc.Operation}, c.Path)
		}
		p.judge(tree, c)
		ev.fit(tree, c)
	}
	return true
}

// addAnswer notes that a call was answered by the SERVER spans of path.
func (ev *evidence) addAnswer(half clientHalf, path int32) {
	if known, ok := ev.answers[half]; ok && known != path {
		path = severalPaths
	}
	ev.answers[half] = path
}

// resolution counts of which whole units a time is a multiple.
func (ev *evidence) resolution(ns int64) {
	ev.times++
	for r := 1; r < len(resolutions) && ns%resolutions[r] == 0; r++ {
		ev.whole[r]++
	}
}

// judge compares a call with the one that could wait for it.
//
//	parent |----------------|
//	child            |-----------------|      outlived
//	child                        |-----|      detached
func (p *pathEvidence) judge(tree *trace.Tree, c *trace.Call) {
	if c.Kind == trace.CallAsync {
		return // known by its kind
	}
	owner := &tree.Calls[c.Parent]
	if owner.Kind == trace.CallStage {
		owner = &tree.Calls[owner.Parent] // a stage may turn out to be transparent
	}
	spans := tree.Trace.Spans
	parent, child := &spans[owner.Callee], &spans[c.Span]
	if parent.Outcome != trace.OutcomeOK {
		return // today's timeout cut the parent, not the child
	}
	p.judged++
	tolerance := max(parent.Duration/100, asyncFloor)
	if c.ServerOnly && parent.Desc.Service != child.Desc.Service && child.Start < parent.Start-tolerance {
		p.early++
	}
	for r, resolution := range resolutions {
		limit := parent.End() + max(tolerance, 2*resolution)
		if child.End() > limit {
			p.outlived[r]++
		}
		if child.Start > limit {
			p.detached[r]++
		}
	}
}

// fit notes which shifts of the callee's clock put it inside the caller.
func (ev *evidence) fit(tree *trace.Tree, c *trace.Call) {
	spans := tree.Trace.Spans
	var caller, callee *trace.Span
	switch {
	case c.Kind == trace.CallAsync:
		return
	case c.Callee != c.Span:
		caller, callee = &spans[c.Span], &spans[c.Callee]
	case c.ServerOnly:
		caller, callee = &spans[tree.Calls[c.Parent].Callee], &spans[c.Span]
	default:
		return
	}
	if sameClock(caller.Desc, callee.Desc) {
		return
	}
	key := fitKey{c.Path, servicePair{caller.Desc.Service, callee.Desc.Service}}
	ev.fits[key] = append(ev.fits[key], trace.Interval{Start: caller.Start - callee.Start, End: caller.End() - callee.End()})
}

// sameClock tells whether two processes read one clock: one service, or one
// host where both name theirs.
func sameClock(a, b *trace.Desc) bool {
	return a.Service == b.Service || a.Host != "" && a.Host == b.Host
}

// Merge adds the evidence of other, which stays as it is.
func (s *Survey) Merge(other *Survey) {
	s.traces.add(other.traces)
	for key, o := range other.endpoints {
		ev := s.endpoints[key]
		if ev == nil {
			ev = newEvidence()
			s.endpoints[key] = ev
		}
		ev.merge(o)
	}
}

func (ev *evidence) merge(o *evidence) {
	ev.requests += o.requests
	ev.times += o.times
	for r := range ev.whole {
		ev.whole[r] += o.whole[r]
	}
	mine := make([]int32, o.paths.Len()) // node of ev for each node of o
	for i := range mine {
		parent, key := o.paths.At(int32(i))
		if parent >= 0 {
			parent = mine[parent]
		}
		mine[i] = ev.paths.Child(parent, key)
		if n := ev.paths.Len(); n > len(ev.nodes) {
			ev.nodes = append(ev.nodes, make([]pathEvidence, n-len(ev.nodes))...)
		}
		ev.nodes[mine[i]].merge(&o.nodes[i])
	}
	for half, path := range o.answers {
		half.parent = mine[half.parent]
		if path != severalPaths {
			path = mine[path]
		}
		ev.addAnswer(half, path)
	}
	for key, fits := range o.fits {
		key.path = mine[key.path]
		ev.fits[key] = append(ev.fits[key], fits...)
	}
}

func (p *pathEvidence) merge(o *pathEvidence) {
	p.calls += o.calls
	p.total = add(p.total, o.total)
	p.judged += o.judged
	p.early += o.early
	p.wraps += o.wraps
	p.answered = p.answered || o.answered
	p.lost += o.lost
	for r := range p.outlived {
		p.outlived[r] += o.outlived[r]
		p.detached[r] += o.detached[r]
	}
}

// Sampling returns how the traces were sampled.
func (s *Survey) Sampling() SamplingEvidence { return s.traces }

// Count is an endpoint and how many requests entered there.
type Count struct {
	Endpoint
	Requests int
}

// Endpoints returns all endpoints, the busiest first; ties in order of name.
func (s *Survey) Endpoints() []Count {
	out := make([]Count, 0, len(s.endpoints))
	for e, ev := range s.endpoints {
		if ev.requests > 0 {
			out = append(out, Count{e, ev.requests})
		}
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), a.compare(b.Endpoint))
	})
	return out
}
