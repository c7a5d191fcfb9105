package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// header explains the file to whoever finds it. What is written by hand into the
// rest survives; comments do not.
const header = `# A latency-budget plan: what every hop of an endpoint may take. Edit it by hand,
# keep it under version control; docs/plan.md of latencybudget explains each key.
#
#   share    BUDGET: hops in sequence and the reserve never exceed the caller's share.
#            For objectives and alerts, and as timeout where no deadline is passed on.
#   cap      TIMEOUT: what to configure in clients that pass the deadline on.
#   floor    least time with which a call is worth sending
#   reserve  kept for own work;  tail: the part of it that comes after the last call
#   after    siblings that end before the hop starts; others may run beside it
#   gate     what ` + "`budgetctl check`" + ` fails on besides the hops: a limit, or off
#
`

// Write writes a plan that Read reads back as it is. The same plan gives the same
// bytes. A plan with errors is not written: they are returned, as [Errors]. Nor is
// one that would take more than MaxBytes.
func Write(w io.Writer, p *Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(header)
	if err := encode(&b, p); err != nil {
		return err
	}
	if b.Len() > MaxBytes {
		return fmt.Errorf("the plan takes %d bytes, more than the %d that are read: write one for fewer endpoints", b.Len(), MaxBytes)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Digest returns eight hexadecimal digits that depend on everything in the plan
// but its revision: a revision for who has no better one.
func (p *Plan) Digest() (string, error) {
	unnamed := *p
	unnamed.Revision = ""
	h := sha256.New()
	if err := encode(h, &unnamed); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:4]), nil
}

func encode(w io.Writer, p *Plan) error {
	var document yaml.Node
	if err := document.Encode(p); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	quote(&document)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&document); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	return e.Close()
}

// quote has texts with line breaks and other control characters written with
// escapes: as blocks of lines not all of them would be read back as they are.
func quote(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, unicode.IsControl) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, below := range n.Content {
		quote(below)
	}
}
