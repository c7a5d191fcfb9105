package finding_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/internal/goldentest"
)

//go:generate go test . -run ^TestTheDocsAreCurrent$ -update

const docs = "../../docs/findings.md"

const intro = `<!-- Made from the rules in analyzer/finding by "make generate"; change it there. -->

# Findings

` + "`budgetctl analyze`" + ` checks every request by the rules below, and lists what they found at each hop: the worst first, with
the number of calls, the share of requests and one example. Of endpoints beyond ` + "`--top`" + ` it counts findings by rule alone.
` + "`--fail-on`" + ` takes names of rules, ` + "`warning`" + ` or ` + "`error`" + ` (warning includes error), and makes the exit code 3 where one of
them was found, at an endpoint with a table or without.

Most rules need spans that carry ` + "`latency_budget`" + ` attributes, as [propagation](propagation.md) stamps them, or captured headers
or attributes [in their place](propagation.md#other-languages). They judge by the figures, not by the flags that services
stamped. The others work on any trace. With a plan, rules hold calls against what it gives them as well.

No rule judges what nobody waits for: messages, calls that are seen to outlive their callers, spans on which
` + "`latency_budget.detached`" + ` is true (see MarkDetached), and calls that ` + "`--allow-detached`" + ` names; nor what lies below. The losers
of hedges, and what was cancelled with them, count as neither failed nor given up. A deadline that is shorter than it had to be is
no finding. A long stream
looks like a slow call, since no attribute tells one: name its operation by ` + "`--allow-detached`" + `.
`

func page() []byte {
	var b bytes.Buffer
	b.WriteString(intro + "\n| rule | severity | |\n|---|---|---|\n")
	for _, r := range finding.Rules() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", r.Name, r.Name, r.Severity, r.Summary)
	}
	for _, r := range finding.Rules() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", r.Name, r.Summary)
		fmt.Fprintf(&b, "- **Found when** %s\n- **Tolerance** %s\n- **Mistakes** %s\n", r.Formula, r.Tolerance, r.Mistakes)
		if r.Flag != "" {
			fmt.Fprintf(&b, "- **Flag on spans** `%s`\n", r.Flag)
		}
	}
	return b.Bytes()
}

func TestTheDocsAreCurrent(t *testing.T) {
	if goldentest.Update() {
		if err := os.WriteFile(docs, page(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(docs)
	if err != nil {
		t.Fatalf("%v (make it with make generate)", err)
	}
	if diff := cmp.Diff(string(page()), string(have)); diff != "" {
		t.Errorf("%s is not what the rules say; run make generate (-rules +page):\n%s", docs, diff)
	}
}
