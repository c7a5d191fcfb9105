package plan_test

import (
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/plan"
)

// TestIndexBlamesNoCallForThePlaceOfAnother looks up calls of this plan:
//
//	gateway POST /orders 800            gateway GET /orders 400
//	├─ inventory Reserve 300, floor 20   └─ inventory Reserve 200, floor 30
//	│  └─ db SELECT 100                     └─ db SELECT, no share: nobody waits
//	└─ gateway GET /orders 250, degradable
func TestIndexBlamesNoCallForThePlaceOfAnother(t *testing.T) {
	p := &plan.Plan{Version: plan.Version, Revision: "r7", Gate: plan.DefaultGate(), Endpoints: []plan.Endpoint{
		{Service: "gateway", Operation: "POST /orders", Budget: 800 * ms, Tail: 3 * ms, Hops: []plan.Hop{
			{
				Callee: "inventory", Operation: "Reserve", Share: 300 * ms, Cap: 500 * ms, Floor: 20 * ms, Tail: 2 * ms, MaxQueue: 50 * ms,
				Hops: []plan.Hop{{Callee: "db", Operation: "SELECT", Share: 100 * ms}},
			},
			{Callee: "gateway", Operation: "GET /orders", Share: 250 * ms, Degradable: true},
		}},
		{Service: "gateway", Operation: "GET /orders", Budget: 400 * ms, Hops: []plan.Hop{
			{
				Callee: "inventory", Operation: "Reserve", Share: 200 * ms, Floor: 30 * ms,
				Hops: []plan.Hop{{Callee: "db", Operation: "SELECT", Async: true}},
			},
		}},
	}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	x := plan.NewIndex(p)
	if x.Revision() != "r7" {
		t.Errorf("revision %q", x.Revision())
	}
	const m = int64(ms)
	for name, c := range map[string]struct {
		caller, callee, operation string
		want                      plan.Limits
		known                     bool
	}{
		"an endpoint, by whoever enters": {"", "gateway", "POST /orders", plan.Limits{Budget: 800 * m, Cap: 800 * m, Tail: 3 * m}, true},
		"an endpoint behind a proxy":     {"proxy", "gateway", "POST /orders", plan.Limits{Budget: 800 * m, Cap: 800 * m, Tail: 3 * m}, true},
		"two places of one hop: the larger limit, the smaller floor, and none that one place lacks": {
			"gateway", "inventory", "Reserve", plan.Limits{Budget: 300 * m, Cap: 500 * m, Floor: 20 * m}, true,
		},
		"a place without share limits none":           {"inventory", "db", "SELECT", plan.Limits{}, true},
		"a hop that is an endpoint too: by its hop":   {"gateway", "gateway", "GET /orders", plan.Limits{Budget: 250 * m, Cap: 250 * m, Degradable: true}, true},
		"the same, caller not known: the larger":      {"", "gateway", "GET /orders", plan.Limits{Budget: 400 * m, Cap: 400 * m, Degradable: true}, true},
		"the same, from outside: the endpoint":        {"proxy", "gateway", "GET /orders", plan.Limits{Budget: 400 * m, Cap: 400 * m}, true},
		"a hop by a caller outside of the plan: none": {"admin", "inventory", "Reserve", plan.Limits{}, false},
		"an unknown operation":                        {"gateway", "inventory", "Release", plan.Limits{}, false},
		"an unknown operation of an unknown caller":   {"", "inventory", "Release", plan.Limits{}, false},
	} {
		got, known := x.Find(c.caller, c.callee, c.operation)
		if got != c.want || known != c.known {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, known, c.want, c.known)
		}
	}
}
