package e2e

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// id is the id of a trace and of a span in it, as findings name examples.
type id string

// spans are the spans of a file.
type spans map[id]ptrace.Span

// readJSON reads the lines that the file exporter wrote; the last may be cut.
func readJSON(path string) (spans, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := make(spans)
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		if err != nil {
			return nil, err
		}
		found.add(td)
	}
	return found, nil
}

// readProto reads the messages that the file exporter wrote, each after its
// length in four bytes; the last may be cut.
func readProto(path string) (spans, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := make(spans)
	for len(text) >= 4 {
		n := int(binary.BigEndian.Uint32(text))
		if len(text) < 4+n {
			break
		}
		td, err := new(ptrace.ProtoUnmarshaler).UnmarshalTraces(text[4 : 4+n])
		if err != nil {
			return nil, err
		}
		found.add(td)
		text = text[4+n:]
	}
	return found, nil
}

func (s spans) add(td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				s[id(span.TraceID().String()+"/"+span.SpanID().String())] = span
			}
		}
	}
}

// flags returns the flags of a span.
func flags(span ptrace.Span) []string {
	v, ok := span.Attributes().Get(attr.Flags)
	if !ok || v.Type() != pcommon.ValueTypeSlice {
		return nil
	}
	var all []string
	for _, flag := range v.Slice().All() {
		all = append(all, flag.Str())
	}
	return all
}

// flags returns all flags, sorted.
func (s spans) flags() []string {
	set := make(map[string]bool)
	for _, span := range s {
		for _, flag := range flags(span) {
			set[flag] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// traces returns the ids of the traces in which a span is of interest, sorted.
func (s spans) traces(interesting func(ptrace.Span) bool) []string {
	set := make(map[string]bool)
	for _, span := range s {
		if interesting(span) {
			set[span.TraceID().String()] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// bare returns the bytes of a span without the attributes that are ours.
func bare(t *testing.T, span ptrace.Span) string {
	t.Helper()
	td := ptrace.NewTraces()
	to := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.CopyTo(to)
	to.Attributes().RemoveIf(func(key string, _ pcommon.Value) bool { return strings.HasPrefix(key, "latency_budget.") })
	text, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// finding is a finding in the JSON output of analyze.
type finding struct {
	Rule    string `json:"rule"`
	Example id     `json:"example"`
	Text    string `json:"text"`
}

// analyze runs budgetctl analyze on a file, which needs no flags, and returns the
// findings of all endpoints.
func analyze(t *testing.T, path string, args ...string) []finding {
	t.Helper()
	table := exec.Command(budgetctl, slices.Concat([]string{"analyze", path}, args)...)
	if out, err := table.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", table, err, out)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(budgetctl, slices.Concat([]string{"analyze", path, "-o", "json"}, args)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, errs.String())
	}
	if errs.Len() > 0 {
		t.Errorf("%s: %s", filepath.Base(path), errs.String())
	}
	var report struct {
		Endpoints []struct {
			Findings []finding `json:"findings"`
		} `json:"endpoints"`
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	var all []finding
	for _, e := range report.Endpoints {
		all = append(all, e.Findings...)
	}
	return all
}

// rulesOf returns the names of the rules that found something, sorted.
func rulesOf(findings []finding) []string {
	var rules []string
	for _, f := range findings {
		rules = append(rules, f.Rule)
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// texts lists findings for a message.
func texts(findings []finding) string {
	var b strings.Builder
	for _, f := range slices.SortedFunc(slices.Values(findings), func(a, b finding) int { return cmp.Compare(a.Rule, b.Rule) }) {
		fmt.Fprintf(&b, "  %s: %s (%s)\n", f.Rule, f.Text, f.Example)
	}
	return b.String()
}
