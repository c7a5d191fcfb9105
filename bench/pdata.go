// Package bench holds what needs pdata, the Collector's own representation of
// telemetry, to compare with: the same analysis on traces that pdata has read.
// It is a module of its own, so that users of the project do not get pdata.
package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"os"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// longestMessage bounds one line or message of the files that are read here.
const longestMessage = 1 << 30

// pdataFile is a [trace.Source] that reads one file of the Collector's file
// exporter with pdata: OTLP JSON, one document a line, or, with proto set,
// protobuf messages behind their length in four bytes.
//
// It is what one would write with pdata at hand: whole messages are decoded,
// then walked. It gives up at the first error and makes no notes.
type pdataFile struct {
	name  string
	proto bool
}

// Batches yields one batch a line or message.
func (f pdataFile) Batches(ctx context.Context) iter.Seq2[trace.Batch, error] {
	return func(yield func(trace.Batch, error) bool) {
		info := &trace.File{Name: f.name, Format: "otlp-json"}
		if f.proto {
			info.Format = "otlp-proto"
		}
		var in trace.Interner
		b := bridge{cache: in.NewCache()}
		for traces, err := range f.messages(info) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(trace.Batch{}, fmt.Errorf("%s: %w", f.name, err))
				return
			}
			if !yield(trace.Batch{File: info, Spans: b.spans(traces)}, nil) {
				return
			}
		}
	}
}

// messages decodes the file; an error is the last that it yields.
func (f pdataFile) messages(info *trace.File) iter.Seq2[ptrace.Traces, error] {
	return func(yield func(ptrace.Traces, error) bool) {
		file, err := os.Open(f.name)
		if err != nil {
			yield(ptrace.Traces{}, err)
			return
		}
		defer func() { _ = file.Close() }() // it was only read
		lines := bufio.NewScanner(file)
		lines.Buffer(make([]byte, 1<<20), longestMessage)
		unmarshal := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces
		if f.proto {
			lines.Split(splitFrames)
			unmarshal = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces
		}
		for lines.Scan() {
			info.Bytes += int64(len(lines.Bytes()))
			traces, err := unmarshal(lines.Bytes())
			if !yield(traces, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(ptrace.Traces{}, err)
		}
	}
}

// splitFrames is a [bufio.SplitFunc] for messages behind their length.
func splitFrames(data []byte, atEOF bool) (advance int, token []byte, err error) {
	const head = 4
	if len(data) == 0 {
		return 0, nil, nil
	}
	if len(data) >= head {
		if end := head + int(binary.BigEndian.Uint32(data)); len(data) >= end {
			return end, data[head:end], nil
		}
	}
	if atEOF {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// bridge turns spans of pdata into those of the analysis.
type bridge struct {
	cache             *trace.Cache
	attrs, res, scope trace.Attributes
	text              []byte
}

func (b *bridge) spans(traces ptrace.Traces) []trace.Span {
	out := make([]trace.Span, 0, traces.SpanCount())
	for _, resource := range traces.ResourceSpans().All() {
		b.res.Reset()
		b.setAll(&b.res, resource.Resource().Attributes())
		res := b.res.Resource(b.cache)
		for _, scope := range resource.ScopeSpans().All() {
			b.scope.Reset()
			b.setAll(&b.scope, scope.Scope().Attributes())
			for _, s := range scope.Spans().All() {
				if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() {
					continue
				}
				span := b.span(s, res)
				if b.scope.TailSampled() {
					span.Flags |= trace.FlagTailSampled
				}
				out = append(out, span)
			}
		}
	}
	return out
}

func (b *bridge) span(s ptrace.Span, res trace.Resource) trace.Span {
	out := trace.Span{
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
	b.attrs.Reset()
	b.setText(&b.attrs, trace.AttrSpanName, s.Name())
	b.setText(&b.attrs, trace.AttrTraceState, s.TraceState().AsRaw())
	b.setAll(&b.attrs, s.Attributes())
	b.attrs.SetStatus(s.Status().Code() == ptrace.StatusCodeError)
	b.setText(&b.attrs, trace.AttrStatusMessage, s.Status().Message())
	b.follow(&out, s.Links())
	b.attrs.Describe(&out, res, b.cache)
	return out
}

// follow looks for the parent among the links of a span: a link to a span of
// the same trace says that the linked span does not wait.
func (b *bridge) follow(s *trace.Span, links ptrace.SpanLinkSlice) {
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

func (b *bridge) setAll(attrs *trace.Attributes, from pcommon.Map) {
	for name, value := range from.All() {
		b.text = append(b.text[:0], name...)
		key, wanted := attrs.See(b.text)
		if !wanted {
			continue
		}
		switch value.Type() {
		case pcommon.ValueTypeStr:
			b.setText(attrs, key, value.Str())
		case pcommon.ValueTypeInt:
			attrs.SetInt(key, value.Int())
		case pcommon.ValueTypeDouble:
			attrs.SetFloat(key, value.Double())
		case pcommon.ValueTypeBool:
			attrs.SetBool(key, value.Bool())
		}
	}
}

func (b *bridge) setText(attrs *trace.Attributes, key trace.AttrKey, text string) {
	b.text = append(b.text[:0], text...)
	attrs.SetString(key, b.text)
}
