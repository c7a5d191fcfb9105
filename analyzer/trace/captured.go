package trace

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Where services do not stamp latency_budget attributes themselves, their
// instrumentation may have captured the headers that carry a deadline, and some
// write what is left into attributes of their own. Both stand in for stamps, and
// never override one.

// RemainingAttribute is an attribute in which services write what is left of the
// budget when a span begins.
type RemainingAttribute struct {
	Name string
	Unit time.Duration // of its number: one of ns, µs, ms and s
}

// MaxRemainingAttributes is how many a reader looks for.
const MaxRemainingAttributes = 16

// DefaultRemainingAttributes are those that a reader looks for unless it is told
// otherwise.
func DefaultRemainingAttributes() []RemainingAttribute {
	return slices.Clone(defaultRemainingAttributes)
}

var defaultRemainingAttributes = []RemainingAttribute{{Name: "deadline_remaining_ms", Unit: time.Millisecond}}

var remainingUnits = []struct {
	name string
	unit time.Duration
}{{"ns", time.Nanosecond}, {"us", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}}

// ParseRemainingUnit reads "ns", "us", "ms" or "s".
func ParseRemainingUnit(s string) (time.Duration, error) {
	for _, u := range remainingUnits {
		if s == u.name {
			return u.unit, nil
		}
	}
	return 0, fmt.Errorf("%q is no unit: want ns, us, ms or s", s)
}

// ParseRemainingAttribute reads "NAME=UNIT". The name ends at the last '='.
func ParseRemainingAttribute(s string) (RemainingAttribute, error) {
	at := strings.LastIndexByte(s, '=')
	if at <= 0 {
		return RemainingAttribute{}, fmt.Errorf("%q: write name=unit, such as deadline_remaining_ms=ms", s)
	}
	unit, err := ParseRemainingUnit(s[at+1:])
	return RemainingAttribute{Name: s[:at], Unit: unit}, err
}

// CheckRemainingAttributes tells what is wrong with a list, if anything.
func CheckRemainingAttributes(list []RemainingAttribute) error {
	if len(list) > MaxRemainingAttributes {
		return fmt.Errorf("%d attributes for what remains: at most %d are looked for", len(list), MaxRemainingAttributes)
	}
	seen := make(map[string]bool)
	for _, r := range list {
		switch {
		case r.Name == "":
			return errors.New("the name of an attribute is empty")
		case strings.HasPrefix(r.Name, "latency_budget."):
			return fmt.Errorf("attribute %q has a meaning of its own", r.Name)
		case seen[r.Name]:
			return fmt.Errorf("attribute %q is named twice", r.Name)
		case r.Unit <= 0:
			return fmt.Errorf("attribute %q: its unit must be more than 0", r.Name)
		}
		a := Attributes{Remaining: []RemainingAttribute{}}
		if _, taken := a.See([]byte(r.Name)); taken {
			return fmt.Errorf("attribute %q has a meaning of its own", r.Name)
		}
		seen[r.Name] = true
	}
	return nil
}

// captured is what the attributes of one span say of a budget besides stamps.
// Times are ns.
type captured struct {
	has       capturedSet
	own       int64 // left at the start, by an attribute of the service's own
	relative  int64 // left when the request was sent or came, by the smallest header
	absolute  int64 // deadline in Unix ns
	perHop    int64 // what a proxy gives this hop alone
	announced int64 // latency-budget-observed
	limit     int64
	announcer SpanID
}

type capturedSet uint8

const (
	capturedOwn capturedSet = 1 << iota
	capturedRelative
	capturedAbsolute
	capturedPerHop
	capturedAnnounced
)

// header prefixes under which instrumentations write captured headers.
const (
	httpHeaderPrefix    = "http.request.header."
	rpcHeaderPrefix     = "rpc.request.metadata."
	grpcHeaderPrefix    = "rpc.grpc.request.metadata."
	connectHeaderPrefix = "rpc.connect_rpc.request.metadata."
)

var headers = [...]struct {
	name string // lower case
	key  AttrKey
}{
	{"x-timeout-budget-ms", attrRelativeHeader},
	{"connect-timeout-ms", attrRelativeHeader},
	{"grpc-timeout", attrGRPCTimeout},
	{"x-request-deadline", attrAbsoluteHeader},
	{"x-envoy-expected-rq-timeout-ms", attrPerHopHeader},
	{"latency-budget-observed", attrObservedHeader},
	{"idempotency-key", attrIdempotencyKey},
}

// headerKey finds a captured header by its name, which may have underscores in
// the place of hyphens: older conventions and some languages write them so.
func headerKey[T ~string | ~[]byte](name T) AttrKey {
	for i := range headers {
		if h := &headers[i]; len(name) == len(h.name) && sameHeader(name, h.name) {
			return h.key
		}
	}
	return 0
}

func sameHeader[T ~string | ~[]byte](name T, header string) bool {
	for i := range len(name) {
		c := name[i]
		if c == '_' {
			c = '-'
		}
		if c != header[i] {
			return false
		}
	}
	return true
}

// TakesList tells whether the attribute may be a list of texts: its only element
// is then its value, and a list of any other length is to be left out.
func (k AttrKey) TakesList() bool { return k >= attrRelativeHeader && k <= attrContentType }

// setHeader takes the value of a captured header.
func (a *Attributes) setHeader(key AttrKey, v []byte) NoteKind {
	if len(v) > 0 && v[0] == '[' { // a list, in formats that know only texts
		var one bool
		if v, one = a.onlyElement(v); !one {
			return ""
		}
	}
	c := &a.captured
	ok := false
	switch key {
	case attrRelativeHeader, attrPerHopHeader, attrAbsoluteHeader:
		var n int64
		if n, ok = parseInt(v); !ok || len(v) > 15 {
			return NoteBadStamp
		}
		ns := n * int64(time.Millisecond) // 15 digits fit, but for epochs beyond 2262
		switch {
		case key == attrAbsoluteHeader:
			if n > math.MaxInt64/int64(time.Millisecond) {
				return NoteBadStamp
			}
			c.absolute = c.least(capturedAbsolute, c.absolute, ns)
		case n > maxLimit/int64(time.Millisecond):
			return NoteBadStamp
		case key == attrRelativeHeader:
			c.relative = c.least(capturedRelative, c.relative, ns)
		case n > 0: // 0 means to a proxy that there is no timeout
			c.perHop = c.least(capturedPerHop, c.perHop, ns)
		}
	case attrGRPCTimeout:
		var ns int64
		if ns, ok = parseGRPCTimeout(v); !ok {
			return NoteBadStamp
		}
		c.relative = c.least(capturedRelative, c.relative, ns)
	case attrObservedHeader:
		if !c.observe(v) {
			return NoteBadStamp
		}
	case attrIdempotencyKey:
		a.idempotent = a.idempotent || len(v) > 0
	case attrContentType:
		a.setSign(key, v)
	}
	return ""
}

// least returns the smaller of two values where there is one before.
func (c *captured) least(which capturedSet, before, v int64) int64 {
	if c.has&which != 0 {
		v = min(v, before)
	}
	c.has |= which
	return v
}

// setOwn takes what is left from the i-th of the attributes to look for.
func (a *Attributes) setOwn(i int, v float64) NoteKind {
	ns := math.Round(v * float64(a.remaining()[i].Unit))
	if math.IsNaN(ns) || math.Abs(ns) > float64(maxRemaining) {
		return NoteBadStamp
	}
	a.captured.own = a.captured.least(capturedOwn, a.captured.own, int64(ns))
	return ""
}

func (a *Attributes) remaining() []RemainingAttribute {
	if a.Remaining == nil {
		return defaultRemainingAttributes
	}
	return a.Remaining
}

// ownKey finds an attribute among those that say what remains.
func ownKey[T ~string | ~[]byte](a *Attributes, name T) AttrKey {
	for i, r := range a.remaining() {
		if len(r.Name) == len(name) && r.Name == string(name) && i < MaxRemainingAttributes {
			return attrOwnRemaining + AttrKey(i)
		}
	}
	return 0
}

// onlyElement returns the text in a JSON list of one text. It may overwrite
// a.spare.
func (a *Attributes) onlyElement(list []byte) ([]byte, bool) {
	list, opens := bytes.CutPrefix(list, []byte(`["`))
	list, closes := bytes.CutSuffix(list, []byte(`"]`))
	if !opens || !closes {
		return nil, false
	}
	a.spare = a.spare[:0]
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '"':
			return nil, false // another element follows
		case c == '\\' && i+1 < len(list) && (list[i+1] == '"' || list[i+1] == '\\'):
			i++
			a.spare = append(a.spare, list[i])
		case c == '\\':
			return nil, false
		default:
			a.spare = append(a.spare, c)
		}
	}
	return a.spare, true
}

// parseGRPCTimeout reads 1 to 8 digits and a unit, as the gRPC protocol has it.
// What is longer than any limit is refused.
func parseGRPCTimeout(v []byte) (ns int64, ok bool) {
	if len(v) < 2 || len(v) > 9 {
		return 0, false
	}
	var unit time.Duration
	switch v[len(v)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	n, ok := parseInt(v[:len(v)-1])
	if !ok || n > maxLimit/int64(unit) {
		return 0, false
	}
	return n * int64(unit), true
}

// observe reads the value of latency-budget-observed: the version obs1 and the
// parameters r, t, h and s, each once, in any order, with others between them.
// Another version says nothing. It tells whether the value is valid.
func (c *captured) observe(v []byte) bool {
	const longest = 128
	rest, ours := bytes.CutPrefix(v, []byte("obs1"))
	if !ours {
		return true
	}
	if len(v) > longest {
		return false
	}
	var r, t int64
	var announcer SpanID
	seen := 0
	for len(rest) > 0 {
		if rest[0] != ';' {
			return false
		}
		rest = bytes.TrimLeft(rest[1:], " ")
		n := paramEnd(rest)
		name, item, _ := bytes.Cut(rest[:n], []byte("="))
		rest = rest[n:]
		bit, ok := 0, true
		switch string(name) {
		case "r":
			digits, negative := bytes.CutPrefix(item, []byte("-"))
			bit = 1
			if r, ok = parseMillis(digits); negative {
				r = -r
			}
		case "t":
			bit = 2
			t, ok = parseMillis(item)
		case "h":
			bit = 4
			var hops int64
			hops, ok = parseInt(item)
			ok = ok && len(item) <= 3 && hops >= 1 && hops <= 255
		case "s":
			bit = 8
			announcer, ok = parseQuotedID(item)
		case "":
			return false
		}
		if !ok || seen&bit != 0 {
			return false
		}
		seen |= bit
	}
	if seen != 1|2|4|8 || t <= 0 || t > maxLimit || r < -maxLimit || r > t+int64(time.Millisecond) || r > maxLimit {
		return false
	}
	c.has |= capturedAnnounced
	c.announced, c.limit, c.announcer = r, t, announcer
	return true
}

// paramEnd returns where the parameter at the start of s ends: before the next
// semicolon that is in no quoted string.
func paramEnd(s []byte) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == ';' && !quoted:
			return i
		}
	}
	return len(s)
}

// parseMillis reads 1 to 8 digits and up to 3 decimals of milliseconds as ns.
func parseMillis(s []byte) (ns int64, ok bool) {
	whole, fraction, point := bytes.Cut(s, []byte("."))
	n, ok := parseInt(whole)
	if !ok || len(whole) > 8 || len(fraction) > 3 {
		return 0, false
	}
	ns = n * int64(time.Millisecond)
	if !point {
		return ns, true
	}
	n, ok = parseInt(fraction)
	for range 3 - len(fraction) {
		n *= 10
	}
	return ns + n*int64(time.Microsecond), ok
}

// parseQuotedID reads 16 lower-case hex digits in quotes.
func parseQuotedID(s []byte) (id SpanID, ok bool) {
	if len(s) != 18 || s[0] != '"' || s[17] != '"' {
		return id, false
	}
	for _, c := range s[1:17] {
		if c >= 'A' && c <= 'F' {
			return id, false
		}
	}
	_, err := hex.Decode(id[:], s[1:17])
	return id, err == nil && !id.IsZero()
}

// stamp fills st, in which no service says what was left, with what was captured on s.
//
//	                         remaining.start   deadline.remaining
//	an attribute of its own  its value
//	an authority header      its value         its value: it is what the callee obeys
//	one of a proxy                             its value: it says nothing of the request
//	an announcement          its value, or the deadline if that is less
func (c *captured) stamp(s *Span, st *Stamp) {
	if c.has&capturedOwn != 0 {
		st.Remaining, st.HasRemaining, st.Derived = c.own, true, true
		st.limitOf(s)
		return
	}
	if s.Kind == KindProducer || s.Kind == KindConsumer {
		return // how long a message waited in its queue nobody knows
	}
	deadline, hasDeadline := c.relative, c.has&capturedRelative != 0
	if until := c.absolute - s.Start; c.has&capturedAbsolute != 0 && !s.Is(FlagUnmeasured) &&
		until >= -maxRemaining && until <= maxRemaining && (!hasDeadline || until < deadline) {
		deadline, hasDeadline = until, true
		st.Absolute = s.Kind != KindClient // the callee has another clock than the writer
	}
	authority := hasDeadline
	if !authority && c.has&capturedPerHop != 0 {
		deadline, hasDeadline = c.perHop, true
	}
	if hasDeadline {
		st.DeadlineRemaining, st.HasDeadline, st.Derived = deadline, true, true
	}
	switch {
	case c.has&capturedAnnounced != 0 && (s.Kind != KindServer || !s.Parent.IsZero()):
		// A stranger's announcement to a public endpoint does not count.
		st.Remaining, st.HasRemaining, st.Derived = c.announced, true, true
		st.limit(c.limit)
		if hasDeadline {
			st.Remaining = min(st.Remaining, deadline)
		}
		if s.Kind == KindServer {
			st.Announced, st.HasAnnounced = c.announced, true
			st.Stale = c.announcer != s.Parent
		}
	case authority:
		st.Remaining, st.HasRemaining = deadline, true
		st.limitOf(s)
	}
}

// limitOf takes what was left for the limit where the request begins, in the steps
// of a microsecond that the attribute has.
func (st *Stamp) limitOf(s *Span) {
	if s.Parent.IsZero() && st.Remaining > 0 && st.Remaining <= maxLimit {
		st.limit((st.Remaining + 500) / 1000 * 1000)
	}
}

// limit sets the limit, unless a service has stamped it.
func (st *Stamp) limit(ns int64) {
	if st.Limit == 0 {
		st.Limit = ns
	}
}
