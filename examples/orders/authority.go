package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latencybudget/latencybudget/propagation"
)

// This file is meant to be copied. It is the deadline authority: the part that
// decides how long a request may take. Package propagation only observes what
// is decided here.

// The headers of the authority.
const (
	// BudgetHeader holds how many milliseconds the request has left, counted
	// from its receipt: an integer of at least 1.
	BudgetHeader = "X-Timeout-Budget-Ms"
	// DeadlineHeader holds the instant by which the answer is due, in
	// milliseconds since the Unix epoch, by the clock of the sender.
	DeadlineHeader = "X-Request-Deadline"
	// ElapsedHeader goes back on every answer: how many milliseconds the
	// request took here, rounded down.
	ElapsedHeader = "X-Elapsed-Ms"
)

// Wire is how an HTTP request says what it has left. A gRPC call always says it
// in its grpc-timeout, which is relative.
type Wire int

// The two forms.
const (
	Relative Wire = iota // BudgetHeader
	Absolute             // DeadlineHeader
)

// Reasons of a [DeadlineError].
const (
	// ReasonExceeded: the time of the request itself ran out.
	ReasonExceeded = "deadline_exceeded"
	// ReasonDownstream: a dependency used up what it was given, although the
	// request had time left.
	ReasonDownstream = "downstream_timeout"
	// ReasonBelowMinimum: too little was left for an attempt to be of use.
	ReasonBelowMinimum = "remaining_below_gateway_min"
)

// Authority makes the deadline of every request that a service gets and hands
// the remainder on to the services it calls:
//
//	|<---------------------- budget ---------------------->|
//	arrived                                         deadline
//	|-- elapsed --|<------------- remaining -------------->|
//	              |<-- given = Ratio x rest -->|           |
//	              |<------------- rest ------------>|<- Reserve ->|
//
// It is used as a value with its fields set once, and is safe for concurrent
// use after that.
type Authority struct {
	Wire    Wire
	Default time.Duration // for a request that announces nothing; 0 refuses it with 400, over gRPC INVALID_ARGUMENT
	Max     time.Duration // what a request gets at most; 0 means no limit
	Reserve time.Duration // kept back from dependencies, for the answer of the service
	Minimum time.Duration // below it neither the request nor a call is begun

	// Ratio is the share of the rest that a dependency gets, by its name, over 0
	// and up to 1. One that is not named gets all of it.
	Ratio map[string]float64

	// Lenient waits for a handler that ignores the deadline. Without it, 504 is
	// answered on time and the handler goes on for nobody.
	Lenient bool

	Now func() time.Time // the clock of this service; nil means time.Now
	Log *slog.Logger     // gets every [DeadlineError]; nil means slog.Default
}

// DeadlineError tells why and where a request ran out of time.
type DeadlineError struct {
	Reason     string
	Stage      string        // "admission", "handler" or "dependency"
	Dependency string        // the service that was called or would have been; "" outside that stage
	Remaining  time.Duration // of the request, when it was given up
	Budget     time.Duration // what the request, or the dependency at its stage, was given
	Elapsed    time.Duration // since the request arrived
}

// Error implements error.
func (e *DeadlineError) Error() string {
	where := e.Stage
	if e.Dependency != "" {
		where += " " + e.Dependency
	}
	return fmt.Sprintf("%s at %s: %v of %v left after %v", e.Reason, where, e.Remaining, e.Budget, e.Elapsed)
}

// Unwrap makes the error a [context.DeadlineExceeded].
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// request is what the authority keeps of a request in its context.
type request struct {
	arrived time.Time
	budget  time.Duration
}

type requestKey struct{}

func (a *Authority) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

func (a *Authority) log() *slog.Logger {
	if a.Log == nil {
		return slog.Default()
	}
	return a.Log
}

// refuse logs and returns why a request or a call is given up.
func (a *Authority) refuse(ctx context.Context, e *DeadlineError) error {
	now := a.now()
	if req, ok := ctx.Value(requestKey{}).(request); ok {
		e.Elapsed = now.Sub(req.arrived)
		e.Remaining = req.budget - e.Elapsed
		if e.Budget == 0 {
			e.Budget = req.budget
		}
	}
	a.log().LogAttrs(ctx, slog.LevelWarn, "request out of time",
		slog.String("reason", e.Reason),
		slog.String("stage", e.Stage),
		slog.String("dependency", e.Dependency),
		slog.Int64("remaining_ms", e.Remaining.Milliseconds()),
		slog.Int64("budget_ms", e.Budget.Milliseconds()),
		slog.Int64("elapsed_ms", e.Elapsed.Milliseconds()))
	return e
}

// begin puts the local deadline of a request into its context.
func (a *Authority) begin(ctx context.Context, budget time.Duration) (context.Context, context.CancelFunc) {
	ctx = context.WithValue(ctx, requestKey{}, request{arrived: a.now(), budget: budget})
	return context.WithTimeout(ctx, budget)
}

// admit tells whether a request with this budget is worth beginning.
func (a *Authority) admit(ctx context.Context, budget time.Duration) error {
	if budget > 0 && budget-a.Reserve >= a.Minimum {
		return nil
	}
	return a.refuse(ctx, &DeadlineError{Reason: ReasonBelowMinimum, Stage: "admission"})
}

// Middleware gives every request its deadline: the one it announces, at most
// Max, or Default if it announces none. A header that is no valid number is
// answered by 400, and next never runs. When the deadline passes, the answer is
// 504, whether next has returned or not.
//
// Put it around the tracing middleware, so that the SERVER span sees the
// deadline when it starts. Where it has to stand inside, its call of
// propagation.Observe makes up for that.
//
// The answer of next is kept in memory until it is complete, so this is not for
// streams.
func (a *Authority) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived := a.now()
		answer := func(status int, header http.Header, body []byte) {
			for name, values := range header {
				w.Header()[name] = values
			}
			w.Header().Set(ElapsedHeader, strconv.FormatInt(a.now().Sub(arrived).Milliseconds(), 10))
			w.WriteHeader(status)
			_, _ = w.Write(body) // the client may be gone
		}
		fail := func(status int, err error) {
			answer(status, http.Header{"Content-Type": {"application/json"}}, errorBody(err))
		}
		budget, err := a.budget(r.Header, arrived)
		if err != nil {
			fail(http.StatusBadRequest, err)
			return
		}
		ctx, cancel := a.begin(r.Context(), budget)
		defer cancel()
		propagation.Observe(ctx)
		if err := a.admit(ctx, budget); err != nil {
			fail(http.StatusGatewayTimeout, err)
			return
		}
		kept := &keptAnswer{header: make(http.Header), status: http.StatusOK}
		done := make(chan any, 1) // gets the value of a panic, or nil
		go func() {
			defer func() {
				p := recover()
				if p != nil && ctx.Err() != nil { // nobody may be left to take it
					a.log().ErrorContext(ctx, "panic of a handler out of time", "panic", p)
				}
				done <- p
			}()
			next.ServeHTTP(kept, r.WithContext(ctx))
		}()
		expired := ctx.Done()
		if a.Lenient {
			expired = nil
		}
		select {
		case p := <-done:
			if p != nil {
				panic(p)
			}
			answer(kept.status, kept.header, kept.body.Bytes())
		case <-expired:
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				answer(statusClientClosedRequest, nil, nil) // for the span; the client is gone
				return
			}
			fail(http.StatusGatewayTimeout, a.refuse(ctx, &DeadlineError{Reason: ReasonExceeded, Stage: "handler"}))
		}
	})
}

// budget reads what a request has, by the authority's wire.
func (a *Authority) budget(h http.Header, now time.Time) (time.Duration, error) {
	name := BudgetHeader
	if a.Wire == Absolute {
		name = DeadlineHeader
	}
	values := h.Values(name)
	if len(values) == 0 {
		if a.Default == 0 {
			return 0, fmt.Errorf("no %s: every request needs one", name)
		}
		return a.Default, nil
	}
	if len(values) > 1 {
		return 0, fmt.Errorf("%d values of %s: send one", len(values), name)
	}
	if values[0] == "" || strings.Trim(values[0], "0123456789") != "" {
		return 0, fmt.Errorf("%s is not a whole number of milliseconds", name)
	}
	// Digits that do not fit are a number all the same. A year of milliseconds
	// leaves room to calculate in nanoseconds.
	ms, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil {
		ms = 1<<63 - 1
	}
	var budget time.Duration
	if a.Wire == Absolute {
		budget = time.UnixMilli(min(ms, now.UnixMilli()+year)).Sub(now)
	} else {
		if ms == 0 {
			return 0, fmt.Errorf("%s is 0: the least is 1", name)
		}
		budget = time.Duration(min(ms, year)) * time.Millisecond
	}
	if a.Max > 0 {
		budget = min(budget, a.Max)
	}
	return budget, nil
}

// statusClientClosedRequest is what nginx writes for a client that has gone.
const statusClientClosedRequest = 499

const year = 365 * 24 * 3600 * 1000 // ms

// Call runs a call of a dependency with its part of what the request has left:
// Ratio x (remaining - Reserve). It does not run it when that is below Minimum.
func (a *Authority) Call(ctx context.Context, dependency string, call func(context.Context) error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		return call(ctx)
	}
	given := time.Until(deadline) - a.Reserve
	if ratio, ok := a.Ratio[dependency]; ok {
		given = time.Duration(ratio * float64(given))
	}
	if given <= 0 || given < a.Minimum {
		return a.refuse(ctx, &DeadlineError{Reason: ReasonBelowMinimum, Stage: "dependency", Dependency: dependency})
	}
	part, cancel := context.WithTimeout(ctx, given)
	defer cancel()
	err := call(part)
	if err != nil && ctx.Err() == nil && errors.Is(part.Err(), context.DeadlineExceeded) {
		return a.refuse(ctx, &DeadlineError{
			Reason: ReasonDownstream, Stage: "dependency", Dependency: dependency, Budget: given,
		})
	}
	return err
}

// Transport writes what the context of a request has left into its header,
// rounded down, so that no hop gains time. A request with less than 1 ms left is
// not sent. One without deadline goes out without header.
//
// Put it inside the tracing transport: the later the remainder is taken, the
// truer it is.
func (a *Authority) Transport(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		deadline, ok := r.Context().Deadline()
		if !ok {
			return base.RoundTrip(r)
		}
		remaining := time.Until(deadline)
		if remaining < time.Millisecond {
			if r.Body != nil {
				_ = r.Body.Close() // as every RoundTripper must
			}
			return nil, context.DeadlineExceeded
		}
		r = r.Clone(r.Context())
		if a.Wire == Absolute {
			r.Header.Set(DeadlineHeader, strconv.FormatInt(a.now().Add(remaining).UnixMilli(), 10))
		} else {
			r.Header.Set(BudgetHeader, strconv.FormatInt(remaining.Milliseconds(), 10))
		}
		return base.RoundTrip(r)
	})
}

// UnaryServer is the middleware for gRPC, which has already turned the
// grpc-timeout of the call into its deadline: calls without one get Default,
// those beyond Max get Max. The calling side needs nothing, because gRPC sends
// the remainder by itself.
func (a *Authority) UnaryServer(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (
	any, error,
) {
	budget := a.Default
	if deadline, ok := ctx.Deadline(); ok {
		budget = time.Until(deadline)
	} else if a.Default == 0 {
		return nil, status.Error(codes.InvalidArgument, "no deadline: every call needs one")
	}
	if a.Max > 0 {
		budget = min(budget, a.Max)
	}
	ctx, cancel := a.begin(ctx, budget)
	defer cancel()
	propagation.Observe(ctx)
	if err := a.admit(ctx, budget); err != nil {
		return nil, status.Error(codes.DeadlineExceeded, err.Error())
	}
	return next(ctx, req)
}

// roundTripper is a function as a [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// keptAnswer is an answer that may still be thrown away. Only the handler
// touches it until it has returned.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keptAnswer) Header() http.Header { return k.header }

func (k *keptAnswer) WriteHeader(status int) { k.status = status }

func (k *keptAnswer) Write(b []byte) (int, error) { return k.body.Write(b) }

// errorBody is the JSON of an answer that is an error. A reason of time stands in
// it by name.
func errorBody(err error) []byte {
	answer := struct {
		Reason string `json:"reason,omitempty"`
		Error  string `json:"error"`
	}{Error: err.Error()}
	if late := (*DeadlineError)(nil); errors.As(err, &late) {
		answer.Reason = late.Reason
	}
	body, _ := json.Marshal(answer) // two strings always encode
	return append(body, '\n')
}
