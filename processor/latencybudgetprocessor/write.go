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

// verdict is what is known of a span beyond its own attributes.
type verdict struct {
	span    int32
	hop     *hop // nil: it is no call
	attempt int64
	partial bool
}

// write sets the attributes of a span: what was left at its end, its share of the
// budget, the hop, and the flags. What the service stamped stays as it is.
func (j *judge) write(v verdict) {
	s := &j.trace.Spans[v.span]
	flags := j.flags[v.span]
	if s.Is(trace.FlagUnmeasured) {
		j.counts.unjudged[reasonNoDuration]++
		return
	}
	left, known := finding.Left(s)
	if !known && flags == 0 {
		j.counts.unjudged[reasonNoBudget]++
		return
	}
	span := j.from[s.Ref]
	attrs := span.Attributes()
	// At most eleven attributes are set, and the map grows once.
	attrs.EnsureCapacity(attrs.Len() + 11)
	if known {
		j.writeFigures(attrs, s, left)
	}
	if v.hop != nil {
		putText(attrs, attr.Caller, v.hop.caller)
		putText(attrs, attr.Callee, v.hop.callee)
		putText(attrs, attr.Operation, v.hop.operation)
	}
	if v.attempt > 0 {
		attrs.PutInt(attr.Attempt, v.attempt)
	}
	if v.partial {
		attrs.PutBool(attr.Partial, true)
	} else {
		attrs.Remove(attr.Partial) // of a Collector that had seen less
	}
	if flags != 0 {
		j.writeFlags(span, flags, j.after[v.span])
	}
}

// writeFigures sets what follows from what was left at the start of the span.
func (j *judge) writeFigures(attrs pcommon.Map, s *trace.Span, left int64) {
	if s.Stamp.HasRemaining {
		j.counts.judged[sourceStamped]++
	} else {
		j.counts.judged[sourceDerived]++
		attrs.PutDouble(attr.RemainingStart, seconds(left))
		if source, set := attrs.GetOrPutEmpty(attr.Source); !set {
			source.SetStr(attr.SourceDerived)
		}
	}
	end := left - s.Duration
	if stamped, set := attrs.GetOrPutEmpty(attr.RemainingEnd); !set || stamped.Type() != pcommon.ValueTypeDouble {
		stamped.SetDouble(seconds(end))
	}
	if left > 0 {
		attrs.PutDouble(attr.Utilization, float64(s.Duration)/float64(left))
	}
	if limit := s.Stamp.Limit; limit > 0 {
		attrs.PutDouble(attr.Consumed, float64(limit-end)/float64(limit))
	}
}

// writeFlags adds the flags of rules to those that the service set.
func (j *judge) writeFlags(span ptrace.Span, flags uint32, after int64) {
	attrs := span.Attributes()
	j.merged = j.merged[:0]
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
		j.merged = append(j.merged, rule.Flag)
		switch rule.Flag {
		case attr.FlagWorkAfterDeadline:
			attrs.PutDouble(attr.WorkAfter, seconds(after))
		case attr.FlagDeadlineExtended:
			attrs.PutBool(attr.Reset, true)
		}
	}
	slices.Sort(j.merged)
	j.merged = slices.Compact(j.merged)
	putFlags(attrs, j.merged)
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
			putFlags(e.Attributes(), flags)
			return
		}
	}
	event := span.Events().AppendEmpty()
	event.SetName(flaggedEvent)
	event.SetTimestamp(span.EndTimestamp())
	putFlags(event.Attributes(), flags)
}

func putFlags(attrs pcommon.Map, flags []string) {
	list := attrs.PutEmptySlice(attr.Flags)
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
