package report

import (
	"encoding/json"
	"io"

	"github.com/latencybudget/latencybudget/analyzer"
)

// renderJSON writes version 1 of docs/report.schema.json: two spaces of
// indent, keys in the order of the types, names exact (bytes that are no UTF-8
// become U+FFFD), a newline at the end.
func renderJSON(w io.Writer, r *analyzer.Report, _ Options) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
