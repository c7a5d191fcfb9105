package tracegen

import (
	"fmt"
	"slices"
	"time"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// epoch is when the first trace of every story starts.
var epoch = time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)

// Stories returns the stories of testdata/ in the order of the index.
func Stories() []Story {
	return []Story{
		orders(),
		dag(),
		tiny(),
		nested(),
		sequential(),
		parallelFanout(),
		retryStorm(),
		grpcAttempts(),
		loops(),
		optional(),
		hedge(),
		exclusive(),
		clockSkew(),
		coarseClock(),
		noKinds(),
		sharedIDs(),
		chinese(),
		sampled(),
		tailSampled(),
		censored(),
		stamped(),
		deadlineReset(),
		unmeasured(),
		missingParent(),
		cycle(),
		negativeDuration(),
		touchingChildren(),
		nestedOverflow(),
		producerConsumer(),
		twoRoots(),
		zeroDurationRoot(),
		formats(),
	}
}

// OrdersModel is the checkout of the README: five hops in sequence behind a
// gateway that promises 800 ms.
func OrdersModel() *Node {
	return &Node{
		Service: "gateway", Operation: "POST /orders", Kind: KindServer,
		Own: Dist{P50: 1200 * us, P99: 3 * ms},
		Attrs: []Attr{
			{"http.request.method", "POST"}, {"http.route", "/orders"}, {"http.response.status_code", int64(201)},
		},
		Steps: [][]*Node{
			{{
				Operation: "validate", Kind: KindInternal, Own: Dist{P50: 300 * us, P99: 900 * us},
				Steps: [][]*Node{{call("auth", "Check", Dist{P50: 8 * ms, P99: 25 * ms})}},
			}},
			{call("inventory", "Reserve", Dist{P50: 11 * ms, P99: 30 * ms})},
			{call("coupon", "Apply", Dist{P50: 15 * ms, P99: 45 * ms})},
			{call("risk", "Score", Dist{P50: 42 * ms, P99: 120 * ms, Cold: 0.005, ColdFrom: 200 * ms, ColdTo: 900 * ms})},
			{call("orders", "persist", Dist{P50: 26 * ms, P99: 70 * ms})},
		},
	}
}

// DAGModel is an endpoint of 100 ms with parallel calls and a message.
func DAGModel() *Node {
	g := call("g", "G", Dist{P50: 4 * ms, P99: 10 * ms})
	g.Kind = KindConsumer
	return &Node{
		Service: "api", Operation: "GET /report", Kind: KindServer, Own: Dist{P50: 700 * us, P99: 1500 * us},
		Attrs: []Attr{{"http.request.method", "GET"}, {"http.route", "/report"}},
		Steps: [][]*Node{
			{call("a", "A", Dist{P50: 2 * ms, P99: 5 * ms})},
			{call("b", "B", Dist{P50: 900 * us, P99: 2 * ms})},
			{
				call("c", "C", Dist{P50: 6 * ms, P99: 15 * ms}),
				call("d", "D", Dist{P50: 4 * ms, P99: 10 * ms}),
			},
			{call("e", "E", Dist{P50: 12 * ms, P99: 30 * ms})},
			{call("f", "F", Dist{P50: 3500 * us, P99: 8 * ms}), g},
			{call("h", "H", Dist{P50: 900 * us, P99: 2 * ms})},
		},
	}
}

// call is a traced call of which the network takes half a millisecond.
func call(service, operation string, own Dist, steps ...[]*Node) *Node {
	return &Node{Service: service, Operation: operation, Kind: KindServer, Own: own, Net: 500 * us, Steps: steps}
}

// exported draws traces and puts their spans in the order exporters emit them.
func exported(root *Node, seed uint64, traces int, every time.Duration) []Span {
	spans := Draw(root, DrawConfig{Seed: seed, Traces: traces, Start: epoch, Every: every})
	SortByEnd(spans)
	return spans
}

func orders() Story {
	return Story{
		Name:  "orders",
		Title: "An order goes through five hops in sequence, under a promise of 800 ms",
		Text: `
    POST /orders  |--------------------------------------------------------|
      validate    |-----|
        auth       |---|                                              P99  25 ms
      inventory          |------|                                     P99  30 ms
      coupon                     |-------|                            P99  45 ms
      risk                                |--------------|            P99 120 ms, 5 cold starts of 270 to 900 ms
      persist                                             |--------|  P99  70 ms

The P99s are exact by nearest rank. One request in a thousand misses 800 ms, and it is one of the five that wait for
a cold start of risk. Five timeouts of 3 s each, as such chains often have, would let a request take 15 s.

A right analysis says: all hops in sequence, none optional, no skew, nothing left out; risk is most of the critical
path. If the five have 40, 200, 160, 240 and 160 ms today, inventory has 6.7 times its P99 and risk, for all its cold
starts, only 2.0 times: 50 ms can move from the one to the other.`,
		Spans:   exported(OrdersModel(), 1, 1000, 40*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func dag() Story {
	return Story{
		Name:  "dag",
		Title: "Calls in sequence and in parallel, and a message nobody waits for, under 100 ms",
		Text: `
    GET /report  |---------------------------------------------|
      A           |---|                                           P99  5 ms
      B                |-|                                        P99  2 ms
      C                   |-------|                               P99 15 ms
      D                   |-----|                                 P99 10 ms
      E                            |-------------|                P99 30 ms
      F                                           |----|          P99  8 ms
      G (message)                                 ||              PRODUCER
                                                     |-----|      CONSUMER, P99 10 ms
      H                                                 |-|       P99  2 ms

A right analysis says: A, B, (C beside D), E, F, H in sequence; C and D share one slot; H answers, so it is in the
path; only G is asynchronous and gets no budget.`,
		Spans:   exported(DAGModel(), 2, 500, 20*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func tiny() Story {
	root := &Node{
		Service: "suggest", Operation: "GET /suggest", Kind: KindServer, Own: Dist{P50: 100 * us, P99: 300 * us},
		Attrs: []Attr{{"http.request.method", "GET"}, {"http.route", "/suggest"}},
		Steps: [][]*Node{
			{call("flags", "Lookup", Dist{P50: 120 * us, P99: 300 * us})},
			{call("session", "Read", Dist{P50: 250 * us, P99: 600 * us})},
			{call("cache", "Get", Dist{P50: 400 * us, P99: ms})},
			{call("ranker", "Rank", Dist{P50: 900 * us, P99: 2 * ms})},
			{call("index", "Search", Dist{P50: 2 * ms, P99: 5 * ms})},
		},
	}
	return Story{
		Name:  "tiny",
		Title: "An endpoint of 50 ms with hops of a third of a millisecond to five milliseconds",
		Text: `
    GET /suggest  |-------------------------|
      flags        ||                           P99 0.3 ms
      session        |-|                        P99 0.6 ms
      cache             |--|                    P99 1 ms
      ranker                |----|              P99 2 ms
      index                       |---------|   P99 5 ms

A right analysis prints no share as 0, whatever it rounds to.`,
		Spans:   exported(root, 3, 400, 10*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func nested() Story {
	audit := call("audit", "process audit", Dist{P50: 5 * ms, P99: 20 * ms})
	audit.Kind = KindConsumer
	store := func(op string, own Dist) *Node {
		return &Node{
			Service: "postgres", Operation: op, Kind: KindClient, Own: own,
			Attrs: []Attr{{"db.system.name", "postgresql"}},
		}
	}
	root := &Node{
		Service: "gateway", Operation: "GET /checkout", Kind: KindServer, Own: Dist{P50: 2 * ms, P99: 5 * ms},
		Attrs: []Attr{{"http.request.method", "GET"}, {"http.route", "/checkout"}},
		Steps: [][]*Node{
			{call("user", "Load", Dist{P50: ms, P99: 3 * ms},
				[]*Node{store("SELECT users", Dist{P50: 3 * ms, P99: 9 * ms})})},
			{
				call("cart", "Read", Dist{P50: 2 * ms, P99: 6 * ms},
					[]*Node{call("price", "Quote", Dist{P50: 2 * ms, P99: 5 * ms},
						[]*Node{store("SELECT prices", Dist{P50: 4 * ms, P99: 14 * ms})})}),
				call("stock", "Check", Dist{P50: 6 * ms, P99: 18 * ms}),
			},
			{call("render", "Page", Dist{P50: 2 * ms, P99: 6 * ms})},
			{audit},
		},
	}
	return Story{
		Name:  "nested",
		Title: "Fifteen spans a trace, four calls deep, two branches in parallel, one message",
		Text: `
    gateway GET /checkout   |-----------------------------------------|
      user Load               |---------|
        SELECT users             |---|
      cart Read                           |------------------|
        price Quote                          |-----------|
          SELECT prices                          |----|
      stock Check                         |------|
      render Page                                              |----|
      audit                                                          ||  PRODUCER
        process audit                                                   |----|  CONSUMER

A right analysis says: user, then cart beside stock, then render; a chain of three under cart; audit is asynchronous.`,
		Spans:   exported(root, 4, 400, 30*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func sequential() Story {
	root := &Node{
		Service: "web", Operation: "GET /page", Kind: KindServer, Own: Dist{P50: 800 * us, P99: 1600 * us},
		Steps: [][]*Node{
			{call("a", "A", Dist{P50: 4 * ms, P99: 10 * ms})},
			{call("b", "B", Dist{P50: 9 * ms, P99: 20 * ms})},
			{call("c", "C", Dist{P50: 8 * ms, P99: 20 * ms})},
		},
	}
	return Story{
		Name:  "sequential",
		Title: "Three calls, one after the other",
		Text: `
    GET /page  |---------------------------|
      A         |---|                         P99 10 ms
      B              |---------|              P99 20 ms
      C                         |--------|    P99 20 ms

A right analysis orders all three pairs and divides what the page does not need for itself as 1 : 2 : 2.`,
		Spans:   exported(root, 5, 40, 100*ms),
		Formats: []Format{formatOTLPLines, formatJaeger},
	}
}

func parallelFanout() Story {
	root := &Node{
		Service: "web", Operation: "GET /home", Kind: KindServer, Own: Dist{P50: 800 * us, P99: 1600 * us},
		Steps: [][]*Node{{
			call("news", "List", Dist{P50: 10 * ms, P99: 40 * ms}),
			call("ads", "Pick", Dist{P50: 6 * ms, P99: 30 * ms}),
			call("user", "Load", Dist{P50: 8 * ms, P99: 20 * ms}),
			call("weather", "Now", Dist{P50: 3 * ms, P99: 10 * ms}),
		}},
	}
	return Story{
		Name:  "parallel-fanout",
		Title: "Four calls at once",
		Text: `
    GET /home  |-------------------|
      news       |-------------|       P99 40 ms
      ads        |---------|           P99 30 ms
      user       |-------|             P99 20 ms
      weather    |---|                 P99 10 ms

A right analysis finds no order between any two, and gives each of them the whole slot.`,
		Spans:   exported(root, 6, 40, 100*ms),
		Formats: []Format{formatOTLPLines},
	}
}

func retryStorm() Story {
	pay := call("bank", "Charge", Dist{P50: 20 * ms, P99: 60 * ms})
	pay.FailRatio, pay.Attempts, pay.Backoff = 0.3, 3, 10*ms
	order := call("payment", "Pay", Dist{P50: 2 * ms, P99: 5 * ms}, []*Node{pay})
	order.FailRatio, order.Attempts, order.Backoff = 0.2, 3, 20*ms
	root := &Node{
		Service: "gateway", Operation: "POST /pay", Kind: KindServer, Own: Dist{P50: ms, P99: 2 * ms},
		Steps: [][]*Node{{order}},
	}
	return Story{
		Name:  "retry-storm",
		Title: "Two layers that each try up to three times",
		Text: `
    gateway POST /pay   |---------------------------------------------------|
      payment Pay 1       |----------------------| error
        bank Charge 1       |---| error
        bank Charge 2              |---| error
        bank Charge 3                     |--|
      payment Pay 2                                    |--------|
        bank Charge 1                                    |---|

A right analysis has one hop for payment and one for bank under it, not one an attempt; the attempts and the pauses
between them spend one budget; at most three attempts each, so nine calls to the bank at worst.`,
		Spans:   exported(root, 7, 200, 50*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func loops() Story {
	root := &Node{
		Service: "shop", Operation: "GET /cart/{id}", Kind: KindServer, Own: Dist{P50: ms, P99: 3 * ms},
		Attrs: []Attr{{"http.request.method", "GET"}, {"http.route", "/cart/{id}"}},
		Steps: [][]*Node{
			{call("user", "Load", Dist{P50: 4 * ms, P99: 10 * ms})},
			{{
				Service: "postgres", Operation: "SELECT items", Kind: KindClient, LoopMax: 8, Own: Dist{P50: 2 * ms, P99: 6 * ms},
				Attrs: []Attr{{"db.system.name", "postgresql"}, {"db.operation.name", "SELECT"}, {"db.collection.name", "items"}},
			}},
		},
	}
	return Story{
		Name:  "loops",
		Title: "One query for each item of a cart, one to eight in a row",
		Text: `
    GET /cart/{id}  |--------------------------|
      user            |---|
      SELECT items          |--||--||--||--|      P99 6 ms each, one to eight of them

A right analysis has one hop for the query, whose duration is from the first to the last of the row, and says that it
is called up to eight times a request.`,
		Spans:   exported(root, 8, 200, 20*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func optional() Story {
	render := call("render", "Preview", Dist{P50: 20 * ms, P99: 60 * ms})
	render.Presence = 0.2
	root := &Node{
		Service: "docs", Operation: "GET /doc", Kind: KindServer, Own: Dist{P50: ms, P99: 2 * ms},
		Steps: [][]*Node{
			{call("store", "Read", Dist{P50: 8 * ms, P99: 20 * ms})},
			{render},
		},
	}
	return Story{
		Name:  "optional",
		Title: "A call that one request in five makes",
		Text: `
    GET /doc    |---------|             |----------------------|
      store      |------|                |------|
      render              4 of 5                  |------------|  1 of 5: P50 20 ms, P99 60 ms

A right analysis says: render is called in 20 % of requests (200 of 1000). Its weight in a division of the budget counts
the requests without it as 0, which makes its P99 there the P95 of its calls, and its P50 is 0; its floor and timeout
come from its calls alone.`,
		Spans:   exported(root, 9, 1000, 30*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func hedge() Story {
	read := call("kv", "Get", Dist{P50: 6 * ms, P99: 60 * ms})
	read.HedgeAfter = 15 * ms
	root := &Node{
		Service: "profile", Operation: "GET /profile", Kind: KindServer, Own: Dist{P50: ms, P99: 2 * ms},
		Steps: [][]*Node{{read}},
	}
	return Story{
		Name:  "hedge",
		Title: "A second call is sent when the first is slow, and the first answer wins",
		Text: `
    GET /profile  |-------------------------|
      kv Get 1     |-----------------------| cancelled
      kv Get 2              15 ms |--------| ok

A right analysis has one hop, whose duration ends with the first answer; the loser is not waited for, and its cut
duration is no measurement.`,
		Spans:   exported(root, 10, 200, 30*ms),
		Formats: []Format{formatOTLPLinesZ},
	}
}

func exclusive() Story {
	alternative := func(service string, share float64) *Node {
		n := call(service, "Book", Dist{P50: 10 * ms, P99: 30 * ms})
		n.Presence = share
		return n
	}
	root := &Node{
		Service: "travel", Operation: "POST /reserve", Kind: KindServer, Own: Dist{P50: ms, P99: 2 * ms},
		Steps: [][]*Node{
			{{OneOf: []*Node{alternative("first", 14./25), alternative("second", 5./25), alternative("third", 6./25)}}},
		},
	}
	return Story{
		Name:  "exclusive",
		Title: "Each request calls exactly one of three services",
		Text: `
    POST /reserve  |----------|   |----------|   |----------|
      first         |--------|                                   14 of 25
      second                       |--------|                     5 of 25
      third                                       |--------|      6 of 25

A right analysis gives the three one slot, not three in sequence: that no two ever meet would be chance in one case of
two thousand.`,
		Spans:   exported(root, 11, 25, 100*ms),
		Formats: []Format{formatOTLPLines},
	}
}

func clockSkew() Story {
	mail := call("mail", "process mail", Dist{P50: 2 * ms, P99: 5 * ms})
	mail.Kind, mail.Net = KindConsumer, 40*ms
	root := &Node{
		Service: "gateway", Operation: "GET /stock", Kind: KindServer, Own: Dist{P50: 2 * ms, P99: 4 * ms},
		Steps: [][]*Node{
			{call("inventory", "Count", Dist{P50: ms, P99: 3 * ms},
				[]*Node{call("shelf", "Scan", Dist{P50: 4 * ms, P99: 10 * ms})})},
			{call("price", "Quote", Dist{P50: 3 * ms, P99: 9 * ms})},
			{mail},
		},
	}
	spans := exported(root, 12, 100, 50*ms)
	for i := range spans {
		if spans[i].Service == "inventory" {
			spans[i].Start += int64(3 * ms)
			spans[i].End += int64(3 * ms)
		}
	}
	return Story{
		Name:  "clock-skew",
		Title: "The clock of one service is 3 ms ahead",
		Text: `
    gateway GET /stock         |----------------------------------|
      gateway > inventory        |-----------|
        inventory Count           ===> |-----------|               as recorded, 3 ms late
          inventory > shelf          ===> |-------|                as recorded, 3 ms late
            shelf Scan                 |-----|                     in time
      gateway > price                            |------|
      mail (message)                                       ||  …  |---|

A right analysis finds gateway to inventory 3.0 ms ahead and inventory to shelf 3.0 ms behind, within a quarter of a
millisecond on both; the durations and the order of the calls stay as recorded; the message, which waits 40 ms in its
queue, is not shifted.`,
		Spans:   spans,
		Formats: []Format{formatOTLPLinesZ},
	}
}

func coarseClock() Story {
	spans := exported(OrdersModel(), 13, 60, 100*ms)
	for i := range spans {
		s := &spans[i]
		s.Start -= s.Start % int64(ms)
		s.End -= s.End % int64(ms)
	}
	return Story{
		Name:  "coarse-clock",
		Title: "An application that records whole milliseconds",
		Text: `
    as it was    |--------|   7.4 ms
    as recorded  |-------|    7 ms; what takes less than 1 ms is recorded as 0 or 1

The model is that of [orders](../orders/). A right analysis finds the resolution of 1 ms, says so, takes no weight and no
floor under 1 ms, and widens its intervals by 1 ms.`,
		Spans:   spans,
		Formats: []Format{formatOTLPLinesZ},
	}
}

func noKinds() Story {
	leaf := &Node{
		Service: "y", Operation: "SELECT z", Kind: KindClient, Own: Dist{P50: 2 * ms, P99: 5 * ms},
		Attrs: []Attr{{"db.system", "postgresql"}},
	}
	root := &Node{
		Service: "x", Operation: "A", Kind: KindServer, Own: Dist{P50: 2 * ms, P99: 5 * ms},
		Steps: [][]*Node{
			{{Operation: "step", Kind: KindInternal, Own: Dist{P50: ms, P99: 2 * ms}}},
			{call("y", "C", Dist{P50: 3 * ms, P99: 9 * ms}, []*Node{leaf})},
		},
	}
	spans := exported(root, 14, 60, 50*ms)
	for i := range spans {
		spans[i].Kind = KindUnspecified
		if spans[i].Service == "x" && spans[i].Name == "C" {
			spans[i].Name = "B"
		}
	}
	return Story{
		Name:  "no-kinds",
		Title: "An export without span kinds",
		Text: `
    x A              |------------------------|     no parent: SERVER
      x step          |--|                          same service, a leaf without attributes of a call: a step
      x B                   |--------------|        same service, one child, in another service: CLIENT
        y C                  |-----------|          another service: SERVER
          y SELECT z           |------|             same service, a leaf with db.system: CLIENT

A right analysis infers the kind of all spans and says so; B and C are one call.`,
		Spans:   spans,
		Formats: []Format{formatOTLPLines, formatJaeger},
	}
}

func sharedIDs() Story {
	spans := exported(&Node{
		Service: "web", Operation: "get /orders", Kind: KindServer, Own: Dist{P50: 2 * ms, P99: 5 * ms},
		Steps: [][]*Node{{call("orders", "get /list", Dist{P50: 2 * ms, P99: 5 * ms},
			[]*Node{call("stock", "get /count", Dist{P50: 3 * ms, P99: 9 * ms})})}},
	}, 15, 20, 50*ms)
	share(spans)
	return Story{
		Name:  "shared-ids",
		Title: "Both halves of a call have one span id, as Zipkin's B3 headers make it",
		Text: `
    web     get /orders  id a             |--------------------|
    web     get /list    id b, parent a     |----------------|     CLIENT
    orders  get /list    id b, parent a      |--------------|      SERVER, shared
    orders  get /count   id c, parent b         |--------|         CLIENT
    stock   get /count   id c, parent b          |------|          SERVER, shared

A right analysis puts the SERVER half under the CLIENT half, and c under the SERVER half of b, whose service it has. No
span is lost as a duplicate.`,
		Spans:   spans,
		Formats: []Format{formatZipkin},
	}
}

// share gives every SERVER span the id and the parent of its CLIENT span, and
// its children that id as their parent.
func share(spans []Span) {
	type id struct {
		trace [16]byte
		span  [8]byte
	}
	client := make(map[id]int)
	for i := range spans {
		if spans[i].Kind == KindClient {
			client[id{spans[i].TraceID, spans[i].ID}] = i
		}
	}
	renamed := make(map[id][8]byte)
	for i := range spans {
		s := &spans[i]
		if c, ok := client[id{s.TraceID, s.Parent}]; ok && s.Kind == KindServer {
			renamed[id{s.TraceID, s.ID}] = s.Parent
			s.ID, s.Parent = s.Parent, spans[c].Parent
		}
	}
	for i := range spans {
		if to, ok := renamed[id{spans[i].TraceID, spans[i].Parent}]; ok {
			spans[i].Parent = to
		}
	}
}

func chinese() Story {
	root := &Node{
		Service: "网关", Operation: "下单", Kind: KindServer, Own: Dist{P50: ms, P99: 2 * ms},
		Steps: [][]*Node{
			{call("支付服务", "扣款", Dist{P50: 10 * ms, P99: 30 * ms})},
			{call("🚚 delivery ⚠️", "plan 👩‍👩‍👧 route", Dist{P50: 5 * ms, P99: 20 * ms})},
			{call("evil\x1b]0;pwn\x07", "\x1b[2J\x1b[31mred\rOK", Dist{P50: 2 * ms, P99: 8 * ms})},
			{call("=cmd|' /C calc'!A0", "a|b\nc\u009b31m\u202egnp.exe", Dist{P50: 2 * ms, P99: 8 * ms})},
			{call("a-service-with-a-very-long-name-that-no-table-of-eighty-columns-can-hold.production.svc.cluster.local",
				"com.example.inventory.v1.InventoryReservationService/ReserveInventoryForOrderLine",
				Dist{P50: 3 * ms, P99: 9 * ms})},
		},
	}
	return Story{
		Name:  "chinese",
		Title: "Names in Chinese, with emoji, very long, and hostile to a terminal, a Markdown table and a spreadsheet",
		Text: `
    网关 下单  |------------------------------------|
      支付服务  |---------|
      🚚 …                |-----|                       a truck, a warning sign with its variation selector, a family
      evil…                      |--|                   ESC ] 0 and ESC [ 2 J, carriage return
      =cmd…                          |--|               a formula, a pipe, a line feed, U+009B, U+202E
      a-service…                         |---|          101 and 81 letters

A right analysis draws a table whose columns stand, whatever the names; changes nothing in JSON; and lets no control
character or bidirectional override through anywhere else.`,
		Spans:   exported(root, 16, 40, 100*ms),
		Formats: []Format{formatOTLPLines},
	}
}

func sampled() Story {
	spans := exported(OrdersModel(), 17, 62, 100*ms)
	for i, trace := range traceOrder(spans) {
		state := "ot=th:c"
		switch {
		case i == 0:
			state = ""
		case i == 1:
			state = "ot=th:zz"
		case i%3 == 2:
			state = "vendor=1,ot=th:0;rv:9b8233f7e3a151"
		}
		for j := range spans {
			if spans[j].TraceID == trace {
				spans[j].TraceState = state
			}
		}
	}
	return Story{
		Name:  "sampled",
		Title: "Traces that stand for one and for four requests, by their tracestate",
		Text: `
    40 traces  ot=th:c                        kept with probability 1/4: each stands for 4
    20 traces  vendor=1,ot=th:0;rv:9b82…      kept always: each stands for 1
     1 trace   no tracestate                  stands for nobody knows how many
     1 trace   ot=th:zz                       unreadable

The model is that of [orders](../orders/). A right analysis weights: 60 traces stand for 180 requests, as good as 49
independent ones (180² / 660). It leaves out the other two, and says so.`,
		Spans:   spans,
		Formats: []Format{formatOTLPLinesZ},
	}
}

// traceOrder lists the traces in the order of their first spans.
func traceOrder(spans []Span) [][16]byte {
	var order [][16]byte
	for _, trace := range group(spans, traceKey) {
		order = append(order, trace[0].TraceID)
	}
	return order
}

func tailSampled() Story {
	all := exported(OrdersModel(), 18, 3000, 40*ms)
	var spans []Span
	for _, trace := range group(all, traceKey) {
		root := slices.IndexFunc(trace, func(s Span) bool { return s.Parent == none })
		if trace[root].End-trace[root].Start > int64(190*ms) {
			spans = append(spans, trace...)
		}
	}
	SortByEnd(spans)
	for i := range spans {
		spans[i].Scope = []Attr{{"tailsampling.policy", "keep-slow"}}
	}
	return Story{
		Name:  "tail-sampled",
		Title: "A tail sampler kept the slow traces only",
		Text: fmt.Sprintf(`
    3000 requests of [orders](../orders/)     |--|  |--|  |-----------|  |--|  |---| …
    %d kept, all of more than 190 ms                      |-----------|

The Collector's tail sampler left its mark on the instrumentation scope (tailsampling.policy). A right analysis warns
that these traces are no fair sample: their quantiles are those of slow requests.`, len(group(spans, traceKey))),
		Spans:   spans,
		Formats: []Format{formatOTLPLinesZ},
	}
}

func stamped() Story {
	spans := exported(OrdersModel(), 19, 400, 40*ms)
	now := map[string]float64{"Check": 0.04, "Reserve": 0.2, "Apply": 0.16, "Score": 0.24, "persist": 0.16}
	for i := range spans {
		s := &spans[i]
		remaining, isCall := now[s.Name]
		switch {
		case s.Parent == none:
			remaining = 0.8
		case !isCall || s.Kind != KindClient:
			continue
		}
		s.Attrs = append(s.Attrs[:len(s.Attrs):len(s.Attrs)],
			Attr{"latency_budget.limit", 0.8}, Attr{"latency_budget.deadline.remaining", remaining})
	}
	return Story{
		Name:  "stamped",
		Title: "Spans that carry the budgets of today: 800 ms, and 40, 200, 160, 240 and 160 ms for the hops",
		Text: `
    POST /orders   latency_budget.limit 0.8
      auth         latency_budget.deadline.remaining 0.04    P99  25 ms
      inventory    latency_budget.deadline.remaining 0.2     P99  30 ms: 6.7 times
      coupon       latency_budget.deadline.remaining 0.16    P99  45 ms
      risk         latency_budget.deadline.remaining 0.24    P99 120 ms: 2 times
      persist      latency_budget.deadline.remaining 0.16    P99  70 ms

The model is that of [orders](../orders/). With no flag at all a right analysis takes 800 ms for the budget, says that it
was observed, shows the five timeouts as those of today, and finds inventory loose.`,
		Spans:   spans,
		Formats: []Format{formatOTLPLinesZ},
	}
}

func formats() Story {
	root := OrdersModel()
	coupon := root.Steps[2][0]
	coupon.FailRatio, coupon.Attempts, coupon.Backoff = 0.3, 3, 5*ms
	spans := exported(root, 20, 20, 100*ms)
	for i := range spans {
		if s := &spans[i]; s.Status == StatusError {
			s.Message = "coupon service is down"
			s.Events = []Event{{Time: s.End - int64(10*us), Name: "exception", Attrs: []Attr{
				{"exception.type", "Unavailable"}, {"exception.escaped", false},
			}}}
		}
	}
	first := slices.IndexFunc(spans, func(s Span) bool { return s.Parent == none })
	spans[first].Links = []Link{{TraceID: [16]byte{0xbb, 15: 1}, SpanID: [8]byte{7: 1}}} // another trace: makes no parent
	return Story{
		Name:  "formats",
		Title: "The same twenty traces in every format and compression",
		Text: `
| file | what it is |
|---|---|
| trace.otlp.json | OTLP JSON, one indented document |
| trace.otlp.jsonl, .gz, .zst | OTLP JSON, a document a line, as the Collector's file exporter writes it; compressed as a whole |
| trace.otlp.framed.jsonl.zst | the file exporter's own zstd, format json: every document compressed on its own behind its length |
| trace.otlp.pb | OTLP protobuf, one message |
| trace.otlp.framed.pb, .zst | the file exporter's format proto: length and message; fields in descending order; its own zstd |
| trace.jaeger.json | download of Jaeger's UI |
| trace.jaeger-v3.json | answer of Jaeger's API v3, results back to back |
| trace.zipkin.json | Zipkin v2 |
| trace.tempo.json, trace.tempo-v2.json | answers of Tempo's API by trace id, both versions |
| trace.stdouttrace.jsonl | what the Go SDK's stdouttrace exporter prints |

The requests are those of [orders](../orders/), with coupon tried again when it fails. All times are whole microseconds,
so a right analysis gives one report for all of them.`,
		Spans:   spans,
		Formats: allFormats,
	}
}
