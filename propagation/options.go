package propagation

import (
	"context"
	"net/http"
	"strings"
	"time"
)

const (
	// defaultMaxLimit bounds what is believed of any header.
	defaultMaxLimit = time.Hour
	// longestLimit is what eight digits of milliseconds can say.
	longestLimit = 99_999_999*time.Millisecond + 999*time.Microsecond
	// defaultFloor and defaultShare make the tolerance of a comparison of two
	// deadlines; entry spans get twice the share. gRPC core reuses encoded
	// timeouts and may send up to 3 % more than it has, on purpose.
	defaultFloor = 5 * time.Millisecond
	defaultShare = 0.02
	// defaultMaxSkew is how far clocks may be apart without a deadline that is a
	// point in time being called extended.
	defaultMaxSkew = 50 * time.Millisecond
)

// AuthorityKind says how the value of an authority header is read. All are
// unsigned integers of at most 15 digits and nothing else.
type AuthorityKind uint8

const (
	// Relative is the time left when the request is sent, in milliseconds.
	Relative AuthorityKind = iota
	// EpochMillis is a point in time, in milliseconds since 1970-01-01 UTC. Its
	// error is the difference of both clocks.
	EpochMillis
	// PerHop is the time that a proxy gives this hop, in milliseconds, and which
	// is not counted down from hop to hop. It stands in for the deadline of the
	// context where that has none, and is never passed on.
	PerHop
)

// authority is a header that a service obeys and this package only reads.
type authority struct {
	name      string // lower case
	canonical string // key of http.Header
	kind      AuthorityKind
}

// envoyTimeout is set by Envoy to the timeout it will apply, anew at each hop.
const envoyTimeout = "x-envoy-expected-rq-timeout-ms"

// Option configures the propagator that New makes.
type Option interface {
	applyPropagator(*config)
}

type config struct {
	authorities []authority
	filter      func(context.Context) bool
	maxLimit    int64
	messaging   bool
}

func newConfig(opts []Option) config {
	c := config{maxLimit: int64(defaultMaxLimit)}
	for _, opt := range opts {
		if opt != nil {
			opt.applyPropagator(&c)
		}
	}
	return c
}

type optionFunc func(*config)

func (f optionFunc) applyPropagator(c *config) { f(c) }

// WithAuthorityHeader makes Extract read the header name as evidence of the
// deadline that the service will set itself, for instance in a middleware that
// runs inside the instrumentation and so is not visible yet. Names are
// compared without regard to case; naming one again replaces its kind.
// x-envoy-expected-rq-timeout-ms is PerHop whatever kind says.
//
// Nothing is ever written to it. Of several the smallest counts, and an
// announcement counts more than any. A value that is not a number, comes
// more than once, or lies beyond the maximum (WithMaxLimit) is ignored.
func WithAuthorityHeader(name string, kind AuthorityKind) Option {
	name = strings.ToLower(strings.TrimSpace(name))
	if name == envoyTimeout {
		kind = PerHop
	}
	return optionFunc(func(c *config) {
		if name == "" || kind > PerHop {
			return
		}
		added := authority{name: name, canonical: http.CanonicalHeaderKey(name), kind: kind}
		for i := range c.authorities {
			if c.authorities[i].name == name {
				c.authorities[i] = added
				return
			}
		}
		c.authorities = append(c.authorities, added)
	})
}

// WithKnownAuthorityHeaders is WithAuthorityHeader for the headers in common
// use: x-timeout-budget-ms and connect-timeout-ms (Relative),
// x-request-deadline (EpochMillis), x-envoy-expected-rq-timeout-ms (PerHop).
// grpc-timeout needs no header: gRPC puts it into the context. Each look-up
// costs time on every request; name the ones in use where that matters.
func WithKnownAuthorityHeaders() Option {
	return optionFunc(func(c *config) {
		for _, known := range []Option{
			WithAuthorityHeader("x-timeout-budget-ms", Relative),
			WithAuthorityHeader("connect-timeout-ms", Relative),
			WithAuthorityHeader("x-request-deadline", EpochMillis),
			WithAuthorityHeader(envoyTimeout, PerHop),
		} {
			known.applyPropagator(c)
		}
	})
}

// WithInjectFilter makes Inject ask filter first and announce nothing where it
// says false, for instance on calls to third parties. The default announces
// wherever the propagator is used: three numbers, and a span id that
// traceparent carries too. filter must be safe for concurrent use; a panic in
// it counts as false.
func WithInjectFilter(filter func(context.Context) bool) Option {
	return optionFunc(func(c *config) { c.filter = filter })
}

// WithMaxLimit sets the largest value that is believed of a header and sent in
// one, 1 h by default. A larger one is invalid; it is not clamped. Values that
// are not positive, or more than eight digits of milliseconds can say (27 h
// 46 min 39.999 s), leave the default.
func WithMaxLimit(d time.Duration) Option {
	return optionFunc(func(c *config) {
		if d > 0 && d <= longestLimit {
			c.maxLimit = int64(d)
		}
	})
}

// SpanProcessorOption configures the processor that NewSpanProcessor makes.
type SpanProcessorOption interface {
	applyProcessor(*processorConfig)
}

type processorConfig struct {
	rules     rules
	internal  bool
	messaging bool
}

// defaultRules also serve where no processor is known.
var defaultRules = rules{floor: int64(defaultFloor), share: defaultShare, maxSkew: int64(defaultMaxSkew)}

func newProcessorConfig(opts []SpanProcessorOption) processorConfig {
	c := processorConfig{rules: defaultRules}
	for _, opt := range opts {
		if opt != nil {
			opt.applyProcessor(&c)
		}
	}
	return c
}

type processorOptionFunc func(*processorConfig)

func (f processorOptionFunc) applyProcessor(c *processorConfig) { f(c) }

// WithTolerance sets how much later than the inherited deadline another may lie
// without being flagged: the larger of floor and share of what is left. The
// default is 5 ms and 0.02. Entry spans get twice the share, because timeouts
// change a little on the wire. A negative floor, or a share outside [0, 1],
// leaves the default of both.
func WithTolerance(floor time.Duration, share float64) SpanProcessorOption {
	return processorOptionFunc(func(c *processorConfig) {
		if floor >= 0 && share >= 0 && share <= 1 {
			c.rules.floor, c.rules.share = int64(floor), share
		}
	})
}

// WithMaxClockSkew sets how far the clocks of two services may be apart, 50 ms
// by default. Within it a deadline that rests on an EpochMillis header is
// flagged clock_skew_suspected, beyond it deadline_extended. Negative values
// leave the default.
func WithMaxClockSkew(d time.Duration) SpanProcessorOption {
	return processorOptionFunc(func(c *processorConfig) {
		if d >= 0 {
			c.rules.maxSkew = int64(d)
		}
	})
}

// WithInternalSpans also stamps INTERNAL spans: what was left when they began,
// and exhausted_at_start. It costs an allocation per span in the SDK.
func WithInternalSpans() SpanProcessorOption {
	return processorOptionFunc(func(c *processorConfig) { c.internal = true })
}

// MessagingOption configures both the propagator and the span processor.
type MessagingOption interface {
	Option
	SpanProcessorOption
}

type messagingOption struct{}

func (messagingOption) applyPropagator(c *config)         { c.messaging = true }
func (messagingOption) applyProcessor(c *processorConfig) { c.messaging = true }

// WithMessaging treats messages like calls: PRODUCER spans announce, and
// CONSUMER spans inherit. By default neither happens, since a relative value
// means nothing after an unknown time in a queue. Give it to both New and
// NewSpanProcessor, where messages are worked on as soon as they are sent.
func WithMessaging() MessagingOption { return messagingOption{} }
