package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// corpus returns the folder of exported traces made by other projects.
func corpus(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("LATENCYBUDGET_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	if _, err := os.Stat(filepath.Join(dir, "SOURCES.md")); err != nil {
		t.Skipf("no corpus of real traces: %v; set LATENCYBUDGET_CORPUS", err)
	}
	return dir
}

// outcome is everything a source gave.
type outcome struct {
	spans  []trace.Span
	notes  trace.Notes
	errs   []error
	files  []*trace.File
	counts []int // spans of each batch
}

// readAll reads inputs to their end.
func readAll(t testing.TB, opts Options, inputs ...string) outcome {
	t.Helper()
	return readStdin(t, opts, "", inputs...)
}

func readStdin(t testing.TB, opts Options, stdin string, inputs ...string) outcome {
	t.Helper()
	src, err := Open(inputs, strings.NewReader(stdin), opts)
	if err != nil {
		t.Fatal(err)
	}
	var out outcome
	for batch, err := range src.Batches(context.Background()) {
		if err != nil {
			out.errs = append(out.errs, err)
			continue
		}
		if batch.File == nil {
			t.Fatal("a batch without a file")
		}
		if n := len(out.files); n == 0 || out.files[n-1] != batch.File {
			out.files = append(out.files, batch.File)
		}
		for i := range batch.Spans {
			s := &batch.Spans[i]
			if s.Desc == nil || s.TraceID.IsZero() || s.ID.IsZero() {
				t.Fatalf("span %+v has no description or no id", s)
			}
		}
		out.spans = append(out.spans, batch.Spans...)
		out.counts = append(out.counts, len(batch.Spans))
		out.notes.Merge(batch.Notes)
	}
	return out
}

func (o outcome) traces() int {
	ids := make(map[trace.TraceID]bool)
	for _, s := range o.spans {
		ids[s.TraceID] = true
	}
	return len(ids)
}

// TestCorpusCounts holds every file to the counts that another program made.
func TestCorpusCounts(t *testing.T) {
	dir := corpus(t)
	text, err := os.ReadFile(filepath.Join(dir, "SOURCES.md"))
	if err != nil {
		t.Fatal(err)
	}
	// Files with nothing usable, and what their error must say.
	unusable := map[string]string{
		"dataprepper-test-request-no-spans.otlp.json":     "no spans",
		"otlp2parquet-bad-malformed.otlp.json":            "no spans",
		"otlp2parquet-bad-trace_invalid_base64.otlp.json": "is neither hex nor base64",
		"otlp2parquet-bad-trace_mixed_encoding.otlp.json": "could not be read",
	}
	counts := regexp.MustCompile(`(?m)^- traces (\d+), spans (\d+)`)
	read := 0
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		name, _, _ := strings.Cut(section, "\n")
		read++
		t.Run(name, func(t *testing.T) {
			got := readAll(t, Options{}, filepath.Join(dir, name))
			if want, bad := unusable[filepath.Base(name)]; bad {
				var fileError *FileError
				if len(got.spans) != 0 || len(got.errs) != 1 || !errors.As(got.errs[0], &fileError) ||
					!strings.Contains(got.errs[0].Error(), want) {
					t.Fatalf("got %d spans and errors %v, want one that says %q", len(got.spans), got.errs, want)
				}
				t.Log(got.errs[0])
				return
			}
			m := counts.FindStringSubmatch(section)
			if m == nil {
				t.Fatal("no counts in SOURCES.md")
			}
			traces, _ := strconv.Atoi(m[1])
			spans, _ := strconv.Atoi(m[2])
			if len(got.errs) != 0 || got.traces() != traces || len(got.spans) != spans {
				t.Errorf("got %d traces, %d spans, errors %v; want %d and %d",
					got.traces(), len(got.spans), got.errs, traces, spans)
			}
			for _, n := range got.notes.List() {
				t.Log(fmt.Sprint(n))
			}
			t.Log(got.files[0])
		})
	}
	if read < 50 {
		t.Errorf("only %d files are listed", read)
	}
}

// TestCorpusFormsAgree compares files that hold the same spans in two forms.
func TestCorpusFormsAgree(t *testing.T) {
	dir := corpus(t)
	read := func(name string) []string {
		t.Helper()
		got := readAll(t, Options{}, filepath.Join(dir, name))
		if len(got.errs) > 0 {
			t.Fatal(got.errs)
		}
		out := showAll(got.spans)
		slices.Sort(out)
		return out
	}
	for _, pair := range [][2]string{
		{"jaegerui-multi-combined.otlp.json", "jaegerui-multi-in.otlp.jsonl"},
		{"otlp2parquet-traces.otlp.jsonl", "otlp2parquet-traces.otlp.pb"},
	} {
		if diff := cmp.Diff(read(pair[0]), read(pair[1])); diff != "" {
			t.Errorf("%s and %s differ:\n%s", pair[0], pair[1], diff)
		}
	}

	// The Jaeger form has microseconds.
	coarse := regexp.MustCompile(`(\d+)\d{3}\+(\d+)\d{3}`)
	var otlpForm, jaegerForm []string
	for _, s := range read("jaegerui-multi-combined.otlp.json") {
		otlpForm = append(otlpForm, coarse.ReplaceAllString(s, "$1 $2"))
	}
	for _, s := range read("jaegerui-multi-out.jaeger.json") {
		jaegerForm = append(jaegerForm, coarse.ReplaceAllString(s, "$1 $2"))
	}
	if diff := cmp.Diff(otlpForm, jaegerForm); diff != "" {
		t.Errorf("OTLP and Jaeger forms differ:\n%s", diff)
	}
}

// TestCorpusEndpoints holds a real export to what people call its parts.
func TestCorpusEndpoints(t *testing.T) {
	dir := corpus(t)
	got := readAll(t, Options{}, filepath.Join(dir, "tw-hotel-load150.jaeger.json"))
	seen := make(map[string]int)
	for _, s := range got.spans {
		seen[fmt.Sprintf("%s %s %v", s.Desc.Service, s.Desc.Operation, s.Kind)]++
	}
	for _, want := range []string{
		"frontend HTTP GET /hotels server", "frontend search.Search/Nearby client", "search search.Search/Nearby server",
		"reservation reservation.Reservation/CheckAvailability server",
	} {
		if seen[want] != 1000 {
			t.Errorf("%d spans of %s, want 1000; there are %v", seen[want], want, seen)
		}
	}
}
