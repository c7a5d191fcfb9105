package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind is something that goes wrong at a service or on the way to it.
type FaultKind string

// The faults. Those of a value have its default in [faultDefaults].
const (
	Slow         FaultKind = "slow"         // own work takes this long
	Cold         FaultKind = "cold"         // the first request takes this much longer
	Queue        FaultKind = "queue"        // requests lie in a queue before the service sees them
	Ignore       FaultKind = "ignore"       // own work takes this long and ignores that the caller has given up
	LostCancel   FaultKind = "lostcancel"   // the cancellation of the caller never arrives; the deadline does
	LateRetry    FaultKind = "lateretry"    // callers try once more after their own time is up, with this timeout
	Stall        FaultKind = "stall"        // every call opens a connection, and that takes this long
	Fail         FaultKind = "fail"         // the answer is an error after the work
	Retry        FaultKind = "retry"        // callers make this many attempts
	Hedge        FaultKind = "hedge"        // callers send a second attempt after this time; the first answer wins
	LostResponse FaultKind = "lostresponse" // the work is done, but the answer never comes
	Proxy        FaultKind = "proxy"        // a proxy on the way replaces the announced budget by this one
)

// faultDefaults are the values for faults that are given without one. A queue
// without value eats half of what the request has left.
var faultDefaults = map[FaultKind]Fault{
	Slow:         {Value: 900 * time.Millisecond},
	Cold:         {Value: 700 * time.Millisecond},
	Queue:        {},
	Ignore:       {Value: 500 * time.Millisecond},
	LostCancel:   {},
	LateRetry:    {Value: 100 * time.Millisecond},
	Stall:        {Value: 200 * time.Millisecond},
	Fail:         {},
	Retry:        {Attempts: 3},
	Hedge:        {Value: 50 * time.Millisecond},
	LostResponse: {},
	Proxy:        {Value: 15 * time.Second},
}

// maxAttempts bounds what a fault may ask for.
const maxAttempts = 5

// Fault is one fault of one service.
type Fault struct {
	Kind     FaultKind
	Service  string
	Value    time.Duration
	Attempts int     // of Retry
	Share    float64 // of the requests that it hits, 0 < Share <= 1
}

// ParseFault reads KIND=SERVICE[:VALUE][@SHARE], as in slow=risk:900ms@0.4 or
// retry=persist:3.
func ParseFault(text string) (Fault, error) {
	kind, rest, ok := strings.Cut(text, "=")
	fault, known := faultDefaults[FaultKind(kind)]
	if !ok || !known {
		kinds := make([]string, 0, len(faultDefaults))
		for k := range faultDefaults {
			kinds = append(kinds, string(k))
		}
		slices.Sort(kinds)
		return Fault{}, fmt.Errorf("fault %q: write KIND=SERVICE[:VALUE][@SHARE] with KIND one of %s",
			text, strings.Join(kinds, ", "))
	}
	fault.Kind, fault.Share = FaultKind(kind), 1
	rest, share, ok := strings.Cut(rest, "@")
	if ok && fault.Kind.everyRequest() {
		return Fault{}, fmt.Errorf("fault %q: %s is met by every request; leave out the share", text, kind)
	}
	if ok {
		v, err := strconv.ParseFloat(share, 64)
		if err != nil || !(v > 0 && v <= 1) {
			return Fault{}, fmt.Errorf("fault %q: the share is a number over 0 and up to 1", text)
		}
		fault.Share = v
	}
	service, value, ok := strings.Cut(rest, ":")
	fault.Service = service
	if !ok {
		return fault, nil
	}
	if fault.Kind == Retry {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxAttempts {
			return Fault{}, fmt.Errorf("fault %q: the attempts are a number from 1 to %d", text, maxAttempts)
		}
		fault.Attempts = n
		return fault, nil
	}
	if fault.Kind == LostCancel || fault.Kind == Fail || fault.Kind == LostResponse {
		return Fault{}, fmt.Errorf("fault %q: %s has no value", text, kind)
	}
	v, err := time.ParseDuration(value)
	if err != nil || v <= 0 {
		return Fault{}, fmt.Errorf("fault %q: the value is a duration over 0, as 900ms", text)
	}
	fault.Value = v
	return fault, nil
}

// everyRequest tells whether a fault belongs to the service or the way to it, and
// so cannot hit a share of the requests.
func (k FaultKind) everyRequest() bool { return k == Queue || k == Stall || k == Proxy }

// checkFaults tells whether the nodes can have these faults.
func checkFaults(nodes []Node, list []Fault) error {
	for _, fault := range list {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == fault.Service })
		if i < 0 {
			return fmt.Errorf("fault %s: there is no service %q", fault.Kind, fault.Service)
		}
		if (fault.Kind == Proxy || fault.Kind == LostResponse) && nodes[i].Protocol != HTTP {
			return fmt.Errorf("fault %s: service %q does not speak HTTP", fault.Kind, fault.Service)
		}
	}
	return nil
}

// faults are the faults of a run.
type faults struct {
	list []Fault
	seed uint64
}

// find returns the fault of a kind that this order meets at a service. Who meets
// it depends on the seed and the number of the order alone, so that runs can be
// compared.
func (f *faults) find(kind FaultKind, service string, order Order) (Fault, bool) {
	for _, fault := range f.list {
		if fault.Kind == kind && fault.Service == service {
			return fault, fault.Share >= 1 || draw(f.seed, string(kind)+" "+service, order) < fault.Share
		}
	}
	return Fault{}, false
}

// everywhere returns a fault that belongs to the service and not to single
// requests, whatever its share.
func (f *faults) everywhere(kind FaultKind, service string) (Fault, bool) {
	for _, fault := range f.list {
		if fault.Kind == kind && fault.Service == service {
			return fault, true
		}
	}
	return Fault{}, false
}

// draw returns a number from [0, 1) that depends on its arguments alone.
func draw(seed uint64, what string, order Order) float64 {
	h := fnv.New64a()
	h.Write([]byte(what))
	return rand.New(rand.NewPCG(seed^h.Sum64(), uint64(order))).Float64()
}
