package propagation

import (
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Header is the name of the field that carries an announcement.
const Header = "latency-budget-observed"

const (
	canonicalHeader = "Latency-Budget-Observed" // key of http.Header
	version         = "obs1"
	maxHeader       = 128 // bytes that are read
	maxSent         = 72  // bytes; Inject writes no more
	maxHop          = 255
)

// announcement is what the header says. The syntax, in the ABNF of RFC 9651:
//
//	value     = "obs1" *( ";" *SP param )
//	remaining = "r=" [ "-" ] 1*8DIGIT [ "." 1*3DIGIT ]   ; ms
//	total     = "t=" 1*8DIGIT [ "." 1*3DIGIT ]           ; ms, above 0
//	hop       = "h=" 1*3DIGIT                            ; 1 to 255
//	span      = "s=" DQUOTE 16LHEX DQUOTE                ; not all zero
//
// Each comes exactly once, in any order; other parameters are ignored.
type announcement struct {
	remaining int64 // ns, of whole microseconds; negative once the budget is spent
	limit     int64 // ns, of whole microseconds, above 0
	span      trace.SpanID
	hop       uint8
}

// verdict is the outcome of reading a header.
type verdict uint8

const (
	absent verdict = iota // not there, blank, or of another version
	valid
	invalid
)

// parse reads a header value. The announcement is meaningful only if valid.
// Neither figure may be larger than maxLimit, in ns, nor the remainder larger
// than the limit by more than 1 ms.
func parse(value string, maxLimit int64) (announcement, verdict) {
	if value == "" {
		return announcement{}, absent
	}
	if len(value) > maxHeader {
		return announcement{}, invalid
	}
	rest, ok := strings.CutPrefix(value, version)
	if !ok || rest == "" || rest[0] != ';' {
		if otherVersion(value) {
			return announcement{}, absent
		}
		return announcement{}, invalid
	}
	var a announcement
	const r, t, h, s = 1, 2, 4, 8
	seen := 0
	for rest != "" {
		if rest[0] != ';' {
			return announcement{}, invalid
		}
		rest = strings.TrimLeft(rest[1:], " ")
		n := keyLength(rest)
		if n == 0 {
			return announcement{}, invalid
		}
		bit, key := 0, rest[:n]
		switch key {
		case "r":
			bit = r
		case "t":
			bit = t
		case "h":
			bit = h
		case "s":
			bit = s
		}
		if seen&bit != 0 {
			return announcement{}, invalid
		}
		seen |= bit
		rest = rest[n:]
		item := ""
		if rest != "" && rest[0] == '=' {
			rest = rest[1:]
			if n = itemLength(rest); n == 0 {
				return announcement{}, invalid
			}
			item, rest = rest[:n], rest[n:]
		}
		switch bit {
		case r:
			digits, negative := strings.CutPrefix(item, "-")
			a.remaining, ok = parseMillis(digits)
			if negative {
				a.remaining = -a.remaining
			}
		case t:
			a.limit, ok = parseMillis(item)
		case h:
			a.hop, ok = parseHop(item)
		case s:
			a.span, ok = parseSpanID(item)
		}
		if !ok {
			return announcement{}, invalid
		}
	}
	if seen != r|t|h|s || a.limit <= 0 || a.limit > maxLimit || a.remaining < -maxLimit ||
		a.remaining > maxLimit || a.remaining > a.limit+int64(time.Millisecond) {
		return announcement{}, invalid
	}
	return a, valid
}

// otherVersion tells whether value begins with the token of a version that is
// not ours: "obs" and a number without leading zeros.
func otherVersion(value string) bool {
	token, _, _ := strings.Cut(value, ";")
	number, ok := strings.CutPrefix(token, "obs")
	if !ok || number == "" || number[0] == '0' || number == "1" {
		return false
	}
	return allDigits(number)
}

// keyLength returns the length of the RFC 9651 key that s begins with, or 0.
func keyLength(s string) int {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c == '*':
		case i > 0 && (isDigit(c) || c == '_' || c == '-' || c == '.'):
		default:
			return i
		}
	}
	return len(s)
}

// itemLength returns the length of the RFC 9651 bare item that s begins with,
// or 0. It judges no more than it needs to find the end: what a display string
// or a byte sequence encodes is not looked at.
func itemLength(s string) int {
	if s == "" {
		return 0
	}
	switch c := s[0]; {
	case c == '-' || isDigit(c):
		return numberLength(s)
	case c == '"':
		return quotedLength(s)
	case c == '%' && len(s) > 1 && s[1] == '"':
		if n := quotedLength(s[1:]); n > 0 {
			return 1 + n
		}
	case c == ':':
		if end := strings.IndexByte(s[1:], ':'); end >= 0 && allBase64(s[1:1+end]) {
			return end + 2
		}
	case c == '?' && len(s) > 1 && (s[1] == '0' || s[1] == '1'):
		return 2
	case c == '@':
		if n := numberLength(s[1:]); n > 0 && !strings.Contains(s[1:1+n], ".") {
			return 1 + n
		}
	case isAlpha(c) || c == '*':
		n := 1
		for n < len(s) && isTokenByte(s[n]) {
			n++
		}
		return n
	}
	return 0
}

// numberLength measures an integer of up to 15 digits, or a decimal of up to 12
// digits before the point and 1 to 3 after it.
func numberLength(s string) int {
	n := 0
	if strings.HasPrefix(s, "-") {
		n = 1
	}
	whole := digits(s[n:])
	n += whole
	if whole == 0 || whole > 15 {
		return 0
	}
	if n == len(s) || s[n] != '.' {
		return n
	}
	fraction := digits(s[n+1:])
	if whole > 12 || fraction == 0 || fraction > 3 {
		return 0
	}
	return n + 1 + fraction
}

// quotedLength measures a string in double quotes, in which a backslash escapes
// only itself and the quote.
func quotedLength(s string) int {
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i++
			if i == len(s) || (s[i] != '"' && s[i] != '\\') {
				return 0
			}
		case c < ' ' || c > '~':
			return 0
		}
	}
	return 0
}

// digits returns how many digits s begins with.
func digits(s string) int {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return i
		}
	}
	return len(s)
}

func allDigits(s string) bool { return digits(s) == len(s) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isTokenByte(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}

func allBase64(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isAlpha(c) && !isDigit(c) && c != '+' && c != '/' && c != '=' {
			return false
		}
	}
	return true
}

// parseMillis reads 1*8DIGIT [ "." 1*3DIGIT ] milliseconds as ns.
func parseMillis(s string) (int64, bool) {
	whole, fraction, hasPoint := strings.Cut(s, ".")
	if len(whole) == 0 || len(whole) > 8 || len(fraction) > 3 || hasPoint != (len(fraction) > 0) ||
		!allDigits(whole) || !allDigits(fraction) {
		return 0, false
	}
	micros := number(whole)
	for i := range 3 {
		micros *= 10
		if i < len(fraction) {
			micros += int64(fraction[i] - '0')
		}
	}
	return micros * int64(time.Microsecond), true
}

func parseHop(s string) (uint8, bool) {
	if len(s) == 0 || len(s) > 3 || !allDigits(s) {
		return 0, false
	}
	n := number(s)
	return uint8(n), n >= 1 && n <= maxHop
}

// number is the value of a string of at most 18 digits.
func number(s string) int64 {
	var n int64
	for i := range len(s) {
		n = n*10 + int64(s[i]-'0')
	}
	return n
}

// parseSpanID reads 16 lower-case hexadecimal digits in double quotes.
func parseSpanID(s string) (id trace.SpanID, ok bool) {
	if len(s) != 18 || s[0] != '"' || s[17] != '"' {
		return id, false
	}
	for i := range 16 {
		c := s[1+i]
		switch {
		case isDigit(c):
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return id, false
		}
		id[i/2] = id[i/2]<<4 | c
	}
	return id, id.IsValid()
}

// header writes a in its canonical form: r, t, h, s without spaces, and no zeros
// at the end of a fraction. Figures are rounded down to microseconds, except that
// the limit is never 0. They must not exceed longestLimit.
func (a *announcement) header() string {
	var buffer [maxSent]byte
	b := append(buffer[:0], version+";r="...)
	b = appendMillis(b, a.remaining)
	b = append(b, ";t="...)
	b = appendMillis(b, max(a.limit, int64(time.Microsecond)))
	b = append(b, ";h="...)
	b = appendDigits(b, uint32(a.hop))
	b = append(b, `;s="`...)
	const digits = "0123456789abcdef"
	for _, c := range a.span {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return string(append(b, '"'))
}

func appendMillis(b []byte, ns int64) []byte {
	if ns < 0 {
		b = append(b, '-')
		ns = -ns + 999 // Down, so away from zero.
	}
	micros := uint64(ns) / 1000
	whole, fraction := uint32(micros/1000), uint32(micros%1000)
	b = appendDigits(b, whole)
	if fraction == 0 {
		return b
	}
	b = append(b, '.', byte('0'+fraction/100), byte('0'+fraction/10%10), byte('0'+fraction%10))
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// appendDigits appends n in decimal to b, which must have the capacity.
func appendDigits(b []byte, n uint32) []byte {
	size := 1
	for m := n; m >= 10; m /= 10 {
		size++
	}
	b = b[:len(b)+size]
	for i := len(b) - 1; size > 0; i, size = i-1, size-1 {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

// until reads the value of an authority header, an unsigned integer of at most 15
// digits that arrived at now, as the deadline that it means.
func (a *authority) until(value string, now instant) (instant, bool) {
	if value == "" || len(value) > 15 || !allDigits(value) {
		return none, false
	}
	ms := number(value)
	if a.kind == EpochMillis {
		return at(time.UnixMilli(ms)), true
	}
	if ms > int64(longestLimit/time.Millisecond) {
		return none, false // It might not fit.
	}
	// 0 means to a proxy that there is no timeout.
	return now + instant(ms*int64(time.Millisecond)), ms > 0 || a.kind != PerHop
}
