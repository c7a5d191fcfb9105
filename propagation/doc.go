// Package propagation shows on every SERVER and CLIENT span how much of the
// request's latency budget was left, where that number came from, and whether
// the hop extended, dropped or exhausted the deadline.
//
// Two lines in the OpenTelemetry set-up suffice:
//
//	otel.SetTextMapPropagator(otelpropagation.NewCompositeTextMapPropagator(
//		otelpropagation.TraceContext{}, otelpropagation.Baggage{}, propagation.New()))
//	provider := sdktrace.NewTracerProvider(
//		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor()), ...)
//
// # It only observes
//
// The deadline that counts is the one in the calling context: ctx.Deadline,
// which gRPC fills from grpc-timeout and a service fills in its own middleware.
// This package never creates, extends, shortens or enforces one. After Extract
// the context has the Deadline, Done and Err it had before. No function returns
// a context with a deadline, or a duration that could serve as a timeout, and
// no component may derive a timeout from the header: it is evidence, which may
// be missing, old or forged.
//
// # On the wire
//
// Inject writes one header, an RFC 9651 Item:
//
//	latency-budget-observed: obs1;r=254.318;t=300;h=2;s="00f067aa0ba902b7"
//
// r is what remains and t the total, in milliseconds; h counts the hops; s is
// the span that wrote it, by which the receiver knows whether it is fresh. The
// remainder is relative, so the clocks of caller and callee need not agree. The
// time on the network is not counted.
//
// # What is compared
//
//	          |<--------------- limit, seen at the origin --------------->|
//	gateway   [=SERVER====================================================|
//	               [=CLIENT===== r=269.5 -->                              | D: context
//	inventory            [=SERVER=========================================| I: inherited
//	                     |<------------- remaining.start ---------------->|
//
// On an entry span the inherited deadline I is the instant of arrival plus r.
// Where the context has a deadline D that is no later, within a tolerance, D
// takes the place of I, since the authority is right. A later D is
// deadline_extended. On an exit span a later D is deadline_extended and none at
// all deadline_dropped; an earlier D is the call's own smaller budget.
//
// A context deadline is visible on the entry span only if it was set outside
// the instrumentation, as gRPC does and as a middleware around otelhttp does.
// For a middleware inside otelhttp call Observe after it, or name its header by
// WithAuthorityHeader.
package propagation
