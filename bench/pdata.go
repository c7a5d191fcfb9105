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

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/otlp"
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
		var reader otlp.Reader
		for traces, err := range f.messages(info) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(trace.Batch{}, fmt.Errorf("%s: %w", f.name, err))
				return
			}
			spans := make([]trace.Span, 0, traces.SpanCount())
			reader.Read(traces, func(s *trace.Span) { spans = append(spans, *s) })
			if !yield(trace.Batch{File: info, Spans: spans}, nil) {
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
