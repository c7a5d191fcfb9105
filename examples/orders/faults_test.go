package main

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/internal/ontime"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

func TestParseFault(t *testing.T) {
	good := map[string]Fault{
		"slow=risk":            {Kind: Slow, Service: "risk", Value: 900 * time.Millisecond, Share: 1},
		"slow=risk:1.2s":       {Kind: Slow, Service: "risk", Value: 1200 * time.Millisecond, Share: 1},
		"slow=risk@0.25":       {Kind: Slow, Service: "risk", Value: 900 * time.Millisecond, Share: 0.25},
		"slow=risk:10ms@1":     {Kind: Slow, Service: "risk", Value: 10 * time.Millisecond, Share: 1},
		"retry=persist":        {Kind: Retry, Service: "persist", Attempts: 3, Share: 1},
		"retry=persist:5@0.5":  {Kind: Retry, Service: "persist", Attempts: 5, Share: 0.5},
		"queue=risk":           {Kind: Queue, Service: "risk", Share: 1},
		"lostresponse=payment": {Kind: LostResponse, Service: "payment", Share: 1},
	}
	for text, want := range good {
		if got, err := ParseFault(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "slow", "slow:risk", "slower=risk", "slow=risk:", "slow=risk:0s", "slow=risk:-1s", "slow=risk:900",
		"slow=risk@0", "slow=risk@1.1", "slow=risk@NaN", "slow=risk@", "retry=risk:0", "retry=risk:6", "retry=risk:2s",
		"fail=risk:3", "lostcancel=risk:1s", "lostresponse=payment:1s", "queue=risk@0.5", "stall=risk@1", "proxy=auth:1s@0.1",
	} {
		if got, err := ParseFault(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}

func TestTheSameOrdersMeetAFaultWheneverTheSeedIsTheSame(t *testing.T) {
	hit := func(seed uint64) (orders []Order) {
		f := &faults{seed: seed, list: []Fault{{Kind: Slow, Service: "risk", Share: 0.3}}}
		for order := range Order(2000) {
			if _, ok := f.find(Slow, "risk", order); ok {
				orders = append(orders, order)
			}
		}
		return orders
	}
	if !slices.Equal(hit(1), hit(1)) {
		t.Error("two runs differ")
	}
	if slices.Equal(hit(1), hit(2)) {
		t.Error("the seed makes no difference")
	}
	if n := len(hit(1)); n < 540 || n > 660 {
		t.Errorf("%d of 2000 orders meet it, want about 600", n)
	}
}

func TestAFaultNeedsItsService(t *testing.T) {
	for _, fault := range []Fault{
		{Kind: Slow, Service: "nobody"}, {Kind: Proxy, Service: "risk"}, {Kind: LostResponse, Service: "persist"},
	} {
		cfg := Config{Nodes: Orders, Mode: Propagated, Fresh: time.Second, Workers: 1, Log: silent, Faults: []Fault{fault}}
		if s, err := Start(t.Context(), cfg); err == nil {
			_ = s.close()
			t.Errorf("%+v: started, want an error", fault)
		}
	}
}

// of returns the spans of a service that are servers, or else clients.
func of(spans []span, service string, server bool) (found []span) {
	for _, s := range spans {
		if s.service == service && s.server() == server {
			found = append(found, s)
		}
	}
	return found
}

// two runs some requests over two services with faults at the second, b. All
// times but the own work of 1 ms are longer by the scale of the trial.
func two(t *ontime.Trial, protocol Protocol, budget time.Duration, requests int, texts ...string) (outcomes []Outcome, a, b []span) {
	t.Helper()
	cfg := Config{Nodes: chain([]Protocol{HTTP, protocol}, time.Millisecond)}
	for _, text := range texts {
		fault, err := ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		fault.Value *= t.Scale
		cfg.Faults = append(cfg.Faults, fault)
	}
	cfg.Max = 10 * time.Second * t.Scale
	s, stop := start(t.T, cfg)
	outcomes = send(t.T, s, Load{Requests: requests, Budget: budget * t.Scale})
	spans := stop()
	return outcomes, of(spans, "a", false), of(spans, "b", true)
}

// duration of a span.
func (s span) duration() time.Duration { return time.Duration(s.end - s.start) }

// What a fault does is seen from outside, whatever the protocol.
func TestFaults(t *testing.T) {
	for _, protocol := range []Protocol{HTTP, GRPC} {
		run := func(name string, test func(t *ontime.Trial)) {
			t.Run(string(protocol)+" "+name, func(t *testing.T) { ontime.Judge(t, test) })
		}
		run("slow", func(t *ontime.Trial) {
			_, _, b := two(t, protocol, time.Second, 2, "slow=b:60ms")
			if len(b) != 2 {
				t.Errorf("%d spans of b, want 2", len(b))
			}
			for _, s := range b {
				if s.duration() < 60*time.Millisecond*t.Scale {
					t.Errorf("b takes %v, want 60 ms", s.duration())
				}
			}
		})
		run("cold hits the first only", func(t *ontime.Trial) {
			_, _, b := two(t, protocol, 2*time.Second, 3, "cold=b:300ms")
			if len(b) != 3 || b[0].duration() < 300*time.Millisecond*t.Scale || b[1].duration() > 250*time.Millisecond*t.Scale {
				t.Errorf("spans of b: %+v", b)
			}
		})
		run("queue eats half, before the server span", func(t *ontime.Trial) {
			outcomes, a, b := two(t, protocol, 200*time.Millisecond, 1, "queue=b")
			if outcomes[0].Status != http.StatusOK || len(a) != 1 || len(b) != 1 {
				t.Errorf("outcome %+v, spans %+v", outcomes[0], b)
				return
			}
			// The header says whole milliseconds.
			half := time.Duration(a[0].deadline * float64(time.Second) / 2)
			if gap := time.Duration(b[0].start - a[0].start); gap < half-time.Millisecond || gap > half+50*time.Millisecond*t.Scale {
				t.Errorf("b begins %v after its caller, which had %v s, want about half of that", gap, a[0].deadline)
			}
		})
		run("stall is met by every call, before the server span", func(t *ontime.Trial) {
			_, a, b := two(t, protocol, time.Second, 2, "stall=b:50ms")
			if len(a) != 2 || len(b) != 2 {
				t.Errorf("%d calls of b and %d spans of it, want 2 and 2", len(a), len(b))
				return
			}
			for i := range b {
				if gap := time.Duration(b[i].start - a[i].start); gap < 50*time.Millisecond*t.Scale {
					t.Errorf("b begins %v after its caller, want 50 ms", gap)
				}
			}
		})
		run("ignore goes on for nobody", func(t *ontime.Trial) {
			outcomes, _, b := two(t, protocol, 60*time.Millisecond, 1, "ignore=b:200ms")
			if outcomes[0].Status != http.StatusGatewayTimeout || outcomes[0].Latency > 180*time.Millisecond*t.Scale {
				t.Errorf("outcome %+v, want 504 in time", outcomes[0])
			}
			if len(b) != 1 || b[0].duration() < 200*time.Millisecond*t.Scale || !slices.Contains(b[0].flags, attr.FlagOverrun) {
				t.Errorf("spans of b: %+v, want 200 ms and an overrun", b)
			}
		})
		run("a lost cancellation leaves the loser of a hedge at work", func(t *ontime.Trial) {
			faults := []string{"slow=b:150ms", "hedge=b:75ms"}
			_, _, cancelled := two(t, protocol, 5*time.Second, 1, faults...)
			outcomes, _, b := two(t, protocol, 5*time.Second, 1, append(faults, "lostcancel=b")...)
			if outcomes[0].Status != http.StatusOK || len(b) != 2 || len(cancelled) != 2 {
				t.Errorf("outcome %+v, spans %+v and %+v", outcomes[0], cancelled, b)
				return
			}
			slow := 150 * time.Millisecond * t.Scale
			if b[1].duration() < slow || cancelled[1].duration() >= slow {
				t.Errorf("the loser works for %v, want 150 ms; with cancellation %v", b[1].duration(), cancelled[1].duration())
			}
		})
		run("a late retry begins when the time is up", func(t *ontime.Trial) {
			_, a, _ := two(t, protocol, 60*time.Millisecond, 1, "slow=b:200ms", "lateretry=b:30ms")
			if len(a) != 2 || a[1].remaining > 0.002 ||
				!slices.Contains(a[1].flags, attr.FlagDeadlineExtended) {
				t.Errorf("calls of b: %+v, want a second with nothing left and another deadline", a)
			}
		})
		run("fail", func(t *ontime.Trial) {
			outcomes, _, b := two(t, protocol, time.Second, 1, "fail=b")
			if outcomes[0].Status != http.StatusServiceUnavailable || len(b) != 1 {
				t.Errorf("outcome %+v, %d calls, want 503 and 1", outcomes[0], len(b))
			}
		})
		run("retries end with the time", func(t *ontime.Trial) {
			outcomes, _, b := two(t, protocol, 150*time.Millisecond, 1, "slow=b:80ms", "fail=b", "retry=b:5")
			if outcomes[0].Status != http.StatusGatewayTimeout || len(b) != 2 {
				t.Errorf("outcome %+v after %d attempts, want 504 after 2", outcomes[0], len(b))
			}
		})
	}
	t.Run("lost response", func(t *testing.T) {
		ontime.Judge(t, func(t *ontime.Trial) {
			outcomes, a, b := two(t, HTTP, 150*time.Millisecond, 1, "lostresponse=b")
			if outcomes[0].Status != http.StatusGatewayTimeout || len(a) != 1 || a[0].duration() < 100*time.Millisecond*t.Scale {
				t.Errorf("outcome %+v, call %+v; want the caller to wait in vain", outcomes[0], a)
			}
			if len(b) != 1 || b[0].duration() > 100*time.Millisecond*t.Scale || len(b[0].flags) != 0 || b[0].failed {
				t.Errorf("spans %+v; want b to be done in time", b)
			}
		})
	})
	t.Run("proxy", func(t *testing.T) {
		ontime.Judge(t, func(t *ontime.Trial) {
			_, a, b := two(t, HTTP, time.Second, 1, "proxy=b:3s")
			if len(a) != 1 || len(a[0].flags) != 0 {
				t.Errorf("the caller is flagged: %+v", a)
			}
			if len(b) != 1 || !slices.Equal(b[0].flags, []string{attr.FlagDeadlineExtended}) || b[0].deadline < 2.5*float64(t.Scale) {
				t.Errorf("behind the proxy: %+v, want 3 s and deadline_extended", b)
			}
		})
	})
}

func TestRetriesMultiplyOverLayers(t *testing.T) {
	layers := []string{"persist", "payment", "risk"}
	for n, want := range []int{1, 3, 9, 27} {
		t.Run(fmt.Sprintf("%d layers", n), func(t *testing.T) {
			cfg := Config{Nodes: Orders, Spread: 0.9, Faults: []Fault{{Kind: Fail, Service: "persist", Share: 1}}}
			for _, service := range layers[:n] {
				cfg.Faults = append(cfg.Faults, Fault{Kind: Retry, Service: service, Attempts: 3, Share: 1})
			}
			s, stop := start(t, cfg)
			outcomes := send(t, s, Load{Requests: 1, Budget: 8 * time.Second})
			if got := len(of(stop(), "persist", true)); got != want || outcomes[0].Status != http.StatusServiceUnavailable {
				t.Errorf("%d attempts, status %d; want %d and 503", got, outcomes[0].Status, want)
			}
		})
	}
}
