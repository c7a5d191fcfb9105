package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// Whatever way the same telemetry is written, the project's reader and pdata
// get the same spans out of it.
func TestReadersAgreeWithPdata(t *testing.T) {
	jsonLines, frames := samples(t)
	want := content(t, pdataFile{name: write(t, "plain.jsonl", jsonLines)})

	files := map[string][]byte{
		"plain.jsonl":   jsonLines,
		"descending.pb": frames,
		"pdata-writes.jsonl": rewrite(t, jsonLines, func(traces ptrace.Traces) ([]byte, error) {
			line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
			return append(line, '\n'), err
		}),
		"pdata-writes.pb": rewrite(t, jsonLines, func(traces ptrace.Traces) ([]byte, error) {
			message, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
			return frame(message), err
		}),
	}
	for seed := range uint64(3) {
		files[fmt.Sprintf("scrambled-%d.jsonl", seed)] = scrambleLines(t, seed, jsonLines, true)
		files[fmt.Sprintf("scrambled-%d.pb", seed)] = scrambleFrames(t, seed, frames)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.Run(name, func(t *testing.T) {
			path := write(t, name, files[name])
			theirs := content(t, pdataFile{name: path, proto: strings.HasSuffix(name, ".pb")})
			sameSpans(t, "pdata and pdata on plain.jsonl", theirs, want)
			ours, err := source.Open([]string{path}, nil, source.Options{})
			if err != nil {
				t.Fatal(err)
			}
			sameSpans(t, "the reader and pdata", content(t, ours), want)
		})
	}
}

// samples returns the same spans as OTLP JSON lines and as protobuf messages:
// the stories of testdata/ and traces as production has them, some with names
// that have to be escaped and with links to their parents.
func samples(t *testing.T) (jsonLines, frames []byte) {
	t.Helper()
	appendBoth := func(_ []byte, spans []tracegen.Span) []byte {
		jsonLines = tracegen.AppendOTLPJSONLines(jsonLines, spans)
		frames = tracegen.AppendOTLPProtoFramed(frames, spans)
		return nil
	}
	for _, story := range tracegen.Stories() {
		appendBoth(nil, story.Spans[:min(len(story.Spans), 1000)])
	}
	names := []string{`quoted "name"`, `back\slash`, "订单 创建", "emoji 🚀 ok", "tab\tand\nline", "<html> & 'more'", "\u2028 \x7f \x01"}
	hostile := func(_ []byte, spans []tracegen.Span) []byte {
		for i := range spans {
			if i%10 == 0 {
				spans[i].Attrs, spans[i].Name = nil, names[i/10%len(names)]
			}
			if i%17 == 0 { // a link to the parent, with or without naming it as such
				spans[i].Links = []tracegen.Link{{TraceID: spans[i].TraceID, SpanID: spans[i].Parent}}
				if i%2 == 0 {
					spans[i].Parent = [8]byte{}
				}
			}
		}
		return appendBoth(nil, spans)
	}
	var none bytes.Buffer
	if _, err := tracegen.Stream(&none, tracegen.StreamConfig{Seed: 7, Traces: 300, Append: hostile}); err != nil {
		t.Fatal(err)
	}
	return jsonLines, frames
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rewrite decodes every line with pdata and encodes it again.
func rewrite(t *testing.T, jsonLines []byte, encode func(ptrace.Traces) ([]byte, error)) []byte {
	t.Helper()
	var out []byte
	for line := range bytes.Lines(jsonLines) {
		traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		if err != nil {
			t.Fatal(err)
		}
		data, err := encode(traces)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data...)
	}
	return out
}

func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// flatSpan is a span without pointers, so that spans of different readers can
// be compared.
type flatSpan struct {
	span    trace.Span // Desc and Stamp are nil
	desc    trace.Desc
	stamp   trace.Stamp
	stamped bool
}

func flatten(s trace.Span) flatSpan {
	flat := flatSpan{span: s, desc: *s.Desc}
	if s.Stamp != nil {
		flat.stamp, flat.stamped = *s.Stamp, true
	}
	flat.span.Desc, flat.span.Stamp = nil, nil
	return flat
}

// content returns how often the source has each span.
func content(t *testing.T, src trace.Source) map[flatSpan]int {
	t.Helper()
	spans := make(map[flatSpan]int)
	for batch, err := range src.Batches(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range batch.Spans {
			spans[flatten(s)]++
		}
	}
	if len(spans) < 5000 {
		t.Fatalf("only %d different spans were read", len(spans))
	}
	return spans
}

func sameSpans(t *testing.T, who string, got, want map[flatSpan]int) {
	t.Helper()
	var diff []string
	list := func(sign string, a, b map[flatSpan]int) {
		for s, n := range a {
			if n != b[s] {
				diff = append(diff, fmt.Sprintf("%v/%v %s %d× %+v", s.span.TraceID, s.span.ID, sign, n, s))
			}
		}
	}
	list("got ", got, want)
	list("want", want, got)
	if len(diff) == 0 {
		return
	}
	slices.Sort(diff)
	t.Errorf("%s differ in %d spans, the first being\n%s", who, len(diff), strings.Join(diff[:min(len(diff), 4)], "\n"))
}

// scrambleLines writes every line in another way that means the same: members
// in any order and case, white space, escapes, numbers as strings and back,
// enums by name, hex digits of both cases, members nobody knows.
//
// Escapes are only where they are needed if escapes is false.
func scrambleLines(t testing.TB, seed uint64, jsonLines []byte, escapes bool) []byte {
	t.Helper()
	s := scrambler{rng: rand.New(rand.NewPCG(seed, 0)), escapes: escapes}
	for line := range bytes.Lines(jsonLines) {
		var document any
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		if err := decoder.Decode(&document); err != nil {
			t.Fatal(err)
		}
		s.value("", document)
		s.out = append(s.out, '\n')
	}
	return s.out
}

type scrambler struct {
	rng     *rand.Rand
	escapes bool
	out     []byte
}

func (s *scrambler) value(key string, v any) {
	s.space()
	switch v := v.(type) {
	case map[string]any:
		s.object(v)
	case []any:
		s.out = append(s.out, '[')
		for i, element := range v {
			if i > 0 {
				s.out = append(s.out, ',')
			}
			s.value("", element)
		}
		s.out = append(s.out, ']')
	case string:
		s.text(key, v)
	case json.Number:
		s.number(key, v.String())
	default:
		s.out = fmt.Append(s.out, v)
	}
	s.space()
}

func (s *scrambler) space() {
	const blanks = " \t\r"
	for range max(0, s.rng.IntN(8)-5) {
		s.out = append(s.out, blanks[s.rng.IntN(len(blanks))])
	}
}

func (s *scrambler) object(members map[string]any) {
	keys := slices.Sorted(maps.Keys(members))
	if s.rng.IntN(4) == 0 {
		keys = append(keys, "fromTheFuture")
	}
	s.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	s.out = append(s.out, '{')
	for i, key := range keys {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		s.space()
		s.quote(s.memberName(key))
		s.space()
		s.out = append(s.out, ':')
		if v, known := members[key]; known {
			s.value(key, v)
		} else {
			s.out = append(s.out, `{"key":"service.name","traceId":[null,{"spans":[1e3,"}\""]}]}`...)
		}
	}
	s.out = append(s.out, '}')
}

// memberName returns a name in one of the two cases that protobuf's JSON has.
func (s *scrambler) memberName(camel string) string {
	if s.rng.IntN(4) > 0 {
		return camel
	}
	var snake []rune
	for _, c := range camel {
		if unicode.IsUpper(c) {
			snake = append(snake, '_')
		}
		snake = append(snake, unicode.ToLower(c))
	}
	return string(snake)
}

func (s *scrambler) text(key, text string) {
	switch key {
	case "traceId", "spanId", "parentSpanId":
		// pdata does not undo escapes in ids.
		hex := []byte(text)
		for i := range hex {
			if s.rng.IntN(2) == 0 {
				hex[i] = byte(unicode.ToUpper(rune(hex[i])))
			}
		}
		s.out = append(append(append(s.out, '"'), hex...), '"')
	case "startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "intValue":
		s.number(key, text)
	default:
		s.quote(text)
	}
}

// quote writes a JSON string with escapes where they are needed and elsewhere.
func (s *scrambler) quote(text string) {
	s.out = append(s.out, '"')
	for _, c := range text {
		switch {
		case c >= ' ' && c != '"' && c != '\\' && (!s.escapes || s.rng.IntN(20) > 0):
			s.out = append(s.out, string(c)...)
		case (c == '"' || c == '\\' || c == '/') && s.rng.IntN(2) == 0:
			s.out = append(s.out, '\\', byte(c))
		default:
			for _, unit := range utf16.Encode([]rune{c}) {
				s.out = fmt.Appendf(s.out, [...]string{`\u%04x`, `\u%04X`}[s.rng.IntN(2)], unit)
			}
		}
	}
	s.out = append(s.out, '"')
}

func (s *scrambler) number(key, digits string) {
	var names []string
	switch key {
	case "kind":
		names = []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}
		key = "SPAN_KIND_"
	case "code":
		names = []string{"UNSET", "OK", "ERROR"}
		key = "STATUS_CODE_"
	}
	switch {
	case s.rng.IntN(2) == 0:
		s.out = append(s.out, digits...)
	case names != nil:
		s.quote(key + names[digits[0]-'0'])
	default:
		s.quote(digits)
	}
}

// message lists, by number, the fields of a protobuf message that are messages
// themselves.
type message map[protowire.Number]message

// tracesData is the part of trace.proto where the order of fields can matter.
var tracesData = func() message {
	keyValue := message{2: {}}
	return message{1: {
		1: {1: keyValue},
		2: {
			1: {3: keyValue},
			2: {9: keyValue, 11: {3: keyValue}, 13: {4: keyValue}, 15: {}},
		},
	}}
}()

// scrambleFrames writes every message in another way that means the same:
// fields in any order, though elements of one list keep theirs, and fields
// nobody knows.
func scrambleFrames(t *testing.T, seed uint64, frames []byte) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var out []byte
	for len(frames) > 0 {
		end := 4 + int(binary.BigEndian.Uint32(frames))
		out = append(out, frame(scrambleMessage(t, rng, frames[4:end], tracesData))...)
		frames = frames[end:]
	}
	return out
}

func scrambleMessage(t *testing.T, rng *rand.Rand, raw []byte, m message) []byte {
	t.Helper()
	fields := make(map[protowire.Number][][]byte) // with their tags
	var order []protowire.Number
	add := func(num protowire.Number, field []byte) {
		fields[num] = append(fields[num], field)
		order = append(order, num)
	}
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeField(raw)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		field := raw[:n]
		raw = raw[n:]
		if inner, nested := m[num]; nested {
			_, _, tag := protowire.ConsumeTag(field)
			body, _ := protowire.ConsumeBytes(field[tag:])
			body = scrambleMessage(t, rng, body, inner)
			field = protowire.AppendBytes(protowire.AppendTag(nil, num, typ), body)
		}
		add(num, field)
	}
	if rng.IntN(4) == 0 {
		add(300, protowire.AppendVarint(protowire.AppendTag(nil, 300, protowire.VarintType), rng.Uint64()))
		add(301, protowire.AppendFixed32(protowire.AppendTag(nil, 301, protowire.Fixed32Type), rng.Uint32()))
		add(302, protowire.AppendString(protowire.AppendTag(nil, 302, protowire.BytesType), "service.name"))
	}
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	var out []byte
	for _, num := range order {
		out = append(out, fields[num][0]...)
		fields[num] = fields[num][1:]
	}
	return out
}
