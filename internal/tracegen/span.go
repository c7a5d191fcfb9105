// Package tracegen makes traces for tests and benchmarks: it draws whole traces
// from a small model of services ([Draw]), writes them in every format that
// budgetctl reads (the Append functions), and holds the stories of testdata/
// ([Stories]). It shares no code with the packages it tests, so that a mistake
// there cannot hide here.
//
// Everything is a function of its arguments: the same seed gives the same
// bytes. There is no clock and no global random source.
package tracegen

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
)

// Kind is the span kind with OTLP's numbers.
type Kind uint8

// The span kinds.
const (
	KindUnspecified Kind = iota
	KindInternal
	KindServer
	KindClient
	KindProducer
	KindConsumer
)

var kindNames = [...]string{"unspecified", "internal", "server", "client", "producer", "consumer"}

// Status is the span status with OTLP's numbers.
type Status uint8

// The span statuses.
const (
	StatusUnset Status = iota
	StatusOK
	StatusError
)

var statusNames = [...]string{"Unset", "Ok", "Error"}

// Attr is one attribute. Value is a string, int64, float64, bool or []string.
type Attr struct {
	Key   string
	Value any
}

// Event is a point in time on a span.
type Event struct {
	Time  int64 // Unix ns
	Name  string
	Attrs []Attr
}

// Link points to another span.
type Link struct {
	TraceID [16]byte
	SpanID  [8]byte
}

// Span is a span as the formats see it: all that any of them can carry.
type Span struct {
	TraceID    [16]byte
	ID, Parent [8]byte // Parent is zero for a root
	TraceState string
	Service    string // service.name
	Resource   []Attr // the other resource attributes
	Scope      []Attr // attributes of the instrumentation scope; only OTLP carries them
	Name       string
	Kind       Kind
	Start, End int64 // Unix ns; 0: the export does not have it
	Attrs      []Attr
	Events     []Event
	Links      []Link
	Status     Status
	Message    string // of the status
}

// SortByEnd orders spans the way exporters emit them: each when it ends. Traces
// that run at the same time are interleaved.
func SortByEnd(spans []Span) {
	slices.SortStableFunc(spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.End, b.End), bytes.Compare(a.ID[:], b.ID[:]))
	})
}

// Shuffle puts spans in a random order that depends on seed alone.
func Shuffle(spans []Span, seed uint64) {
	rng := newRand(seed)
	rng.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
}

func newRand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0x6c6174656e6379))
}

// group splits spans into runs of equal key, in the order of first appearance.
func group[K comparable](spans []Span, key func(*Span) K) [][]Span {
	index := make(map[K]int)
	var out [][]Span
	for i := range spans {
		k := key(&spans[i])
		at, ok := index[k]
		if !ok {
			at = len(out)
			index[k] = at
			out = append(out, nil)
		}
		out[at] = append(out[at], spans[i])
	}
	return out
}

// processKey tells the spans of one process and scope from those of another: by
// service and by the first attribute of the resource and of the scope, which is
// the one that differs.
func processKey(s *Span) [3]string {
	key := [3]string{s.Service}
	if len(s.Resource) > 0 {
		key[1] = text(s.Resource[0].Value)
	}
	if len(s.Scope) > 0 {
		key[2] = text(s.Scope[0].Value)
	}
	return key
}

func traceKey(s *Span) [16]byte { return s.TraceID }
