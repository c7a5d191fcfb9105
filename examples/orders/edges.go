package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latencybudget/latencybudget/propagation"
)

// edge sends an order to another service.
type edge func(context.Context, Order) (Answer, error)

// connect makes the edges to all services that s calls.
func (s *Service) connect() error {
	for _, step := range s.node.Steps {
		for _, name := range step.Calls {
			callee := s.system.service(name)
			if callee == nil {
				return fmt.Errorf("%s calls %q, which does not exist", s.node.Name, name)
			}
			if callee.node.Protocol == HTTP {
				s.edges[name] = s.edgeHTTP(callee)
				continue
			}
			e, err := s.edgeGRPC(callee)
			if err != nil {
				return err
			}
			s.edges[name] = e
		}
	}
	return nil
}

// dialer connects to a service; fault Stall makes that slow.
func (s *Service) dialer(callee *Service) (dial func(context.Context, string) (net.Conn, error), stalled bool) {
	fault, stalled := s.system.faults.everywhere(Stall, callee.node.Name)
	return func(ctx context.Context, address string) (net.Conn, error) {
		if err := wait(ctx, fault.Value); err != nil {
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}, stalled
}

func (s *Service) edgeHTTP(callee *Service) edge {
	dial, stalled := s.dialer(callee)
	base := &http.Transport{
		MaxIdleConnsPerHost: 256,
		DisableKeepAlives:   stalled, // so that every call meets the stall
		DialContext:         func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
	}
	s.system.clients = append(s.system.clients, func() error { base.CloseIdleConnections(); return nil })
	client := &http.Client{Transport: otelhttp.NewTransport(
		notesKey(s.system.cfg.Mode.transport(s.authority, s.clock.transport(base))),
		otelhttp.WithTracerProvider(s.provider),
		otelhttp.WithPropagators(s.propagator()),
		otelhttp.WithSpanNameFormatter(func(string, *http.Request) string { return "POST /order" }))}
	url := "http://" + callee.address + "/order"
	return func(ctx context.Context, order Order) (Answer, error) {
		// The key follows from the order, so that every attempt has the same, at
		// whatever layer it is repeated.
		key := fmt.Sprintf("%d-%s", order, callee.node.Name)
		resp, err := post(ctx, client, url, order, http.Header{keyHeader: {key}})
		if err != nil {
			return Answer{}, err
		}
		defer func() { _ = resp.Body.Close() }()
		return readAnswer(callee.node.Name, resp)
	}
}

// keyHeader tells a service which requests are the same one sent again. POST is
// not idempotent by itself, so a caller that repeats one without a key asks for
// its effect a second time.
const keyHeader = "Idempotency-Key"

// notesKey captures the key on the CLIENT span, by which the analyzer knows that a
// retry was safe. It belongs inside the tracing transport.
func notesKey(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		trace.SpanFromContext(r.Context()).SetAttributes(
			attribute.StringSlice("http.request.header.idempotency-key", r.Header[keyHeader]))
		return base.RoundTrip(r)
	})
}

// post sends an order over HTTP.
func post(ctx context.Context, client *http.Client, url string, order Order, header http.Header) (
	*http.Response, error,
) {
	body := fmt.Appendf(nil, `{"order":%d}`, order)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// readAnswer reads the answer of an HTTP service. One that is no success becomes
// a gRPC status, so that callers need not know the protocol.
func readAnswer(service string, resp *http.Response) (Answer, error) {
	var answer struct {
		Answer
		Error string `json:"error"`
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer)
	switch {
	case resp.StatusCode != http.StatusOK:
		return Answer{}, status.Errorf(grpcCode(resp.StatusCode),
			"%s answers %d: %s", service, resp.StatusCode, answer.Error)
	case err != nil:
		return Answer{}, fmt.Errorf("answer of %s: %w", service, err)
	}
	return answer.Answer, nil
}

func (s *Service) edgeGRPC(callee *Service) (edge, error) {
	dial, stalled := s.dialer(callee)
	open := func() (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+callee.address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(dial),
			grpc.WithStatsHandler(otelgrpc.NewClientHandler(
				otelgrpc.WithTracerProvider(s.provider), otelgrpc.WithPropagators(s.propagator()))))
	}
	if stalled { // every call opens a connection, so that it meets the stall
		return func(ctx context.Context, order Order) (Answer, error) {
			conn, err := open()
			if err != nil {
				return Answer{}, err
			}
			defer func() { _ = conn.Close() }()
			return invoke(ctx, conn, callee.node.Name, order)
		}, nil
	}
	conn, err := open()
	if err != nil {
		return nil, err
	}
	s.system.clients = append(s.system.clients, conn.Close)
	return func(ctx context.Context, order Order) (Answer, error) {
		return invoke(ctx, conn, callee.node.Name, order)
	}, nil
}

// The gRPC services need no generated code: orders.NAME/Order takes the number
// of the order as an Int64Value and answers with the degraded dependencies as a
// ListValue of strings.

// orderService describes the gRPC service of a node; it is served by a *Service.
func orderService(name string) *grpc.ServiceDesc {
	full := "/orders." + name + "/Order"
	return &grpc.ServiceDesc{
		ServiceName: "orders." + name,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Order",
			Handler: func(srv any, ctx context.Context, decode func(any) error,
				around grpc.UnaryServerInterceptor,
			) (any, error) {
				s := srv.(*Service)
				in := new(wrapperspb.Int64Value)
				if err := decode(in); err != nil {
					return nil, err
				}
				return around(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: full}, s.serveGRPC)
			},
		}},
	}
}

func (s *Service) serveGRPC(ctx context.Context, req any) (any, error) {
	answer, err := s.serve(ctx, Order(req.(*wrapperspb.Int64Value).Value))
	if err != nil {
		return nil, status.Error(codeOf(err), err.Error())
	}
	out := new(structpb.ListValue)
	for _, name := range answer.Degraded {
		out.Values = append(out.Values, structpb.NewStringValue(name))
	}
	return out, nil
}

// invoke sends an order over gRPC.
func invoke(ctx context.Context, conn *grpc.ClientConn, name string, order Order) (Answer, error) {
	out := new(structpb.ListValue)
	if err := conn.Invoke(ctx, "/orders."+name+"/Order", wrapperspb.Int64(int64(order)), out); err != nil {
		return Answer{}, err
	}
	var answer Answer
	for _, value := range out.Values {
		answer.Degraded = append(answer.Degraded, value.GetStringValue())
	}
	return answer, nil
}

// codeOf returns the gRPC code of an error of this program.
func codeOf(err error) codes.Code {
	switch {
	case err == nil:
		return codes.OK
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return status.Code(err)
}

// httpStatus is the HTTP status for a code that codeOf returns.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.Canceled:
		return statusClientClosedRequest
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// grpcCode is the reverse of httpStatus.
func grpcCode(status int) codes.Code {
	switch status {
	case http.StatusOK:
		return codes.OK
	case http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	case statusClientClosedRequest:
		return codes.Canceled
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	case http.StatusBadRequest:
		return codes.InvalidArgument
	}
	return codes.Unknown
}

// queueTime is how long a request lies in the queue of fault Queue: as long as
// the fault says, or half of what the request has left.
func queueTime(ctx context.Context, fault Fault) time.Duration {
	if deadline, ok := ctx.Deadline(); ok && fault.Value == 0 {
		return time.Until(deadline) / 2
	}
	return fault.Value
}

// queuedStats puts a queue before the tracing of a gRPC service.
type queuedStats struct {
	stats.Handler
	fault Fault
}

// TagRPC implements [stats.Handler]. It is the first thing that the server does
// with a call.
func (q queuedStats) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	start := time.Now()
	_ = wait(ctx, queueTime(ctx, q.fault))
	return q.Handler.TagRPC(context.WithValue(ctx, queuedKey{}, start), info)
}

// queueHTTP puts a queue before everything else of a service.
func (s *Service) queueHTTP(fault Fault, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, d := time.Now(), fault.Value
		if budget, err := s.authority.budget(r.Header, s.authority.now()); err == nil && d == 0 {
			d = budget / 2
		}
		if wait(r.Context(), d) == nil {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), queuedKey{}, start)))
		}
	})
}

// public is the way into the chain from outside. What strangers claim to have
// observed must not get onto spans.
func public(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del(propagation.Header)
		next.ServeHTTP(w, r)
	})
}

// lostHeader marks an answer that is to be lost.
const lostHeader = "X-Lost"

// losesAnswers keeps the answers that are marked until the caller has gone, or
// for a time at most: then the connection breaks. The service is done with them,
// and its span has ended.
func losesAnswers(most time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := &keptAnswer{header: make(http.Header), status: http.StatusOK}
		next.ServeHTTP(kept, r)
		if kept.header.Get(lostHeader) != "" {
			_ = wait(r.Context(), most)
			panic(http.ErrAbortHandler) // which the server takes for: no answer
		}
		for name, values := range kept.header {
			w.Header()[name] = values
		}
		w.WriteHeader(kept.status)
		_, _ = kept.body.WriteTo(w)
	})
}

// startProxy puts a reverse proxy before an HTTP service. It announces its own
// budget to it, whatever the request says.
func (s *Service) startProxy(budget time.Duration) error {
	listener, err := listen(s.port)
	if err != nil {
		return err
	}
	base := &http.Transport{MaxIdleConnsPerHost: 256}
	target := &url.URL{Scheme: "http", Host: s.address}
	proxy := &httputil.ReverseProxy{
		Transport: base,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if s.authority.Wire == Absolute {
				r.Out.Header.Set(DeadlineHeader, strconv.FormatInt(time.Now().Add(budget).UnixMilli(), 10))
			} else {
				r.Out.Header.Set(BudgetHeader, strconv.FormatInt(budget.Milliseconds(), 10))
			}
		},
		// A caller that has gone gets no answer, and that is not worth a line.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := newServer(proxy)
	s.address = listener.Addr().String()
	go func() { _ = server.Serve(listener) }() // ends with Shutdown
	s.stop = append([]func(context.Context) error{stopHTTP(server)}, s.stop...)
	s.system.clients = append(s.system.clients, func() error { base.CloseIdleConnections(); return nil })
	return nil
}
