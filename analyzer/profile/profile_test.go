package profile

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

const ms = 1_000_000 // ns

// epoch keeps starts clear of whole seconds, so that clocks are not coarse
// unless a test wants them to be.
const epoch = 1_700_000_000_000_000_123

// work is one span of a trace and what it called. Times are in ns after the
// start of the request.
type work struct {
	kind          trace.Kind
	service, name string
	start, end    int64
	outcome       trace.Outcome
	flags         trace.Flags
	threshold     uint64
	peer, host    string
	stamp         *trace.Stamp
	below         []work
}

func serverSpan(service, name string, start, end int64, below ...work) work {
	return work{kind: trace.KindServer, service: service, name: name, start: start, end: end, below: below}
}

func of(kind trace.Kind, service, name string, start, end int64, below ...work) work {
	return work{kind: kind, service: service, name: name, start: start, end: end, below: below}
}

// call is a CLIENT span of service from with a SERVER span of the same times.
//
//	from CLIENT |--------|
//	to   SERVER |--------|
func call(from, to, name string, start, end int64, below ...work) work {
	return of(trace.KindClient, from, name, start, end, serverSpan(to, name, start, end, below...))
}

// ended gives the span and its SERVER half an outcome.
func (w work) ended(o trace.Outcome) work {
	w.outcome = o
	w.below = slices.Clone(w.below)
	for i := range w.below {
		if w.below[i].kind == trace.KindServer {
			w.below[i].outcome = o
		}
	}
	return w
}

func (w work) flagged(f trace.Flags) work { w.flags |= f; return w }

func (w work) sampled(threshold uint64) work {
	w.flags |= trace.FlagThreshold
	w.threshold = threshold
	return w
}

// assemble makes a trace of the request; id also sets when it started, one
// second after the other.
func assemble(id int, root work) *trace.Trace {
	var spans []trace.Span
	var tid trace.TraceID
	binary.BigEndian.PutUint64(tid[:8], 1)
	binary.BigEndian.PutUint64(tid[8:], uint64(id)+1)
	var add func(w work, parent trace.SpanID)
	add = func(w work, parent trace.SpanID) {
		var sid trace.SpanID
		binary.BigEndian.PutUint64(sid[:], uint64(len(spans)+1))
		spans = append(spans, trace.Span{
			TraceID: tid, ID: sid, Parent: parent, Kind: w.kind, Start: epoch + int64(id)*1e9 + w.start,
			Duration: w.end - w.start,
			Outcome:  w.outcome, Flags: w.flags, Threshold: w.threshold, Stamp: w.stamp,
			Desc: &trace.Desc{Service: w.service, Operation: w.name, Peer: w.peer, Host: w.host},
		})
		for _, b := range w.below {
			add(b, sid)
		}
	}
	add(root, trace.SpanID{})
	return trace.NewTrace(spans)
}

func surveyOf(traces []*trace.Trace) *Survey {
	s := NewSurvey()
	for _, t := range traces {
		s.AddTrace(t)
		for _, e := range t.Entries() {
			s.Add(t, e)
		}
	}
	return s
}

func collectorOf(rules *Rules, traces []*trace.Trace) *Collector {
	c := NewCollector(rules)
	for _, t := range traces {
		for _, e := range t.Entries() {
			c.Add(t, e)
		}
	}
	return c
}

func profiles(o Options, traces []*trace.Trace) []*Profile {
	return collectorOf(surveyOf(traces).Decide(o), traces).Resolve()
}

// many makes n requests.
func many(n int, request func(i int) work) []*trace.Trace {
	out := make([]*trace.Trace, n)
	for i := range out {
		out[i] = assemble(i, request(i))
	}
	return out
}

// one resolves requests of a single endpoint.
func one(t *testing.T, o Options, traces []*trace.Trace) *Profile {
	t.Helper()
	ps := profiles(o, traces)
	if len(ps) != 1 {
		t.Fatalf("%d endpoints, want 1", len(ps))
	}
	return ps[0]
}

// hop finds the hop of an operation.
func (p *Profile) hop(t *testing.T, operation string) *Hop {
	t.Helper()
	i := slices.IndexFunc(p.Hops, func(h Hop) bool { return h.Operation == operation })
	if i < 0 {
		t.Fatalf("no hop %q in %v", operation, p.names())
	}
	return &p.Hops[i]
}

var kindNames = [...]string{"root", "call", "stage", "step", "async"}

// names lists the hops as "id kind callee operation".
func (p *Profile) names() []string {
	out := make([]string, len(p.Hops))
	for i, h := range p.Hops {
		out[i] = strings.Join(strings.Fields(h.ID+" "+kindNames[h.Kind]+" "+h.Callee+" "+h.Operation), " ")
	}
	return out
}

func at(t *testing.T, d *quantile.Dist, l quantile.Level) int64 {
	t.Helper()
	v, ok := d.At(l)
	if !ok {
		t.Fatalf("no %s of an empty distribution", l)
	}
	return v
}

var exact = cmp.AllowUnexported(quantile.Dist{})

// randomRequest makes a request in which about everything happens: pairs,
// lone sides, clocks that are off, stages, steps, queues, retries, fan-out.
func randomRequest(r *rand.Rand, id int) *trace.Trace {
	services := []string{"a", "b", "c", "d"}
	off := map[string]int64{"c": 40 * ms, "d": -3 * ms}
	thresholds := []uint64{0, 1 << 55, 3 << 54, 1<<56 - 1<<50}
	var below func(service string, from, to int64, depth int) []work
	below = func(service string, from, to int64, depth int) []work {
		var out []work
		if depth == 0 || to-from < 100 {
			return nil
		}
		for range r.IntN(4) {
			start := from + r.Int64N(to-from)
			end := start + r.Int64N(to-start+1)
			if r.IntN(10) == 0 {
				end += r.Int64N(to - from)
			}
			callee, name := services[r.IntN(len(services))], fmt.Sprint("op", r.IntN(3))
			shift := off[service] // of the emitting process
			there := off[callee]
			outcome := trace.Outcome(max(0, r.IntN(9)-5))
			switch r.IntN(9) {
			case 0:
				out = append(out, of(trace.KindInternal, service, name, start+shift, end+shift,
					below(service, start, end, depth-1)...))
			case 1:
				out = append(out, of(trace.KindUnspecified, service, name, start+shift, end+shift))
			case 2:
				out = append(out, of(trace.KindProducer, service, name, start+shift, end+shift,
					of(trace.KindConsumer, callee, name, end+there, end+50*ms+there,
						below(callee, end, end+50*ms, depth-1)...)))
			case 3:
				out = append(out, serverSpan(callee, name, start+there, end+there,
					below(callee, start, end, depth-1)...).ended(outcome))
			case 4:
				out = append(out, of(trace.KindClient, service, "SELECT", start+shift, end+shift).ended(outcome))
			default:
				inset := (end - start) / 10
				c := of(trace.KindClient, service, name, start+shift, end+shift,
					serverSpan(callee, name, start+inset+there, end-inset+there,
						below(callee, start+inset, end-inset, depth-1)...)).ended(outcome)
				if c.peer = callee; r.IntN(5) == 0 {
					c.below = nil // the answer was lost
				}
				if r.IntN(3) == 0 {
					c.peer = ""
				}
				out = append(out, c)
			}
		}
		return out
	}
	end := 1 + r.Int64N(200*ms)
	root := serverSpan("a", fmt.Sprint("GET /", r.IntN(2)), 0, end, below("a", 0, end, 3)...)
	root.stamp = &trace.Stamp{Limit: int64(1+r.IntN(2)) * ms}
	return assemble(id, root.sampled(thresholds[r.IntN(len(thresholds))]))
}

// describe collects everything that a set of rules and its profiles say.
func describe(s *Survey, r *Rules, ps []*Profile) map[string]any {
	out := map[string]any{"endpoints": s.Endpoints(), "sampling": s.Sampling(), "shifts": r.Shifts(), "profiles": ps}
	for _, e := range s.Endpoints() {
		out["folded "+e.String()] = r.Folded(e.Endpoint)
	}
	return out
}

func TestMergedPartsEqualTheWholeInAnyOrder(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 9))
		traces := many(40, func(int) work { return work{} })
		for i := range traces {
			traces[i] = randomRequest(r, i)
		}
		o := Options{MaxHops: 4 + r.IntN(30), Sample: 5 + r.IntN(50), Steps: r.IntN(2) == 0, Unweighted: r.IntN(3) == 0}
		s := surveyOf(traces)
		rules := s.Decide(o)
		want := describe(s, rules, collectorOf(rules, traces).Resolve())
		for range 4 {
			r.Shuffle(len(traces), func(i, j int) { traces[i], traces[j] = traces[j], traces[i] })
			cut := r.IntN(len(traces))
			mid := cut + r.IntN(len(traces)-cut+1)
			parts := [][]*trace.Trace{traces[:cut], traces[cut:mid], traces[mid:]}
			s := surveyOf(parts[0])
			if r.IntN(2) == 0 { // (a+b)+c
				s.Merge(surveyOf(parts[1]))
				s.Merge(surveyOf(parts[2]))
			} else { // a+(b+c)
				rest := surveyOf(parts[1])
				rest.Merge(surveyOf(parts[2]))
				s.Merge(rest)
			}
			rules := s.Decide(o)
			c := collectorOf(rules, parts[0])
			if r.IntN(2) == 0 {
				c.Merge(collectorOf(rules, parts[1]))
				c.Merge(collectorOf(rules, parts[2]))
			} else {
				rest := collectorOf(rules, parts[1])
				rest.Merge(collectorOf(rules, parts[2]))
				c.Merge(rest)
			}
			if got := describe(s, rules, c.Resolve()); !reflect.DeepEqual(want,
				got) { // cmp takes long where nothing differs
				t.Fatalf("seed %d (-whole +parts):\n%s", seed, cmp.Diff(want, got, exact))
			}
		}
	}
}

func TestProfilesHoldTogether(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 10))
		var traces []*trace.Trace
		for i := range 40 {
			traces = append(traces, randomRequest(r, i))
		}
		maxHops := 3 + r.IntN(40)
		for _, p := range profiles(Options{MaxHops: maxHops, Steps: true, Sample: 20}, traces) {
			path, slow := 0.0, 0.0
			for i, h := range p.Hops {
				if h.Parent >= i || (h.Parent < 0) != (i == 0) || i > 0 && p.Hops[h.Parent].Depth != h.Depth-1 {
					t.Fatalf("seed %d: hop %s has parent %d", seed, h.ID, h.Parent)
				}
				if i > 0 && p.Hops[h.Parent].Kind == KindAsync && h.Kind != KindAsync {
					t.Fatalf("seed %d: %s is waited for below %s, which is not", seed, h.ID, p.Hops[h.Parent].ID)
				}
				if (h.Kind == KindAsync || h.Kind == KindStep) && (h.CriticalPath != 0 || h.SlowPath != 0 || len(h.After) > 0) {
					t.Fatalf("seed %d: %s is on the path or in an order", seed, h.ID)
				}
				for _, a := range h.After {
					if a >= i || p.Hops[a].Parent != h.Parent {
						t.Fatalf("seed %d: %s follows hop %d", seed, h.ID, a)
					}
				}
				if h.Presence < 0 || h.Presence > 1 || h.Optional != (h.Presence < 1) {
					t.Fatalf("seed %d: presence %v of %s, optional %v", seed, h.Presence, h.ID, h.Optional)
				}
				if h.Calls != h.Duration.N()+h.Failed || h.Calls != h.Count.N() {
					t.Fatalf("seed %d: %d calls of %s, %d durations, %d failed", seed, h.Calls, h.ID,
						h.Duration.N(), h.Failed)
				}
				for k := range p.Rows.Len() {
					d, s := p.Rows.Duration[i][k], p.Rows.Self[i][k]
					if d < -1 || s > max(d, 0) && h.Kind != KindAsync {
						t.Fatalf("seed %d: row %d of %s: duration %d, self %d", seed, k, h.ID, d, s)
					}
					if tail := p.Rows.Tail[i][k]; tail > s {
						t.Fatalf("seed %d: row %d of %s: tail %d over self %d", seed, k, h.ID, tail, s)
					}
				}
				path += h.CriticalPath
				slow += h.SlowPath
			}
			if path < 1-1e-9 || path > 1+1e-9 || slow < 1-1e-9 || slow > 1+1e-9 {
				t.Fatalf("seed %d: critical path shares sum to %v, slow to %v", seed, path, slow)
			}
		}
	}
}
