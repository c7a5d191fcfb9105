package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Place says what the findings of a [Tally] are counted by: the rule, the hop as
// the caller numbers it, and who did it.
type Place struct {
	Rule *Rule
	Hop  int32
	By   string
}

// Count is what was found at one place.
type Count struct {
	Place
	Findings int
	Requests int    // requests with such a finding
	Most     int64  // largest amount, in the rule's unit
	Example  string // "TRACEID/SPANID" of a finding with that amount, the smallest of several
	// Of is how many calls the rule has an opinion on, those that it finds nothing
	// wrong with too, and P99 that of their amounts. Both are 0 for rules without it,
	// and P99 is where Of is less than [FewestForP99].
	Of  int
	P99 int64
}

// FewestForP99 is how many calls it takes to tell their P99 from the slowest.
const FewestForP99 = 100

// Text says for people what was found at the place.
func (c *Count) Text() string {
	text := c.Rule.Text(c.Most, c.By)
	switch {
	case c.Of >= FewestForP99:
		text += fmt.Sprintf("; 99 %% of the %d that should have stopped did so within %s", c.Of, milliseconds(c.P99))
	case c.Of > 0:
		text += fmt.Sprintf("; %d should have stopped, too few for a P99", c.Of)
	}
	return text
}

// Tally counts findings. It does not depend on the order of requests, and
// tallies of parts merge into the tally of the whole. The zero value is ready.
type Tally struct {
	counts map[Place]*tallied
	number int32 // of the request that is checked
}

type tallied struct {
	Count
	last int32    // number of the last request that was counted
	seen []sample // the evidence of rules that settle in the end
}

// sample is one call that a rule looked at.
type sample struct {
	amount, took int64
	trace        trace.TraceID
	span         trace.SpanID
	request      int32 // number
	quiet        bool
}

// settled is what the evidence of a place shows: found has the amounts that are told,
// and most is that of one of them.
type settled struct {
	found []sample
	most  int64
	of    int // as in Count
	p99   int64
}

func (s *sample) name() string { return s.trace.String() + "/" + s.span.String() }

// Add checks one request by all rules. hop numbers the hop of a call.
func (t *Tally) Add(r *Request, hop func(call int32) int32) {
	t.number++
	spans := r.tree.Trace.Spans
	for _, rule := range rules {
		look := rule.check
		if rule.sample != nil {
			look = rule.sample
		}
		look(r, func(f Finding) {
			c := t.at(Place{rule, hop(f.Call), f.By})
			s := sample{f.Amount, f.took, r.tree.Trace.ID, spans[f.Span].ID, t.number, f.quiet}
			if rule.settle != nil {
				c.seen = append(c.seen, s)
				return
			}
			if c.Findings == 0 || f.Amount > c.Most {
				c.Most, c.Example = f.Amount, ""
			}
			c.add(&s)
		})
	}
}

// add counts a finding, when Most is known to be no less than its amount; those of one
// request come one after the other.
func (c *tallied) add(s *sample) {
	c.Findings++
	if c.last != s.request {
		c.Requests++
		c.last = s.request
	}
	if s.amount == c.Most {
		if e := s.name(); c.Example == "" || e < c.Example {
			c.Example = e
		}
	}
}

func (t *Tally) at(p Place) *tallied {
	c := t.counts[p]
	if c == nil {
		if t.counts == nil {
			t.counts = make(map[Place]*tallied)
		}
		c = &tallied{Count: Count{Place: p}}
		t.counts[p] = c
	}
	return c
}

// Merge adds what another tally counted of other requests.
func (t *Tally) Merge(o *Tally) { t.MergeAs(o, func(hop int32) int32 { return hop }) }

// MergeAs is Merge under other numbers of the hops, each hop having one of its own.
func (t *Tally) MergeAs(o *Tally, hop func(int32) int32) {
	for p, c := range o.counts {
		p.Hop = hop(p.Hop)
		mine := t.at(p)
		switch {
		case c.Findings == 0:
		case mine.Findings == 0 || c.Most > mine.Most:
			mine.Most, mine.Example = c.Most, c.Example
		case c.Most == mine.Most:
			mine.Example = min(mine.Example, c.Example)
		}
		mine.Findings += c.Findings
		mine.Requests += c.Requests
		for _, s := range c.seen {
			s.request += t.number
			mine.seen = append(mine.seen, s)
		}
	}
	t.number += o.number
}

// List returns the counts, worst first: by severity, requests and findings, then
// by name, hop and who did it. floor tells the floor in ns that people set for a
// hop, 0 where they set none; nil: for no hop.
func (t *Tally) List(floor func(hop int32) int64) []Count {
	out := make([]Count, 0, len(t.counts))
	for _, c := range t.counts {
		if c.Rule.settle != nil {
			c = c.settle(floor)
		}
		if c.Findings > 0 {
			out = append(out, c.Count)
		}
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Rule.Severity, a.Rule.Severity), cmp.Compare(b.Requests, a.Requests),
			cmp.Compare(b.Findings, a.Findings), strings.Compare(a.Rule.Name, b.Rule.Name),
			cmp.Compare(a.Hop, b.Hop), strings.Compare(a.By, b.By))
	})
	return out
}

// settle counts what the evidence of a place shows.
func (c *tallied) settle(floor func(hop int32) int64) *tallied {
	least := int64(0)
	if floor != nil {
		least = floor(c.Hop)
	}
	s := c.Rule.settle(c.seen, least)
	out := &tallied{Count: Count{Place: c.Place, Most: s.most, Of: s.of, P99: s.p99}}
	slices.SortFunc(s.found, func(a, b sample) int { return cmp.Compare(a.request, b.request) })
	for i := range s.found {
		out.add(&s.found[i])
	}
	return out
}

// amounts are those of the samples, ascending.
func amounts(seen []sample) []int64 {
	out := make([]int64, len(seen))
	for i := range seen {
		out[i] = seen[i].amount
	}
	slices.Sort(out)
	return out
}
