package source

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// This file has the words for a file that gave no spans: what was lost of it,
// and why the first loss of each kind was one.

// reasons are why something was lost, for the first loss of each kind.
type reasons struct{ badLine, badSpan, emptyID, truncated string }

// of returns the place for the reason of a kind of note, nil if that kind loses
// no span.
func (w *reasons) of(kind trace.NoteKind) *string {
	switch kind {
	case trace.NoteBadLine:
		return &w.badLine
	case trace.NoteBadSpan:
		return &w.badSpan
	case trace.NoteEmptyID:
		return &w.emptyID
	case trace.NoteTruncated:
		return &w.truncated
	}
	return nil
}

// add keeps a reason unless there is one already.
func (w *reasons) add(kind trace.NoteKind, reason string) {
	if of := w.of(kind); of != nil && *of == "" {
		*of = reason
	}
}

// merge adds the reasons of a later part of the file.
func (w *reasons) merge(later *reasons) {
	for _, kind := range losses {
		w.add(kind, *later.of(kind))
	}
}

// reasonOf returns the reason that an error of a decoder gives.
func reasonOf(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends inside a value"
	}
	return syntaxError(err).Error()
}

// losses are the kinds of notes that lose spans.
var losses = []trace.NoteKind{trace.NoteBadLine, trace.NoteBadSpan, trace.NoteEmptyID, trace.NoteTruncated}

// noSpans says why a file that could be read gave nothing. forced is the format
// that the user named, or "".
func noSpans(name, forced string, notes trace.Notes, why reasons, hint string) error {
	var parts []string
	for _, n := range notes.List() {
		if !slices.Contains(losses, n.Kind) {
			continue
		}
		place, inBytes := strings.CutPrefix(strings.TrimPrefix(n.Where, name+":"), " ")
		if !inBytes {
			place = "line " + place
		}
		part := lossText(n.Kind, n.Count, inBytes) + " " + place
		if reason := *why.of(n.Kind); reason != "" {
			part += ": " + reason
		}
		parts = append(parts, part)
	}
	if hint != "" {
		parts = append(parts, hint)
	}
	if len(parts) == 0 {
		return errors.New("no spans: the file is valid but holds none")
	}
	text := strings.Join(parts, "; ")
	// A span that was seen, if only to be dropped, speaks for the format.
	if forced != "" && notes.Count(trace.NoteBadLine) > 0 &&
		notes.Count(trace.NoteBadSpan)+notes.Count(trace.NoteEmptyID) == 0 {
		return fmt.Errorf("no spans: %w: %s", formatError(forced), text)
	}
	return fmt.Errorf("no spans: %s", text)
}

// formatError is the refusal of content that is not what the user said it is.
type formatError string

func (forced formatError) Error() string {
	return fmt.Sprintf("the content does not look like %s (--format)", string(forced))
}

// lossText says what n losses of a kind are, up to the place of the first.
func lossText(kind trace.NoteKind, n int, inBytes bool) string {
	what, problem := "span", "could not be read"
	switch kind {
	case trace.NoteTruncated: // a file has one end
		return "the content is cut off, at"
	case trace.NoteEmptyID:
		if problem = "have no id"; n == 1 {
			problem = "has no id"
		}
	case trace.NoteBadLine:
		if what = "line"; inBytes {
			what = "document"
		}
	}
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s %s, first at", n, what, problem)
}

// part is a piece of a span.
type part uint8

const (
	otherPart part = iota // one that the span can do without
	traceIDPart
	spanIDPart
	startPart
	endPart
	durationPart // in formats that have it instead of the end
	numParts
)

var partNames = [numParts]string{
	traceIDPart:  "trace id",
	spanIDPart:   "span id",
	startPart:    "start time",
	endPart:      "end time",
	durationPart: "duration",
}

// blame keeps what is wrong with a part that loses the span; problem is asked
// only if nobody has heard of a lost span yet.
func (r *reader) blame(p part, problem func() string) {
	if p != otherPart && r.reasons.badSpan == "" {
		r.blamed[p] = problem()
	}
}

// lose counts the span of the draft as a bad one because of the part p.
func (r *reader) lose(p part) {
	if r.reasons.badSpan == "" {
		r.reasons.badSpan = partNames[p] + " " + r.blamed[p]
	}
	r.draft.note(trace.NoteBadSpan)
}

// badID says why text is no id of size bytes.
func badID(text []byte, size int) string {
	digits := text
	if len(text) >= 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') {
		digits = text[2:]
	}
	var raw [maxRawID]byte
	if isHex(digits) {
		return fmt.Sprintf("%s has %d hex digits, more than %d", quote(text), len(digits), 2*size)
	}
	if n, ok := decodeBase64(raw[:], text); ok {
		return fmt.Sprintf("%s is no hex, and base64 of %d bytes instead of %d", quote(text), n, size)
	}
	return quote(text) + " is neither hex nor base64"
}

// badInteger says why text is no time or duration.
func badInteger(text []byte) string {
	if _, err := strconv.ParseFloat(string(text), 64); err != nil && !errors.Is(err, strconv.ErrRange) {
		return quote(text) + " is no number"
	}
	return quote(text) + " is out of range or no whole number"
}

// outOfRange says that a number is no time or duration that is taken.
func outOfRange(n int64) func() string {
	return func() string { return fmt.Sprintf("%d is out of range", n) }
}

// wrongType says what stands where a value of another type belongs.
func wrongType(kind byte, wanted string) string {
	found := "nothing"
	switch kind {
	case '"':
		found = "a text"
	case '0':
		found = "a number"
	case 't', 'f':
		found = "a boolean"
	case 'n':
		found = "null"
	case '{':
		found = "an object"
	case '[':
		found = "an array"
	}
	return fmt.Sprintf("is %s, not %s", found, wanted)
}

// maxQuote is how many bytes of a text from the input stand in a message.
const maxQuote = 24

// quote makes a text of the input fit for one line of a message.
func quote(text []byte) string {
	if len(text) <= maxQuote {
		return strconv.Quote(string(text))
	}
	n := maxQuote
	for n > maxQuote-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return strconv.Quote(string(text[:n]) + "…")
}
