package propagation

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// NewSpanProcessor returns a processor that stamps SERVER and CLIENT spans with
// the budget that was left when they began, and flags hops that extended,
// dropped or exhausted it. It stamps PRODUCER spans likewise, and CONSUMER spans
// with the announcement alone (but see WithMessaging).
//
// It sets attributes in OnStart only, with one call, starts no goroutine and
// keeps no span. Where a span has reached the limit on attributes, these come
// at the cost of as many set later by the application.
func NewSpanProcessor(opts ...SpanProcessorOption) sdktrace.SpanProcessor {
	return &processor{newProcessorConfig(opts)}
}

type processor struct {
	processorConfig
}

var _ sdktrace.SpanProcessor = (*processor)(nil)

// OnStart implements sdktrace.SpanProcessor. It never panics, since that would
// reach the application through Tracer.Start.
func (p *processor) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	defer recovered("OnStart")
	switch s.SpanKind() {
	case trace.SpanKindServer:
		p.rules.enter(ctx, s, unknown)
	case trace.SpanKindConsumer:
		if p.messaging {
			p.rules.enter(ctx, s, unknown)
			return
		}
		receive(ctx, s)
	case trace.SpanKindClient, trace.SpanKindProducer:
		p.rules.exit(ctx, s)
	case trace.SpanKindInternal, trace.SpanKindUnspecified:
		if p.internal {
			inside(ctx, s)
		}
	}
}

// OnEnd is a no-op for this processor.
func (*processor) OnEnd(sdktrace.ReadOnlySpan) {}

// Shutdown is a no-op for this processor.
func (*processor) Shutdown(context.Context) error { return nil }

// ForceFlush is a no-op for this processor.
func (*processor) ForceFlush(context.Context) error { return nil }

// Observe looks at the deadline of ctx again. Call it once, right after a
// middleware that sets the request's deadline inside the instrumentation, with
// the context that the handler gets:
//
//	otelhttp  |==SERVER===============================================|
//	middleware   | ctx, cancel := context.WithTimeout(r.Context(), d)
//	             | propagation.Observe(ctx)
//	handler      |====================================================|
//
// It stamps the SERVER span, if that is the current span, as if the deadline had
// been there when it began, and makes the deadline the one that the calls of
// the request inherit. Without Observe the server span does not show the
// deadline, and calls cannot be compared with it.
func Observe(ctx context.Context) {
	defer recovered("Observe")
	span := trace.SpanFromContext(ctx)
	if s, ok := span.(sdktrace.ReadWriteSpan); ok && s.IsRecording() && s.SpanKind() == trace.SpanKindServer {
		if h := holderFrom(ctx); h != nil {
			h.observers().enter(ctx, s, unknown)
			return
		}
		known := lineageOf(s)
		known.origin = fromContext // Where else, without a holder?
		defaultRules.enter(ctx, s, known)
		return
	}
	if h, until := holderFrom(ctx), deadline(ctx); h != nil && until != none {
		h.settle(until, span.SpanContext().TraceID())
	}
}

// rules say when a deadline that is later than another is worth a flag.
type rules struct {
	floor   int64   // ns
	share   float64 // of what is left
	maxSkew int64   // ns
}

// entryFactor widens the share on entry spans, where the deadline has crossed a
// wire.
const entryFactor = 2

// tolerance is how much later than the lineage another deadline may be, seen
// from start.
func (r *rules) tolerance(l lineage, start instant, factor float64) int64 {
	return max(r.floor, int64(factor*r.share*float64(l.deadline-start)))
}

// later compares a deadline with the lineage: 0, flagExtended or flagSkew.
func (r *rules) later(until instant, l lineage, start instant, factor float64) flagSet {
	off, tol := int64(until-l.deadline), r.tolerance(l, start, factor)
	switch {
	case off <= tol:
		return 0
	case l.clocks && off-tol <= r.maxSkew:
		return flagSkew
	}
	return flagExtended
}

// stamp is what a span is given.
type stamp struct {
	lineage          // deadline and origin of remaining.start, and the limit
	start    instant // of the span
	context  instant // deadline of the context, or none
	announce *holder // whose announcement to show, or nil
	fresh    bool
	hop      uint8 // to show; 0 for none
	flags    flagSet
	before   flagSet // that the span carries already
}

// enter stamps an entry span and settles what its request inherits. If ctx has
// no holder, known is what the span was stamped with before.
func (r *rules) enter(ctx context.Context, s sdktrace.ReadWriteSpan, known lineage) {
	st := stamp{lineage: known, start: at(s.StartTime()), context: deadline(ctx)}
	if h := holderFrom(ctx); h != nil {
		r.claim(h, &st, s.SpanContext(), s.Parent())
	} else {
		r.compare(&st)
	}
	st.set(s)
}

// claim fills st for an entry span under h. If the span owns h, or comes first
// and so becomes the owner, it also moves the lineage of h.
func (r *rules) claim(h *holder, st *stamp, sc, parent trace.SpanContext) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.owner.IsValid() {
		h.owner, h.rules = sc.SpanID(), r
		l := h.received
		if !parent.IsValid() && h.verdict != absent {
			// A public endpoint began a trace of its own: what a stranger says
			// about the old one does not count.
			h.verdict = absent
			l = h.authority.lineage(st.start)
		}
		if l.header != nil {
			l.limit = int64(l.deadline - st.start)
		}
		if a := h.authority.header; a != nil && a.kind == EpochMillis {
			l.clocks = true // Also of an announcement: the context has its deadline from the header.
		}
		st.lineage = l
		st.trace = sc.TraceID()
	} else {
		st.lineage = *h.inherited(sc.TraceID())
	}
	if h.owner != sc.SpanID() {
		r.compare(st)
		return
	}
	st.before = h.flags
	st.flags = h.flags & flagSkew // Once seen, it stays.
	r.judgeAnnouncement(h, st, parent)
	r.compare(st)
	h.move(st.lineage)
	r.standIn(h, st)
	st.judgeRemaining()
	h.flags = st.flags
}

// judgeAnnouncement adds what is to be said about the announcement itself.
func (r *rules) judgeAnnouncement(h *holder, st *stamp, parent trace.SpanContext) {
	switch h.verdict {
	case invalid:
		st.flags |= flagInvalid
		return
	case absent:
		return
	}
	st.announce, st.hop = h, h.announced.hop
	st.fresh = parent.SpanID() == h.announced.span
	if !st.fresh {
		st.flags |= flagStale
	}
	// The sender announced no more than its deadline leaves. If the deadline, as
	// a point in time, leaves clearly less here, the clocks differ; if it leaves
	// more, that may be it. Still more is a deadline that was replaced.
	if a := h.authority; st.fresh && st.origin == fromAnnouncement && a.header != nil && a.header.kind == EpochMillis {
		off := int64(a.deadline - st.deadline)
		tol := r.tolerance(st.lineage, st.start, entryFactor)
		if off < -tol || (off > tol && off-tol <= r.maxSkew) {
			st.flags |= flagSkew
		}
	}
}

// compare judges the context's deadline against the lineage in st. A deadline
// that is not later takes its place: the authority is right.
func (r *rules) compare(st *stamp) {
	switch {
	case st.context == none:
	case !st.known():
		st.deadline, st.limit, st.origin = st.context, int64(st.context-st.start), fromContext
	default:
		flags := r.later(st.context, st.lineage, st.start, entryFactor)
		st.flags |= flags
		if flags&flagExtended == 0 {
			st.deadline, st.origin, st.header, st.clocks = st.context, fromContext, nil, false
		}
	}
}

// standIn puts a PerHop header in the place of the context's deadline where that
// has none. It concerns the span alone and is not inherited.
func (r *rules) standIn(h *holder, st *stamp) {
	if st.context != none || h.perHop.header == nil {
		return
	}
	known := st.known()
	if known {
		st.flags |= r.later(h.perHop.deadline, st.lineage, st.start, entryFactor)
	} else {
		st.limit = int64(h.perHop.deadline - st.start)
	}
	if !known || h.perHop.deadline < st.deadline {
		st.deadline, st.origin, st.header = h.perHop.deadline, fromRelativeHeader, h.perHop.header
	}
}

// observers returns the rules of the processor that saw the owner start.
func (h *holder) observers() *rules {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rules
}

// settle makes until the deadline of the request where that is no later than the
// inherited one. Work that was detached into another trace than the request's
// settles nothing for it.
func (h *holder) settle(until instant, id trace.TraceID) {
	now := present()
	h.mu.Lock()
	defer h.mu.Unlock()
	l := *h.current.Load()
	if l.trace != id && l.trace.IsValid() {
		return
	}
	st := stamp{lineage: l, start: now, context: until}
	h.rules.compare(&st)
	h.move(st.lineage)
}

// receive stamps a CONSUMER span with the announcement alone: how old it is
// nobody knows. What the consumer calls inherits nothing from it.
func receive(ctx context.Context, s sdktrace.ReadWriteSpan) {
	h := holderFrom(ctx)
	if h == nil {
		return
	}
	st := stamp{lineage: unknown, context: none}
	sc, parent := s.SpanContext(), s.Parent() // Spans have locks too.
	h.mu.Lock()
	if !h.owner.IsValid() {
		h.owner = sc.SpanID()
		h.move(lineage{deadline: none, trace: sc.TraceID()})
		if h.verdict == valid && parent.IsValid() {
			st.announce, st.fresh = h, parent.SpanID() == h.announced.span
		}
	}
	h.mu.Unlock()
	st.set(s)
}

// exit stamps a call. It moves no lineage: an earlier deadline is the budget of
// this call alone.
func (r *rules) exit(ctx context.Context, s sdktrace.ReadWriteSpan) {
	st := inheritedBy(ctx, s)
	st.hop = st.next()
	switch {
	case !st.known() && st.context == none:
		return
	case !st.known():
		st.deadline, st.limit, st.origin = st.context, int64(st.context-st.start), fromContext
	case st.context == none:
		st.flags |= flagDropped
	default:
		st.flags |= r.later(st.context, st.lineage, st.start, 1)
		st.narrow()
	}
	st.set(s)
}

// inside stamps an INTERNAL span.
func inside(ctx context.Context, s sdktrace.ReadWriteSpan) {
	st := inheritedBy(ctx, s)
	switch {
	case st.context == none:
	case !st.known():
		st.deadline, st.limit, st.origin = st.context, int64(st.context-st.start), fromContext
	default:
		st.narrow()
	}
	st.set(s)
}

// inheritedBy begins the stamp of a span within a request.
func inheritedBy(ctx context.Context, s sdktrace.ReadWriteSpan) stamp {
	st := stamp{start: at(s.StartTime()), context: deadline(ctx)}
	if h := holderFrom(ctx); h != nil {
		st.lineage = *h.inherited(s.SpanContext().TraceID())
	} else if parent := trace.SpanFromContext(ctx); parent.SpanContext().TraceID() == s.SpanContext().TraceID() {
		st.lineage = lineageOf(parent)
	} else {
		st.lineage = unknown
	}
	return st
}

// narrow takes the context's deadline for what remains, where it is no later.
func (st *stamp) narrow() {
	if st.context <= st.deadline {
		st.deadline, st.origin, st.header = st.context, fromContext, nil
	}
}

// judgeRemaining flags a span that began too late.
func (st *stamp) judgeRemaining() {
	if st.known() && seconds(int64(st.deadline-st.start)) <= 0 {
		st.flags |= flagExhausted
	}
}

// flagSet is a set of the flags that can be told when a span begins.
type flagSet uint8

// The order is the alphabetical one of the names, in which they are written.
const (
	flagInvalid flagSet = 1 << iota
	flagStale
	flagSkew
	flagDropped
	flagExtended
	flagExhausted
	allFlags = 1<<iota - 1
)

var flagNames = [...]string{
	attr.FlagAnnouncementInvalid,
	attr.FlagAnnouncementStale,
	attr.FlagClockSkewSuspected,
	attr.FlagDeadlineDropped,
	attr.FlagDeadlineExtended,
	attr.FlagExhaustedAtStart,
}

// Attributes that would have to be allocated are made once.
var (
	flagAttributes   [allFlags + 1]attribute.KeyValue
	originAttributes = [...]attribute.KeyValue{
		fromContext:        SourceKey.String(attr.SourceContext),
		fromAnnouncement:   SourceKey.String(attr.SourceAnnounced),
		fromRelativeHeader: SourceKey.String(attr.SourceHeaderRelative),
		fromAbsoluteHeader: SourceKey.String(attr.SourceHeaderAbsolute),
		fromParentSpan:     SourceKey.String(attr.SourceParentSpan),
	}
)

func init() {
	for set := range flagAttributes {
		names := []string{}
		for i, name := range flagNames {
			if set&(1<<i) != 0 {
				names = append(names, name)
			}
		}
		flagAttributes[set] = FlagsKey.StringSlice(names)
	}
}

// maxAttributes is how many a stamp can have.
const maxAttributes = 11

// buffers are what attributes are gathered in: the SDK copies them.
var buffers = sync.Pool{New: func() any { return new([maxAttributes]attribute.KeyValue) }}

// set writes st to s with one call.
func (st *stamp) set(s sdktrace.ReadWriteSpan) {
	st.judgeRemaining()
	buffer := buffers.Get().(*[maxAttributes]attribute.KeyValue)
	kvs := st.appendTo(buffer[:0])
	if len(kvs) > 0 {
		s.SetAttributes(kvs...)
	}
	clear(kvs)
	buffers.Put(buffer)
}

func (st *stamp) appendTo(kvs []attribute.KeyValue) []attribute.KeyValue {
	if st.known() {
		kvs = append(kvs,
			LimitKey.Float64(seconds(max(0, st.limit))),
			RemainingStartKey.Float64(seconds(int64(st.deadline-st.start))),
			originAttributes[st.origin])
		if st.header != nil {
			kvs = append(kvs, SourceHeaderKey.String(st.header.name))
		}
	}
	if st.context != none {
		kvs = append(kvs, DeadlineRemainingKey.Float64(seconds(int64(st.context-st.start))))
	}
	if h := st.announce; h != nil {
		kvs = append(kvs,
			AnnouncedRemainingKey.Float64(seconds(h.announced.remaining)),
			AnnouncedFreshKey.Bool(st.fresh))
		if !st.fresh {
			kvs = append(kvs, AnnouncedSpanIDKey.String(h.announced.span.String()))
		}
	}
	if st.hop > 0 {
		kvs = append(kvs, HopKey.Int(int(st.hop)))
	}
	if (st.flags|st.before)&flagExtended != 0 {
		kvs = append(kvs, ResetKey.Bool(st.flags&flagExtended != 0))
	}
	if st.flags|st.before != 0 {
		kvs = append(kvs, flagAttributes[st.flags])
	}
	return kvs
}
