package source

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// write puts files, by name and content, into a new folder.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func gzipped(text string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.String()
}

func zstded(text string) string {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = w.Close() }()
	return string(w.EncodeAll([]byte(text), nil))
}

// framed compresses each message alone and puts its length before it.
func framed(messages ...string) string {
	var out strings.Builder
	for _, m := range messages {
		out.WriteString(frame([]byte(zstded(m))))
	}
	return out.String()
}

// names returns the base names of the files that were read, in order.
func (o outcome) names() string {
	var names []string
	for _, f := range o.files {
		names = append(names, filepath.Base(f.Name))
	}
	return strings.Join(names, " ")
}

func TestInputsAreFilesFoldersGlobsAndStdin(t *testing.T) {
	doc := func(id string) string { return otlp(otlpSpan(id, "")) }
	dir := write(t, map[string]string{
		"b.json": doc("1"), "a.jsonl": doc("2") + "\n" + doc("3"), "sub/c.ndjson": doc("4"), "sub/deep/d.otlp": doc("5"),
		"e.pb": string(protoData(protoSpan(6))), "f.json.gz": gzipped(doc("7")), "g.jsonl.zst": zstded(doc("8")),
		"H.JSON": doc("9"), "notes.txt": "not a trace", "x.json.bak": "not a trace", "noext": doc("a"),
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		inputs []string
		want   string
	}{
		{[]string{dir}, "H.JSON a.jsonl b.json e.pb f.json.gz g.jsonl.zst c.ndjson d.otlp"},
		{[]string{in("b.json"), in("a.jsonl")}, "b.json a.jsonl"},
		{[]string{in("noext")}, "noext"}, // a file that is named is read whatever its name
		{[]string{in("*.json*")}, "a.jsonl b.json f.json.gz g.jsonl.zst x.json.bak"},
		{[]string{in("b.json"), in("sub/../b.json"), in("[ab].*"), in("sub")}, "b.json a.jsonl c.ndjson d.otlp"},
		{[]string{"-", in("b.json"), "-"}, "- b.json"},
	} {
		got := readStdin(t, Options{}, doc("f"), c.inputs...)
		want := strings.TrimSuffix(c.want, " x.json.bak") // it is read, but holds nothing
		if got.names() != want {
			t.Errorf("%v: read %s, want %s", c.inputs, got.names(), want)
		}
		if bad := want != c.want; bad != (len(got.errs) == 1) {
			t.Errorf("%v: errors %v", c.inputs, got.errs)
		}
	}
}

func TestOpenRefusesOnlyWhatTheCallerGotWrong(t *testing.T) {
	for _, c := range []struct {
		inputs []string
		format string
		want   string
	}{
		{nil, "", "no inputs: name files, folders or globs, or - for standard input"},
		{
			[]string{"-"},
			"xml",
			`unknown format "xml"; valid are jaeger, jaeger-v3, otlp-json, otlp-proto, stdouttrace, tempo, zipkin`,
		},
	} {
		if _, err := Open(c.inputs, nil, Options{Format: c.format}); err == nil || err.Error() != c.want {
			t.Errorf("%v: error %v, want %q", c.inputs, err, c.want)
		}
	}
	if _, err := Open([]string{"missing.json"}, nil, Options{}); err != nil {
		t.Errorf("a missing file: %v, want it among the batches", err)
	}
}

// TestInputsThatAreNotThereCostOnlyThemselves puts each kind of them between two
// good files and holds the order.
func TestInputsThatAreNotThereCostOnlyThemselves(t *testing.T) {
	dir := write(t, map[string]string{
		"a.json": otlp(otlpSpan("1", "")), "z.json": otlp(otlpSpan("2", "")), "empty/notes.txt": "x", "links/good.json": otlp(otlpSpan("3", "")),
	})
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Symlink("nowhere", in("links/broken.json")); err != nil {
		t.Fatal(err)
	}
	for input, want := range map[string]struct {
		name, reason string
		more         []string // files that are read in spite of it
	}{
		"-":                       {"-", "there is no standard input", nil},
		in("missing.json"):        {in("missing.json"), "no such file or directory", nil},
		in("missing/x.json"):      {in("missing/x.json"), "no such file or directory", nil},
		in("a.json/x.json"):       {in("a.json/x.json"), "not a directory", nil},
		in("none*.json"):          {in("none*.json"), "no file matches this pattern", nil},
		in("[.json"):              {in("[.json"), "bad pattern: syntax error in pattern", nil},
		in("links"):               {in("links/broken.json"), "no such file or directory", []string{in("links/good.json")}},
		in("links/*"):             {in("links/broken.json"), "no such file or directory", []string{in("links/good.json")}},
		in("links/../links/x*on"): {in("links/../links/x*on"), "no file matches this pattern", nil},
		in("empty"): {in("empty"), "no trace files in this folder (looked for *.json, *.jsonl, *.ndjson, *.pb, *.otlp, *.profile, " +
			"plain or with .gz or .zst)", nil},
	} {
		src, err := Open([]string{in("a.json"), input, input, in("z.json")}, nil, Options{})
		if err != nil {
			t.Errorf("%s: %v", input, err)
			continue
		}
		var got []string
		for batch, err := range src.Batches(context.Background()) {
			if err == nil {
				got = append(got, batch.File.Name)
				continue
			}
			var fileError *FileError
			if !errors.As(err, &fileError) || fileError.Name != want.name || batch.File != nil {
				t.Errorf("%s: error %v with batch %v, want one of %s alone", input, err, batch, want.name)
			}
			if strings.HasPrefix(want.reason, "no such file") != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: whether %v is fs.ErrNotExist", input, err)
			}
			got = append(got, err.Error())
		}
		all := append([]string{in("a.json"), want.name + ": " + want.reason}, want.more...)
		if diff := cmp.Diff(append(all, in("z.json")), got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", input, diff)
		}
	}
}

func TestUnreadableFilesAndFoldersCostOnlyThemselves(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := write(t, map[string]string{
		"a.json": otlp(otlpSpan("1", "")), "b.json": "", "c/x.json": "", "d.json": otlp(otlpSpan("2", "")),
	})
	for _, name := range []string{"b.json", "c"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = os.Chmod(filepath.Join(dir, "c"), 0o700) }() // so that it can be removed
	got := readAll(t, Options{}, dir)
	if got.names() != "a.json d.json" || len(got.errs) != 2 {
		t.Errorf("read %s, errors %v", got.names(), got.errs)
	}
	for _, err := range got.errs {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v is no fs.ErrPermission", err)
		}
	}
}

func TestUnusableFilesAreNamedErrorsAndCostOnlyThemselves(t *testing.T) {
	good := otlp(otlpSpan("1", ""))
	for name, c := range map[string]struct{ content, want string }{
		"empty":              {"", "the file is empty"},
		"white space":        {" \n\n", "no spans: no JSON object or protobuf message at its start"},
		"null":               {"null", `no spans: found only "null"`},
		"number":             {"123", `no spans: found only "123"`},
		"true":               {"true", `no spans: found only "true"`},
		"string":             {`"x"`, "no spans: found only"},
		"empty object":       {"{}", "no spans: the JSON has no keys of a trace"},
		"empty array":        {"[]", "no spans: the JSON has no keys of a trace"},
		"other JSON":         {`{"foo":{},"bar":1}`, `no spans: the JSON has the keys "foo", "bar"; expected one of jaeger,`},
		"no spans":           {`{"resourceSpans":[]}`, "no spans: the file is valid but holds none"},
		"null spans":         {`{"resourceSpans":null}`, "no spans: the file is valid but holds none"},
		"no batches":         {`{"batches":[]}`, "no spans: the file is valid but holds none"},
		"no traces":          {`{"data":[],"total":0,"errors":null}`, "no spans: the file is valid but holds none"},
		"only garbage ids":   {otlp(otlpSpan("zzz", "")), `no spans: 1 span could not be read, first at byte`},
		"only a broken line": {good[:100], `no spans: the content is cut off, at byte 99: it ends inside a value`},
		"Tempo search": {
			`{"traces":[{"traceID":"a","rootServiceName":"x"}],"metrics":{}}`,
			"this is a search result of Tempo, which has no spans; fetch the traces by id",
		},
		"OTLP logs":    {`{"resourceLogs":[{"scopeLogs":[]}]}`, "it holds OTLP logs, not traces"},
		"OTLP metrics": {`{"resourceMetrics":[]}`, "it holds OTLP metrics, not traces"},
		"HTML":         {"<!DOCTYPE html><html>", "this is an HTML page"},
		"Parquet":      {"PAR1\x15\x04", "this is a Parquet file"},
		"zip":          {"PK\x03\x04\x00\x00", "unpack it"},
		"Python console": {
			"{\n \"name\": \"x\",\n \"context\": {\"trace_id\": \"0x1\"},\n \"kind\": \"SpanKind.SERVER\",\n \"parent_id\": null\n}\n",
			"console output of the Python SDK; export with OTLP",
		},
		"JavaScript console": {"{\n  resource: {\n    attributes: {}\n  },\n  traceId: 'abc',\n}\n", "console output of the JavaScript SDK"},
		"Java logging":       {"INFO: 'GET' : 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 SERVER [tracer: http:1.0]\n", "the Java SDK"},
		".NET console":       {"Activity.TraceId:            0af7651916cd43dd8448eb211c80319c\n", "the .NET SDK"},
		"debug exporter":     {"2024-01-01T00:00:00Z\tinfo\tResourceSpans #0\nResource SchemaURL: \n", "the Collector's debug exporter"},
		"UTF-16":             {"\xff\xfe{\x00}\x00", "this is UTF-16 text; save it as UTF-8"},
		"text":               {"hello world\n", "no spans: no JSON object or protobuf message at its start"},
		"bad gzip":           {"\x1f\x8b\x08bad", "gzip"},
		"bad zstd":           {"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff", "zstd"},
		"too deep":           {`{"resourceSpans":` + strings.Repeat("[", 300), "nested deeper than 200 levels; raise --max-depth"},
		"too deep elsewhere": {
			`{"x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `,"resourceSpans":[]}`,
			"nested deeper than 200 levels; raise --max-depth",
		},
		"far too deep": {
			`{"resourceSpans":[{"x":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}]}`,
			"nested deeper than 200 levels; raise --max-depth",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"a.json": good, "b.json": c.content, "c.json": good})
			got := readAll(t, Options{}, filepath.Join(dir, "*.json"))
			if len(got.errs) != 1 {
				t.Fatalf("errors %v, want one", got.errs)
			}
			var fileError *FileError
			text := got.errs[0].Error()
			if !errors.As(got.errs[0], &fileError) || filepath.Base(fileError.Name) != "b.json" ||
				!strings.HasPrefix(text, fileError.Name+": ") || !strings.Contains(text, c.want) || strings.Contains(text, "\n") {
				t.Errorf("error %q, want one line with %q", text, c.want)
			}
			if len(got.spans) != 2 {
				t.Errorf("%d spans, want those of the other two files", len(got.spans))
			}
		})
	}
}

func TestForcedFormat(t *testing.T) {
	doc := otlp(otlpSpan("1", ""))
	got := readStdin(t, Options{Format: "otlp-json"}, `{"batches":`+doc[len(`{"resourceSpans":`):], "-")
	if len(got.spans) != 1 || got.files[0].Format != "otlp-json" {
		t.Errorf("%d spans, %v", len(got.spans), got.errs)
	}
	got = readStdin(t, Options{Format: "otlp-proto"}, string(protoData(protoSpan(1))), "-")
	if len(got.spans) != 1 {
		t.Errorf("%d spans, %v", len(got.spans), got.errs)
	}
	for _, format := range Formats() {
		if format == "otlp-json" || format == "tempo" || format == "jaeger-v3" {
			continue
		}
		got := readStdin(t, Options{Format: format}, doc, "-")
		want := "-: no spans: the content does not look like " + format + " (--format): "
		if len(got.spans) != 0 || len(got.errs) != 1 || !strings.HasPrefix(got.errs[0].Error(), want) {
			t.Errorf("%s: %d spans, errors %v; want one with %q", format, len(got.spans), got.errs, want)
		}
	}
}

func TestCompressionIsKnownByItsBytes(t *testing.T) {
	first, second := otlp(otlpSpan("1", "")), otlp(otlpSpan("2", ""))
	want := []string{"a/1 svc|op unspecified 100+100", "a/2 svc|op unspecified 100+100"}
	for name, content := range map[string]string{
		"gzip":                  gzipped(first + "\n" + second + "\n"),
		"two gzip members":      gzipped(first+"\n") + gzipped(second+"\n"),
		"zstd":                  zstded(first + "\n" + second + "\n"),
		"two zstd frames":       zstded(first+"\n") + zstded(second),
		"framed zstd of JSON":   framed(first, second),
		"framed zstd, long":     framed(first+strings.Repeat(" ", 1<<17), second),
		"framed zstd of proto":  framed(string(protoData(protoSpan(1))), string(protoData(protoSpan(2)))),
		"zstd of framed proto":  zstded(frame(protoData(protoSpan(1))) + frame(protoData(protoSpan(2)))),
		"gzip of proto":         gzipped(string(protoData(protoSpan(1), protoSpan(2)))),
		"framed zstd, one void": framed(first, "", second),
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"traces.json": content})
			got := readAll(t, Options{}, filepath.Join(dir, "traces.json"))
			if diff := cmp.Diff(want, showAll(got.spans)); diff != "" || len(got.errs) > 0 || len(got.notes.List()) > 0 {
				t.Errorf("errors %v, notes %v, spans (-want +got):\n%s", got.errs, got.notes.List(), diff)
			}
			if got.files[0].Bytes != int64(len(content)) {
				t.Errorf("%d bytes, want %d", got.files[0].Bytes, len(content))
			}
		})
	}
}

func TestCompressedDataThatEndsEarlyKeepsWhatWasRead(t *testing.T) {
	var doc strings.Builder
	for i := range 2000 {
		// Ids that do not compress, so that a part of the file has a part of the spans.
		doc.WriteString(otlp(otlpSpan(fmt.Sprintf("%016x", uint64(i+1)*0x9e3779b97f4a7c15), "")) + "\n")
	}
	frames := framed(strings.Repeat(otlp(otlpSpan("1", "")), 3))
	for name, content := range map[string]string{
		"gzip": gzipped(doc.String())[:9000], "zstd": zstded(doc.String())[:9000], "framed": frames + frames[:len(frames)-5],
	} {
		if name == "zstd" {
			content = zstded(doc.String())
			content = content[:len(content)-100]
		}
		got := readStdin(t, Options{}, content, "-")
		if len(got.spans) == 0 || got.notes.Count(trace.NoteTruncated) == 0 || len(got.errs) > 0 {
			t.Errorf("%s: %d spans, notes %v, errors %v", name, len(got.spans), got.notes.List(), got.errs)
		}
	}
}

// TestCutCompressedDataCountsOnce cuts every shape everywhere in its compressed
// form: however the cut shows further up, it is one.
func TestCutCompressedDataCountsOnce(t *testing.T) {
	line := otlp(otlpSpan("1", "")) + "\n"
	for name, content := range map[string]string{
		"lines": strings.Repeat(line, 3), "document": otlp(otlpSpan("1", ""), otlpSpan("2", "")),
		"message": string(protoData(protoSpan(1))), "frames": strings.Repeat(frame(protoData(protoSpan(1))), 3),
		"long lines": string(exportOTLP(3)),
	} {
		packed := gzipped(content)
		step := max(1, len(packed)/100)
		for n := 30; n < len(packed); n += step {
			got := readStdin(t, Options{}, packed[:n], "-")
			if len(got.spans) > 0 && got.notes.Count(trace.NoteTruncated) != 1 || got.notes.Count(trace.NoteBadLine) > 0 {
				t.Fatalf("%s cut at byte %d of %d: notes %v", name, n, len(packed), got.notes.List())
			}
		}
	}
}

// TestCutCompressedDataIsCalledCutOff cuts every compression at every byte behind
// its magic number, also where nothing comes out yet.
func TestCutCompressedDataIsCalledCutOff(t *testing.T) {
	doc, msg := otlp(otlpSpan("1", "")), string(protoData(protoSpan(1)))
	named := func(text string) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		w.Name, w.Comment, w.Extra = "traces.json", "exported", []byte("extra")
		_, _ = io.WriteString(w, text)
		_ = w.Close()
		return out.String()
	}
	for name, c := range map[string]struct {
		magic int
		parts []string // each can stand alone
	}{
		"gzip":                {2, []string{gzipped(doc), gzipped(doc)}},
		"gzip with a name":    {2, []string{named(doc), named(doc)}},
		"gzip of proto":       {2, []string{gzipped(msg)}},
		"zstd":                {4, []string{zstded(doc), zstded(doc)}},
		"zstd of many blocks": {4, []string{zstded(string(exportOTLP(4)))}},
		"framed JSON":         {8, []string{framed(doc), framed(doc)}},
		"framed proto":        {8, []string{framed(msg), framed(msg)}},
	} {
		content, whole := strings.Join(c.parts, ""), len(c.parts[0])
		for n := c.magic; n < len(content); n += 1 + n/100 {
			if n == whole {
				continue
			}
			got := readStdin(t, Options{}, content[:n], "-")
			switch {
			case len(got.errs) > 1, len(got.errs) == 1 && !strings.Contains(got.errs[0].Error(), "the content is cut off"):
				t.Fatalf("%s cut at byte %d of %d: errors %v", name, n, len(content), got.errs)
			case len(got.errs) == 0 && got.notes.Count(trace.NoteTruncated) != 1:
				t.Fatalf("%s cut at byte %d of %d: notes %v", name, n, len(content), got.notes.List())
			}
		}
	}
}

// TestErrorsWithoutSpansSayWhatWasWrong has one case for each way to lose a span.
func TestErrorsWithoutSpansSayWhatWasWrong(t *testing.T) {
	otlpWith := func(more string) string { return otlp(otlpSpan("1", more)) }
	jaeger := func(more string) string {
		return `{"data":[{"spans":[{"traceID":"a","spanID":"1","startTime":1,"duration":2` + more + `}]}]}`
	}
	zipkin := func(more string) string { return `[{"traceId":"a","id":"1","timestamp":1,"duration":2` + more + `}]` }
	stdout := func(more string) string {
		return `{"SpanContext":{"TraceID":"aa","SpanID":"1"},"StartTime":"2024-02-06T11:15:06Z","EndTime":"2024-02-06T11:15:07Z"` + more + `}`
	}
	proto := func(traceID string, start, end uint64) string {
		return string(protoData(sub(2, fixed(8, end), fixed(7, start), str(2, protoID(1, 8)), str(1, traceID))))
	}
	for in, want := range map[string]string{
		// Ids.
		otlpWith(`,"traceId":"!!!INVALID_BASE64!!!"`):                `trace id "!!!INVALID_BASE64!!!" is neither hex nor base64`,
		otlpWith(`,"traceId":"?` + strings.Repeat("x\\n", 99) + `"`): `trace id "?x\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx\nx…" is neither hex nor base64`,
		otlpWith(`,"traceId":"` + strings.Repeat("é", 99) + `"`):     `trace id "éééééééééééé…" is neither hex nor base64`,
		otlpWith(`,"spanId":"0123456789abcdef0"`):                    `span id "0123456789abcdef0" has 17 hex digits, more than 16`,
		otlpWith(`,"spanId":"SGVsbG8"`):                              `span id "SGVsbG8" is no hex, and base64 of 5 bytes instead of 8`,
		otlpWith(`,"spanId":7`):                                      `span id is a number, not a text`,
		otlpWith(`,"spanId":{}`):                                     `span id is an object, not a text`,
		otlpWith(`,"parentSpanId":"?","spanId":[]`):                  `span id is an array, not a text`,
		jaeger(`,"spanID":"?"`):                                      `span id "?" is neither hex nor base64`,
		zipkin(`,"traceId":"?"`):                                     `trace id "?" is neither hex nor base64`,
		stdout(`,"SpanContext":{"TraceID":"aa","SpanID":true}`):      `span id is a boolean, not a text`,
		proto("short", 1, 2):                                         `trace id has 5 bytes, not 16`,
		// Times.
		otlpWith(`,"startTimeUnixNano":"2024-01-01T00:00:00Z"`): `start time "2024-01-01T00:00:00Z" is no number`,
		otlpWith(`,"endTimeUnixNano":1.5`):                      `end time "1.5" is out of range or no whole number`,
		otlpWith(`,"endTimeUnixNano":"9223372036854775808"`):    `end time "9223372036854775808" is out of range or no whole number`,
		otlpWith(`,"endTimeUnixNano":"1e999"`):                  `end time "1e999" is out of range or no whole number`,
		otlpWith(`,"endTimeUnixNano":false`):                    `end time is a boolean, not a number`,
		otlpWith(`,"startTimeUnixNano":"-5"`):                   `start time -5 is out of range`,
		otlpWith(`,"endTimeUnixNano":"4611686018427387903"`):    `duration 4611686018427387803 is out of range`,
		proto(protoID(1, 16), 1<<63, 2):                         `start time 4611686018427387904 is out of range`,
		jaeger(`,"duration":"x"`):                               `duration "x" is no number`,
		jaeger(`,"startTime":-1`):                               `start time -1 is out of range`,
		zipkin(`,"duration":1000000000000000000`):               `duration 1000000000000000000 is out of range`,
		stdout(`,"StartTime":"yesterday"`):                      `start time "yesterday" is no time of RFC 3339`,
		stdout(`,"EndTime":"9999-01-01T00:00:00Z"`):             `end time "9999-01-01T00:00:00Z" is out of range`,
		stdout(`,"EndTime":7`):                                  `end time is a number, not a text`,
		// Kinds of values.
		otlp("7"):                    `it is a number, not an object`,
		`{"data":[{"spans":["x"]}]}`: `it is a text, not an object`,
	} {
		got := readStdin(t, Options{}, in, "-")
		if len(got.errs) != 1 || len(got.spans) > 0 {
			t.Errorf("%s: %d spans, errors %v, want one", in, len(got.spans), got.errs)
			continue
		}
		text := got.errs[0].Error()
		if !strings.HasPrefix(text, "-: no spans: 1 span could not be read, first at byte ") || !strings.HasSuffix(text, ": "+want) {
			t.Errorf("%s:\n%s\nwant the reason %s", in, text, want)
		}
	}
	broken := `{"resourceSpans":[{"scope` + "\n"
	for in, want := range map[string]string{
		otlp(otlpSpan("", "")):                         "1 span has no id, first at byte 213: the span id is missing or zero",
		otlp(otlpSpan("0", ""), otlpSpan("00", "")):    "2 spans have no id, first at byte 214: the span id is missing or zero",
		otlp(otlpSpan("1", `,"traceId":null`)):         "1 span has no id, first at byte 229: the trace id is missing or zero",
		`{"resourceSpans":[]}` + "\n" + broken + "x\n": "2 lines could not be read, first at line 2: it ends inside a value",
		`{"resourceSpans":[]}` + "\n" + broken + otlp(otlpSpan("?", "")) + "\n": "1 line could not be read, first at line 2: it ends inside a value; " +
			`1 span could not be read, first at line 3: span id "?" is neither hex nor base64`,
		// What a line that is lost as a whole was about to say does not count.
		otlp(otlpSpan("?", "")) + "}\n" + otlp(otlpSpan("", `,"kind":99`)) + "\n": "1 line could not be read, first at line 1: invalid character '}' at start of value; " +
			"1 span has no id, first at line 2: the span id is missing or zero",
		otlp(otlpSpan("?", "")) + "}\n" + otlp(otlpSpan("!", "")) + "\n": "1 line could not be read, first at line 1: invalid character '}' at start of value; " +
			`1 span could not be read, first at line 2: span id "!" is neither hex nor base64`,
		`{"resourceLogs":[]}}` + "\n" + `{"resourceSpans":[]}` + "\n": "1 line could not be read, first at line 1: invalid character '}' at start of value",
		otlp(otlpSpan("1", ""))[:150]:                                 "the content is cut off, at byte 147: it ends inside a value",
		gzipped(otlp(otlpSpan("1", "")))[:60]:                         "the content is cut off: the compressed data is incomplete",
		gzipped(otlp(otlpSpan("1", "")))[:140]:                        "the content is cut off, at byte ",
	} {
		got := readStdin(t, Options{}, in, "-")
		if len(got.errs) != 1 || !strings.HasPrefix(got.errs[0].Error(), "-: no spans: "+want) || strings.Contains(got.errs[0].Error(), "logs") {
			t.Errorf("%s:\n%v\nwant %s", in, got.errs, want)
		}
	}
}

// TestWrongFormatIsNamed forces every format on the content of every other one
// that it does not share a reader with.
func TestWrongFormatIsNamed(t *testing.T) {
	contents := map[string]string{
		"otlp-json":   otlp(otlpSpan("1", "")),
		"otlp-proto":  string(protoData(protoSpan(1))),
		"jaeger":      `{"data":[{"spans":[{"traceID":"a","spanID":"1","startTime":1,"duration":2}]}]}`,
		"zipkin":      `[{"traceId":"a","id":"1","timestamp":1,"duration":2}]`,
		"stdouttrace": `{"SpanContext":{"TraceID":"aa","SpanID":"1"},"StartTime":"2024-02-06T11:15:06Z","EndTime":"2024-02-06T11:15:07Z"}`,
	}
	for format := range contents {
		for name, content := range contents {
			got := readStdin(t, Options{Format: format}, content, "-")
			if name == format {
				if len(got.spans) != 1 || len(got.errs) > 0 {
					t.Errorf("%s: %d spans, errors %v", name, len(got.spans), got.errs)
				}
				continue
			}
			want := "no spans: the content does not look like " + format + " (--format): "
			if len(got.errs) != 1 || len(got.spans) > 0 || !strings.Contains(got.errs[0].Error(), want) {
				t.Errorf("%s read as %s: %d spans, errors %v; want %q", name, format, len(got.spans), got.errs, want)
			}
		}
	}
	// A span that cannot be read is no reason to doubt the format.
	got := readStdin(t, Options{Format: "otlp-json"}, otlp(otlpSpan("?", "")), "-")
	if len(got.errs) != 1 || strings.Contains(got.errs[0].Error(), "--format") {
		t.Errorf("errors %v", got.errs)
	}
}

func TestLimits(t *testing.T) {
	line := otlp(otlpSpan("1", "")) + "\n"
	t.Run("bytes", func(t *testing.T) {
		bomb := gzipped(strings.Repeat(line, 3) + strings.Repeat("\x00", 1<<22))
		got := readStdin(t, Options{MaxBytes: 1 << 20}, bomb, "-")
		if len(got.spans) != 3 || len(got.errs) != 1 ||
			!strings.Contains(got.errs[0].Error(), "more than 1048576 bytes after decompression; raise --max-bytes") {
			t.Errorf("%d spans, errors %v", len(got.spans), got.errs)
		}
		// Zeros alone are not kept to see what comes behind them.
		zeros := gzipped(strings.Repeat("\x00", 1<<20))
		for _, max := range []int64{1 << 19, 1 << 30} {
			if got := readStdin(t, Options{MaxBytes: max}, zeros, "-"); len(got.errs) != 1 ||
				strings.Contains(got.errs[0].Error(), "--max-bytes") != (max == 1<<19) {
				t.Errorf("limit %d: errors %v", max, got.errs)
			}
		}
		// A file of just the limit is within it.
		if got := readStdin(t, Options{MaxBytes: int64(len(line))}, line, "-"); len(got.errs) > 0 || len(got.spans) != 1 {
			t.Errorf("%d spans, errors %v", len(got.spans), got.errs)
		}
		for _, content := range []string{line, framed(line), framed(string(protoData(protoSpan(1))))} {
			if got := readStdin(t, Options{MaxBytes: math.MaxInt64}, content, "-"); len(got.errs) > 0 || len(got.spans) != 1 {
				t.Errorf("the highest limit: %d spans, errors %v", len(got.spans), got.errs)
			}
		}
		if got := readStdin(t, Options{MaxBytes: int64(len(line)) - 1}, line, "-"); len(got.errs) != 1 {
			t.Errorf("one byte over the limit: errors %v", got.errs)
		}
	})
	t.Run("bytes of every compression", func(t *testing.T) {
		const limit = 1 << 20
		doc, msg := otlp(otlpSpan("1", "")), string(protoData(protoSpan(1)))
		text, field := strings.Repeat(" ", 1<<25), strings.Repeat("\n", 1<<25)
		bomb := framed(field)
		for name, c := range map[string]struct {
			content string
			spans   int
		}{
			"gzip":                 {gzipped(doc + "\n" + text), 1},
			"zstd":                 {zstded(doc + "\n" + text), 1},
			"framed JSON":          {framed(doc, doc+text), 1},
			"framed proto":         {framed(msg) + bomb, 1},
			"framed proto, first":  {bomb, 0},
			"framed, many":         {framed(msg) + strings.Repeat(framed(msg+field[:limit/2]), 3), 1},
			"framed, JSON, proto":  {framed(doc+text[:limit-2000]) + bomb, 1},
			"framed, a bomb later": {framed(doc, text[:limit]) + bomb, 1},
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := readStdin(t, Options{MaxBytes: limit}, c.content, "-")
			runtime.ReadMemStats(&after)
			if len(got.errs) != 1 || !strings.Contains(got.errs[0].Error(), "more than 1048576 bytes after decompression; raise --max-bytes") ||
				len(got.spans) < c.spans {
				t.Errorf("%s: %d spans, errors %v", name, len(got.spans), got.errs)
			}
			// The window of the decoder is 8 MiB whatever the limit.
			if n := after.TotalAlloc - before.TotalAlloc; n > 32*limit {
				t.Errorf("%s: %d bytes allocated to read 2^20", name, n)
			}
		}
		// Wherever the limit falls, it is the same for messages that are
		// compressed one by one and for the same ones as they are.
		plain := frame([]byte(msg)) + frame([]byte(msg))
		for limit := range int64(len(plain)) {
			opts := Options{MaxBytes: limit + 1}
			want, got := readStdin(t, opts, plain, "-"), readStdin(t, opts, framed(msg, msg), "-")
			if !slices.Equal(showAll(got.spans), showAll(want.spans)) || fmt.Sprint(got.errs) != fmt.Sprint(want.errs) {
				t.Errorf("limit %d: spans %q, errors %v; want %q, %v", limit+1, showAll(got.spans), got.errs, showAll(want.spans), want.errs)
			}
		}
	})
	t.Run("bytes of a span", func(t *testing.T) {
		lines := func(doc string) string { return strings.Replace(doc, "[", "[\n", 1) } // no line is a document
		long := attributes(strings.Repeat(`{"key":"x","value":{"intValue":"1"}},`+"\n", 1<<20) + `{"key":"http.response.status_code","value":{"intValue":"504"}}`)
		for _, c := range []struct {
			doc  string
			want []trace.Outcome
		}{
			{lines(otlp(otlpSpan("1", ""), otlpSpan("2", long), otlpSpan("3", ""))), []trace.Outcome{trace.OutcomeOK, trace.OutcomeTimedOut, trace.OutcomeOK}},
			{strings.TrimRight(lines(otlp(otlpSpan("1", ""), otlpSpan("2", long))), "]}"), []trace.Outcome{trace.OutcomeOK}}, // cut off
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := readStdin(t, Options{}, c.doc, "-")
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(c.doc))/2 {
				t.Errorf("%d bytes allocated to read a span of %d", n, len(c.doc))
			}
			var outcomes []trace.Outcome
			for _, s := range got.spans {
				outcomes = append(outcomes, s.Outcome)
			}
			if !slices.Equal(outcomes, c.want) {
				t.Errorf("spans ended %v, want %v: notes %v, errors %v", outcomes, c.want, got.notes.List(), got.errs)
			}
		}
	})
	t.Run("depth", func(t *testing.T) {
		nested := func(n int) string {
			return otlp(otlpSpan("1", attributes(`{"key":"x","value":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`}`))) + "\n" + line
		}
		// The attribute's value stands at depth 10 already.
		for _, c := range []struct{ n, spans, bad int }{{191, 2, 0}, {192, 1, 1}, {50000, 1, 1}} {
			got := readStdin(t, Options{}, nested(c.n), "-")
			if len(got.spans) != c.spans || got.notes.Count(trace.NoteBadLine) != c.bad {
				t.Errorf("depth %d: %d spans, notes %v", c.n, len(got.spans), got.notes.List())
			}
		}
		if got := readStdin(t, Options{MaxDepth: 300}, nested(192), "-"); len(got.spans) != 2 {
			t.Errorf("%d spans with a higher limit", len(got.spans))
		}
	})
	t.Run("string", func(t *testing.T) {
		long := strings.Repeat("é", 100)
		got := readStdin(t, Options{MaxString: 11}, otlp(otlpSpan("1", `,"name":"`+long+`"`+
			attributes(`{"key":"peer.service","value":{"stringValue":"`+long+`"}},{"key":"x","value":{"stringValue":"`+long+`"}}`))), "-")
		if d := got.spans[0].Desc; d.Operation != long[:10] || d.Peer != long[:10] || got.notes.Count(trace.NoteLongText) != 2 {
			t.Errorf("%+v, notes %v", d, got.notes.List())
		}
	})
}

func TestLongLinesAreRead(t *testing.T) {
	for _, size := range []int{100 << 10, 2 << 20, 12 << 20} {
		pad := strings.Repeat("x", size)
		line := func(id string) string {
			return otlp(otlpSpan(id, attributes(`{"key":"unwanted","value":{"stringValue":"`+pad+`"}}`))) + "\n"
		}
		if got := readStdin(t, Options{}, line("1")+line("2")+line("3"), "-"); len(got.spans) != 3 || len(got.notes.List()) > 0 {
			t.Errorf("lines of %d bytes: %d spans, notes %v, errors %v", size, len(got.spans), got.notes.List(), got.errs)
		}
	}
}

// TestOrderDoesNotDependOnWorkers reads a folder with long and short files of
// several shapes.
func TestOrderDoesNotDependOnWorkers(t *testing.T) {
	export := string(exportOTLP(70)) // over smallFile, so it is cut into blocks
	if len(export) <= smallFile {
		t.Fatalf("only %d bytes", len(export))
	}
	pieces := strings.SplitAfter(export, "\n")
	dir := write(t, map[string]string{
		"a.jsonl":   export[:len(export)/2+50] + "\nbroken\n" + strings.Join(pieces[40:], ""),
		"b.json":    otlp(otlpSpan("1", "")),
		"c.json":    "broken",
		"d.pb":      string(exportFrames(130)),
		"e.json.gz": gzipped(pieces[0] + pieces[1]),
		"f.json":    strings.ReplaceAll(export, "\n", ""), // no lines: one document behind the other
	})
	var want outcome
	for _, workers := range []int{1, 2, 8} {
		got := readAll(t, Options{Workers: workers}, dir)
		if workers == 1 {
			want = got
			if len(got.spans) < 20000 || len(got.errs) != 1 || got.notes.Count(trace.NoteBadLine) != 2 {
				t.Fatalf("%d spans, errors %v, notes %v", len(got.spans), got.errs, got.notes.List())
			}
			continue
		}
		for i := range want.spans {
			if a, b := show(want.spans[i]), show(got.spans[i]); a != b {
				t.Fatalf("%d workers: span %d is %s, want %s", workers, i, b, a)
			}
		}
		if diff := cmp.Diff(want.counts, got.counts); diff != "" {
			t.Errorf("%d workers: batches (-want +got):\n%s", workers, diff)
		}
		if diff := cmp.Diff(want.notes.List(), got.notes.List()); diff != "" {
			t.Errorf("%d workers: notes (-want +got):\n%s", workers, diff)
		}
		if fmt.Sprint(want.errs, want.names()) != fmt.Sprint(got.errs, got.names()) {
			t.Errorf("%d workers: errors %v of files %s", workers, got.errs, got.names())
		}
	}
}

func TestShapeDoesNotMatter(t *testing.T) {
	export := string(exportOTLP(3))
	want := readStdin(t, Options{}, export, "-")
	docs := strings.Split(strings.TrimSpace(export), "\n")
	for name, content := range map[string]string{
		"an array": "[" + strings.Join(docs, ",") + "]", "back to back": strings.Join(docs, ""),
		"pretty": strings.NewReplacer("{\"", "{\n \"", "],", "],\n").Replace(export),
	} {
		got := readStdin(t, Options{}, content, "-")
		if len(got.spans) != len(want.spans) {
			t.Fatalf("%s: %d spans, want %d", name, len(got.spans), len(want.spans))
		}
		for i := range want.spans {
			if show(got.spans[i]) != show(want.spans[i]) {
				t.Fatalf("%s: span %d is %s, want %s", name, i, show(got.spans[i]), show(want.spans[i]))
			}
		}
	}
}

func TestDescriptionsAreShared(t *testing.T) {
	got := readStdin(t, Options{}, string(exportOTLP(30)), "-")
	byContent := make(map[trace.Desc]*trace.Desc)
	for _, s := range got.spans {
		if d := byContent[*s.Desc]; d != nil && d != s.Desc {
			t.Fatalf("two descriptions with %+v", *d)
		}
		byContent[*s.Desc] = s.Desc
	}
	if len(byContent) != 30 { // 10 services on 3 nodes
		t.Errorf("%d descriptions, want 30", len(byContent))
	}
}

func TestLargeDocumentsComeInBatches(t *testing.T) {
	spans := make([]string, 3*batchSpans)
	for i := range spans {
		spans[i] = otlpSpan(fmt.Sprintf("%x", i+1), "")
	}
	doc := strings.Replace(otlp(spans...), `{"spans":`, `{"scope":{},"spans":`, 1)
	got := readStdin(t, Options{}, doc, "-")
	if diff := cmp.Diff([]int{batchSpans, batchSpans, batchSpans}, got.counts); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	// Spans before their resource or scope must wait, all others must not.
	late := `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Join(spans[:batchSpans+5], ",") + `]}],` +
		`"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"svc"}}]}},` + doc[len(`{"resourceSpans":[`):]
	got = readStdin(t, Options{}, late, "-")
	if diff := cmp.Diff([]int{batchSpans + 5, batchSpans, batchSpans, batchSpans}, got.counts); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	for _, s := range got.spans {
		if s.Desc.Service != "svc" {
			t.Fatalf("span without its service: %s", show(s))
		}
	}
}

func TestCutAnywhereKeepsTheLinesBefore(t *testing.T) {
	content := otlp(otlpSpan("1", "")) + "\n" + otlp(otlpSpan("2", "")) + "\n" + otlp(otlpSpan("3", "")) + "\n"
	for n := range len(content) {
		got := readStdin(t, Options{}, content[:n], "-")
		whole := strings.Count(content[:n], "\n")
		if len(got.spans) < whole || len(got.spans) > whole+1 {
			t.Fatalf("cut at byte %d: %d spans, want those of %d lines", n, len(got.spans), whole)
		}
		if len(got.spans) == 0 && len(got.errs) != 1 {
			t.Fatalf("cut at byte %d: no spans and errors %v", n, got.errs)
		}
	}
	framed := frame(protoData(protoSpan(1))) + frame(protoData(protoSpan(2)))
	for n := len(framed) / 2; n < len(framed); n++ {
		if got := readStdin(t, Options{}, framed[:n], "-"); len(got.spans) < 1 {
			t.Fatalf("cut at byte %d: no spans, errors %v", n, got.errs)
		}
	}
}

func TestNotesNameThePlace(t *testing.T) {
	dir := write(t, map[string]string{
		"lines.jsonl": otlp(otlpSpan("1", "")) + "\n\nbroken\n" + otlp(otlpSpan("2", `,"kind":99`)) + "\n",
		"doc.json":    otlp(otlpSpan("1", "")) + " broken",
	})
	lines, doc := filepath.Join(dir, "lines.jsonl"), filepath.Join(dir, "doc.json")
	notes := readAll(t, Options{}, lines).notes
	want := []trace.Note{
		{Kind: trace.NoteBadKind, Count: 1, Example: strings.Repeat("0", 31) + "a/0000000000000002", Where: lines + ":4"},
		{Kind: trace.NoteBadLine, Count: 1, Where: lines + ":3"},
	}
	if diff := cmp.Diff(want, notes.List()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	notes = readAll(t, Options{}, doc).notes
	want = []trace.Note{{Kind: trace.NoteBadLine, Count: 1, Where: fmt.Sprintf("%s: byte %d", doc, len(otlp(otlpSpan("1", ""))))}}
	if diff := cmp.Diff(want, notes.List()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	long := strings.Repeat("x", 50)
	before, after, _ := strings.Cut(strings.Replace(otlp(otlpSpan("1", ""), otlpSpan("2", `,"name":"`+long+`","kind":2`)), "[", "[\n", 1), long)
	notes = readStdin(t, Options{MaxString: 40}, before+long+after, "-").notes
	want = []trace.Note{{Kind: trace.NoteLongText, Count: 1, Where: fmt.Sprintf("-: byte %d", len(before)+len(long)+len(`"`))}}
	if diff := cmp.Diff(want, notes.List()); diff != "" {
		t.Errorf("inside a span (-want +got):\n%s", diff)
	}
}

func TestProgressReachesTheTotal(t *testing.T) {
	dir := write(t, map[string]string{"a.json": otlp(otlpSpan("1", "")), "b.jsonl": string(exportOTLP(70))})
	var last, total int64
	readAll(t, Options{Progress: func(done, all int64) {
		if done < last || done > all {
			t.Errorf("%d of %d after %d", done, all, last)
		}
		last, total = done, all
	}}, dir)
	if last != total || total == 0 {
		t.Errorf("ended at %d of %d bytes", last, total)
	}
}

func TestReadingTwiceGivesTheSame(t *testing.T) {
	dir := write(t, map[string]string{"a.json": otlp(otlpSpan("1", ""), otlpSpan("2", ""))})
	src, err := Open([]string{dir}, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n := 0
		for b, err := range src.Batches(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			n += len(b.Spans)
		}
		if n != 2 {
			t.Errorf("%d spans, want 2", n)
		}
	}
}

// TestStoppingEarlyLeavesNothingBehind ends reading by break and by context,
// again and again, and counts goroutines.
func TestStoppingEarlyLeavesNothingBehind(t *testing.T) {
	dir := write(t, map[string]string{
		"a.jsonl": string(exportOTLP(100)), "b.json": strings.ReplaceAll(string(exportOTLP(100)), "\n", ""),
		"c.pb": string(exportFrames(100)), "d.json": otlp(otlpSpan("1", "")),
	})
	before := runtime.NumGoroutine()
	for i := range 8 {
		src, err := Open([]string{dir}, nil, Options{Workers: 4})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		batches, last := 0, error(nil)
		for _, err := range src.Batches(ctx) {
			last = err
			if batches++; batches == 1+i/2 {
				if i%2 == 0 {
					break
				}
				cancel()
			}
		}
		if i%2 == 1 && !errors.Is(last, context.Canceled) {
			t.Errorf("the last error is %v", last)
		}
		cancel()
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestContextThatHasEndedGivesOnlyItsError(t *testing.T) {
	dir := write(t, map[string]string{"a.json": otlp(otlpSpan("1", ""))})
	src, err := Open([]string{dir}, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var errs []error
	for _, err := range src.Batches(ctx) {
		errs = append(errs, err)
	}
	if len(errs) != 1 || !errors.Is(errs[0], context.Canceled) {
		t.Errorf("%v", errs)
	}
}

type brokenReader struct{ io.Reader }

func (b brokenReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("device on fire")
	}
	return n, err
}

func TestReadErrorsKeepTheSpansBefore(t *testing.T) {
	for _, content := range []string{
		otlp(otlpSpan("1", "")), otlp(otlpSpan("1", "")) + "\n" + otlp(otlpSpan("2", "")) + "\n",
		string(protoData(protoSpan(1))), frame(protoData(protoSpan(1))),
	} {
		src, err := Open([]string{"-"}, brokenReader{strings.NewReader(content)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		spans, last := 0, error(nil)
		for b, err := range src.Batches(context.Background()) {
			spans += len(b.Spans)
			last = err
		}
		if spans == 0 || last == nil || last.Error() != "-: device on fire" {
			t.Errorf("%.20q: %d spans, error %v", content, spans, last)
		}
	}
}
