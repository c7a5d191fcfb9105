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
		j.counts.unjudged[reasonNoDuration]++
		return
	}
	if !j.request.Judged(at.call) {
		j.counts.unjudged[reasonDetached]++
		return
	}
	spent, known := j.request.Spent(at.call, at.span)
	if !half && !spent.LeftKnown {
		known = false // the plan speaks of the call
	}
	if !known && flags == 0 {
		j.counts.unjudged[reasonNoBudget]++
		return
	}
	span := j.from[s.Ref]
	attrs := span.Attributes()
	attrs.EnsureCapacity(attrs.Len() + mostSet)
	if known {
		j.writeSpent(attrs, s, spent)
	}
	if half || s.Kind != trace.KindInternal {
		h := j.hopOf(at.call)
		putText(attrs, attr.Caller, h.caller)
		putText(attrs, attr.Callee, h.callee)
		putText(attrs, attr.Operation, h.operation)
	}
	if number, of := j.request.Attempt(at.call); of > 1 && half {
		attrs.PutInt(attr.Attempt, number)
	}
	if partial {
		attrs.PutBool(attr.Partial, true)
	} else {
		attrs.Remove(attr.Partial) // of a Collector that had seen less
	}
	attrs.Remove(attr.Findings) // likewise
	if flags != 0 {
		j.writeFlags(span, flags, j.after[at.span])
	}
}

// mostSet is how many attributes one span can get, so that their map grows once.
const mostSet = 14

// writeSpent sets what is known of the budget of a span.
func (j *judge) writeSpent(attrs pcommon.Map, s *trace.Span, spent finding.Spent) {
	switch {
	case !spent.LeftKnown:
		j.counts.judged[sourcePlan]++
	case s.Stamp.HasRemaining:
		j.counts.judged[sourceStamped]++
	default:
		j.counts.judged[sourceDerived]++
		attrs.PutDouble(attr.RemainingStart, seconds(spent.Left+s.Duration))
		if source, set := attrs.GetOrPutEmpty(attr.Source); !set {
			source.SetStr(attr.SourceDerived)
		}
	}
	if spent.LeftKnown {
		if stamped, set := attrs.GetOrPutEmpty(attr.RemainingEnd); !set || stamped.Type() != pcommon.ValueTypeDouble {
			stamped.SetDouble(seconds(spent.Left))
		}
	}
	if spent.Budget > 0 {
		attrs.PutDouble(attr.Utilization, spent.Utilization)
	}
	if s.Stamp != nil && s.Stamp.Limit > 0 {
		attrs.PutDouble(attr.Consumed, spent.Consumed)
	}
}

// writeFlags adds the flags of rules to those that the service set.
func (j *judge) writeFlags(span ptrace.Span, flags uint32, after int64) {
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
