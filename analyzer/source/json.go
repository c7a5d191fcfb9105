package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
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

	// A value that was entered whole is walked without the decoder.
	raw   []byte // its syntax has been checked; nil: none
	pos   int    // of the next byte to look at
	level int    // how deep in it
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
	j.inMemory, j.err, j.raw, j.level = true, nil, nil, 0
}

// resetStream starts to read from r.
func (j *jsonReader) resetStream(r io.Reader) {
	j.dec.Reset(r, jsonOptions...)
	j.inMemory, j.err, j.raw, j.level = false, nil, nil, 0
}

// peek returns the kind of the next token, 0 at the end or at an error.
func (j *jsonReader) peek() jsontext.Kind {
	if j.err != nil {
		return 0
	}
	if j.raw != nil {
		return j.peekRaw()
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
	if j.raw != nil {
		j.pos++
		j.level++
	} else if _, j.err = j.dec.ReadToken(); j.err != nil {
		return false
	}
	if j.depth() > j.maxDepth {
		j.err = depthError(j.maxDepth)
	}
	return j.err == nil
}

// depth returns how many objects and arrays are open.
func (j *jsonReader) depth() int { return j.dec.StackDepth() + j.level }

// whole takes the object or array that is next as a whole, if the input is in
// memory anyway: the decoder checks its syntax in one go, and up to its end the
// other methods walk over its text, which costs a fraction of asking the decoder
// for each token.
func (j *jsonReader) whole() {
	if k := j.peek(); j.inMemory && j.raw == nil && (k == '{' || k == '[') {
		if j.raw, j.err = j.dec.ReadValue(); j.err != nil {
			j.raw = nil
		}
		j.pos, j.level = 0, 0
	}
}

// peekRaw goes to the next token of raw. Commas and colons are where they
// belong and say nothing more.
func (j *jsonReader) peekRaw() jsontext.Kind {
	for i := j.pos; i < len(j.raw); i++ {
		c := j.raw[i]
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
			continue
		}
		j.pos = i
		if c == '-' || c >= '0' && c <= '9' {
			return '0'
		}
		return jsontext.Kind(c)
	}
	return 0
}

// scalarRaw reads the string or literal that is next in raw.
func (j *jsonReader) scalarRaw(kind jsontext.Kind) []byte {
	raw := j.raw[j.pos:]
	if kind != '"' {
		n := bytes.IndexAny(raw, ",]} \t\r\n") // an object is around it
		j.pos += n
		return raw[:n]
	}
	n, plain := stringEnd(raw)
	j.pos += n
	if plain {
		return raw[1 : n-1]
	}
	return j.unquote(raw[:n])
}

// stringEnd returns the length of the JSON string at the start of raw, and
// whether it is its own text: all ASCII and without escapes.
func stringEnd(raw []byte) (n int, plain bool) {
	plain = true
	for i := 1; i < len(raw); i++ {
		// Pass over eight bytes at a time while none of them is special. A byte
		// is zero in w^x where w has x, and only there does (v-1)&^v set its
		// high bit, up to the first such byte.
		for len(raw)-i >= 8 {
			const ones, high = 0x0101010101010101, 0x8080808080808080
			w := binary.LittleEndian.Uint64(raw[i:])
			quote, slash := w^ones*'"', w^ones*'\\'
			if special := ((quote-ones)&^quote | (slash-ones)&^slash | w) & high; special != 0 {
				i += bits.TrailingZeros64(special) / 8
				break
			}
			i += 8
		}
		if i >= len(raw) {
			break
		}
		switch c := raw[i]; {
		case c == '"':
			return i + 1, plain
		case c == '\\':
			i++
			plain = false
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return len(raw), false
}

// skipRaw passes over the value that is next in raw.
func (j *jsonReader) skipRaw(kind jsontext.Kind) {
	if kind != '{' && kind != '[' {
		if kind == '"' {
			n, _ := stringEnd(j.raw[j.pos:])
			j.pos += n
		} else {
			j.scalarRaw(kind)
		}
		return
	}
	j.pos++
	j.level++
	j.leave(j.level)
}

// follows tells whether raw goes on with the start of an object up to the
// opening quote of its first text, and if so enters it; textOf reads the text.
func (j *jsonReader) follows(start string) bool {
	if j.raw == nil || len(j.raw)-j.pos < len(start) || string(j.raw[j.pos:j.pos+len(start)]) != start || j.depth() >= j.maxDepth {
		return false
	}
	j.pos += len(start) - 1
	j.level++
	return true
}

func (j *jsonReader) textOf() []byte { return j.scalarRaw('"') }

// leaveObject passes over the rest of the innermost object, if that can be done
// faster than member by member.
func (j *jsonReader) leaveObject() bool {
	if j.raw == nil || j.level < 2 {
		return false
	}
	j.leave(j.level)
	return true
}

// leave passes over the rest of the object or array of raw whose members have
// the given level.
func (j *jsonReader) leave(level int) {
	raw, i := j.raw, j.pos
	for ; i < len(raw) && j.level >= level; i++ {
		switch raw[i] {
		case '{', '[':
			if j.level++; j.depth() > j.maxDepth {
				j.err = depthError(j.maxDepth)
				return
			}
		case '}', ']':
			j.level--
		case '"':
			n, _ := stringEnd(raw[i:])
			i += n - 1
		}
	}
	j.pos = i
}

// more tells whether the object or array has another member; at its end it
// leaves it.
func (j *jsonReader) more() bool {
	if j.raw != nil && j.err == nil {
		if k := j.peekRaw(); k != '}' && k != ']' {
			return true
		}
		j.pos++
		if j.level--; j.level == 0 {
			j.raw = nil
		}
		return false
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
	if j.raw != nil { // more has gone to it
		return j.scalarRaw('"')
	}
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
	if j.raw != nil {
		return kind, j.scalarRaw(kind)
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
	if j.raw != nil {
		j.skipRaw(kind)
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
