package analyzer

import (
	"fmt"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// noteUnmeasuredEntry: a request whose entry span has no start or end; left out.
const noteUnmeasuredEntry trace.NoteKind = "unmeasured_entry"

// noteTexts say in one clause what each kind of note means. %d is the count and
// %s the plural ending.
var noteTexts = map[trace.NoteKind]string{
	trace.NoteBadAttribute:    "%d unreadable attribute%s",
	trace.NoteBadSpan:         "%d unreadable span%s",
	trace.NoteEmptyID:         "%d span%s with an empty id",
	trace.NoteBadLine:         "%d unreadable line%s or document%[2]s",
	trace.NoteTruncated:       "%d value%s cut off at the end of the input",
	trace.NoteNoTime:          "%d span%s without start or end",
	trace.NoteBadParent:       "%d unreadable parent id%s",
	trace.NoteBadKind:         "%d unknown span kind%s",
	trace.NoteDoubleDecodedID: "%d id%s decoded from base64 twice, undone",
	trace.NoteNoService:       "%d span%s without service.name",
	trace.NoteInvalidUTF8:     "%d text%s with bytes that are no UTF-8",
	trace.NoteBadStamp:        "%d unusable value%s of a budget",
	trace.NoteBadThreshold:    "%d unreadable sampling threshold%s",
	trace.NoteLongText:        "%d text%s cut at --max-string",
	trace.NoteZipkinV1:        "%d span%s in the old Zipkin format",

	trace.NoteDuplicate:     "%d duplicate span%s",
	trace.NoteConflict:      "%d span%s with the id of a longer one",
	trace.NoteNegative:      "%d span%s ending before the start",
	trace.NoteTooLong:       "%d span%s longer than a day",
	trace.NoteSelfParent:    "%d span%s with itself as parent",
	trace.NoteCycle:         "%d circle%s of parents, broken",
	trace.NoteMissingParent: "%d span%s whose parent is not in the export",
	trace.NoteJoinedIDs:     "%d span%s with half a trace id, joined",
	trace.NoteTraceTooBig:   "%d span%s of traces over --max-trace-spans",
	trace.NoteEntry:         "%d entr%[2]s whose parent is not in the export",
	trace.NoteNoRoot:        "%d top span%s of traces without root or entry",
	trace.NoteIncomplete:    "%d span%s of incomplete traces",
	trace.NoteOutside:       "%d span%s above or beside the entry",
	trace.NoteNotSelected:   "%d span%s outside of --endpoint",

	profile.NoteNoThreshold: "%d trace%s without a readable sampling threshold",
	noteUnmeasuredEntry:     "%d request%s without start or end",
}

// lost are the kinds that stand for data which never became spans.
var lost = map[trace.NoteKind]bool{
	trace.NoteBadSpan: true, trace.NoteEmptyID: true, trace.NoteBadLine: true, trace.NoteTruncated: true,
}

func noteText(kind trace.NoteKind, n int) string {
	format, ok := noteTexts[kind]
	if !ok {
		return fmt.Sprintf("%d × %s", n, kind)
	}
	plural := "s"
	if n == 1 {
		plural = ""
	}
	if kind == trace.NoteEntry {
		plural = "ies"
		if n == 1 {
			plural = "y"
		}
	}
	return fmt.Sprintf(format, n, plural)
}
