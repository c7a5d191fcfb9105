package finding

import "github.com/latencybudget/latencybudget/analyzer/trace"

// Left returns what was left of the request's budget when a span began, in ns,
// as the rules take it: the figure that the span carries, or else its own
// deadline. It may be 0 or less.
func Left(s *trace.Span) (ns int64, known bool) { return left(s) }

// Numbers returns for each call of the tree its number among the attempts of one
// logical call, 1 for the first, and how many attempts that call took. Both are
// nil where nothing was tried again. The slices are not to be changed.
func (r *Request) Numbers() (number, of []int64) { return r.attempts() }
