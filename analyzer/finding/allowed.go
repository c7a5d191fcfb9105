package finding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// Allowed are calls that are meant to outlive the requests that make them, named by
// globs on "service operation" of the callee, in which * stands for any text and ? for
// one character. It is for one goroutine, and remembers the descriptions that it met.
type Allowed struct {
	globs []string
	used  []bool // by glob
	known map[halves]bool
}

// halves is all of a call that its name is made of.
type halves struct {
	caller, callee *trace.Desc
	alone          bool // only the caller knows whom it called
}

// NewAllowed returns the calls that match one of the globs.
func NewAllowed(globs []string) *Allowed {
	return &Allowed{globs: slices.Clone(globs), used: make([]bool, len(globs))}
}

// Unused returns the globs that none of the calls matched that were asked for.
func (a *Allowed) Unused() []string {
	var unused []string
	for i, glob := range a.globs {
		if !a.used[i] {
			unused = append(unused, glob)
		}
	}
	return unused
}

// CheckAllowed tells which of the globs can match no call.
func CheckAllowed(globs []string) error {
	for _, g := range globs {
		if g == "" || strings.TrimSpace(g) != g {
			return fmt.Errorf("%q names no call: write 'service operation', with * for any text, such as 'prices *'", g)
		}
	}
	return nil
}

// Any tells whether any call may be allowed.
func (a *Allowed) Any() bool { return len(a.globs) > 0 }

// Has tells whether a call of a tree is allowed.
func (a *Allowed) Has(t *trace.Tree, call int32) bool {
	c := &t.Calls[call]
	return a.has(&t.Trace.Spans[c.Span], &t.Trace.Spans[c.Callee])
}

// has is Has for the halves of a call, which are one where only one is known.
func (a *Allowed) has(caller, callee *trace.Span) bool {
	if !a.Any() {
		return false
	}
	of := halves{caller.Desc, callee.Desc, callee.Kind == trace.KindClient}
	yes, known := a.known[of]
	if !known {
		key := trace.Key{Service: callee.Desc.Service, Operation: callee.Desc.Operation}
		if of.alone {
			key.Service = callee.Desc.Peer
		}
		name := key.String()
		for i, glob := range a.globs {
			if trace.Match(glob, name) {
				yes, a.used[i] = true, true
			}
		}
		if a.known == nil {
			a.known = make(map[halves]bool)
		}
		a.known[of] = yes
	}
	return yes
}
