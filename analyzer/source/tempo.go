package source

import "errors"

// This file reads what Tempo answers when a trace is asked for by id: version 1
// has `batches` of OTLP resource spans with base64 ids, version 2 wraps OTLP in
// `trace`.

// errTempoSearch refuses the answer of Tempo's search.
var errTempoSearch = errors.New("this is a search result of Tempo, which has no spans; " +
	"fetch the traces by id (/api/traces/TRACEID) and read those")

// readTempoTrace reads the value of `trace`.
func readTempoTrace(r *reader) {
	if !r.json.enter('{') {
		return
	}
	for r.json.more() {
		switch string(r.json.name()) {
		case "resourceSpans", "resource_spans", "batches":
			r.readResourceSpansList()
		default:
			r.json.skip()
		}
	}
}
