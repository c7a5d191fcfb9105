package source

// This file reads Jaeger's API v3: chunks of OTLP, each in its own `result`.

// readJaegerV3Result reads the value of `result`.
func readJaegerV3Result(r *reader) {
	if !r.json.enter('{') {
		return
	}
	for r.json.more() {
		switch string(r.json.name()) {
		case "resourceSpans", "resource_spans":
			r.readResourceSpansList()
		default:
			r.json.skip()
		}
	}
}
