package propagation

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// MarkDetached records on the current span of ctx that nobody waits for it: the
// work is meant to outlive the request that began it. Whoever reads the trace
// gives it no budget, and reports nothing about its deadlines, nor about those of
// anything below. Call it in a span of the work's own, such as
//
//	ctx, span := tracer.Start(context.WithoutCancel(ctx), "send mail")
//	defer span.End()
//	propagation.MarkDetached(ctx)
//
// Without a recording span nothing happens.
func MarkDetached(ctx context.Context) {
	defer recovered("MarkDetached")
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(DetachedKey.Bool(true))
	}
}
