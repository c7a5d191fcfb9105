package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	rule "github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/propagation/attr"
)

// besides is what the tests add to config.yaml: the spans as they came, and the
// flagged ones in the other format too. Spans come at once, so the wait is short.
const besides = `
processors: {groupbytrace: {wait_duration: 1s}}
exporters:
  file: {flush_interval: 50ms}
  file/proto: {path: traces.pb, format: proto, flush_interval: 50ms}
  file/raw: {path: raw.jsonl, flush_interval: 50ms}
service:
  pipelines:
    traces: {exporters: [file, file/proto]}
    traces/raw: {receivers: [otlp], exporters: [file/raw]}
`

// A scenario is a way to run the order chain, and what must come of it.
type scenario struct {
	args  string
	rules string // all rules that find something
	may   string // rules that may find something too, where that is a matter of a few ms
}

// A request has 2 s and takes about 60 ms, and what takes long is at the end of
// the chain, so that a busy machine makes nobody late but those who should be.
var scenarios = []scenario{
	{args: "-mode propagated"},
	{args: "-mode propagated -deadline absolute"},
	{args: "-mode propagated -skew 50ms"},
	{args: "-mode propagated -inside"},
	{args: "-mode ratio"},
	{args: "-mode ctx3s"},
	{args: "-mode fresh", rules: "deadline-reset"},
	// HTTP services give themselves 3 s where no deadline arrives.
	{args: "-mode dropped", rules: "deadline-dropped deadline-reset"},
	{args: "-mode header", rules: "deadline-reset"},
	{args: "-mode background", rules: "trace-restarted"},

	{args: "-fault slow=persist:1700ms", rules: "budget-utilization"},
	{
		args: "-fault slow=risk:3s", rules: "budget-overrun budget-utilization deadline-exceeded tightest-deadline",
		may: "work-after-deadline", // who is told to stop takes a moment
	},
	{args: "-fault cold=persist:1700ms", rules: "budget-utilization"},
	{args: "-budget 4s -fault queue=auth", rules: "queue-wait"},
	{args: "-fault queue=persist", rules: "queue-wait"},
	{args: "-fault ignore=risk:3s", rules: "budget-overrun budget-utilization deadline-exceeded tightest-deadline work-after-deadline"},
	{args: "-fault lostcancel=risk"},
	{
		args: "-fault lateretry=inventory -fault slow=inventory:3s",
		rules: "budget-overrun budget-utilization call-after-deadline deadline-exceeded deadline-reset exhausted-at-start " +
			"retry-overspend tightest-deadline work-after-deadline",
		may: "fixed-timeout", // late tries have a timeout of their own
	},
	{args: "-fault stall=persist:700ms", rules: "queue-wait"},
	{args: "-fault fail=payment"},
	{args: "-fault retry=payment:4 -fault fail=payment", rules: "retry-amplification"},
	{
		args:  "-budget 8s -fault retry=persist -fault retry=payment -fault retry=risk -fault fail=persist",
		rules: "retry-amplification",
	},
	{args: "-fault hedge=risk:100ms -fault slow=risk:200ms"},
	{args: "-fault hedge=risk:100ms -fault slow=risk:200ms -fault lostcancel=risk"},
	{
		args:  "-fault lostresponse=payment",
		rules: "budget-overrun budget-utilization deadline-exceeded outcome-unknown tightest-deadline", may: "work-after-deadline",
	},
	{args: "-fault proxy=payment:15s", rules: "deadline-reset"},
	{
		args:  "-fault fail=inventory -fault slow=coupon:500ms -fault lostcancel=coupon",
		rules: "outcome-unknown work-after-deadline",
	},
	// A timeout of one's own that is shorter than what is left is no reset; one that
	// is longer lets work go on when nobody waits any more.
	{
		args:  "-mode fresh -fresh 4s -budget 8s -fault slow=risk:6s -concurrency 12",
		rules: "budget-overrun budget-utilization deadline-exceeded fixed-timeout tightest-deadline", may: "work-after-deadline",
	},
	{
		args: "-mode fresh -fault slow=risk:2500ms",
		rules: "budget-overrun budget-utilization call-after-deadline deadline-reset doomed-call exhausted-at-start " +
			"work-after-deadline",
	},
}

// The rules that find something are those that the scenario is about, in the
// flags that the Collector sets and in what analyze finds in its files, with the
// flags or without.
func TestEveryModeAndFaultShowsInItsRulesAndNoOthers(t *testing.T) {
	path := program(t, envCollector)
	for i, s := range scenarios {
		t.Run(strings.TrimPrefix(s.args, "-"), func(t *testing.T) {
			c := start(t, path, config(t, "config.yaml"), besides)
			endpoint := "grpc://" + c.grpc
			if i%2 == 1 {
				endpoint = "http://" + c.http
			}
			place(t, endpoint, append([]string{"-budget", "2s", "-requests", "12", "-concurrency", "6"}, strings.Fields(s.args)...)...)

			before, after, afterProto := c.written(t)
			onlyFlagged(t, before, after)
			onlyFlagged(t, before, afterProto)

			want, may := strings.Fields(s.rules), strings.Fields(s.may)
			for _, name := range []string{"traces.jsonl", "traces.pb", "raw.jsonl"} {
				found := analyze(t, filepath.Join(c.dir, name))
				got := slices.DeleteFunc(rulesOf(found), func(r string) bool { return slices.Contains(may, r) && !slices.Contains(want, r) })
				if !slices.Equal(got, want) {
					t.Errorf("analyze %s finds %q, want %q:\n%s", name, got, want, texts(found))
				}
				if name != "raw.jsonl" {
					agree(t, found, after, notInOneTrace...)
				}
			}
		})
	}
}

// The plan that analyze writes is one that the processor takes, and holds calls
// to as analyze does: a call that has time by its deadline is over its share.
func TestAPlanOfAnalyzeIsHeldByTheCollector(t *testing.T) {
	path := program(t, envCollector)
	healthy := start(t, path, config(t, "config.yaml"), besides)
	place(t, "grpc://"+healthy.grpc, "-budget", "2s", "-requests", "120", "-concurrency", "6")
	healthy.written(t)
	plan := filepath.Join(healthy.dir, "plan.yaml")
	analyze(t, filepath.Join(healthy.dir, "traces.jsonl"), "--write-plan", plan)

	c := start(t, path, config(t, "config.yaml"), besides, "--config", "yaml:processors::latency_budget::budgets_file: "+plan)
	place(t, "grpc://"+c.grpc, "-budget", "2s", "-requests", "12", "-concurrency", "6", "-fault", "slow=persist:1200ms")
	_, after, _ := c.written(t)
	if held := after.traces(func(s ptrace.Span) bool { _, ok := s.Attributes().Get(attr.PlanRevision); return ok }); len(held) != 12 {
		t.Errorf("%d of 12 traces were held to the plan", len(held))
	}
	file := filepath.Join(c.dir, "traces.jsonl")
	if got := rulesOf(analyze(t, file)); len(got) != 0 {
		t.Errorf("without the plan analyze finds %q", got)
	}
	found := analyze(t, file, "--plan", plan)
	if got := rulesOf(found); !slices.Contains(got, "budget-utilization") {
		t.Errorf("with the plan analyze finds %q:\n%s", got, texts(found))
	}
	agree(t, found, after)
}

// written returns the spans as they came and as they were written in both
// formats, when all are, and stops the Collector. It needs besides.
func (c *collector) written(t *testing.T) (before, after, afterProto spans) {
	t.Helper()
	eventually(t, func() (err error) {
		if before, err = readJSON(filepath.Join(c.dir, "raw.jsonl")); err != nil {
			return err
		}
		if after, err = readJSON(filepath.Join(c.dir, "traces.jsonl")); err != nil {
			return err
		}
		if afterProto, err = readProto(filepath.Join(c.dir, "traces.pb")); err != nil {
			return err
		}
		if len(before) == 0 || len(after) < len(before) || len(afterProto) < len(before) {
			return fmt.Errorf("%d spans came, %d and %d were written", len(before), len(after), len(afterProto))
		}
		return nil
	})
	c.stop()
	return before, after, afterProto
}

// onlyFlagged checks that a Collector lost, added and changed nothing but
// attributes of ours.
func onlyFlagged(t *testing.T, before, after spans) {
	t.Helper()
	if len(after) != len(before) {
		t.Errorf("%d spans came, %d were written", len(before), len(after))
	}
	for id, span := range before {
		if got, ok := after[id]; !ok {
			t.Errorf("span %s is lost", id)
		} else if bare(t, got) != bare(t, span) {
			t.Errorf("span %s was\n%s and is\n%s", id, bare(t, span), bare(t, got))
		}
	}
}

// notInOneTrace are the flags that no trace shows by itself without a plan: which
// of them began while another was handled, and how much time a call needs.
var notInOneTrace = []string{attr.FlagTraceRestarted, attr.FlagDoomedCall}

// agree checks that the flags on spans and the findings are the same rules, but
// for some flags, and that the example of each finding has its flag.
func agree(t *testing.T, found []finding, judged spans, but ...string) {
	t.Helper()
	var want []string
	for _, f := range found {
		flag := rule.Named(f.Rule).Flag
		if flag == "" || slices.Contains(but, flag) {
			continue
		}
		want = append(want, flag)
		if got := flags(judged[f.Example]); !slices.Contains(got, flag) {
			t.Errorf("%s finds span %s (%s), which is flagged %q", f.Rule, f.Example, f.Text, got)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if got := judged.flags(); !slices.Equal(got, want) {
		t.Errorf("the Collector flags %q, analyze finds %q", got, want)
	}
}
