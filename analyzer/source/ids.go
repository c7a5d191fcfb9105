package source

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"math"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// idState is what became of the text of an id.
type idState uint8

const (
	idEmpty idState = iota // absent, empty or all zero
	idOK
	idDoubleDecoded // hex that had been read as base64; undone
	idBad
)

// parseID reads the text of an id into dst, 16 or 8 bytes that are zero. It
// takes hex of either case, with or without "0x" and leading zeros, and base64
// of both alphabets with or without padding. Hex comes first: base64 text of
// the right length that is hex by chance is too rare to matter.
//
// Padded base64 of another length is clearly an id of somebody's own making,
// and with opaque so is a short word; its hash stands for it.
func parseID(dst, text []byte, opaque bool) idState {
	if len(text) >= 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X') {
		text = text[2:]
	}
	if len(text) == 2*len(dst) && decodeFullHex(dst, text) {
		return zeroIsEmpty(dst)
	}
	switch {
	case len(text) == 0:
		return idEmpty
	case isHex(text):
		switch {
		case len(text) <= 2*len(dst):
			return decodeHex(dst, text)
		case len(text) == 3*len(dst):
			var raw [24]byte
			n, _ := hex.Decode(raw[:], text)
			return undoBase64(dst, raw[:n])
		}
		return idBad
	case opaque && isWord(text):
		return hashID(dst, text)
	}
	var raw [maxRawID]byte
	n, ok := decodeBase64(raw[:], text)
	if !ok {
		return idBad
	}
	st := idFromBytes(dst, raw[:n])
	if st == idBad && len(text)%4 == 0 && text[len(text)-1] == '=' {
		return hashID(dst, raw[:n])
	}
	return st
}

// maxRawID is the length in bytes of the longest id that is looked at.
const maxRawID = 48

// isWord tells whether text is made of letters, digits, dots, dashes and
// underscores, and not too long.
func isWord(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return len(text) <= maxRawID
}

// hashID puts the 64-bit FNV-1a hash of text into the last bytes of dst.
func hashID(dst, text []byte) idState {
	h := fnv.New64a()
	h.Write(text) // a hash never fails
	binary.BigEndian.PutUint64(dst[len(dst)-8:], h.Sum64())
	return zeroIsEmpty(dst)
}

// hexDigits gives the value of every hex digit, and 0xff for all other bytes.
var hexDigits = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
		if isHex([]byte{byte(i)}) {
			t[i] = hexValue(byte(i))
		}
	}
	return t
}()

// decodeFullHex reads two digits a byte, the usual case; if one of them is no
// hex digit, dst stays zero.
func decodeFullHex(dst, digits []byte) bool {
	var all byte
	for i := range dst {
		hi, lo := hexDigits[digits[2*i]], hexDigits[digits[2*i+1]]
		all |= hi | lo
		dst[i] = hi<<4 | lo
	}
	if all > 0x0f {
		clear(dst)
		return false
	}
	return true
}

// idFromBytes reads an id that is given as bytes.
func idFromBytes(dst, raw []byte) idState {
	switch len(raw) {
	case 0:
		return idEmpty
	case len(dst):
		copy(dst, raw)
	case 8: // a trace id of 64 bits
		copy(dst[len(dst)-8:], raw)
	case len(dst) * 3 / 2:
		return undoBase64(dst, raw)
	default:
		return idBad
	}
	return zeroIsEmpty(dst)
}

// decodeHex reads up to two digits a byte, leading zeros left out.
func decodeHex(dst, digits []byte) idState {
	for i, at := len(digits)-1, len(dst)-1; i >= 0; i, at = i-2, at-1 {
		dst[at] = hexValue(digits[i])
		if i > 0 {
			dst[at] |= hexValue(digits[i-1]) << 4
		}
	}
	return zeroIsEmpty(dst)
}

// undoBase64 repairs an id whose hex text was once decoded as base64: it is
// half as long again as it should be, and its base64 text is the hex.
func undoBase64(dst, raw []byte) idState {
	var text [32]byte
	n := base64.StdEncoding.EncodedLen(len(raw))
	if n > len(text) {
		return idBad
	}
	base64.StdEncoding.Encode(text[:n], raw)
	if n != 2*len(dst) || !isHex(text[:n]) {
		return idBad
	}
	if decodeHex(dst, text[:n]) == idEmpty {
		return idEmpty
	}
	return idDoubleDecoded
}

// decodeBase64 accepts both alphabets, padded or not.
func decodeBase64(dst, text []byte) (n int, ok bool) {
	for len(text) > 0 && text[len(text)-1] == '=' {
		text = text[:len(text)-1]
	}
	var std [maxRawID * 4 / 3]byte
	if len(text) > len(std) {
		return 0, false
	}
	for i, c := range text {
		switch c {
		case '-':
			c = '+'
		case '_':
			c = '/'
		case '\r', '\n': // the decoder of the library skips them
			return 0, false
		}
		std[i] = c
	}
	n, err := base64.RawStdEncoding.Decode(dst, std[:len(text)])
	return n, err == nil
}

func zeroIsEmpty(id []byte) idState {
	for _, b := range id {
		if b != 0 {
			return idOK
		}
	}
	return idEmpty
}

func isHex(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

func hexValue(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// sameTrace compares trace ids where one side may have only the low 64 bits.
func sameTrace(a, b trace.TraceID) bool {
	if a == b {
		return true
	}
	var none [8]byte
	return [8]byte(a[8:]) == [8]byte(b[8:]) && ([8]byte(a[:8]) == none || [8]byte(b[:8]) == none)
}

// parseInteger reads a decimal number that is integral, however it is written:
// 1580000000000000000, 1.58e18 or 1580000000000000000.0. There is no detour
// through floating point.
func parseInteger(text []byte) (n int64, ok bool) {
	if n, ok := parseDigits(text); ok {
		return n, true
	}
	i, negative := 0, false
	if len(text) > 0 && text[0] == '-' {
		i, negative = 1, true
	}
	var digits [40]byte
	count, scale, seen, point := 0, 0, false, false
	for ; i < len(text); i++ {
		c := text[i]
		switch {
		case c >= '0' && c <= '9':
			seen = true
			if point {
				scale--
			}
			if count > 0 || c != '0' { // leading zeros say nothing
				if count == len(digits) {
					return 0, false
				}
				digits[count] = c
				count++
			}
			continue
		case c == '.' && !point && seen:
			point = true
			continue
		case (c == 'e' || c == 'E') && seen:
			exp, ok := parseExponent(text[i+1:])
			if !ok {
				return 0, false
			}
			scale += exp
			i = len(text)
			continue
		}
		return 0, false
	}
	if !seen {
		return 0, false
	}
	for ; scale < 0 && count > 0 && digits[count-1] == '0'; scale++ {
		count--
	}
	if count == 0 {
		return 0, true
	}
	if scale < 0 || count+scale > 19 {
		return 0, false
	}
	var u uint64
	for _, c := range digits[:count] {
		u = u*10 + uint64(c-'0')
	}
	for range scale {
		u *= 10
	}
	if negative {
		return int64(-u), u <= 1<<63
	}
	return int64(u), u <= math.MaxInt64
}

// parseDigits reads up to 19 digits that are nothing else, such as a Unix time.
func parseDigits(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 19 {
		return 0, false
	}
	var u uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	return int64(u), u <= math.MaxInt64
}

func parseExponent(text []byte) (n int, ok bool) {
	sign := 1
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		if text[0] == '-' {
			sign = -1
		}
		text = text[1:]
	}
	if len(text) == 0 || len(text) > 3 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return sign * n, true
}
