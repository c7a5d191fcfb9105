// Package trace holds the span as the analysis needs it, the assembly of spans
// into traces and call trees, and the critical path of one trace.
//
// The package is pure: it reads no files, no clock and no network, and it knows
// no wire format. Readers (package source) and the Collector processor fill
// [Span] values; everything behind them works on those alone.
package trace

import (
	"cmp"
	"encoding/hex"
)

// TraceID is a W3C trace id; ids of 64 bits stand in the low 8 bytes.
type TraceID [16]byte

// String returns the 32 lower-case hex digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// IsZero tells whether the id is all zero, which no valid trace has.
func (id TraceID) IsZero() bool { return id == TraceID{} }

// Compare orders ids by their bytes.
func (id TraceID) Compare(other TraceID) int {
	for i := range id {
		if c := cmp.Compare(id[i], other[i]); c != 0 {
			return c
		}
	}
	return 0
}

// SpanID is a W3C span id. It is unique only inside its trace.
type SpanID [8]byte

// String returns the 16 lower-case hex digits.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

// IsZero tells whether the id is all zero: as a parent it means "no parent".
func (id SpanID) IsZero() bool { return id == SpanID{} }

// Compare orders ids by their bytes.
func (id SpanID) Compare(other SpanID) int {
	for i := range id {
		if c := cmp.Compare(id[i], other[i]); c != 0 {
			return c
		}
	}
	return 0
}

// Kind is the OpenTelemetry span kind, with OTLP's numbers.
type Kind uint8

// The span kinds. KindUnspecified is inferred from the tree while it is built.
const (
	KindUnspecified Kind = iota
	KindInternal
	KindServer
	KindClient
	KindProducer
	KindConsumer
)

// String returns the lower-case name used by OpenTelemetry.
func (k Kind) String() string {
	switch k {
	case KindInternal:
		return "internal"
	case KindServer:
		return "server"
	case KindClient:
		return "client"
	case KindProducer:
		return "producer"
	case KindConsumer:
		return "consumer"
	}
	return "unspecified"
}

// Outcome is how a span ended, as far as durations care.
type Outcome uint8

// The outcomes. A TimedOut or Cancelled span would have taken longer: its
// duration is a lower bound (right-censored).
const (
	OutcomeOK        Outcome = iota // status unset or ok
	OutcomeFailed                   // an error that is not about time
	OutcomeTimedOut                 // deadline exceeded (gRPC 4, HTTP 504, error.type timeout/deadline)
	OutcomeCancelled                // cancelled by the caller (gRPC 1, HTTP 499)
)

// Flags are single facts of a span.
type Flags uint16

// The flags.
const (
	// FlagUnmeasured: start or end was missing in the export (not zero: unknown).
	FlagUnmeasured Flags = 1 << iota
	// FlagFollowsFrom: the parent does not wait for this span: its parent
	// reference is FOLLOWS_FROM or a span link to a span of the same trace, or
	// latency_budget.detached says so.
	FlagFollowsFrom
	// FlagOutbound: the span carries db.*, peer.*, net.peer.*, server.address
	// or rpc.* attributes, so a span without kind can be told to be a call.
	FlagOutbound
	// FlagThreshold: Threshold was given by a valid `ot=th` of the tracestate.
	FlagThreshold
	// FlagThresholdInvalid: an `ot=th` was there but could not be read.
	FlagThresholdInvalid
	// FlagTailSampled: an attribute of a tail sampler is on the span, so the
	// set it belongs to is not a probability sample.
	FlagTailSampled
	// FlagUnsafe: an HTTP POST or PATCH for which no idempotency key was captured.
	FlagUnsafe
	// FlagStream: the span is a stream of messages, so its duration is a lifetime.
	FlagStream
	// FlagFinal: the span failed by an answer that another try would get again: what
	// it asked for does not exist, is not allowed, or is not understood. Calls that
	// follow are calls of their own, such as those of a loop over items.
	FlagFinal
)

// Desc is what a span says of the work it stands for. Readers intern it: spans
// of one source with the same texts share one Desc, and pointer equality
// within a source means equal content.
type Desc struct {
	Service   string // service.name; "" if the export has none
	Operation string // low-cardinality operation, see [Attributes.Desc]
	Peer      string // callee as the caller names it (peer.service, db.system.name, server.address…); "" if unknown
	Host      string // host.name / ip of the emitting process; "" if unknown
}

// Stamp holds the latency_budget.* attributes of a span, or what captured headers
// and other attributes say in their place; nil where it has none.
//
// The flags that services stamp are not kept: each follows from these figures.
type Stamp struct {
	Limit             int64 // latency_budget.limit, ns; 0 if absent
	Remaining         int64 // latency_budget.remaining.start, ns; may be negative
	DeadlineRemaining int64 // latency_budget.deadline.remaining at span start, ns; may be negative
	Announced         int64 // latency_budget.announced.remaining, ns; may be negative
	HasRemaining      bool  // Remaining was present
	HasDeadline       bool  // DeadlineRemaining was present
	HasAnnounced      bool  // Announced was present
	Stale             bool  // latency_budget.announced.fresh was false: not written by the parent span
	Absolute          bool  // latency_budget.source was header_absolute: the figures rest on two clocks
	Derived           bool  // no service stamped it, but something else on the span says so: a deadline that is absent is not known to be none
}

// The times that are taken, in ns. Within them the end of a span, and sums of a
// few durations, stay far from the bounds of int64. A span beyond them is lost,
// as no real one can be: the latest start is in the year 2116 and the longest
// duration 73 years.
const (
	TimeBound     = 1 << 62 // 0 <= start, end < TimeBound
	DurationBound = 1 << 61 // -DurationBound < duration < DurationBound
)

// Span is one finished span, 88 bytes, texts shared through Desc.
//
//	Start             Start+Duration
//	  |------ span ------|
type Span struct {
	TraceID   TraceID
	ID        SpanID
	Parent    SpanID // zero: none
	Start     int64  // Unix time in ns
	Duration  int64  // end - start in ns, signed; meaningless with FlagUnmeasured
	Threshold uint64 // sampling threshold T of `ot=th`, 56 bits, with FlagThreshold
	Desc      *Desc  // never nil
	Stamp     *Stamp // nil unless the span carries latency_budget.* attributes
	Kind      Kind
	Outcome   Outcome
	Flags     Flags
	Ref       int32 // by which whoever made the span knows it; kept, and of no meaning here
}

// End returns Start+Duration in Unix ns.
func (s *Span) End() int64 { return s.Start + s.Duration }

// Is tells whether all the given flags are set.
func (s *Span) Is(f Flags) bool { return s.Flags&f == f }
