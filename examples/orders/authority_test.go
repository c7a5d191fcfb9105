package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latencybudget/latencybudget/internal/ontime"
)

var silent = slog.New(slog.DiscardHandler)

// leftOf returns a handler that notes how long its context has.
func leftOf(left *time.Duration) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		*left = -1
		if deadline, ok := r.Context().Deadline(); ok {
			*left = time.Until(deadline)
		}
	})
}

func newRequest(t *testing.T, header, value string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/order", nil)
	if header != "" {
		r.Header.Set(header, value)
	}
	return r
}

// A header that is no valid number is a mistake of the caller, and guessing what
// it means would be one more.
func TestAnInvalidBudgetIsRefusedAndTheHandlerNeverRuns(t *testing.T) {
	for _, wire := range []Wire{Relative, Absolute} {
		name := BudgetHeader
		values := []string{"abc", "-1", "1.5", "", " 5", "+5", "1e3", "5 ms", "0x10", "1_000", "٣"}
		if wire == Absolute {
			name = DeadlineHeader
		} else {
			values = append(values, "0", "00")
		}
		for _, value := range values {
			a := &Authority{Wire: wire, Default: time.Second, Log: silent}
			ran := false
			h := a.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, newRequest(t, name, value))
			if w.Code != http.StatusBadRequest || ran {
				t.Errorf("%s: %q: status %d, handler ran: %v; want 400, false", name, value, w.Code, ran)
			}
			if w.Header().Get(ElapsedHeader) == "" {
				t.Errorf("%s: %q: no %s in the answer", name, value, ElapsedHeader)
			}
		}
	}
}

func TestTwoBudgetsAreRefused(t *testing.T) {
	r := newRequest(t, BudgetHeader, "100")
	r.Header.Add(BudgetHeader, "200")
	w := httptest.NewRecorder()
	(&Authority{Default: time.Second}).Middleware(http.NotFoundHandler()).ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest {
		t.Errorf("status %d, want 400", w.Code)
	}
}

func TestTheDeadlineIsTheAnnouncedOneClampedOrTheDefault(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	in := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).UnixMilli(), 10) }
	tests := map[string]struct {
		wire  Wire
		value string
		want  time.Duration
	}{
		"announced":               {Relative, "700", 700 * time.Millisecond},
		"leading zeros":           {Relative, "0700", 700 * time.Millisecond},
		"none":                    {Relative, "", time.Second},
		"at the maximum":          {Relative, "5000", 5 * time.Second},
		"over the maximum":        {Relative, "5001", 5 * time.Second},
		"beyond int64":            {Relative, "99999999999999999999999", 5 * time.Second},
		"beyond int64 in ns":      {Relative, "9223372036854775", 5 * time.Second},
		"absolute":                {Absolute, in(700 * time.Millisecond), 700 * time.Millisecond},
		"absolute, none":          {Absolute, "", time.Second},
		"absolute, over":          {Absolute, in(time.Hour), 5 * time.Second},
		"absolute, beyond int64":  {Absolute, "99999999999999999999999", 5 * time.Second},
		"absolute, beyond 1 year": {Absolute, in(24 * 365 * 50 * time.Hour), 5 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := &Authority{Wire: test.wire, Default: time.Second, Max: 5 * time.Second, Log: silent, Now: func() time.Time { return now }}
			header := BudgetHeader
			if test.wire == Absolute {
				header = DeadlineHeader
			}
			if test.value == "" {
				header = ""
			}
			var left time.Duration
			w := httptest.NewRecorder()
			began := time.Now()
			a.Middleware(leftOf(&left)).ServeHTTP(w, newRequest(t, header, test.value))
			if took := time.Since(began); left > test.want || left < test.want-took {
				t.Errorf("the handler has %v within %v, want %v", left, took, test.want)
			}
			if _, err := strconv.Atoi(w.Header().Get(ElapsedHeader)); err != nil {
				t.Errorf("%s: %v", ElapsedHeader, err)
			}
		})
	}
}

// The authority of a service adds to what is there and takes nothing away.
func TestAnEarlierDeadlineOfTheContextStays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var left time.Duration
	a := &Authority{Default: time.Second, Log: silent}
	a.Middleware(leftOf(&left)).ServeHTTP(httptest.NewRecorder(), newRequest(t, BudgetHeader, "900").WithContext(ctx))
	if left > 300*time.Millisecond || left <= 0 {
		t.Errorf("the handler has %v, want at most 300 ms", left)
	}
}

func TestA20msBudgetIsAnswered504InTimeWhateverTheHandlerDoes(t *testing.T) {
	answered := make(chan struct{}) // closed when all answers are there
	t.Cleanup(func() { close(answered) })
	handlers := map[string]http.HandlerFunc{
		"obeys": func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
		},
		"ignores": func(w http.ResponseWriter, _ *http.Request) {
			<-answered
			w.WriteHeader(http.StatusOK)
		},
	}
	traced := otelhttp.NewMiddleware("test")
	for name, handler := range handlers {
		a := &Authority{Default: time.Second, Log: silent}
		for place, h := range map[string]http.Handler{
			"outside": a.Middleware(traced(handler)),
			"inside":  traced(a.Middleware(handler)),
		} {
			t.Run(name+", "+place, func(t *testing.T) {
				server := httptest.NewServer(h)
				defer server.Close()
				best := time.Hour
				for range 5 {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set(BudgetHeader, "20")
					start := time.Now()
					resp, err := server.Client().Do(req)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					best = min(best, time.Since(start))
					if resp.StatusCode != http.StatusGatewayTimeout {
						t.Fatalf("status %d, want 504", resp.StatusCode)
					}
					elapsed, err := strconv.Atoi(resp.Header.Get(ElapsedHeader))
					if err != nil || elapsed < 20 {
						t.Errorf("%s: %d, %v; want at least 20", ElapsedHeader, elapsed, err)
					}
				}
				if best < 20*time.Millisecond || best > 500*time.Millisecond {
					t.Errorf("answered after %v, want 20 ms and a little", best)
				}
			})
		}
	}
}

func TestAClientThatIsGoneIsNoTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{})
	defer close(answered)
	a := &Authority{Default: time.Minute, Log: silent}
	w := httptest.NewRecorder()
	a.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		<-answered
	})).ServeHTTP(w, newRequest(t, "", "").WithContext(ctx))
	if w.Code != statusClientClosedRequest {
		t.Errorf("status %d, want %d", w.Code, statusClientClosedRequest)
	}
}

func TestALenientAuthorityWaitsForTheHandler(t *testing.T) {
	a := &Authority{Default: 10 * time.Millisecond, Lenient: true, Log: silent}
	w := httptest.NewRecorder()
	a.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		w.WriteHeader(http.StatusTeapot)
	})).ServeHTTP(w, newRequest(t, "", ""))
	if w.Code != http.StatusTeapot {
		t.Errorf("status %d, want that of the handler", w.Code)
	}
}

func TestAPanicGoesToTheServerWhileItIsOnTimeAndIsLoggedLater(t *testing.T) {
	t.Run("on time", func(t *testing.T) {
		defer func() {
			if p, _ := recover().(error); !errors.Is(p, http.ErrAbortHandler) {
				t.Errorf("recovered %v, want %v", p, http.ErrAbortHandler)
			}
		}()
		a := &Authority{Default: time.Minute, Log: silent}
		a.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).
			ServeHTTP(httptest.NewRecorder(), newRequest(t, "", ""))
	})
	t.Run("late", func(t *testing.T) {
		logged := make(chan string, 4)
		a := &Authority{Default: 5 * time.Millisecond, Log: slog.New(slog.NewTextHandler(lines(logged), nil))}
		w := httptest.NewRecorder()
		answered := make(chan struct{})
		a.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-answered
			panic("too late")
		})).ServeHTTP(w, newRequest(t, "", ""))
		close(answered)
		if w.Code != http.StatusGatewayTimeout {
			t.Errorf("status %d, want 504", w.Code)
		}
		for line := range logged {
			if strings.Contains(line, "too late") {
				return
			}
		}
	})
}

// lines is a writer to a channel.
type lines chan string

func (l lines) Write(b []byte) (int, error) { l <- string(b); return len(b), nil }

func TestTheTransportSendsTheRemainderRoundedDown(t *testing.T) {
	sent := func(a *Authority, ctx context.Context) (http.Header, error) {
		var header http.Header
		rt := a.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
			header = r.Header
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1/", nil)
		before := req.Header.Clone()
		resp, err := rt.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if len(req.Header) != len(before) {
			t.Errorf("the request of the caller was changed: %v", req.Header)
		}
		return header, err
	}
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	for _, budget := range []time.Duration{30 * time.Second, 15 * time.Second, time.Hour} {
		ctx := within(budget)
		header, err := sent(&Authority{}, ctx)
		ms, parseErr := strconv.ParseInt(header.Get(BudgetHeader), 10, 64)
		if err != nil || parseErr != nil {
			t.Fatal(err, parseErr)
		}
		got := time.Duration(ms) * time.Millisecond
		if deadline, _ := ctx.Deadline(); got > budget || got < time.Until(deadline)-time.Millisecond {
			t.Errorf("sent %v of %v", got, budget)
		}
	}
	now := time.UnixMilli(1_700_000_000_000)
	header, err := sent(&Authority{Wire: Absolute, Now: func() time.Time { return now }}, within(time.Minute))
	due, parseErr := strconv.ParseInt(header.Get(DeadlineHeader), 10, 64)
	if err != nil || parseErr != nil {
		t.Fatal(err, parseErr)
	}
	if got := time.UnixMilli(due).Sub(now); got > time.Minute || got < time.Minute-time.Second {
		t.Errorf("the deadline is sent as %v from now, want just below a minute", got)
	}
	if header, err := sent(&Authority{}, t.Context()); err != nil || header.Get(BudgetHeader) != "" {
		t.Errorf("without deadline: %v, header %v; want none", err, header)
	}
	if header, err := sent(&Authority{}, within(900*time.Microsecond)); header != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with less than 1 ms: %v, sent %v; want it not to be sent", err, header)
	}
}

// gateway is the middleware in front of a dependency that takes 120 ms, at scale
// 1: it keeps 30 ms for itself and gives the dependency 0.7 of the rest.
func gateway(t *testing.T, scale time.Duration, log io.Writer) *httptest.Server {
	a := &Authority{
		Wire: Absolute, Max: 2 * time.Second * scale, Reserve: 30 * time.Millisecond * scale,
		Ratio: map[string]float64{"backend": 0.7}, Minimum: 25 * time.Millisecond * scale,
		Log: slog.New(slog.NewJSONHandler(log, nil)),
	}
	server := httptest.NewServer(a.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := a.Call(r.Context(), "backend", func(ctx context.Context) error {
			return wait(ctx, 120*time.Millisecond*scale)
		})
		if err != nil {
			w.WriteHeader(httpStatus(codeOf(err)))
			_, _ = w.Write(errorBody(err))
		}
	})))
	t.Cleanup(server.Close)
	return server
}

func TestTheGatewayHoldsAnAbsoluteDeadline(t *testing.T) {
	tests := map[string]struct {
		offset     time.Duration
		status     int
		reason     string
		stage      string
		dependency string
		budget     int64 // ms, at most, as logged
	}{
		"1000 ms": {1000 * time.Millisecond, http.StatusOK, "", "", "", 0},
		"150 ms":  {150 * time.Millisecond, http.StatusGatewayTimeout, ReasonDownstream, "dependency", "backend", 84},
		"20 ms":   {20 * time.Millisecond, http.StatusGatewayTimeout, ReasonBelowMinimum, "admission", "", 20},
		"past":    {-time.Second, http.StatusGatewayTimeout, ReasonBelowMinimum, "admission", "", -1000},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ontime.Judge(t, func(t *ontime.Trial) {
				var log bytes.Buffer
				server := gateway(t.T, t.Scale, &log)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(DeadlineHeader, strconv.FormatInt(time.Now().Add(test.offset*t.Scale).UnixMilli(), 10))
				resp, err := server.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				server.Close() // ends what is logged
				if err != nil {
					t.Fatal(err)
				}
				var answer, line struct {
					Reason     string
					Stage      string
					Dependency string
					Remaining  int64 `json:"remaining_ms"`
					Budget     int64 `json:"budget_ms"`
					Elapsed    int64 `json:"elapsed_ms"`
				}
				_ = json.Unmarshal(body, &answer)
				_ = json.Unmarshal(log.Bytes(), &line)
				scale := int64(t.Scale)
				ok := resp.StatusCode == test.status && answer.Reason == test.reason && line.Reason == test.reason &&
					line.Stage == test.stage && line.Dependency == test.dependency &&
					line.Budget <= test.budget*scale && line.Budget >= (test.budget-20)*scale
				if test.reason == ReasonDownstream {
					ok = ok && line.Elapsed >= line.Budget && line.Remaining > 0
				}
				if !ok {
					t.Errorf("status %d, answer %s, log %s; want %+v", resp.StatusCode, body, log.Bytes(), test)
				}
			})
		})
	}
}

func TestTheGatewayWantsADeadline(t *testing.T) {
	server := gateway(t, 1, io.Discard)
	for _, value := range []string{"", "tomorrow", "1.7e12", "1700000000000.5", "-1700000000000"} {
		r := newRequest(t, DeadlineHeader, value)
		if value == "" {
			r.Header.Del(DeadlineHeader)
		}
		w := httptest.NewRecorder()
		server.Config.Handler.ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%q: status %d, want 400", value, w.Code)
		}
	}
}

func TestNoCallIsGivenMoreThanWhatIsLeft(t *testing.T) {
	for _, a := range []*Authority{
		{},
		{Ratio: map[string]float64{"x": 0.5, "y": 0.1}},
		{Ratio: map[string]float64{"x": 1}},
		{Reserve: 100 * time.Millisecond},
		{Reserve: 100 * time.Millisecond, Ratio: map[string]float64{"x": 0.3}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		outer, _ := ctx.Deadline()
		err := a.Call(ctx, "x", func(part context.Context) error {
			inner, ok := part.Deadline()
			most := outer.Add(-a.Reserve)
			if ratio, ok := a.Ratio["x"]; ok {
				most = time.Now().Add(time.Duration(ratio * float64(time.Until(outer)-a.Reserve)))
			}
			if !ok || inner.After(most.Add(time.Millisecond)) || inner.After(outer) {
				t.Errorf("%+v: the call may end at %v, want at most %v", a, inner, most)
			}
			return nil
		})
		cancel()
		if err != nil {
			t.Error(err)
		}
	}
}

// What fails for another reason than time keeps its reason.
func TestAFailureOfADependencyIsNoTimeout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	broken := errors.New("broken")
	if err := (&Authority{Log: silent}).Call(ctx, "x", func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestGRPCCallsGetTheDefaultTheMaximumOrTheirOwn(t *testing.T) {
	a := &Authority{Default: time.Second, Max: 5 * time.Second, Minimum: 5 * time.Millisecond, Log: silent}
	tests := map[string]struct{ announced, want time.Duration }{
		"none":     {0, time.Second},
		"own":      {2 * time.Second, 2 * time.Second},
		"too long": {time.Minute, 5 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, began := t.Context(), time.Now()
			if test.announced > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.announced)
				defer cancel()
			}
			_, err := a.UnaryServer(ctx, nil, nil, func(ctx context.Context, _ any) (any, error) {
				deadline, ok := ctx.Deadline()
				left, took := time.Until(deadline), time.Since(began)
				if !ok || left > test.want || left < test.want-took {
					t.Errorf("the handler has %v within %v, want %v", left, took, test.want)
				}
				return nil, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
	defer cancel()
	_, err := a.UnaryServer(ctx, nil, nil, func(context.Context, any) (any, error) {
		t.Error("a call below the minimum ran")
		return nil, nil
	})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("below the minimum: %v, want DeadlineExceeded", err)
	}
}
