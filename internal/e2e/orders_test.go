package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

			raw, flagged, proto := filepath.Join(c.dir, "raw.jsonl"), filepath.Join(c.dir, "traces.jsonl"), filepath.Join(c.dir, "traces.pb")
			var before, after, afterProto spans
			eventually(t, func() (err error) {
				if before, err = readJSON(raw); err != nil {
					return err
				}
				if after, err = readJSON(flagged); err != nil {
					return err
				}
				if afterProto, err = readProto(proto); err != nil {
					return err
				}
				if len(before) == 0 || len(after) < len(before) || len(afterProto) < len(before) {
					return fmt.Errorf("%d spans came, %d and %d were written", len(before), len(after), len(afterProto))
				}
				return nil
			})
			c.stop()
			onlyFlagged(t, before, after)
			onlyFlagged(t, before, afterProto)

			want, may := strings.Fields(s.rules), strings.Fields(s.may)
			for _, file := range []string{flagged, proto, raw} {
				found := analyze(t, file)
				got := slices.DeleteFunc(rulesOf(found), func(r string) bool { return slices.Contains(may, r) && !slices.Contains(want, r) })
				if !slices.Equal(got, want) {
					t.Errorf("analyze %s finds %q, want %q:\n%s", filepath.Base(file), got, want, texts(found))
				}
				if file == raw {
					continue
				}
				agree(t, found, after)
			}
		})
	}
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

// notInOneTrace are the flags that no trace shows by itself: which of them began
// while another was handled, and how much time a call needs at least.
var notInOneTrace = []string{attr.FlagTraceRestarted, attr.FlagDoomedCall}

// agree checks that the flags on spans and the findings are the same rules, and
// that the example of each finding has its flag.
func agree(t *testing.T, found []finding, judged spans) {
	t.Helper()
	var want []string
	for _, f := range found {
		flag := rule.Named(f.Rule).Flag
		if flag == "" || slices.Contains(notInOneTrace, flag) {
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
