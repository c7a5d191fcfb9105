package tracegen

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"
)

// Dist is a distribution of durations: lognormal through P50 and P99, of which
// the slowest share Cold is replaced by cold starts, log-uniform between
// ColdFrom and ColdTo. P50 and P99 are those of the whole, cold starts
// included. P50 equal to P99 is a constant. Cold must be under 1 %.
type Dist struct {
	P50, P99         time.Duration
	Cold             float64
	ColdFrom, ColdTo time.Duration
}

// Quantile returns the u-quantile, 0 < u <= 1, in whole microseconds: coarse
// enough to be the same on every machine and in every format.
func (d Dist) Quantile(u float64) time.Duration {
	const tiny = 1e-9 // u and Cold are decimal fractions and not exact in binary
	warm := 1 - d.Cold
	var x float64
	switch {
	case d.P50 == d.P99:
		return d.P50
	case u > warm+tiny:
		x = float64(d.ColdFrom) * math.Pow(float64(d.ColdTo)/float64(d.ColdFrom), (u-warm)/d.Cold)
	default:
		z50, z99 := normal(0.5/warm), normal(0.99/warm)
		sigma := math.Log(float64(d.P99)/float64(d.P50)) / (z99 - z50)
		x = float64(d.P50) * math.Exp(sigma*(normal(min(u/warm, 1-1e-4))-z50))
	}
	return time.Duration(math.Round(x/1e3)) * time.Microsecond
}

// normal is the inverse of the standard normal distribution function.
func normal(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// Node is one operation in the model of a request: what it does itself and what
// it calls. A drawn request has one span for it, or two where Kind says so.
type Node struct {
	Service   string
	Operation string

	// Kind says how the node is called and recorded:
	//
	//	KindServer    a call: CLIENT in the caller and SERVER in Service; the root: SERVER alone
	//	KindClient    a call whose callee is not traced (a database): CLIENT in the caller, peer.service = Service
	//	KindInternal  work inside the caller, whose service it has
	//	KindConsumer  a message: PRODUCER in the caller, which does not wait, and CONSUMER in Service
	Kind Kind

	// Own is the time of the node itself. For a leaf it is the whole duration
	// as its caller sees it, network included; else it is the work around the
	// steps, spread evenly before, between and after them.
	Own Dist
	// Net is the time that a call spends outside its SERVER span, at most a
	// quarter of the call; of a message, the time it waits in the queue.
	Net time.Duration
	// Steps run one after the other; the nodes of one step start together, and
	// the step ends with the last of them.
	//
	//	Steps: {{a}, {b, c}}     |- a -||- b -|
	//	                                |-- c ---|
	Steps [][]*Node

	Presence  float64       // share of parents that call it; 0 means all
	Detached  bool          // the parent starts it and does not wait
	OneOf     []*Node       // the node stands for exactly one of these, drawn by their Presence
	LoopMax   int           // called 1 to LoopMax times in a row; 0 means once
	FailRatio float64       // share of attempts that fail, as long as there is an attempt left
	Attempts  int           // attempts of a call, with FailRatio
	Backoff   time.Duration // pause before the next attempt
	// HedgeAfter starts a second call to the same target when the first takes
	// longer by at least Net, so that the second one arrives; the first answer
	// wins and the loser is cancelled. 0 means never. For leaves only.
	HedgeAfter time.Duration
	Attrs      []Attr // of the CLIENT span if there is one and of the SERVER span
}

// DrawConfig says how many traces to draw and from when to when.
type DrawConfig struct {
	Seed   uint64
	Traces int
	Start  time.Time     // of the first trace
	Every  time.Duration // mean distance between the starts of two traces
}

// Draw draws whole traces of requests to root, each with its own random ids, in
// the order of their starts.
//
// Durations are stratified, not independent draws: over all calls of a node the
// i-th smallest of n durations is the i/n quantile of its Dist. So the nearest
// rank P50 and P99 of n calls are those of the Dist, exactly, while which
// request gets which duration is random. (Not for nodes that fail, loop or
// hedge, whose number of calls is not known beforehand.)
func Draw(root *Node, c DrawConfig) []Span {
	d := newDrawer(c)
	for range c.Traces {
		d.request(root)
	}
	return d.spans
}

// request draws the next trace.
func (d *drawer) request(root *Node) {
	binary.BigEndian.PutUint64(d.trace[:8], d.rng.Uint64()|1) // never zero
	binary.BigEndian.PutUint64(d.trace[8:], d.rng.Uint64())
	d.node(root, site{share: 1}, d.at)
	d.at += d.rng.Int64N(2*int64(d.every/time.Microsecond)+1) * int64(time.Microsecond)
}

// site is the place a node is called from.
type site struct {
	service string
	parent  [8]byte
	share   float64 // of requests that get here
}

type drawer struct {
	rng    *rand.Rand
	traces int           // that will be drawn
	every  time.Duration // mean distance of their starts
	decks  map[deckKey]*deck
	at     int64 // start of the next trace
	trace  [16]byte
	spans  []Span
}

func newDrawer(c DrawConfig) *drawer {
	return &drawer{
		rng: newRand(c.Seed), traces: c.Traces, every: c.Every, decks: make(map[deckKey]*deck), at: c.Start.UnixNano(),
	}
}

// deckKey names one random choice of one node.
type deckKey struct {
	node   *Node
	choice string
}

// deck deals the fractions 1/n … n/n in random order, again and again.
type deck struct {
	cards []int
	next  int
}

// deal returns the next fraction for a choice of n that is made by the given
// share of all requests.
func (d *drawer) deal(n *Node, choice string, share float64) float64 {
	key := deckKey{n, choice}
	dk := d.decks[key]
	if dk == nil {
		dk = &deck{cards: make([]int, max(1, int(math.Round(share*float64(d.traces)))))}
		dk.next = len(dk.cards)
		d.decks[key] = dk
	}
	if dk.next == len(dk.cards) {
		dk.cards = d.rng.Perm(len(dk.cards))
		dk.next = 0
	}
	u := float64(dk.cards[dk.next]+1) / float64(len(dk.cards))
	dk.next++
	return u
}

// node draws one node called at the instant at and returns when its caller goes
// on: the operation with all attempts and repeats.
func (d *drawer) node(n *Node, from site, at int64) (end int64) {
	const tiny = 1e-9 // shares are decimal fractions and not exact in binary
	if n.OneOf != nil {
		u, sum := d.deal(n, "alternative", from.share), 0.0
		for _, alt := range n.OneOf {
			share := alt.Presence
			if sum += share; u <= sum+tiny {
				chosen := from
				chosen.share *= share
				return d.operation(alt, chosen, at)
			}
		}
		return at
	}
	if n.Presence > 0 {
		if d.deal(n, "presence", from.share) > n.Presence+tiny {
			return at
		}
		from.share *= n.Presence
	}
	return d.operation(n, from, at)
}

// operation draws a node that is there.
func (d *drawer) operation(n *Node, from site, at int64) (end int64) {
	times := 1
	if n.LoopMax > 0 {
		times += d.rng.IntN(n.LoopMax)
	}
	end = at
	for range times {
		end = d.attempts(n, from, end)
	}
	if n.Detached {
		return at
	}
	return end
}

// attempts draws one call with its retries or its hedge.
func (d *drawer) attempts(n *Node, from site, at int64) (end int64) {
	for attempt := 1; ; attempt++ {
		first := len(d.spans)
		end = d.call(n, from, at)
		if attempt >= n.Attempts || d.rng.Float64() >= n.FailRatio {
			break
		}
		fail(d.spans[first:first+spansPerCall(n)], Attr{"error.type", "unavailable"})
		at = end + int64(n.Backoff)
	}
	if n.HedgeAfter == 0 || end-at < int64(n.HedgeAfter+n.Net) {
		return end
	}
	hedge := len(d.spans)
	second := d.call(n, from, at+int64(n.HedgeAfter))
	loser := d.spans[hedge:]
	if second < end {
		end, second = second, end
		loser = d.spans[hedge-spansPerCall(n) : hedge]
	}
	for i := range loser {
		loser[i].End -= second - end
	}
	fail(loser, Attr{"error.type", "cancelled"}, Attr{"rpc.grpc.status_code", int64(1)})
	return end
}

// spansPerCall is the number of spans that call records for the node itself.
func spansPerCall(n *Node) int {
	if n.Kind == KindServer {
		return 2
	}
	return 1
}

func fail(spans []Span, attrs ...Attr) {
	for i := range spans {
		spans[i].Status = StatusError
		spans[i].Attrs = append(spans[i].Attrs[:len(spans[i].Attrs):len(spans[i].Attrs)], attrs...)
	}
}

// call draws one call and returns when the caller goes on.
//
//	KindServer    CLIENT [at ............ end]    KindConsumer  PRODUCER [at end]
//	                SERVER [at+net/2 … end-net/2]                 CONSUMER     net [ … ]
func (d *drawer) call(n *Node, from site, at int64) (end int64) {
	own := int64(n.Own.Quantile(d.deal(n, "own", from.share)))
	net := int64(n.Net)
	in := site{service: n.Service, share: from.share}
	switch {
	case n.Kind == KindServer && from.parent == [8]byte{}:
		return d.span(n, KindServer, n.Service, from, in, at, own)

	case n.Kind == KindServer:
		client := d.open(n, KindClient, from.service, from.parent, at)
		from.parent = d.spans[client].ID
		if len(n.Steps) == 0 {
			net = min(net, own/4) / 2000 * 2000 // two halves of whole microseconds
			own -= net
		}
		end = d.span(n, KindServer, n.Service, from, in, at+net/2, own) + net/2
		d.spans[client].End = end
		return end

	case n.Kind == KindConsumer:
		const publish = int64(100 * time.Microsecond)
		producer := d.open(n, KindProducer, from.service, from.parent, at)
		d.spans[producer].End = at + publish
		from.parent = d.spans[producer].ID
		d.span(n, KindConsumer, n.Service, from, in, at+publish+net, own)
		return at + publish

	case n.Kind == KindClient:
		in.service = from.service
		first := len(d.spans)
		end = d.span(n, KindClient, from.service, from, in, at, own)
		s := &d.spans[first]
		s.Attrs = append([]Attr{{"peer.service", n.Service}}, s.Attrs...)
		return end

	default:
		in.service = from.service
		return d.span(n, n.Kind, from.service, from, in, at, own)
	}
}

// span draws the span that does the work of a node, with all its steps.
func (d *drawer) span(n *Node, kind Kind, service string, from, in site, at, own int64) (end int64) {
	self := d.open(n, kind, service, from.parent, at)
	in.parent = d.spans[self].ID
	pause := own / int64(len(n.Steps)+1) / 1000 * 1000
	end = at + own - pause*int64(len(n.Steps))
	for _, step := range n.Steps {
		next := end
		for _, child := range step {
			next = max(next, d.node(child, in, end))
		}
		end = next + pause
	}
	d.spans[self].End = end
	return end
}

func (d *drawer) open(n *Node, kind Kind, service string, parent [8]byte, at int64) int {
	s := Span{TraceID: d.trace, Parent: parent, Service: service, Name: n.Operation, Kind: kind, Start: at, Attrs: n.Attrs}
	binary.BigEndian.PutUint64(s.ID[:], d.rng.Uint64()|1) // never zero
	d.spans = append(d.spans, s)
	return len(d.spans) - 1
}
