package finding

import (
	"cmp"
	"slices"
	"strings"
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
	Most     int64  // largest amount
	Example  string // smallest "TRACEID/SPANID"
}

// Tally counts findings. It does not depend on the order of requests, and
// tallies of parts merge into the tally of the whole. The zero value is ready.
type Tally struct {
	counts map[Place]*tallied
	number int // of the request that is checked
}

type tallied struct {
	Count
	last    int     // number of the last request that was counted
	amounts []int64 // all of them, for rules that settle
}

// Add checks one request by all rules. hop numbers the hop of a call.
func (t *Tally) Add(r *Request, hop func(call int32) int32) {
	t.number++
	tr := r.tree.Trace
	for _, rule := range rules {
		rule.check(r, func(f Finding) {
			c := t.at(Place{rule, hop(f.Call), f.By})
			c.Findings++
			c.Most = max(c.Most, f.Amount)
			if rule.settle != nil {
				c.amounts = append(c.amounts, f.Amount)
			}
			if c.last != t.number {
				c.Requests++
				c.last = t.number
			}
			if e := tr.ID.String() + "/" + tr.Spans[f.Span].ID.String(); c.Example == "" || e < c.Example {
				c.Example = e
			}
		})
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
		mine.Findings += c.Findings
		mine.Requests += c.Requests
		mine.Most = max(mine.Most, c.Most)
		mine.amounts = append(mine.amounts, c.amounts...)
		if mine.Example == "" || c.Example < mine.Example {
			mine.Example = c.Example
		}
	}
}

// List returns the counts, worst first: by severity, requests and findings, then
// by name, hop and who did it.
func (t *Tally) List() []Count {
	out := make([]Count, 0, len(t.counts))
	for _, c := range t.counts {
		count, found := c.Count, true
		if settle := c.Rule.settle; settle != nil {
			count.Most, found = settle(c.amounts)
		}
		if found {
			out = append(out, count)
		}
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Rule.Severity, a.Rule.Severity), cmp.Compare(b.Requests, a.Requests),
			cmp.Compare(b.Findings, a.Findings), strings.Compare(a.Rule.Name, b.Rule.Name),
			cmp.Compare(a.Hop, b.Hop), strings.Compare(a.By, b.By))
	})
	return out
}
