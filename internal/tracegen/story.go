package tracegen

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Story is one folder of testdata/: a set of traces that shows one thing.
type Story struct {
	Name    string // of the folder
	Title   string // one sentence for the index, without its period
	Text    string // Markdown: an ASCII timeline and what a right analysis says
	Spans   []Span // in file order
	Formats []Format
}

// Format is one way to write spans to a file.
type Format struct {
	Ext    string // after "trace."
	Append func(dst []byte, spans []Span) []byte
}

// File is one file of testdata/.
type File struct {
	Path string // relative to testdata/, with slashes
	Data []byte
}

// The formats of testdata/. Compressed ones differ only in the last step.
var (
	formatOTLP       = Format{"otlp.json", AppendOTLPJSON}
	formatOTLPLines  = Format{"otlp.jsonl", AppendOTLPJSONLines}
	formatOTLPLinesZ = Format{"otlp.jsonl.gz", gzipped(AppendOTLPJSONLines)}
	formatZipkin     = Format{"zipkin.json", AppendZipkin}
	formatJaeger     = Format{"jaeger.json", AppendJaeger}

	allFormats = []Format{
		formatOTLP,
		formatOTLPLines,
		formatOTLPLinesZ,
		{"otlp.jsonl.zst", zstandard(AppendOTLPJSONLines)},
		{"otlp.framed.jsonl.zst", AppendOTLPJSONFramedZstd},
		{"otlp.pb", AppendOTLPProto},
		{"otlp.framed.pb", AppendOTLPProtoFramed},
		{"otlp.framed.pb.zst", AppendOTLPProtoFramedZstd},
		formatJaeger,
		{"jaeger-v3.json", AppendJaegerV3},
		formatZipkin,
		{"tempo.json", AppendTempo},
		{"tempo-v2.json", AppendTempoV2},
		{"stdouttrace.jsonl", AppendStdouttrace},
	}
)

func gzipped(next func(dst []byte, spans []Span) []byte) func([]byte, []Span) []byte {
	return func(dst []byte, spans []Span) []byte {
		out := bytes.NewBuffer(dst)
		w, _ := gzip.NewWriterLevel(out, gzip.BestCompression) // the level is valid
		_, _ = w.Write(next(nil, spans))                       // a bytes.Buffer takes everything
		_ = w.Close()
		return out.Bytes()
	}
}

func zstandard(next func(dst []byte, spans []Span) []byte) func([]byte, []Span) []byte {
	return func(dst []byte, spans []Span) []byte { return appendZstd(dst, next(nil, spans)) }
}

func appendZstd(dst, data []byte) []byte {
	w, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)) // the options are valid
	return w.EncodeAll(data, dst)                               // needs no Close: it starts nothing
}

// Expand returns what a file holds: it takes off the compression that the end
// of its name tells. Two files are the same story if they expand to the same
// bytes; the compressed bytes depend on the version of the compressor.
func Expand(name string, data []byte) ([]byte, error) {
	switch path.Ext(name) {
	case ".gz":
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return io.ReadAll(r)
	case ".zst":
		if strings.Contains(name, ".framed.") {
			return expandFrames(data)
		}
		r, err := zstd.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return data, nil
}

// Testdata returns all files of testdata/, in the order of their folders.
func Testdata() []File {
	var index strings.Builder
	index.WriteString(indexHead)
	var files []File
	for _, s := range Stories() {
		for _, f := range s.Formats {
			files = append(files, File{path.Join(s.Name, "trace."+f.Ext), f.Append(nil, s.Spans)})
		}
		files = append(files, File{path.Join(s.Name, "README.md"), s.readme()})
		fmt.Fprintf(&index, "| [%s](%[1]s/) | %d | %d | %s |\n", s.Name, len(group(s.Spans, traceKey)), len(s.Spans), s.Title)
	}
	return append(files, File{"README.md", []byte(index.String())})
}

const indexHead = `# Test data

Each folder is one story: a set of traces that shows one thing, with a README that draws it and says what a right
analysis finds. All of it is made by the seeded generator in ` + "`internal/tracegen`" + `; nothing here is recorded from a
real system. To change a story, change the generator and run, from the root of the repository,

    go run ./internal/tracegen/gen -out testdata

A test fails when these files are not what the generator makes.

| folder | traces | spans | what it shows |
|---|---:|---:|---|
`

func (s *Story) readme() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s.\n\n%s\n\n", s.Name, s.Title, strings.Trim(s.Text, "\n"))
	fmt.Fprintf(&b, "Traces: %d. Spans: %d.\n", len(group(s.Spans, traceKey)), len(s.Spans))
	return []byte(b.String())
}
