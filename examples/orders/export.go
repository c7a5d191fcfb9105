package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/latencybudget/latencybudget/propagation"
)

// newClient is where spans go: each service gets a client of its own.
type newClient func() otlptrace.Client

// toEndpoint sends spans to an OTLP endpoint: http://host:port (its path is
// /v1/traces unless it has one) or grpc://host:port.
func toEndpoint(endpoint string) (newClient, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "grpc") {
		return nil, fmt.Errorf("endpoint %q: write http://HOST:PORT or grpc://HOST:PORT", endpoint)
	}
	return func() otlptrace.Client {
		if u.Scheme == "grpc" {
			return otlptracegrpc.NewClient(otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(u.Host))
		}
		opts := []otlptracehttp.Option{otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(u.Host)}
		if strings.Trim(u.Path, "/") != "" {
			opts = append(opts, otlptracehttp.WithURLPath(u.Path))
		}
		return otlptracehttp.NewClient(opts...)
	}, nil
}

// toWriter writes spans as OTLP JSON, one TracesData a line.
func toWriter(w io.Writer) newClient {
	out := &lineWriter{w: w}
	return func() otlptrace.Client { return out }
}

// lineWriter is an [otlptrace.Client] that all services share.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Start implements [otlptrace.Client].
func (l *lineWriter) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client]. Who opened the writer closes it.
func (l *lineWriter) Stop(context.Context) error { return nil }

// UploadTraces implements [otlptrace.Client].
func (l *lineWriter) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	for _, rs := range spans {
		for _, ss := range rs.ScopeSpans {
			for _, span := range ss.Spans {
				span.TraceId, span.SpanId, span.ParentSpanId = asHex(span.TraceId), asHex(span.SpanId), asHex(span.ParentSpanId)
				for _, link := range span.Links {
					link.TraceId, link.SpanId = asHex(link.TraceId), asHex(link.SpanId)
				}
			}
		}
	}
	text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil { // protojson varies its spaces
		return err
	}
	line.WriteByte('\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(line.Bytes())
	return err
}

// asHex returns the bytes that protojson, which writes bytes in base64, turns
// into the hex digits of id: OTLP JSON has its ids in hex. Hex digits are base64
// digits too, and the 16 or 32 of an id are whole groups of four.
func asHex(id []byte) []byte {
	b, err := base64.StdEncoding.DecodeString(hex.EncodeToString(id))
	if err != nil {
		return nil // not 8 or 16 bytes: no id
	}
	return b
}

// newProvider makes the tracer provider of a service, with the two lines that
// package propagation needs: its span processor, and its end stamper around the
// exporting one.
func newProvider(ctx context.Context, service string, c clock, connect newClient) (*sdktrace.TracerProvider, error) {
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service),
			attribute.String("host.name", service),
		)),
		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor()),
	}
	if connect != nil {
		exporter, err := otlptrace.New(ctx, connect())
		if err != nil {
			return nil, fmt.Errorf("export of %s: %w", service, err)
		}
		batcher := sdktrace.NewBatchSpanProcessor(c.exporter(exporter), sdktrace.WithMaxQueueSize(1<<16))
		opts = append(opts, sdktrace.WithSpanProcessor(propagation.NewEndStamper(batcher)))
	}
	return sdktrace.NewTracerProvider(opts...), nil
}
