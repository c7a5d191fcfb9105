package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

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
	// An endpoint may be busy for a moment; one that is not there must not keep the
	// command from ending.
	retry := otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: 200 * time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: 3 * time.Second,
	}
	return func() otlptrace.Client {
		if u.Scheme == "grpc" {
			return otlptracegrpc.NewClient(otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(u.Host),
				otlptracegrpc.WithRetry(retry))
		}
		opts := []otlptracehttp.Option{
			otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(u.Host),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig(retry)),
		}
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

// toFile calls do with where spans go, which is the file of this name.
func toFile(name string, do func(newClient) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(do(toWriter(file)), file.Close())
}

// exports notes what became of the exports of a system.
type exports struct {
	mu    sync.Mutex
	lost  int // spans
	first error
}

func (e *exports) fail(spans int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	if e.first == nil {
		e.first = err
	}
}

// err returns one error for all exports.
func (e *exports) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.first == nil {
		return nil
	}
	return fmt.Errorf("export failed, %d spans are lost: %w", e.lost, e.first)
}

// watchedExporter notes exports that fail. The processor would only log them.
type watchedExporter struct {
	sdktrace.SpanExporter
	exports *exports
}

// ExportSpans implements [sdktrace.SpanExporter].
func (w watchedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := w.SpanExporter.ExportSpans(ctx, spans); err != nil {
		w.exports.fail(len(spans), err)
	}
	return nil
}

// newProvider makes the tracer provider of a service, with the two lines that
// package propagation needs: its span processor, and its end stamper around the
// exporting one.
func (s *System) newProvider(ctx context.Context, service string, c clock) (*sdktrace.TracerProvider, error) {
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service),
			attribute.String("host.name", service),
		)),
		sdktrace.WithSpanProcessor(propagation.NewSpanProcessor(propagation.WithTolerance(s.cfg.Tolerance, 0.02))),
	}
	if s.cfg.Export != nil {
		exporter, err := otlptrace.New(ctx, s.cfg.Export())
		if err != nil {
			return nil, fmt.Errorf("export of %s: %w", service, err)
		}
		batcher := sdktrace.NewBatchSpanProcessor(
			watchedExporter{c.exporter(exporter), &s.exports}, sdktrace.WithMaxQueueSize(1<<16))
		opts = append(opts, sdktrace.WithSpanProcessor(propagation.NewEndStamper(batcher)))
	}
	return sdktrace.NewTracerProvider(opts...), nil
}
