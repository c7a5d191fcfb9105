package trace

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Attributes collects, of one span, resource or event, the few attributes that
// the analysis needs, and turns them into the fields of a [Span]. It is the
// one place that knows attribute keys; readers of files and the Collector
// processor both fill it.
//
// The zero value is ready. It is reused: Reset before each span. It keeps its
// own copies of texts, so callers may reuse their buffers at once, and it
// allocates only while its buffer grows.
type Attributes struct {
	// Remaining are the attributes in which services write what is left; nil
	// means [DefaultRemainingAttributes]. Reset keeps it; it must not change after
	// the first attribute was seen.
	Remaining []RemainingAttribute

	names *nameCache
	buf   []byte
	texts []string // by key: those that were set as strings and not looked at yet
	refs  [numTexts]textRef
	has   uint32 // the texts that are there, a bit for each key
	kind  Kind
	flags Flags

	timedOut, cancelled, failed   bool
	refused, detached, idempotent bool // refused: as a bad request
	final                         bool // see FlagFinal

	ways     way  // in which messages went, by the events of the span
	way      way  // of the message that an event tells of; 0: of none
	numbered bool // the event has a sequence-number

	threshold uint64
	stamp     Stamp
	captured  captured
	op, spare []byte // scratch for the operation
}

// textRef is a text inside Attributes.buf, or, with off inTexts, in
// Attributes.texts; n is its length plus one, so that the zero value means "absent".
type textRef struct{ off, n uint32 }

const inTexts = math.MaxUint32

// AttrKey is a wanted attribute; see [Attributes.See].
type AttrKey uint8

// Attributes that readers set from fields which are no attributes in their format.
const (
	AttrPeerService   AttrKey = iota + 1 // who is called, as the caller names it
	AttrServiceName                      // who the emitting process is
	AttrHostName                         // where it runs
	AttrSpanKind                         // the kind as a word, in formats that have it as a tag
	AttrError                            // the error tag of OpenTracing and Zipkin
	AttrTraceState                       // the W3C tracestate header
	AttrSpanName                         // the name of the span
	AttrStatusMessage                    // what the status of the span says in words
	AttrEventName                        // the name of an event

	attrRoute
	attrURLTemplate
	attrMethod
	attrRPCService
	attrRPCMethod
	attrDBSummary
	attrDBOperation
	attrDBCollection
	attrDBSystem
	attrMessagingSystem
	attrMessagingOperation
	attrDestinationTemplate
	attrDestination
	attrServerAddress
	attrHostTag
	attrHostID
	attrHostIP
	numTexts

	// Signs of a stream; see setSign.
	attrScheme
	attrMethodType
	attrOperationType
	attrMessageCount
	attrMessageType
	attrSequenceNumber

	attrErrorType
	attrGRPCStatus
	attrHTTPStatus
	attrStatusCode
	attrLimit
	attrRemaining
	attrDeadline
	attrAnnounced
	attrFresh
	attrSource
	attrDetached

	// Captured headers; see AttrKey.TakesList.
	attrRelativeHeader
	attrGRPCTimeout
	attrAbsoluteHeader
	attrPerHopHeader
	attrObservedHeader
	attrIdempotencyKey
	attrContentType

	attrOwnRemaining // and as many more as there can be such attributes
)

// TellsBudget tells whether the attribute may say what was left of a budget.
func (k AttrKey) TellsBudget() bool {
	return k >= attrLimit && k != attrDetached && k != attrIdempotencyKey && k != attrContentType
}

// TellsEnd tells whether the attribute may say how the span ended.
func (k AttrKey) TellsEnd() bool {
	switch k {
	case AttrError, attrErrorType, attrGRPCStatus, attrHTTPStatus, attrStatusCode, AttrStatusMessage:
		return true
	}
	return false
}

// TellingInitials returns the first bytes of the names of all attributes for which
// TellsBudget or TellsEnd says yes, where remaining are those of the services' own.
func TellingInitials(remaining []RemainingAttribute) (initials [256]bool) {
	for _, w := range wantedNames {
		initials[w.name[0]] = initials[w.name[0]] || w.key.TellsBudget() || w.key.TellsEnd()
	}
	for _, p := range headerPrefixes {
		initials[p[0]] = true
	}
	for _, r := range remaining {
		if r.Name != "" {
			initials[r.Name[0]] = true
		}
	}
	return initials
}

// describing are the texts that make a [Desc], but for those of the resource.
const describing uint32 = 1<<AttrPeerService | 1<<AttrSpanName | (1<<numTexts-1)&^(1<<attrRoute-1)&^
	(1<<attrHostTag|1<<attrHostID|1<<attrHostIP)

// wanted is an attribute that is known by its whole name.
type wanted struct {
	name string
	key  AttrKey
}

var wantedNames = []wanted{
	{"service.name", AttrServiceName},
	{"host.name", AttrHostName},
	{"hostname", attrHostTag},
	{"host.id", attrHostID},
	{"ip", attrHostIP},
	{"span.kind", AttrSpanKind},
	{"http.route", attrRoute},
	{"url.template", attrURLTemplate},
	{"http.request.method", attrMethod},
	{"http.method", attrMethod},
	{"http.response.status_code", attrHTTPStatus},
	{"http.status_code", attrHTTPStatus},
	{"error", AttrError},
	{"error.type", attrErrorType},
	{"otel.status_code", attrStatusCode},
	{"otel.status_description", AttrStatusMessage},
	{"grpc.status_code", attrGRPCStatus},
	{"messaging.system", attrMessagingSystem},
	{"messaging.operation.name", attrMessagingOperation},
	{"messaging.operation.type", attrMessagingOperation},
	{"messaging.operation", attrMessagingOperation},
	{"messaging.destination.template", attrDestinationTemplate},
	{"messaging.destination.name", attrDestination},
	{"messaging.destination", attrDestination},
	{"w3c.tracestate", AttrTraceState},
	{"latency_budget.limit", attrLimit},
	{"latency_budget.remaining.start", attrRemaining},
	{"latency_budget.deadline.remaining", attrDeadline},
	{"latency_budget.announced.remaining", attrAnnounced},
	{"latency_budget.announced.fresh", attrFresh},
	{"latency_budget.source", attrSource},
	{"latency_budget.detached", attrDetached},
	{"url.scheme", attrScheme},
	{"http.scheme", attrScheme},
	{"rpc.type", attrMethodType},
	{"grpc.method_type", attrMethodType},
	{"grpc.method.kind", attrMethodType},
	{"grpc.sent.message_count", attrMessageCount},
	{"grpc.received.message_count", attrMessageCount},
	{"graphql.operation.type", attrOperationType},
	{"http.response.header.content-type", attrContentType},
	{"http.response.header.content_type", attrContentType},
	{"event", AttrEventName},
	{"message.type", attrMessageType},
	{"rpc.message.type", attrMessageType},
	{"sequence-number", attrSequenceNumber},
	{"peer.service", AttrPeerService},
	{"server.address", attrServerAddress},
	{"net.peer.name", attrServerAddress},
	{"peer.hostname", attrServerAddress},
	{"rpc.service", attrRPCService},
	{"rpc.method", attrRPCMethod},
	{"rpc.grpc.status_code", attrGRPCStatus},
	{"rpc.response.status_code", attrGRPCStatus},
	{"rpc.connect_rpc.error_code", attrGRPCStatus},
	{"db.query.summary", attrDBSummary},
	{"db.operation.name", attrDBOperation},
	{"db.operation", attrDBOperation},
	{"db.collection.name", attrDBCollection},
	{"db.sql.table", attrDBCollection},
	{"db.mongodb.collection", attrDBCollection},
	{"db.cassandra.table", attrDBCollection},
	{"db.system.name", attrDBSystem},
	{"db.system", attrDBSystem},
}

// wantedKeys are wantedNames by name.
var wantedKeys = func() map[string]AttrKey {
	keys := make(map[string]AttrKey, len(wantedNames))
	for _, w := range wantedNames {
		keys[w.name] = w.key
	}
	return keys
}()

// The beginnings of names that say something however they go on.
var (
	// outboundPrefixes begin the attributes of calls.
	outboundPrefixes = []string{"db.", "peer.", "net.peer.", "rpc.", "server.address"}
	// samplerPrefixes are written by the tail_sampling processor of the Collector and
	// by Refinery.
	samplerPrefixes = []string{"tailsampling.", "meta.refinery."}
	// headerPrefixes are those under which instrumentations write captured headers.
	headerPrefixes = []string{httpHeaderPrefix, rpcHeaderPrefix, grpcHeaderPrefix, connectHeaderPrefix}
)

// See takes note that an attribute is present and tells whether its value is
// wanted too; only then has key a meaning. Values of other attributes need not
// be decoded.
func (a *Attributes) See(name []byte) (key AttrKey, wanted bool) { return see(a, name) }

// SeeText is See for a string.
func (a *Attributes) SeeText(name string) (key AttrKey, wanted bool) { return see(a, name) }

func see[T ~string | ~[]byte](a *Attributes, name T) (AttrKey, bool) {
	key, flags := classify(a, name)
	a.flags |= flags
	return key, key != 0
}

// lookUp finds a name among those that matter. The key is 0 where its value is not
// wanted; the flags are those that its presence gives the span.
func lookUp[T ~string | ~[]byte](a *Attributes, name T) (key AttrKey, flags Flags) {
	if len(name) == 0 {
		return 0, 0
	}
	if hasPrefix(name, samplerPrefixes) {
		return 0, FlagTailSampled
	}
	if hasPrefix(name, outboundPrefixes) {
		flags = FlagOutbound
	}
	if key, wanted := wantedKeys[string(name)]; wanted {
		return key, flags
	}
	for _, prefix := range headerPrefixes {
		if len(name) > len(prefix) && string(name[:len(prefix)]) == prefix {
			return headerKey(name[len(prefix):]), flags
		}
	}
	return ownKey(a, name), flags
}

func hasPrefix[T ~string | ~[]byte](name T, prefixes []string) bool {
	for _, p := range prefixes {
		if len(name) >= len(p) && string(name[:len(p)]) == p {
			return true
		}
	}
	return false
}

// TailSampled tells whether a mark of a tail sampler was seen. The Collector's
// tail_sampling processor leaves its marks on the scope of the spans, so readers
// also see the attributes of scopes and give the flag to the spans.
func (a *Attributes) TailSampled() bool { return a.flags&FlagTailSampled != 0 }

// Reset forgets the attributes but keeps the buffers.
func (a *Attributes) Reset() {
	*a = Attributes{Remaining: a.Remaining, names: a.names, buf: a.buf[:0], texts: a.texts, op: a.op[:0], spare: a.spare[:0]}
}

// SetString gives key a text. Numbers written as text are understood where the
// key wants a number. The result is "" or the kind of note to count because
// the value cannot be what the key stands for; it is then ignored.
func (a *Attributes) SetString(key AttrKey, v []byte) NoteKind {
	switch key {
	case AttrSpanKind:
		k, ok := ParseKind(v)
		if !ok {
			return NoteBadKind
		}
		a.kind = k
	case AttrError:
		if !foldEqual(v, "false") {
			a.failed = true
			a.endedBy(v)
		}
	case attrErrorType:
		if len(v) > 0 {
			a.failed = true
			a.endedBy(v)
		}
	case attrStatusCode:
		a.SetStatus(foldEqual(v, "error"))
	case AttrStatusMessage:
		a.endedByContext(v)
	case attrGRPCStatus:
		a.endedBy(v)
		if n, ok := parseInt(v); ok {
			return a.SetInt(key, n)
		}
	case attrHTTPStatus:
		n, ok := parseInt(v)
		if !ok {
			return NoteBadAttribute
		}
		return a.SetInt(key, n)
	case attrSource:
		a.stamp.Absolute = string(v) == "header_absolute"
		a.stamp.Derived = string(v) == "derived"
	case attrFresh:
		fresh := foldEqual(v, "true")
		if !fresh && !foldEqual(v, "false") {
			return NoteBadStamp
		}
		a.stamp.Stale = !fresh
	case attrLimit, attrRemaining, attrDeadline, attrAnnounced:
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			return NoteBadStamp
		}
		return a.SetFloat(key, f)
	case AttrTraceState:
		t, present, ok := ParseThreshold(v)
		a.flags &^= FlagThreshold | FlagThresholdInvalid
		switch {
		case ok:
			a.threshold = t
			a.flags |= FlagThreshold
		case present:
			a.flags |= FlagThresholdInvalid
			return NoteBadThreshold
		}
	case attrDetached:
		a.detached = foldEqual(v, "true")
	case attrScheme, attrMethodType, attrOperationType, attrMessageCount, attrMessageType, attrSequenceNumber:
		a.setSign(key, v)
	case attrRelativeHeader, attrGRPCTimeout, attrAbsoluteHeader, attrPerHopHeader, attrObservedHeader, attrIdempotencyKey, attrContentType:
		return a.setHeader(key, v)
	default:
		if key >= attrOwnRemaining {
			f, err := strconv.ParseFloat(string(v), 64)
			if err != nil {
				return NoteBadStamp
			}
			return a.SetFloat(key, f)
		}
		a.has |= 1 << key
		a.refs[key] = textRef{uint32(len(a.buf)), uint32(len(v)) + 1}
		a.buf = append(a.buf, v...)
	}
	return ""
}

// SetText is SetString for a string, which is not looked at before it is needed:
// most texts of a span have no say in what becomes of it.
func (a *Attributes) SetText(key AttrKey, v string) NoteKind {
	switch key {
	case AttrSpanKind, AttrError, AttrTraceState, AttrStatusMessage: // no texts to keep
	default:
		if key < numTexts {
			if a.texts == nil {
				a.texts = make([]string, numTexts)
			}
			a.has |= 1 << key
			a.texts[key], a.refs[key] = v, textRef{inTexts, uint32(len(v)) + 1}
			return ""
		}
	}
	first := len(a.buf)
	a.buf = append(a.buf, v...)
	text := a.buf[first:]
	a.buf = a.buf[:first]
	return a.SetString(key, text)
}

// SetInt gives key an integer; the result is that of SetString.
func (a *Attributes) SetInt(key AttrKey, v int64) NoteKind {
	switch key {
	case attrGRPCStatus:
		// Codes of google.rpc.Code.
		a.cancelled = a.cancelled || v == 1
		a.refused = a.refused || v == 3
		a.timedOut = a.timedOut || v == 4
		a.final = a.final || finalGRPC(v)
	case attrHTTPStatus:
		// 499 is what proxies log when the client closed the request.
		a.cancelled = a.cancelled || v == 499
		a.timedOut = a.timedOut || v == 504
		a.refused = a.refused || v == 400
		a.final = a.final || finalHTTP(v)
		if v == 101 { // switching protocols
			a.flags |= FlagStream
		}
	case attrMessageCount:
		if v > 1 {
			a.flags |= FlagStream
		}
	case attrSequenceNumber:
		a.numbered = true
	case attrScheme, attrMethodType, attrOperationType, attrMessageType, attrContentType: // numbers of somebody else
	case attrLimit, attrRemaining, attrDeadline, attrAnnounced:
		return a.SetFloat(key, float64(v))
	case attrFresh, attrSource, attrDetached:
		return NoteBadStamp
	case AttrError:
		a.failed = a.failed || v != 0
	case attrRelativeHeader, attrAbsoluteHeader, attrPerHopHeader, attrIdempotencyKey:
		var digits [20]byte
		return a.SetString(key, strconv.AppendInt(digits[:0], v, 10))
	default:
		if key >= attrOwnRemaining {
			return a.SetFloat(key, float64(v))
		}
		return a.setNumberText(key, v)
	}
	return ""
}

// maxLimit is the longest budget that a request is taken to have, in ns: what is
// longer is refused where budgets are handed on, too. maxRemaining bounds what is
// left until a deadline, which a service may set as it likes.
const (
	maxLimit     = int64(time.Hour)
	maxRemaining = 24 * int64(time.Hour)
)

// SetFloat gives key a number; the result is that of SetString.
func (a *Attributes) SetFloat(key AttrKey, v float64) NoteKind {
	switch key {
	case attrLimit, attrRemaining, attrDeadline, attrAnnounced:
		// Seconds, so 1e9 is 31 years: no budget, but it would still fit int64 ns.
		if math.IsNaN(v) || math.Abs(v) >= 1e9 {
			return NoteBadStamp
		}
		ns := int64(math.Round(v * 1e9))
		if key != attrLimit && (ns > maxRemaining || ns < -maxRemaining) {
			return NoteBadStamp
		}
		switch key {
		case attrRemaining:
			a.stamp.Remaining, a.stamp.HasRemaining = ns, true
			return ""
		case attrDeadline:
			a.stamp.DeadlineRemaining, a.stamp.HasDeadline = ns, true
			return ""
		case attrAnnounced:
			a.stamp.Announced, a.stamp.HasAnnounced = ns, true
			return ""
		}
		if ns < 0 || ns > maxLimit {
			return NoteBadStamp
		}
		a.stamp.Limit = ns
		return ""
	}
	if key >= attrOwnRemaining {
		return a.setOwn(int(key-attrOwnRemaining), v)
	}
	if v != math.Trunc(v) || math.Abs(v) >= 1<<53 {
		return NoteBadAttribute
	}
	return a.SetInt(key, int64(v))
}

// SetBool gives key a truth value; the result is that of SetString.
func (a *Attributes) SetBool(key AttrKey, v bool) NoteKind {
	switch key {
	case AttrError:
		a.failed = a.failed || v
		return ""
	case attrFresh:
		a.stamp.Stale = !v
		return ""
	case attrDetached:
		a.detached = v
		return ""
	case attrLimit, attrRemaining, attrDeadline, attrAnnounced, attrSource:
		return NoteBadStamp
	}
	return NoteBadAttribute
}

// setNumberText keeps a number where a text is expected, as exporters with one
// type for all values write it.
func (a *Attributes) setNumberText(key AttrKey, v int64) NoteKind {
	if key >= numTexts {
		return NoteBadAttribute
	}
	var digits [20]byte
	return a.SetString(key, strconv.AppendInt(digits[:0], v, 10))
}

// SetStatus gives the status of the span: whether it is ERROR.
func (a *Attributes) SetStatus(isError bool) {
	a.failed = a.failed || isError
}

// endedBy is the one table of words by which errors say that time was the
// reason: names of gRPC and Connect codes, HTTP codes as error.type has them,
// class names like java.net.SocketTimeoutException, and codes like ETIMEDOUT.
func (a *Attributes) endedBy(v []byte) {
	switch {
	case foldContains(v, "deadline"), foldContains(v, "timeout"), foldContains(v, "timed out"), foldContains(v, "timedout"),
		foldContains(v, "timed_out"), string(v) == "504":
		a.timedOut = true
	case foldContains(v, "cancel"), string(v) == "499":
		a.cancelled = true
	case foldEqual(v, "invalid_argument"), foldEqual(v, "invalidargument"), string(v) == "400":
		a.refused, a.final = true, true
	default:
		status, isNumber := parseInt(v)
		a.final = a.final || isNumber && finalHTTP(status) || slices.ContainsFunc(finalNames, func(name string) bool { return sameName(v, name) })
	}
}

// finalHTTP tells whether a status says that another try would get it again: it is
// the fault of the request, and not of the moment, of a login that has run out, or of
// somebody else who changed the same.
func finalHTTP(status int64) bool {
	switch status {
	case 401, 408, 409, 423, 425, 429, 499:
		return false
	}
	return status >= 400 && status < 500
}

// finalGRPC is finalHTTP for the codes of google.rpc.Code whose documentation tells
// not to try again.
func finalGRPC(code int64) bool {
	switch code {
	case 3, 5, 6, 7, 9, 11, 12:
		return true
	}
	return false
}

// finalNames are the names of those codes, but for the first, as sameName has them.
var finalNames = []string{"notfound", "alreadyexists", "permissiondenied", "failedprecondition", "outofrange", "unimplemented"}

// sameName compares with a lower-case name, ignoring ASCII case and underscores:
// NOT_FOUND, not_found and NotFound are one.
func sameName(v []byte, name string) bool {
	k := 0
	for _, c := range v {
		switch {
		case c == '_':
			continue
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		}
		if k == len(name) || c != name[k] {
			return false
		}
		k++
	}
	return k == len(name)
}

// endedByContext looks for Go's words for a context that has ended, alone or at
// the end of what was wrapped around them. The error type of a cancellation in
// Go is *errors.errorString, which says nothing. Other free text is not judged.
func (a *Attributes) endedByContext(v []byte) {
	switch {
	case bytes.HasSuffix(v, []byte("context deadline exceeded")):
		a.timedOut = true
	case bytes.HasSuffix(v, []byte("context canceled")):
		a.cancelled = true
	}
}

// text returns the text of key, or nil.
func (a *Attributes) text(key AttrKey) []byte {
	r := a.refs[key]
	if r.n == 0 {
		return nil
	}
	if r.off == inTexts {
		r.off = uint32(len(a.buf))
		a.buf = append(a.buf, a.texts[key]...)
		a.refs[key] = r
	}
	return a.buf[r.off : r.off+r.n-1]
}

// firstOf returns the first of the texts that is there and not empty.
func (a *Attributes) firstOf(keys ...AttrKey) []byte {
	for _, k := range keys {
		if t := a.text(k); len(t) > 0 {
			return t
		}
	}
	return nil
}

// Resource is what a span inherits from the process that made it.
type Resource struct {
	Service string // service.name; "" if it has none
	Host    string // host name, id or address; "" if unknown
}

// Resource returns what a holds when it was filled from a resource.
func (a *Attributes) Resource(c *Cache) Resource {
	return Resource{
		Service: c.text(a.text(AttrServiceName)),
		Host:    c.text(a.firstOf(AttrHostName, attrHostTag, attrHostID, attrHostIP)),
	}
}

// Describe sets Desc, Outcome, Stamp, Threshold and the flags that attributes
// decide. s.Kind must be set before; where it is unspecified, the kind of a
// span.kind attribute is used. A Stamp that s points to is used, a new one is
// made where it points to none.
func (a *Attributes) Describe(s *Span, r Resource, c *Cache) {
	if s.Kind == KindUnspecified {
		s.Kind = a.kind
	}
	s.Outcome = a.Outcome()
	if a.final && s.Outcome == OutcomeFailed {
		s.Flags |= FlagFinal
	}
	s.Flags |= a.flags
	if a.detached {
		s.Flags |= FlagFollowsFrom
	}
	switch string(a.text(attrMethod)) {
	case "POST", "PATCH":
		if !a.idempotent {
			s.Flags |= FlagUnsafe
		}
	case "CONNECT":
		s.Flags |= FlagStream
	}
	s.Threshold = a.threshold
	// A Collector derived what was left from a deadline that the service stamped, or from
	// the same that was captured here. Both say more than it did.
	if a.stamp.Derived && (a.stamp.HasDeadline || a.captured.has != 0) {
		a.stamp.Remaining, a.stamp.HasRemaining, a.stamp.Derived = 0, false, false
	}
	if a.captured.has != 0 && !a.stamp.HasRemaining && !a.stamp.HasDeadline {
		a.captured.stamp(s, &a.stamp)
	}
	switch {
	case a.stamp == (Stamp{}):
		s.Stamp = nil
	case s.Stamp != nil:
		*s.Stamp = a.stamp
	default:
		stamp := a.stamp
		s.Stamp = &stamp
	}
	s.Desc = a.Desc(s.Kind, r, c)
}

// Outcome returns how the span ended.
func (a *Attributes) Outcome() Outcome {
	switch {
	case a.timedOut && !a.refused: // a deadline that cannot be read is refused under such a name, too
		return OutcomeTimedOut
	case a.cancelled:
		return OutcomeCancelled
	case a.failed:
		return OutcomeFailed
	}
	return OutcomeOK
}

// Desc returns the description of the span. Its operation is the first of
//
//	http.route or url.template, with the method      GET /users/{id}
//	rpc.service and rpc.method                       pkg.Service/Method
//	db.query.summary, or operation and collection    SELECT orders
//	messaging operation and destination              publish orders
//	the name of the span
//
// with ids folded to {id}. An HTTP method that no attribute has is taken from the
// span name, if that ends with the method and the route. A gRPC method has one
// form in all spellings of span names: no leading slash and no "Sent.", "Recv."
// or "Attempt." before it.
func (a *Attributes) Desc(kind Kind, r Resource, c *Cache) *Desc {
	// The spans of a source say the same few things over and over.
	said := c.said[:0]
	said = append(said, byte(kind), byte(len(r.Service)), byte(len(r.Host)))
	said = append(append(said, r.Service...), r.Host...)
	for has := a.has & describing; has != 0; has &= has - 1 {
		key := bits.TrailingZeros32(has)
		n := a.refs[key].n - 1
		said = append(said, byte(key), byte(n))
		if a.refs[key].off == inTexts {
			said = append(said, a.texts[key]...)
		} else {
			said = append(said, a.buf[a.refs[key].off:][:n]...)
		}
	}
	c.said = said
	if len(said) > maxSaid {
		a.operation(kind)
		return describe(c, r.Service, a.op, a.peer(kind), r.Host)
	}
	if c.memo == nil {
		c.memo, c.seed = make([]saying, 1<<10), maphash.MakeSeed()
	}
	m := &c.memo[maphash.Bytes(c.seed, said)%uint64(len(c.memo))]
	if m.desc == nil || !bytes.Equal(m.said, said) {
		a.operation(kind)
		m.desc = describe(c, r.Service, a.op, a.peer(kind), r.Host)
		m.said = append(m.said[:0], said...)
	}
	return m.desc
}

// operation composes the operation in a.op.
func (a *Attributes) operation(kind Kind) {
	op := a.op[:0]
	method := a.text(attrMethod)
	if string(method) == "_OTHER" { // the placeholder of OpenTelemetry for unknown methods
		method = []byte("HTTP")
	}
	route := a.firstOf(attrRoute, attrURLTemplate)
	if route != nil && len(method) == 0 && kind != KindInternal {
		method = a.methodInName(route)
	}
	if kind == KindInternal && len(method) == 0 {
		route = nil // middleware inside a server repeats the route, but is named after itself
	}
	rpcMethod := bytes.TrimPrefix(a.text(attrRPCMethod), []byte("/"))
	switch {
	case route != nil:
		op = appendPair(op, method, ' ', route)
	case len(rpcMethod) > 0 && bytes.IndexByte(rpcMethod, '/') > 0:
		op = append(op, rpcMethod...)
	case len(rpcMethod) > 0 && len(a.text(attrRPCService)) > 0:
		op = appendPair(op, a.text(attrRPCService), '/', rpcMethod)
	case len(a.text(attrDBSummary)) > 0:
		op = append(op, a.text(attrDBSummary)...)
	case len(a.text(attrDBOperation)) > 0 && len(a.text(attrDBCollection)) > 0:
		op = appendPair(op, a.text(attrDBOperation), ' ', a.text(attrDBCollection))
	case len(a.text(attrMessagingOperation)) > 0 && a.firstOf(attrDestinationTemplate, attrDestination) != nil:
		op = appendPair(op, a.text(attrMessagingOperation), ' ', a.firstOf(attrDestinationTemplate, attrDestination))
	default:
		op = appendRPCName(op, a.text(AttrSpanName))
	}
	a.op, a.spare = foldIDs(op, a.spare[:0])
}

// methodInName returns the method of a span that has none but in its name: the
// upper-case word before the route, as in "POST /checkout". Without it, requests
// of different methods would be one operation.
func (a *Attributes) methodInName(route []byte) []byte {
	name := a.text(AttrSpanName)
	space := bytes.LastIndexByte(name, ' ')
	if space < 0 {
		return nil
	}
	method := name[bytes.LastIndexByte(name[:space], ' ')+1 : space]
	for _, c := range method {
		if c < 'A' || c > 'Z' {
			return nil
		}
	}
	// The buffers are free until the operation is composed.
	path, _ := foldIDs(name[space+1:], a.op[:0])
	route, _ = foldIDs(route, a.spare[:0])
	if !bytes.Equal(path, route) {
		return nil
	}
	return method
}

func appendPair(dst, first []byte, sep byte, second []byte) []byte {
	if len(first) > 0 {
		dst = append(append(dst, first...), sep)
	}
	return append(dst, second...)
}

// appendRPCName appends a span name; a gRPC method in it loses the marks by
// which instrumentations tell client from server.
func appendRPCName(dst, name []byte) []byte {
	for _, prefix := range []string{"Sent.", "Recv.", "Attempt."} {
		rest, ok := bytes.CutPrefix(name, []byte(prefix))
		if !ok {
			continue
		}
		start := len(dst)
		dst = append(dst, rest...)
		// These instrumentations also write the slash as a dot.
		if bytes.IndexByte(rest, '/') < 0 {
			if dot := bytes.LastIndexByte(rest, '.'); dot > 0 {
				dst[start+dot] = '/'
			}
		}
		return dst
	}
	if isGRPCPath(name) {
		name = name[1:]
	}
	return append(dst, name...)
}

// isGRPCPath tells whether name reads "/pkg.Service/Method".
func isGRPCPath(name []byte) bool {
	if len(name) == 0 || name[0] != '/' {
		return false
	}
	service, method, ok := bytes.Cut(name[1:], []byte("/"))
	if !ok || len(method) == 0 || method[0] < 'A' || method[0] > 'Z' || bytes.IndexByte(service, '.') <= 0 {
		return false
	}
	for _, c := range service {
		if !isAlnum(c) && c != '.' && c != '_' {
			return false
		}
	}
	for _, c := range method {
		if !isAlnum(c) && c != '_' {
			return false
		}
	}
	return true
}

// peer names the callee. A server's peer is its caller, which is no callee.
func (a *Attributes) peer(kind Kind) []byte {
	if kind == KindServer || kind == KindConsumer {
		return nil
	}
	p := a.firstOf(AttrPeerService, attrDBSystem, attrMessagingSystem)
	if p == nil {
		p = withoutPort(a.text(attrServerAddress))
	}
	if isIP(p) {
		return []byte("{ip}")
	}
	return p
}

// withoutPort cuts ":8080" off a host, and the brackets of an IPv6 literal.
func withoutPort(host []byte) []byte {
	if len(host) > 0 && host[0] == '[' {
		if end := bytes.IndexByte(host, ']'); end > 0 {
			return host[1:end]
		}
	}
	colon := bytes.LastIndexByte(host, ':')
	if colon > 0 && bytes.IndexByte(host, ':') == colon && allDigits(host[colon+1:]) {
		return host[:colon]
	}
	return host
}

// isIP tells whether host is an IPv4 or IPv6 literal.
func isIP(host []byte) bool {
	dots, colons := bytes.Count(host, []byte(".")), bytes.Count(host, []byte(":"))
	if colons == 0 {
		if dots != 3 {
			return false
		}
		for part := range bytes.SplitSeq(host, []byte(".")) {
			if len(part) == 0 || len(part) > 3 || !allDigits(part) {
				return false
			}
		}
		return true
	}
	if zone := bytes.IndexByte(host, '%'); zone >= 0 {
		host = host[:zone]
	}
	for _, c := range host {
		if !isHex(c) && c != ':' && c != '.' {
			return false
		}
	}
	return colons >= 2
}

// foldIDs replaces ids by "{id}" and cuts the query off a path. Only what
// stands between delimiters is an id: a UUID, 16 or more hex digits, 6 or more
// decimal digits, or a path segment of decimal digits only. All other text stays
// as it is, in whatever script. It returns the result, which is in s or in
// spare, and the other of the two for the next time.
func foldIDs(s, spare []byte) (folded, rest []byte) {
	if q := bytes.IndexByte(s, '?'); q > 0 && bytes.IndexByte(s[:q], '/') >= 0 {
		s = s[:q]
	}
	found, last := false, 0 // s[:last] is in spare
	for i := 0; i < len(s); {
		if !isAlnum(s[i]) || i > 0 && !isDelimiter(s[i-1]) {
			i++
			continue
		}
		n := idLen(s, i)
		if n == 0 {
			i++
			continue
		}
		spare = append(append(spare, s[last:i]...), "{id}"...)
		i += n
		last, found = i, true
	}
	if !found {
		return s, spare
	}
	return append(spare, s[last:]...), s
}

// idLen returns the length of the id that starts at s[i], or 0.
func idLen(s []byte, i int) int {
	if n := uuidLen(s[i:]); n > 0 && (i+n == len(s) || isDelimiter(s[i+n])) {
		return n
	}
	digits, letters, n := 0, 0, 0
	for ; i+n < len(s) && isHex(s[i+n]); n++ {
		if isDigit(s[i+n]) {
			digits++
		} else {
			letters++
		}
	}
	end := i + n
	if end < len(s) && !isDelimiter(s[end]) {
		return 0
	}
	switch {
	case digits > 0 && n >= 16, letters == 0 && n >= 6:
		return n
	case letters == 0 && n > 0 && i > 0 && s[i-1] == '/' && (end == len(s) || s[end] == '/' || s[end] == ' '):
		return n
	}
	return 0
}

// uuidLen returns 36 if s starts with a UUID, else 0.
func uuidLen(s []byte) int {
	const n = 36
	if len(s) < n {
		return 0
	}
	for i := range n {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return 0
			}
		default:
			if !isHex(s[i]) {
				return 0
			}
		}
	}
	return n
}

// isDelimiter tells whether c may stand beside an id.
func isDelimiter(c byte) bool {
	return c < 0x80 && c > 0x1f && !isAlnum(c)
}

func isAlnum(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func allDigits(s []byte) bool {
	for _, c := range s {
		if !isDigit(c) {
			return false
		}
	}
	return len(s) > 0
}

// parseInt reads a short decimal number.
func parseInt(s []byte) (int64, bool) {
	if !allDigits(s) || len(s) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range s {
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// foldEqual compares with a lower-case ASCII word, ignoring ASCII case.
func foldEqual(s []byte, lower string) bool {
	return len(s) == len(lower) && foldPrefix(s, lower)
}

func foldPrefix(s []byte, lower string) bool {
	if len(s) < len(lower) {
		return false
	}
	for i := range len(lower) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func foldContains(s []byte, lower string) bool {
	for i := range s {
		if foldPrefix(s[i:], lower) {
			return true
		}
	}
	return false
}

// ParseKind reads a span kind written as a word or as OTLP's number, with or
// without "SPAN_KIND_" before it, in any case.
func ParseKind(s []byte) (Kind, bool) {
	const prefix = "span_kind_"
	if foldPrefix(s, prefix) {
		s = s[len(prefix):]
	}
	if len(s) == 1 && s[0] >= '0' && s[0] <= '5' {
		return Kind(s[0] - '0'), true
	}
	for k := KindUnspecified; k <= KindConsumer; k++ {
		if foldEqual(s, k.String()) {
			return k, true
		}
	}
	return KindUnspecified, false
}

// ParseThreshold reads the rejection threshold T of OpenTelemetry's
// probability sampling, the sub-key th of the vendor key ot, from a W3C
// tracestate: 1 to 14 hex digits, padded on the right to 56 bits. A span with
// threshold T stands for 2^56/(2^56-T) spans. present tells that a th was
// there, ok that it could be read.
func ParseThreshold[T ~string | ~[]byte](tracestate T) (t uint64, present, ok bool) {
	for i := 0; i < len(tracestate); {
		end := i
		for end < len(tracestate) && tracestate[end] != ',' {
			end++
		}
		for i < end && (tracestate[i] == ' ' || tracestate[i] == '\t') {
			i++
		}
		if end-i >= 3 && string(tracestate[i:i+3]) == "ot=" {
			return thresholdOf(tracestate[i+3 : end])
		}
		i = end + 1
	}
	return 0, false, false
}

// thresholdOf finds th in the value of the ot member.
func thresholdOf[T ~string | ~[]byte](member T) (t uint64, present, ok bool) {
	for i := 0; i < len(member); {
		end := i
		for end < len(member) && member[end] != ';' {
			end++
		}
		if end-i >= 3 && string(member[i:i+3]) == "th:" {
			value := member[i+3 : end]
			for len(value) > 0 && (value[len(value)-1] == ' ' || value[len(value)-1] == '\t') {
				value = value[:len(value)-1]
			}
			t, ok = parseThresholdDigits(value)
			return t, true, ok
		}
		i = end + 1
	}
	return 0, false, false
}

func parseThresholdDigits[T ~string | ~[]byte](digits T) (uint64, bool) {
	const width = 14 // hex digits of 56 bits
	if len(digits) == 0 || len(digits) > width {
		return 0, false
	}
	var t uint64
	for i := range len(digits) {
		c := digits[i]
		switch {
		case isDigit(c):
			t = t<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			t = t<<4 | uint64(c-'a'+10)
		case c >= 'A' && c <= 'F':
			t = t<<4 | uint64(c-'A'+10)
		default:
			return 0, false
		}
	}
	return t << (4 * (width - len(digits))), true
}

// Interner makes equal descriptions one, so that spans of one source can share
// and compare them by pointer. The zero value is ready. Goroutines use it
// through a [Cache] each.
type Interner struct {
	mu    sync.Mutex
	texts map[string]string
	descs map[string]*Desc
	bytes int
}

// NewCache returns a view of the interner for one goroutine, which takes the
// lock only for what it has not met yet.
func (in *Interner) NewCache() *Cache { return &Cache{in: in} }

// Len returns the number of descriptions.
func (in *Interner) Len() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.descs)
}

// Bytes returns how much text the interner and one cache of it hold.
func (in *Interner) Bytes() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.bytes
}

// Cache is one goroutine's view of an [Interner].
type Cache struct {
	in    *Interner
	texts map[string]string
	descs map[string]*Desc
	key   []byte

	said []byte // scratch of Desc
	memo []saying
	seed maphash.Seed
}

// saying is what a span said of itself, and how it was described.
type saying struct {
	said []byte
	desc *Desc
}

// maxSaid bounds what is kept of a saying. It is also below what lengths of one byte
// can tell apart.
const maxSaid = 250

// maxCached bounds a cache, which is a copy that speeds up the usual case of
// few descriptions; the interner itself keeps what spans refer to anyway.
const maxCached = 1 << 16

// text returns s as a string, one copy for equal texts.
func (c *Cache) text(s []byte) string {
	if len(s) == 0 {
		return ""
	}
	if t, ok := c.texts[string(s)]; ok {
		return t
	}
	c.in.mu.Lock()
	t := internText(c.in, s)
	c.in.mu.Unlock()
	if c.texts == nil || len(c.texts) >= maxCached {
		c.texts = make(map[string]string)
	}
	c.texts[t] = t
	return t
}

// internText is called with the lock held.
func internText[T ~string | ~[]byte](in *Interner, s T) string {
	if t, ok := in.texts[string(s)]; ok {
		return t
	}
	if in.texts == nil {
		in.texts = make(map[string]string)
	}
	t := string(s)
	in.texts[t] = t
	in.bytes += len(t)
	return t
}

// describe returns the one description with these texts.
func describe[T ~string | ~[]byte](c *Cache, service string, operation, peer T, host string) *Desc {
	// Lengths before the texts keep keys of hostile texts apart.
	k := binary.AppendUvarint(c.key[:0], uint64(len(service)))
	k = binary.AppendUvarint(k, uint64(len(operation)))
	k = binary.AppendUvarint(k, uint64(len(peer)))
	k = append(append(append(append(k, service...), operation...), peer...), host...)
	c.key = k
	if d, ok := c.descs[string(k)]; ok {
		return d
	}
	c.in.mu.Lock()
	d := c.in.descs[string(k)]
	if d == nil {
		d = &Desc{
			Service:   internText(c.in, service),
			Operation: internText(c.in, operation),
			Peer:      internText(c.in, peer),
			Host:      internText(c.in, host),
		}
		if c.in.descs == nil {
			c.in.descs = make(map[string]*Desc)
		}
		c.in.descs[string(k)] = d
		c.in.bytes += 2 * len(k) // the cache has a key of its own
	}
	c.in.mu.Unlock()
	if c.descs == nil || len(c.descs) >= maxCached {
		c.descs = make(map[string]*Desc)
	}
	c.descs[string(k)] = d
	return d
}

// WithResource returns the description d has when its span was made by r. It
// serves formats that name the process of a span after the span.
func (c *Cache) WithResource(d *Desc, r Resource) *Desc {
	return describe(c, r.Service, d.Operation, d.Peer, r.Host)
}
