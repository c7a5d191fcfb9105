package propagation

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Name is the name of the propagator in OTEL_PROPAGATORS. Package autoreg
// registers it.
const Name = "latencybudget"

// New returns a propagator that announces the remaining budget in Header and
// reads the announcement of the caller. Compose it with TraceContext, in any
// order, and add a processor made by NewSpanProcessor, which does the stamping.
//
// Inject announces what is left until the earlier of the inherited deadline and
// that of the context; where neither is known, or the context has no span, it
// removes what the carrier may hold, so that a proxy that copies its inbound
// headers passes on nothing stale. Extract returns the context with what was
// read, and never with another Deadline, Done or Err. A header that cannot be
// read replaces nothing. Both recover from panics of carriers and contexts.
func New(opts ...Option) propagation.TextMapPropagator {
	return &propagator{newConfig(opts)}
}

type propagator struct {
	config
}

var _ propagation.TextMapPropagator = (*propagator)(nil)

// Fields returns Header, the only key that Inject sets. Authority headers are
// not among them: they are never written.
func (*propagator) Fields() []string { return []string{Header} }

// Inject implements propagation.TextMapPropagator.
func (p *propagator) Inject(ctx context.Context, carrier propagation.TextMapCarrier) {
	defer blankOnPanic(carrier)
	a, ok := p.announce(ctx)
	if !ok {
		blank(carrier)
		return
	}
	value := a.header()
	if header, ok := carrier.(propagation.HeaderCarrier); ok {
		header[canonicalHeader] = []string{value} // Set would compute the key anew.
		return
	}
	carrier.Set(Header, value)
}

// blank takes an announcement out of carrier.
func blank(carrier propagation.TextMapCarrier) {
	switch c := carrier.(type) {
	case propagation.HeaderCarrier:
		delete(c, canonicalHeader)
	case propagation.MapCarrier:
		delete(c, Header)
	default:
		// Carriers cannot delete, and a blank value is no announcement.
		if c.Get(Header) != "" {
			c.Set(Header, "")
		}
	}
}

// announce returns what to send from ctx, and whether there is anything.
func (p *propagator) announce(ctx context.Context) (a announcement, ok bool) {
	span := trace.SpanFromContext(ctx)
	sc := span.SpanContext()
	a.span = sc.SpanID()
	if !a.span.IsValid() || (p.filter != nil && !p.filter(ctx)) {
		return a, false
	}
	local, isLocal := span.(sdktrace.ReadOnlySpan)
	if isLocal && local.SpanKind() == trace.SpanKindProducer && !p.messaging {
		return a, false
	}
	var inherited *lineage
	if h := holderFrom(ctx); h != nil {
		inherited = h.inherited(sc.TraceID())
	} else {
		own := lineageOf(span)
		inherited = &own
	}
	now, until, limit := present(), deadline(ctx), inherited.limit
	switch {
	case inherited.known():
		if until == none || inherited.deadline < until {
			until = inherited.deadline
		}
	case until == none:
		return a, false
	case isLocal:
		limit = int64(until - at(local.StartTime()))
	}
	a.remaining = int64(until - now)
	// A deadline that is later than the inherited one, but within the tolerance,
	// may leave more than the total that the origin saw.
	a.limit = max(limit, a.remaining)
	a.hop = inherited.next()
	return a, a.limit <= p.maxLimit && a.remaining >= -p.maxLimit
}

// Extract implements propagation.TextMapPropagator.
func (p *propagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) (out context.Context) {
	out = ctx
	defer recovered("Extract")
	announced, verdict := p.read(carrier)
	if verdict == invalid {
		unreadable.Do(func() { otel.Handle(errUnreadable) })
	}
	var authority, perHop reading
	inherited := unknown
	if verdict == valid || len(p.authorities) > 0 {
		now := present()
		authority, perHop = p.consult(carrier, now)
		if verdict == valid {
			inherited = announced.lineage(now)
		} else {
			inherited = authority.lineage(now)
		}
	}
	if verdict != valid && authority.header == nil && perHop.header == nil && holderFrom(ctx) != nil {
		return ctx
	}
	h := &holder{
		Context:   ctx,
		announced: announced,
		authority: authority,
		perHop:    perHop,
		received:  inherited,
		rules:     &defaultRules,
		verdict:   verdict,
	}
	h.current.Store(&h.received)
	return h
}

// read returns the announcement in carrier. A repeated field is invalid, where
// the carrier can tell: the one of gRPC shows the first value only.
func (p *propagator) read(carrier propagation.TextMapCarrier) (announcement, verdict) {
	value, repeated := get(carrier, Header, canonicalHeader)
	if repeated {
		return announcement{}, invalid
	}
	return parse(value, p.maxLimit)
}

// get returns the value of a field, and whether there is more than one.
func get(carrier propagation.TextMapCarrier, name, canonical string) (value string, repeated bool) {
	var values []string
	switch c := carrier.(type) {
	case propagation.HeaderCarrier:
		values = c[canonical] // Values would compute the key anew.
	case propagation.ValuesGetter:
		values = c.Values(name)
	default:
		return carrier.Get(name), false
	}
	if len(values) == 0 {
		return "", false
	}
	return values[0], len(values) > 1
}

// consult reads the authority headers at the instant now. Of several the
// smallest counts.
func (p *propagator) consult(carrier propagation.TextMapCarrier, now instant) (authority, perHop reading) {
	for i := range p.authorities {
		a := &p.authorities[i]
		value, repeated := get(carrier, a.name, a.canonical)
		until, ok := a.until(value, now)
		if left := int64(until - now); repeated || !ok || left > p.maxLimit || left < -p.maxLimit {
			continue
		}
		into := &authority
		if a.kind == PerHop {
			into = &perHop
		}
		if into.header == nil || until < into.deadline {
			*into = reading{header: a, deadline: until}
		}
	}
	return authority, perHop
}

// What could come with every request is reported once in a process, and never
// with a value from outside.
var (
	unreadable    sync.Once
	errUnreadable = errors.New("latency budget: ignored an unreadable or repeated header " + Header + " (reported once)")
	panicked      sync.Once
)

// recovered ends a panic of the deferring function, which must leave everything
// as it was.
func recovered(where string) {
	if r := recover(); r != nil {
		report(where, r)
	}
}

// blankOnPanic ends a panic of Inject.
func blankOnPanic(carrier propagation.TextMapCarrier) {
	if r := recover(); r != nil {
		report("Inject", r)
		defer recovered("Inject") // The carrier may be what panics.
		blank(carrier)
	}
}

func report(where string, r any) {
	panicked.Do(func() {
		otel.Handle(fmt.Errorf("latency budget: %s panicked, nothing was observed (reported once): %v", where, r))
	})
}
