package trace

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ms = 1_000_000 // ns

func spanID(n int) SpanID {
	var id SpanID
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}

func traceID(high, low uint64) TraceID {
	var id TraceID
	binary.BigEndian.PutUint64(id[:8], high)
	binary.BigEndian.PutUint64(id[8:], low)
	return id
}

// span makes a span of one trace from start to end ms. Each has a Desc of its
// own, as spans of different files do; parent 0 is none.
func span(id, parent int, kind Kind, service, operation string, start, end int64) Span {
	return Span{
		TraceID: traceID(7, 1), ID: spanID(id), Parent: spanID(parent), Kind: kind,
		Start: start * ms, Duration: (end - start) * ms, Desc: &Desc{Service: service, Operation: operation},
	}
}

func with(s Span, f Flags) Span {
	s.Flags |= f
	return s
}

// shape writes an assembled trace as "id<parent kind", in span order; the
// parent is ! where it is lost, and missing where there is none.
func shape(t *Trace) string {
	var out []string
	for i := range t.Spans {
		s := &t.Spans[i]
		text := fmt.Sprint(binary.BigEndian.Uint64(s.ID[:]))
		switch p := t.Parent[i]; p {
		case NoParent:
		case LostParent:
			text += "<!"
		default:
			text += fmt.Sprintf("<%d", binary.BigEndian.Uint64(t.Spans[p].ID[:]))
			if t.Spans[p].ID == s.ID {
				text += t.Spans[p].Kind.String()
			}
		}
		out = append(out, text+" "+s.Kind.String())
	}
	return strings.Join(out, ", ")
}

func noteCounts(ns Notes) map[NoteKind]int {
	out := make(map[NoteKind]int)
	for _, n := range ns.List() {
		out[n.Kind] = n.Count
	}
	return out
}

func TestBadSpansCostOnlyThemselves(t *testing.T) {
	const S, C, I = KindServer, KindClient, KindInternal
	type counts = map[NoteKind]int
	tests := []struct {
		name    string
		spans   []Span
		want    string
		notes   counts
		leftOut counts
	}{
		{
			name:  "a child may stand before its parent",
			spans: []Span{span(2, 1, C, "a", "x", 1, 9), span(1, 0, S, "a", "x", 0, 10)},
			want:  "1 server, 2<1 client",
		},
		{
			name:  "a parent that is not in the export",
			spans: []Span{span(2, 9, C, "a", "x", 1, 9), span(1, 0, S, "a", "x", 0, 10)},
			want:  "1 server, 2<! client",
		},
		{
			name:  "a span that is its own parent is a root",
			spans: []Span{span(1, 1, S, "a", "x", 0, 10), span(2, 1, C, "a", "x", 1, 9)},
			want:  "1 server, 2<1 client",
			notes: counts{NoteSelfParent: 1},
		},
		{
			name:  "a circle of two is broken at its earliest span",
			spans: []Span{span(1, 2, S, "a", "x", 5, 10), span(2, 1, S, "a", "x", 0, 10)},
			want:  "2 server, 1<2 server",
			notes: counts{NoteCycle: 1},
		},
		{
			name: "a circle beside a root",
			spans: []Span{
				span(3, 0, S, "c", "x", 0, 10), span(1, 2, S, "a", "x", 1, 10),
				span(2, 1, S, "a", "x", 2, 10),
			},
			want:  "3 server, 1 server, 2<1 server",
			notes: counts{NoteCycle: 1},
		},
		{
			// 9 > 8 > (4 > 3 > 2 > 1 > 4): the tail hangs on the circle and is seen first.
			name: "a circle that is entered through its tail",
			spans: []Span{
				span(9, 8, I, "a", "x", 0, 1), span(8, 4, I, "a", "x", 1, 2), span(4, 3, I, "a", "x", 2, 3),
				span(3, 2, I, "a", "x", 3, 4), span(2, 1, I, "a", "x", 4, 5), span(1, 4, I, "a", "x", 5, 6),
			},
			want:  "9<8 internal, 8<4 internal, 4 internal, 3<2 internal, 2<1 internal, 1<4 internal",
			notes: counts{NoteCycle: 1},
		},
		{
			name: "two circles",
			spans: []Span{
				span(1, 2, S, "a", "x", 0, 9), span(2, 1, S, "a", "x", 1, 9),
				span(3, 4, S, "a", "x", 2, 9), span(4, 3, S, "a", "x", 3, 9),
			},
			want:  "1 server, 2<1 server, 3 server, 4<3 server",
			notes: counts{NoteCycle: 2},
		},
		{
			name: "the same span twice counts once",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 10), span(2, 1, C, "a", "x", 1, 9),
				span(2, 1, C, "a", "x", 1, 9),
			},
			want:    "1 server, 2<1 client",
			notes:   counts{NoteDuplicate: 1},
			leftOut: counts{NoteDuplicate: 1},
		},
		{
			name: "of one id with different times the longest is kept",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 10), span(2, 1, C, "a", "x", 1, 5), span(2, 1, C, "a", "x", 3, 9),
				span(3, 2, S, "b", "x", 4, 8),
			},
			want:    "1 server, 2<1 client, 3<2 server",
			notes:   counts{NoteConflict: 1},
			leftOut: counts{NoteConflict: 1},
		},
		{
			name:  "a measured twin beats an unmeasured one",
			spans: []Span{span(1, 0, S, "a", "x", 0, 10), with(span(1, 0, I, "a", "x", 0, 90), FlagUnmeasured)},
			want:  "1 server", notes: counts{NoteConflict: 1}, leftOut: counts{NoteConflict: 1},
		},
		{
			// One Zipkin id for both sides of the call.
			name: "halves of a shared id are both kept, children go to the server half",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 100), span(2, 1, C, "a", "x", 10, 90), span(2, 1, S, "b", "x", 20, 80),
				span(3, 2, C, "b", "y", 30, 70),
			},
			want: "1 server, 2<1 client, 2<2client server, 3<2 client",
		},
		{
			name: "a shared id that comes three times",
			spans: []Span{
				span(2, 0, C, "a", "x", 10, 90), span(2, 0, S, "b", "x", 20, 80), span(2, 0, S, "b", "x", 20, 80),
				span(2, 0, C, "a", "x", 10, 50),
			},
			want:    "2 client, 2<2client server",
			notes:   counts{NoteDuplicate: 1, NoteConflict: 1},
			leftOut: counts{NoteDuplicate: 1, NoteConflict: 1},
		},
		{
			name: "children of a span that ends before it starts go to its parent",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 10), span(2, 1, C, "a", "x", 5, 4),
				span(3, 2, S, "b", "x", 2, 8),
			},
			want:    "1 server, 3<1 server",
			notes:   counts{NoteNegative: 1},
			leftOut: counts{NoteNegative: 1},
		},
		{
			name: "a run of spans of negative duration",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 10), span(2, 1, C, "a", "x", 5, 4), span(3, 2, I, "a", "x", 5, 4),
				span(4, 3, I, "a", "x", 5, 4), span(5, 4, I, "a", "x", 1, 2), span(6, 3, I, "a", "x", 2, 3),
				span(7, 4, I, "a", "x", 3, 4),
			},
			want:    "1 server, 5<1 internal, 6<1 internal, 7<1 internal",
			notes:   counts{NoteNegative: 3},
			leftOut: counts{NoteNegative: 3},
		},
		{
			name:    "children of a root of negative duration are roots",
			spans:   []Span{span(1, 0, S, "a", "x", 5, 4), span(2, 1, S, "b", "x", 0, 10)},
			want:    "2 server",
			notes:   counts{NoteNegative: 1},
			leftOut: counts{NoteNegative: 1},
		},
		{
			name:    "so are those of one that is its own parent",
			spans:   []Span{span(1, 1, S, "a", "x", 5, 4), span(2, 1, S, "b", "x", 0, 10)},
			want:    "2 server",
			notes:   counts{NoteNegative: 1},
			leftOut: counts{NoteNegative: 1},
		},
		{
			name: "below a circle of nothing but negative durations the parent is lost",
			spans: []Span{
				span(1, 2, S, "a", "x", 5, 4), span(2, 3, S, "a", "x", 5, 4), span(3, 1, S, "a", "x", 5, 4),
				span(4, 1, S, "b", "x", 0, 10), span(5, 3, S, "b", "x", 1, 10),
			},
			want:    "4<! server, 5<! server",
			notes:   counts{NoteNegative: 3},
			leftOut: counts{NoteNegative: 3},
		},
		{
			// 4 and 5 both come through 3 to the usable twin of 2, not to 1.
			name: "a usable span with a twin of negative duration keeps its children",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 20), span(2, 1, C, "a", "x", 1, 19), span(2, 1, C, "a", "x", 9, 8),
				span(3, 2, I, "a", "x", 6, 5), span(4, 3, S, "b", "x", 2, 3), span(5, 3, S, "b", "x", 4, 5),
			},
			want:    "1 server, 2<1 client, 4<2 server, 5<2 server",
			notes:   counts{NoteNegative: 2},
			leftOut: counts{NoteNegative: 2},
		},
		{
			name: "unmeasured is not negative, and zero is a duration",
			spans: []Span{
				span(1, 0, S, "a", "x", 0, 10), with(span(2, 1, C, "a", "x", 5, 4), FlagUnmeasured),
				span(3, 2, S, "b", "x", 6, 6),
			},
			want: "1 server, 2<1 client, 3<2 server",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, order := range []string{"as given", "reversed"} {
				got := NewTrace(test.spans)
				if s := shape(got); s != test.want {
					t.Errorf("%s:\n got %s\nwant %s", order, s, test.want)
				}
				if test.notes == nil {
					test.notes = counts{}
				}
				if diff := cmp.Diff(test.notes, noteCounts(got.Notes)); diff != "" {
					t.Errorf("%s: notes (-want +got):\n%s", order, diff)
				}
				if test.leftOut == nil {
					test.leftOut = counts{}
				}
				if diff := cmp.Diff(test.leftOut, got.LeftOut); diff != "" {
					t.Errorf("%s: left out (-want +got):\n%s", order, diff)
				}
				slices.Reverse(test.spans)
			}
		})
	}
}

func TestChildrenOfASharedIDAreSplitByService(t *testing.T) {
	tr := NewTrace([]Span{
		span(2, 0, KindClient, "a", "x", 10, 90), span(2, 0, KindServer, "b", "x", 20, 80),
		span(3, 2, KindInternal, "a", "y", 30, 40), span(4, 2, KindInternal, "b", "y", 41, 50),
		span(5, 2, KindServer, "c", "y", 51, 60),
	})
	var got []string
	for i := range tr.Spans {
		if p := tr.Parent[i]; p >= 0 {
			got = append(got, tr.Spans[i].Desc.Service+"<"+tr.Spans[p].Kind.String())
		}
	}
	want := []string{"b<client", "a<client", "b<server", "c<server"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Where both halves are of one service, the server half made the call.
	tr = NewTrace([]Span{
		span(2, 0, KindClient, "a", "x", 10, 90), span(2, 0, KindServer, "a", "x", 20, 80),
		span(3, 2, KindClient, "a", "y", 30, 40),
	})
	if p := tr.Parent[2]; p < 0 || tr.Spans[p].Kind != KindServer {
		t.Errorf("parent of the call is %d, want the SERVER half", p)
	}
}

func TestKeptTwinDoesNotDependOnWhatIsEqual(t *testing.T) {
	// Equal length, different content: the smaller content stays.
	late, early := span(1, 0, KindServer, "a", "x", 2, 8), span(1, 0, KindServer, "a", "x", 0, 6)
	other := span(1, 0, KindServer, "a", "w", 0, 6)
	for _, spans := range [][]Span{{late, early, other}, {other, early, late}, {early, other, late}} {
		got := NewTrace(spans)
		if len(got.Spans) != 1 || got.Spans[0].Desc.Operation != "w" || got.Spans[0].Start != 0 {
			t.Errorf("kept %v, want operation w from 0", got.Spans)
		}
	}
}

func TestMissingKindsAreInferred(t *testing.T) {
	const U = KindUnspecified
	out := func(s Span) Span { return with(s, FlagOutbound) }
	tests := []struct {
		name  string
		spans []Span
		want  string // kinds in span order, * for a step
	}{
		{"same service, one child elsewhere: CLIENT", []Span{
			span(1, 0, U, "x", "A", 0, 10), span(2, 1, U, "x", "B", 1, 9), span(3, 2, U, "y", "C", 2, 8),
		}, "server client server"},
		{
			"same-service leaf: step",
			[]Span{span(1, 0, U, "x", "A", 0, 10), span(2, 1, U, "x", "B", 1, 9)},
			"server internal*",
		},
		{"same-service leaf with outbound attributes: CLIENT", []Span{
			span(1, 0, U, "x", "A", 0, 10), out(span(2, 1, U, "x", "B", 1, 9)),
		}, "server client"},
		{"same service, two children elsewhere: INTERNAL", []Span{
			span(1, 0, U, "x", "A", 0, 10), span(2, 1, U, "x", "B", 1, 9),
			span(3, 2, U, "y", "C", 2, 4), span(4, 2, U, "y", "D", 5, 7),
		}, "server internal server server"},
		{"same service, one child of its own: INTERNAL", []Span{
			span(1, 0, U, "x", "A", 0, 10), span(2, 1, U, "x", "B", 1, 9), span(3, 2, U, "x", "C", 2, 8),
		}, "server internal internal*"},
		{"a kind that is there stays", []Span{
			span(1, 0, KindInternal, "x", "A", 0, 10), span(2, 1, KindInternal, "x", "B", 1, 9),
			span(3, 2, U, "y", "C", 2, 8),
		}, "internal internal server"},
		{
			"an orphan is an entry",
			[]Span{span(1, 99, U, "x", "A", 0, 10), span(2, 1, U, "x", "B", 1, 9)},
			"server internal*",
		},
		{"an orphan leaf that calls out is none", []Span{out(span(1, 99, U, "x", "SELECT", 0, 10))}, "client"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			missing := 0
			for _, s := range test.spans {
				if s.Kind == KindUnspecified {
					missing++
				}
			}
			tr := NewTrace(test.spans)
			var got []string
			for i := range tr.Spans {
				text := tr.Spans[i].Kind.String()
				if tr.step[i] {
					text += "*"
				}
				got = append(got, text)
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("got %s, want %s", s, test.want)
			}
			if tr.InferredKinds != missing {
				t.Errorf("%d kinds inferred, want %d", tr.InferredKinds, missing)
			}
		})
	}
}

func TestHalfTraceIDsAreJoinedUnlessAmbiguous(t *testing.T) {
	one := func(id TraceID, n int) Span {
		s := span(n, 0, KindServer, "a", "x", 0, 10)
		s.TraceID = id
		return s
	}
	tests := []struct {
		name   string
		ids    []TraceID
		want   []TraceID
		joined int
	}{
		{"low half and whole", []TraceID{traceID(0, 5), traceID(9, 5), traceID(0, 5)}, []TraceID{traceID(9, 5)}, 2},
		{"only halves", []TraceID{traceID(0, 5), traceID(0, 6)}, []TraceID{traceID(0, 5), traceID(0, 6)}, 0},
		{
			"two wholes with the same low half",
			[]TraceID{traceID(0, 5), traceID(8, 5), traceID(9, 5)},
			[]TraceID{traceID(0, 5), traceID(8, 5), traceID(9, 5)},
			0,
		},
		{"different low halves", []TraceID{traceID(0, 5), traceID(9, 6)}, []TraceID{traceID(0, 5), traceID(9, 6)}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := NewBuilder()
			for n, id := range test.ids {
				b.Add([]Span{one(id, n+1)})
			}
			notes := b.Seal()
			var got []TraceID
			spans := 0
			var tr Trace
			for i := range b.Len() {
				if err := b.Assemble(i, DefaultMaxTraceSpans, &tr); err != nil {
					t.Fatal(err)
				}
				got = append(got, tr.ID)
				spans += len(tr.Spans)
				for _, s := range tr.Spans {
					if s.TraceID != tr.ID {
						t.Errorf("span %s of trace %s carries the id %s", s.ID, tr.ID, s.TraceID)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("traces (-want +got):\n%s", diff)
			}
			if n := notes.Count(NoteJoinedIDs); n != test.joined {
				t.Errorf("%d spans joined, want %d", n, test.joined)
			}
			if spans != len(test.ids) {
				t.Errorf("%d spans came out, %d went in", spans, len(test.ids))
			}
		})
	}
}

func TestATraceOverTheLimitIsLeftOutAndNamed(t *testing.T) {
	b := NewBuilder()
	b.Add([]Span{
		span(1, 0, KindServer, "a", "x", 0, 9), span(2, 1, KindClient, "a", "x", 1, 2),
		span(3, 1, KindClient, "a", "x", 3, 4),
	})
	b.Seal()
	var tr Trace
	if err := b.Assemble(0, 3, &tr); err != nil || len(tr.Spans) != 3 {
		t.Errorf("at the limit: %d spans, %v", len(tr.Spans), err)
	}
	err := b.Assemble(0, 2, &tr)
	if err == nil {
		t.Fatal("no error over the limit")
	}
	for _, part := range []string{tr.ID.String(), "3 spans", "--max-trace-spans 2"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	if len(tr.Spans) != 0 || tr.LeftOut[NoteTraceTooBig] != 3 || len(tr.Entries()) != 0 {
		t.Errorf("left out %v, %d spans kept", tr.LeftOut, len(tr.Spans))
	}
}

// garbage makes n spans of a few traces in which anything may be wrong:
// missing, own and circular parents, repeated ids, negative and unknown times.
func garbage(r *rand.Rand, n int) []Span {
	services := []string{"a", "b", "c"}
	spans := make([]Span, n)
	for i := range spans {
		if i > 0 && r.IntN(8) == 0 {
			spans[i] = spans[r.IntN(i)]
			continue
		}
		s := span(1+r.IntN(n), r.IntN(n+2), Kind(r.IntN(7)), services[r.IntN(3)], services[r.IntN(3)], int64(r.IntN(20)), 0)
		s.Duration = int64(r.IntN(14)-2) * ms
		s.TraceID = traceID(uint64(r.IntN(2)), uint64(1+r.IntN(2)))
		s.Outcome = Outcome(r.IntN(4))
		if r.IntN(4) == 0 {
			s.Flags = Flags(r.IntN(64))
		}
		spans[i] = s
	}
	return spans
}

// dump writes everything that is known of the assembled traces, and fails
// where a span is lost or a tree is none.
func dump(t *testing.T, b *Builder, maxSpans int) string {
	t.Helper()
	var out strings.Builder
	sealed := b.Seal()
	fmt.Fprintln(&out, sealed.List())
	var (
		tr    Trace
		tree  Tree
		walk  Walker
		paths Paths
	)
	accounted := 0
	for i := range b.Len() {
		if err := b.Assemble(i, maxSpans, &tr); err != nil {
			fmt.Fprintln(&out, err)
		}
		checkForest(t, &tr)
		fmt.Fprintln(&out, tr.ID, shape(&tr), tr.InferredKinds)
		for i := range tr.Spans {
			s := tr.Spans[i]
			fmt.Fprintln(&out, s.ID, s.Parent, s.Start, s.Duration, *s.Desc, s.Kind, s.Outcome, s.Flags, tr.step[i])
		}
		entries := tr.Entries()
		fmt.Fprintln(&out, entries, tr.Notes.List(), tr.LeftOut)
		for _, e := range entries {
			accounted += tr.Reach(e)
			tree.Build(&tr, e, &paths, nil)
			checkPreorder(t, &tree)
			for _, c := range tree.Calls {
				_, key := paths.At(c.Path)
				fmt.Fprintln(&out, key, c.Parent, c.Span, c.Callee, c.Kind, c.Start, c.End, c.Attempts,
					c.LongestAttempt, c.LongestPause, c.Outcome, c.ServerOnly)
			}
			nodes := nodesOf(&tree)
			fmt.Fprintln(&out, walk.CriticalPath(nodes))
			fmt.Fprintln(&out, walk.OwnTimes(nodes))
		}
		for _, n := range tr.LeftOut {
			accounted += n
		}
	}
	if accounted != b.Spans() {
		t.Fatalf("%d spans accounted for, %d went in:\n%s", accounted, b.Spans(), out.String())
	}
	return out.String()
}

// checkForest fails unless every span hangs under exactly one top.
func checkForest(t *testing.T, tr *Trace) {
	t.Helper()
	if len(tr.Spans) == 0 {
		return
	}
	seen := make([]bool, len(tr.Spans))
	for i, p := range tr.Parent {
		if p >= 0 {
			if !slices.Contains(tr.Children(p), int32(i)) {
				t.Fatalf("span %d is not among the children of its parent", i)
			}
			continue
		}
		tr.walk(int32(i), func(j int32) {
			if seen[j] {
				t.Fatalf("span %d is reached twice", j)
			}
			seen[j] = true
		})
	}
	if i := slices.Index(seen, false); i >= 0 {
		t.Fatalf("span %d hangs nowhere: %s", i, shape(tr))
	}
	if !slices.IsSortedFunc(tr.Spans, func(a, b Span) int { return compareSpans(&a, &b) }) {
		t.Fatal("spans are not in order")
	}
}

// Of two spans with the same ids, which stays must not depend on the order: whatever
// differs in their stamps orders them.
func TestStampsThatDifferAreOrdered(t *testing.T) {
	fields := reflect.TypeFor[Stamp]()
	for i := range fields.NumField() {
		var none, other Stamp
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		default:
			f.SetInt(1)
		}
		if none.compare(&other) >= 0 || other.compare(&none) <= 0 {
			t.Errorf("%s makes no difference", fields.Field(i).Name)
		}
	}
}

// checkPreorder fails unless each call follows its parent, with nothing but
// the parent's descendants between them.
func checkPreorder(t *testing.T, tree *Tree) {
	t.Helper()
	var way []int32
	for i := range tree.Calls {
		p := tree.Calls[i].Parent
		if (p < 0) != (i == 0) || int(p) >= i {
			t.Fatalf("call %d has parent %d", i, p)
		}
		for len(way) > 0 && way[len(way)-1] != p {
			way = way[:len(way)-1]
		}
		if i > 0 && len(way) == 0 {
			t.Fatalf("call %d does not stand below its parent %d", i, p)
		}
		way = append(way, int32(i))
	}
}

func nodesOf(tree *Tree) []Node {
	nodes := make([]Node, len(tree.Calls))
	for i, c := range tree.Calls {
		nodes[i] = Node{Parent: c.Parent, Start: c.Start, End: c.End}
	}
	return nodes
}

func TestAnyOrderAndSplitGivesTheSameTraces(t *testing.T) {
	rounds := 3_000
	if testing.Short() {
		rounds = 300
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 1))
		spans := garbage(r, 1+r.IntN(30))
		limit := 4 + r.IntN(40)
		whole := NewBuilder()
		whole.Add(slices.Clone(spans))
		want := dump(t, whole, limit)
		for range 3 {
			shuffled := slices.Clone(spans)
			r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			parts := NewBuilder()
			for len(shuffled) > 0 {
				n := 1 + r.IntN(len(shuffled))
				parts.Add(slices.Clone(shuffled[:n]))
				shuffled = shuffled[n:]
			}
			parts.Add(nil)
			if got := dump(t, parts, limit); got != want {
				t.Fatalf("seed %d: (-whole +parts):\n%s", seed,
					cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
			}
		}
	}
}

func TestAReusedTraceRemembersNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	var reused Trace
	for range 500 {
		b := NewBuilder()
		b.Add(garbage(r, 1+r.IntN(25)))
		b.Seal()
		for i := range b.Len() {
			var fresh Trace
			if err := b.Assemble(i, 1000, &fresh); err != nil {
				t.Fatal(err)
			}
			if err := b.Assemble(i, 1000, &reused); err != nil {
				t.Fatal(err)
			}
			if a, b := shape(&fresh), shape(&reused); a != b {
				t.Fatalf("fresh %s\nreused %s", a, b)
			}
			if diff := cmp.Diff(fresh.Entries(), reused.Entries()); diff != "" {
				t.Fatalf("entries: %s", diff)
			}
			if diff := cmp.Diff(fresh.Notes.List(), reused.Notes.List()); diff != "" {
				t.Fatalf("notes: %s", diff)
			}
			if diff := cmp.Diff(fresh.LeftOut, reused.LeftOut); diff != "" {
				t.Fatalf("left out: %s", diff)
			}
		}
	}
}

// FuzzBuilder reads spans from bytes, twelve a span, and checks the laws that
// hold for any spans at all.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte{}, uint8(9))
	f.Add([]byte("\x01\x02\x02\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x02\x01\x02\x00\x00\x0a\x00\x00\x00\x00\x00\x00"), uint8(9))
	f.Add([]byte("\x01\x00\x02\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x02\x01\x03\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x02\x01\x02\x00\x00\x0a\x00\x01\x00\x00\x00\x00"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, limit uint8) {
		names := []string{"", "a", "b", "支付"}
		var spans []Span
		for ; len(data) >= 12; data = data[12:] {
			start := int64(data[4])
			switch data[10] {
			case 1:
				start = math.MaxInt64 - start
			case 2:
				start = math.MinInt64 + start
			}
			spans = append(spans, Span{
				TraceID: traceID(uint64(data[8]%2),
					uint64(data[9]%3)), ID: spanID(int(data[0])), Parent: spanID(int(data[1])),
				Kind: Kind(data[2]), Flags: Flags(data[3]), Start: start, Duration: int64(int8(data[5])) << (data[11] % 57),
				Outcome: Outcome(data[6]), Desc: &Desc{Service: names[data[7]%4], Operation: names[data[7]/4%4]},
			})
		}
		one, other := NewBuilder(), NewBuilder()
		one.Add(slices.Clone(spans))
		slices.Reverse(spans)
		for i := range spans {
			other.Add(spans[i : i+1])
		}
		if a, b := dump(t, one, int(limit)), dump(t, other, int(limit)); a != b {
			t.Fatalf("the order of the spans shows: %s", cmp.Diff(strings.Split(a, "\n"), strings.Split(b, "\n")))
		}
	})
}

// A small trace behind a large one must not pay for its buffers: clearing a map
// takes as long as it is large.
func TestSetGivesUpTheBuffersOfALargeTrace(t *testing.T) {
	spans := make([]Span, 10_000)
	for i := range spans {
		spans[i] = Span{ID: spanID(i + 1), Desc: &Desc{}, Duration: 1, Kind: KindServer}
	}
	var tr Trace
	tr.Set(spans)
	if len(tr.Spans) != len(spans) {
		t.Fatalf("%d spans, want %d", len(tr.Spans), len(spans))
	}
	tr.Set(spans[:10])
	if len(tr.Spans) != 10 || cap(tr.Spans) > 1024 {
		t.Errorf("%d spans in a buffer for %d", len(tr.Spans), cap(tr.Spans))
	}
}
