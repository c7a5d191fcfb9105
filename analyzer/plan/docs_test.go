package plan_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/latencybudget/latencybudget/analyzer/plan"
	"github.com/latencybudget/latencybudget/internal/goldentest"
)

const docs = "../../docs/"

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(docs + "plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keys returns the YAML keys of a type and of what it holds, by the type's name.
func keys(of reflect.Type, found map[string][]string) {
	switch of.Kind() {
	case reflect.Slice, reflect.Pointer:
		keys(of.Elem(), found)
	case reflect.Struct:
		if _, known := found[of.Name()]; known || of == reflect.TypeFor[time.Time]() || strings.HasSuffix(of.Name(), "Limit") {
			return
		}
		found[of.Name()] = nil
		for i := range of.NumField() {
			key, _, _ := strings.Cut(of.Field(i).Tag.Get("yaml"), ",")
			found[of.Name()] = append(found[of.Name()], key)
			keys(of.Field(i).Type, found)
		}
	}
}

// TestThePageExplainsEveryKey reads the plan in docs/plan.md, which has them all.
func TestThePageExplainsEveryKey(t *testing.T) {
	page, err := os.ReadFile(docs + "plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	p, err := plan.Read("docs/plan.md", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if p.Gate != plan.DefaultGate() {
		t.Errorf("the page shows the gate %+v, the default is %+v", p.Gate, plan.DefaultGate())
	}
	if err := schema(t).Validate(goldentest.YAML(t, []byte(text))); err != nil {
		t.Error(err)
	}
	found := make(map[string][]string)
	keys(reflect.TypeFor[plan.Plan](), found)
	for name, list := range found {
		for _, key := range list {
			if !regexp.MustCompile(`(?m)(^ *(- )?|[{,] *)` + key + `:`).MatchString(text) {
				t.Errorf("the page does not show %s of %s", key, name)
			}
		}
	}
}

// TestTheSchemaHasEveryKey compares the schema with the types, so that neither
// can get a key that the other lacks.
func TestTheSchemaHasEveryKey(t *testing.T) {
	text, err := os.ReadFile(docs + "plan.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]any `json:"properties"`
	}
	var s struct {
		object
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	found := make(map[string][]string)
	keys(reflect.TypeFor[plan.Plan](), found)
	for name, want := range found {
		var have object
		switch name {
		case "Plan":
			have = s.object
		case "FalseCuts":
			have = object{Properties: map[string]any{"share": nil, "cap": nil}}
		default:
			if err := json.Unmarshal(s.Defs[strings.ToLower(name)], &have); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		var got []string
		for key := range have.Properties {
			got = append(got, key)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, the type %q", name, got, want)
		}
	}
}

func TestGoldensObeyTheSchema(t *testing.T) {
	s := schema(t)
	files, err := filepath.Glob("testdata/*.golden.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(goldentest.YAML(t, text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, name := range []string{"keys", "units", "head", "list"} { // what a schema can see
		text, err := os.ReadFile("testdata/broken/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if yaml.Unmarshal(text, &v) == nil && s.Validate(goldentest.YAML(t, text)) == nil {
			t.Errorf("the schema takes %s.yaml", name)
		}
	}
}
