package tracegen

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// StreamConfig says what [Stream] writes.
type StreamConfig struct {
	Seed   uint64
	Traces int
	// Append writes one batch of 100 to 500 spans, e.g. [AppendOTLPJSONLines]
	// for one line or [AppendOTLPProtoFramed] for one message.
	Append func(dst []byte, spans []Span) []byte
}

// Stream writes traces with all that real ones carry, for benchmarks, and
// returns the number of spans. Memory does not grow with the number of traces
// but for a few bytes a trace.
//
// The traces are those of a busy shop of 6 services with 3 instances each: 15.5
// spans a trace, 8 resource attributes, 8 to 12 span attributes, events on 13 %
// of the spans, links on 1 %, 2 % of the calls tried again; spans in the order
// of their ends, so that traces are interleaved and a batch holds spans of
// about 18 instances.
func Stream(w io.Writer, c StreamConfig) (spans int, err error) {
	d := newDrawer(DrawConfig{Seed: c.Seed, Traces: c.Traces, Start: epoch, Every: time.Millisecond})
	root := shop()
	dress := newDresser(d)
	var pending []Span // spans that may still be overtaken
	var buf []byte
	write := func(batch []Span) error {
		buf = c.Append(buf[:0], batch)
		spans += len(batch)
		_, err := w.Write(buf)
		return err
	}
	next := 100 + d.rng.IntN(401)
	for i := range c.Traces {
		d.request(root)
		dress.trace(d.spans)
		pending = append(pending, d.spans...)
		d.spans = d.spans[:0]
		if i%100 != 99 {
			continue
		}
		// No later span can end before the next trace starts.
		SortByEnd(pending)
		ready := pending
		for len(ready) >= next && ready[next-1].End < d.at {
			if err := write(ready[:next]); err != nil {
				return spans, err
			}
			ready = ready[next:]
			next = 100 + d.rng.IntN(401)
		}
		pending = pending[:copy(pending, ready)]
	}
	SortByEnd(pending)
	for batch := range slices.Chunk(pending, 500) {
		if err := write(batch); err != nil {
			return spans, err
		}
	}
	return spans, nil
}

// shop is the model behind Stream.
func shop() *Node {
	database := func(op string, own Dist) []*Node {
		return []*Node{{
			Service: "postgres", Operation: op, Kind: KindClient, Own: own,
			Attrs: []Attr{{"db.system.name", "postgresql"}, {"db.query.text", op + " WHERE tenant = $1 AND id = $2"}},
		}}
	}
	rpc := func(service, method string, own Dist, steps ...[]*Node) *Node {
		n := call(service, "shop.v1."+service+"/"+method, own, steps...)
		n.Attrs = []Attr{{"rpc.system", "grpc"}, {"rpc.service", "shop.v1." + service}, {"rpc.method", method}}
		n.FailRatio, n.Attempts, n.Backoff = 0.02, 3, 2*ms
		return n
	}
	coupon := rpc("coupon", "Apply", Dist{P50: 4 * ms, P99: 20 * ms})
	coupon.Presence = 0.1
	return &Node{
		Service: "gateway", Operation: "POST /checkout", Kind: KindServer, Own: Dist{P50: 2 * ms, P99: 6 * ms},
		Attrs: []Attr{
			{"http.request.method", "POST"}, {"http.route", "/checkout"}, {"http.response.status_code", int64(200)},
		},
		Steps: [][]*Node{
			{{Operation: "validate", Kind: KindInternal, Own: Dist{P50: 500 * us, P99: 2 * ms}}},
			{rpc("user", "Load", Dist{P50: ms, P99: 4 * ms}, database("SELECT users", Dist{P50: 2 * ms, P99: 9 * ms}))},
			{
				rpc("cart", "Read", Dist{P50: 2 * ms, P99: 6 * ms}, database("SELECT items", Dist{P50: 3 * ms, P99: 12 * ms})),
				rpc("stock", "Check", Dist{P50: 6 * ms, P99: 30 * ms}),
			},
			{coupon},
			{rpc("payment", "Charge", Dist{P50: 10 * ms, P99: 40 * ms},
				[]*Node{rpc("user", "Confirm", Dist{P50: 2 * ms, P99: 8 * ms})},
				database("INSERT payments", Dist{P50: 3 * ms, P99: 10 * ms}))},
		},
	}
}

// dresser puts on spans what makes real exports large.
type dresser struct {
	*drawer
	instances map[string][][]Attr // resource attributes by service
}

func newDresser(d *drawer) *dresser {
	out := &dresser{drawer: d, instances: make(map[string][][]Attr)}
	for _, service := range []string{"gateway", "user", "cart", "stock", "coupon", "payment"} {
		for i := range 3 {
			pod := fmt.Sprintf("%s-%08x-%05x", service, d.rng.Uint32(), d.rng.IntN(1<<20))
			out.instances[service] = append(out.instances[service], []Attr{
				{"service.instance.id", pod},
				{"service.namespace", "shop"},
				{"service.version", fmt.Sprintf("2026.%d.%d", i+1, d.rng.IntN(30))},
				{"deployment.environment.name", "production"},
				{"host.name", fmt.Sprintf("node-%d.eu-central-1.compute.internal", i+1)},
				{"k8s.pod.name", pod},
				{"telemetry.sdk.language", "go"},
			})
		}
	}
	return out
}

// trace dresses the spans of one trace, in which parents stand before their
// children. A SERVER span runs in any instance of its service; what it calls
// is recorded in the same one.
func (d *dresser) trace(spans []Span) {
	resource := make(map[[8]byte][]Attr, len(spans))
	for i := range spans {
		s := &spans[i]
		if s.Kind == KindServer {
			s.Resource = d.instances[s.Service][d.rng.IntN(3)]
		} else {
			s.Resource = resource[s.Parent]
		}
		resource[s.ID] = s.Resource
		s.Attrs = d.attrs(s)
		if d.rng.IntN(100) < 13 {
			s.Events = []Event{{Time: s.Start + (s.End-s.Start)/2, Name: "message", Attrs: []Attr{
				{"message.type", "SENT"}, {"message.id", d.rng.Int64N(1000)},
			}}}
		}
		if d.rng.IntN(100) < 1 {
			var l Link
			for j := range l.TraceID {
				l.TraceID[j] = byte(d.rng.Uint32())
			}
			copy(l.SpanID[:], l.TraceID[:])
			s.Links = []Link{l}
		}
	}
}

// attrs adds to the attributes of the model until there are 8 to 12.
func (d *dresser) attrs(s *Span) []Attr {
	all := slices.Concat(s.Attrs, []Attr{
		{"server.address", s.Name[:min(len(s.Name), 8)] + ".shop.svc.cluster.local"},
		{"server.port", int64(8080)},
		{"network.peer.address", fmt.Sprintf("10.42.%d.%d", d.rng.IntN(16), d.rng.IntN(256))},
		{"thread.id", d.rng.Int64N(64)},
		{"tenant.id", fmt.Sprintf("tenant-%04d", d.rng.IntN(500))},
		{"sampled.ratio", d.rng.Float64()},
		{"cache.hit", d.rng.IntN(2) == 0},
		{"user_agent.original", "grpc-go/1.85.0"},
		{"network.protocol.version", "2"},
		{"code.function.name", "github.com/example/shop/internal/" + s.Service + ".(*Server).handle"},
		{"request.id", fmt.Sprintf("%016x", d.rng.Uint64())},
		{"feature.flags", []string{"checkout-v2", "fast-lane"}},
	})
	return all[:8+d.rng.IntN(5)]
}
