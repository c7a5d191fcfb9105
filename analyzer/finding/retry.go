package finding

import (
	"cmp"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// attempts returns the number of each call among the attempts of its logical
// call, 1 for the first, and the number of attempts of that logical call. A call
// is a retry where it goes the way of an earlier one of the same span, which
// failed shortly before. The loser of a hedge did not fail: what follows it is
// another call, and so is what follows an answer that is final. Without any retry
// both are nil. They are made once.
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
	r.number, r.of, r.before = r.number[:0], r.of[:0], r.before[:0]
	clear(r.tried)
	if !slices.ContainsFunc(calls, func(c trace.Call) bool { return c.Attempts > 1 || c.Outcome != trace.OutcomeOK }) {
		return
	}
	order := r.order[:0]
	for i := range calls {
		order = append(order, int32(i))
		r.number, r.of, r.before = append(r.number, 0), append(r.of, 0), append(r.before, -1)
	}
	r.order = order
	number, of, before := r.number, r.of, r.before
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(calls[a].Maker, calls[b].Maker), cmp.Compare(calls[a].Path, calls[b].Path),
			cmp.Compare(calls[a].Start, calls[b].Start), cmp.Compare(a, b))
	})
	first, total := 0, int64(0) // of the running logical call
	end := func(k int) {
		for _, j := range order[first:k] {
			of[j] = total
		}
		first, total = k, 0
	}
	for k, i := range order {
		c := &calls[i]
		again := false
		if k > 0 {
			p := &calls[order[k-1]]
			again = p.Maker == c.Maker && p.Path == c.Path && p.RetriedAfter(c.Start-p.End) && !r.overtaken(order[k-1])
		}
		if again {
			before[i] = order[k-1]
		} else {
			end(k)
		}
		number[i] = total + 1
		total = number[i] + r.inSeries(c) - 1
		if c.Attempts == 1 {
			continue
		}
		r.series(c.Span, func(try, _ int32, n int64) {
			if r.tried == nil {
				r.tried = make(map[int32]int64)
			}
			r.tried[try] = number[i] + n - 1
		})
	}
	end(len(order))
}

// inSeries is how many of the attempts that are reported inside a call came one after
// the other, 1 if none: those of a hedge run beside each other.
//
//	call      |---------------------------|
//	retries   |---f| |---f| |-----------ok|    3
//	a hedge   |-----------------f|
//	              |-------------ok|            1
func (r *Request) inSeries(c *trace.Call) int64 {
	most := int64(1)
	if c.Attempts == 1 {
		return most
	}
	r.tries(c, func(try int32) {
		r.series(try, func(_, _ int32, n int64) { most = max(most, n) })
	})
	return most
}

// series calls visit for the attempts that are reported right inside a span, with the
// one that each is a retry of, -1 for none, and its number. It is the retry of the first
// that had ended of those with the number before; others run beside one that is.
//
//	|-----------f|                   1
//	    |---f|                       1
//	           |-------f|            2, of the second
//	              |-----------ok|    2
func (r *Request) series(inside int32, visit func(try, before int32, number int64)) {
	t := r.tree.Trace
	n, first := int64(1), int32(-1) // first to end, of those with number n
	for _, k := range t.Children(inside) {
		if !t.IsAttempt(k) {
			continue
		}
		before := int32(-1)
		switch s := &t.Spans[k]; {
		case first < 0:
			first = k
		case s.Start >= t.Spans[first].End():
			n, before, first = n+1, first, k
		case s.End() < t.Spans[first].End():
			first = k
		}
		visit(k, before, n)
	}
}

// retries calls visit for the second and later attempts at calls, with the spans of
// the attempt before and of the attempt, and its number.
//
//	attempts of their own   |----f|    |----f|    |--ok--|
//	inside one call         |---------------------------|
//	                        |----f|    |----f|    |--ok--|
//	visited                            |----f|    |--ok--|
func (r *Request) retries(visit func(call, before, again int32, number int64)) {
	number, _ := r.attempts()
	if number == nil {
		return
	}
	r.waited(func(i int32, c *trace.Call) {
		if r.exit(c) == nil {
			return
		}
		if b := r.before[i]; b >= 0 {
			visit(i, r.tree.Calls[b].Span, c.Span, number[i])
		}
		r.series(c.Span, func(try, before int32, n int64) {
			if before >= 0 {
				visit(i, before, try, number[i]+n-1)
			}
		})
	})
}

// tries calls visit for the CLIENT half of a call, and for the attempts that are
// reported inside it.
func (r *Request) tries(c *trace.Call, visit func(span int32)) {
	t := r.tree.Trace
	r.todo = append(r.todo[:0], c.Span)
	for len(r.todo) > 0 {
		i := r.todo[len(r.todo)-1]
		r.todo = r.todo[:len(r.todo)-1]
		visit(i)
		for _, below := range t.Children(i) {
			if t.IsAttempt(below) {
				r.todo = append(r.todo, below)
			}
		}
	}
}
