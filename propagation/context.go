package propagation

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// instant is a point on the monotonic clock of this process, in ns since base.
type instant int64

// none stands for an instant that is not known. Every known one lies within
// ±horizon, so that differences do not overflow.
const (
	none    instant = math.MinInt64
	horizon instant = 1 << 61 // 73 years
)

var base = time.Now()

// present is the instant of the call. It reads one clock, time.Now two.
func present() instant { return instant(time.Since(base)) }

// at converts t. A time without a monotonic reading is placed by its distance
// from the present on the wall clock, as timers place it.
func at(t time.Time) instant {
	if t == t.Round(0) { //nolint:staticcheck // Round strips the monotonic reading; Equal would not see that.
		// One reading of both clocks: a pause between two would move t.
		now := time.Now()
		return clamp(instant(now.Sub(base)) + clamp(instant(t.Sub(now))))
	}
	return clamp(instant(t.Sub(base)))
}

func clamp(i instant) instant { return max(-horizon, min(i, horizon)) }

// deadline returns the deadline of ctx, or none.
func deadline(ctx context.Context) instant {
	d, ok := ctx.Deadline()
	if !ok {
		return none
	}
	return at(d)
}

// lineage is the budget that a request brought along.
type lineage struct {
	deadline instant       // none if nothing is known
	limit    int64         // ns
	header   *authority    // where origin is a header
	trace    trace.TraceID // in which it is inherited; zero until an entry span starts
	origin   origin
	hop      uint8 // as received; 0 if the chain begins here
	clocks   bool  // a point in time came with the request: its deadline may be off by the skew
}

func (l *lineage) known() bool { return l.deadline != none }

// next is the hop number that a call sends.
func (l *lineage) next() uint8 {
	if l.hop == maxHop {
		return maxHop
	}
	return l.hop + 1
}

// lineage is what an announcement that arrived at recv makes a request inherit.
// It counts more than an authority header: it survives a hop that replaces the
// deadline.
func (a announcement) lineage(recv instant) lineage {
	return lineage{
		deadline: recv + instant(a.remaining),
		limit:    a.limit,
		origin:   fromAnnouncement,
		hop:      a.hop,
	}
}

// origin says what a deadline was learned from.
type origin uint8

const (
	fromContext origin = iota
	fromAnnouncement
	fromRelativeHeader
	fromAbsoluteHeader
	fromParentSpan
)

// reading is an authority header with the deadline that it means.
type reading struct {
	header   *authority // nil if there is none
	deadline instant
}

// lineage is what r makes a request inherit that began at start.
func (r reading) lineage(start instant) lineage {
	if r.header == nil {
		return unknown
	}
	l := lineage{
		deadline: r.deadline,
		limit:    int64(r.deadline - start),
		origin:   fromRelativeHeader,
		header:   r.header,
	}
	if r.header.kind == EpochMillis {
		l.origin, l.clocks = fromAbsoluteHeader, true
	}
	return l
}

// holder is the context that Extract returns: the one it was given, and what
// came with the request. It adds one value and leaves Deadline, Done and Err to
// the context inside, so it is never a stage of cancellation.
//
// The entry span that first starts under it owns it. Only the owner moves the
// lineage: it is what the handlers of the request inherit, wherever they are.
type holder struct {
	context.Context

	// As received, and never changed.
	announced announcement
	authority reading // Relative or EpochMillis
	perHop    reading

	// current is what the request inherits now. Reading it takes no lock, and
	// moving it allocates only after the first time.
	current  atomic.Pointer[lineage]
	received lineage
	settled  lineage

	mu      sync.Mutex // for what only entry spans use
	owner   trace.SpanID
	rules   *rules  // of the owner's processor
	verdict verdict // on announced; absent once the owner discards it
	flags   flagSet // of the owner
}

// holderKey is the key of the holder in its own context.
var holderKey = new(byte)

// Value implements context.Context.
func (h *holder) Value(key any) any {
	if key == holderKey {
		return h
	}
	return h.Context.Value(key)
}

// String names the context, as those of package context do: %v would read the
// fields, which others write.
func (h *holder) String() string {
	if named, ok := h.Context.(fmt.Stringer); ok {
		return named.String() + ".WithLatencyBudget"
	}
	return fmt.Sprintf("%T.WithLatencyBudget", h.Context)
}

func holderFrom(ctx context.Context) *holder {
	h, _ := ctx.Value(holderKey).(*holder)
	return h
}

// unknown is the lineage of a request about which nothing is known.
var unknown = lineage{deadline: none}

// inherited returns the lineage for a span of the given trace, which must not be
// changed. A span in another trace than the owner's was detached on purpose, by
// a new root, and inherits nothing.
func (h *holder) inherited(id trace.TraceID) *lineage {
	l := h.current.Load()
	if l.trace != id && l.trace.IsValid() {
		return &unknown
	}
	return l
}

// move makes l the lineage. The caller holds h.mu.
func (h *holder) move(l lineage) {
	switch current := h.current.Load(); {
	case *current == l:
	case current == &h.received:
		h.settled = l
		h.current.Store(&h.settled)
	default:
		moved := l
		h.current.Store(&moved)
	}
}

// lineageOf reads the lineage off the attributes of a span of this process, for
// a context that carries the span but has lost the holder.
func lineageOf(span trace.Span) lineage {
	l := lineage{deadline: none, origin: fromParentSpan}
	stamped, ok := span.(sdktrace.ReadOnlySpan)
	if !ok {
		return l
	}
	hop := int64(0)
	for _, kv := range stamped.Attributes() {
		switch kv.Key {
		case attr.RemainingStart:
			if ns, ok := nanoseconds(kv.Value); ok {
				l.deadline = clamp(at(stamped.StartTime()) + ns)
			}
		case attr.Limit:
			if ns, ok := nanoseconds(kv.Value); ok {
				l.limit = int64(ns)
			}
		case attr.Hop:
			if kv.Value.Type() == attribute.INT64 {
				hop = kv.Value.AsInt64()
			}
		}
	}
	if kind := stamped.SpanKind(); kind == trace.SpanKindClient || kind == trace.SpanKindProducer {
		hop-- // An exit span says what it sends.
	}
	l.hop = uint8(max(0, min(hop, maxHop)))
	return l
}

// nanoseconds converts an attribute in seconds, which anybody may have set.
func nanoseconds(seconds attribute.Value) (instant, bool) {
	if seconds.Type() != attribute.FLOAT64 {
		return 0, false
	}
	ns := seconds.AsFloat64() * 1e9
	if !(math.Abs(ns) <= float64(horizon)) { // Also if it is not a number.
		return 0, false
	}
	return instant(math.Round(ns)), true
}

// seconds is ns as the value of an attribute, rounded to 1 µs. Flags are judged by
// it, so that they never contradict the figure beside them.
func seconds(ns int64) float64 {
	return math.Round(float64(ns)/1e3)/1e6 + 0 // + 0 makes -0 a 0.
}
