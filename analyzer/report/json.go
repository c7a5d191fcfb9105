package report

import (
	"encoding/json"
	"io"
)

// writeJSON writes a result in the form that its schema in docs/ describes: two
// spaces of indent, keys in the order of the types, names exact (bytes that are no
// UTF-8 become U+FFFD), a newline at the end.
func writeJSON[R any](w io.Writer, r *R, _ Options) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
