package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// Load is a seeded stream of requests to the entry of a system.
type Load struct {
	Requests    int
	Budget      time.Duration // announced by every request; 0 announces none
	Rate        float64       // requests a second, at random instants, whether answers come or not; 0: see Concurrency
	Concurrency int           // with Rate 0: as fast as this many clients get answers
	Seed        uint64
}

// Outcome is how one request went.
type Outcome struct {
	Status   int // of HTTP; gRPC codes as their HTTP status
	Reason   string
	Degraded []string
	Sent     time.Time     // or rather, when it was to be
	Latency  time.Duration // from then on, seen by the client
}

// clientPatience ends a request that gets no answer at all.
const clientPatience = 30 * time.Second

// Run sends the load and returns one outcome a request, in the order of sending.
// What has not been sent when ctx ends has the zero Outcome.
func (l Load) Run(ctx context.Context, s *System) ([]Outcome, error) {
	send, done, err := s.client(l.Budget)
	if err != nil {
		return nil, err
	}
	defer done()
	outcomes := make([]Outcome, l.Requests)
	var running sync.WaitGroup
	defer running.Wait()
	if l.Rate > 0 {
		arrivals := rand.New(rand.NewPCG(l.Seed, 0))
		next := time.Now()
		for i := range outcomes {
			due := next
			if wait(ctx, time.Until(due)) != nil {
				return outcomes, interrupted(ctx, i, l.Requests)
			}
			running.Go(func() { outcomes[i] = send(ctx, Order(i), due) })
			next = next.Add(time.Duration(arrivals.ExpFloat64() / l.Rate * float64(time.Second)))
		}
		running.Wait()
		return outcomes, nil
	}
	orders := make(chan int)
	for range max(1, l.Concurrency) {
		running.Go(func() {
			for i := range orders {
				outcomes[i] = send(ctx, Order(i), time.Now())
			}
		})
	}
	defer close(orders)
	for i := range outcomes {
		select {
		case orders <- i:
		case <-ctx.Done():
			return outcomes, interrupted(ctx, i, l.Requests)
		}
	}
	return outcomes, nil
}

func interrupted(ctx context.Context, sent, all int) error {
	return fmt.Errorf("interrupted after %d of %d requests: %w", sent, all, ctx.Err())
}

// sender sends one request that was due at an instant.
type sender func(ctx context.Context, order Order, due time.Time) Outcome

// client returns how to send requests to the entry, without any tracing: the
// world outside.
func (s *System) client(budget time.Duration) (send sender, done func(), err error) {
	entry := s.services[0]
	if entry.node.Protocol == GRPC {
		conn, err := grpc.NewClient("passthrough:///"+entry.address,
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, order Order, due time.Time) Outcome {
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(budget, clientPatience))
			defer cancel()
			answer, err := invoke(ctx, conn, entry.node.Name, order)
			return Outcome{Status: httpStatus(codeOf(err)), Degraded: answer.Degraded, Sent: due, Latency: time.Since(due)}
		}, func() { _ = conn.Close() }, nil
	}
	base := &http.Transport{MaxIdleConnsPerHost: 1024}
	client := &http.Client{Transport: base, Timeout: clientPatience}
	url := "http://" + entry.address + "/order"
	return func(ctx context.Context, order Order, due time.Time) Outcome {
		header := make(http.Header)
		switch {
		case budget == 0:
		case s.cfg.Wire == Absolute:
			header.Set(DeadlineHeader, strconv.FormatInt(time.Now().Add(budget).UnixMilli(), 10))
		default:
			header.Set(BudgetHeader, strconv.FormatInt(budget.Milliseconds(), 10))
		}
		return exchange(ctx, client, url, order, header, due)
	}, base.CloseIdleConnections, nil
}

// exchange sends one request over HTTP and reads how it went.
func exchange(ctx context.Context, client *http.Client, url string, order Order, header http.Header,
	due time.Time,
) Outcome {
	resp, err := post(ctx, client, url, order, header)
	if err != nil {
		code := codes.Unavailable
		if late := codeOf(err); errors.Is(err, context.Canceled) || late == codes.DeadlineExceeded {
			code = late
		}
		return Outcome{Status: httpStatus(code), Reason: "no answer", Sent: due, Latency: time.Since(due)}
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Answer
		Reason string `json:"reason"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	outcome := Outcome{
		Status: resp.StatusCode, Reason: answer.Reason, Degraded: answer.Degraded, Sent: due, Latency: time.Since(due),
	}
	if err != nil {
		outcome.Reason = "answer cannot be read"
	}
	return outcome
}

// Summary is what a load has shown.
type Summary struct {
	ByStatus  map[int]int
	Degraded  map[string]int
	P50, P99  time.Duration // of all
	FailedP99 time.Duration // of those that are not 200
	OKP50     time.Duration
}

// Summarise counts outcomes. Requests that were never sent do not count.
func Summarise(outcomes []Outcome) Summary {
	s := Summary{ByStatus: make(map[int]int), Degraded: make(map[string]int)}
	var all, ok, failed []time.Duration
	for _, o := range outcomes {
		if o.Sent.IsZero() {
			continue
		}
		s.ByStatus[o.Status]++
		all = append(all, o.Latency)
		if o.Status == http.StatusOK {
			ok = append(ok, o.Latency)
		} else {
			failed = append(failed, o.Latency)
		}
		for _, name := range o.Degraded {
			s.Degraded[name]++
		}
	}
	s.P50, s.P99 = percentile(all, 50), percentile(all, 99)
	s.OKP50, s.FailedP99 = percentile(ok, 50), percentile(failed, 99)
	return s
}

// text renders the summary and what the pools have seen.
func (s Summary) text(pools []PoolStats) string {
	var byStatus, degraded []string
	for _, code := range slices.Sorted(maps.Keys(s.ByStatus)) {
		byStatus = append(byStatus, fmt.Sprintf("%d x %d", s.ByStatus[code], code))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Degraded)) {
		degraded = append(degraded, fmt.Sprintf("%d x %s", s.Degraded[name], name))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "answers   %s\n", cmp.Or(strings.Join(byStatus, ", "), "none"))
	fmt.Fprintf(&b, "degraded  %s\n", cmp.Or(strings.Join(degraded, ", "), "none"))
	fmt.Fprintf(&b, "latency   P50 %s, P99 %s; P50 of successes %s, P99 of failures %s\n\n",
		latency(s.P50), latency(s.P99), latency(s.OKP50), latency(s.FailedP99))
	const row = "%11s%8v%12s%12s%13v\n"
	fmt.Fprintf(&b, row, "service", "served", "own P50", "queue P99", "most inside")
	for _, p := range pools {
		fmt.Fprintf(&b, row, p.Service, p.Served, ms(p.OwnP50), ms(p.QueueP99), p.Highest)
	}
	return b.String()
}

// latency renders a percentile of answers, of which there may be none.
func latency(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return ms(d)
}

// ms renders a duration in milliseconds.
func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}
