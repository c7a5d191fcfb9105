package finding

import (
	"cmp"
	"slices"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

var traceRestarted = Rule{
	Name: "trace-restarted", Severity: Warning, Flag: attr.FlagTraceRestarted, Unit: Times,
	Summary: "While a service handled a request, it made calls that began traces of their own: its handler probably " +
		"uses context.Background(), which loses the deadline and the trace.",
	Formula: "A CLIENT span without parent starts inside a SERVER span of its own service and host. At least 5 calls that are alike " +
		"must have begun traces, 90 % of them inside some SERVER span, and a tenth of the SERVER spans of the hop must have such a call inside: the Collector, " +
		"which sees a batch, does without this. The amount is how many.",
	Tolerance: "None: both spans are on one clock.",
	Mistakes: "Only time connects the two, so confidence is low: a job that a busy service does on its own looks the same if it is done " +
		"that often, and of several requests at once each is blamed. A handler that seldom takes that way is not found. Mark what is meant to begin a trace of its " +
		"own as detached, or allow it by the name of its CLIENT span. Streams count for nothing here: " +
		"they are open beside much that they have no part in.",
	Remedy: "Make the call with the context of the request. What is meant to begin a trace of its own is marked by " +
		"MarkDetached, or named by --allow-detached.",
	text: "calls of its service began traces of their own meanwhile, up to %s in a request",
	check: func(r *Request, report func(Finding)) {
		r.restarting(func(f Finding) {
			if !f.quiet {
				report(f)
			}
		})
	},
	sample: (*Request).restarting,
	settle: func(seen []sample, _ int64) (out settled) {
		for _, s := range seen {
			if !s.quiet {
				out.found = append(out.found, s)
				out.most = max(out.most, s.amount)
			}
		}
		if float64(len(out.found)) < restartsShare*float64(len(seen)) {
			return settled{}
		}
		return out
	},
}

const (
	restartsAlike  = 5   // fewer calls that are alike are chance
	restartsInside = 0.9 // share of them that some request must explain
	restartsShare  = 0.1 // share of the requests that must have one: a job begins while few of them run
)

// restarting reports the calls whose service began traces meanwhile, and as quiet those
// during which it began none, though it does.
func (r *Request) restarting(report func(Finding)) {
	if r.Restarts == nil {
		return
	}
	r.waited(func(i int32, c *trace.Call) {
		if s := r.entry(c); s != nil {
			if n, begins := r.Restarts.during(s); begins {
				report(Finding{Call: i, Span: c.Callee, Amount: n, quiet: n == 0})
			}
		}
	})
}

// Restarts holds the calls of a whole export that began traces of their own.
// First Collect all spans, then Cover all spans; after that requests can be
// checked with it. The order of spans does not matter. The zero value is ready.
// It is for one goroutine.
type Restarts struct {
	// Allowed, unless nil, are calls that are meant to begin traces of their own, by
	// what the caller calls them.
	Allowed *Allowed

	processes map[process]*restarts
}

// restarts are the calls of one process.
type restarts struct {
	calls []restart // by start, once sealed
	cover []int     // by call, and one more: SERVER spans that begin before it, less those that end
	judged,
	sealed bool
}

type restart struct {
	start int64
	desc  *trace.Desc
}

// Collect takes note of the calls among the spans that have no parent, but for those
// that are meant to have none. A stream is none: services keep some open for themselves.
func (x *Restarts) Collect(spans []trace.Span) {
	for i := range spans {
		s := &spans[i]
		if s.Kind != trace.KindClient || !s.Parent.IsZero() || s.Flags&(trace.FlagUnmeasured|trace.FlagStream|trace.FlagFollowsFrom) != 0 ||
			x.Allowed != nil && x.Allowed.has(s, s) {
			continue
		}
		if x.processes == nil {
			x.processes = make(map[process]*restarts)
		}
		of := x.processes[processOf(s)]
		if of == nil {
			of = new(restarts)
			x.processes[processOf(s)] = of
		}
		of.calls = append(of.calls, restart{s.Start, s.Desc})
	}
}

// Cover takes note of the requests that services handled. A stream is none: much else
// begins while it is open.
func (x *Restarts) Cover(spans []trace.Span) {
	if len(x.processes) == 0 {
		return
	}
	for i := range spans {
		s := &spans[i]
		if s.Kind != trace.KindServer || s.Flags&(trace.FlagUnmeasured|trace.FlagStream) != 0 {
			continue
		}
		of := x.processes[processOf(s)]
		if of == nil {
			continue
		}
		if !of.sealed {
			slices.SortFunc(of.calls, func(a, b restart) int { return cmp.Compare(a.start, b.start) })
			of.cover = make([]int, len(of.calls)+1)
			of.sealed = true
		}
		from, to := of.within(s)
		of.cover[from]++
		of.cover[to]--
	}
}

// within returns the calls [from, to) that start inside a span.
func (of *restarts) within(s *trace.Span) (from, to int) {
	search := func(at int64) int {
		i, _ := slices.BinarySearchFunc(of.calls, at, func(c restart, at int64) int { return cmp.Compare(c.start, at) })
		return i
	}
	return search(s.Start), search(s.End())
}

// judge keeps the calls of those kinds that requests explain.
func (of *restarts) judge() {
	type share struct{ inside, all int }
	shares := make(map[*trace.Desc]share)
	covering := 0
	for i, c := range of.calls {
		covering += of.cover[i]
		n := shares[c.desc]
		n.all++
		if covering > 0 {
			n.inside++
		}
		shares[c.desc] = n
	}
	of.calls = slices.DeleteFunc(of.calls, func(c restart) bool {
		n := shares[c.desc]
		return n.all < restartsAlike || float64(n.inside) < restartsInside*float64(n.all)
	})
	of.judged = true
}

// during counts the calls that began traces while a SERVER span ran, and tells whether
// its process made any such calls at all.
func (x *Restarts) during(s *trace.Span) (n int64, begins bool) {
	of := x.processes[processOf(s)]
	if of == nil || !of.sealed {
		return 0, false
	}
	if !of.judged {
		of.judge()
	}
	from, to := of.within(s)
	return int64(to - from), len(of.calls) > 0
}
