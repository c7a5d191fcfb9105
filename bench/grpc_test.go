package bench

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	otelpropagation "go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	tracing "google.golang.org/grpc/experimental/opentelemetry"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/protobuf/proto"

	"github.com/latencybudget/latencybudget/analyzer/source"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// collected is an OTLP client that keeps what it is told to send.
type collected struct {
	mu   sync.Mutex
	data tracepb.TracesData
}

func (*collected) Start(context.Context) error { return nil }
func (*collected) Stop(context.Context) error  { return nil }

func (c *collected) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data.ResourceSpans = append(c.data.ResourceSpans, spans...)
	return nil
}

// What gRPC's own plugin writes of a stream tells it, on both sides, and what it writes
// of a unary call does not.
func TestStreamsOfGRPCAreTold(t *testing.T) {
	var out collected
	exporter, err := otlptrace.New(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	options := opentelemetry.Options{TraceOptions: tracing.TraceOptions{
		TracerProvider: provider, TextMapPropagator: otelpropagation.TraceContext{},
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opentelemetry.ServerOption(options))
	service := health.NewServer()
	healthpb.RegisterHealthServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), opentelemetry.DialOption(options))
	if err != nil {
		t.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []healthpb.HealthCheckResponse_ServingStatus{
		healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING,
	} {
		service.SetServingStatus("", status)
		if got, err := stream.Recv(); err != nil || got.Status != status {
			t.Fatalf("status %v, %v; want %v", got.GetStatus(), err, status)
		}
	}
	leave()
	for err == nil { // the span of the client ends with its call
		_, err = stream.Recv()
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	server.GracefulStop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := provider.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}

	file, err := proto.Marshal(&out.data)
	if err != nil {
		t.Fatal(err)
	}
	src, err := source.Open([]string{"-"}, bytes.NewReader(file), source.Options{})
	if err != nil {
		t.Fatal(err)
	}
	builder := trace.NewBuilder()
	for batch, err := range src.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		builder.Add(batch.Spans)
	}
	builder.Seal()
	calls := 0
	for n := range builder.Len() {
		var tr trace.Trace
		if err := builder.Assemble(n, trace.DefaultMaxTraceSpans, &tr); err != nil {
			t.Fatal(err)
		}
		var tree trace.Tree
		tree.Build(&tr, tr.Entries()[0], new(trace.Paths), nil)
		for i := range tree.Calls {
			c := &tree.Calls[i]
			calls++
			client, server := &tr.Spans[c.Span], &tr.Spans[c.Callee]
			watch := strings.HasSuffix(server.Desc.Operation, "Watch")
			if c.Stream != watch || server.Is(trace.FlagStream) != watch {
				t.Errorf("%s: stream: %v, its SERVER span: %v", client.Desc.Operation, c.Stream, server.Is(trace.FlagStream))
			}
		}
	}
	if calls != 2 {
		t.Errorf("%d calls, want one unary and one stream", calls)
	}
}
