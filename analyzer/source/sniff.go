package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// formatProto is the only format that is not JSON.
const formatProto = "otlp-proto"

// jsonFormats are the JSON formats and their readers.
var jsonFormats = map[string]func(*reader){
	"otlp-json":   readOTLP,
	"jaeger":      readJaeger,
	"jaeger-v3":   readOTLP,
	"zipkin":      readZipkin,
	"tempo":       readOTLP,
	"stdouttrace": readStdouttrace,
}

// Formats returns the names that Options.Format takes.
func Formats() []string {
	names := []string{formatProto}
	for name := range jsonFormats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// What a file is refused with. Each says what to do instead.
var (
	errEmpty  = errors.New("the file is empty")
	errCutOff = fmt.Errorf("no spans: the content is cut off: %w", errCutShort)
	errHTML   = errors.New("this is an HTML page, perhaps a login or error page; " +
		"download the trace as JSON")
	errParquet = errors.New("this is a Parquet file; export the traces as OTLP JSON or protobuf instead")
	errUTF16   = errors.New("this is UTF-16 text; save it as UTF-8")
	errArchive = errors.New("this archive or compression is not read; unpack it, or use gzip or zstd")
	errDebug   = errors.New("this is output of the Collector's debug exporter; use its file exporter instead")
)

// consoleText is the format of the refusal of what SDKs print to the console.
const consoleText = "this is console output of the %s SDK; export with OTLP to a Collector with the " +
	"file exporter and read that file"

// consoleMarks are texts that the console exporters of SDKs print and no trace
// file has near its start.
var consoleMarks = []struct{ mark, sdk string }{
	{"traceId: '", "JavaScript"},
	{"traceFlags: ", "JavaScript"},
	{"[tracer: ", "Java"},
	{"Activity.TraceId:", ".NET"},
	{"Activity.Id:", ".NET"},
	{"OpenTelemetry::SDK::Trace::SpanData", "Ruby"},
	{"\n  trace_id      :", "C++"},
	{"\n\tTraceId: ", "Rust"},
	{"\n\tTrace Id: ", "Rust"},
}

// shape is how the bytes of a file are laid out.
type shape uint8

const (
	documents shape = iota // JSON values one after the other, however broken into lines
	lines                  // JSON, each value on a line of its own
	message                // one protobuf message
	frames                 // protobuf messages with their lengths before them
	whole                  // a profile, which is handed out as it is
)

// formatProfile is the name of what `budgetctl profile` writes. It is told by its
// beginning alone, and cannot be asked for.
const formatProfile = "profile"

// Looking ahead into a file goes no further than this: one line of a file
// exporter fits many times over.
const (
	firstLook = 1 << 16
	maxLook   = 1 << 25
	markLook  = 1 << 12 // where the marks of other content are looked for
)

// sniff finds format and shape of a stream that begins a file. forced is a
// format that the user named, or "".
func sniff(s *stream, forced string) (format string, form shape, err error) {
	head := s.peek(firstLook)
	if len(head) == 0 {
		switch err, cut := s.failure(); {
		case err != nil:
			return "", 0, err
		case cut:
			return "", 0, errCutOff
		}
		return "", 0, errEmpty
	}
	if bytes.HasPrefix(head, []byte(trace.ProfileMagic)) {
		return formatProfile, whole, nil
	}
	if forced == formatProto {
		if beginsJSON(head) {
			return "", 0, fmt.Errorf("no spans: %w: it begins like JSON", formatError(forced))
		}
		form, _ := protoShape(head)
		return formatProto, form, nil
	}
	if forced == "" && !beginsJSON(head) {
		if form, ok := protoShape(head); ok {
			return formatProto, form, nil
		}
		if err := refuse(head); err != nil {
			return "", 0, err
		}
	}
	format = forced
	for format == "" {
		looked := s.peek(firstLook)
		var decided bool
		if format, decided, err = sniffJSON(looked); err != nil {
			return "", 0, err
		}
		if decided {
			break
		}
		if len(looked) >= maxLook || s.err != nil {
			switch err, cut := s.failure(); {
			case err != nil:
				return "", 0, err
			case cut:
				return "", 0, errCutOff
			}
			return "", 0, unknownError(looked)
		}
		s.peek(2 * len(looked))
	}
	if byLine(s) {
		return format, lines, nil
	}
	return format, documents, nil
}

// trimStart drops what may stand before JSON: a byte order mark, white space,
// and the zeros that a preallocated or rotated file can begin with.
func trimStart(text []byte) []byte {
	text = bytes.TrimLeft(text, "\x00 \t\r\n")
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	return bytes.TrimLeft(text, "\x00 \t\r\n")
}

// beginsJSON tells whether head begins with an object or array, not only with
// the byte of a bracket, which protobuf can have by chance.
func beginsJSON(head []byte) bool {
	text := trimStart(head)
	if len(text) == 0 {
		return false
	}
	next := bytes.TrimLeft(text[1:], " \t\r\n")
	switch text[0] {
	case '{':
		return len(next) == 0 || next[0] == '"' || next[0] == '}'
	case '[':
		return len(next) == 0 || strings.IndexByte(`{["]-0123456789tfn`, next[0]) >= 0
	}
	return false
}

// protoShape tells one message from many with lengths before them, and whether
// head is either. What may be both is one message: the other way it would begin
// with a length of over 160 MB.
func protoShape(head []byte) (form shape, ok bool) {
	switch {
	case beginsTracesData(head):
		return message, true
	case beginsFrame(head):
		return frames, true
	}
	return message, false
}

// beginsFrame tells whether head begins with the length of a TracesData and the
// message itself.
func beginsFrame(head []byte) bool {
	if len(head) < frameHeader+2 {
		return false
	}
	length := int(head[0])<<24 | int(head[1])<<16 | int(head[2])<<8 | int(head[3])
	rest := head[frameHeader:]
	return length >= 2 && beginsTracesData(rest[:min(length, len(rest))])
}

// beginsTracesData tells whether head may be the start of a TracesData: field 1
// with a length, and in it a field that a ResourceSpans has.
func beginsTracesData(head []byte) bool {
	const lengthDelimited = 2
	if len(head) < 2 || head[0] != 1<<3|lengthDelimited {
		return false
	}
	i := 1
	for i < len(head) && i < 10 && head[i] >= 0x80 {
		i++
	}
	i++ // the last byte of the length
	if i >= len(head) {
		return true
	}
	switch head[i] {
	case 1<<3 | lengthDelimited, 2<<3 | lengthDelimited, 3<<3 | lengthDelimited:
		return true
	case 0xc2: // the first byte of field 1000
		return i+1 == len(head) || head[i+1] == 0x3e
	}
	return false
}

// refuse names content that is no trace export, as far as it is known.
func refuse(head []byte) error {
	look := head[:min(len(head), markLook)]
	text := trimStart(look)
	switch {
	case bytes.HasPrefix(look, []byte("PAR1")):
		return errParquet
	case bytes.HasPrefix(look, []byte("PK\x03\x04")), bytes.HasPrefix(look, []byte("BZh")),
		bytes.HasPrefix(look, []byte("\xfd7zXZ")):
		return errArchive
	case bytes.HasPrefix(look, []byte("\xff\xfe")), bytes.HasPrefix(look, []byte("\xfe\xff")):
		return errUTF16
	case bytes.HasPrefix(text, []byte("<")):
		return errHTML
	case bytes.Contains(look, []byte("ResourceSpans #0")):
		return errDebug
	}
	for _, c := range consoleMarks {
		if bytes.Contains(look, []byte(c.mark)) {
			return fmt.Errorf(consoleText, c.sdk)
		}
	}
	return nil
}

// unknownError says what was found where a trace export was expected.
func unknownError(head []byte) error {
	if err := refuse(head); err != nil {
		return err
	}
	found := "no JSON object or protobuf message at its start"
	if text := trimStart(head); len(text) > 0 {
		var first jsontext.Value
		dec := jsontext.NewDecoder(bytes.NewReader(text), jsonOptions...)
		switch kind := dec.PeekKind(); kind {
		case '{', '[':
			if keys := firstKeys(dec); len(keys) > 0 {
				found = fmt.Sprintf("the JSON has the keys %s", strings.Join(keys, ", "))
			} else {
				found = "the JSON has no keys of a trace"
			}
		case 'n', 't', 'f', '"', '0':
			first, _ = dec.ReadValue()
			found = fmt.Sprintf("found only %.20q", first)
		}
	}
	return fmt.Errorf("no spans: %s; expected one of %s", found, strings.Join(Formats(), ", "))
}

// firstKeys returns some names of the first object.
func firstKeys(dec *jsontext.Decoder) []string {
	var keys []string
	for dec.PeekKind() == '[' {
		if _, err := dec.ReadToken(); err != nil {
			return nil
		}
	}
	if dec.PeekKind() != '{' {
		return nil
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil
	}
	for len(keys) < 5 && dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			break
		}
		keys = append(keys, fmt.Sprintf("%.30q", name.String()))
		if dec.SkipValue() != nil {
			break
		}
	}
	return keys
}

// sniffJSON finds the format by the first document that tells it. decided is
// false if head holds no such document.
func sniffJSON(head []byte) (format string, decided bool, err error) {
	var refused error
	for rest := trimStart(head); len(rest) > 0; {
		dec := jsontext.NewDecoder(bytes.NewBuffer(rest), jsonOptions...)
		for {
			format, why, err := sniffDocument(dec)
			if format != "" {
				return format, true, nil
			}
			if why != nil {
				refused = why
				if errors.Is(why, errTempoSearch) {
					return "", true, why
				}
			}
			if err != nil {
				if refused != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					refused = fmt.Errorf("%w; it is also no valid JSON: %w", refused, syntaxError(err))
				}
				break
			}
		}
		rest = nextStart(rest[min(int(dec.InputOffset())+1, len(rest)):])
	}
	return "", refused != nil, refused
}

// nextStart returns text from the next line on that begins with a bracket.
func nextStart(text []byte) []byte {
	for i, c := range text {
		if (c == '{' || c == '[') && i > 0 && (text[i-1] == '\n' || text[i-1] == '\r' || text[i-1] == 0) {
			return text[i:]
		}
	}
	return nil
}

// sniffDocument reads one value and tells its format by the names in an object
// that is no member of another one. refused is why the value is known and yet
// not read; err ends the documents.
func sniffDocument(dec *jsontext.Decoder) (format string, refused, err error) {
	for depth := dec.StackDepth(); ; {
		switch dec.PeekKind() {
		case '{':
			format, why, err := sniffObject(dec)
			if why != nil {
				refused = why
			}
			if format != "" || err != nil {
				return format, refused, err
			}
		case '[', ']':
			if _, err := dec.ReadToken(); err != nil {
				return "", refused, err
			}
		default:
			if err := dec.SkipValue(); err != nil {
				return "", refused, err
			}
		}
		if dec.StackDepth() == depth {
			return "", refused, nil
		}
	}
}

// sniffObject reads an object up to the name that tells the format.
func sniffObject(dec *jsontext.Decoder) (format string, refused, err error) {
	if _, err := dec.ReadToken(); err != nil {
		return "", nil, err
	}
	var traceID, zipkinID, context bool
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return "", nil, err
		}
		switch name.String() {
		case "resourceSpans", "resource_spans", "scopeSpans", "scope_spans",
			"instrumentationLibrarySpans", "instrumentation_library_spans":
			return "otlp-json", nil, nil
		case "batches", "trace":
			return "tempo", nil, nil
		case "result":
			return "jaeger-v3", nil, nil
		case "data", "spans", "processes", "traceID", "spanID", "operationName":
			return "jaeger", nil, nil
		case "SpanContext":
			return "stdouttrace", nil, nil
		case "traces":
			return "", errTempoSearch, io.EOF
		case "traceId":
			traceID = true
		case "id":
			zipkinID = true
		case "context":
			context = true
		case "parent_id":
			if context {
				return "", fmt.Errorf(consoleText, "Python"), io.EOF
			}
		case "resourceLogs", "resource_logs":
			refused = errors.New("no spans: it holds OTLP logs, not traces")
		case "resourceMetrics", "resource_metrics":
			refused = errors.New("no spans: it holds OTLP metrics, not traces")
		}
		if traceID && zipkinID {
			return "zipkin", nil, nil
		}
		if err := dec.SkipValue(); err != nil {
			return "", refused, err
		}
	}
	_, err = dec.ReadToken()
	return "", refused, err
}

// byLine tells whether each line of the file is a document of its own: the first
// line is a complete document and there are more lines. A first line that is
// broken, as rotation leaves it, does not hide that a later one is complete.
func byLine(s *stream) bool {
	text, more := linesAhead(s, 1)
	first, rest := cutLine(text)
	if !more || len(trimStart(rest)) == 0 && s.err != nil {
		return false
	}
	if isDocument(first) {
		return true
	}
	text, _ = linesAhead(s, linesToJudge)
	text = firstLines(text, linesToJudge)
	// If the lines go on from one another they are one document.
	err := skipAll(text)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	_, rest = cutLine(text)
	for len(rest) > 0 {
		var line []byte
		line, rest = cutLine(rest)
		if len(line) > 0 && line[0] == '{' && isDocument(line) {
			return true
		}
	}
	return false
}

// linesToJudge is how many lines are looked at where the first one is broken.
const linesToJudge = 3

// firstLines returns the first n lines of text.
func firstLines(text []byte, n int) []byte {
	end := 0
	for range n {
		next := bytes.IndexByte(text[end:], '\n')
		if next < 0 {
			return text
		}
		end += next + 1
	}
	return text[:end]
}

// linesAhead looks ahead until n lines with something on them are complete, and
// returns all that is ahead from the first of them on.
func linesAhead(s *stream, n int) (text []byte, ok bool) {
	for {
		ahead := s.pending
		text = trimStart(ahead)
		rest, count := text, 0
		for count < n {
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				break
			}
			rest = rest[end+1:]
			count++
		}
		// One byte more, to see that something follows.
		if count == n && (len(trimStart(rest)) > 0 || s.err != nil) {
			return text, true
		}
		if s.err != nil || len(ahead) >= maxLook {
			return text, count > 0
		}
		s.peek(len(ahead) + max(len(ahead), firstLook))
	}
}

func cutLine(text []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(text, []byte("\n"))
	return line, rest
}

// isDocument tells whether line is one or more complete JSON objects or arrays.
func isDocument(line []byte) bool {
	return beginsJSON(line) && skipAll(trimStart(line)) == nil
}

// skipAll reads over JSON values and returns the first error.
func skipAll(text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text), jsonOptions...)
	for {
		if err := dec.SkipValue(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}
