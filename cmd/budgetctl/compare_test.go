package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// placed is a request with names in Chinese. Of its calls one is slow or not,
// one is old, and one is new.
//
//	网关 下单  |------------------------------|
//	支付服务      |----|
//	风控            . . |------ slow ------|
func placed(slow time.Duration, last string) *tracegen.Node {
	const ms = time.Millisecond
	rpc := func(service, operation string, p50, p99 time.Duration, steps ...[]*tracegen.Node) *tracegen.Node {
		return &tracegen.Node{
			Service: service, Operation: operation, Kind: tracegen.KindServer,
			Own: tracegen.Dist{P50: p50, P99: p99}, Net: ms / 2, Steps: steps,
		}
	}
	root := rpc("网关", "下单", ms, 3*ms,
		[]*tracegen.Node{rpc("支付服务", "扣款", 10*ms, 30*ms, []*tracegen.Node{rpc("账本", "记账", 4*ms, 12*ms)})},
		[]*tracegen.Node{rpc("风控 risk control service", "Score the order of a customer", 20*slow, 60*slow)},
		[]*tracegen.Node{rpc("orders", last, 8*ms, 20*ms)})
	root.Net = 0
	return root
}

// comparedFolder is a folder with traces before and after, and a plan.
func comparedFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, content []byte) {
		if err := os.WriteFile(dir+"/"+name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	draw := func(name string, root *tracegen.Node, seed uint64, n int) {
		spans := tracegen.Draw(root, tracegen.DrawConfig{
			Seed: seed, Traces: n, Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Every: time.Second,
		})
		write(name, tracegen.AppendOTLPJSONLines(nil, spans))
	}
	draw("before.jsonl", placed(time.Millisecond, "persist"), 1, 800)
	draw("after.jsonl", placed(1500*time.Microsecond, "store"), 2, 900)
	draw("few.jsonl", placed(time.Millisecond, "persist"), 3, 40)
	write("budgets.yaml", []byte(`version: 1
revision: "7"
endpoints:
  - service: 网关
    operation: 下单
    budget: 150ms
    hops:
      - callee: 支付服务
        operation: 扣款
        share: 50ms
      - callee: risk control service
        operation: Score
        share: 1ms
      - callee: 风控 risk control service
        operation: Score the order of a customer
        share: 70ms
        after: [支付服务 扣款]
`))
	return dir
}

// TestComparisons compares all that compare prints with golden files.
func TestComparisons(t *testing.T) {
	dir := comparedFolder(t)
	for name, c := range map[string]struct{ columns, line string }{
		"compare-80":       {"80", "compare before.jsonl after.jsonl --plan budgets.yaml"},
		"compare-200":      {"200", "compare before.jsonl after.jsonl --plan budgets.yaml"},
		"compare-back":     {"120", "compare after.jsonl before.jsonl --plan budgets.yaml"},
		"compare-few":      {"120", "compare before.jsonl few.jsonl --ascii"},
		"compare-markdown": {"120", "compare before.jsonl after.jsonl --plan budgets.yaml -o markdown"},
		"compare-json":     {"120", "compare before.jsonl after.jsonl --plan budgets.yaml -o json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("COLUMNS", c.columns)
			var got string
			t.Run("run", func(t *testing.T) {
				t.Chdir(dir)
				got = budgetctl(t, "", words(c.line)...)
			})
			golden(t, name, got)
		})
	}
}

func TestComparisonsObeyTheSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("docs/compare.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := comparedFolder(t)
	sides := []string{dir + "/before.jsonl", dir + "/after.jsonl", dir + "/few.jsonl", "testdata/censored", "testdata/tiny,testdata/sampled", "testdata/no-kinds", "testdata/retry-storm"}
	for _, before := range sides {
		for _, after := range sides {
			for _, flags := range [][]string{{"--top", "1"}, {"--plan", dir + "/budgets.yaml"}} {
				code, stdout, stderr := outcome(t, "", append([]string{"compare", before, after, "-o", "json"}, flags...)...)
				if code != exitOK {
					t.Errorf("%s %s: exit %d: %s", before, after, code, stderr)
					continue
				}
				c, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
				if err == nil {
					err = schema.Validate(c)
				}
				if err != nil {
					t.Errorf("%s %s: %v", before, after, err)
				}
			}
		}
	}
}

// TestCompareSaysWhatIsWrong holds exit codes and messages.
func TestCompareSaysWhatIsWrong(t *testing.T) {
	dir := comparedFolder(t)
	broken := dir + "/broken.yaml"
	if err := os.WriteFile(broken, []byte("version: 1\nbudgets: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"one side", []string{"testdata/orders"}, exitUsage, []string{"BEFORE and AFTER"}},
		{"no file", []string{"testdata/orders", "nowhere.json"}, exitFailed, []string{"after", "nowhere.json"}},
		{"no file beside one", []string{"testdata/tiny", "nowhere.json,testdata/tiny"}, exitFailed, []string{"nowhere.json"}},
		{"format", []string{"testdata/tiny", "testdata/tiny", "-o", "csv"}, exitUsage, []string{"--output", "table, json, markdown"}},
		{"no plan", []string{"testdata/tiny", "testdata/tiny", "--plan", "nowhere.yaml"}, exitFailed, []string{"nowhere.yaml"}},
		{"broken plan", []string{"testdata/tiny", "testdata/tiny", "--plan", broken}, exitFailed, []string{"broken.yaml", "2"}},
		{"no endpoint", []string{"testdata/tiny", "testdata/tiny", "--endpoint", "x"}, exitFailed, []string{"before", "--endpoint x"}},
		{"no place", []string{"testdata/tiny", "testdata/tiny", "-o", "json=" + dir + "/none/x"}, exitFailed, []string{"none"}},
		{"top", []string{"testdata/tiny", "testdata/tiny", "--top", "0"}, exitUsage, []string{"--top"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := outcome(t, "", append([]string{"compare"}, c.args...)...)
			if code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not say %q:\n%s", want, stderr)
				}
			}
		})
	}
}
