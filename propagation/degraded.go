package propagation

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

const (
	maxDegraded       = 32  // dependencies on one span
	maxDependencyName = 128 // bytes
)

// degrading guards the attribute, which can only be read and written as a whole.
var degrading sync.Mutex

// MarkDegraded records on the current span of ctx that the answer was made
// without dependency: the call was skipped, or a fallback took its place. Calls
// add up, in any order and from any goroutine; one span keeps 32 names of up to
// 128 bytes, and what goes beyond is left out. Name the dependency as traces do,
// by its service name. Without a recording span nothing happens.
func MarkDegraded(ctx context.Context, dependency string) {
	defer recovered("MarkDegraded")
	if dependency == "" || len(dependency) > maxDependencyName {
		return
	}
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	degrading.Lock()
	defer degrading.Unlock()
	names := []string{dependency}
	if s, ok := span.(sdktrace.ReadOnlySpan); ok {
		for _, kv := range s.Attributes() {
			if kv.Key == attr.Degraded {
				names = append(names, kv.Value.AsStringSlice()...)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxDegraded {
		return
	}
	span.SetAttributes(attribute.StringSlice(attr.Degraded, names))
}
