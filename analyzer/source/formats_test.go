package source

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	hashfnv "hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// show writes a span in one line, so that tables can state it.
//
//	trace/span<parent service|operation|peer|host kind start+duration outcome flags
//
// Ids are without leading zeros, unknown parts are left out.
func show(s trace.Span) string {
	short := func(id string) string { return strings.TrimLeft(id, "0") }
	out := short(s.TraceID.String()) + "/" + short(s.ID.String())
	if !s.Parent.IsZero() {
		out += "<" + short(s.Parent.String())
	}
	d := s.Desc
	out += " " + strings.TrimRight(strings.Join([]string{d.Service, d.Operation, d.Peer, d.Host}, "|"), "|")
	out += fmt.Sprintf(" %v %d", s.Kind, s.Start)
	if s.Is(trace.FlagUnmeasured) {
		out += " unmeasured"
	} else {
		out += fmt.Sprintf("%+d", s.Duration)
	}
	out += []string{"", " failed", " timed-out", " cancelled"}[s.Outcome]
	for _, f := range []struct {
		flag trace.Flags
		name string
	}{
		{trace.FlagFollowsFrom, "follows"},
		{trace.FlagOutbound, "outbound"},
		{trace.FlagThresholdInvalid, "bad-th"},
		{trace.FlagTailSampled, "tail"},
		{trace.FlagStream, "stream"},
	} {
		if s.Is(f.flag) {
			out += " " + f.name
		}
	}
	if s.Is(trace.FlagThreshold) {
		out += fmt.Sprintf(" th:%014x", s.Threshold)
	}
	if st := s.Stamp; st != nil {
		out += fmt.Sprintf(" limit:%d", st.Limit)
		if st.HasRemaining {
			out += fmt.Sprintf(" left:%d", st.Remaining)
		}
		if st.HasAnnounced {
			out += fmt.Sprintf(" announced:%d stale:%v absolute:%v", st.Announced, st.Stale, st.Absolute)
		}
		if st.HasDeadline {
			out += fmt.Sprintf(" remaining:%d", st.DeadlineRemaining)
		}
	}
	return out
}

func showAll(spans []trace.Span) []string {
	var out []string
	for _, s := range spans {
		out = append(out, show(s))
	}
	return out
}

// counted returns the notes as "kind" or "kind×n".
func counted(notes trace.Notes) []string {
	var out []string
	for _, n := range notes.List() {
		if n.Count == 1 {
			out = append(out, string(n.Kind))
		} else {
			out = append(out, fmt.Sprintf("%s×%d", n.Kind, n.Count))
		}
	}
	return out
}

// readCase is an input and what must come out of it.
type readCase struct {
	name  string
	in    string
	want  []string // spans, see show
	notes []string // see counted
}

func runCases(t *testing.T, format string, cases []readCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := readStdin(t, Options{}, c.in, "-")
			if len(got.errs) > 0 {
				t.Error(got.errs)
			}
			if diff := cmp.Diff(c.want, showAll(got.spans)); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.notes, counted(got.notes)); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			if len(got.files) > 0 && got.files[0].Format != format {
				t.Errorf("format %s, want %s", got.files[0].Format, format)
			}
		})
	}
}

// otlp wraps spans into a document with service "svc".
func otlp(spans ...string) string {
	return `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"svc"}}]},` +
		`"scopeSpans":[{"spans":[` + strings.Join(spans, ",") + `]}]}]}`
}

// otlpSpan is a span a/id with times 100 and 200 and more members.
func otlpSpan(id string, more string) string {
	return `{"traceId":"a","spanId":"` + id + `","name":"op","startTimeUnixNano":"100","endTimeUnixNano":"200"` + more + `}`
}

// hashedID is the id that stands for one of somebody's own making.
func hashedID(id string) string {
	h := hashfnv.New64a()
	h.Write([]byte(id))
	return fmt.Sprintf("%x", h.Sum64())
}

func attributes(list string) string { return `,"attributes":[` + list + `]` }

func TestOTLPJSON(t *testing.T) {
	const plain = "a/1 svc|op unspecified 100+100"
	ids := func(traceID, spanID string) string {
		return otlp(`{"traceId":"` + traceID + `","spanId":"` + spanID + `","startTimeUnixNano":1,"endTimeUnixNano":2}`)
	}
	const (
		trace128 = "5b8efff798038103d269b633813fc60c"
		span64   = "eee19b7ec3c1b174"
		showIDs  = trace128 + "/" + span64 + " svc unspecified 1+1"
	)
	b64 := func(h string) string {
		raw, _ := hex.DecodeString(h)
		return base64.StdEncoding.EncodeToString(raw)
	}
	// An id that was hex text and went through a base64 decoder is half as long again.
	double := func(h string) string {
		raw, _ := base64.StdEncoding.DecodeString(h)
		return hex.EncodeToString(raw)
	}
	runCases(t, "otlp-json", []readCase{
		{"one document", otlp(otlpSpan("1", "")), []string{plain}, nil},
		{
			"pretty", strings.NewReplacer("{", "{\n  ", "[", "[\n", ",", ",\n\t").Replace(otlp(otlpSpan("1", ""))),
			[]string{plain},
			nil,
		},
		{
			"one document a line", otlp(otlpSpan("1", "")) + "\n" + otlp(otlpSpan("2", "")) + "\n",
			[]string{plain, "a/2 svc|op unspecified 100+100"},
			nil,
		},
		{
			"CRLF and blank lines", otlp(otlpSpan("1", "")) + "\r\n\r\n" + otlp(otlpSpan("2", "")) + "\r\n",
			[]string{plain, "a/2 svc|op unspecified 100+100"},
			nil,
		},
		{
			"documents back to back", otlp(otlpSpan("1", "")) + otlp(otlpSpan("2", "")),
			[]string{plain, "a/2 svc|op unspecified 100+100"},
			nil,
		},
		{
			"an array of documents", "[" + otlp(otlpSpan("1", "")) + ",\n" + otlp(otlpSpan("2", "")) + "]",
			[]string{plain, "a/2 svc|op unspecified 100+100"},
			nil,
		},
		{"byte order mark", "\xef\xbb\xbf" + otlp(otlpSpan("1", "")), []string{plain}, nil},
		{"leading zero bytes", "\x00\x00\x00\x00" + otlp(otlpSpan("1", "")), []string{plain}, nil},
		{
			"zero bytes between lines", otlp(otlpSpan("1", "")) + "\n\x00\x00" + otlp(otlpSpan("2", "")) + "\n\x00\x00",
			[]string{plain, "a/2 svc|op unspecified 100+100"},
			nil,
		},
		{"zero bytes behind the document", otlp(otlpSpan("1", "")) + "\x00\x00\x00", []string{plain}, nil},
		{"instrumentationLibrarySpans", strings.Replace(otlp(otlpSpan("1", "")), "scopeSpans",
			"instrumentationLibrarySpans", 1), []string{plain}, nil},
		{
			"snake_case", `{"resource_spans":[{"scope_spans":[{"spans":[{"trace_id":"a","span_id":"1","parent_span_id":"2",` +
				`"name":"op","kind":"SPAN_KIND_CLIENT","start_time_unix_nano":100,"end_time_unix_nano":200,` +
				`"trace_state":"ot=th:8","attributes":[{"key":"peer.service","value":{"string_value":"p"}}]}]}],` +
				`"resource":{"attributes":[{"key":"service.name","value":{"string_value":"svc"}}]}}]}`,
			[]string{"a/1<2 svc|op|p client 100+100 outbound th:80000000000000"},
			nil,
		},
		{
			"a lone ResourceSpans a line, as the Java SDK logs it",
			`{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"svc"}}]},"scopeSpans":[{"spans":[` +
				otlpSpan("1", "") + `]}]}`,
			[]string{plain},
			nil,
		},
		{"spans before their resource", `{"resourceSpans":[{"scopeSpans":[{"spans":[` + otlpSpan("1", "") + `]}],` +
			`"resource":{"attributes":[{"value":{"stringValue":"svc"},"key":"service.name"},` +
			`{"value":{"stringValue":"node"},"key":"host.name"}]}}]}`, []string{"a/1 svc|op||node unspecified 100+100"}, nil},
		{
			"no resource", `{"resourceSpans":[{"scopeSpans":[{"spans":[` + otlpSpan("1", "") + `]}]}]}`,
			[]string{"a/1 |op unspecified 100+100"},
			[]string{"no_service_name"},
		},
		{
			"null lists", `{"resourceSpans":[null,{"resource":null,"scopeSpans":null},{"scopeSpans":[null,{"spans":null}]}]}` +
				otlp(otlpSpan("1", `,"attributes":null,"links":null,"status":null,"events":null,"kind":null`)),
			[]string{plain},
			nil,
		},
		{"unknown members", `{"x":{"resourceSpans":[1]},"resourceSpans":[{"y":[[{}]],"scopeSpans":[{"z":"}{","spans":[` +
			otlpSpan("1", `,"w":{"traceId":"b"}`) + `]}],"resource":{"attributes":[{"key":"service.name",` +
			`"value":{"stringValue":"svc"}}],"droppedAttributesCount":1}}]}`, []string{plain}, nil},
		{"repeated member", otlp(otlpSpan("9", `,"spanId":"1","name":"op2"`)), []string{"a/1 svc|op2 unspecified 100+100"}, nil},
		{"escaped names and texts", otlp(`{"\u0074raceId":"\u0061","spanId":"1","name":"支\u4ed8 \ud83d\ude00","startTimeUnixNano":"100",` +
			`"endTimeUnixNano":"200"}`), []string{"a/1 svc|支付 😀 unspecified 100+100"}, nil},
		{
			"bytes that are no UTF-8", otlp(otlpSpan("1", `,"name":"a`+"\xff"+`b"`)),
			[]string{"a/1 svc|a\ufffdb unspecified 100+100"},
			[]string{"invalid_utf8"},
		},
		{
			"half of a surrogate pair", otlp(otlpSpan("1", `,"name":"a\ud800b"`)),
			[]string{"a/1 svc|a\ufffdb unspecified 100+100"},
			[]string{"invalid_utf8"},
		},

		// Ids.
		{"hex", ids(trace128, span64), []string{showIDs}, nil},
		{"upper case hex", ids(strings.ToUpper(trace128), strings.ToUpper(span64)), []string{showIDs}, nil},
		{"0x before hex", ids("0x"+trace128, "0X"+span64), []string{showIDs}, nil},
		{"base64", ids(b64(trace128), b64(span64)), []string{showIDs}, nil},
		{
			"base64 of the URL alphabet", ids(strings.NewReplacer("+", "-", "/", "_").Replace(b64(trace128)), b64(span64)),
			[]string{showIDs},
			nil,
		},
		{
			"base64 without padding", ids(strings.TrimRight(b64(trace128), "="), strings.TrimRight(b64(span64), "=")),
			[]string{showIDs},
			nil,
		},
		{"hex through base64", ids(double(trace128), double(span64)), []string{showIDs}, []string{"double_decoded_id"}},
		{"64 bits of trace id", ids("463ac35c9f6413ad", "1"), []string{"463ac35c9f6413ad/1 svc unspecified 1+1"}, nil},
		{"odd number of digits", ids("123", "12345"), []string{"123/12345 svc unspecified 1+1"}, nil},
		{
			"padded base64 of another length", ids("VFJBQ0VJRDE=", "VFJBQ0VJRDEtU1BBTjE="),
			[]string{"5452414345494431/" + hashedID("TRACEID1-SPAN1") + " svc unspecified 1+1"},
			nil,
		},
		{
			"empty ids", otlp(otlpSpan("1", ""), otlpSpan("", ""), otlpSpan("2", `,"traceId":null`), otlpSpan("0000", "")),
			[]string{plain},
			[]string{"empty_id×3"},
		},
		{"garbage ids", otlp(otlpSpan("1", ""), otlpSpan("zzz", ""), otlpSpan("!!!INVALID!!!", ""),
			otlpSpan("2", `,"traceId":7`), otlpSpan(trace128, "")), []string{plain}, []string{"bad_span×4"}},
		{
			"parents", otlp(otlpSpan("1", `,"parentSpanId":""`), otlpSpan("2", `,"parentSpanId":null`),
				otlpSpan("3", `,"parentSpanId":"0000000000000000"`), otlpSpan("4", `,"parentSpanId":"1"`),
				otlpSpan("5", `,"parentSpanId":"?"`)),
			[]string{
				plain, "a/2 svc|op unspecified 100+100", "a/3 svc|op unspecified 100+100",
				"a/4<1 svc|op unspecified 100+100", "a/5 svc|op unspecified 100+100",
			},
			[]string{"bad_parent_id"},
		},

		// Kinds and status.
		{
			"kinds", otlp(otlpSpan("1", `,"kind":2`), otlpSpan("2", `,"kind":"SPAN_KIND_CLIENT"`), otlpSpan("3", `,"kind":"PRODUCER"`),
				otlpSpan("4", `,"kind":"consumer"`), otlpSpan("5", `,"kind":1`), otlpSpan("6", `,"kind":0`), otlpSpan("7", `,"kind":99`),
				otlpSpan("8", `,"kind":"SPAN_KIND_INVALID_TYPE"`)),
			[]string{
				"a/1 svc|op server 100+100", "a/2 svc|op client 100+100", "a/3 svc|op producer 100+100",
				"a/4 svc|op consumer 100+100", "a/5 svc|op internal 100+100", "a/6 svc|op unspecified 100+100",
				"a/7 svc|op unspecified 100+100", "a/8 svc|op unspecified 100+100",
			},
			[]string{"bad_kind×2"},
		},
		{
			"status", otlp(otlpSpan("1", `,"status":{"code":2}`), otlpSpan("2", `,"status":{"message":"m","code":"STATUS_CODE_ERROR"}`),
				otlpSpan("3", `,"status":{"code":"STATUS_CODE_OK"}`), otlpSpan("4", `,"status":{}`),
				otlpSpan("5", `,"status":{"message":"context canceled","code":2}`)),
			[]string{
				"a/1 svc|op unspecified 100+100 failed", "a/2 svc|op unspecified 100+100 failed",
				"a/3 svc|op unspecified 100+100", "a/4 svc|op unspecified 100+100",
				"a/5 svc|op unspecified 100+100 cancelled",
			},
			nil,
		},

		// Times.
		{"times as numbers", otlp(otlpSpan("1", `,"startTimeUnixNano":100,"endTimeUnixNano":200`)), []string{plain}, nil},
		{"integral exponents", otlp(otlpSpan("1", `,"startTimeUnixNano":1e2,"endTimeUnixNano":"2.00e+2"`)), []string{plain}, nil},
		{
			"19 digits stay exact", otlp(otlpSpan("1", `,"startTimeUnixNano":1700000000000000001,"endTimeUnixNano":1.700000000000000003e18`)),
			[]string{"a/1 svc|op unspecified 1700000000000000001+2"},
			nil,
		},
		{"the end before the start", otlp(otlpSpan("1", `,"endTimeUnixNano":"99"`)), []string{"a/1 svc|op unspecified 100-1"}, nil},
		{
			"no start or no end", otlp(otlpSpan("1", `,"startTimeUnixNano":0`), otlpSpan("2", `,"endTimeUnixNano":null`),
				otlpSpan("3", `,"endTimeUnixNano":""`)),
			[]string{
				"a/1 svc|op unspecified 200 unmeasured", "a/2 svc|op unspecified 100 unmeasured",
				"a/3 svc|op unspecified 100 unmeasured",
			},
			[]string{"unmeasured×3"},
		},
		{
			"times that are none", otlp(otlpSpan("1", ""), otlpSpan("2", `,"startTimeUnixNano":"-5"`),
				otlpSpan("3", `,"startTimeUnixNano":"9223372036854775808"`), otlpSpan("4", `,"startTimeUnixNano":"2024-01-01T00:00:00Z"`),
				otlpSpan("5", `,"endTimeUnixNano":1.5`), otlpSpan("6", `,"endTimeUnixNano":{}`)),
			[]string{plain},
			[]string{"bad_span×5"},
		},

		// Attributes.
		{
			"integers as strings and numbers", otlp(otlpSpan("1", attributes(`{"key":"http.status_code","value":{"intValue":"504"}}`)),
				otlpSpan("2", attributes(`{"key":"http.status_code","value":{"intValue":504}}`)),
				otlpSpan("3", attributes(`{"key":"http.status_code","value":{"stringValue":"504"}}`))),
			[]string{
				"a/1 svc|op unspecified 100+100 timed-out", "a/2 svc|op unspecified 100+100 timed-out",
				"a/3 svc|op unspecified 100+100 timed-out",
			},
			nil,
		},
		{
			"bad values cost the attribute", otlp(otlpSpan("1", attributes(`{"key":"http.status_code","value":{"intValue":"x"}},`+
				`{"key":"http.status_code","value":{"intValue":1.5}},{"key":"latency_budget.limit","value":{"doubleValue":null}},`+
				`{"key":"peer.service","value":{"stringValue":7}},{"key":"peer.service","value":null},{"key":"peer.service","value":{}},`+
				`{"key":"peer.service","value":{"arrayValue":{"values":[{}]}}},{"key":7},{},null,7`))),
			[]string{"a/1 svc|op unspecified 100+100 outbound"},
			[]string{"bad_attribute×4"},
		},
		{
			"stamps", otlp(otlpSpan("1", attributes(`{"key":"latency_budget.limit","value":{"doubleValue":0.8}},`+
				`{"key":"latency_budget.deadline.remaining","value":{"doubleValue":-0.25}}`)),
				otlpSpan("2", attributes(`{"key":"latency_budget.limit","value":{"intValue":"2"}}`)),
				otlpSpan("3", attributes(`{"key":"latency_budget.limit","value":{"doubleValue":"NaN"}}`)),
				otlpSpan("4", attributes(`{"key":"latency_budget.limit","value":{"doubleValue":"Infinity"}}`))),
			[]string{
				"a/1 svc|op unspecified 100+100 limit:800000000 remaining:-250000000",
				"a/2 svc|op unspecified 100+100 limit:2000000000", "a/3 svc|op unspecified 100+100",
				"a/4 svc|op unspecified 100+100",
			},
			[]string{"bad_budget_stamp×2"},
		},
		{
			"captured headers", otlp(otlpSpan("1", attributes(`{"key":"http.request.header.x-timeout-budget-ms","value":{"arrayValue":{"values":[{"stringValue":"300"}]}}}`)),
				otlpSpan("2", attributes(`{"value":{"array_value":{"values":[{"stringValue":"2S"}],"x":1}},"key":"rpc.request.metadata.grpc_timeout"}`)),
				otlpSpan("3", attributes(`{"key":"http.request.header.x-timeout-budget-ms","value":{"arrayValue":{"values":[{"stringValue":"300"},{"stringValue":"200"}]}}}`)),
				otlpSpan("4", attributes(`{"key":"http.request.header.x-timeout-budget-ms","value":{"arrayValue":{"values":[{"arrayValue":{"values":[{"stringValue":"300"}]}}]}}}`)),
				otlpSpan("5", attributes(`{"key":"http.request.header.x-timeout-budget-ms","value":{"arrayValue":{"values":[]}}},`+
					`{"key":"http.request.header.x-timeout-budget-ms","value":{"arrayValue":null}},{"key":"error.type","value":{"arrayValue":{"values":[{"stringValue":"timeout"}]}}}`)),
				otlpSpan("6", attributes(`{"key":"http.request.header.x-timeout-budget-ms","value":{"stringValue":"300"}}`)),
				otlpSpan("7", attributes(`{"key":"deadline_remaining_ms","value":{"intValue":"40"}}`))),
			[]string{
				"a/1 svc|op unspecified 100+100 limit:300000000 left:300000000 remaining:300000000",
				"a/2 svc|op unspecified 100+100 outbound limit:2000000000 left:2000000000 remaining:2000000000",
				"a/3 svc|op unspecified 100+100", "a/4 svc|op unspecified 100+100", "a/5 svc|op unspecified 100+100",
				"a/6 svc|op unspecified 100+100 limit:300000000 left:300000000 remaining:300000000",
				"a/7 svc|op unspecified 100+100 limit:40000000 left:40000000",
			},
			nil,
		},
		{
			"sampling threshold", otlp(otlpSpan("1", `,"traceState":"ot=th:fd70a4"`), otlpSpan("2", `,"traceState":"ot=th:zz"`),
				otlpSpan("3", `,"traceState":null`)),
			[]string{
				"a/1 svc|op unspecified 100+100 th:fd70a400000000", "a/2 svc|op unspecified 100+100 bad-th",
				"a/3 svc|op unspecified 100+100",
			},
			[]string{"bad_sampling_th"},
		},
		{
			"tail sampling", otlp(otlpSpan("1", attributes(`{"key":"tailsampling.policy","value":{"stringValue":"slow"}}`))),
			[]string{"a/1 svc|op unspecified 100+100 tail"},
			nil,
		},
		{
			"links", otlp(otlpSpan("1", `,"links":[{"traceId":"a","spanId":"1"},{"traceId":"b","spanId":"8"},{"traceId":"a","spanId":"9"}]`),
				`{"links":[{"traceId":"a","spanId":"9"}],`+otlpSpan("2", `,"parentSpanId":"9"`)[1:],
				otlpSpan("3", `,"parentSpanId":"9","links":[{"traceId":"a","spanId":"8"}]`),
				otlpSpan("4", `,"links":[{"traceId":"b","spanId":"8"},null]`)),
			[]string{
				"a/1<9 svc|op unspecified 100+100 follows", "a/2<9 svc|op unspecified 100+100 follows",
				"a/3<9 svc|op unspecified 100+100", "a/4 svc|op unspecified 100+100",
			},
			nil,
		},

		// Bad data costs only itself.
		{
			"values that are no spans", otlp("7", otlpSpan("1", ""), "null", `"x"`, "[]", "{}"),
			[]string{plain},
			[]string{"bad_span×4", "empty_id"},
		},
		{
			"a broken line among good ones", otlp(otlpSpan("1", "")) + "\n" + `{"resourceSpans":[{"scope` + "\n" +
				otlp(otlpSpan("2", "")) + "\nxyz\n123\n" + otlp(otlpSpan("3", "")),
			[]string{plain, "a/2 svc|op unspecified 100+100", "a/3 svc|op unspecified 100+100"},
			[]string{"bad_line×3"},
		},
		{"a broken line gives nothing", otlp(otlpSpan("1", "")) + "\n" + otlp(otlpSpan("2", ""), `{"traceId":7}`) + "}\n" +
			otlp(otlpSpan("3", "")), []string{plain, "a/3 svc|op unspecified 100+100"}, []string{"bad_line"}},
		{"a cut last line", otlp(otlpSpan("1", "")) + "\n" + otlp(otlpSpan("2", ""))[:180], []string{plain}, []string{"truncated"}},
		{
			"a cut first line", otlp(otlpSpan("9", ""))[150:] + "\n" + otlp(otlpSpan("1", "")) + "\n" + otlp(otlpSpan("2", "")) + "\n",
			[]string{plain, "a/2 svc|op unspecified 100+100"},
			[]string{"bad_line"},
		},
		{
			"a crashed writer's first line", otlp(otlpSpan("9", ""))[:150] + "\n" + otlp(otlpSpan("1", "")) + "\n" + otlp(otlpSpan("2", "")) + "\n",
			[]string{plain, "a/2 svc|op unspecified 100+100"},
			[]string{"bad_line"},
		},
		{
			"a syntax error in a pretty document", "{\n\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[\n " + otlpSpan("1", "") + ",\n " +
				otlpSpan("2", "") + "\n " + otlpSpan("3", "") + "\n]}]}]}\n" + otlp(otlpSpan("4", "")) + "\n",
			[]string{"a/1 |op unspecified 100+100", "a/2 |op unspecified 100+100", "a/4 svc|op unspecified 100+100"},
			[]string{"bad_line", "no_service_name×2"},
		},
		{"a cut document", strings.SplitAfter(otlp(otlpSpan("1", ""), otlpSpan("2", "")), `"spanId":"2"`)[0], []string{plain}, []string{"truncated"}},
		{"garbage behind the document", otlp(otlpSpan("1", "")) + " xyz", []string{plain}, []string{"bad_line"}},
		{
			"logs beside traces", `{"resourceLogs":[]}` + "\n" + otlp(otlpSpan("1", "")) + "\n" + `{"resourceMetrics":[{}]}` + "\n{}\n",
			[]string{plain},
			nil,
		},
		{"a document of something else", otlp(otlpSpan("1", "")) + "\n" + `{"foo":1}` + "\n", []string{plain}, []string{"bad_line"}},
	})
}

func TestEnvelopesOfOTLP(t *testing.T) {
	list := strings.TrimSuffix(strings.TrimPrefix(otlp(otlpSpan("1", "")), `{"resourceSpans":`), "}")
	want := []string{"a/1 svc|op unspecified 100+100"}
	second := append(slices.Clone(want), "a/2 svc|a}{b unspecified 100+100")
	runCases(t, "tempo", []readCase{
		{"version 1", `{"batches":` + list + `}`, want, nil},
		{"version 2", `{"trace":{"resourceSpans":` + list + `}}`, want, nil},
		{"version 2 with batches", `{"metrics":{},"trace":{"batches":` + list + `}}`, want, nil},
		{"old library spans", `{"batches":` + strings.Replace(list, "scopeSpans", "instrumentationLibrarySpans", 1) + `}`, want, nil},
	})
	chunk := `{"result":{"resourceSpans":` + list + `}}`
	other := `{"result":` + otlp(otlpSpan("2", `,"name":"a}{b"`)) + `}`
	runCases(t, "jaeger-v3", []readCase{
		{"one", chunk, want, nil},
		{"back to back", chunk + other, second, nil},
		{"one a line", chunk + "\n" + other, second, nil},
		{"an array", "[" + chunk + "," + other + "]", second, nil},
	})
}

func TestJaeger(t *testing.T) {
	span := func(id, more string) string {
		return `{"traceID":"a","spanID":"` + id + `","operationName":"op","startTime":100,"duration":50,"processID":"p1"` + more + `}`
	}
	const processes = `"processes":{"p1":{"serviceName":"svc","tags":[{"key":"hostname","type":"string","value":"node"}]}}`
	const one = "a/1 svc|op||node unspecified 100000+50000"
	with := func(spans ...string) string {
		return `{"data":[{"traceID":"a","spans":[` + strings.Join(spans, ",") + `],` + processes + `}]}`
	}
	refs := func(list string) string { return `,"references":[` + list + `]` }
	ref := func(kind, traceID, spanID string) string {
		return `{"refType":"` + kind + `","traceID":"` + traceID + `","spanID":"` + spanID + `"}`
	}
	runCases(t, "jaeger", []readCase{
		{"of the API", with(span("1", "")), []string{one}, nil},
		{"processes first", `{"data":[{` + processes + `,"spans":[` + span("1", "") + `]}],"total":0,"errors":null}`, []string{one}, nil},
		{"a bare trace", `{"traceID":"a","spans":[` + span("1", "") + `],` + processes + `}`, []string{one}, nil},
		{"an array of traces", `[{"spans":[` + span("1", "") + `],` + processes + `},{"spans":[` + span("2", "") + `],` +
			`"processes":{"p1":{"serviceName":"other"}}}]`, []string{one, "a/2 other|op unspecified 100000+50000"}, nil},
		{
			"one trace a line", `{"spans":[` + span("1", "") + `],` + processes + "}\n" + `{"spans":[` + span("2", "") + `],` + processes + "}\n",
			[]string{one, "a/2 svc|op||node unspecified 100000+50000"},
			nil,
		},
		{
			"spans with their process inside", `{"traceID":"a","spanID":"1","operationName":"op","startTime":100,"startTimeMillis":0,"duration":50,` +
				`"tag":{"span.kind":"client","http.status_code":504},"process":{"serviceName":"svc","tag":{"hostname":"node"}}}` + "\n" +
				`{"process":{"tags":[]},"traceID":"a","spanID":"2","parentSpanID":"1","startTime":1,"duration":2}`,
			[]string{"a/1 svc|op||node client 100000+50000 timed-out", "a/2<1  unspecified 1000+2000"},
			[]string{"no_service_name"},
		},
		{
			"inside a trace too", `{"data":[{"spans":[{"traceID":"a","spanID":"1","operationName":"op","startTime":100,"duration":50,` +
				`"process":{"serviceName":"svc","tags":[{"key":"ip","value":"10.0.0.1"}]}}]}]}`,
			[]string{"a/1 svc|op||10.0.0.1 unspecified 100000+50000"},
			nil,
		},
		{"no list is needed", `{"data":[{"spans":[{"traceID":"a","spanID":"1","startTime":100,"duration":50,"tags":null,"logs":null,` +
			`"references":null,"warnings":null}]}]}`, []string{"a/1  unspecified 100000+50000"}, []string{"no_service_name"}},
		{
			"a process that is not there", with(span("1", `,"processID":"p9"`)),
			[]string{"a/1 |op unspecified 100000+50000"},
			[]string{"no_service_name"},
		},
		{
			"ids without leading zeros", with(span("123", ""), span("0123", `,"traceID":"00000000000000000000000000000123"`),
				span("9", `,"traceID":"123"`)),
			[]string{
				"a/123 svc|op||node unspecified 100000+50000", "123/123 svc|op||node unspecified 100000+50000",
				"123/9 svc|op||node unspecified 100000+50000",
			},
			nil,
		},
		{
			"ids that are words", with(span("1", ""), span("G", refs(ref("CHILD_OF", "a", "H"))), span("H", "")),
			[]string{
				one, "a/" + hashedID("G") + "<" + hashedID("H") + " svc|op||node unspecified 100000+50000",
				"a/" + hashedID("H") + " svc|op||node unspecified 100000+50000",
			},
			nil,
		},
		{"garbage ids", with(span("1", ""), span("?", ""), span("", "")), []string{one}, []string{"bad_span", "empty_id"}},
		{
			"kinds and errors", with(
				span("1", `,"tags":[{"key":"span.kind","type":"string","value":"server"},{"key":"error","type":"bool","value":true}]`),
				span("2", `,"tags":[{"value":"client","key":"span.kind"},{"key":"error","value":"false"},{"key":"peer.service","value":"p"}]`),
				span("3", `,"tags":[{"key":"span.kind","value":"router"},null,{"key":"error"},{}]`),
				span("4", `,"tags":[{"key":"error","value":"true"},{"key":"otel.status_description","value":"context canceled"}]`)),
			[]string{
				"a/1 svc|op||node server 100000+50000 failed", "a/2 svc|op|p|node client 100000+50000 outbound",
				"a/3 svc|op||node unspecified 100000+50000", "a/4 svc|op||node unspecified 100000+50000 cancelled",
			},
			[]string{"bad_kind"},
		},
		{
			"milliseconds", with(span("1", `,"startTime":1700000000123,"duration":7`), span("2", `,"startTime":1700000000123456,"duration":7`)),
			[]string{
				"a/1 svc|op||node unspecified 1700000000123000000+7000000",
				"a/2 svc|op||node unspecified 1700000000123456000+7000",
			},
			nil,
		},
		{"a start of zero is a start", with(span("1", `,"startTime":0`)), []string{"a/1 svc|op||node unspecified 0+50000"}, nil},
		{
			"missing and bad times", with(span("1", `,"startTime":null`), span("2", `,"duration":null`), span("3", `,"duration":"x"`),
				span("4", `,"startTime":9223372036854775807`), span("5", `,"duration":-5`)),
			[]string{
				"a/1 svc|op||node unspecified 0 unmeasured", "a/2 svc|op||node unspecified 100000 unmeasured",
				"a/5 svc|op||node unspecified 100000-5000",
			},
			[]string{"bad_span×2", "unmeasured×2"},
		},
		{"parents", with(
			span("1", refs(ref("FOLLOWS_FROM", "b", "9"))),                                // another trace: a root
			span("2", refs(ref("CHILD_OF", "a", "2")+","+ref("CHILD_OF", "a", "1"))),      // itself, then a parent
			span("3", refs(ref("FOLLOWS_FROM", "a", "1")+","+ref("CHILD_OF", "a", "2"))),  // the one that waits
			span("4", refs(ref("FOLLOWS_FROM", "a", "1"))),                                // only one that does not
			span("5", refs(ref("CHILD_OF", "b", "8")+","+ref("CHILD_OF", "a", "1"))),      // the first in this trace
			span("6", refs(ref("CHILD_OF", "a", "6"))),                                    // itself only
			span("7", `,"parentSpanID":"1"`),                                              // the old field
			span("8", refs(ref("CHILD_OF", "a", "1")+","+ref("FOLLOWS_FROM", "a", "1")))), // both: it waits
			[]string{
				"a/1 svc|op||node unspecified 100000+50000", "a/2<1 svc|op||node unspecified 100000+50000",
				"a/3<2 svc|op||node unspecified 100000+50000", "a/4<1 svc|op||node unspecified 100000+50000 follows",
				"a/5<1 svc|op||node unspecified 100000+50000", "a/6 svc|op||node unspecified 100000+50000",
				"a/7<1 svc|op||node unspecified 100000+50000", "a/8<1 svc|op||node unspecified 100000+50000",
			}, nil},
		{
			"references with the low half of the trace id", with(span("1",
				`,"traceID":"48485a3953bb6124463ac35c9f6413ad"`+refs(ref("CHILD_OF", "463ac35c9f6413ad", "2")))),
			[]string{"48485a3953bb6124463ac35c9f6413ad/1<2 svc|op||node unspecified 100000+50000"},
			nil,
		},
		{"values that are no spans", with("7", span("1", ""), "null"), []string{one}, []string{"bad_span×2"}},
		{
			"a trace cut before its processes", with(span("1", ""), span("2", ""))[:150],
			[]string{"a/1 |op unspecified 100000+50000"},
			[]string{"no_service_name", "truncated"},
		},
		{
			"a broken trace among good lines", `{"spans":[` + span("1", "") + `],` + processes + "}\n" + `{"spans":[` + span("2", "") + "\n" +
				`{"spans":[` + span("3", "") + `],` + processes + "}\n",
			[]string{one, "a/3 svc|op||node unspecified 100000+50000"},
			[]string{"bad_line"},
		},
	})
}

func TestZipkin(t *testing.T) {
	span := func(id, more string) string {
		return `{"traceId":"a","id":"` + id + `","name":"op","timestamp":100,"duration":50,` +
			`"localEndpoint":{"serviceName":"svc","ipv4":"10.0.0.1"}` + more + `}`
	}
	const one = "a/1 svc|op||10.0.0.1 unspecified 100000+50000"
	at := func(value string, time int, service string) string {
		return fmt.Sprintf(`{"value":%q,"timestamp":%d,"endpoint":{"serviceName":%q,"ipv4":"10.0.0.2"}}`, value, time, service)
	}
	v1 := func(id, more string) string {
		return `[{"traceId":"a","id":"` + id + `","name":"op"` + more + `}]`
	}
	runCases(t, "zipkin", []readCase{
		{"an array", "[" + span("1", "") + "]", []string{one}, nil},
		{
			"arrays in an array", "[[" + span("1", "") + "],[" + span("2", "") + "]]",
			[]string{one, "a/2 svc|op||10.0.0.1 unspecified 100000+50000"},
			nil,
		},
		{
			"one array a line", "[" + span("1", "") + "]\n[" + span("2", "") + "]\n",
			[]string{one, "a/2 svc|op||10.0.0.1 unspecified 100000+50000"},
			nil,
		},
		{
			"one span a line", span("1", "") + "\n" + span("2", "") + "\n",
			[]string{one, "a/2 svc|op||10.0.0.1 unspecified 100000+50000"},
			nil,
		},
		{
			"client and server share an id", "[" + span("2", `,"parentId":"1","kind":"CLIENT","remoteEndpoint":{"serviceName":"b"}`) + "," +
				span("2", `,"parentId":"1","kind":"SERVER","shared":true,"remoteEndpoint":{"serviceName":"caller"}`) + "]",
			[]string{"a/2<1 svc|op|b|10.0.0.1 client 100000+50000", "a/2<1 svc|op||10.0.0.1 server 100000+50000"},
			nil,
		},
		{
			"tags", "[" + span("1", `,"kind":"CLIENT","tags":{"http.status_code":"504","peer.service":"p","latency_budget.limit":"0.8"}`) + "," +
				span("2", `,"tags":{"error":""}`) + "," + span("3", `,"tags":{"error":"context deadline exceeded"}`) + "]",
			[]string{
				"a/1 svc|op|p|10.0.0.1 client 100000+50000 timed-out outbound limit:800000000",
				"a/2 svc|op||10.0.0.1 unspecified 100000+50000 failed", "a/3 svc|op||10.0.0.1 unspecified 100000+50000 timed-out",
			},
			nil,
		},
		{
			"captured headers", "[" + span("1", `,"tags":{"http.request.header.x-timeout-budget-ms":"[\"300\"]"}`) + "]",
			[]string{"a/1 svc|op||10.0.0.1 unspecified 100000+50000 limit:300000000 left:300000000 remaining:300000000"},
			nil,
		},
		{
			"messages", "[" + span("1", `,"kind":"PRODUCER"`) + "," + span("2", `,"kind":"CONSUMER"`) + "," + span("3", `,"kind":"OTHER"`) + "]",
			[]string{
				"a/1 svc|op||10.0.0.1 producer 100000+50000", "a/2 svc|op||10.0.0.1 consumer 100000+50000",
				"a/3 svc|op||10.0.0.1 unspecified 100000+50000",
			},
			[]string{"bad_kind"},
		},
		{
			"missing times", "[" + span("1", `,"duration":null`) + "," + span("2", `,"timestamp":0`) + "," + span("3", `,"duration":0`) + "]",
			[]string{
				"a/1 svc|op||10.0.0.1 unspecified 100000 unmeasured", "a/2 svc|op||10.0.0.1 unspecified 0 unmeasured",
				"a/3 svc|op||10.0.0.1 unspecified 100000+0",
			},
			[]string{"unmeasured×2"},
		},
		{
			"no service", `[{"traceId":"a","id":"1","timestamp":1,"duration":2}]`,
			[]string{"a/1  unspecified 1000+2000"},
			[]string{"no_service_name"},
		},
		{"annotations of version 2 are events", "[" + span("1", `,"annotations":[{"timestamp":101,"value":"retry"}]`) + "]", []string{one}, nil},
		{"values that are no spans", "[7," + span("1", "") + `,null,{"foo":1}]`, []string{one}, []string{"bad_span×2"}},

		{
			"version 1, both halves", v1("1", `,"annotations":[`+at("cs", 100, "front")+","+at("sr", 110, "back")+","+
				at("ss", 130, "back")+","+at("cr", 150, "front")+`]`),
			[]string{"a/1 front|op||10.0.0.2 client 100000+50000", "a/1 back|op||10.0.0.2 server 110000+20000"},
			[]string{"zipkin_v1"},
		},
		{
			"version 1, server half", v1("1", `,"parentId":"9","annotations":[`+at("sr", 110, "back")+","+at("ss", 130, "back")+
				`],"binaryAnnotations":[{"key":"http.status_code","value":"504","endpoint":{"serviceName":"back"}}]`),
			[]string{"a/1<9 back|op||10.0.0.2 server 110000+20000 timed-out"},
			[]string{"zipkin_v1"},
		},
		{
			"version 1, client half and its peer", v1("1", `,"annotations":[`+at("cs", 100, "front")+","+at("cr", 150, "front")+
				`],"binaryAnnotations":[{"key":"sa","value":true,"endpoint":{"serviceName":"mysql"}}]`),
			[]string{"a/1 front|op|mysql|10.0.0.2 client 100000+50000"},
			[]string{"zipkin_v1"},
		},
		{
			"version 1, no receive", v1("1", `,"annotations":[`+at("cs", 100, "front")+`]`),
			[]string{"a/1 front|op||10.0.0.2 client 100000 unmeasured"},
			[]string{"unmeasured", "zipkin_v1"},
		},
		{
			"version 1, no receive but a duration", v1("1", `,"timestamp":100,"duration":40,"annotations":[`+at("cs", 100, "front")+`]`),
			[]string{"a/1 front|op||10.0.0.2 client 100000+40000"},
			[]string{"zipkin_v1"},
		},
		{"version 1, local", v1("1", `,"timestamp":100,"duration":40,"annotations":[],"binaryAnnotations":[{"key":"lc","value":"x",`+
			`"endpoint":{"serviceName":"svc"}}]`), []string{"a/1 svc|op unspecified 100000+40000"}, []string{"zipkin_v1"}},
	})
}

func TestStdouttrace(t *testing.T) {
	span := func(id, more string) string {
		return `{"Name":"op","SpanContext":{"TraceID":"000000000000000000000000000000aa","SpanID":"` + id + `","TraceFlags":"01",` +
			`"TraceState":"ot=th:8","Remote":false},"Parent":{"TraceID":"00000000000000000000000000000000","SpanID":"0000000000000000",` +
			`"TraceState":"ot=th:zz"},"SpanKind":2,"StartTime":"2024-02-06T11:15:06.611334019Z","EndTime":"2024-02-06T12:15:06.611334519+01:00",` +
			`"Attributes":[{"Key":"http.response.status_code","Value":{"Type":"INT64","Value":200}}],"Events":null,"Links":null,` +
			`"Status":{"Code":"Unset","Description":""},"Resource":[{"Key":"service.name","Value":{"Type":"STRING","Value":"svc"}}]` + more + `}`
	}
	const tail = " svc|op server 1707218106611334019+500 th:80000000000000"
	runCases(t, "stdouttrace", []readCase{
		{"one a line", span("1", "") + "\n" + span("2", "") + "\n", []string{"aa/1" + tail, "aa/2" + tail}, nil},
		{"one after the other", span("1", "") + span("2", ""), []string{"aa/1" + tail, "aa/2" + tail}, nil},
		{"pretty", strings.ReplaceAll(span("1", "")+span("2", ""), `,"`, ",\n\t\""), []string{"aa/1" + tail, "aa/2" + tail}, nil},
		{"an array", "[" + span("1", "") + "]", []string{"aa/1" + tail}, nil},
		{
			"parents and links", span("1", `,"Parent":{"SpanID":"9"},"Links":[{"SpanContext":{"TraceID":"aa","SpanID":"9"}}]`),
			[]string{"aa/1<9 svc|op server 1707218106611334019+500 follows th:80000000000000"},
			nil,
		},
		{
			"status", span("1", `,"Status":{"Code":"Error"}`) + span("2", `,"Status":{"Code":1}`) + span("3", `,"Status":{"Code":"Ok"}`) +
				span("4", `,"Status":{"Code":"Error","Description":"context canceled"}`),
			[]string{
				"aa/1 svc|op server 1707218106611334019+500 failed th:80000000000000",
				"aa/2 svc|op server 1707218106611334019+500 failed th:80000000000000", "aa/3" + tail,
				"aa/4 svc|op server 1707218106611334019+500 cancelled th:80000000000000",
			},
			nil,
		},
		{
			"captured headers", span("1", `,"Attributes":[{"Key":"http.request.header.x-timeout-budget-ms","Value":{"Type":"STRINGSLICE","Value":["300"]}}]`) +
				span("2", `,"Attributes":[{"Key":"http.request.header.x-timeout-budget-ms","Value":{"Type":"STRINGSLICE","Value":["300","1"]}}]`),
			[]string{
				"aa/1 svc|op server 1707218106611334019+500 th:80000000000000 limit:300000000 left:300000000 remaining:300000000",
				"aa/2" + tail,
			},
			nil,
		},
		{
			"times left out", span("1", `,"StartTime":"0001-01-01T00:00:00Z"`) + span("2", `,"EndTime":null`),
			[]string{
				"aa/1 svc|op server 1707218106611334519 unmeasured th:80000000000000",
				"aa/2 svc|op server 1707218106611334019 unmeasured th:80000000000000",
			},
			[]string{"unmeasured×2"},
		},
		{"times that are none", span("1", "") + span("2", `,"StartTime":"yesterday"`) + span("3", `,"EndTime":7`) +
			span("4", `,"EndTime":"9999-01-01T00:00:00Z"`), []string{"aa/1" + tail}, []string{"bad_span×3"}},
		{
			"no resource", span("1", `,"Resource":null`),
			[]string{"aa/1 |op server 1707218106611334019+500 th:80000000000000"},
			[]string{"no_service_name"},
		},
		{
			"attributes", span("1", `,"Attributes":[{"Value":{"Value":"/u/{id}","Type":"STRING"},"Key":"http.route"},null,{"Key":"http.status_code",`+
				`"Value":{"Type":"STRING","Value":"x"}}]`),
			[]string{"aa/1 svc|/u/{id} server 1707218106611334019+500 th:80000000000000"},
			[]string{"bad_attribute"},
		},
	})
}

// TestTailSamplingMarksOfTheScope holds that a mark on a scope is on all of its
// spans and on no others, wherever the scope stands among its members.
func TestTailSamplingMarksOfTheScope(t *testing.T) {
	const mark = `"attributes":[{"key":"x","value":{"stringValue":"y"}},{"key":"tailsampling.policy","value":{"stringValue":"slow"}}]`
	const marked = `"scope":{"name":"n",` + mark + `}`
	spans := func(ids ...string) string {
		list := make([]string, len(ids))
		for i, id := range ids {
			list[i] = otlpSpan(id, "")
		}
		return `"spans":[` + strings.Join(list, ",") + `]`
	}
	resource := `"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"svc"}}]}`
	doc := func(scopes ...string) string {
		list := `"scopeSpans":[{` + strings.Join(scopes, "},{") + `}]`
		return `[{` + resource + `,` + list + `}]`
	}
	late := func(scopes ...string) string {
		return `[{"scopeSpans":[{` + strings.Join(scopes, "},{") + `}],` + resource + `}]`
	}
	const (
		one      = "a/1 svc|op unspecified 100+100"
		two      = "a/2 svc|op unspecified 100+100"
		three    = "a/3 svc|op unspecified 100+100"
		oneTail  = one + " tail"
		twoTail  = two + " tail"
		likeTail = `"scope":{"name":"tailsampling.policy","attributes":[{"key":"tail"},{"key":"db.system","value":{"stringValue":"x"}}]}`
	)
	for _, c := range []readCase{
		{"before the spans", doc(marked + "," + spans("1", "2")), []string{oneTail, twoTail}, nil},
		{"behind the spans", doc(spans("1", "2") + "," + marked), []string{oneTail, twoTail}, nil},
		{"between spans", doc(spans("1") + "," + marked + "," + spans("2")), []string{oneTail, twoTail}, nil},
		{"and the resource behind", late(spans("1")+","+marked, spans("3")), []string{oneTail, three}, nil},
		{"on the first scope only", doc(marked+","+spans("1"), spans("3")), []string{oneTail, three}, nil},
		{"on the last scope only", doc(spans("3"), spans("1")+","+marked), []string{three, oneTail}, nil},
		{"on one without spans", doc(marked, spans("3")), []string{three}, nil},
		{"on a scope whose name stands behind", doc(strings.Replace(marked, `"name":"n",`, ``, 1) + "," + spans("1")), []string{oneTail}, nil},
		{"an old library", doc(strings.Replace(marked, "scope", "instrumentationLibrary", 1) + "," + spans("1")), []string{oneTail}, nil},
		{"other attributes are not the spans'", doc(likeTail + "," + spans("1")), []string{one}, nil},
		{"null", doc(`"scope":null,` + spans("1")), []string{one}, nil},
		{"of another type", doc(`"scope":[{` + mark + `}],` + spans("1")), []string{one}, nil},
	} {
		for format, in := range map[string]string{
			"otlp-json": `{"resourceSpans":` + c.in + `}`,
			"tempo":     `{"batches":` + c.in + `}`,
			"jaeger-v3": `{"result":{"resourceSpans":` + c.in + `}}`,
		} {
			c.in = in
			runCases(t, format, []readCase{c})
			c.in = in + "\n" + in // as lines
			c.want = append(slices.Clone(c.want), c.want...)
			runCases(t, format, []readCase{c})
			c.want = c.want[:len(c.want)/2]
		}
	}

	scope := func(attrs ...[]byte) []byte { return sub(1, str(1, "n"), join(attrs...)) }
	policy := protoAttr(3, "tailsampling.policy", str(1, "slow"))
	service := sub(1, protoAttr(1, "service.name", str(1, "svc")))
	runCases(t, "otlp-proto", []readCase{
		{"before the spans", string(sub(1, service, sub(2, scope(policy), protoSpan(1), protoSpan(2)))), []string{oneTail, twoTail}, nil},
		{"behind the spans", string(sub(1, service, sub(2, protoSpan(1), protoSpan(2), scope(policy)))), []string{oneTail, twoTail}, nil},
		{"and the resource behind", string(sub(1, sub(2, protoSpan(1), scope(policy)), sub(2, protoSpan(3)), service)), []string{oneTail, three}, nil},
		{"with lengths before", frame(sub(1, sub(2, protoSpan(1), scope(policy)), service)) + frame(protoData(protoSpan(3))), []string{oneTail, three}, nil},
		{"on the last scope only", string(sub(1, service, sub(2, protoSpan(3)), sub(2, scope(policy), protoSpan(1)))), []string{three, oneTail}, nil},
		{"an old library", string(sub(1, service, sub(1000, scope(policy), protoSpan(1)))), []string{oneTail}, nil},
		{"other fields", string(sub(1, service, sub(2, scope(protoAttr(2, "tailsampling.policy", str(1, "x"))), protoSpan(3)))), []string{three}, nil},
		{"a broken scope", string(sub(1, service, sub(2, sub(1, sub(3, []byte{0xff})), protoSpan(3)))), []string{three}, []string{"bad_attribute"}},
	})
}

// TestScopeBehindManySpansMarksAllOfThem has more spans than fit a batch.
func TestScopeBehindManySpansMarksAllOfThem(t *testing.T) {
	spans := make([]string, 2*batchSpans+1)
	for i := range spans {
		spans[i] = otlpSpan(fmt.Sprintf("%x", i+1), "")
	}
	doc := strings.TrimSuffix(otlp(spans...), `}]}]}`) + `,"scope":{"attributes":[{"key":"tailsampling.policy"}]}}]}]}`
	for name, in := range map[string]string{"a document": doc, "a line": doc + "\n" + otlp()} {
		got := readStdin(t, Options{}, in, "-")
		if len(got.spans) != len(spans) {
			t.Fatalf("%s: %d spans, notes %v", name, len(got.spans), got.notes.List())
		}
		for _, s := range got.spans {
			if !s.Is(trace.FlagTailSampled) {
				t.Fatalf("%s: no mark on %s", name, show(s))
			}
		}
	}
}

// The protobuf messages of the tests are built from these.

func join(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func sub(num protowire.Number, fields ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), join(fields...))
}

func str(num protowire.Number, text string) []byte { return sub(num, []byte(text)) }

func varint(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func fixed(num protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), v)
}

func protoID(last byte, n int) string { return strings.Repeat("\x00", n-1) + string(last) }

// protoSpan is a span a/id with times 100 and 200, its fields in descending
// order as the Collector writes them.
func protoSpan(id byte, more ...[]byte) []byte {
	return sub(2, join(more...), fixed(8, 200), fixed(7, 100), str(5, "op"), str(2, protoID(id, 8)), str(1, protoID(0xa, 16)))
}

func protoAttr(num protowire.Number, key string, value []byte) []byte {
	return sub(num, sub(2, value), str(1, key))
}

func protoData(spans ...[]byte) []byte {
	return sub(1, str(3, "schema"), sub(2, spans...), sub(1, protoAttr(1, "service.name", str(1, "svc"))))
}

func frame(msg []byte) string {
	n := len(msg)
	return string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + string(msg)
}

func TestOTLPProto(t *testing.T) {
	const plain = "a/1 svc|op unspecified 100+100"
	const second = "a/2 svc|op unspecified 100+100"
	hexTrace := "5b8efff798038103d269b633813fc60c"
	doubled, _ := base64.StdEncoding.DecodeString(hexTrace)
	runCases(t, "otlp-proto", []readCase{
		{"one message", string(protoData(protoSpan(1))), []string{plain}, nil},
		{"ascending fields", string(sub(1, sub(1, sub(1, str(1, "service.name"), sub(2, str(1, "svc")))), sub(2,
			sub(2, str(1, protoID(0xa, 16)), str(2, protoID(1, 8)), str(5, "op"), fixed(7, 100), fixed(8, 200))))), []string{plain}, nil},
		{"messages one after the other merge", string(protoData(protoSpan(1))) + string(protoData(protoSpan(2))), []string{plain, second}, nil},
		{"with lengths before them", frame(protoData(protoSpan(1))) + frame(protoData(protoSpan(2))), []string{plain, second}, nil},
		{"library spans", string(sub(1, sub(1000, protoSpan(1)), sub(1, protoAttr(1, "service.name", str(1, "svc"))))), []string{plain}, nil},
		{
			"unknown fields", string(join(protoData(protoSpan(1, varint(900, 7), fixed(901, 7), str(902, "x"))), varint(7, 1))),
			[]string{plain},
			nil,
		},
		{"no resource", string(sub(1, sub(2, protoSpan(1)))), []string{"a/1 |op unspecified 100+100"}, []string{"no_service_name"}},
		{
			"kind, parent, status, state", string(protoData(protoSpan(1, str(4, protoID(9, 8)), varint(6, 3), sub(15, varint(3, 2)),
				str(3, "ot=th:c")), protoSpan(2, varint(6, 99), str(4, strings.Repeat("\x00", 8))))),
			[]string{"a/1<9 svc|op client 100+100 failed th:c0000000000000", second},
			[]string{"bad_kind"},
		},
		{
			"status message", string(protoData(protoSpan(1, sub(15, str(2, "context deadline exceeded"), varint(3, 2))))),
			[]string{"a/1 svc|op unspecified 100+100 timed-out"},
			nil,
		},
		{
			"attributes", string(protoData(protoSpan(1, protoAttr(9, "http.status_code", varint(3, 504)), protoAttr(9, "peer.service", str(1, "p")),
				protoAttr(9, "latency_budget.limit", fixed(4, 0x3fe0000000000000)), protoAttr(9, "other", sub(5, str(1, "x")))),
				protoSpan(2, protoAttr(9, "error", varint(2, 1)), protoAttr(9, "latency_budget.limit", fixed(4, 0x7ff8000000000001))))),
			[]string{"a/1 svc|op|p unspecified 100+100 timed-out outbound limit:500000000", "a/2 svc|op unspecified 100+100 failed"},
			[]string{"bad_budget_stamp"},
		},
		{
			"captured headers", string(protoData(
				protoSpan(1, protoAttr(9, "http.request.header.x-timeout-budget-ms", sub(5, sub(1, str(1, "300"))))),
				protoSpan(2, protoAttr(9, "http.request.header.x-timeout-budget-ms", sub(5, sub(1, str(1, "300")), sub(1, str(1, "300"))))),
				protoSpan(3, protoAttr(9, "http.request.header.x-timeout-budget-ms", sub(5, sub(1, sub(5, sub(1, str(1, "300"))))))),
				protoSpan(4, protoAttr(9, "error.type", sub(5, sub(1, str(1, "timeout"))))))),
			[]string{
				"a/1 svc|op unspecified 100+100 limit:300000000 left:300000000 remaining:300000000",
				"a/2 svc|op unspecified 100+100", "a/3 svc|op unspecified 100+100", "a/4 svc|op unspecified 100+100",
			},
			nil,
		},
		{
			"links", string(protoData(protoSpan(1, sub(13, str(1, protoID(0xa, 16)), str(2, protoID(9, 8)))))),
			[]string{"a/1<9 svc|op unspecified 100+100 follows"},
			nil,
		},
		{
			"times", string(protoData(protoSpan(1), sub(2, fixed(7, 1<<63), fixed(8, 5),
				str(2, protoID(3, 8)), str(1, protoID(0xa, 16))), sub(2, fixed(7, 200), fixed(8, 199), str(2, protoID(4, 8)), str(1, protoID(0xa, 16))),
				sub(2, fixed(7, 200), str(2, protoID(5, 8)), str(1, protoID(0xa, 16))))),
			[]string{plain, "a/4 svc unspecified 200-1", "a/5 svc unspecified 200 unmeasured"},
			[]string{"bad_span", "unmeasured"},
		},
		{
			"ids", string(protoData(protoSpan(1), sub(2, fixed(7, 1), fixed(8, 2), str(2, protoID(1, 8)), str(1, string(doubled))),
				sub(2, fixed(7, 1), fixed(8, 2), str(2, protoID(1, 8)), str(1, "short")), sub(2, fixed(7, 1), fixed(8, 2), str(2, protoID(1, 8))))),
			[]string{plain, hexTrace + "/1 svc unspecified 1+1"},
			[]string{"bad_span", "double_decoded_id", "empty_id"},
		},
		{
			"text that is no UTF-8", string(protoData(sub(2, str(5, "a\xffb"), fixed(8, 200), fixed(7, 100), str(2, protoID(1, 8)), str(1, protoID(0xa, 16))))),
			[]string{"a/1 svc|a\ufffdb unspecified 100+100"},
			[]string{"invalid_utf8"},
		},
		{"a broken span", string(protoData(protoSpan(1), sub(2, []byte{0xff, 0xff}), protoSpan(2))), []string{plain, second}, []string{"bad_span"}},
		{
			"a broken attribute", string(protoData(protoSpan(1, sub(9, []byte{0xff})), protoSpan(2))),
			[]string{plain, second},
			[]string{"bad_attribute"},
		},
		{
			"a broken frame", frame(protoData(protoSpan(1))) + frame([]byte("\xff\xff\xff")) + frame(protoData(protoSpan(2))),
			[]string{plain, second},
			[]string{"bad_line"},
		},
		{"a cut frame", frame(protoData(protoSpan(1))) + frame(protoData(protoSpan(2)))[:20], []string{plain}, []string{"truncated"}},
		{"a cut message", string(join(protoData(protoSpan(1)), protoData(protoSpan(2))[:20])), []string{plain}, []string{"truncated"}},
		{
			"a message cut behind its first span", string(protoData(protoSpan(1), protoSpan(2)))[:70],
			[]string{"a/1 |op unspecified 100+100"},
			[]string{"no_service_name", "truncated"},
		},
	})
}

// TestBrokenMessagesCostOnlyThemselves puts something broken between good
// siblings, at each place where a message stands in another one.
func TestBrokenMessagesCostOnlyThemselves(t *testing.T) {
	service := protoAttr(1, "service.name", str(1, "svc"))
	tail := protoAttr(3, "tailsampling.policy", str(1, "slow"))
	peer := protoAttr(9, "peer.service", str(1, "p"))
	const first, second = "a/1 svc|op unspecified 100+100", "a/2 svc|op unspecified 100+100"
	// A tag that ends early, a length beyond the end, and a tag that cannot be.
	for _, junk := range []string{"\xff", "\x0a\x7f", "\x00\x00"} {
		whole := sub(1, sub(2, protoSpan(1)), sub(2, protoSpan(2)), sub(1, service))
		for _, c := range []struct {
			name string
			in   []byte
			want []string
			note string
		}{
			{"ResourceSpans", join(sub(1, str(3, "s"), sub(2), []byte(junk)), whole), []string{first, second}, "bad_line"},
			{
				"ScopeSpans", sub(1, str(3, "s"), sub(2, protoSpan(1)), sub(2, str(3, "s"), []byte(junk)), sub(2, protoSpan(2)), sub(1, service)),
				[]string{first, second},
				"bad_line",
			},
			{
				"ScopeSpans behind its spans", sub(1, str(3, "s"), sub(2, protoSpan(1), []byte(junk)), sub(2, protoSpan(2)), sub(1, service)),
				[]string{first, second},
				"bad_line",
			},
			{
				"Span", sub(1, sub(2, protoSpan(1), str(2, junk), protoSpan(2)), sub(1, service)),
				[]string{first, second},
				"bad_span",
			},
			{
				"Resource", sub(1, sub(2, protoSpan(1), protoSpan(2)), sub(1, service, []byte(junk))),
				[]string{first, second},
				"bad_attribute",
			},
			{
				"KeyValue of a Resource", sub(1, sub(2, protoSpan(1), protoSpan(2)), sub(1, str(1, junk), service)),
				[]string{first, second},
				"bad_attribute",
			},
			{
				"AnyValue of a Resource", sub(1, sub(2, protoSpan(1), protoSpan(2)), sub(1, protoAttr(1, "host.name", []byte(junk)), service)),
				[]string{first, second},
				"bad_attribute",
			},
			{
				"KeyValue of a scope", sub(1, sub(2, protoSpan(1), sub(1, str(3, junk), tail), protoSpan(2)), sub(1, service)),
				[]string{first + " tail", second + " tail"},
				"bad_attribute",
			},
			{
				"KeyValue of a span", sub(1, sub(2, protoSpan(1, str(9, junk), peer), protoSpan(2)), sub(1, service)),
				[]string{"a/1 svc|op|p unspecified 100+100 outbound", second},
				"bad_attribute",
			},
		} {
			for shape, in := range map[string]string{"message": string(c.in), "frame": frame(c.in)} {
				got := readStdin(t, Options{}, in, "-")
				if len(got.errs) > 0 || !slices.Equal(showAll(got.spans), c.want) || !slices.Equal(counted(got.notes), []string{c.note}) {
					t.Errorf("%s with %q, %s: spans %q, notes %q, errors %v; want %q, %q", c.name, junk, shape,
						showAll(got.spans), counted(got.notes), got.errs, c.want, c.note)
				}
			}
		}
	}
}
