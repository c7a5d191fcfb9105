package propagation

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// NewEndStamper returns a processor that passes everything to next, and gives
// ended spans remaining.end, and the flag overrun where that is negative. It
// must wrap the exporting processor, since a span cannot be changed any more
// when it has ended:
//
//	sdktrace.WithSpanProcessor(propagation.NewEndStamper(sdktrace.NewBatchSpanProcessor(exporter)))
//
// Both can be derived from what the span carries anyway, so a pipeline with the
// Collector's processor needs no end stamper. A long stream overruns by its
// nature. If next is nil, ended spans go nowhere.
func NewEndStamper(next sdktrace.SpanProcessor) sdktrace.SpanProcessor {
	if next == nil {
		next = discard{}
	}
	return endStamper{next}
}

// discard is a processor that does nothing.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }

type endStamper struct {
	sdktrace.SpanProcessor
}

// OnEnd implements sdktrace.SpanProcessor.
func (p endStamper) OnEnd(s sdktrace.ReadOnlySpan) {
	p.SpanProcessor.OnEnd(ended(s))
}

// endedSpan is a span with other attributes.
type endedSpan struct {
	sdktrace.ReadOnlySpan
	attributes []attribute.KeyValue
}

// Attributes implements sdktrace.ReadOnlySpan.
func (s *endedSpan) Attributes() []attribute.KeyValue { return s.attributes }

// ended returns s with its end figures, or s if it has no start figures, or the
// end figures already.
func ended(s sdktrace.ReadOnlySpan) (out sdktrace.ReadOnlySpan) {
	out = s
	defer recovered("OnEnd")
	all := s.Attributes()
	start := slices.IndexFunc(all, func(kv attribute.KeyValue) bool { return kv.Key == attr.RemainingStart })
	if start < 0 || slices.ContainsFunc(all, func(kv attribute.KeyValue) bool { return kv.Key == attr.RemainingEnd }) {
		return s
	}
	remaining, ok := nanoseconds(all[start].Value)
	if !ok {
		return s
	}
	end := seconds(int64(remaining) - int64(s.EndTime().Sub(s.StartTime())))
	kvs := make([]attribute.KeyValue, len(all), len(all)+2)
	copy(kvs, all)
	kvs = append(kvs, RemainingEndKey.Float64(end))
	if end < 0 {
		kvs = overrun(kvs)
	}
	return &endedSpan{ReadOnlySpan: s, attributes: kvs}
}

// overrun adds that flag to the flags among kvs.
func overrun(kvs []attribute.KeyValue) []attribute.KeyValue {
	i := slices.IndexFunc(kvs, func(kv attribute.KeyValue) bool { return kv.Key == attr.Flags })
	if i < 0 {
		return append(kvs, FlagsKey.StringSlice([]string{attr.FlagOverrun}))
	}
	if flags := kvs[i].Value.AsStringSlice(); !slices.Contains(flags, attr.FlagOverrun) {
		kvs[i] = FlagsKey.StringSlice(append(flags, attr.FlagOverrun)) // The last one in order.
	}
	return kvs
}
