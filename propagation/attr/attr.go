// Package attr names the attributes that carry a latency budget on spans, and
// the values of those that are enumerations. It holds constants only and
// imports nothing, so that a reader of spans needs no OpenTelemetry library to
// know them.
//
// Durations are doubles in seconds, rounded to one microsecond. Shares are
// doubles without unit. No metric carries these names except
// latency_budget.utilization and latency_budget.limit, which mean the same there,
// and latency_budget.findings, which counts them.
package attr

// Attributes that say how much of a budget there was. All figures named start
// refer to the start time of the span that carries them.
const (
	// Limit is the total budget of the request, as first observed at the origin
	// of the chain. Double, seconds; 0 where nothing was left then.
	Limit = "latency_budget.limit"
	// RemainingStart is what was left at the start of the span: the earlier of
	// the inherited deadline and the deadline of the context. Double, seconds;
	// 0 or less where the span began too late.
	RemainingStart = "latency_budget.remaining.start"
	// RemainingEnd is RemainingStart less the duration of the span. Double,
	// seconds; negative on an overrun.
	RemainingEnd = "latency_budget.remaining.end"
	// Utilization is elapsed / budget of one hop: the duration of the span over
	// the smaller of RemainingStart and the budget that the plan gives the hop.
	// Double; absent where that budget is not positive.
	Utilization = "latency_budget.utilization"
	// Consumed is the share of the request's limit that was spent when the span
	// ended: (limit - remaining.end) / limit. Double; above 1 on an overrun.
	Consumed = "latency_budget.consumed"
	// Source says where RemainingStart comes from: one of the Source constants.
	Source = "latency_budget.source"
	// SourceHeaderName is the authority header that was read, in lower case,
	// where Source is SourceHeaderRelative or SourceHeaderAbsolute. String.
	SourceHeaderName = "latency_budget.source.header"
	// DeadlineRemaining is the deadline of the context less the start of the
	// span, not clamped. Double, seconds; absent where the context has none.
	DeadlineRemaining = "latency_budget.deadline.remaining"
	// AnnouncedRemaining is the value that came with the request, untouched.
	// Double, seconds; absent without a valid announcement from a valid parent.
	AnnouncedRemaining = "latency_budget.announced.remaining"
	// AnnouncedFresh tells whether the announcement was written by the parent of
	// the span. False: by an earlier one, so it is an upper bound. Boolean.
	AnnouncedFresh = "latency_budget.announced.fresh"
	// AnnouncedSpanID is the span that wrote an announcement that is not fresh,
	// as 16 hexadecimal digits. String.
	AnnouncedSpanID = "latency_budget.announced.span_id"
	// Hop counts the announcements on the way: on an entry span the number that
	// came, on an exit span the number it sends. The origin sends 1. Int.
	Hop = "latency_budget.hop"
	// Reset is true where the context's deadline lies later than the inherited
	// one. Boolean.
	Reset = "latency_budget.reset"
	// Flags lists what is wrong with the budget of the span: Flag constants,
	// sorted. String array; absent if empty.
	Flags = "latency_budget.flags"
	// Degraded lists the dependencies that were skipped or answered by a
	// fallback. String array, sorted.
	Degraded = "latency_budget.degraded"
	// Detached is true where nobody waits for the span, nor for anything below it:
	// it is meant to outlive the request. Boolean.
	Detached = "latency_budget.detached"
)

// Attributes of whoever judges whole traces: the Collector processor and the
// analyzer. Services do not set them.
const (
	// Caller names the calling service of a judged hop. String.
	Caller = "latency_budget.caller"
	// Callee names the called service of a judged hop. String.
	Callee = "latency_budget.callee"
	// Operation names the operation of a judged hop. String.
	Operation = "latency_budget.operation"
	// PlanRevision is the revision of the plan that the hop was judged against. String.
	PlanRevision = "latency_budget.plan.revision"
	// WorkAfter is the time that was worked after the deadline. Double, seconds.
	WorkAfter = "latency_budget.work_after"
	// Attempt is the number of a call's attempt, 1 for the first. Int.
	Attempt = "latency_budget.attempt"
	// Findings lists the flags of the rules that name this span, sorted: of a
	// deadline that was reset, only the first hop that did has it here. Flags has
	// also those that services stamped, at every hop that saw the reset. String array.
	Findings = "latency_budget.findings"
	// Partial is true where the span was judged without the whole trace. Boolean.
	Partial = "latency_budget.partial"
)

// Values of Source.
const (
	SourceContext        = "context"         // the deadline of the context
	SourceAnnounced      = "announced"       // the announcement of the caller
	SourceHeaderRelative = "header_relative" // an authority header in milliseconds from now
	SourceHeaderAbsolute = "header_absolute" // an authority header with a point in time: clocks must agree
	SourceParentSpan     = "parent_span"     // the attributes of the parent span: the context had lost the lineage
	SourceDerived        = "derived"         // computed later, from spans
)

// Values of Flags that a service can tell at the start of a span.
const (
	FlagAnnouncementInvalid = "announcement_invalid" // the header is there, but unreadable or repeated
	FlagAnnouncementStale   = "announcement_stale"   // the header was written by a span that is not the parent
	FlagClockSkewSuspected  = "clock_skew_suspected" // an absolute deadline disagrees by what clocks may be apart
	FlagDeadlineDropped     = "deadline_dropped"     // a call without a deadline, though one was inherited
	FlagDeadlineExtended    = "deadline_extended"    // a deadline later than the inherited one
	FlagExhaustedAtStart    = "exhausted_at_start"   // nothing was left when the span began
)

// Values of Flags that need the end of the span, or a plan.
const (
	FlagOverrun           = "overrun"            // the span ended after its deadline
	FlagBudgetUtilization = "budget_utilization" // utilization above the threshold
)

// Values of Flags that need other spans of the trace.
const (
	FlagDoomedCall        = "doomed_call"         // sent with less remaining than the call's floor
	FlagCallAfterDeadline = "call_after_deadline" // started when the deadline had passed
	FlagWorkAfterDeadline = "work_after_deadline" // went on when the deadline had passed
	FlagRetryOverspend    = "retry_overspend"     // an attempt given more than was left
	FlagQueueWait         = "queue_wait"          // budget spent between sending and start of work
	FlagOutcomeUnknown    = "outcome_unknown"     // the caller gave up on work that went on
	FlagTraceRestarted    = "trace_restarted"     // a call that began a trace of its own
)
