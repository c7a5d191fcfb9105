package trace

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Notes of entries and call trees. All but NoteEntry say what was left out.
const (
	NoteEntry      NoteKind = "entry_parent_missing" // an entry whose own parent is not in the export (a gateway, a mesh, a browser)
	NoteNoRoot     NoteKind = "no_root"              // a topmost span that is neither root nor SERVER nor CONSUMER; left out with its sub-tree
	NoteIncomplete NoteKind = "incomplete"           // a trace whose orphans cover more than 5 % of its root; left out
	NoteOutside    NoteKind = "outside_entry"        // spans above or beside the entry (load generator, browser); left out
)

// orphanShare is the share of the root's duration that orphans may cover
// before the trace counts as incomplete.
const orphanShare = 0.05

// Entries returns the spans whose budget is split, in span order: on each way
// down from a root the first SERVER span, or the root itself where it is a
// SERVER or CONSUMER or where no SERVER is found at all. A trace without any
// root is entered at its topmost SERVER and CONSUMER spans. Spans that no entry
// reaches are added to LeftOut and Notes.
func (t *Trace) Entries() []int32 {
	if len(t.Spans) == 0 {
		return nil
	}
	var roots, orphans []int32
	for i, p := range t.Parent {
		switch p {
		case NoParent:
			roots = append(roots, int32(i))
		case LostParent:
			orphans = append(orphans, int32(i))
		}
	}
	seen := t.unseen() // reached from an entry, or already accounted for
	var entries []int32
	if len(roots) == 0 {
		for _, o := range orphans {
			switch t.Spans[o].Kind {
			case KindServer, KindConsumer:
				entries = append(entries, o)
				t.Notes.Add(NoteEntry, 1, t.name(o), "")
				t.mark(o, seen)
			default:
				t.leaveOut(NoteNoRoot, o, seen)
			}
		}
		return entries
	}
	if t.orphansCoverTooMuch(roots, orphans) {
		t.drop(NoteIncomplete, len(t.Spans), t.ID.String())
		return nil
	}
	for _, o := range orphans {
		t.leaveOut(NoteMissingParent, o, seen)
	}
	for _, r := range roots {
		found := t.entriesBelow(r)
		if len(found) == 0 {
			found = []int32{r}
		}
		for _, e := range found {
			t.mark(e, seen)
		}
		entries = append(entries, found...)
	}
	slices.Sort(entries)
	for i := range seen {
		if !seen[i] {
			t.LeftOut[NoteOutside]++
			t.Notes.Add(NoteOutside, 1, t.name(int32(i)), "")
		}
	}
	return entries
}

// NoteNotSelected marks spans of requests that the user did not ask for; left out.
const NoteNotSelected NoteKind = "not_selected"

// Select returns the spans at or below the given entries that one of the matches
// asks for, so that an operation can be looked at that is nobody's entry. Each
// match finds its topmost spans alone. A trace's SERVER, CONSUMER and entry spans
// come first: only where none of them matches are the others asked. Spans that
// no selected one reaches are added to LeftOut.
func (t *Trace) Select(entries []int32, matches ...func(*Desc) bool) []int32 {
	find := func(match func(*Desc) bool, anyKind bool) (found []int32) {
		for _, e := range entries {
			stack := t.stack[:0]
			stack = append(stack, e)
			for len(stack) > 0 {
				i := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				s := &t.Spans[i]
				if (anyKind || i == e || s.Kind == KindServer || s.Kind == KindConsumer) && match(s.Desc) {
					found = append(found, i)
					continue
				}
				stack = append(stack, t.Children(i)...)
			}
			t.stack = stack
		}
		return found
	}
	var selected []int32
	for _, match := range matches {
		found := find(match, false)
		if len(found) == 0 {
			found = find(match, true)
		}
		selected = append(selected, found...)
	}
	slices.Sort(selected)
	selected = slices.Compact(selected)
	missed := t.Reach(entries...) - t.Reach(selected...)
	if missed > 0 {
		t.drop(NoteNotSelected, missed, t.ID.String())
	}
	return selected
}

// entriesBelow finds the first SERVER on each way down. A queue on the way ends
// the search: nobody waits for what lies behind it.
func (t *Trace) entriesBelow(root int32) []int32 {
	var found []int32
	stack := t.stack[:0]
	stack = append(stack, root)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		switch k := t.Spans[i].Kind; {
		case k == KindServer, k == KindConsumer && i == root:
			found = append(found, i)
			continue
		case k == KindConsumer, k == KindProducer && i != root:
			continue
		}
		children := t.Children(i)
		for c := len(children) - 1; c >= 0; c-- {
			stack = append(stack, children[c])
		}
	}
	t.stack = stack
	return found
}

// unseen returns a mark for each span, none of them set. It is valid until the
// next call.
func (t *Trace) unseen() []bool {
	t.seen = append(t.seen[:0], make([]bool, len(t.Spans))...)
	return t.seen
}

// walk visits i and everything below it, parents first. visit must not walk.
func (t *Trace) walk(i int32, visit func(int32)) {
	stack := t.stack[:0]
	stack = append(stack, i)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		visit(i)
		stack = append(stack, t.Children(i)...)
	}
	t.stack = stack
}

// Reach counts the spans that are one of the given or below one, each once.
func (t *Trace) Reach(tops ...int32) int {
	seen := t.unseen()
	n := 0
	for _, top := range tops {
		if !seen[top] {
			t.walk(top, func(i int32) {
				if !seen[i] {
					seen[i] = true
					n++
				}
			})
		}
	}
	return n
}

func (t *Trace) mark(i int32, seen []bool) { t.walk(i, func(j int32) { seen[j] = true }) }

func (t *Trace) leaveOut(kind NoteKind, top int32, seen []bool) {
	t.Notes.Add(kind, 1, t.name(top), "")
	t.walk(top, func(j int32) {
		seen[j] = true
		t.LeftOut[kind]++
	})
}

// orphansCoverTooMuch compares the time covered by topmost orphans that
// somebody waits for with the longest root.
func (t *Trace) orphansCoverTooMuch(roots, orphans []int32) bool {
	var longest, covered, until int64
	for _, r := range roots {
		if s := &t.Spans[r]; !s.Is(FlagUnmeasured) {
			longest = max(longest, s.Duration)
		}
	}
	first := true
	for _, o := range orphans { // in order of start
		s := &t.Spans[o]
		if s.Is(FlagUnmeasured) || s.Kind == KindProducer || s.Kind == KindConsumer || s.Is(FlagFollowsFrom) {
			continue
		}
		from := s.Start
		if !first {
			from = max(from, until)
		}
		if s.End() > from {
			covered += s.End() - from
		}
		if first || s.End() > until {
			until = s.End()
		}
		first = false
	}
	return float64(covered) > orphanShare*float64(longest)
}

// CallKind says what a node of the call tree stands for.
type CallKind uint8

// The kinds of node.
const (
	CallRoot  CallKind = iota // the entry
	CallRPC                   // a CLIENT span with its SERVER span, or either alone
	CallStage                 // an INTERNAL span right under the entry span
	CallStep                  // a leaf of the owner's service that was found to be a step
	CallAsync                 // PRODUCER, CONSUMER, follows-from: nobody waits for it
)

// Call is one node of the call tree of one request.
//
//	CLIENT |----------- duration -----------|    the caller's clock, with the network
//	SERVER      |------------------|             net = CLIENT - SERVER
type Call struct {
	Path   int32 // node of the merged tree, from Paths
	Parent int32 // index of the parent call; -1 for the entry
	Span   int32 // span that was measured: the CLIENT half, or the only half
	Callee int32 // span on the callee's side: the SERVER half, or Span
	Maker  int32 // span whose work the call is part of: the nearest measured SERVER or CONSUMER above it, else the entry
	Kind   CallKind
	// Start and End are Unix ns on the clock of the entry, after the skew shifts.
	Start, End int64
	// Shift is what was added to the callee's clock for this call alone, ns.
	Shift int64
	// Attempts are the tries that were reported inside the call, 1 if none.
	// LongestAttempt is the longest of them, LongestPause the longest time from the
	// end of those before to the start of the next, -1 if there is none; both ns.
	Attempts       int32
	LongestAttempt int64
	LongestPause   int64
	Outcome        Outcome
	Final          bool // what comes after it is no retry: see FlagFinal
	ServerOnly     bool // a SERVER span of another service without CLIENT span: network time is missing
	Stream         bool // one of its halves or attempts is a stream of messages: see FlagStream
}

// maxBackoff is the longest pause after a failed call in which the next one like it
// still counts as its retry, ns.
const maxBackoff = 1_000_000_000

// RetriedAfter tells whether a call like this one that starts a pause (ns) after its end
// counts as its retry.
func (c *Call) RetriedAfter(pause int64) bool {
	return c.Outcome != OutcomeOK && !c.Final && pause >= 0 && pause <= maxBackoff
}

// Duration returns End-Start.
func (c *Call) Duration() int64 { return c.End - c.Start }

// Key names a node of the merged tree below its parent.
type Key struct {
	Service   string // callee
	Operation string
	Kind      CallKind
}

// Paths numbers the nodes of the merged call tree: one for each way from the
// entry operation down, so that the same operation reached by two ways has two
// nodes. Node numbers depend on the order of arrival; content does not.
type Paths struct {
	nodes []pathNode
	index map[pathKey]int32
}

type pathNode struct {
	parent int32
	key    Key
}

type pathKey struct {
	parent int32
	key    Key
}

// Child returns the node for key below parent (-1: an entry), making it if it
// is new.
func (p *Paths) Child(parent int32, key Key) int32 {
	pk := pathKey{parent, key}
	if n, ok := p.index[pk]; ok {
		return n
	}
	if p.index == nil {
		p.index = make(map[pathKey]int32)
	}
	n := int32(len(p.nodes))
	p.nodes = append(p.nodes, pathNode{parent, key})
	p.index[pk] = n
	return n
}

// Find returns the node for key below parent, if there is one.
func (p *Paths) Find(parent int32, key Key) (node int32, ok bool) {
	node, ok = p.index[pathKey{parent, key}]
	return node, ok
}

// Len returns the number of nodes; parents have smaller numbers than children.
func (p *Paths) Len() int { return len(p.nodes) }

// At returns parent and key of a node.
func (p *Paths) At(node int32) (parent int32, key Key) {
	n := p.nodes[node]
	return n.parent, n.key
}

// Ranks numbers the nodes by content: it does not depend on their order of
// arrival. Parents rank before their children.
func (p *Paths) Ranks() []int32 {
	order := make([]int32, len(p.nodes))
	depth := make([]int32, len(p.nodes))
	for i, n := range p.nodes {
		order[i] = int32(i)
		if n.parent >= 0 {
			depth[i] = depth[n.parent] + 1
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(depth[a], depth[b]) })
	rank := make([]int32, len(p.nodes))
	for first := 0; first < len(order); {
		last := first + 1
		for last < len(order) && depth[order[last]] == depth[order[first]] {
			last++
		}
		level := order[first:last]
		slices.SortFunc(level, func(a, b int32) int {
			x, y := p.nodes[a], p.nodes[b]
			if x.parent != y.parent { // both are on the level above and have their rank
				return cmp.Compare(rank[x.parent], rank[y.parent])
			}
			return x.key.Compare(y.key)
		})
		for i, node := range level {
			rank[node] = int32(first + i)
		}
		first = last
	}
	return rank
}

// Compare orders keys by service, operation and kind.
func (k Key) Compare(o Key) int {
	return cmp.Or(strings.Compare(k.Service, o.Service), strings.Compare(k.Operation, o.Operation),
		cmp.Compare(k.Kind, o.Kind))
}

// Interval is a span of time, ns.
type Interval struct{ Start, End int64 }

// Skew returns what to add to the clock of a callee's side: path is the call's
// node, caller and callee describe the two processes, p is the caller's and s
// the callee's interval as they were recorded. Nil means no correction.
type Skew func(path int32, caller, callee *Desc, p, s Interval) int64

// Tree is the call tree of one request, in preorder. It is reused by Build.
type Tree struct {
	Trace *Trace
	Calls []Call
	stack []pending
}

// pending is a span that is still to be visited.
type pending struct {
	span   int32
	owner  int32 // call that the span works for
	maker  int32 // as in Call
	shift  int64 // to add to the span's clock
	client bool  // the span's parent is a CLIENT span that was folded into owner
}

// Build makes the call tree of the request that enters trace t at span entry.
// A CLIENT span and the SERVER spans right under it are one call; so are a
// CLIENT span and its attempts, see [Trace.IsAttempt]; this holds for an entry, too.
// INTERNAL and unmeasured spans are transparent: what they called belongs to the
// call they worked for. An entry that is unmeasured has no tree: Calls is empty.
func (tr *Tree) Build(t *Trace, entry int32, paths *Paths, skew Skew) {
	tr.Trace = t
	tr.Calls = tr.Calls[:0]
	root := &t.Spans[entry]
	if root.Is(FlagUnmeasured) {
		return
	}
	call := Call{
		Path:   paths.Child(-1, Key{Service: root.Desc.Service, Operation: root.Desc.Operation}),
		Parent: -1, Span: entry, Callee: entry, Maker: entry, Start: root.Start, End: root.End(),
		Attempts: 1, LongestAttempt: root.Duration, LongestPause: -1,
		Outcome: root.Outcome, Final: root.Is(FlagFinal), Stream: root.Is(FlagStream),
	}
	tr.stack = tr.stack[:0]
	if root.Kind == KindClient {
		if server := tr.foldedServer(entry, &call); server >= 0 {
			call.Callee = server
			call.Shift = tr.shift(call.Path, entry, server, skew)
		}
	}
	tr.Calls = append(tr.Calls, call)
	tr.push(entry, pending{maker: entry, client: root.Kind == KindClient})
	for len(tr.stack) > 0 {
		at := tr.stack[len(tr.stack)-1]
		tr.stack = tr.stack[:len(tr.stack)-1]
		tr.visit(at, entry, paths, skew)
	}
}

// push queues the children of a span, the earliest on top; each gets the rest
// of its pending value from like.
func (tr *Tree) push(span int32, like pending) {
	if s := &tr.Trace.Spans[span]; (s.Kind == KindServer || s.Kind == KindConsumer) && !s.Is(FlagUnmeasured) {
		like.maker = span
	}
	children := tr.Trace.Children(span)
	for c := len(children) - 1; c >= 0; c-- {
		like.span = children[c]
		tr.stack = append(tr.stack, like)
	}
}

func (tr *Tree) visit(at pending, entry int32, paths *Paths, skew Skew) {
	t := tr.Trace
	s := &t.Spans[at.span]
	kind := CallRPC
	switch {
	case s.Is(FlagUnmeasured):
		tr.push(at.span, at)
		return
	case at.client && t.isHalf(at.span):
		tr.push(at.span, pending{owner: at.owner, maker: at.maker, shift: at.shift + tr.Calls[at.owner].Shift})
		return
	case at.client && (t.IsAttempt(at.span) || t.isPart(at.span)):
		tr.push(at.span, at)
		return
	case s.Kind == KindProducer, s.Kind == KindConsumer, s.Is(FlagFollowsFrom):
		kind = CallAsync
	case t.step[at.span]:
		kind = CallStep
	case s.Kind == KindInternal && t.Parent[at.span] == entry:
		kind = CallStage
	case s.Kind == KindInternal:
		tr.push(at.span, pending{owner: at.owner, maker: at.maker, shift: at.shift})
		return
	}
	call := Call{
		Parent: at.owner, Span: at.span, Callee: at.span, Maker: at.maker, Kind: kind,
		Start: s.Start + at.shift, End: s.End() + at.shift,
		Attempts: 1, LongestAttempt: s.Duration, LongestPause: -1,
		Outcome: s.Outcome, Final: s.Is(FlagFinal), Stream: s.Is(FlagStream),
	}
	owner := &tr.Calls[at.owner]
	caller := &t.Spans[owner.Callee]
	key := Key{Operation: s.Desc.Operation, Service: s.Desc.Service, Kind: kind}
	server := int32(-1)
	if kind == CallRPC && s.Kind == KindClient {
		server = tr.foldedServer(at.span, &call)
		if server >= 0 {
			call.Callee = server
			key.Service, key.Operation = t.Spans[server].Desc.Service, t.Spans[server].Desc.Operation
		} else {
			key.Service = s.Desc.Peer
		}
	}
	if kind == CallAsync && (s.Kind == KindProducer || s.Kind == KindClient) && s.Desc.Peer != "" {
		key.Service = s.Desc.Peer
	}
	call.Path = paths.Child(owner.Path, key)
	down := at.shift
	switch {
	case skew == nil || kind == CallAsync: // clocks are taken as they are
	case server >= 0:
		call.Shift = tr.shift(call.Path, at.span, server, skew)
		down += call.Shift
	case s.Kind == KindServer && caller.Desc.Service != s.Desc.Service:
		call.Shift = skew(call.Path, caller.Desc, s.Desc, Interval{caller.Start, caller.End()}, Interval{s.Start, s.End()})
		down += call.Shift
		call.Start, call.End = call.Start+call.Shift, call.End+call.Shift
	}
	call.ServerOnly = kind == CallRPC && s.Kind == KindServer && caller.Desc.Service != s.Desc.Service
	index := int32(len(tr.Calls))
	tr.Calls = append(tr.Calls, call)
	if kind == CallRPC && s.Kind == KindClient {
		tr.push(at.span, pending{owner: index, maker: at.maker, shift: at.shift, client: true})
	} else {
		tr.push(at.span, pending{owner: index, maker: at.maker, shift: down})
	}
}

// shift is what to add to the clock of the SERVER half of a call.
func (tr *Tree) shift(path, client, server int32, skew Skew) int64 {
	if skew == nil {
		return 0
	}
	s, half := &tr.Trace.Spans[client], &tr.Trace.Spans[server]
	return skew(path, s.Desc, half.Desc, Interval{s.Start, s.End()}, Interval{half.Start, half.End()})
}

// IsAttempt tells whether a span is one try of the logical call that its parent
// reports: a measured CLIENT or INTERNAL span for the same operation right under a
// CLIENT span of the same service, as gRPC makes them. A CLIENT span for another
// operation is a call of its own, such as those of a database library.
//
//	Sent.m    |--------------------------|
//	Attempt.m |-----| |-----|  |---------|
func (t *Trace) IsAttempt(child int32) bool {
	p, c := &t.Spans[t.Parent[child]], &t.Spans[child]
	return p.Kind == KindClient && (c.Kind == KindClient || c.Kind == KindInternal) &&
		!c.Is(FlagFollowsFrom) && !c.Is(FlagUnmeasured) && p.Desc.Service == c.Desc.Service && p.Desc.Operation == c.Desc.Operation
}

// isPart tells whether a span below a CLIENT span reports a part of the call,
// such as a connect or a wrapper around the request that was sent.
func (t *Trace) isPart(child int32) bool {
	p, c := &t.Spans[t.Parent[child]], &t.Spans[child]
	return c.Kind == KindInternal && p.Desc.Service == c.Desc.Service && !c.Is(FlagFollowsFrom) && !t.step[child]
}

// isHalf tells whether a span below a CLIENT span is its SERVER half.
func (t *Trace) isHalf(child int32) bool {
	c := &t.Spans[child]
	return c.Kind == KindServer && !c.Is(FlagUnmeasured) && !c.Is(FlagFollowsFrom)
}

// foldedServer looks for the SERVER half of a CLIENT span, under it, its attempts
// and its parts: the half that ended last is the one that answered. It
// sets what is known of attempts and of streams.
func (tr *Tree) foldedServer(client int32, call *Call) int32 {
	t := tr.Trace
	server := int32(-1)
	base := len(tr.stack) // the attempts still to be looked into lie above
	tr.stack = append(tr.stack, pending{span: client})
	for len(tr.stack) > base {
		at := tr.stack[len(tr.stack)-1].span
		tr.stack = tr.stack[:len(tr.stack)-1]
		attempts, longest, pause, until := int32(0), int64(0), int64(-1), int64(math.MaxInt64)
		for _, c := range t.Children(at) {
			switch {
			case t.isHalf(c):
				call.Stream = call.Stream || t.Spans[c].Is(FlagStream)
				if server < 0 || t.Spans[c].End() > t.Spans[server].End() {
					server = c
				}
			case t.Spans[c].Is(FlagUnmeasured):
				tr.stack = append(tr.stack, pending{span: c})
			case t.IsAttempt(c):
				try := &t.Spans[c]
				call.Stream = call.Stream || try.Is(FlagStream)
				if try.Start >= until {
					pause = max(pause, try.Start-until)
				}
				if attempts == 0 || try.End() > until {
					until = try.End()
				}
				attempts++
				longest = max(longest, try.Duration)
				tr.stack = append(tr.stack, pending{span: c})
			case t.isPart(c):
				tr.stack = append(tr.stack, pending{span: c})
			}
		}
		if attempts > call.Attempts || attempts > 0 && at == client {
			call.Attempts, call.LongestAttempt, call.LongestPause = attempts, longest, pause
		}
	}
	return server
}

// String returns "service operation", or the one that is known.
func (k Key) String() string { return strings.TrimSpace(k.Service + " " + k.Operation) }
