// Package source reads exported traces from files, folders, globs and standard
// input into spans.
//
// Every format has one file here, with the shapes it accepts: OTLP JSON and
// protobuf, Jaeger, Jaeger v3, Zipkin, Tempo and the Go SDK's stdouttrace. The
// format is found by looking into each file. Reading streams: memory holds the
// compact spans of a few batches and never a whole document, except for spans
// that wait for what describes them and comes after them: the processes of a
// Jaeger trace, the resource or scope of OTLP.
//
// A profile, which `budgetctl profile` wrote, is told by its beginning and handed
// out whole, for package profile to read.
//
// Bad data costs only itself. A bad attribute costs the attribute, if it is one
// that is read at all; a bad span costs the span; a bad line costs the line; a
// syntax error in a longer document costs the rest of that document. A span is
// also bad if it starts before 1970 or at 2^62 ns (in 2116) and later, or lasts
// 2^61 ns (73 years) or more either way: ends and sums of times that are taken
// cannot overflow. Each loss is counted in the notes of a batch. A file that
// holds no span is an error.
//
// The way of the data: [Open] makes the list of files; a dispatcher goroutine
// opens them in order and cuts long line-delimited ones into blocks; workers
// turn files and blocks into spans; [Source.Batches] hands them out in the
// order of the input.
package source
