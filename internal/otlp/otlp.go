// Package otlp turns spans of pdata, as the Collector holds them, into those of
// package trace. It is the one place that knows both.
package otlp

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// A Reader forgets the descriptions that it has met when there are more of them, or
// when their texts take more bytes: a Collector runs for months, and some services
// put ids and whole statements into the names of their spans.
const (
	maxDescriptions = 1 << 14
	maxBytes        = 1 << 23
)

// Reader turns spans into those of the analysis. It keeps its buffers between
// batches, and the texts that it has met, up to a bound. The zero value is ready.
// It is for one goroutine.
type Reader struct {
	// Remaining are the attributes in which services write what is left; nil means
	// [trace.DefaultRemainingAttributes].
	Remaining []trace.RemainingAttribute

	interner          *trace.Interner
	cache             *trace.Cache
	attrs, res, scope trace.Attributes
	event             trace.Attributes
	tellers           [256]bool // first bytes of the names that Telling asks about
	stamps            []trace.Stamp
	current           trace.Span // what visit gets
}

// Reset gives up the spans that were read, for the next batch. Descriptions of
// equal content are one as long as Reset is not called. It tells whether the reader
// forgot the texts that it had met: then others should not keep them either.
func (r *Reader) Reset() (forgot bool) {
	if r.Remaining == nil {
		r.Remaining = trace.DefaultRemainingAttributes()
	}
	if r.cache == nil {
		r.attrs.Remaining, r.tellers = r.Remaining, trace.TellingInitials(r.Remaining)
	}
	forgot = r.interner == nil || r.interner.Len() > maxDescriptions || r.interner.Bytes() > maxBytes
	if forgot {
		r.interner = new(trace.Interner)
		r.cache = r.interner.NewCache()
	}
	r.stamps = r.stamps[:0]
	return forgot
}

// Read calls visit for every span that has a trace id, a span id and [Times]. What visit
// gets is valid until it returns, but for Desc and Stamp, which are valid until Reset.
func (r *Reader) Read(traces ptrace.Traces, visit func(*trace.Span)) {
	if r.interner == nil {
		r.Reset()
	}
	span := &r.current
	for _, resource := range traces.ResourceSpans().All() {
		res := r.Resource(resource.Resource())
		for _, scope := range resource.ScopeSpans().All() {
			r.scope.Reset()
			r.setAll(&r.scope, scope.Scope().Attributes())
			for _, s := range scope.Spans().All() {
				if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() || !Times(s) {
					continue
				}
				r.Span(span, s, res)
				if r.scope.TailSampled() {
					span.Flags |= trace.FlagTailSampled
				}
				visit(span)
			}
		}
	}
}

// Resource returns what the spans of a resource inherit from it.
func (r *Reader) Resource(resource pcommon.Resource) trace.Resource {
	r.res.Reset()
	r.setAll(&r.res, resource.Attributes())
	return r.res.Resource(r.cache)
}

// Times tells whether the times of a span are within the bounds of those that are
// taken. Files that hold other spans are read without them.
func Times(s ptrace.Span) bool {
	start, end := s.StartTimestamp(), s.EndTimestamp()
	if start >= trace.TimeBound || end >= trace.TimeBound {
		return false
	}
	d := int64(end) - int64(start)
	return start == 0 || end == 0 || -trace.DurationBound < d && d < trace.DurationBound
}

// Telling tells, quicker than a span is read, whether it may say what was left
// when it began, or that its time was up. Where it is false, reading the span
// gives neither what was left nor an outcome that has to do with time.
func (r *Reader) Telling(s ptrace.Span) bool {
	failed := s.Status().Code() == ptrace.StatusCodeError || s.Status().Message() != ""
	for name, value := range s.Attributes().All() {
		if name == "" || !r.tellers[name[0]] {
			continue
		}
		switch key, wanted := r.attrs.SeeText(name); {
		case !wanted:
		case key.TellsBudget():
			return true
		case key.TellsEnd():
			failed = failed || !success(value)
		}
	}
	if !failed {
		return false
	}
	r.setSpan(s)
	o := r.attrs.Outcome()
	return o == trace.OutcomeTimedOut || o == trace.OutcomeCancelled
}

// success tells whether a status is a number of HTTP or gRPC that has nothing to do
// with time.
func success(status pcommon.Value) bool {
	n := status.Int()
	return status.Type() == pcommon.ValueTypeInt && n != 1 && n != 4 && n != 499 && n != 504
}

// Span makes out of a span what the analysis has for it, but for the mark of a tail
// sampler, which stands on the scope. Desc and Stamp are valid until Reset, which
// must have been called once; the span must have [Times].
func (r *Reader) Span(out *trace.Span, s ptrace.Span, res trace.Resource) {
	*out = trace.Span{
		TraceID:  trace.TraceID(s.TraceID()),
		ID:       trace.SpanID(s.SpanID()),
		Parent:   trace.SpanID(s.ParentSpanID()),
		Start:    int64(s.StartTimestamp()),
		Duration: int64(s.EndTimestamp()) - int64(s.StartTimestamp()),
	}
	if s.StartTimestamp() == 0 || s.EndTimestamp() == 0 {
		out.Start, out.Duration = max(out.Start, int64(s.EndTimestamp())), 0
		out.Flags |= trace.FlagUnmeasured
	}
	if k := s.Kind(); k >= 0 && k <= ptrace.SpanKindConsumer {
		out.Kind = trace.Kind(k)
	}
	r.setSpan(s)
	if s.Events().Len() > 1 { // a single one tells nothing
		r.addEvents(s.Events())
	}
	follow(out, s.Links())
	// An array that grows leaves those behind that spans already point to.
	n := len(r.stamps)
	r.stamps = append(r.stamps, trace.Stamp{})
	out.Stamp = &r.stamps[n]
	r.attrs.Describe(out, res, r.cache)
	if out.Stamp == nil {
		r.stamps = r.stamps[:n]
	}
}

// setSpan fills attrs with what a span says.
func (r *Reader) setSpan(s ptrace.Span) {
	r.attrs.Reset()
	r.attrs.SetText(trace.AttrSpanName, s.Name())
	if state := s.TraceState().AsRaw(); state != "" {
		r.attrs.SetText(trace.AttrTraceState, state)
	}
	r.setAll(&r.attrs, s.Attributes())
	r.attrs.SetStatus(s.Status().Code() == ptrace.StatusCodeError)
	if message := s.Status().Message(); message != "" {
		r.attrs.SetText(trace.AttrStatusMessage, message)
	}
}

// addEvents looks for messages of a stream.
func (r *Reader) addEvents(events ptrace.SpanEventSlice) {
	for _, e := range events.All() {
		if r.attrs.Streaming() {
			return
		}
		r.event.Reset()
		r.event.SetText(trace.AttrEventName, e.Name())
		r.setAll(&r.event, e.Attributes())
		r.attrs.AddEvent(&r.event)
	}
}

// follow looks for the parent among the links of a span: a link to a span of
// the same trace says that the linked span does not wait.
func follow(s *trace.Span, links ptrace.SpanLinkSlice) {
	root := s.Parent.IsZero()
	for _, l := range links.All() {
		to := trace.SpanID(l.SpanID())
		if trace.TraceID(l.TraceID()) != s.TraceID || to.IsZero() || to == s.ID {
			continue
		}
		if root && s.Parent.IsZero() {
			s.Parent = to
		}
		if to == s.Parent {
			s.Flags |= trace.FlagFollowsFrom
		}
	}
}

func (r *Reader) setAll(attrs *trace.Attributes, from pcommon.Map) {
	for name, value := range from.All() {
		key, wanted := attrs.SeeText(name)
		if !wanted {
			continue
		}
		if value.Type() == pcommon.ValueTypeSlice && key.TakesList() && value.Slice().Len() == 1 {
			value = value.Slice().At(0)
		}
		switch value.Type() {
		case pcommon.ValueTypeStr:
			attrs.SetText(key, value.Str())
		case pcommon.ValueTypeInt:
			attrs.SetInt(key, value.Int())
		case pcommon.ValueTypeDouble:
			attrs.SetFloat(key, value.Double())
		case pcommon.ValueTypeBool:
			attrs.SetBool(key, value.Bool())
		}
	}
}
