package tracegen

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// none is the parent of a root.
var none [8]byte

// pen writes traces span by span, for stories where every instant matters.
type pen struct {
	rng   *rand.Rand
	trace [16]byte
	start int64
	spans []Span
}

func newPen(seed uint64) *pen {
	return &pen{rng: newRand(seed), start: epoch.UnixNano() - int64(time.Second)}
}

// newTrace begins the next trace, one second after the one before.
func (p *pen) newTrace() {
	binary.BigEndian.PutUint64(p.trace[:8], p.rng.Uint64()|1)
	binary.BigEndian.PutUint64(p.trace[8:], p.rng.Uint64())
	p.start += int64(time.Second)
}

// newID returns a fresh span id; it is given to add in Span.ID where a span is
// named before it is written.
func (p *pen) newID() (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], p.rng.Uint64()|1)
	return id
}

// add writes a span from and to the given times after the start of the trace.
func (p *pen) add(s Span, from, to time.Duration) [8]byte {
	s.TraceID = p.trace
	if s.ID == none {
		s.ID = p.newID()
	}
	s.Start, s.End = p.start+int64(from), p.start+int64(to)
	p.spans = append(p.spans, s)
	return s.ID
}

// server writes a SERVER span.
func (p *pen) server(parent [8]byte, service, name string, from, to time.Duration) [8]byte {
	return p.add(Span{Parent: parent, Service: service, Name: name, Kind: KindServer}, from, to)
}

// internal writes an INTERNAL span.
func (p *pen) internal(parent [8]byte, service, name string, from, to time.Duration) [8]byte {
	return p.add(Span{Parent: parent, Service: service, Name: name, Kind: KindInternal}, from, to)
}

// call writes a CLIENT span with its SERVER span, which stands 200 µs inside
// on both sides, and returns the id of the SERVER span.
func (p *pen) call(parent [8]byte, caller, callee, name string, from, to time.Duration) [8]byte {
	client := p.add(Span{Parent: parent, Service: caller, Name: name, Kind: KindClient}, from, to)
	return p.server(client, callee, name, from+200*us, to-200*us)
}

func deadlineReset() Story {
	p := newPen(101)
	stamped := func(s Span, attrs ...Attr) Span {
		s.Attrs = attrs
		return s
	}
	for _, reset := range []bool{false, true} {
		p.newTrace()
		inventory := 0.2188 // of 300 ms, 81.2 ms after the start
		if reset {
			inventory = 15
		}
		root := p.add(stamped(Span{Service: "gateway", Name: "POST /orders", Kind: KindServer},
			Attr{"latency_budget.limit", 0.3}, Attr{"latency_budget.remaining.start", 0.3},
			Attr{"latency_budget.deadline.remaining", 0.3}, Attr{"latency_budget.source", "context"}), 0, 200*ms)
		client := p.add(stamped(Span{Parent: root, Service: "gateway", Name: "Place", Kind: KindClient},
			Attr{"latency_budget.limit", 0.3}, Attr{"latency_budget.remaining.start", 0.25},
			Attr{"latency_budget.deadline.remaining", 0.25}, Attr{"latency_budget.source", "context"}), 50*ms, 190*ms)
		order := p.add(stamped(Span{Parent: client, Service: "orders", Name: "Place", Kind: KindServer},
			Attr{"latency_budget.limit", 0.3}, Attr{"latency_budget.remaining.start", 0.249},
			Attr{"latency_budget.deadline.remaining", 0.249}, Attr{"latency_budget.announced.remaining", 0.25},
			Attr{"latency_budget.announced.fresh", true}, Attr{"latency_budget.source", "context"}), 51*ms, 189*ms)
		reserve := stamped(Span{Parent: order, Service: "orders", Name: "Reserve", Kind: KindClient},
			Attr{"latency_budget.limit", 0.3}, Attr{"latency_budget.remaining.start", 0.22},
			Attr{"latency_budget.deadline.remaining", 0.22}, Attr{"latency_budget.source", "context"})
		if reset {
			reserve = stamped(reserve,
				Attr{"latency_budget.limit", 0.3}, Attr{"latency_budget.remaining.start", 0.22},
				Attr{"latency_budget.deadline.remaining", 15.0}, Attr{"latency_budget.source", "announced"},
				Attr{"latency_budget.reset", true}, Attr{"latency_budget.flags", []string{"deadline_extended"}})
		}
		client = p.add(reserve, 80*ms, 180*ms)
		reserved := stamped(Span{Parent: client, Service: "inventory", Name: "Reserve", Kind: KindServer},
			Attr{"latency_budget.limit", 0.3}, Attr{"latency_budget.remaining.start", 0.2188},
			Attr{"latency_budget.deadline.remaining", inventory}, Attr{"latency_budget.announced.remaining", 0.22},
			Attr{"latency_budget.announced.fresh", true}, Attr{"latency_budget.source", "announced"})
		if reset {
			reserved.Attrs = append(reserved.Attrs,
				Attr{"latency_budget.reset", true}, Attr{"latency_budget.flags", []string{"deadline_extended"}})
		}
		p.add(reserved, 81200*us, 179*ms)
	}
	return Story{
		Name:  "deadline-reset",
		Title: "A service replaces the deadline it was given by its own default of 15 s",
		Text: `
    gateway    POST /orders  0 |--------------------------| 200 ms    limit 300, remaining 300
    gateway    Place            50 |------------------| 190           remaining 250
    orders     Place             51 |----------------| 189            remaining 249
    orders     Reserve              80 |-----------| 180              remaining 220; deadline 220, then 15,000
    inventory  Reserve               81 |---------| 179               remaining 219; deadline 219, then 15,000

The first trace is sound. In the second, orders calls inventory with a fresh deadline of 15 s where 220 ms were left.
The first hop where the deadline grew is orders to inventory: orders reset it, inventory only got it, though both spans
carry the flag.
The limit that the spans carry is 300 ms in both.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP},
	}
}

func missingParent() Story {
	p := newPen(102)
	lost := p.newID()

	p.newTrace()
	entry := p.server(lost, "orders", "Place", 0, 100*ms)
	p.call(entry, "orders", "inventory", "Reserve", 10*ms, 60*ms)

	p.newTrace()
	root := p.server(none, "gateway", "POST /orders", 0, 100*ms)
	p.call(root, "gateway", "orders", "Place", 10*ms, 90*ms)
	p.server(lost, "audit", "Log", 20*ms, 24*ms)

	p.newTrace()
	root = p.server(none, "gateway", "POST /orders", 0, 100*ms)
	p.call(root, "gateway", "orders", "Place", 10*ms, 90*ms)
	p.server(lost, "inventory", "Reserve", 20*ms, 60*ms)

	p.newTrace()
	p.add(Span{
		Parent: lost, Service: "orders", Name: "SELECT orders", Kind: KindClient,
		Attrs: []Attr{{"db.system.name", "postgresql"}},
	}, 0, 3*ms)
	return Story{
		Name:  "missing-parent",
		Title: "Spans whose parent is not in the export, in the four ways that matter",
		Text: `
    1  (?) > orders Place              0 |----------| 100     no root at all: the orphan SERVER span is the entry
               orders > inventory         10 |----| 60
    2  gateway POST /orders            0 |----------| 100     a root and a small orphan: it attaches nowhere, is counted
               gateway > orders          10 |------| 90
       (?) > audit Log                    20 || 24            4 % of the root
    3  gateway POST /orders            0 |----------| 100     a root and a large orphan: the trace is incomplete, left out
               gateway > orders          10 |------| 90
       (?) > inventory Reserve            20 |---| 60         40 % of the root
    4  (?) > orders SELECT             0 || 3                 a lone CLIENT span: no entry, left out

A right analysis says: four orphans; endpoints "orders Place" with one trace and "gateway POST /orders" with one; one
trace left out as incomplete and one without an entry.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP},
	}
}

func cycle() Story {
	p := newPen(103)
	p.newTrace()
	a, b := p.newID(), p.newID()
	p.add(Span{ID: a, Parent: b, Service: "a", Name: "A", Kind: KindServer}, 0, 50*ms)
	p.add(Span{ID: b, Parent: a, Service: "b", Name: "B", Kind: KindServer}, 10*ms, 40*ms)

	p.newTrace()
	a, b = p.newID(), p.newID()
	p.server(none, "c", "C", 0, 100*ms)
	p.add(Span{ID: a, Parent: b, Service: "a", Name: "A", Kind: KindServer}, 0, 50*ms)
	p.add(Span{ID: b, Parent: a, Service: "b", Name: "B", Kind: KindServer}, 10*ms, 40*ms)

	p.newTrace()
	a = p.newID()
	p.add(Span{ID: a, Parent: a, Service: "d", Name: "D", Kind: KindServer}, 0, 50*ms)
	p.call(a, "d", "e", "E", 10*ms, 40*ms)
	return Story{
		Name:  "cycle",
		Title: "Spans that are their own ancestors",
		Text: `
    1  A > B > A               a cycle alone
    2  A > B > A, and C        a cycle beside a sound root
    3  D > D, D > E            a span that is its own parent: a root

A right analysis ends, breaks each cycle at one edge that does not depend on the order of the spans, names the span, and
accounts for all eight spans.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP},
	}
}

func negativeDuration() Story {
	p := newPen(104)
	p.newTrace()
	root := p.server(none, "gateway", "GET /cart", 0, 100*ms)
	p.call(root, "gateway", "cart", "Read", 10*ms, 40*ms)
	p.server(root, "price", "Quote", 60*ms, 60*ms-1)
	p.server(root, "stock", "Check", 90*ms, 50*ms)
	return Story{
		Name:  "negative-duration",
		Title: "Spans that end before they start, one by a nanosecond",
		Text: `
    gateway GET /cart  0 |---------------------------| 100
      cart Read           10 |------| 40
      price Quote                         60 |                ends 1 ns before it starts
      stock Check                   50 <--------| 90          ends 40 ms before it starts

A right analysis leaves out two spans as negative, keeps the other three, and shows no duration of centuries.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP},
	}
}

func touchingChildren() Story {
	p := newPen(105)
	p.newTrace()
	root := p.server(none, "p", "P", 0, 100*ms)
	p.add(Span{Parent: root, Service: "p", Name: "A", Kind: KindClient}, 0, 50*ms)
	p.add(Span{Parent: root, Service: "p", Name: "B", Kind: KindClient}, 50*ms, 100*ms)
	return Story{
		Name:  "touching-children",
		Title: "A call that starts in the very nanosecond in which the one before it ends",
		Text: `
    P  0 |--------------------| 100
      A  |---------| 50
      B         50 |----------| 100

A right analysis has both calls on the critical path with 50 ms each, and nothing for P itself.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP, formatJaeger},
	}
}

func nestedOverflow() Story {
	p := newPen(106)
	p.newTrace()
	root := p.server(none, "r", "root", 0, 100*ms)
	child := p.server(root, "c", "child", 10*ms, 130*ms)
	p.server(child, "g", "grandchild", 20*ms, 120*ms)

	p.newTrace()
	root = p.server(none, "r", "root", 0, 100*ms)
	a := p.server(root, "a", "a", 50*ms, 150*ms)
	p.server(a, "b", "b", 110*ms, 140*ms)

	p.newTrace()
	root = p.server(none, "r", "root", 0, 100*ms)
	late := p.server(root, "l", "late", 120*ms, 160*ms)
	p.server(late, "g", "grand", 125*ms, 150*ms)
	return Story{
		Name:  "nested-overflow",
		Title: "Children that outlive their parents, and their children with them",
		Text: `
    1  root        0 |--------------------| 100
         child       10 |-----------------|======| 130
           grandchild  20 |---------------|====| 120
    2  root        0 |--------------------| 100
         a                   50 |---------|==========| 150
           b                                110 |==| 140
    3  root        0 |--------------------| 100
         late                                  120 |===| 160
           grand                                125 |=| 150

A right analysis clips to the parent, from the top down, and never has a section that ends before it starts:
1  root 10, child 10, grandchild 80.  2  root 50, a 50, b 0.  3  root 100.
These services call without CLIENT spans, and a child that is shorter than its parent and overlaps its end looks like
one whose clock is ahead: correction of clocks may move it inside.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP, formatJaeger},
	}
}

func producerConsumer() Story {
	p := newPen(107)
	p.newTrace()
	root := p.server(none, "shop", "POST /orders", 0, 50*ms)
	producer := p.add(Span{Parent: root, Service: "shop", Name: "publish orders", Kind: KindProducer}, 10*ms, 12*ms)
	consumer := p.add(Span{Parent: producer, Service: "mailer", Name: "process orders", Kind: KindConsumer}, 300*ms, 900*ms)
	p.call(consumer, "mailer", "smtp", "Send", 400*ms, 800*ms)

	order := p.trace
	p.newTrace()
	p.add(Span{
		Service: "billing", Name: "process orders", Kind: KindConsumer,
		Links: []Link{{order, producer}},
	}, 0, 20*ms)
	return Story{
		Name:  "producer-consumer",
		Title: "A message whose work goes on long after the answer, and a second consumer in a trace of its own",
		Text: `
    1  shop POST /orders       0 |------| 50
         shop publish            10 || 12                        PRODUCER
           mailer process               300 |---------------| 900  CONSUMER
             mailer > smtp Send           400 |-----------| 800
    2  billing process         0 |--| 20                         CONSUMER, linked to the publish of trace 1

A right analysis says: the endpoint takes 50 ms, not 900; its path ends at 50; the message and all under it, the call to
smtp included, get no budget; and nothing is shifted for skew: the 288 ms are waiting in the queue. Trace 2 is an entry
of its own; a link to another trace makes no parent.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP, formatJaeger},
	}
}

func twoRoots() Story {
	p := newPen(108)
	p.newTrace()
	root := p.server(none, "gateway", "GET /a", 0, 40*ms)
	p.call(root, "gateway", "x", "X", 5*ms, 35*ms)
	root = p.server(none, "gateway", "GET /b", 50*ms, 120*ms)
	p.call(root, "gateway", "y", "Y", 60*ms, 110*ms)
	return Story{
		Name:  "two-roots",
		Title: "One trace with two requests that have no parent",
		Text: `
    gateway GET /a  0 |-------| 40
      x X             5 |---| 35
    gateway GET /b                50 |-------------| 120
      y Y                           60 |---------| 110

A right analysis has two endpoints with one request each, of 40 and of 70 ms; not one of 120.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP},
	}
}

func zeroDurationRoot() Story {
	p := newPen(109)
	p.newTrace()
	root := p.server(none, "health", "GET /live", 0, 0)
	p.internal(root, "health", "check", 0, 0)
	return Story{
		Name:  "zero-duration-root",
		Title: "A request that ends in the nanosecond in which it starts",
		Text: `
    health GET /live  0 | 0
      check           0 | 0

A right analysis keeps both spans and divides nothing by zero.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLP},
	}
}

func censored() Story {
	p := newPen(110)
	for i := range 100 {
		p.newTrace()
		took := 10 * ms
		var attrs []Attr
		status, code := StatusUnset, int64(200)
		if i%20 == 19 {
			took, status, code = 1000*ms, StatusError, 504
			attrs = []Attr{{"rpc.grpc.status_code", int64(4)}, {"error.type", "DEADLINE_EXCEEDED"}}
		}
		root := p.add(Span{
			Service: "gateway", Name: "GET /score", Kind: KindServer,
			Attrs: []Attr{{"http.response.status_code", code}}, Status: status,
		}, 0, took+2*ms)
		client := p.add(Span{
			Parent: root, Service: "gateway", Name: "Score", Kind: KindClient,
			Attrs: attrs, Status: status,
		}, ms, took+ms)
		if status == StatusUnset {
			p.server(client, "risk", "Score", ms+200*us, took+ms-200*us)
		}
	}
	return Story{
		Name:  "censored",
		Title: "A timeout of one second cuts five calls of a hundred",
		Text: `
    gateway GET /score  |----|          95 times           |------ … ------|  5 times, answered with 504
      risk Score         |--| 10 ms                         |----- … -----|  1000 ms, DEADLINE_EXCEEDED, no SERVER span

A right analysis says: 5 % of the calls to risk were cut, so their true duration is unknown and the P99 is a lower
bound: at least 1000 ms. It neither takes 1000 ms for a measured P99 nor forgets the five calls and calls it 10 ms.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLPLines},
	}
}

func unmeasured() Story {
	p := newPen(111)
	for i := range 12 {
		p.newTrace()
		root := p.server(none, "chat", "GET /room", 0, 80*ms)
		p.call(root, "chat", "store", "History", 5*ms, 40*ms)
		stream := p.add(Span{Parent: root, Service: "chat", Name: "Subscribe", Kind: KindClient}, 45*ms, 45*ms)
		if i%3 > 0 {
			p.spans[len(p.spans)-1].End = 0
		}
		if i%3 > 1 {
			p.spans[len(p.spans)-1].Start = 0
		}
		p.server(stream, "feed", "Subscribe", 46*ms, 70*ms)
	}
	return Story{
		Name:  "unmeasured",
		Title: "Streams whose spans have no end, or no times at all",
		Text: `
    chat GET /room    0 |------------------| 80
      store History     5 |------| 40
      chat Subscribe              45 |?               four with duration 0, four without end, four without times
        feed Subscribe             46 |---| 70

A right analysis counts eight spans as unmeasured and treats them as if they were not there: what they hold hangs under
their parent. A duration of 0 is a duration, and no measurement is not 0.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLPLines, formatZipkin},
	}
}

func grpcAttempts() Story {
	p := newPen(112)
	for range 10 {
		p.newTrace()
		root := p.server(none, "gateway", "GET /quote", 0, 310*ms)
		sent := p.add(Span{Parent: root, Service: "gateway", Name: "Sent.shop.v1.Price/Quote", Kind: KindClient}, 5*ms, 305*ms)
		for i, attempt := range [][2]time.Duration{{5, 105}, {115, 215}, {225, 305}} {
			s := Span{
				Parent: sent, Service: "gateway", Name: "Attempt.shop.v1.Price/Quote", Kind: KindInternal,
				Attrs: []Attr{{"previous-rpc-attempts", int64(i)}, {"transparent-retry", false}},
			}
			if i < 2 {
				s.Status, s.Message = StatusError, "UNAVAILABLE"
			}
			id := p.add(s, attempt[0]*ms, attempt[1]*ms)
			server := Span{Parent: id, Service: "price", Name: "Recv.shop.v1.Price/Quote", Kind: KindServer, Status: s.Status}
			p.add(server, attempt[0]*ms+200*us, attempt[1]*ms-200*us)
		}
	}
	return Story{
		Name:  "grpc-attempts",
		Title: "One gRPC call with a span of its own for each of its three attempts",
		Text: `
    gateway GET /quote         0 |------------------------------------| 310
      Sent.…Quote   CLIENT      5 |----------------------------------| 305
        Attempt     INTERNAL      |---------| 105  error
          price Recv               |-------|
        Attempt                                |---------| 215  error      (115 to 215)
          price Recv                            |-------|
        Attempt                                             |--------| 305  (225 to 305)
          price Recv                                         |------|

A right analysis has one hop for price with three attempts; its duration is that of Sent, 300 ms; the pauses of 10 ms
are nobody's work.`,
		Spans:   p.spans,
		Formats: []Format{formatOTLPLines},
	}
}
