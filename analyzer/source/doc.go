// Package source reads exported traces from files, folders, globs and standard
// input into spans.
//
// Every format has one file here, with the shapes it accepts: OTLP JSON and
// protobuf, Jaeger, Jaeger v3, Zipkin, Tempo and the Go SDK's stdouttrace. The
// format is found by looking into each file. Reading streams: memory holds the
// compact spans of a few batches and never a whole document, except for the
// spans of one Jaeger trace, which wait for the processes at its end.
//
// Bad data costs only itself. A bad attribute costs the attribute, if it is one
// that is read at all; a bad span costs the span; a bad line costs the line; a
// syntax error in a longer document costs the rest of that document. Each is
// counted in the notes of a batch. A file that holds no span is an error.
//
// The way of the data: [Open] makes the list of files; a dispatcher goroutine
// opens them in order and cuts long line-delimited ones into blocks; workers
// turn files and blocks into spans; [Source.Batches] hands them out in the
// order of the input.
package source
