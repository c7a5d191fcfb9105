package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Defaults of Options.
const (
	DefaultMaxHops = 200
	DefaultSample  = 200_000
)

// Options are the choices of the user about structure.
type Options struct {
	MaxHops    int  // hops of one endpoint, the rest becomes "other"; 0: DefaultMaxHops
	Sample     int  // whole requests kept for replay; 0: DefaultSample
	Steps      bool // give same-service leaves a row of their own
	Unweighted bool // ignore sampling thresholds
}

// Rules are the decisions that hold for all traces of one analysis.
type Rules struct {
	options   Options
	weighted  bool
	skew      map[servicePair]offset
	endpoints map[Endpoint]*layout
}

type servicePair struct{ caller, callee string }

// offset is what one service's clock is off by against another's.
type offset struct {
	shift int64 // to add to the callee's clock; 0 where no shift explains all traces
}

// layout is the merged tree of one endpoint: which hop each path belongs to.
type layout struct {
	paths      *trace.Paths
	hopOf      []int32 // by path; transparent where it has no hop
	async      []bool  // by path: not waited for, itself or an ancestor
	hops       []hopDef
	resolution int64
	folded     int // operations that went into "other"
}

// transparent marks a path without a hop: its calls belong to the caller.
const transparent int32 = -1

// hopDef is a hop before anything is measured.
type hopDef struct {
	parent int32
	key    trace.Key
	kind   HopKind
	other  bool // stands for all operations over MaxHops below its parent
	timed  bool // asynchronous by its times alone
}

// Shift says how far one service's clock was found to be off.
type Shift struct {
	Caller, Callee string
	Offset         int64 // added to the callee's times, ns
}

// OtherOperation is the operation of the hop that stands for all operations
// over Options.MaxHops below one parent.
const OtherOperation = "other"

// Decide turns evidence into rules. It does not depend on the order in which
// the evidence came.
func (s *Survey) Decide(o Options) *Rules {
	o.MaxHops = cmp.Or(o.MaxHops, DefaultMaxHops)
	o.Sample = cmp.Or(o.Sample, DefaultSample)
	r := &Rules{options: o, weighted: s.traces.Weighted > 0 && !o.Unweighted, endpoints: make(map[Endpoint]*layout)}
	fits := make(map[servicePair][]trace.Interval)
	for key, ev := range s.endpoints {
		if ev.requests == 0 {
			continue
		}
		l := ev.layout(o)
		r.endpoints[key] = l
		for at, f := range ev.fits {
			if !l.async[at.path] {
				fits[at.pair] = append(fits[at.pair], f...)
			}
		}
	}
	r.skew = make(map[servicePair]offset, len(fits))
	for pair, f := range fits {
		r.skew[pair] = commonOffset(f)
	}
	return r
}

// trimmed is the share of observations dropped on each side before the shifts
// that explain all traces are intersected: 1/200.
const trimmed = 200

// commonOffset is the middle of the shifts that put every callee inside its
// caller, 0 where no shift is needed or none does.
//
//	trace 1   [---------]
//	trace 2       [-----------]
//	trace 3     [--------]
//	common        [---]            0 outside of it: the clocks differ
func commonOffset(fits []trace.Interval) offset {
	lows := make([]int64, 0, len(fits))
	highs := make([]int64, 0, len(fits))
	for _, f := range fits {
		if f.Start <= f.End { // a callee longer than its caller fits nowhere and says nothing
			lows = append(lows, f.Start)
			highs = append(highs, f.End)
		}
	}
	if len(lows) == 0 {
		return offset{}
	}
	slices.Sort(lows)
	slices.Sort(highs)
	drop := len(lows) / trimmed
	lo, hi := lows[len(lows)-1-drop], highs[drop]
	if lo > hi || lo <= 0 && hi >= 0 {
		return offset{}
	}
	return offset{shift: lo + (hi-lo)/2}
}

// Shifts returns the clocks that were found to be off, ordered by name.
func (r *Rules) Shifts() []Shift {
	var out []Shift
	for pair, o := range r.skew {
		if o.shift != 0 {
			out = append(out, Shift{pair.caller, pair.callee, o.shift})
		}
	}
	slices.SortFunc(out, func(a, b Shift) int {
		return cmp.Or(strings.Compare(a.Caller, b.Caller), strings.Compare(a.Callee, b.Callee))
	})
	return out
}

// Weighted tells whether traces count by their sampling threshold. Then traces
// without one are left out.
func (r *Rules) Weighted() bool { return r.weighted }

// Folded returns how many operations of an endpoint went into "other".
func (r *Rules) Folded(e Endpoint) int {
	if l := r.endpoints[e]; l != nil {
		return l.folded
	}
	return 0
}

// shift is the trace.Skew of these rules: the common offset of the two
// services, and where that does not put the callee inside the caller, the
// middle of what would. A callee longer than its caller is left to be clipped.
func (r *Rules) shift(l *layout) trace.Skew {
	return func(path int32, caller, callee *trace.Desc, p, s trace.Interval) int64 {
		if sameClock(caller, callee) || int(path) < len(l.async) && l.async[path] {
			return 0
		}
		common := r.skew[servicePair{caller.Service, callee.Service}].shift
		lo, hi := p.Start-s.Start, p.End-s.End
		if lo > hi || lo <= common && common <= hi {
			return common
		}
		return lo + (hi-lo)/2
	}
}

// enoughTimes is how many times must have been looked at to tell a coarse clock
// from a few round numbers.
const enoughTimes = 100

// layout decides the merged tree of an endpoint.
func (ev *evidence) layout(o Options) *layout {
	l := &layout{paths: &ev.paths}
	which := 0
	for r := 1; r < len(resolutions); r++ {
		if ev.times >= enoughTimes && ev.whole[r]*100 >= ev.times*99 {
			which = r
		}
	}
	l.resolution = resolutions[which]
	n := ev.paths.Len()
	l.async = make([]bool, n)
	l.hopOf = make([]int32, n)
	gone := make([]bool, n) // transparent whatever MaxHops is
	for i := range n {
		parent, key := ev.paths.At(int32(i))
		p := &ev.nodes[i]
		l.async[i] = key.Kind == trace.CallAsync || parent >= 0 && l.async[parent] || p.async(which)
		gone[i] = key.Kind == trace.CallStep && !o.Steps || key.Kind == trace.CallStage && p.wrapper()
	}
	kept := ev.keep(gone, l.async, o.MaxHops)
	same := ev.unanswered()
	type hopKey struct {
		parent int32
		key    trace.Key
		async  bool
		other  bool
	}
	index := make(map[hopKey]int32)
	owner := make([]int32, n) // hop that the calls of a path belong to, or are
	for i := range n {
		parent, _ := ev.paths.At(int32(i))
		_, key := ev.paths.At(same[i])
		up := int32(-1)
		if parent >= 0 {
			up = owner[parent]
		}
		if gone[i] || !kept[i] && key.Kind == trace.CallStep || up >= 0 && l.hops[up].other {
			owner[i], l.hopOf[i] = up, transparent
			if !gone[i] {
				l.folded++
			}
			continue
		}
		async := l.async[same[i]] || up >= 0 && l.hops[up].kind == KindAsync
		hk := hopKey{up, key, async, false}
		if !kept[same[i]] {
			hk.key, hk.other = trace.Key{Operation: OtherOperation, Kind: trace.CallRPC}, true
			l.folded++
		}
		h, ok := index[hk]
		if !ok {
			h = int32(len(l.hops))
			index[hk] = h
			l.hops = append(l.hops, hopDef{parent: up, key: hk.key, kind: hopKind(hk.key.Kind, hk.async), other: hk.other})
		}
		owner[i], l.hopOf[i] = h, h
		l.hops[h].timed = l.hops[h].timed || key.Kind != trace.CallAsync && ev.nodes[i].async(which)
	}
	return l
}

// unanswered finds, for each path, the path whose calls it belongs to: itself,
// or for calls without any SERVER half that mostly did not end well, the one that
// answered where the CLIENT halves have the same peer and operation. Calls that
// do end well without SERVER half were answered by somebody who makes no spans.
//
//	CLIENT Score |----------|       the callee is known: risk
//	SERVER Score   |------|
//	CLIENT Score |----timeout----|  risk again, though its span is missing
func (ev *evidence) unanswered() []int32 {
	same := make([]int32, len(ev.nodes))
	for i := range same {
		same[i] = int32(i)
		parent, key := ev.paths.At(int32(i))
		if key.Kind != trace.CallRPC || ev.nodes[i].answered || 2*ev.nodes[i].lost < ev.nodes[i].calls {
			continue
		}
		if path, ok := ev.answers[clientHalf{parent, key.Service, key.Operation}]; ok && path != severalPaths {
			same[i] = path
		}
	}
	return same
}

func hopKind(k trace.CallKind, async bool) HopKind {
	switch {
	case k == trace.CallRoot:
		return KindRoot
	case async:
		return KindAsync
	case k == trace.CallStage:
		return KindStage
	case k == trace.CallStep:
		return KindStep
	}
	return KindCall
}

// async tells whether nobody waits for the calls of a path: they outlived an
// OK parent in 20 % of at least 5 calls, or started after its end in half of
// them. SERVER spans on another clock that also start before their parent (in
// 5 % of the calls) are no evidence: the clocks differ.
func (p *pathEvidence) async(resolution int) bool {
	if p.judged == 0 || 20*p.early >= p.judged {
		return false
	}
	return p.judged >= 5 && 5*p.outlived[resolution] >= p.judged || 2*p.detached[resolution] >= p.judged
}

// wrapper tells whether an INTERNAL span covers 90 % of its parent in the
// median: it reports the same work as its parent.
func (p *pathEvidence) wrapper() bool { return p.calls-p.wraps < (p.calls+1)/2 }

// keep chooses the nodes that get a hop of their own, each with all its
// ancestors: first those that somebody waits for, which alone have a budget,
// and of them those with the most time in total.
func (ev *evidence) keep(gone, async []bool, maxHops int) []bool {
	n := len(gone)
	kept := make([]bool, n)
	want := 0
	for i := range gone {
		if !gone[i] {
			want++
		}
	}
	if want <= maxHops {
		for i := range kept {
			kept[i] = true
		}
		return kept
	}
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	rank := ev.paths.Ranks()
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(boolInt(async[a]), boolInt(async[b])),
			cmp.Compare(ev.nodes[b].total, ev.nodes[a].total), cmp.Compare(rank[a], rank[b]))
	})
	room := maxHops
	for _, i := range order {
		var way []int32
		for j := i; j >= 0 && !kept[j] && len(way) <= room; j, _ = ev.paths.At(j) {
			if !gone[j] {
				way = append(way, j)
			}
		}
		if gone[i] || len(way) > room {
			continue
		}
		for _, j := range way {
			kept[j] = true
		}
		room -= len(way)
	}
	return kept
}

// NoteNoThreshold marks a trace without readable sampling threshold; left out of
// weighted sets, and wherever its threshold is unreadable.
const NoteNoThreshold trace.NoteKind = "no_sampling_threshold"

// Threshold returns the threshold to count a trace with, and whether it can be
// counted at all.
func (r *Rules) Threshold(t *trace.Trace) (uint64, bool) {
	if r.options.Unweighted {
		return 0, true
	}
	switch {
	case t.Sampling == trace.SamplingInvalid, r.weighted && t.Sampling == trace.SamplingUnknown:
		return 0, false
	case !r.weighted:
		return 0, true
	}
	return t.Threshold, true
}

// String describes a shift.
func (s Shift) String() string {
	by := fmt.Sprintf("%+.1f ms", float64(s.Offset)/1e6)
	if -1e6 < s.Offset && s.Offset < 1e6 {
		by = fmt.Sprintf("%+.3g µs", float64(s.Offset)/1e3)
	}
	return fmt.Sprintf("skew %s -> %s: %s", s.Caller, s.Callee, by)
}
