package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonOptions take what real exports hold: repeated keys (the last one wins)
// and bytes that are no UTF-8 (they become U+FFFD).
var jsonOptions = []jsontext.Options{
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
}

// errStopped ends reading early because nobody wants the spans any more.
var errStopped = errors.New("reading stopped")

// depthError is the refusal of a document that is nested too deeply.
type depthError int

func (max depthError) Error() string {
	return fmt.Sprintf("nested deeper than %d levels; raise --max-depth if this is meant", int(max))
}

// jsonReader reads JSON token by token. Its error is sticky: after the first
// one every read gives nothing and more gives false, so that callers check it
// once. Texts it returns are valid until the next read.
type jsonReader struct {
	dec      *jsontext.Decoder
	mem      bytes.Buffer // the input in memory, which the decoder reads in place
	inMemory bool
	maxDepth int
	err      error
	scratch  []byte
	badUTF8  int // texts that were repaired
}

func newJSONReader(maxDepth int) *jsonReader {
	j := &jsonReader{maxDepth: maxDepth}
	j.dec = jsontext.NewDecoder(&j.mem, jsonOptions...)
	return j
}

// resetBytes starts to read text.
func (j *jsonReader) resetBytes(text []byte) {
	j.mem = *bytes.NewBuffer(text)
	j.dec.Reset(&j.mem, jsonOptions...)
	j.inMemory, j.err = true, nil
}

// resetStream starts to read from r.
func (j *jsonReader) resetStream(r io.Reader) {
	j.dec.Reset(r, jsonOptions...)
	j.inMemory, j.err = false, nil
}

// peek returns the kind of the next token, 0 at the end or at an error.
func (j *jsonReader) peek() jsontext.Kind {
	if j.err != nil {
		return 0
	}
	k := j.dec.PeekKind()
	if k == 0 {
		_, j.err = j.dec.ReadToken()
	}
	return k
}

// enter goes into the object or array that comes next. A value of another kind
// is skipped.
func (j *jsonReader) enter(open jsontext.Kind) bool {
	if k := j.peek(); k != open {
		j.skip()
		return false
	}
	if _, j.err = j.dec.ReadToken(); j.err == nil && j.dec.StackDepth() > j.maxDepth {
		j.err = depthError(j.maxDepth)
	}
	return j.err == nil
}

// more tells whether the object or array has another member; at its end it
// leaves it.
func (j *jsonReader) more() bool {
	switch j.peek() {
	case 0:
		return false
	case '}', ']':
		_, j.err = j.dec.ReadToken()
		return false
	}
	return true
}

// name reads the name of an object's member.
func (j *jsonReader) name() []byte {
	_, text := j.scalar()
	return text
}

// scalar reads a value that is no object or array: the kind, and the text of a
// string or the literal. Objects and arrays are skipped.
func (j *jsonReader) scalar() (kind jsontext.Kind, text []byte) {
	kind = j.peek()
	switch kind {
	case 0:
		return 0, nil
	case '{', '[':
		j.skip()
		return kind, nil
	}
	raw, err := j.dec.ReadValue()
	if err != nil {
		j.err = err
		return 0, nil
	}
	if kind != '"' {
		return kind, raw
	}
	return kind, j.unquote(raw)
}

// unquote returns the text of a JSON string.
func (j *jsonReader) unquote(raw []byte) []byte {
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text
	}
	var err error
	if j.scratch, err = jsontext.AppendUnquote(j.scratch[:0], raw); err != nil {
		j.badUTF8++ // the only error there can be: the syntax has been checked
	}
	return j.scratch
}

// skip passes over the next value.
func (j *jsonReader) skip() {
	kind := j.peek()
	if kind == 0 {
		return
	}
	start := j.dec.StackDepth()
	if j.inMemory || kind != '{' && kind != '[' {
		raw, err := j.dec.ReadValue()
		j.err = err
		// Only a text with that many brackets can be too deep.
		if err == nil && len(raw) >= 2*(j.maxDepth-start) && nesting(raw) > j.maxDepth-start {
			j.err = depthError(j.maxDepth)
		}
		return
	}
	for {
		if _, j.err = j.dec.ReadToken(); j.err != nil {
			return
		}
		switch depth := j.dec.StackDepth(); {
		case depth == start:
			return
		case depth > j.maxDepth:
			j.err = depthError(j.maxDepth)
			return
		}
	}
}

// nesting returns how deep the brackets of valid JSON go.
func nesting(raw []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		}
	}
	return deepest
}
