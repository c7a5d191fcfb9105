package profile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// odd are spans with everything that a span can have, whole traces and broken ones.
func odd(n int) []trace.Span {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	var spans []trace.Span
	for i := range n {
		t := assemble(i, serverSpan("网关", "GET /", 0, 100*ms,
			call("网关", "a", "op", 5*ms, 5*ms+rng.Int64N(80*ms)).ended(trace.Outcome(rng.IntN(4))).sampled(uint64(rng.IntN(3))<<50),
			of(trace.KindUnspecified, "网关", "step", 0, 3*ms),
			of(trace.KindProducer, "网关", "event", 90*ms, 91*ms).flagged(trace.FlagFollowsFrom|trace.FlagTailSampled)))
		for j := range t.Spans {
			s := t.Spans[j]
			switch rng.IntN(12) {
			case 0:
				s.Parent = trace.SpanID{9}
			case 1:
				s.Duration = -s.Duration
			case 2:
				s.Flags |= trace.FlagUnmeasured
			case 3:
				s.Stamp = &trace.Stamp{
					Limit: 5 * ms, Remaining: -3, DeadlineRemaining: 7, Announced: -9,
					HasRemaining: true, HasDeadline: j%2 == 0, HasAnnounced: true, Stale: j%2 == 1, Absolute: true,
				}
			case 4:
				s.Parent = s.ID
			case 5:
				binary.BigEndian.PutUint64(s.TraceID[:8], 0) // half an id
			case 6:
				s.Kind = trace.KindServer
			case 7:
				spans = append(spans, s)
			}
			spans = append(spans, s)
		}
	}
	return spans
}

func fileOf(spans []trace.Span, sample int) *File {
	b := trace.NewBuilder()
	b.Add(spans)
	var read trace.Notes
	read.Add(trace.NoteBadLine, 3, "", "a.json:7")
	f, _ := NewFile(b, read, b.Seal(), FileOptions{Sample: sample})
	return f
}

// TestFilesKeepSpansAsTheyWere compares spans before and after.
func TestFilesKeepSpansAsTheyWere(t *testing.T) {
	b := trace.NewBuilder()
	b.Add(odd(300))
	b.Seal()
	var want []trace.Span
	for i := range b.Len() {
		want = b.Raw(want, i)
	}
	f, err := DecodeFile(fileOf(odd(300), 1000).Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, f.Sampled()); diff != "" {
		t.Errorf("spans (-before +after):\n%s", diff)
	}
	if !f.Whole() || f.Spans() != len(want) {
		t.Errorf("whole: %v, %d spans; want all %d", f.Whole(), f.Spans(), len(want))
	}
}

// TestDamagedFilesAreRefused cuts a file at every byte, and changes every byte: what
// is read all the same can be used.
func TestDamagedFilesAreRefused(t *testing.T) {
	whole := fileOf(odd(6), 3).Encode()
	for n := range whole {
		if _, err := DecodeFile(whole[:n]); !errors.Is(err, ErrNoFile) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := DecodeFile(append(bytes.Clone(whole), 0)); !errors.Is(err, ErrNoFile) {
		t.Errorf("a byte too many: %v", err)
	}
	newer := bytes.Clone(whole)
	newer[len(trace.ProfileMagic)] = fileVersion + 1
	if _, err := DecodeFile(newer); !errors.Is(err, ErrNewerFile) {
		t.Errorf("a newer version: %v", err)
	}
	for at := range whole {
		for _, flip := range []byte{1, 0x80, 0xff} {
			bad := bytes.Clone(whole)
			bad[at] ^= flip
			holdFile(t, bad)
		}
	}
}

// holdFile uses whatever can be read, as an analysis does.
func holdFile(t *testing.T, data []byte) {
	t.Helper()
	f, err := DecodeFile(data)
	if err != nil {
		if !errors.Is(err, ErrNoFile) && !errors.Is(err, ErrNewerFile) {
			t.Errorf("error %v does not say what to do", err)
		}
		return
	}
	if again, err := DecodeFile(f.Encode()); err != nil {
		t.Errorf("what was read cannot be written and read again: %v", err)
	} else if !bytes.Equal(f.Encode(), again.Encode()) {
		t.Error("what was read differs when it is written and read again")
	}
	m, _ := MergeFiles([]*File{f, fileOf(odd(3), 2)}, FileOptions{MaxTraceSpans: 1000})
	b := trace.NewBuilder()
	b.Add(m.Sampled())
	b.Seal()
	var traces []*trace.Trace
	for i := range b.Len() {
		var tr trace.Trace
		if b.Assemble(i, 1000, &tr) == nil {
			traces = append(traces, &tr)
		}
	}
	s := surveyOf(traces)
	s.Widen(m)
	c := collectorOf(s.Decide(Options{}), traces)
	c.Widen(m)
	for _, p := range c.Resolve() {
		for i := range p.Hops {
			if h := &p.Hops[i]; h.Calls < 0 || h.Duration.N() < 0 || h.Unconditional.N() < h.Duration.N() {
				t.Errorf("hop %s: %d calls, %d durations", h.ID, h.Calls, h.Duration.N())
			}
		}
	}
}

func FuzzDecodeFile(f *testing.F) {
	f.Add([]byte(trace.ProfileMagic))
	for _, n := range []int{0, 1, 8} {
		f.Add(fileOf(odd(n), 3).Encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) { holdFile(t, data) })
}

// TestASampleBelongsToItsEndpoint has traces that enter two endpoints, one of which
// is far busier: what the rare one keeps is not taken for the busy one's sample.
func TestASampleBelongsToItsEndpoint(t *testing.T) {
	b := trace.NewBuilder()
	for i := range 2000 {
		below := []work{serverSpan("busy", "GET /", 1, 2*ms)}
		if i%4 == 0 {
			below = append(below, serverSpan("rare", "GET /", 3*ms, 4*ms))
		}
		b.Add(assemble(i, of(trace.KindInternal, "load", "generator", 0, 5*ms, below...)).Spans)
	}
	f, _ := NewFile(b, trace.Notes{}, b.Seal(), FileOptions{Sample: 100})
	if f.Whole() || f.Kept() <= 100 || f.Kept() > 200 {
		t.Fatalf("%d traces are kept of two samples of 100 that share some", f.Kept())
	}
	counts := make(map[Endpoint]int)
	kept := trace.NewBuilder()
	kept.Add(f.Sampled())
	kept.Seal()
	for i := range kept.Len() {
		var tr trace.Trace
		if err := kept.Assemble(i, 100, &tr); err != nil {
			t.Fatal(err)
		}
		for _, e := range tr.Entries() {
			if key := EndpointOf(tr.Spans[e].Desc); f.Samples(tr.ID, key) {
				counts[key]++
			}
		}
	}
	if want := map[Endpoint]int{{"busy", "GET /"}: 100, {"rare", "GET /"}: 100}; !cmp.Equal(want, counts) {
		t.Errorf("samples hold %v, want %v", counts, want)
	}
}

// TestHopsOfSeveralPathsStayThoseOfTheSample: calls that hung have a path of their
// own until it is decided whose they are. Then figures are from the sample alone
// rather than wrong.
func TestHopsOfSeveralPathsStayThoseOfTheSample(t *testing.T) {
	b := trace.NewBuilder()
	for i := range 1000 {
		hung := of(trace.KindClient, "a", "Score", 10*ms, 40*ms).ended(trace.OutcomeTimedOut)
		good := of(trace.KindClient, "a", "Score", 50*ms, 60*ms, serverSpan("risk", "Score", 50*ms, 60*ms))
		hung.peer, good.peer = "risk:80", "risk:80"
		below := []work{good, call("a", "b", "op", 70*ms, 80*ms)}
		if i%10 == 0 {
			below = append(below, hung)
		}
		b.Add(assemble(i, serverSpan("a", "GET /", 0, 100*ms, below...)).Spans)
	}
	f, _ := NewFile(b, trace.Notes{}, b.Seal(), FileOptions{Sample: 100})
	kept := trace.NewBuilder()
	kept.Add(f.Sampled())
	kept.Seal()
	var traces []*trace.Trace
	for i := range kept.Len() {
		tr := new(trace.Trace)
		if err := kept.Assemble(i, 100, tr); err != nil {
			t.Fatal(err)
		}
		traces = append(traces, tr)
	}
	s := surveyOf(traces)
	s.Widen(f)
	c := collectorOf(s.Decide(Options{}), traces)
	c.Widen(f)
	p := c.Resolve()[0]
	if p.Requests != 1000 || p.Sampled != 100 {
		t.Fatalf("%d requests, %d of them sampled; want 1000, 100", p.Requests, p.Sampled)
	}
	for name, want := range map[string]struct {
		sample bool
		calls  int
	}{"GET /": {false, 1000}, "Score": {true, 100}, "op": {false, 1000}} {
		if h := p.hop(t, name); h.FromSample != want.sample || h.Calls != want.calls || h.Presence != 1 {
			t.Errorf("%s: from the sample %v, %d calls, presence %v; want %v, %d, 1", name, h.FromSample, h.Calls, h.Presence, want.sample, want.calls)
		}
	}
}
