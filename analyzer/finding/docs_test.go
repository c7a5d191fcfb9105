package finding_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/internal/goldentest"
)

//go:generate go test . -run ^TestTheDocsAreCurrent$ -update

const docs = "../../docs/findings.md"

const intro = `<!-- Made from the rules in analyzer/finding by "make generate"; change it there. -->

# Findings

` + "`budgetctl analyze`" + ` checks every request by the rules below, and lists what they found at each hop: the worst first, with
the number of calls, the share of requests and one example, of the largest amount. Of endpoints beyond ` + "`--top`" + ` it counts findings by
rule alone. ` + "`--fail-on`" + ` takes names of rules, ` + "`warning`" + ` or ` + "`error`" + ` (warning includes error), and makes the exit code 3 where
one of them was found, at an endpoint with a table or without.

Most rules need spans that carry ` + "`latency_budget`" + ` attributes, as [propagation](propagation.md) stamps them, or captured headers
or attributes [in their place](propagation.md#other-languages). They judge by the figures, not by the flags that services
stamped. The others work on any trace. With a plan, rules hold calls against what it gives them as well.

No rule judges what nobody waits for: messages, calls that are seen to outlive their callers, spans on which
` + "`latency_budget.detached`" + ` is true (see MarkDetached), and calls that ` + "`--allow-detached`" + ` names; nor what lies below. The losers
of hedges, and what was cancelled with them, count as neither failed nor given up. A deadline that is shorter than it had to be is
no finding.

Of a stream of messages only its opening is judged, by [call-after-deadline](#call-after-deadline) and
[exhausted-at-start](#exhausted-at-start): its duration is a lifetime, and it may end by a deadline or a cancellation as it likes.
What is called in it is judged like anything else, unless the stream took longer than what was left when it was opened: then that
says nothing of its messages. A caller that waits for a stream is judged by its own spans. A call is a stream where one of its
spans has

- HTTP status 101, the method ` + "`CONNECT`, or `ws` or `wss` as `url.scheme` or `http.scheme`" + `: a WebSocket or a tunnel,
- a declared type of the method with "stream" in it, as ` + "`rpc.type` (Micrometer), `grpc.method.kind` or `grpc.method_type`" + `,
- more than one message one way: ` + "`grpc.sent.message_count` or `grpc.received.message_count`" + `, or two events with the same
  ` + "`message.type` or `rpc.message.type`" + `, or two ` + "`Inbound message` or `Outbound message`" + ` of gRPC's own plugins,
- ` + "`graphql.operation.type` = `subscription`" + `,
- a captured response header ` + "`content-type`" + ` of ` + "`text/event-stream` or `application/connect+…`" + `.

Most instrumentations of gRPC write none of these by default: a long stream then looks like a slow call. So does one that only its
messages would tell, before the second came. A service can say it itself, by ` + "`rpc.type` = `SERVER_STREAMING`" + ` on its span; or name the
operation by ` + "`--allow-detached`, or `allow_detached`" + ` of the Collector's processor.
`

const settings = `
## Settings

Where rules say that a hop may use 0.8 of its budget, that a deadline may be later by the larger of 5 ms and 4 %%, or that
50 ms are allowed for a deadline that was sent as a point in time, these are settings. A Collector and ` + "`" + `budgetctl` + "`" + ` find the same
where both have the same. Reports name them where they are not the defaults; in the Go library they are ` + "`" + `analyzer.Config.Settings` + "`" + `.

| ` + "`" + `budgetctl analyze` + "`" + ` and ` + "`" + `check` + "`" + ` | Collector, processor ` + "`" + `latency_budget` + "`" + ` | default |
|---|---|---|
| ` + "`" + `--utilization-threshold` + "`" + ` | ` + "`" + `utilization_threshold` + "`" + ` | %v |
| ` + "`" + `--reset-tolerance-absolute` + "`" + ` | ` + "`" + `reset_tolerance: { absolute: … }` + "`" + ` | %v |
| ` + "`" + `--reset-tolerance-fraction` + "`" + ` | ` + "`" + `reset_tolerance: { fraction: … }` + "`" + ` | %v |
| ` + "`" + `--max-clock-skew` + "`" + ` | ` + "`" + `max_clock_skew` + "`" + ` | %v |
| ` + "`" + `--allow-detached` + "`" + `, repeated | ` + "`" + `allow_detached: [ … ]` + "`" + ` | none |
| ` + "`" + `--remaining-attribute` + "`" + ` ` + "`" + `NAME=UNIT` + "`" + `, repeated | ` + "`" + `remaining_attributes: [{ name: …, unit: … }]` + "`" + ` | ` + "`" + `deadline_remaining_ms=ms` + "`" + ` |
| ` + "`" + `--plan` + "`" + ` | ` + "`" + `budgets_file` + "`" + ` | none |
`

func page() []byte {
	var b bytes.Buffer
	b.WriteString(intro + "\n| rule | severity | |\n|---|---|---|\n")
	for _, r := range finding.Rules() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", r.Name, r.Name, r.Severity, r.Summary)
	}
	d := finding.Defaults
	fmt.Fprintf(&b, settings, d.Utilization, time.Duration(d.ResetFloor), d.ResetShare, time.Duration(d.MaxSkew))
	for _, r := range finding.Rules() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", r.Name, r.Summary)
		fmt.Fprintf(&b, "- **Found when** %s\n- **Tolerance** %s\n- **Mistakes** %s\n- **What to do** %s\n", r.Formula, r.Tolerance, r.Mistakes, r.Remedy)
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
