package trace

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (k CallKind) testName() string { return [...]string{"root", "rpc", "stage", "step", "async"}[k] }

// drawTree writes a call tree, one line a call: depth, kind, callee operation,
// start..end in ms, and what is special about it.
func drawTree(tree *Tree, paths *Paths) []string {
	var out []string
	depth := make([]int, len(tree.Calls))
	for i := range tree.Calls {
		c := &tree.Calls[i]
		if c.Parent >= 0 {
			depth[i] = depth[c.Parent] + 1
		}
		_, key := paths.At(c.Path)
		text := fmt.Sprintf("%s%s %s %d..%d", strings.Repeat("  ", depth[i]), c.Kind.testName(), key, c.Start/ms, c.End/ms)
		if c.Attempts != 1 {
			text += fmt.Sprintf(" attempts=%d longest=%d", c.Attempts, c.LongestAttempt/ms)
			if c.LongestPause >= 0 {
				text += fmt.Sprintf(" pause=%d", c.LongestPause/ms)
			}
		}
		if c.Callee != c.Span {
			text += " pair"
		}
		if c.ServerOnly {
			text += " server-only"
		}
		if c.Shift != 0 {
			text += fmt.Sprintf(" shift=%+d", c.Shift/ms)
		}
		out = append(out, text)
	}
	return out
}

func buildFirst(t *testing.T, spans []Span, skew Skew) []string {
	t.Helper()
	tr := NewTrace(spans)
	entries := tr.Entries()
	if len(entries) == 0 {
		t.Fatal("no entry")
	}
	var tree Tree
	var paths Paths
	tree.Build(tr, entries[0], &paths, skew)
	return drawTree(&tree, &paths)
}

func peer(s Span, name string) Span {
	s.Desc.Peer = name
	return s
}

func TestCallTree(t *testing.T) {
	const S, C, I, P, Q, U = KindServer, KindClient, KindInternal, KindProducer, KindConsumer, KindUnspecified
	tests := []struct {
		name  string
		spans []Span
		want  []string
	}{
		{
			// A SERVER |------------------|
			// CLIENT      |-----------|
			// B SERVER      |------|        names the call; the caller's times count
			name: "a CLIENT and its SERVER are one call",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), span(2, 1, C, "a", "call b", 10, 90),
				span(3, 2, S, "b", "Get", 20, 80),
				span(4, 3, C, "b", "SELECT", 30, 40),
			},
			want: []string{"root a GET / 0..100", "  rpc b Get 10..90 pair", "    rpc SELECT 30..40"},
		},
		{
			name: "a CLIENT alone is called by its own name and that of its peer",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), peer(span(2, 1, C, "a", "SELECT", 10, 90), "mysql"),
				span(3, 1, C, "a", "DEL", 91, 95),
			},
			want: []string{"root a GET / 0..100", "  rpc mysql SELECT 10..90", "  rpc DEL 91..95"},
		},
		{
			name: "a SERVER of another service without CLIENT lacks the network time",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), span(2, 1, S, "b", "Get", 10, 90),
				span(3, 2, S, "b", "forward", 20, 80),
			},
			want: []string{"root a GET / 0..100", "  rpc b Get 10..90 server-only", "    rpc b forward 20..80"},
		},
		{
			// Sent      |-----------------------------| 0-300
			// Attempt   |-------|                         0-100
			// Attempt             |-------|             110-210
			// Attempt                       |---------| 220-300
			name: "attempts under the logical call are no calls of their own",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 310), span(2, 1, C, "a", "m", 0, 300),
				span(3, 2, C, "a", "m", 0, 100), span(4, 2, C, "a", "m", 110, 210),
				span(5, 2, C, "a", "m", 220, 300),
				span(6, 3, S, "b", "m", 10, 90), span(7, 5, S, "b", "m", 230, 290), span(8, 7, C, "b", "SELECT", 240, 250),
			},
			want: []string{
				"root a GET / 0..310", "  rpc b m 0..300 attempts=3 longest=100 pause=10 pair",
				"    rpc SELECT 240..250",
			},
		},
		{
			// load       |---------------------|   a library that reports its calls
			// SELECT a    |------|
			// SELECT b             |--------|
			name: "calls of another operation under a CLIENT span are calls of their own",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), span(2, 1, C, "a", "repo.load", 10, 90),
				span(3, 2, C, "a", "SELECT a", 20, 40), span(4, 2, C, "a", "SELECT b", 50, 80),
			},
			want: []string{
				"root a GET / 0..100", "  rpc repo.load 10..90", "    rpc SELECT a 20..40", "    rpc SELECT b 50..80",
			},
		},
		{
			// POST /pay    |----------------------|   the middle of the call asks for a token
			// audit               |--------|
			name: "a call inside a call does not rename it",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), span(2, 1, C, "a", "POST /pay", 1, 91), span(3, 2, S, "pay", "POST /pay", 2, 60),
				span(4, 2, C, "a", "POST /audit", 61, 90), span(5, 4, S, "audit", "POST /audit", 62, 89),
			},
			want: []string{
				"root a GET / 0..100", "  rpc pay POST /pay 1..91 pair", "    rpc audit POST /audit 61..90 pair",
			},
		},
		{
			// call     |------------------|
			// attempt  |-----|
			// stale      |--------------|    ends after its attempt was given up, before fresh
			// attempt        |------------|
			// fresh            |----------|  ends last: the answer
			name: "of several SERVER halves the one that ended last answered",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 310), span(2, 1, C, "a", "call", 0, 300),
				span(3, 2, C, "a", "call", 0, 100), span(4, 3, S, "b", "stale", 10, 280),
				span(5, 2, C, "a", "call", 100, 300),
				span(6, 5, S, "c", "fresh", 110, 290),
			},
			want: []string{"root a GET / 0..310", "  rpc c fresh 0..300 attempts=2 longest=200 pause=0 pair"},
		},
		{
			name: "attempts as gRPC reports them are INTERNAL and of the same operation",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 310), span(2, 1, C, "a", "m", 0, 300),
				span(3, 2, I, "a", "m", 0, 100), span(4, 2, I, "a", "m", 110, 290),
				span(5, 4, S, "b", "m", 120, 280), span(6, 5, C, "b", "SELECT", 130, 140),
			},
			want: []string{
				"root a GET / 0..310", "  rpc b m 0..300 attempts=2 longest=180 pause=10 pair",
				"    rpc SELECT 130..140",
			},
		},
		{
			// call     |--------------------|
			// attempt  |----------|
			// attempt     |---|                a hedge: no pause after it, the first still runs
			// attempt               |-------|
			name: "the pause before an attempt begins when all before it have ended",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 310), span(2, 1, C, "a", "m", 0, 300),
				span(3, 2, C, "a", "m", 0, 150), span(4, 2, C, "a", "m", 20, 60), span(5, 2, C, "a", "m", 157, 300),
			},
			want: []string{"root a GET / 0..310", "  rpc m 0..300 attempts=3 longest=150 pause=7"},
		},
		{
			name: "hedges have no pause between them",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 310), span(2, 1, C, "a", "m", 0, 300),
				span(3, 2, C, "a", "m", 0, 150), span(4, 2, C, "a", "m", 100, 300),
			},
			want: []string{"root a GET / 0..310", "  rpc m 0..300 attempts=2 longest=200"},
		},
		{
			name: "parts of a call do not come between its halves",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), span(2, 1, C, "a", "GET", 10, 90),
				span(3, 2, I, "a", "connect", 10, 20),
				span(4, 2, I, "a", "send", 20, 88), span(5, 4, S, "b", "Get", 30, 80), span(6, 4, C, "a", "token", 21, 25),
			},
			want: []string{"root a GET / 0..100", "  rpc b Get 10..90 pair", "    rpc token 21..25"},
		},
		{
			name: "INTERNAL spans of another service do",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), peer(span(2, 1, C, "a", "GET", 10, 90), "mesh"),
				span(3, 2, I, "mesh", "route", 20, 80),
				span(4, 3, S, "b", "Get", 30, 70),
			},
			want: []string{"root a GET / 0..100", "  rpc mesh GET 10..90", "    rpc b Get 30..70 server-only"},
		},
		{
			name: "an attempt that was not measured does not hide who answered",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 310), span(2, 1, C, "a", "Sent.m", 0, 300),
				with(span(3, 2, C, "a", "Attempt.m", 0, 0), FlagUnmeasured), span(4, 3, S, "b", "m", 10, 90),
				span(5, 4, C, "b", "SELECT", 20, 30),
			},
			want: []string{"root a GET / 0..310", "  rpc b m 0..300 pair", "    rpc SELECT 20..30"},
		},
		{
			name: "a CLIENT of another service under a CLIENT is a call of its own",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), peer(span(2, 1, C, "a", "call", 10, 90), "mesh"),
				span(3, 2, C, "mesh", "forward", 20, 80), span(4, 3, S, "b", "Get", 30, 70),
			},
			want: []string{"root a GET / 0..100", "  rpc mesh call 10..90", "    rpc b Get 20..80 pair"},
		},
		{
			name: "deep INTERNAL spans are transparent",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), span(2, 1, C, "a", "call", 10, 90), span(3, 2, S, "b", "Get", 20, 80),
				span(4, 3, I, "b", "work", 25, 75), span(5, 4, I, "b", "more", 30, 70),
				span(6, 5, C, "b", "SELECT", 35, 65),
			},
			want: []string{"root a GET / 0..100", "  rpc b Get 10..90 pair", "    rpc SELECT 35..65"},
		},
		{
			name: "an INTERNAL span right under the entry is a stage and owns its calls",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), span(2, 1, I, "a", "validate", 10, 40),
				span(3, 2, I, "a", "parse", 12, 14), span(4, 2, C, "a", "GET", 15, 35),
			},
			want: []string{"root a GET / 0..100", "  stage a validate 10..40", "    rpc GET 15..35"},
		},
		{
			name:  "a same-service leaf whose kind was inferred is a step",
			spans: []Span{span(1, 0, U, "a", "GET /", 0, 100), span(2, 1, U, "a", "MmcGet", 10, 40)},
			want:  []string{"root a GET / 0..100", "  step a MmcGet 10..40"},
		},
		{
			name: "inferred kinds pair up",
			spans: []Span{
				span(1, 0, U, "x", "A", 0, 100), span(2, 1, U, "x", "B", 10, 90), span(3, 2, U, "y", "C", 20, 80),
				span(4, 3, U, "y", "D", 30, 40),
			},
			want: []string{"root x A 0..100", "  rpc y C 10..90 pair", "    step y D 30..40"},
		},
		{
			name: "nobody waits for queues and what follows from a span",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 50), peer(span(2, 1, P, "a", "send", 10, 12), "orders"),
				span(3, 2, Q, "b", "process", 300, 900), span(4, 3, C, "b", "SELECT", 310, 320),
				with(span(5, 1, S, "c", "audit", 20, 80), FlagFollowsFrom),
			},
			want: []string{
				"root a GET / 0..50", "  async orders send 10..12", "    async b process 300..900",
				"      rpc SELECT 310..320",
				"  async c audit 20..80",
			},
		},
		{
			name: "unmeasured spans are transparent",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), with(span(2, 1, C, "a", "call", 0, 0), FlagUnmeasured),
				span(3, 2, S, "b", "Get", 20, 80), with(span(4, 3, I, "b", "work", 0, 0),
					FlagUnmeasured), span(5, 4, C, "b", "SELECT", 30, 40),
			},
			want: []string{"root a GET / 0..100", "  rpc b Get 20..80 server-only", "    rpc SELECT 30..40"},
		},
		{
			name: "a SERVER half that was not measured leaves its calls to the CLIENT half",
			spans: []Span{
				span(1, 0, S, "a", "GET /", 0, 100), peer(span(2, 1, C, "a", "call", 10, 90), "b"),
				with(span(3, 2, S, "b", "Get", 0, 0), FlagUnmeasured), span(4, 3, C, "b", "SELECT", 30, 40),
			},
			want: []string{"root a GET / 0..100", "  rpc b call 10..90", "    rpc SELECT 30..40"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, buildFirst(t, test.spans, nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A call is part of the work of the nearest SERVER span above it, whatever lies
// between. One without its times is nobody's work.
//
//	edge SERVER 1  |---------------------------------|
//	CLIENT 2          |-----------------------|
//	attempt 3            |-----|
//	a SERVER 4             |--|                          made 5, by way of 6
//	CLIENT 5                |-|
//	attempt 7                        |-------|
//	a SERVER 8 (no times)                                made 9, as far as is known edge
//	CLIENT 9                          |----|
func TestCallsKnowWhoseWorkTheyArePartOf(t *testing.T) {
	spans := []Span{
		span(1, 0, KindServer, "edge", "GET /", 0, 100), span(2, 1, KindClient, "edge", "m", 10, 90),
		span(3, 2, KindClient, "edge", "m", 20, 40), span(4, 3, KindServer, "a", "m", 22, 38),
		span(6, 4, KindInternal, "a", "step", 23, 37), span(5, 6, KindClient, "a", "q", 24, 30),
		span(7, 2, KindClient, "edge", "m", 50, 80), span(8, 7, KindServer, "a", "m", 52, 78), span(9, 8, KindClient, "a", "q", 54, 70),
		span(10, 1, KindProducer, "edge", "publish", 91, 92), span(11, 10, KindConsumer, "mail", "receive", 93, 99),
		span(12, 11, KindClient, "mail", "send", 94, 98),
	}
	spans[7].Flags |= FlagUnmeasured
	whole := NewTrace(spans)
	var tree Tree
	tree.Build(whole, whole.Entries()[0], new(Paths), nil)
	got := make(map[byte]byte)
	for _, c := range tree.Calls {
		got[whole.Spans[c.Span].ID[7]] = whole.Spans[c.Maker].ID[7]
	}
	want := map[byte]byte{1: 1, 2: 1, 5: 4, 9: 1, 10: 1, 11: 1, 12: 11}
	if !maps.Equal(got, want) {
		t.Errorf("makers %v, want %v", got, want)
	}
}

func TestAnUnmeasuredEntryHasNoTree(t *testing.T) {
	tr := NewTrace([]Span{
		with(span(1, 0, KindServer, "a", "x", 0, 0), FlagUnmeasured),
		span(2, 1, KindClient, "a", "y", 1, 2),
	})
	var tree Tree
	var paths Paths
	tree.Build(tr, 0, &paths, nil)
	if len(tree.Calls) != 0 || paths.Len() != 0 {
		t.Errorf("%d calls, %d paths", len(tree.Calls), paths.Len())
	}
}

func TestEntries(t *testing.T) {
	const S, C, I, P, Q = KindServer, KindClient, KindInternal, KindProducer, KindConsumer
	type counts = map[NoteKind]int
	tests := []struct {
		name    string
		spans   []Span
		want    []int // span ids
		notes   counts
		leftOut counts
	}{
		{
			name: "a SERVER root", spans: []Span{span(1, 0, S, "a", "x", 0, 9), span(2, 1, S, "b", "y", 1, 2)},
			want: []int{1},
		},
		{
			name: "below a load generator", spans: []Span{
				span(1, 0, I, "k6", "iteration", 0, 100), span(2, 1, C, "k6", "GET", 10, 90),
				span(3, 2, S, "a", "x", 20, 80), span(4, 3, C, "a", "y", 30, 40),
			},
			want: []int{3}, notes: counts{NoteOutside: 2}, leftOut: counts{NoteOutside: 2},
		},
		{
			name: "a browser makes several requests", spans: []Span{
				span(1, 0, C, "browser", "load", 0, 100), span(2, 1, S, "a", "x", 20, 80), span(3, 1, S, "b", "x", 10, 70),
			},
			want: []int{3, 2}, notes: counts{NoteOutside: 1}, leftOut: counts{NoteOutside: 1},
		},
		{name: "no SERVER at all", spans: []Span{
			span(1, 0, I, "job", "run", 0, 100),
			span(2, 1, C, "job", "SELECT", 10, 20),
		}, want: []int{1}},
		{
			// 1 starts before 3, but its entry 2 starts after it.
			name: "two roots", spans: []Span{
				span(1, 0, C, "k6", "GET", 0, 100), span(2, 1, S, "a", "x", 50, 90), span(3, 0, S, "b", "x", 10, 70),
			},
			want: []int{3, 2}, notes: counts{NoteOutside: 1}, leftOut: counts{NoteOutside: 1},
		},
		{name: "a CONSUMER root", spans: []Span{
			span(1, 0, Q, "a", "process", 0, 100),
			span(2, 1, S, "b", "x", 10, 70),
		}, want: []int{1}},
		{
			name: "a queue on the way ends the search", spans: []Span{
				span(1, 0, P, "a", "send", 0, 10), span(2, 1, Q, "b", "process", 20, 70), span(3, 2, S, "c", "x", 30, 60),
			},
			want: []int{1},
		},
		{
			name: "without a root the topmost SERVER and CONSUMER spans enter", spans: []Span{
				span(2, 9, S, "a", "x", 0, 10), span(3, 2, S, "b", "x", 1, 2), span(4, 8, Q, "c", "x", 3, 5),
				span(5, 7, C, "d", "SELECT", 6, 7),
			},
			want: []int{2, 4}, notes: counts{NoteEntry: 2, NoteNoRoot: 1}, leftOut: counts{NoteNoRoot: 1},
		},
		{
			name: "a lone SELECT is no request", spans: []Span{
				span(5, 7, C, "d", "SELECT", 6, 7),
				span(6, 5, I, "d", "x", 6, 7),
			},
			notes: counts{NoteNoRoot: 1}, leftOut: counts{NoteNoRoot: 2},
		},
		{
			// The orphan covers exactly 5 % of the root.
			name: "an orphan beside a root hangs nowhere", spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 9, C, "a", "y", 10, 15), span(3, 2, S, "b", "y", 11, 14),
			},
			want: []int{1}, notes: counts{NoteMissingParent: 1}, leftOut: counts{NoteMissingParent: 2},
		},
		{
			name: "orphans over 5 % make the trace incomplete", spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 9, C, "a", "y", 10, 16),
			},
			notes: counts{NoteIncomplete: 2}, leftOut: counts{NoteIncomplete: 2},
		},
		{
			// Together 5 ms: 10-13 and 12-15.
			name: "orphans that overlap are counted once", spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 9, C, "a", "y", 10, 13),
				span(3, 9, C, "a", "z", 12, 15), span(4, 9, C, "a", "z", 11, 12),
			},
			want: []int{1}, notes: counts{NoteMissingParent: 3}, leftOut: counts{NoteMissingParent: 3},
		},
		{
			name: "orphans nobody waits for do not count", spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 9, Q, "a", "y", 10, 900),
			},
			want: []int{1}, notes: counts{NoteMissingParent: 1}, leftOut: counts{NoteMissingParent: 1},
		},
		{
			name: "a circle beside a root is an entry of its own", spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 3, S, "b", "y", 10, 50), span(3, 2, S, "c", "y", 20, 40),
			},
			want: []int{1, 2}, notes: counts{NoteCycle: 1},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tr := NewTrace(test.spans)
			var got []int
			for _, e := range tr.Entries() {
				got = append(got, int(binary.BigEndian.Uint64(tr.Spans[e].ID[:])))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			if test.notes == nil {
				test.notes = counts{}
			}
			if diff := cmp.Diff(test.notes, noteCounts(tr.Notes)); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			if test.leftOut == nil {
				test.leftOut = counts{}
			}
			if diff := cmp.Diff(test.leftOut, tr.LeftOut); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectFindsAnyOperation(t *testing.T) {
	spans := []Span{
		span(1, 0, KindServer, "gateway", "GET /", 0, 100), span(2, 1, KindClient, "gateway", "GET /product", 10, 90),
		span(3, 2, KindServer, "frontend", "/product", 20, 80), span(4, 3, KindClient, "frontend", "/product", 30, 60),
		span(5, 4, KindServer, "frontend", "/product", 40, 50), span(6, 3, KindClient, "frontend", "SELECT", 61, 70),
	}
	tests := []struct {
		name    string
		match   func(*Desc) bool
		want    []int
		leftOut int
	}{
		{"the topmost below the entry", func(d *Desc) bool { return d.Service == "frontend" && d.Operation == "/product" }, []int{3}, 2},
		{"the entry itself", func(d *Desc) bool { return d.Operation == "GET /" }, []int{1}, 0},
		{"a CLIENT where no SERVER matches", func(d *Desc) bool { return d.Operation == "SELECT" }, []int{6}, 5},
		{"nothing", func(d *Desc) bool { return false }, nil, 6},
		{"everything is the entry", func(d *Desc) bool { return true }, []int{1}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tr := NewTrace(spans)
			var got []int
			for _, i := range tr.Select(tr.Entries(), test.match) {
				got = append(got, int(binary.BigEndian.Uint64(tr.Spans[i].ID[:])))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := tr.LeftOut[NoteNotSelected]; n != test.leftOut {
				t.Errorf("%d spans left out, want %d", n, test.leftOut)
			}
		})
	}
}

// centre puts a callee that is not inside its caller into the middle of it,
// where it fits.
func centre(_ int32, caller, callee *Desc, p, s Interval) int64 {
	if caller.Service == callee.Service {
		return 0
	}
	lo, hi := p.Start-s.Start, p.End-s.End
	if lo > hi || lo <= 0 && 0 <= hi {
		return 0
	}
	return lo + (hi-lo)/2
}

func TestSkewShiftsTheCalleeAndAllBelowIt(t *testing.T) {
	const S, C, P, Q = KindServer, KindClient, KindProducer, KindConsumer
	tests := []struct {
		name  string
		spans []Span
		want  []string
	}{
		{
			// client |----------| 0-10
			// server |------|     -3..3 becomes 2..8
			// child   |--|        -2..1 becomes 3..6
			name: "a SERVER half and its child",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 12), span(2, 1, C, "a", "y", 0, 10), span(3, 2, S, "b", "y", -3, 3),
				span(4, 3, C, "b", "z", -2, 1),
			},
			want: []string{"root a x 0..12", "  rpc b y 0..10 pair shift=+5", "    rpc z 3..6"},
		},
		{
			// The root's client is [10,90], server' [-500,-430]: +515 centres it.
			name: "the whole sub-tree moves, shift upon shift",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 1, C, "a", "y", 10, 90), span(3, 2, S, "b", "y", -500, -430),
				span(4, 3, C, "b", "z", -490, -440), span(5, 4, S, "c", "z", 1000, 1040),
				span(6, 5, C, "c", "SELECT", 1010, 1020),
			},
			want: []string{
				"root a x 0..100", "  rpc b y 10..90 pair shift=+515",
				"    rpc c z 25..75 pair shift=-1485", "      rpc SELECT 40..50",
			},
		},
		{
			name: "a callee longer than its caller is not moved",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 1, C, "a", "y", 0, 10), span(3, 2, S, "b", "y", -5, 40),
				span(4, 3, C, "b", "z", 5, 6),
			},
			want: []string{"root a x 0..100", "  rpc b y 0..10 pair", "    rpc z 5..6"},
		},
		{
			name: "queues are not moved",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 10), span(2, 1, P, "a", "send", 0, 5), span(3, 2, Q, "b", "process", 650, 700),
				span(4, 3, S, "c", "z", 660, 690),
			},
			want: []string{
				"root a x 0..10", "  async a send 0..5", "    async b process 650..700",
				"      rpc c z 660..690 server-only",
			},
		},
		{
			name: "a SERVER without CLIENT moves too",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 1, S, "b", "y", -40, 20),
				span(3, 2, C, "b", "z", -30, 10),
			},
			want: []string{"root a x 0..100", "  rpc b y 20..80 server-only shift=+60", "    rpc z 30..70"},
		},
		{
			name: "one service has one clock",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 1, S, "a", "y", -40, 20), span(3, 1, C, "a", "y", 30, 40),
				span(4, 3, S, "a", "y", 10, 12),
			},
			want: []string{"root a x 0..100", "  rpc a y -40..20", "  rpc a y 30..40 pair"},
		},
		{
			name:  "a CLIENT alone stays",
			spans: []Span{span(1, 0, S, "a", "x", 0, 100), span(2, 1, C, "a", "y", -40, 20)},
			want:  []string{"root a x 0..100", "  rpc y -40..20"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, buildFirst(t, test.spans, centre)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueuesAreOffTheCriticalPath(t *testing.T) {
	// server |-----| 0-50, producer 10-12, consumer 300-900.
	tr := NewTrace([]Span{
		span(1, 0, KindServer, "a", "x", 0, 50), span(2, 1, KindProducer, "a", "send", 10, 12),
		span(3, 2, KindConsumer, "b", "process", 300, 900),
	})
	var tree Tree
	var paths Paths
	tree.Build(tr, 0, &paths, nil)
	for i := range tree.Calls {
		if i > 0 && tree.Calls[i].Kind != CallAsync {
			t.Errorf("call %d is %s, want async", i, tree.Calls[i].Kind.testName())
		}
	}
	if root := tree.Calls[0]; root.Duration() != 50*ms {
		t.Errorf("the request took %d ns, want 50 ms", root.Duration())
	}
}

func TestASpanThatEndsBeforeItStartsTakesNothing(t *testing.T) {
	// The child is 60..50: neither a wrapped duration nor 50..100.
	tr := NewTrace([]Span{
		span(1, 0, KindServer, "a", "x", 0, 100), span(2, 1, KindClient, "a", "y", 60, 50),
		span(3, 2, KindServer, "b", "y", 20, 30),
	})
	var tree Tree
	var paths Paths
	var w Walker
	tree.Build(tr, 0, &paths, nil)
	nodes := nodesOf(&tree)
	if diff := cmp.Diff([]int64{90 * ms, 10 * ms}, exclusive(t, nodes, w.CriticalPath(nodes))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRanksDependOnContentAlone(t *testing.T) {
	add := func(p *Paths, way ...string) {
		node := int32(-1)
		for _, name := range way {
			node = p.Child(node, Key{Service: name, Operation: "x", Kind: CallRPC})
		}
	}
	ways := [][]string{{"a"}, {"a", "c"}, {"a", "b", "z"}, {"a", "c", "a"}, {"a", "b", "d"}, {"b"}, {"b", "a"}}
	byRank := func(order []int) []string {
		var p Paths
		for _, i := range order {
			add(&p, ways[i]...)
		}
		out := make([]string, p.Len())
		for node, rank := range p.Ranks() {
			var way []string
			for n := int32(node); n >= 0; {
				parent, key := p.At(n)
				way = append(way, key.Service)
				n = parent
			}
			slices.Reverse(way)
			out[rank] = strings.Join(way, ">")
		}
		return out
	}
	want := []string{"a", "b", "a>b", "a>c", "b>a", "a>b>d", "a>b>z", "a>c>a"}
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {3, 6, 2, 0, 4, 1, 5}} {
		if diff := cmp.Diff(want, byRank(order)); diff != "" {
			t.Errorf("order %v (-want +got):\n%s", order, diff)
		}
	}
}
