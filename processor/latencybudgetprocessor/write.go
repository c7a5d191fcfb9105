package latencybudgetprocessor

import (
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// write sets the attributes of a span: what was left at its end, its share of the
// budget, the hop, and the flags. What the service stamped stays as it is. half
// tells that it is a half of its call, and not a part of one, such as an attempt.
func (j *judge) write(at visit, half, partial bool) {
	s := &j.trace.Spans[at.span]
	flags := j.flags[at.span]
	if s.Is(trace.FlagUnmeasured) {
		j.pass(s, reasonNoDuration)
		return
	}
	judged := j.request.Judged(at.call)
	if !judged && flags == 0 {
		why := reasonDetached
		if j.request.Stream(at.call) {
			why = reasonStream
		}
		j.pass(s, why)
		return
	}
	spent, known := j.request.Spent(at.call, at.span)
	if !half && !spent.LeftKnown || !judged {
		known = false // the plan speaks of the call; and of a stream only the opening counts
	}
	if !known && flags == 0 {
		j.pass(s, reasonNoBudget)
		return
	}
	v := verdict{partial: partial, flags: flags, after: j.after[at.span]}
	if known {
		v.spent = spent
	}
	attempt := !half && j.trace.Parent[at.span] >= 0 && j.trace.IsAttempt(at.span)
	if half || attempt || s.Kind != trace.KindInternal {
		v.hop = j.hopOf(at.call)
	}
	if half {
		if _, v.planned = j.request.Planned(at.call); v.planned {
			v.revision = j.request.Plan.Revision()
		}
	}
	if half || attempt {
		if number, retried := j.request.Attempt(at.call, at.span); retried {
			v.attempt = number
		}
	}
	j.set(j.from[s.Ref], s, &v)
}

// pass leaves a span as it came.
func (j *judge) pass(s *trace.Span, why reason) {
	j.counts.unjudged[why]++
	takeBackVerdict(j.from[s.Ref].Attributes())
}

// takeBackVerdict removes what this Collector has not set. Another that had seen less of the
// trace may have judged the span, and spans from elsewhere may have a name twice.
func takeBackVerdict(attrs pcommon.Map) { attrs.RemoveIf(ofVerdict) }

func ofVerdict(name string, _ pcommon.Value) bool {
	switch name {
	case attr.Findings, attr.Partial, attr.Utilization, attr.Consumed, attr.Caller, attr.Callee, attr.Operation, attr.Attempt, attr.PlanRevision:
		return true
	}
	return false
}

// verdict is what there is to say of a span.
type verdict struct {
	spent    finding.Spent // the zero Spent where the span has no budget
	hop      *hop          // nil: the span is no call
	planned  bool
	revision string // of the plan, where planned
	attempt  int64  // 0: it was the only one
	partial  bool
	flags    uint32
	after    int64 // worked after the deadline, ns
}

// set sets the attributes of a span.
func (j *judge) set(span ptrace.Span, s *trace.Span, v *verdict) {
	attrs := span.Attributes()
	takeBackVerdict(attrs)
	derived := v.spent.LeftKnown && (s.Stamp.Derived || !s.Stamp.HasRemaining)
	limited := s.Stamp != nil && s.Stamp.Limit > 0
	// The map grows once, and no more than it must.
	attrs.EnsureCapacity(attrs.Len() +
		count(v.spent.LeftKnown, v.spent.Budget > 0, limited, derived, derived, derived, v.planned, v.attempt > 0, v.partial) +
		v.hop.parts() + 4*count(v.flags != 0))

	if derived {
		if start, set := attrs.GetOrPutEmpty(attr.RemainingStart); !set {
			start.SetDouble(seconds(v.spent.Left + s.Duration))
			if s.Stamp.Derived { // a source without the figure that it is about says nothing
				attrs.RemoveIf(func(name string, _ pcommon.Value) bool { return name == attr.Source }) // there may be two
			}
			if source, set := attrs.GetOrPutEmpty(attr.Source); !set {
				source.SetStr(attr.SourceDerived)
			}
		}
		if limited {
			if limit, set := attrs.GetOrPutEmpty(attr.Limit); !set {
				limit.SetDouble(seconds(s.Stamp.Limit))
			}
		}
	}
	if v.spent.LeftKnown {
		if stamped, set := attrs.GetOrPutEmpty(attr.RemainingEnd); !set || stamped.Type() != pcommon.ValueTypeDouble {
			stamped.SetDouble(seconds(v.spent.Left))
		}
	}
	if v.spent.Budget > 0 {
		attrs.PutDouble(attr.Utilization, v.spent.Utilization)
	}
	if limited && v.spent.LeftKnown {
		attrs.PutDouble(attr.Consumed, v.spent.Consumed)
	}
	if v.hop != nil {
		putText(attrs, attr.Caller, v.hop.caller)
		putText(attrs, attr.Callee, v.hop.callee)
		putText(attrs, attr.Operation, v.hop.operation)
	}
	if v.planned {
		attrs.PutStr(attr.PlanRevision, v.revision)
	}
	if v.attempt > 0 {
		attrs.PutInt(attr.Attempt, v.attempt)
	}
	if v.partial {
		attrs.PutBool(attr.Partial, true)
	}
	if v.flags != 0 {
		j.setFlags(span, v.flags, v.after)
	}
	switch {
	case derived:
		j.counts.judged[sourceDerived]++
	case v.spent.LeftKnown:
		j.counts.judged[sourceStamped]++
	case v.planned:
		j.counts.judged[sourcePlan]++
	default:
		j.counts.judged[sourceTiming]++
	}
}

// count counts what is true.
func count(facts ...bool) (n int) {
	for _, is := range facts {
		if is {
			n++
		}
	}
	return n
}

// setFlags adds the flags of rules to those that the service set.
func (j *judge) setFlags(span ptrace.Span, flags uint32, after int64) {
	attrs := span.Attributes()
	j.found, j.merged = j.found[:0], j.merged[:0]
	if stamped, set := attrs.Get(attr.Flags); set && stamped.Type() == pcommon.ValueTypeSlice {
		for _, v := range stamped.Slice().All() {
			if v.Type() == pcommon.ValueTypeStr {
				j.merged = append(j.merged, v.Str())
			}
		}
	}
	for i, rule := range flagging {
		if flags&(1<<i) == 0 {
			continue
		}
		j.counts.flags[i]++
		j.found = append(j.found, rule.Flag)
		switch rule.Flag {
		case attr.FlagWorkAfterDeadline:
			attrs.PutDouble(attr.WorkAfter, seconds(after))
		case attr.FlagDeadlineExtended:
			attrs.PutBool(attr.Reset, true)
		}
	}
	slices.Sort(j.found)
	putFlags(attrs, attr.Findings, j.found)
	j.merged = append(j.merged, j.found...)
	slices.Sort(j.merged)
	j.merged = slices.Compact(j.merged)
	putFlags(attrs, attr.Flags, j.merged)
	if j.config.FlaggedEvent {
		putEvent(span, j.merged)
	}
}

// flaggedEvent is the name of the event on flagged spans.
const flaggedEvent = "latency_budget.flagged"

// putEvent adds the event with the flags, once.
func putEvent(span ptrace.Span, flags []string) {
	for _, e := range span.Events().All() {
		if e.Name() == flaggedEvent {
			putFlags(e.Attributes(), attr.Flags, flags)
			return
		}
	}
	event := span.Events().AppendEmpty()
	event.SetName(flaggedEvent)
	event.SetTimestamp(span.EndTimestamp())
	putFlags(event.Attributes(), attr.Flags, flags)
}

func putFlags(attrs pcommon.Map, key string, flags []string) {
	list := attrs.PutEmptySlice(key)
	list.EnsureCapacity(len(flags))
	for _, f := range flags {
		list.AppendEmpty().SetStr(f)
	}
}

func putText(attrs pcommon.Map, key, text string) {
	if text != "" {
		attrs.PutStr(key, text)
	}
}

// seconds is ns as attributes have it, rounded to a microsecond.
func seconds(ns int64) float64 { return math.Round(float64(ns)/1e3) / 1e6 }
