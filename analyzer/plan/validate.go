package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Validate returns everything that is wrong with a plan, as [Errors]. Of a plan
// without errors it holds that
//
//   - no hop that somebody waits for has more than its caller, neither share
//     nor cap,
//   - the shares of calls in sequence and the reserve are no more than the
//     share of their caller,
//   - floor <= share <= cap, and all attempts with the pauses between them are
//     no more than the share.
func (p *Plan) Validate() error {
	return p.check(func(any) int { return 0 }).orNil()
}

// maxSiblings is the most hops that one caller may call: order is looked at in pairs.
const maxSiblings = 10_000

// MaxDepth is the most hops that may stand below each other, the endpoint not
// counted. Every level is indented, so that a file grows with the square of it.
const MaxDepth = 200

// checker looks for what is wrong, and knows the lines of values.
type checker struct {
	line func(value any) int
	errs Errors
}

func (p *Plan) check(line func(value any) int) Errors {
	c := checker{line: line}
	if p.Version != Version {
		c.fail(&p.Version, "version %d: this program reads version %d", p.Version, Version)
	}
	if p.Revision == "" {
		c.fail(p, "revision is missing: write any text that names this state of the plan")
	} else {
		c.text(&p.Revision, "revision")
		if strings.ContainsFunc(p.Revision, unicode.IsControl) {
			c.fail(&p.Revision, "revision %q: it must be one line", p.Revision)
		}
	}
	for _, r := range []*RatioLimit{&p.Gate.Expansions, &p.Gate.CallsAfterDeadline, &p.Gate.DeadlineMiss} {
		if !(r.Ratio >= 0 && r.Ratio <= 1) {
			c.fail(r, "gate: a ratio of %v is not from 0%% to 100%%", float64(r.Ratio))
		}
	}
	c.duration(&p.Gate.StopAfterCancelP99.Duration, "gate: stop_after_cancel_p99")
	if len(p.Endpoints) == 0 {
		c.fail(p, "endpoints are missing: a plan is about one at least")
	}
	seen := make(map[string]int)
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		c.endpoint(e)
		if first, twice := seen[e.Key()]; twice {
			c.fail(e, "endpoint %s: there already%s", e.Key(), inLine(line(&p.Endpoints[first])))
		} else {
			seen[e.Key()] = i
		}
	}
	return c.errs
}

func inLine(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", in line %d", n)
}

// fail notes an error at the line of a value.
func (c *checker) fail(value any, format string, args ...any) {
	c.errs = append(c.errs, &Error{Line: c.line(value), Text: oneLine(fmt.Sprintf(format, args...))})
}

// text checks that a text can be written and read again.
func (c *checker) text(value *string, what string) {
	if !utf8.ValidString(*value) {
		c.fail(value, "%s %q: it must be UTF-8", what, *value)
	}
}

func (c *checker) duration(value *Duration, what string) {
	if *value < 0 || *value > Most {
		c.fail(value, "%s %v: want 0 to %v", what, *value, Most)
	}
}

// place is a caller on the way from the endpoint to a hop.
type place struct {
	key          string
	share, limit Duration // limit is the cap, or the share where there is none
	service      string
}

func (c *checker) endpoint(e *Endpoint) {
	c.text(&e.Service, "service")
	c.text(&e.Operation, "operation")
	if e.Key() == "" {
		c.fail(e, "an endpoint needs a service and an operation")
	}
	what := "endpoint " + e.Key()
	if e.Budget == 0 {
		c.fail(e, "%s: budget is missing", what)
	}
	c.times(what, &e.Budget, "budget", []named{{"reserve", &e.Reserve}, {"tail", &e.Tail}})
	c.evidence(what, e.Evidence)
	c.hops(e.Hops, []place{{e.Key(), e.Budget, e.Budget, e.Service}}, &e.Budget, e.Reserve)
}

// named is a duration under its key.
type named struct {
	key   string
	value *Duration
}

// times checks durations of their own, and against the time that they are part of.
func (c *checker) times(what string, whole *Duration, wholeKey string, parts []named) {
	c.duration(whole, what+": "+wholeKey)
	for _, part := range parts {
		c.duration(part.value, what+": "+part.key)
		if *whole > 0 && *part.value > *whole {
			c.fail(part.value, "%s: %s %v is more than its %s of %v", what, part.key, *part.value, wholeKey, *whole)
		}
	}
}

func (c *checker) evidence(what string, e *Evidence) {
	if e != nil && len(e.P99Interval) != 0 && len(e.P99Interval) != 2 {
		c.fail(&e.P99Interval, "%s: p99_interval: want two durations, low and high, or null where one is not known", what)
	}
}

// hops checks the calls that the last of way makes. share is the number of that
// caller which they must fit in; nil where nobody waits for any of them.
func (c *checker) hops(hops []Hop, way []place, share *Duration, reserve Duration) {
	switch {
	case len(hops) > maxSiblings:
		c.fail(&hops[maxSiblings], "%d hops beside each other: want %d at most", len(hops), maxSiblings)
		return
	case len(hops) > 0 && len(way) > MaxDepth:
		c.fail(&hops[0], "%s: more than %d hops below each other", hops[0].Key(), MaxDepth)
		return
	}
	index := c.keys(hops)
	for i := range hops {
		h := &hops[i]
		c.hop(h, way[len(way)-1].service)
		limit := max(h.Cap, h.Share)
		waited := share != nil && !h.Async
		if waited {
			c.outlives(h, way)
		}
		way = append(way, place{h.Key(), h.Share, limit, h.Callee})
		if waited {
			c.hops(h.Hops, way, &h.Share, h.Reserve)
		} else {
			c.hops(h.Hops, way, nil, 0)
		}
		way = way[:len(way)-1]
		for j := range h.After {
			name := &h.After[j]
			switch before, known := index[*name]; {
			case !known:
				c.fail(name, "%s: after %q: no hop beside it has this name; %s", h.Key(), *name, others(hops, i))
			case before == i:
				c.fail(name, "%s: after itself", h.Key())
			case hops[before].Async && !h.Async:
				c.fail(name, "%s: after %q: nobody waits for that hop", h.Key(), *name)
			}
		}
	}
	chain, sum, circle := longest(hops)
	switch {
	case len(circle) > 0:
		c.fail(&circle[0].After, "the order is circular: %s", joined(circle, " after ", func(h *Hop) string { return h.Key() }))
	case share != nil && *share > 0 && reserve <= *share && saturating(sum, reserve) > *share &&
		!slices.ContainsFunc(chain, func(h *Hop) bool { return h.Share > *share }): // said already
		total := saturating(sum, reserve)
		kept := ""
		if reserve > 0 {
			kept = " + reserve " + reserve.String()
		}
		c.fail(share, "%s has %v, but its calls in sequence take %v: %s%s: %v too much", way[len(way)-1].key, *share, total,
			joined(chain, " + ", func(h *Hop) string { return h.Key() + " " + h.Share.String() }), kept, total-*share)
	}
}

// keys returns the index of each hop by its key, and checks that no two have the
// same.
func (c *checker) keys(hops []Hop) map[string]int {
	index := make(map[string]int, len(hops))
	for i := range hops {
		h := &hops[i]
		if first, twice := index[h.Key()]; twice {
			c.fail(h, "hop %s: there already beside it%s", h.Key(), inLine(c.line(&hops[first])))
			continue
		}
		index[h.Key()] = i
	}
	return index
}

// hop checks a hop by itself.
func (c *checker) hop(h *Hop, caller string) {
	c.text(&h.Callee, "callee")
	c.text(&h.Operation, "operation")
	if h.Key() == "" {
		c.fail(h, "a hop needs a callee and an operation")
	}
	key := h.Key()
	if h.Stage && h.Callee != caller {
		c.fail(&h.Callee, "%s: a stage is work of its caller: callee must be %q", key, caller)
	}
	c.times(key, &h.Share, "share", []named{
		{"floor", &h.Floor},
		{"reserve", &h.Reserve},
		{"tail", &h.Tail},
		{"max_queue", &h.MaxQueue},
		{"attempt_timeout", &h.AttemptTimeout},
		{"backoff", &h.Backoff},
	})
	c.duration(&h.Cap, key+": cap")
	c.duration(&h.Max, key+": max")
	if h.Max != 0 && max(h.Share, h.Cap) > h.Max {
		c.fail(&h.Max, "%s: max %v is less than its share of %v or its cap of %v", key, h.Max, h.Share, max(h.Cap, h.Share))
	}
	if h.Cap != 0 && h.Cap < h.Share {
		c.fail(&h.Cap, "%s: cap %v is less than its share of %v", key, h.Cap, h.Share)
	}
	switch {
	case h.MaxAttempts < 0:
		c.fail(&h.MaxAttempts, "%s: max_attempts %d is less than 0", key, h.MaxAttempts)
	case h.MaxAttempts > 1 && h.AttemptTimeout == 0:
		c.fail(&h.MaxAttempts, "%s: max_attempts %d: an attempt_timeout is needed, or the first attempt may take all", key, h.MaxAttempts)
	case h.MaxAttempts > 1 && h.Share > 0:
		n := Duration(h.MaxAttempts)
		total := saturating(times(n, h.AttemptTimeout), times(n-1, h.Backoff))
		if total > h.Share {
			pauses := ""
			if h.Backoff > 0 {
				pauses = fmt.Sprintf(" + %d × backoff %v", n-1, h.Backoff)
			}
			c.fail(&h.AttemptTimeout, "%s: %d × attempt_timeout %v%s = %v is more than its share of %v",
				key, n, h.AttemptTimeout, pauses, total, h.Share)
		}
	}
	if h.Exclusive < 0 {
		c.fail(&h.Exclusive, "%s: exclusive %d is less than 0", key, h.Exclusive)
	}
	c.evidence(key, h.Evidence)
}

// outlives checks that a hop that its caller waits for takes no longer than that
// caller.
func (c *checker) outlives(h *Hop, way []place) {
	caller := &way[len(way)-1]
	chain := func(own Duration, of func(*place) Duration) string {
		parts := make([]string, 0, len(way)+1)
		for i := range way {
			parts = append(parts, way[i].key+" "+of(&way[i]).String())
		}
		return strings.Join(abridged(append(parts, h.Key()+" "+own.String())), " > ")
	}
	switch {
	case h.Share == 0:
		c.fail(h, "%s: share is missing; only a hop that nobody waits for (async: true) may have none", h.Key())
	case caller.share > 0 && h.Share > caller.share:
		c.fail(&h.Share, "%s would outlive its caller: %s", h.Key(), chain(h.Share, func(p *place) Duration { return p.share }))
	case caller.limit > 0 && h.Cap > caller.limit:
		c.fail(&h.Cap, "%s would outlive its caller by its cap: %s", h.Key(), chain(h.Cap, func(p *place) Duration { return p.limit }))
	}
}

// others lists the hops beside one.
func others(hops []Hop, self int) string {
	var names []string
	for i := range hops {
		if i != self && len(names) < 10 {
			names = append(names, fmt.Sprintf("%q", hops[i].Key()))
		}
	}
	if len(names) == 0 {
		return "there are none"
	}
	return "there are " + strings.Join(names, ", ")
}

func joined(hops []*Hop, separator string, text func(*Hop) string) string {
	parts := make([]string, len(hops))
	for i, h := range hops {
		parts[i] = text(h)
	}
	return strings.Join(abridged(parts), separator)
}

// abridged leaves out the middle of a long list, so that a message stays one that
// people read.
func abridged(parts []string) []string {
	const each = 6 // at either end
	if left := len(parts) - 2*each; left > 1 {
		return slices.Concat(parts[:each], []string{fmt.Sprintf("(%d more)", left)}, parts[len(parts)-each:])
	}
	return parts
}

// saturating is a sum of times that stops at the largest.
func saturating(a, b Duration) Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// times is n times d, which stops at the largest.
func times(n, d Duration) Duration {
	if d > 0 && n > math.MaxInt64/d {
		return math.MaxInt64
	}
	return n * d
}
