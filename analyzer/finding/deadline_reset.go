package finding

import (
	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var deadlineReset = Rule{
	Name: "deadline-reset", Severity: Error, Flag: attr.FlagDeadlineExtended,
	Summary: "A hop replaced the request's deadline by a later one, so it and everything behind it may run on " +
		"when nobody waits any more.",
	Formula: "deadline.remaining − remaining.start > tolerance, or what is left grows from one span to the next below it. " +
		"Named is the first hop that grew: one that hands on the later deadline it was given is not.",
	Tolerance: "The larger of 5 ms and 4 % of what was left, as often as it was sent by services that say nothing, and 50 ms more where the deadline was sent as a point in time. " +
		"Between two processes durations are compared, never points in time.",
	Mistakes: "A service that detaches work on purpose looks the same if somebody seems to wait for it. A hop that gives " +
		"less than it has is never a finding. Services that say nothing are taken to pass on what they were given. What rests on " +
		"an announcement that another span than the caller wrote alone is marked so: a service that copies headers into a job of its own " +
		"looks the same. Without budget attributes a reset does not show.",
	Remedy: "Have the named service derive the deadline of the call from the context of the request: a timeout on that " +
		"makes it earlier, never later. Look for a fresh or detached context, for a header with a fixed value, and " +
		"for a proxy that sets one.",
	text: "a deadline up to %s later than what was left", by: ", set by ",
	check: func(r *Request, report func(Finding)) {
		r.waited(func(i int32, c *trace.Call) {
			for _, half := range [...]int32{c.Span, c.Callee} {
				grew := r.grew(c, half)
				if grew <= 0 {
					continue
				}
				by := r.span(half).Desc.Service
				if r.span(half).Kind == trace.KindServer { // where it arrived: who wrote it does not show
					by += ", or the call to it"
				}
				if above, _, _ := r.above(c, half); above == nil && r.span(half).Stamp.Stale {
					by += " (low confidence: its announcement was not its caller's)"
				}
				report(Finding{Call: i, Span: half, Amount: grew, By: by})
				return
			}
		})
	},
}

// grew returns by how much the deadline of a half of a call is later than
// everything it could have been handed, 0 where it is not.
//
//	SERVER  |== 2000 left ==========================
//	CLIENT     |== 1990 left, deadline 1990 ========   handed on
//	CLIENT     |== 1990 left, deadline 15000 =======   grew by 13010
//	  SERVER    |== 1989 left, deadline 14999 ======   handed on: the same reset
func (r *Request) grew(c *trace.Call, half int32) int64 {
	s := r.span(half)
	ns, known := left(s)
	if !known {
		return 0
	}
	limit, deadline := ns, ns
	if s.Stamp.HasDeadline {
		deadline = s.Stamp.DeadlineRemaining
	}
	above, gap, sent := r.above(c, half)
	absolute := s.Stamp.Absolute
	if above != nil {
		absolute = absolute || above.Stamp.Absolute && !oneClock(above, s)
		if ns, known := left(above); known && (above.Stamp.HasRemaining || !above.Stamp.Derived) { // else it is of a proxy
			limit = min(limit, ns-gap)
		}
		if above.Stamp.HasDeadline {
			handed := above.Stamp.DeadlineRemaining - gap
			if deadline <= handed+r.sentTolerance(handed, sent, absolute) {
				return 0
			}
		}
	}
	if grew := deadline - limit; grew > r.sentTolerance(limit, sent, absolute) {
		return grew
	}
	return 0
}

// above returns the span that handed its deadline to a half of a call, and what
// of it had passed by then: known within one process, taken to be nothing
// between two, whose clocks may differ. Spans that do not say what they had pass
// on what the one above them had, if any does; sent is how often it was sent on the way.
func (r *Request) above(c *trace.Call, half int32) (s *trace.Span, gap, sent int64) {
	if r.span(half).Kind == trace.KindServer {
		sent = 1
	}
	if half != c.Span {
		if exit := r.span(c.Span); knows(exit) {
			return exit, 0, sent
		}
	}
	if c.Parent < 0 {
		return nil, 0, 0
	}
	maker := r.span(c.Maker)
	gap = passed(maker, r.span(c.Span))
	if knows(maker) {
		return maker, gap, sent
	}
	if from := r.givers()[c.Parent]; from.span >= 0 {
		return r.span(from.span), from.gap + gap, from.sent + sent
	}
	return nil, 0, 0
}

// giver is the nearest span, at the callee of a call or above it, that says what it
// had, what had passed of that when the callee began, and how often it had been sent
// by then; span is -1 for none.
type giver struct {
	span      int32
	gap, sent int64
}

// givers returns the giver of each call. They are made once.
func (r *Request) givers() []giver {
	for len(r.given) < len(r.tree.Calls) { // parents come first
		c := &r.tree.Calls[len(r.given)]
		g := giver{span: -1}
		if r.span(c.Callee).Kind == trace.KindServer {
			g.sent = 1
		}
		switch {
		case knows(r.span(c.Callee)):
			g.span, g.sent = c.Callee, 0
		case knows(r.span(c.Span)):
			g.span = c.Span
		case c.Parent >= 0 && r.given[c.Parent].span >= 0:
			from := r.given[c.Parent]
			g.span, g.gap, g.sent = from.span, from.gap, from.sent+g.sent
			g.gap += passed(r.span(r.tree.Calls[c.Parent].Callee), r.span(c.Span))
		}
		r.given = append(r.given, g)
	}
	return r.given
}

// knows tells whether a span says what it had.
func knows(s *trace.Span) bool { _, known := left(s); return known }

// passed is the time from the start of a span to that of one it made; nothing where
// no clock measured it.
func passed(maker, s *trace.Span) int64 {
	if !oneClock(maker, s) {
		return 0
	}
	return max(s.Start-maker.Start, 0)
}
