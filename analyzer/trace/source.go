package trace

import (
	"context"
	"iter"
)

// File says where a batch of spans came from.
type File struct {
	Name   string // as the user named it; "-" for standard input
	Format string // the format that was recognised, e.g. "otlp-json"
	Bytes  int64  // bytes read, before decompression; final when the iteration has gone on to the next file or ended
}

// Batch is a run of spans from one file, in no particular order. The receiver
// owns it. A trace may be spread over any number of batches and files.
type Batch struct {
	File  *File // same pointer for all batches of one file; never nil
	Spans []Span
	Notes Notes // what was wrong with the data and what it cost

	// Profile is the content of a file that begins with [ProfileMagic]; it comes
	// alone and whole. Nil of a file with spans.
	Profile []byte
}

// ProfileMagic is how a profile file begins once it is decompressed. It is read
// and written by package profile.
const ProfileMagic = "latencybudget profile\n"

// Source is anything that spans can be read from.
//
// Batches yields the whole input once; whether it can be called again is up to
// the implementation, and Analyze calls it once. Implementations MAY read in parallel
// but MUST yield in an order that depends on the input alone, never on
// scheduling. Bad data inside a file costs only itself and is counted in
// Batch.Notes. A file that cannot be used at all yields one (zero Batch, error)
// pair, where the error names the file, and the iteration goes on with the
// next file; the spans that were read before the error keep their value. When
// ctx ends, the last pair carries ctx.Err() and the iteration stops. An input
// with no files yields nothing.
type Source interface {
	Batches(ctx context.Context) iter.Seq2[Batch, error]
}
