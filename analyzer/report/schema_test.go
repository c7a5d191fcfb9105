package report_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/report"
)

const schemaFile = "../../docs/report.schema.json"

func schema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	path, err := filepath.Abs(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	s, err := jsonschema.NewCompiler().Compile(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

func TestSamplesObeyTheSchema(t *testing.T) {
	s := schema(t)
	for _, c := range samples {
		if err := s.Validate(decode(t, render(t, c.build(), "json", report.Options{}))); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	empty := &analyzer.Report{Version: 1}
	if err := s.Validate(decode(t, render(t, empty, "json", report.Options{}))); err != nil {
		t.Errorf("empty report: %v", err)
	}
}

// TestSchemaRefusesWhatIsNoReport changes one thing in a valid report.
func TestSchemaRefusesWhatIsNoReport(t *testing.T) {
	s := schema(t)
	text := render(t, order(), "json", report.Options{})
	endpoint := func(v map[string]any) map[string]any { return v["endpoints"].([]any)[0].(map[string]any) }
	hop := func(v map[string]any) map[string]any { return endpoint(v)["hops"].([]any)[1].(map[string]any) }
	finding := func(v map[string]any) map[string]any { return endpoint(v)["findings"].([]any)[0].(map[string]any) }
	policy := func(v map[string]any) map[string]any {
		return endpoint(v)["replay"].(map[string]any)["policies"].([]any)[0].(map[string]any)
	}
	for name, change := range map[string]func(map[string]any){
		"another version":        func(v map[string]any) { v["version"] = 2 },
		"no version":             func(v map[string]any) { delete(v, "version") },
		"unknown key":            func(v map[string]any) { hop(v)["p42_ns"] = 1 },
		"unknown top key":        func(v map[string]any) { v["extra"] = true },
		"null for unknown":       func(v map[string]any) { hop(v)["p99_hi_ns"] = nil },
		"fraction of a ns":       func(v map[string]any) { hop(v)["p50_ns"] = 1.5 },
		"negative duration":      func(v map[string]any) { hop(v)["share_ns"] = -1 },
		"duration as text":       func(v map[string]any) { endpoint(v)["budget_ns"] = "800ms" },
		"ratio above one":        func(v map[string]any) { hop(v)["presence"] = 1.1 },
		"unknown verdict":        func(v map[string]any) { hop(v)["verdict"] = "good" },
		"unknown kind":           func(v map[string]any) { hop(v)["kind"] = "server" },
		"unknown budget source":  func(v map[string]any) { endpoint(v)["budget_source"] = "guess" },
		"hop id that is no path": func(v map[string]any) { hop(v)["id"] = "1.x" },
		"unknown severity":       func(v map[string]any) { finding(v)["severity"] = "fatal" },
		"finding without a hop":  func(v map[string]any) { delete(finding(v), "hop") },
		"no hops":                func(v map[string]any) { delete(endpoint(v), "hops") },
		"unknown policy":         func(v map[string]any) { policy(v)["policy"] = "best" },
		"effect without waste":   func(v map[string]any) { delete(policy(v), "wasted_ns") },
	} {
		v := decode(t, text)
		change(v)
		if err := s.Validate(v); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestSchemaHasEveryKey compares the schema with the types, so that neither
// can get a key that the other lacks.
func TestSchemaHasEveryKey(t *testing.T) {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]struct {
			Items *struct{ Properties map[string]any }
		}
		Required []string
	}
	var s struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	for name, typ := range map[string]any{
		"": analyzer.Report{}, "input": analyzer.Input{}, "quantiles": analyzer.Quantiles{}, "endpoint": analyzer.Endpoint{},
		"hop": analyzer.Hop{}, "other_endpoint": analyzer.OtherEndpoint{}, "move": analyzer.Move{}, "replay": analyzer.Replay{},
		"finding": analyzer.Finding{}, "policy_effect": analyzer.PolicyEffect{}, "hop_cut": analyzer.HopCut{},
		"other_finding": analyzer.OtherFinding{}, "settings": finding.Settings{},
		"replay_incident": analyzer.ReplayIncident{},
	} {
		o := s.object
		if name != "" {
			o = s.Defs[name]
		}
		keys, needed := jsonKeys(typ)
		var have []string
		for k := range o.Properties {
			have = append(have, k)
		}
		slices.Sort(have)
		if !slices.Equal(keys, have) {
			t.Errorf("%T: keys %v, schema %v", typ, keys, have)
		}
		required := slices.Sorted(slices.Values(o.Required))
		if !slices.Equal(needed, required) {
			t.Errorf("%T: always written %v, required %v", typ, needed, required)
		}
	}
}

// jsonKeys returns the JSON keys of a struct, and those that are always written.
func jsonKeys(v any) (keys, needed []string) {
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		key, opts, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if key == "-" {
			continue
		}
		keys = append(keys, key)
		if opts == "" {
			needed = append(needed, key)
		}
	}
	slices.Sort(keys)
	slices.Sort(needed)
	return keys, needed
}
