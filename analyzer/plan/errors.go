package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Error is one thing that is wrong with a plan.
type Error struct {
	File string // the name given to Read; "" for a plan that was not read
	Line int    // from 1; 0 where it is not known
	Text string // one line: where, what, and what to do
}

// Error returns "file:line: text", as compilers do.
func (e *Error) Error() string {
	switch {
	case e.File != "" && e.Line > 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
	case e.File != "":
		return e.File + ": " + e.Text
	}
	return e.Text
}

// oneLine replaces line breaks and other control characters, which names may hold.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Errors is everything that is wrong with a plan, in the order of its lines.
type Errors []*Error

// Error returns one line for each.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each of them.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// orNil returns the errors in the order of their lines, nil where there is none.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return e
}
