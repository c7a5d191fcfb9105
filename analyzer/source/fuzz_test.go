package source

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// readDirect reads content through everything a file goes through, but on this
// goroutine, so that the fuzzer sees which code an input reaches.
func readDirect(t *testing.T, opts Options, content []byte) (spans []trace.Span, errs []error) {
	src, err := Open([]string{"-"}, bytes.NewReader(content), opts)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(src.opts, &src.in)
	r.emit = func(res result) bool {
		spans = append(spans, res.spans...)
		if res.err != nil {
			errs = append(errs, res.err)
		}
		return true
	}
	src.readFile(r, &openFile{File: trace.File{Name: "-"}, total: new(atomic.Int64), in: src.files[0]})
	return spans, errs
}

// fuzzReader holds a format, found or forced, to what every reader promises.
func fuzzReader(f *testing.F, format string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
		f.Add([]byte(s[:len(s)/2]))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		limits := Options{MaxBytes: 1 << 20, MaxDepth: 20, MaxString: 1 << 10}
		for _, forced := range []string{"", format} {
			limits.Format = forced
			spans, errs := readDirect(t, limits, content)
			for _, s := range spans {
				if s.Desc == nil || s.TraceID.IsZero() || s.ID.IsZero() {
					t.Fatalf("span %+v has no description or no id", s)
				}
				holdTimes(t, s)
				if len(s.Desc.Operation) > 4*limits.MaxString {
					t.Errorf("an operation of %d bytes", len(s.Desc.Operation))
				}
				if s.Stamp != nil && s.Stamp.Limit < 0 {
					t.Errorf("a negative limit: %s", show(s))
				}
			}
			if len(errs) > 1 {
				t.Errorf("more than one error for a file: %v", errs)
			}
			// Whatever the content, the error of the file is one line of text.
			if len(spans) == 0 {
				got := readStdin(t, limits, string(content), "-")
				if len(got.errs) != 1 || strings.ContainsFunc(got.errs[0].Error(), unicode.IsControl) || !utf8.ValidString(got.errs[0].Error()) {
					t.Errorf("errors %q, want one in one line", got.errs)
				}
			}
		}
	})
}

func FuzzOTLPJSON(f *testing.F) {
	doc := otlp(otlpSpan("1", `,"kind":2,"parentSpanId":"2","links":[{"traceId":"a","spanId":"9"}],"status":{"code":2},"traceState":"ot=th:8"`+
		attributes(`{"key":"http.route","value":{"stringValue":"/u/{id}"}},{"value":{"doubleValue":0.8},"key":"latency_budget.limit"}`)))
	fuzzReader(f, "otlp-json", doc, doc+"\n"+doc+"\n", "["+doc+"]", doc+"\n{broken\n"+doc, "\x00\x00"+doc,
		`{"resourceSpans":[{"scopeSpans":[{"spans":[`+otlpSpan("1", "")+`],"scope":{"attributes":[{"key":"tailsampling.policy"}]}}]}]}`,
		`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"W47/95gDgQPSabYzgT/GDA==","spanId":"7uGbfsPBsXQ="}]}],"resource":{}}]}`,
		otlp(otlpSpan("1", `,"events":[{"timeUnixNano":"1","name":"message","attributes":[{"key":"message.type","value":{"stringValue":"SENT"}}]},`+
			`{"attributes":[{"key":"message.type","value":{"stringValue":"SENT"}}],"name":"message"}]`)),
		gzipped(doc), zstded(doc))
}

func FuzzOTLPProto(f *testing.F) {
	msg := protoData(protoSpan(1, protoAttr(9, "http.status_code", varint(3, 504)), sub(13, str(1, protoID(0xa, 16)), str(2, protoID(9, 8)))))
	scope := sub(1, sub(2, protoSpan(1), sub(1, protoAttr(3, "tailsampling.policy", str(1, "slow")))))
	inbound := func(n uint64) []byte {
		return sub(11, protoAttr(3, "sequence-number", varint(3, n)), str(2, "Inbound message"))
	}
	stream := protoData(protoSpan(1, inbound(0), inbound(1)))
	fuzzReader(f, formatProto, string(msg), string(scope), frame(msg)+frame(msg), string(msg)+string(msg), string(stream))
}

func FuzzJaeger(f *testing.F) {
	span := `{"traceID":"a","spanID":"1","operationName":"op","references":[{"refType":"CHILD_OF","traceID":"a","spanID":"2"}],` +
		`"startTime":100,"duration":50,"processID":"p1","tags":[{"key":"span.kind","value":"client"}]}`
	fuzzReader(f, "jaeger", `{"data":[{"spans":[`+span+`],"processes":{"p1":{"serviceName":"svc","tags":[]}}}]}`,
		`{"spans":[{"traceID":"a","spanID":"1","logs":[{"fields":[{"key":"event","value":"message"},{"key":"message.type","value":"SENT"}]}]}]}`,
		`{"processes":{"p1":{}},"spans":[`+span+`,`+span+`]}`, span+"\n"+span, `[{"spans":[`+span+`],"data":[{"spans":[`+span+`]}]}]`)
}

func FuzzJaegerV3(f *testing.F) {
	doc := `{"result":` + otlp(otlpSpan("1", "")) + `}`
	fuzzReader(f, "jaeger-v3", doc, doc+doc)
}

func FuzzZipkin(f *testing.F) {
	fuzzReader(f, "zipkin",
		`[{"traceId":"a","id":"1","kind":"CLIENT","timestamp":1,"duration":2,"localEndpoint":{"serviceName":"s"},"tags":{"error":"x"}}]`,
		`[[{"traceId":"a","id":"1","annotations":[{"value":"cs","timestamp":1,"endpoint":{"serviceName":"s"}},{"value":"cr","timestamp":5}],`+
			`"binaryAnnotations":[{"key":"sa","value":true,"endpoint":{"serviceName":"b"}}]}]]`,
		`[{"traceId":"a","id":"1","annotations":[{"value":"\"message\": {\"message.type\": \"SENT\"}"},{"value":"message|{\"message.type\":\"SENT\"}|0"}]}]`)
}

func FuzzTempo(f *testing.F) {
	doc := otlp(otlpSpan("1", ""))
	fuzzReader(f, "tempo", `{"batches":`+doc[len(`{"resourceSpans":`):], `{"trace":`+doc+`}`)
}

func FuzzStdouttrace(f *testing.F) {
	fuzzReader(f, "stdouttrace", `{"Name":"op","SpanContext":{"TraceID":"aa","SpanID":"1","TraceState":""},"Parent":{"SpanID":"2"},"SpanKind":2,`+
		`"StartTime":"2024-02-06T11:15:06.611334019Z","EndTime":"2024-02-06T11:15:07Z","Attributes":[{"Key":"error","Value":{"Value":true}}],`+
		`"Events":[{"Name":"message","Attributes":[{"Key":"message.type","Value":{"Type":"STRING","Value":"SENT"}}]}],`+
		`"Links":[{"SpanContext":{"SpanID":"1"}}],"Status":{"Code":"Error"},"Resource":null}`)
}

func FuzzID(f *testing.F) {
	for _, s := range []string{"1", "0x5b8e", "W47/95gDgQPSabYzgT/GDA==", "zzz", "VFJBQ0VJRDE=", "e5bf1e7dff7df7fd37d35d7776e6bd6fad"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, opaque := range []bool{false, true} {
			var id [16]byte
			state := parseID(id[:], []byte(s), opaque)
			if (state == idOK || state == idDoubleDecoded) && zeroIsEmpty(id[:]) == idEmpty {
				t.Errorf("%q: state %d but the id is zero", s, state)
			}
			if state == idOK {
				var again [16]byte
				if parseID(again[:], []byte(trace.TraceID(id).String()), opaque) != idOK || again != id {
					t.Errorf("%q: %x is read back as %x", s, id, again)
				}
			}
		}
	})
}

// FuzzText holds that a text in memory, over which the reader walks, comes out as it
// does from the decoder, token by token, and that both find the same documents wrong.
func FuzzText(f *testing.F) {
	for _, span := range []string{
		otlpSpan("1", `,"kind":2,"status":{"code":2},"traceState":"ot=th:8"`+
			attributes(`{"key":"http.route","value":{"stringValue":"/u/{id}"}},{"value":{"doubleValue":0.8},"key":"latency_budget.limit"}`)),
		otlpSpan("1", `,"name":"a\"}{\\","attributes":[{"key":"rpc.method","value":{"arrayValue":{"values":[{"stringValue":"]}"}]}}},null,7]`),
		otlpSpan("1", `, "links" : [ {"traceId":"a","spanId":"9"} , {} ] , "events":[{"attributes":[[[{}]]]}],"kind":1e0,"droppedAttributesCount":-1.5e3`),
		otlpSpan("1", `,"name":"\u8ba2\ud83d\ude00\n订单","x":[true,false,null,-0.5E+3,"",{},[]]`),
		otlpSpan("1", `,"name":"`+"\xff\xfe"+`","x":"\ud800"`),
	} {
		f.Add([]byte(otlp(span)))
	}
	for _, doc := range []string{
		``, ` `, `{}{}`, `[{}] {"resourceSpans":[]}`, `{"a":1,}`, `[1,]`, `[,]`, `{,}`, `{"a" 1}`, `{"a":1 "b":2}`, `{a:1}`, `[1 2]`, `]`, `{]`, `[}`,
		`01`, `-`, `1.`, `.5`, `1e`, `tru`, `nulll`, `"\x"`, `"\u12g4"`, "\"\t\"", "\"\x00\"", `"`, `"abcdefgh`, `"abcdefg\`, `{"resourceSpans":[]},`, `[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		const maxDepth = 20
		memory, stream, parts := newJSONReader(maxDepth), newJSONReader(maxDepth), newJSONReader(maxDepth)
		memory.resetBytes(doc)
		stream.resetStream(bytes.NewReader(doc))
		parts.resetStream(bytes.NewReader(doc))
		walked, decoded, mixed := visit(memory, false), visit(stream, false), visit(parts, true)
		failed := func(j *jsonReader) bool { return !errors.Is(j.err, io.EOF) }
		if failed(memory) != failed(stream) || failed(parts) != failed(stream) {
			t.Fatalf("in memory %v, by tokens %v, in parts %v", memory.err, stream.err, parts.err)
		}
		if failed(stream) {
			return // where reading ended is no matter: nothing of the document is kept
		}
		if !slices.Equal(walked, decoded) || memory.badUTF8 != stream.badUTF8 {
			t.Errorf("%q in memory, %q by tokens", walked, decoded)
		}
		if !slices.Equal(mixed, decoded) || parts.badUTF8 != stream.badUTF8 {
			t.Errorf("%q in parts, %q by tokens", mixed, decoded)
		}
	})
}

// visit reads everything in turn, passes over some of it, and tells what it met.
func visit(j *jsonReader, parts bool) (met []string) {
	var value func()
	value = func() {
		kind := j.peek()
		met = append(met, string(kind))
		switch {
		case kind == 0:
		case len(met)%7 == 0:
			j.skip()
		case kind == '[':
			j.enter('[')
			for j.more() {
				value()
			}
		case kind == '{':
			if parts {
				j.enterPart()
			} else {
				j.enter('{')
			}
			for j.more() {
				met = append(met, string(j.name()))
				value()
				// Passing over the rest is for texts in memory alone: there it must
				// leave off where the end is.
				if len(met)%11 == 0 {
					if !j.leaveObject() {
						for j.more() {
							j.name()
							j.skip()
						}
					}
					break
				}
			}
		default:
			_, text := j.scalar()
			met = append(met, string(text))
		}
	}
	for j.err == nil {
		value()
	}
	return met
}
