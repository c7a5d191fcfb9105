package finding

import (
	"cmp"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// maxBackoff is the longest pause after a failed call in which the next one
// still counts as its retry, ns.
const maxBackoff = 1_000_000_000

// attempts returns the number of each call among the attempts of its logical
// call, 1 for the first, and the number of attempts of that logical call. A call
// is a retry where it goes the way of an earlier one of the same span, which
// failed shortly before. Without any retry both are nil. They are made once.
//
//	span  |-----------------------------------|
//	calls   |--error--|  |--error--|  |--ok--|      numbers 1, 2, 3 of 3
func (r *Request) attempts() (number, of []int64) {
	if !r.counted {
		r.countAttempts()
		r.counted = true
	}
	if len(r.number) == 0 {
		return nil, nil
	}
	return r.number, r.of
}

func (r *Request) countAttempts() {
	calls := r.tree.Calls
	r.number, r.of = r.number[:0], r.of[:0]
	if !slices.ContainsFunc(calls, func(c trace.Call) bool { return c.Attempts > 1 || c.Outcome != trace.OutcomeOK }) {
		return
	}
	order, maker := r.order[:0], r.caller[:0]
	for i := range calls {
		order, maker = append(order, int32(i)), append(maker, r.maker(calls[i].Span))
		r.number, r.of = append(r.number, 0), append(r.of, 0)
	}
	r.order, r.caller = order, maker
	number, of := r.number, r.of
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(maker[a], maker[b]), cmp.Compare(calls[a].Path, calls[b].Path),
			cmp.Compare(calls[a].Start, calls[b].Start), cmp.Compare(a, b))
	})
	first := 0 // of the running logical call
	for k, i := range order {
		c := &calls[i]
		again := false
		if k > 0 {
			p := &calls[order[k-1]]
			again = maker[order[k-1]] == maker[i] && p.Path == c.Path &&
				p.Outcome != trace.OutcomeOK && c.Start >= p.End && c.Start-p.End <= maxBackoff
		}
		if !again {
			first = k
		}
		number[i] = 1
		if again {
			number[i] = of[order[k-1]] + 1
		}
		total := number[i] + int64(c.Attempts) - 1
		for _, j := range order[first : k+1] {
			of[j] = total
		}
	}
}

// tries calls visit for the CLIENT half of a call, and for the attempts that are
// reported inside it.
func (r *Request) tries(c *trace.Call, visit func(*trace.Span)) {
	t := r.tree.Trace
	r.todo = append(r.todo[:0], c.Span)
	for len(r.todo) > 0 {
		i := r.todo[len(r.todo)-1]
		r.todo = r.todo[:len(r.todo)-1]
		visit(&t.Spans[i])
		for _, below := range t.Children(i) {
			if t.IsAttempt(below) {
				r.todo = append(r.todo, below)
			}
		}
	}
}
