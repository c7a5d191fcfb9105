package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/plan"
)

func TestRulesNameHopsAsTheCollectorDoes(t *testing.T) {
	const text = `
version: 1
revision: r "7"
endpoints:
  - service: edge
    operation: GET /
    budget: 1s
    hops:
      - callee: edge
        operation: check
        stage: true
        share: 200ms
        hops:
          - {callee: auth, operation: Check, share: 100ms, cap: 150ms}
      - {callee: log, operation: Write, async: true, share: 0s}
  - service: admin
    operation: GET /
    budget: 2s
    hops:
      - {callee: auth, operation: Check, share: 1500us}
`
	const want = `# Made from a plan file by dashboards/planrules; change the plan.
groups:
  - name: latency-budget-plan
    rules:
      - record: latency_budget:plan_share:seconds
        expr: vector(1)
        labels:
          latency_budget_callee: "edge"
          latency_budget_operation: "GET /"
          latency_budget_plan_revision: "r \"7\""
      - record: latency_budget:plan_cap:seconds
        expr: vector(1)
        labels:
          latency_budget_callee: "edge"
          latency_budget_operation: "GET /"
          latency_budget_plan_revision: "r \"7\""
      - record: latency_budget:plan_share:seconds
        expr: vector(0.1)
        labels:
          latency_budget_caller: "edge"
          latency_budget_callee: "auth"
          latency_budget_operation: "Check"
          latency_budget_plan_revision: "r \"7\""
      - record: latency_budget:plan_cap:seconds
        expr: vector(0.15)
        labels:
          latency_budget_caller: "edge"
          latency_budget_callee: "auth"
          latency_budget_operation: "Check"
          latency_budget_plan_revision: "r \"7\""
`
	p, err := plan.Read("budgets.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got := string(rules(p))
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", got, want)
	}
	if strings.Contains(got, "check") || strings.Contains(got, "Write") {
		t.Errorf("a stage or a hop without limit is in\n%s", got)
	}
	if !strings.Contains(got, "vector(0.0015)") {
		t.Errorf("1.5 ms are missing in\n%s", got)
	}
}

func TestPrometheusAcceptsTheRules(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("LATENCYBUDGET_COLLECTOR") != "" {
			t.Fatal("promtool is not on PATH; Debian has it in the package prometheus")
		}
		t.Skip("promtool is not on PATH; Debian has it in the package prometheus")
	}
	out := filepath.Join(t.TempDir(), "rules.yaml")
	var stderr bytes.Buffer
	if code := run([]string{"-o", out, "../../examples/demo/budgets.yaml"}, nil, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if text, err := exec.Command(promtool, "check", "rules", out).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestTheRulesOfTheDemoAreCurrent(t *testing.T) {
	want, err := convert("../../examples/demo/budgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../examples/demo/plan-rules.yaml")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("examples/demo/plan-rules.yaml is not what its plan says: run make generate (%v)", err)
	}
}

func TestWrongArguments(t *testing.T) {
	for want, args := range map[int][]string{
		0: {"-h"}, 1: {"no-such.yaml"}, 2: {},
	} {
		var out, stderr bytes.Buffer
		if code := run(args, &out, &stderr); code != want || stderr.Len() == 0 {
			t.Errorf("planrules %q: exit code %d, want %d: %s", args, code, want, &stderr)
		}
	}
}
