package latencybudgetprocessor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/latencybudget/latencybudget/propagation/attr"

	"github.com/latencybudget/latencybudget/processor/latencybudgetprocessor/internal/metadatatest"
)

// A plan of 100 ms for edge, 10 for its stage render, 40 for stock.
func TestStoriesWithAPlan(t *testing.T) {
	config := defaults()
	config.BudgetsFile = filepath.Join("testdata", "plan.yaml")
	for name, story := range map[string][]span{
		// Spans without any stamp are held to the plan alone.
		//
		//	>edge         |-------------------------| 90 of 100
		//	render          |--| 9 of 10
		//	edge>stock           |----------| 35 of 40
		//	>stock                |--------| 33
		//	edge>other                       |--| not planned
		"plan": {
			{name: ">edge", start: 0, end: 90},
			{name: "edge#render", under: ">edge", start: 1, end: 10},
			{name: "edge>stock", under: ">edge", start: 12, end: 47},
			{name: ">stock", under: "edge>stock", start: 13, end: 46},
			{name: "edge>other", under: ">edge", start: 50, end: 60},
		},
		// The smaller of what was left and the budget of the plan counts, and a call
		// with less than its floor was doomed.
		"plan_stamped": {
			{name: ">edge", start: 0, end: 90, attrs: budget(1000)},
			{name: "edge>stock", under: ">edge", start: 80, end: 96, attrs: budget(19)},
			{name: ">stock", under: "edge>stock", start: 81, end: 95, attrs: budget(18)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			traces := build(t, story)
			for _, s := range eachSpan(traces) {
				if s.Name() == "edge#render" {
					s.Attributes().Clear()
					s.SetName("render")
				}
			}
			golden(t, name, show(run(t, config, traces)))
		})
	}
}

func TestAnUnusablePlanStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"missing.yaml": "",
		"invalid.yaml": "version: 1\nrevision: a\nendpoints:\n  - service: edge\n    operation: x\n    budget: 300\n",
	} {
		path := filepath.Join(dir, name)
		if text != "" {
			write(t, path, text)
		}
		config := defaults()
		config.BudgetsFile = path
		p, err := NewFactory().CreateTraces(t.Context(), processortest.NewNopSettings(NewFactory().Type()), config, consumertest.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		err = p.Start(t.Context(), componenttest.NewNopHost())
		if err == nil || !strings.Contains(err.Error(), "budgets_file") || !strings.Contains(err.Error(), path) {
			t.Errorf("the error does not name the setting and the file: %v", err)
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A changed plan is taken over; one that cannot be used is not, and that is said
// once for each state of the file.
func TestThePlanIsReadAgainWhenItChanges(t *testing.T) {
	valid, err := os.ReadFile(filepath.Join("testdata", "plan.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan.yaml")
	write(t, path, string(valid))

	tel := componenttest.NewTelemetry()
	settings := metadatatest.NewSettings(tel)
	core, logs := observer.New(zap.InfoLevel)
	settings.Logger = zap.New(core)
	synctest.Test(t, func(t *testing.T) {
		config := defaults()
		config.BudgetsFile = path
		sink := new(consumertest.TracesSink)
		p, err := NewFactory().CreateTraces(t.Context(), settings, config, sink)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context(), componenttest.NewNopHost()); err != nil {
			t.Fatal(err)
		}
		// revision polls, and returns the revision that spans are judged by.
		revision := func() string {
			t.Helper()
			time.Sleep(pollInterval + time.Second)
			synctest.Wait()
			sink.Reset()
			if err := p.ConsumeTraces(t.Context(), build(t, []span{{name: ">edge", start: 0, end: 10}})); err != nil {
				t.Fatal(err)
			}
			v, _ := eachSpan(sink.AllTraces()[0])[0].Attributes().Get(attr.PlanRevision)
			return v.Str()
		}
		expect := func(what, want string, logged int) {
			t.Helper()
			for range 3 {
				if got := revision(); got != want {
					t.Errorf("%s: judged by %q, want %q", what, got, want)
				}
			}
			if logs.Len() != logged {
				t.Errorf("%s: %d lines are logged in all, want %d: %v", what, logs.Len(), logged, logs.All())
			}
		}
		expect("as it was", "2026-11-29a", 0)
		write(t, path, strings.Replace(string(valid), "2026-11-29a", "b", 1))
		expect("changed", "b", 1)
		write(t, path, "version: 9\n")
		expect("invalid", "b", 2)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		expect("removed", "b", 3)
		write(t, path, strings.Replace(string(valid), "2026-11-29a", "b", 1))
		expect("as it was before", "b", 3)
		write(t, path, "version: 9\n")
		expect("invalid once more", "b", 4)
		write(t, path, strings.Replace(string(valid), "2026-11-29a", "c", 1))
		expect("changed once more", "c", 5)
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	metadatatest.AssertEqualProcessorLatencyBudgetPlanReloadFailures(t, tel,
		[]metricdata.DataPoint[int64]{{Value: 3}}, metricdatatest.IgnoreTimestamp())
	if err := tel.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
