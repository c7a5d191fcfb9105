package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// What the documentation shows is what the Collectors take, as it is.
func TestTheDocumentedConfigurationsAreValid(t *testing.T) {
	for _, c := range []struct{ env, config string }{
		{envCollector, "config.yaml"},
		{envCollector, "config-tail-sampling.yaml"},
		{envFirstTier, "config-first-tier.yaml"},
		{envCollector, "../dashboards/collector.yaml"},
	} {
		t.Run(filepath.Base(c.config), func(t *testing.T) {
			cmd := exec.Command(program(t, c.env), "validate", "--config", config(t, c.config))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s", cmd, err, out)
			}
		})
	}
}

func TestAConfigurationThatIsWrongIsRefused(t *testing.T) {
	path := program(t, envCollector)
	for wrong, want := range map[string]string{
		"utilization_threshold: -1": "utilization_threshold must be above 0",
		"reset_tolerance: 5ms":      "reset_tolerance",
		"utilisation_threshold: 1":  "utilisation_threshold",
	} {
		cmd := exec.Command(path, "validate", "--config", config(t, "config.yaml"),
			"--config", "yaml:processors: {latency_budget: {"+wrong+"}}")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, says\n%s, want %q", wrong, err, out, want)
		}
	}
}

// What someFlagged sends: a span for the entry and two for each call.
const (
	sentTraces = 40
	sentSpans  = sentTraces * (1 + 2*7)
)

// someFlagged sends orders of which about a third use most of their budget.
func someFlagged(t *testing.T, endpoint string) {
	t.Helper()
	place(t, endpoint, "-budget", "2s", "-requests", fmt.Sprint(sentTraces), "-concurrency", "10",
		"-fault", "slow=persist:1700ms@0.3")
}

func isFlagged(span ptrace.Span) bool { return len(flags(span)) > 0 }

func everySpan(ptrace.Span) bool { return true }

func TestTailSamplingKeepsTheFlaggedTracesWholeAndNoOthers(t *testing.T) {
	c := start(t, program(t, envCollector), config(t, "config-tail-sampling.yaml"), `
processors: {groupbytrace: {wait_duration: 1s}}
exporters:
  file: {flush_interval: 50ms}
  file/all: {path: all.jsonl, flush_interval: 50ms}
service:
  pipelines:
    traces/all:
      receivers: [otlp]
      processors: [groupbytrace, latency_budget]
      exporters: [file/all]
`, "--feature-gates=processor.tailsamplingprocessor.recordpolicy")
	someFlagged(t, "grpc://"+c.grpc)

	var all, kept spans
	eventually(t, func() (err error) {
		if all, err = readJSON(filepath.Join(c.dir, "all.jsonl")); err != nil {
			return err
		}
		if kept, err = readJSON(filepath.Join(c.dir, "flagged.jsonl")); err != nil {
			return err
		}
		if len(all) < sentSpans {
			return fmt.Errorf("%d spans came, want %d", len(all), sentSpans)
		}
		if want := all.traces(isFlagged); !slices.Equal(kept.traces(everySpan), want) {
			return fmt.Errorf("%d traces are kept, %d are flagged", len(kept.traces(everySpan)), len(want))
		}
		return nil
	})
	// Nothing comes late: what is decided on is written when the Collector has ended.
	c.stop()
	kept, err := readJSON(filepath.Join(c.dir, "flagged.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	flagged := all.traces(isFlagged)
	if len(flagged) == 0 || len(flagged) == sentTraces {
		t.Errorf("%d of %d traces are flagged: there is nothing to tell apart", len(flagged), sentTraces)
	}
	if got := kept.traces(everySpan); !slices.Equal(got, flagged) {
		t.Errorf("kept are %q, flagged %q", got, flagged)
	}
	for id, span := range all {
		trace, _, _ := strings.Cut(string(id), "/")
		if _, ok := kept[id]; !ok && slices.Contains(flagged, trace) {
			t.Errorf("span %s (%s) of a flagged trace is lost", id, span.Name())
		}
	}
}

func TestTwoTiersSplitNoTrace(t *testing.T) {
	second := [2]*collector{}
	for i := range second {
		second[i] = start(t, program(t, envCollector), config(t, "config.yaml"), `
processors: {groupbytrace: {wait_duration: 2s}}
exporters: {file: {flush_interval: 50ms}}
`)
	}
	first := start(t, program(t, envFirstTier), config(t, "config-first-tier.yaml"), fmt.Sprintf(`
exporters: {load_balancing: {resolver: {static: {hostnames: ["%s", "%s"]}}}}
`, second[0].grpc, second[1].grpc))
	someFlagged(t, "http://"+first.http)

	var parts [2]spans
	eventually(t, func() (err error) {
		for i, c := range second {
			if parts[i], err = readJSON(filepath.Join(c.dir, "traces.jsonl")); err != nil {
				return err
			}
		}
		if n := len(parts[0]) + len(parts[1]); n < sentSpans {
			return fmt.Errorf("%d spans came, want %d", n, sentSpans)
		}
		return nil
	})
	first.stop()
	for i, part := range parts {
		ids := part.traces(everySpan)
		if len(ids) == 0 {
			t.Errorf("Collector %d got nothing", i)
		}
		for _, id := range parts[1-i].traces(everySpan) {
			if slices.Contains(ids, id) {
				t.Errorf("both Collectors got spans of trace %s", id)
			}
		}
		if len(part.traces(isFlagged)) == 0 {
			t.Errorf("Collector %d flags nothing", i)
		}
	}
}
