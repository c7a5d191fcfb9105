package source

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// exportOTLP makes n lines of what the Collector's file exporter writes: ten
// ResourceSpans a line with eight resource attributes, and in each ten spans
// with ten attributes, of which the readers want four.
func exportOTLP(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	attr := func(key, value string) {
		fmt.Fprintf(&out, `{"key":%q,"value":{"stringValue":%q}},`, key, value)
	}
	for range n {
		out.WriteString(`{"resourceSpans":[`)
		for service := range 10 {
			out.WriteString(`{"resource":{"attributes":[`)
			attr("service.name", fmt.Sprintf("service-%d", service))
			attr("host.name", fmt.Sprintf("node-%d", rng.IntN(3)))
			for k := range 6 {
				attr(fmt.Sprintf("k8s.attribute.%d", k), "a-value-that-nobody-reads")
			}
			out.Truncate(out.Len() - 1)
			out.WriteString(`]},"scopeSpans":[{"scope":{"name":"instrumentation","version":"1.2.3"},"spans":[`)
			for range 10 {
				start := 1700000000000000000 + rng.Int64N(1e15)
				fmt.Fprintf(&out, `{"traceId":"%016x%016x","spanId":"%016x","parentSpanId":"%016x","flags":257,`+
					`"name":"GET /users/{id}","kind":2,"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[`,
					rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64(), start, start+rng.Int64N(1e9))
				attr("http.route", "/users/{id}")
				attr("http.request.method", "GET")
				out.WriteString(`{"key":"http.response.status_code","value":{"intValue":"200"}},`)
				attr("server.address", "users.internal")
				for k := range 6 {
					attr(fmt.Sprintf("application.attribute.%d", k), "another-value-that-nobody-reads")
				}
				out.Truncate(out.Len() - 1)
				out.WriteString(`],"status":{}},`)
			}
			out.Truncate(out.Len() - 1)
			out.WriteString(`]}]},`)
		}
		out.Truncate(out.Len() - 1)
		out.WriteString("]}\n")
	}
	return out.Bytes()
}

const spansPerLine = 100

// exportFrames makes the same as protobuf with lengths before the messages.
func exportFrames(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(b []byte, num protowire.Number, s string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
	}
	sub := func(b []byte, num protowire.Number, msg []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), msg)
	}
	attr := func(b []byte, num protowire.Number, key, value string) []byte {
		return sub(b, num, text(sub(nil, 2, text(nil, 1, value)), 1, key)) // value before key
	}
	id := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return string(b)
	}
	var out []byte
	for range n {
		var data []byte
		for service := range 10 {
			var spans []byte
			for range 10 {
				start := 1700000000000000000 + rng.Uint64N(1e15)
				span := text(nil, 1, id(16))
				span = text(span, 2, id(8))
				span = text(span, 4, id(8))
				span = text(span, 5, "GET /users/{id}")
				span = protowire.AppendVarint(protowire.AppendTag(span, 6, protowire.VarintType), 2)
				span = protowire.AppendFixed64(protowire.AppendTag(span, 7, protowire.Fixed64Type), start)
				span = protowire.AppendFixed64(protowire.AppendTag(span, 8, protowire.Fixed64Type), start+rng.Uint64N(1e9))
				span = attr(span, 9, "http.route", "/users/{id}")
				span = attr(span, 9, "http.request.method", "GET")
				for k := range 8 {
					span = attr(span, 9, fmt.Sprintf("application.attribute.%d", k), "another-value-that-nobody-reads")
				}
				spans = sub(spans, 2, span)
			}
			resource := attr(nil, 1, "service.name", fmt.Sprintf("service-%d", service))
			data = sub(data, 1, sub(sub(nil, 2, spans), 1, resource)) // spans before resource
		}
		out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
		out = append(out, data...)
	}
	return out
}

// oneTask returns a function that reads data as one block of its format, the
// way a worker does, and gives the number of spans.
func oneTask(format string, form shape, data []byte) func() int {
	s, _ := Open([]string{stdinName}, nil, Options{})
	r := newReader(s.opts, &s.in)
	spans := 0
	r.emit = func(res result) bool {
		spans += len(res.spans)
		return true
	}
	r.format = jsonFormats[format]
	return func() int {
		spans = 0
		r.json.resetBytes(nil)
		switch form {
		case documents:
			r.readDocuments(newStream(bytes.NewReader(data), DefaultMaxBytes))
			r.flush()
		default:
			r.readBlock(block{data: data, line: 1, last: true}, form)
		}
		return spans
	}
}

func BenchmarkOTLPJSON(b *testing.B) {
	benchmarkTask(b, "otlp-json", lines, exportOTLP(40))
}

func BenchmarkOTLPJSONDocument(b *testing.B) {
	benchmarkTask(b, "otlp-json", documents, exportOTLP(40))
}

func BenchmarkOTLPProto(b *testing.B) {
	benchmarkTask(b, formatProto, frames, exportFrames(40))
}

func benchmarkTask(b *testing.B, format string, form shape, data []byte) {
	read := oneTask(format, form, data)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	spans := 0
	for b.Loop() {
		spans += read()
	}
	b.ReportMetric(float64(spans)/b.Elapsed().Seconds(), "spans/s")
}

// BenchmarkFile reads a file through the whole pipeline.
func BenchmarkFile(b *testing.B) {
	data := exportOTLP(400)
	name := filepath.Join(b.TempDir(), "traces.jsonl")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		src, err := Open([]string{name}, nil, Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, err := range src.Batches(context.Background()) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// exportJaeger makes n traces of 100 spans, each trace on a line of its own.
func exportJaeger(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	for range n {
		out.WriteString(`{"spans":[`)
		traceID := rng.Uint64()
		for range spansPerLine {
			fmt.Fprintf(&out, `{"traceID":"%016x","spanID":"%016x","operationName":"/search.Search/Nearby","references":`+
				`[{"refType":"CHILD_OF","traceID":"%016x","spanID":"%016x"}],"startTime":%d,"duration":%d,"tags":`+
				`[{"key":"span.kind","type":"string","value":"client"},{"key":"component","type":"string","value":"gRPC"}],`+
				`"logs":[],"processID":"p%d","warnings":null},`, traceID, rng.Uint64(), traceID, rng.Uint64(),
				1700000000000000+rng.Int64N(1e12), rng.IntN(1e6), rng.IntN(10))
		}
		out.Truncate(out.Len() - 1)
		out.WriteString(`],"processes":{`)
		for p := range 10 {
			fmt.Fprintf(&out, `"p%d":{"serviceName":"service-%d","tags":[{"key":"hostname","value":"node"}]},`, p, p)
		}
		out.Truncate(out.Len() - 1)
		out.WriteString("}}\n")
	}
	return out.Bytes()
}

// exportZipkin makes n lists of 100 spans.
func exportZipkin(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	for range n {
		out.WriteString("[")
		for range spansPerLine {
			fmt.Fprintf(&out, `{"traceId":"%016x","parentId":"%016x","id":"%016x","kind":"CLIENT","name":"post","timestamp":%d,`+
				`"duration":%d,"localEndpoint":{"serviceName":"front","ipv4":"10.0.0.1"},"remoteEndpoint":{"serviceName":"back"},`+
				`"tags":{"http.path":"/visits","http.status_code":"200"}},`, rng.Uint64(), rng.Uint64(), rng.Uint64(),
				1700000000000000+rng.Int64N(1e12), 1+rng.IntN(1e6))
		}
		out.Truncate(out.Len() - 1)
		out.WriteString("]\n")
	}
	return out.Bytes()
}

// exportStdouttrace makes 100 times n spans.
func exportStdouttrace(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	for range n * spansPerLine {
		fmt.Fprintf(&out, `{"Name":"GET","SpanContext":{"TraceID":"%016x%016x","SpanID":"%016x","TraceFlags":"01","TraceState":"",`+
			`"Remote":false},"Parent":{"TraceID":"%032x","SpanID":"%016x"},"SpanKind":2,"StartTime":"2024-02-06T11:15:06.611334019Z",`+
			`"EndTime":"2024-02-06T11:15:06.612334019Z","Attributes":[{"Key":"http.route","Value":{"Type":"STRING","Value":"/u/{id}"}}],`+
			`"Status":{"Code":"Unset"},"Resource":[{"Key":"service.name","Value":{"Type":"STRING","Value":"svc"}}]}`+"\n",
			rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64())
	}
	return out.Bytes()
}

func BenchmarkJaeger(b *testing.B) {
	benchmarkTask(b, "jaeger", lines, exportJaeger(40))
}

// TestAllocations holds reading to well under one allocation a span: what is
// allocated is the batches.
func TestAllocations(t *testing.T) {
	const n = 40
	for _, c := range []struct {
		name   string
		format string
		form   shape
		data   []byte
	}{
		{"otlp-json lines", "otlp-json", lines, exportOTLP(n)},
		{"otlp-json documents", "otlp-json", documents, exportOTLP(n)},
		{"otlp-proto frames", formatProto, frames, exportFrames(n)},
		{"jaeger", "jaeger", lines, exportJaeger(n)},
		{"zipkin", "zipkin", lines, exportZipkin(n)},
		{"stdouttrace", "stdouttrace", lines, exportStdouttrace(n)},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := oneTask(c.format, c.form, c.data)
			if got := read(); got != n*spansPerLine {
				t.Fatalf("read %d spans, want %d", got, n*spansPerLine)
			}
			perSpan := testing.AllocsPerRun(3, func() { read() }) / (n * spansPerLine)
			if perSpan > 0.1 {
				t.Errorf("%.3f allocations a span, want at most 0.1", perSpan)
			}
		})
	}
}
