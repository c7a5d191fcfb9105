package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
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

// jsonReader reads JSON value by value: from memory by walking over the text, from
// a stream by asking the decoder for each token. Its error is sticky: after the first
// one every read gives nothing and more gives false, so that callers check it
// once. Texts it returns are valid until the next read.
type jsonReader struct {
	text     jsonText // where inMemory
	inMemory bool
	part     bool              // text is a value of the stream, which the decoder stands behind
	dec      *jsontext.Decoder // where not
	mem      bytes.Buffer      // what the decoder reads in place
	stream   rationed          // what it reads otherwise
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

// resetBytes starts to read text. The error is errDoubt where it is not valid: see fault.
func (j *jsonReader) resetBytes(text []byte) {
	j.text.reset(text, j.maxDepth)
	j.inMemory, j.part, j.err, j.badUTF8 = true, false, nil, 0
}

// fault has the decoder say what is wrong with a text in doubt.
func (j *jsonReader) fault(text []byte) error {
	j.mem = *bytes.NewBuffer(text)
	j.reset(&j.mem)
	for j.err == nil {
		j.skip()
	}
	if errors.Is(j.err, io.EOF) {
		return errDoubt
	}
	return j.err
}

// resetStream starts to read from r.
func (j *jsonReader) resetStream(r io.Reader) {
	j.stream = rationed{r, math.MaxInt64}
	j.reset(&j.stream)
}

func (j *jsonReader) reset(r io.Reader) {
	j.dec.Reset(r, jsonOptions...)
	j.inMemory, j.part, j.err, j.badUTF8 = false, false, nil, 0
}

// maxPart is how much more of a stream may be read to have a part of it as a whole. Few
// parts take a hundredth of it.
const maxPart = 1 << 20

// errRation ends the reading of a part that is too large to be taken as a whole.
var errRation = errors.New("the part has to be read token by token")

// rationed reads from a stream, but no more than left.
type rationed struct {
	from io.Reader
	left int64
}

func (r *rationed) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errRation
	}
	n, err := r.from.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	return n, err
}

// offset returns how much of a stream was read.
func (j *jsonReader) offset() int64 {
	switch {
	case j.part:
		return j.dec.InputOffset() - int64(len(j.text.text)-j.text.pos)
	case j.inMemory:
		return 0
	}
	return j.dec.InputOffset()
}

// settle makes an error of a doubt, and goes back to the stream at the end of a part
// of it. The decoder has checked the grammar of a part, so what is left to doubt
// is its depth.
func (j *jsonReader) settle() {
	switch {
	case j.text.doubt && j.part:
		j.err = depthError(j.maxDepth)
	case j.text.doubt:
		j.err = errDoubt
	case j.part && j.text.depth == 0:
		j.inMemory, j.part = false, false
	}
}

// peek returns the kind of the next token, 0 at the end or at an error.
func (j *jsonReader) peek() jsontext.Kind {
	if j.err != nil {
		return 0
	}
	if j.inMemory {
		if j.text.depth == 0 && j.text.atEnd() {
			j.err = io.EOF
			return 0
		}
		k := j.text.peek()
		j.settle()
		return k
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
	if j.inMemory {
		j.text.open(open == '{')
		j.settle()
		return j.err == nil
	}
	if _, j.err = j.dec.ReadToken(); j.err == nil && j.dec.StackDepth() > j.maxDepth {
		j.err = depthError(j.maxDepth)
	}
	return j.err == nil
}

// enterPart is enter for an object that is small and one of many: in a stream, the
// decoder takes it as a whole and the reader walks over its text, which costs half
// of asking for each token. One that is large after all is not kept in memory.
func (j *jsonReader) enterPart() bool {
	if j.peek() != '{' || j.inMemory || j.dec.StackDepth() == 0 {
		return j.enter('{')
	}
	limit := j.maxDepth - j.dec.StackDepth()
	j.stream.left = maxPart
	raw, err := j.dec.ReadValue()
	j.stream.left = math.MaxInt64
	if err != nil {
		return j.enter('{') // token by token, up to where it is wrong
	}
	j.text.reset(raw, limit)
	j.inMemory, j.part = true, true
	j.text.open(true)
	j.settle()
	return j.err == nil
}

// follows tells whether the text goes on with the start of an object up to the
// opening quote of its first text, and if so enters it; textOf reads the text.
func (j *jsonReader) follows(start string) bool {
	t := &j.text
	if !j.inMemory || j.err != nil || len(t.text)-t.pos < len(start) || string(t.text[t.pos:t.pos+len(start)]) != start {
		return false
	}
	t.open(true)
	t.pos += len(start) - len(`{"`)
	t.fresh = false
	j.settle()
	return j.err == nil
}

func (j *jsonReader) textOf() []byte {
	raw, plain := j.text.string()
	j.settle()
	return j.unquote(raw, plain)
}

// leaveObject passes over the rest of the innermost object, if that can be done
// faster than member by member.
func (j *jsonReader) leaveObject() bool {
	if !j.inMemory || j.err != nil {
		return false
	}
	j.text.leave(j.text.depth - 1)
	j.settle()
	return true
}

// more tells whether the object or array has another member; at its end it
// leaves it.
func (j *jsonReader) more() bool {
	if j.inMemory {
		if j.err != nil {
			return false
		}
		more := j.text.more()
		j.settle()
		return more
	}
	switch j.peek() {
	case 0:
		return false
	case '}', ']':
		_, j.err = j.dec.ReadToken()
		return false
	}
	return true
}

// nextObject is more and enter for an array that has objects. What is none is
// skipped.
func (j *jsonReader) nextObject() bool {
	for j.more() {
		if j.enter('{') {
			return true
		}
	}
	return false
}

// name reads the name of an object's member.
func (j *jsonReader) name() []byte {
	if !j.inMemory {
		_, text := j.scalar()
		return text
	}
	if j.err != nil {
		return nil
	}
	raw, plain := j.text.name()
	j.settle()
	return j.unquote(raw, plain)
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
	var raw []byte
	plain := false
	switch {
	case !j.inMemory:
		raw, j.err = j.dec.ReadValue()
	case kind == '"':
		raw, plain = j.text.string()
		j.settle()
	default:
		raw = j.text.literal()
		j.settle()
	}
	switch {
	case j.err != nil:
		return 0, nil
	case kind != '"':
		return kind, raw
	}
	return kind, j.unquote(raw, plain)
}

// unquote returns the text of a JSON string, which is plain or not as
// [jsonText.string] tells.
func (j *jsonReader) unquote(raw []byte, plain bool) []byte {
	if j.err != nil {
		return nil
	}
	text := raw[1 : len(raw)-1]
	if plain || bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
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
	if j.inMemory {
		j.text.skip()
		j.settle()
		return
	}
	start := j.dec.StackDepth()
	if kind != '{' && kind != '[' {
		_, j.err = j.dec.ReadValue()
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
