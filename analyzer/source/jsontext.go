package source

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/go-json-experiment/json/jsontext"
)

// errDoubt ends the reading of a text in memory that is no JSON, or is nested too
// deeply: the decoder knows how to say what is wrong.
var errDoubt = errors.New("not valid JSON")

// jsonText walks over JSON in memory and checks its grammar on the way, all of it
// in one pass. What it returns is what the decoder would have returned. Where the
// grammar does not hold it sets doubt, after which every method gives nothing.
type jsonText struct {
	text  []byte
	pos   int // of the next byte to look at
	doubt bool

	objects []uint64 // of what is open a bit each: whether it is an object
	depth   int      // how much is open
	object  bool     // the innermost is an object
	fresh   bool     // nothing of the innermost was read
	limit   int      // of depth
}

func (t *jsonText) reset(text []byte, maxDepth int) {
	t.text, t.pos, t.doubt = text, 0, false
	t.depth, t.object, t.fresh, t.limit = 0, false, false, maxDepth
}

// atEnd tells whether nothing but space follows. It goes to what does.
func (t *jsonText) atEnd() bool {
	t.pos = afterSpace(t.text, t.pos)
	return t.pos == len(t.text)
}

// peek returns the kind of the next value, 0 in doubt.
func (t *jsonText) peek() jsontext.Kind {
	if t.doubt || t.atEnd() {
		t.doubt = true
		return 0
	}
	switch c := t.text[t.pos]; c {
	case '{', '[', '"', 't', 'f', 'n':
		return jsontext.Kind(c)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	}
	t.doubt = true
	return 0
}

// open goes into the object or array that is next.
func (t *jsonText) open(object bool) {
	if t.depth == t.limit {
		t.doubt = true
		return
	}
	word, bit := t.depth/64, uint64(1)<<(t.depth%64)
	if word == len(t.objects) {
		t.objects = append(t.objects, 0)
	}
	t.objects[word] &^= bit
	if object {
		t.objects[word] |= bit
	}
	t.pos++
	t.depth++
	t.object, t.fresh = object, true
}

// close leaves the innermost object or array.
func (t *jsonText) close() {
	t.pos++
	t.depth--
	last := max(t.depth-1, 0)
	t.object = t.depth > 0 && t.objects[last/64]>>(last%64)&1 != 0
	t.fresh = false
}

// more goes to the next member of the innermost object or array. Where there is
// none it leaves it.
func (t *jsonText) more() bool {
	if t.doubt || t.atEnd() {
		t.doubt = true
		return false
	}
	c := t.text[t.pos]
	switch {
	case c == '}' && t.object, c == ']' && !t.object:
		t.close()
		return false
	case t.fresh:
		t.fresh = false
		return true
	case c == ',':
		t.pos++
		return true
	}
	t.doubt = true
	return false
}

// name reads the name of a member, and the colon. plain is that of string.
func (t *jsonText) name() (raw []byte, plain bool) {
	if t.doubt || t.atEnd() || t.text[t.pos] != '"' {
		t.doubt = true
		return nil, true
	}
	raw, plain = t.string()
	if t.atEnd() || t.text[t.pos] != ':' {
		t.doubt = true
		return nil, true
	}
	t.pos++
	return raw, plain
}

// string reads the string that is next, with its quotes. It is plain if what is
// between them is its text: all ASCII and without escapes.
func (t *jsonText) string() (raw []byte, plain bool) {
	first := t.pos
	end, plain := afterString(t.text, first)
	if end == 0 {
		t.doubt = true
		return nil, true
	}
	t.pos = end
	return t.text[first:end], plain
}

// literal reads the number, true, false or null that is next.
func (t *jsonText) literal() []byte {
	first := t.pos
	end := afterLiteral(t.text, first)
	if end == 0 {
		t.doubt = true
		return nil
	}
	t.pos = end
	return t.text[first:end]
}

// skip passes over the value that is next.
func (t *jsonText) skip() {
	depth := t.depth
	t.step()
	t.leave(depth)
}

// leave passes over the rest of all that is open above depth.
func (t *jsonText) leave(depth int) {
	for t.depth > depth && !t.doubt {
		if t.more() {
			if t.object {
				t.name()
			}
			t.step()
		}
	}
}

// step passes over the scalar that is next, or goes into the object or array.
func (t *jsonText) step() {
	switch t.peek() {
	case 0:
	case '{':
		t.open(true)
	case '[':
		t.open(false)
	case '"':
		t.string()
	default:
		t.literal()
	}
}

// The functions below return the index behind what begins at text[i], and, but for
// afterSpace, 0 where it is not valid. Bytes that are no UTF-8 and lone surrogates are
// taken as the decoder takes them, and repaired where the text is needed.

func afterSpace(text []byte, i int) int {
	for ; i < len(text); i++ {
		if c := text[i]; c > ' ' || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			break
		}
	}
	return i
}

func afterString(text []byte, i int) (end int, plain bool) {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	var all uint64 // bytes that were passed over
	plain = true
	for i++; i < len(text); {
		if len(text)-i >= 8 {
			// Pass over eight bytes at a time while none of them is special. A byte
			// is zero in w^x where w has x, and only there does (v-1)&^v set its
			// high bit, up to the first such byte; likewise for what is below a space.
			w := binary.LittleEndian.Uint64(text[i:])
			quote, slash := w^ones*'"', w^ones*'\\'
			special := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*' ')&^w) & high
			if special == 0 {
				all |= w
				i += 8
				continue
			}
			n := bits.TrailingZeros64(special) / 8
			all |= w & (1<<(8*n) - 1)
			i += n
		}
		switch c := text[i]; {
		case c == '"':
			return i + 1, plain && all&high == 0
		case c == '\\':
			if i = afterEscape(text, i); i == 0 {
				return 0, false
			}
			plain = false
		case c < ' ':
			return 0, false
		default:
			all |= uint64(c)
			i++
		}
	}
	return 0, false
}

func afterEscape(text []byte, i int) int {
	if len(text)-i < 2 {
		return 0
	}
	switch text[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		var r [2]byte
		if len(text)-i < 6 || !decodeFullHex(r[:], text[i+2:i+6]) {
			return 0
		}
		return i + 6
	}
	return 0
}

func afterLiteral(text []byte, i int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if text[i] == word[0] {
			if len(text)-i < len(word) || string(text[i:i+len(word)]) != word {
				return 0
			}
			return i + len(word)
		}
	}
	if text[i] == '-' {
		i++
	}
	first := i
	if i = afterDigits(text, i); i == first {
		return 0
	}
	if text[first] == '0' {
		i = first + 1 // another digit belongs to the next value, where there may be one
	}
	if i < len(text) && text[i] == '.' {
		first = i + 1
		if i = afterDigits(text, first); i == first {
			return 0
		}
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		first = i
		if i = afterDigits(text, first); i == first {
			return 0
		}
	}
	return i
}

func afterDigits(text []byte, i int) int {
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	return i
}
