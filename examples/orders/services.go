package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latencybudget/latencybudget/propagation"
)

// Order is the number of an order. All that is random about it follows from the
// number and the seed.
type Order int64

// Answer is what a service answers when it has done its part.
type Answer struct {
	Degraded []string `json:"degraded"` // dependencies that were skipped or did not answer, sorted
}

// Protocol is what a service speaks.
type Protocol string

// The protocols.
const (
	HTTP Protocol = "http"
	GRPC Protocol = "grpc"
)

// Node is a service of the topology.
type Node struct {
	Name       string
	Protocol   Protocol
	Work       time.Duration // own time, at most
	Steps      []Step        // calls, one step after the other, after the own work
	Degradable bool          // callers can do without it
}

// Step is a group of calls that run side by side.
type Step struct {
	Calls []string
	Async bool // nobody waits for them, and they outlive the answer, but not the deadline
}

// Orders is the order chain. The path that blocks, with all services at their
// longest, takes 5 + 2 + 15 + 30 + 8 + 2 = 62 ms:
//
//	gateway    |5 .......................................................|
//	auth          |2|
//	audit           |10    |                                      (async)
//	inventory       |15       |
//	coupon          |10    |                                 (degradable)
//	risk                      |30 ...............................|
//	payment                                      |8 .............|
//	persist                                              |2|
var Orders = []Node{
	{Name: "gateway", Protocol: HTTP, Work: 5 * time.Millisecond, Steps: []Step{
		{Calls: []string{"auth"}},
		{Calls: []string{"audit"}, Async: true},
		{Calls: []string{"inventory", "coupon"}},
		{Calls: []string{"risk"}},
	}},
	{Name: "auth", Protocol: HTTP, Work: 2 * time.Millisecond},
	{Name: "inventory", Protocol: GRPC, Work: 15 * time.Millisecond},
	{Name: "coupon", Protocol: HTTP, Work: 10 * time.Millisecond, Degradable: true},
	{Name: "risk", Protocol: GRPC, Work: 30 * time.Millisecond, Steps: []Step{{Calls: []string{"payment"}}}},
	{Name: "payment", Protocol: HTTP, Work: 8 * time.Millisecond, Steps: []Step{{Calls: []string{"persist"}}}},
	{Name: "audit", Protocol: HTTP, Work: 10 * time.Millisecond, Degradable: true},
	{Name: "persist", Protocol: GRPC, Work: 2 * time.Millisecond},
}

// degradeBelow is what a request must have left for a degradable call.
const degradeBelow = 100 * time.Millisecond

// Config says what to start. The first node is the entry.
type Config struct {
	Nodes   []Node
	Mode    Mode
	Wire    Wire
	Inside  bool          // the authority stands inside the tracing middleware
	Port    int           // of the entry; 0 takes a free one, as all others do
	Fresh   time.Duration // timeout of modes that make a new one, and of requests that announce none
	Max     time.Duration // most that a request gets
	Reserve time.Duration // of the entry, for its own answer
	Minimum time.Duration // of the entry: below it nothing is begun
	Workers int           // of each service
	Spread  float64       // own time varies between (1-Spread) x Work and Work
	Skew    time.Duration // between the clocks of a service and its callers
	Faults  []Fault
	Seed    uint64

	// Tolerance is how much later than the inherited deadline another may be
	// before a span is flagged, at least; see propagation.WithTolerance.
	Tolerance time.Duration

	Export newClient // nil keeps no spans
	Log    *slog.Logger
}

// System is a running chain of services.
type System struct {
	cfg      Config
	faults   *faults
	services []*Service // as the nodes
	clients  []func() error
	exports  exports
}

// Service is one running service.
type Service struct {
	node      Node
	system    *System
	authority *Authority
	provider  *sdktrace.TracerProvider
	clock     clock
	pool      *pool
	port      int    // to listen on for its callers; 0: any
	address   string // for its callers; a proxy's where there is one
	edges     map[string]edge
	async     sync.WaitGroup
	served    atomic.Int64
	stop      []func(context.Context) error // what listens, in this order
}

// Start starts all services, each on its own port of the loopback interface.
// Close must be called if it succeeds.
func Start(ctx context.Context, cfg Config) (*System, error) {
	s := &System{cfg: cfg, faults: &faults{list: cfg.Faults, seed: cfg.Seed}}
	if err := checkFaults(cfg.Nodes, cfg.Faults); err != nil {
		return nil, err
	}
	for i := range cfg.Nodes {
		if err := s.startService(ctx, i); err != nil {
			_ = s.Close(ctx)
			return nil, err
		}
	}
	// Callers are connected when everybody listens.
	for _, service := range s.services {
		if err := service.connect(); err != nil {
			_ = s.Close(ctx)
			return nil, err
		}
	}
	return s, nil
}

// Close lets nobody in any more, waits for what the services still do, stops
// them and exports what is left. When ctx ends, it stops without waiting, but for
// the calls that nobody else waits for: those end with a deadline, theirs or the
// callee's.
func (s *System) Close(ctx context.Context) error {
	var errs []error
	for i, service := range s.services {
		for _, stop := range service.stop {
			errs = append(errs, stop(ctx))
		}
		if i > 0 {
			continue
		}
		errs = append(errs, s.Drain(ctx)) // handlers that were given up go on
		for _, service := range s.services {
			service.async.Wait()
		}
		errs = append(errs, s.Drain(ctx)) // and so do handlers of those calls
		for _, client := range s.clients {
			errs = append(errs, client())
		}
	}
	var flushing sync.WaitGroup
	for _, service := range s.services {
		flushing.Go(func() {
			if err := service.provider.Shutdown(ctx); err != nil {
				s.exports.fail(0, err)
			}
		})
	}
	flushing.Wait()
	return errors.Join(append(errs, s.exports.err())...)
}

// Stats returns what the pools of the services have seen.
func (s *System) Stats() []PoolStats {
	stats := make([]PoolStats, len(s.services))
	for i, service := range s.services {
		stats[i] = service.pool.stats(service.node.Name)
	}
	return stats
}

// Drain waits until no service has work.
func (s *System) Drain(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(s.services, func(service *Service) bool { return !service.pool.idle() }) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("services did not drain: %w", ctx.Err())
		}
	}
	return nil
}

func (s *System) service(name string) *Service {
	for _, service := range s.services {
		if service.node.Name == name {
			return service
		}
	}
	return nil
}

// startService starts node i of the topology.
func (s *System) startService(ctx context.Context, i int) error {
	cfg, node := &s.cfg, s.cfg.Nodes[i]
	service := &Service{
		node: node, system: s, clock: cfg.clock(node.Name),
		pool: newPool(cfg.Workers), edges: make(map[string]edge),
	}
	provider, err := s.newProvider(ctx, node.Name, service.clock)
	if err != nil {
		return err
	}
	service.provider = provider
	s.services = append(s.services, service)
	service.authority = &Authority{
		Wire:    cfg.Wire,
		Default: cfg.Fresh,
		Max:     cfg.Max,
		Lenient: !cfg.Mode.enforces(),
		Log:     cfg.Log.With("service", node.Name),
	}
	if i == 0 {
		service.port = cfg.Port
		service.authority.Reserve, service.authority.Minimum = cfg.Reserve, cfg.Minimum
		if cfg.Wire == Absolute {
			service.authority.Default = 0 // who does not say when is refused
		}
	}
	if cfg.Mode == Ratio {
		service.authority.Ratio = make(map[string]float64)
		for _, step := range node.Steps {
			for _, name := range step.Calls {
				service.authority.Ratio[name] = callRatio
			}
		}
	}
	if node.Protocol == GRPC {
		return service.listenGRPC()
	}
	return service.listenHTTP()
}

// propagator is what a service sets up once: the trace context, and beside it
// the remaining budget.
func (s *Service) propagator() otelpropagation.TextMapPropagator {
	budget := propagation.New(propagation.WithAuthorityHeader(BudgetHeader, propagation.Relative))
	if s.authority.Wire == Absolute {
		budget = propagation.New(propagation.WithAuthorityHeader(DeadlineHeader, propagation.EpochMillis))
	}
	return otelpropagation.NewCompositeTextMapPropagator(
		otelpropagation.TraceContext{}, otelpropagation.Baggage{}, budget)
}

// listen opens a port of the loopback interface, which nobody outside can reach.
func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

// maxHeader bounds the header of a request. net/http and gRPC allow more than a
// service needs.
const maxHeader = 32 << 10

func newServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: maxHeader}
}

func (s *Service) listenHTTP() error {
	proxy, proxied := s.system.faults.everywhere(Proxy, s.node.Name)
	port := s.port
	if proxied {
		port = 0 // the proxy has it
	}
	listener, err := listen(port)
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	traced := otelhttp.NewMiddleware("",
		otelhttp.WithTracerProvider(s.provider),
		otelhttp.WithPropagators(s.propagator()),
		otelhttp.WithSpanNameFormatter(func(string, *http.Request) string { return "POST /order" }))
	handler := s.authority.Middleware(traced(http.HandlerFunc(s.serveHTTP)))
	if s.system.cfg.Inside {
		handler = traced(s.authority.Middleware(http.HandlerFunc(s.serveHTTP)))
	}
	if fault, ok := s.system.faults.everywhere(Queue, s.node.Name); ok {
		handler = s.queueHTTP(fault, handler)
	}
	if _, ok := s.system.faults.everywhere(LostResponse, s.node.Name); ok {
		handler = losesAnswers(s.system.cfg.Max, handler)
	}
	handler = s.clock.handler(handler)
	if s == s.system.services[0] {
		handler = public(handler)
	}
	server := newServer(handler)
	go func() { _ = server.Serve(listener) }() // ends with Shutdown
	s.stop = append(s.stop, stopHTTP(server))
	if proxied {
		return s.startProxy(proxy.Value)
	}
	return nil
}

func (s *Service) listenGRPC() error {
	listener, err := listen(s.port)
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	traced := otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(s.provider), otelgrpc.WithPropagators(s.propagator()))
	if fault, ok := s.system.faults.everywhere(Queue, s.node.Name); ok {
		traced = queuedStats{traced, fault}
	}
	server := grpc.NewServer(grpc.StatsHandler(traced), grpc.UnaryInterceptor(s.authority.UnaryServer),
		grpc.MaxHeaderListSize(maxHeader))
	server.RegisterService(orderService(s.node.Name), s)
	go func() { _ = server.Serve(listener) }() // ends with GracefulStop
	s.stop = append(s.stop, func(ctx context.Context) error {
		done := make(chan struct{})
		go func() { server.GracefulStop(); close(done) }()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			server.Stop() // ends GracefulStop too, once the handlers notice
			return fmt.Errorf("%s: %w", s.node.Name, ctx.Err())
		}
	})
	return nil
}

// stopHTTP returns how to stop a server: gently, or else by force.
func stopHTTP(server *http.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		return err
	}
}

// serveHTTP is the endpoint POST /order.
func (s *Service) serveHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status int, format string, args ...any) {
		w.WriteHeader(status)
		_, _ = w.Write(errorBody(fmt.Errorf(format, args...)))
	}
	if r.URL.Path != "/order" {
		refuse(http.StatusNotFound, "there is nothing here: POST to /order")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(http.StatusMethodNotAllowed, "this wants a POST")
		return
	}
	var body struct {
		Order *Order `json:"order"`
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err == nil && body.Order == nil {
		err = errors.New("there is no order in it")
	}
	if err != nil {
		refuse(http.StatusBadRequest, `the body is no order, as {"order": 1}: %w`, err)
		return
	}
	answer, err := s.serve(r.Context(), *body.Order)
	if _, ok := s.fault(LostResponse, *body.Order); ok {
		w.Header().Set(lostHeader, "1")
	}
	if err != nil {
		w.WriteHeader(httpStatus(codeOf(err)))
		_, _ = w.Write(errorBody(err))
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// serve does the part of the service for an order.
func (s *Service) serve(ctx context.Context, order Order) (Answer, error) {
	if _, ok := s.fault(LostCancel, order); ok {
		detached, cancel := withoutCancel(ctx)
		defer cancel()
		ctx = detached
	}
	release, err := s.pool.acquire(ctx)
	if err != nil {
		return Answer{}, err
	}
	defer release()
	if err := s.work(ctx, order); err != nil {
		return Answer{}, err
	}
	answer := Answer{Degraded: []string{}} // which is not null in JSON
	for _, step := range s.node.Steps {
		degraded, err := s.run(ctx, step, order)
		if err != nil {
			return Answer{}, err
		}
		answer.Degraded = append(answer.Degraded, degraded...)
	}
	slices.Sort(answer.Degraded)
	if _, ok := s.fault(Fail, order); ok {
		return Answer{}, status.Error(codes.Unavailable, s.node.Name+" fails")
	}
	return answer, nil
}

// work takes the own time of the service.
func (s *Service) work(ctx context.Context, order Order) error {
	start := time.Now()
	defer func() { s.pool.worked(time.Since(start)) }()
	spread := s.system.cfg.Spread * draw(s.system.cfg.Seed, "work "+s.node.Name, order)
	own := time.Duration((1 - spread) * float64(s.node.Work))
	if fault, ok := s.fault(Slow, order); ok {
		own = fault.Value
	}
	if fault, ok := s.fault(Cold, order); ok && s.served.Add(1) == 1 {
		own += fault.Value
	}
	if fault, ok := s.fault(Ignore, order); ok {
		time.Sleep(fault.Value)
		return ctx.Err()
	}
	return wait(ctx, own)
}

// run makes the calls of a step and returns the dependencies that it had to do
// without. The first call that fails ends the others.
func (s *Service) run(ctx context.Context, step Step, order Order) (degraded []string, err error) {
	group, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([]Answer, len(step.Calls))
	errs := make([]error, len(step.Calls))
	var calls sync.WaitGroup
	for i, name := range step.Calls {
		callee := s.system.service(name)
		if deadline, ok := ctx.Deadline(); ok && callee.node.Degradable && time.Until(deadline) < degradeBelow {
			propagation.MarkDegraded(ctx, name)
			answers[i].Degraded = []string{name}
			continue
		}
		if step.Async {
			detached, cancel := withoutCancel(ctx)
			s.async.Go(func() {
				defer cancel()
				detached, span := s.provider.Tracer("orders").Start(detached, "leave to "+name)
				defer span.End()
				propagation.MarkDetached(detached)
				_, _ = s.call(detached, callee, order) // nobody waits for the answer
			})
			continue
		}
		calls.Go(func() {
			answers[i], errs[i] = s.call(group, callee, order)
			if errs[i] != nil && callee.node.Degradable && group.Err() == nil {
				propagation.MarkDegraded(ctx, name)
				answers[i], errs[i] = Answer{Degraded: []string{name}}, nil
			}
			if errs[i] != nil {
				cancel()
			}
		})
	}
	calls.Wait()
	for i := range step.Calls {
		degraded = append(degraded, answers[i].Degraded...)
		// The failure that ended the others counts, not their cancellation.
		if errs[i] != nil && (err == nil || codeOf(err) == codes.Canceled) {
			err = errs[i]
		}
	}
	return degraded, err
}

// call calls another service, with as many attempts as the faults want.
func (s *Service) call(ctx context.Context, callee *Service, order Order) (Answer, error) {
	attempts := 1
	if fault, ok := callee.fault(Retry, order); ok {
		attempts = fault.Attempts
	}
	var answer Answer
	var err error
	for range attempts {
		answer, err = s.attempt(ctx, callee, order)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if fault, ok := callee.fault(LateRetry, order); ok && codeOf(err) == codes.DeadlineExceeded {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), fault.Value)
		defer cancel()
		return s.edges[callee.node.Name](late, order)
	}
	return answer, err
}

// attempt makes one attempt of a call, or two side by side if it is hedged.
func (s *Service) attempt(ctx context.Context, callee *Service, order Order) (answer Answer, err error) {
	send := func(ctx context.Context) (Answer, error) {
		ctx, cancel := s.system.cfg.Mode.outgoing(ctx, s.system.cfg.Fresh)
		defer cancel()
		return s.edges[callee.node.Name](ctx, order)
	}
	if fault, ok := callee.fault(Hedge, order); ok {
		first := send
		send = func(ctx context.Context) (Answer, error) { return hedged(ctx, fault.Value, first) }
	}
	err = s.authority.Call(ctx, callee.node.Name, func(ctx context.Context) error {
		var err error
		answer, err = send(ctx)
		return err
	})
	return answer, err
}

// hedged sends a second attempt when the first takes longer than after. The
// first answer ends the other attempt; an error only does so if it is the last.
func hedged(ctx context.Context, after time.Duration, send func(context.Context) (Answer, error)) (Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		answer Answer
		err    error
	}
	results := make(chan result, 2)
	attempt := func() {
		answer, err := send(ctx)
		results <- result{answer, err}
	}
	go attempt()
	timer := time.NewTimer(after)
	defer timer.Stop()
	for running := 1; ; {
		select {
		case <-timer.C:
			running++
			go attempt()
		case r := <-results:
			if running--; r.err == nil || running == 0 {
				return r.answer, r.err
			}
		}
	}
}

// fault returns a fault of the service that the order meets.
func (s *Service) fault(kind FaultKind, order Order) (Fault, bool) {
	return s.system.faults.find(kind, s.node.Name, order)
}

// withoutCancel returns a context that ends with the deadline of ctx, but not
// when ctx is cancelled.
func withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(detached, deadline)
	}
	return context.WithCancel(detached)
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
