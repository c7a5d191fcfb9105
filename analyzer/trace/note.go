package trace

import (
	"maps"
	"slices"
	"strings"
)

// NoteKind names one way in which input was less than perfect.
type NoteKind string

// Note is the count of one kind of imperfection, with one example.
type Note struct {
	Kind    NoteKind
	Count   int
	Example string // smallest "TRACEID/SPANID" (or "TRACEID"); "" if no span is known
	Where   string // first "file:line" or "file: byte N"; "" if unknown. For people only: it never reaches the report
}

// Notes counts imperfections by kind. The zero value is empty and ready.
// Merging is associative and commutative except for Where, which keeps the
// first that was added.
type Notes struct {
	m map[NoteKind]*Note
}

// Add counts n occurrences of kind. example is "TRACEID/SPANID", "TRACEID" or
// ""; where is "file:line" or "".
func (ns *Notes) Add(kind NoteKind, n int, example, where string) {
	if n == 0 {
		return
	}
	if ns.m == nil {
		ns.m = make(map[NoteKind]*Note)
	}
	note := ns.m[kind]
	if note == nil {
		note = &Note{Kind: kind}
		ns.m[kind] = note
	}
	note.Count += n
	if example != "" && (note.Example == "" || example < note.Example) {
		note.Example = example
	}
	if note.Where == "" {
		note.Where = where
	}
}

// Merge adds all of other.
func (ns *Notes) Merge(other Notes) {
	for _, n := range other.List() {
		ns.Add(n.Kind, n.Count, n.Example, n.Where)
	}
}

// Count returns how often kind was counted.
func (ns *Notes) Count(kind NoteKind) int {
	if n := ns.m[kind]; n != nil {
		return n.Count
	}
	return 0
}

// List returns the notes ordered by kind.
func (ns *Notes) List() []Note {
	if len(ns.m) == 0 {
		return nil
	}
	out := make([]Note, 0, len(ns.m))
	for _, n := range slices.SortedFunc(maps.Values(ns.m), func(a, b *Note) int {
		return strings.Compare(string(a.Kind), string(b.Kind))
	}) {
		out = append(out, *n)
	}
	return out
}

// Notes of readers.
const (
	NoteBadAttribute    NoteKind = "bad_attribute"     // an attribute value that is no value of its type; the attribute is left out
	NoteBadSpan         NoteKind = "bad_span"          // a span that could not be read (broken id, broken time); left out
	NoteEmptyID         NoteKind = "empty_id"          // empty or all-zero trace or span id; left out
	NoteBadLine         NoteKind = "bad_line"          // a line or document that is no valid JSON or protobuf; left out
	NoteTruncated       NoteKind = "truncated"         // the input ends inside a value; what was whole is kept
	NoteNoTime          NoteKind = "unmeasured"        // no start or no end; kept, transparent
	NoteBadParent       NoteKind = "bad_parent_id"     // unreadable parent id; the span is kept as a root
	NoteBadKind         NoteKind = "bad_kind"          // unknown span kind; treated as missing
	NoteDoubleDecodedID NoteKind = "double_decoded_id" // hex id that went through base64; undone
	NoteNoService       NoteKind = "no_service_name"   // resource without service.name
	NoteInvalidUTF8     NoteKind = "invalid_utf8"      // bytes that are no UTF-8, replaced by U+FFFD
	NoteBadStamp        NoteKind = "bad_budget_stamp"  // value of a latency_budget attribute, or of what stands in for one, that is NaN, infinite, not a number or out of range; ignored
	NoteBadThreshold    NoteKind = "bad_sampling_th"   // ot=th that cannot be read
	NoteLongText        NoteKind = "text_over_limit"   // text over --max-string; cut
	NoteZipkinV1        NoteKind = "zipkin_v1"         // span of the old Zipkin format, read through its annotations
)
