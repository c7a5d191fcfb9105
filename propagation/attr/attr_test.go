package attr_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// constants returns the exported string constants of the package by name.
func constants(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "attr.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[0].Name] = value
		}
		return true
	})
	return found
}

// The rules of OpenTelemetry for names of attributes.
func TestNamesFollowTheConventions(t *testing.T) {
	key := regexp.MustCompile(`^latency_budget(\.[a-z]+(_[a-z]+)*)+$`)
	value := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[string]string{}
	found := constants(t)
	for name, text := range found {
		isValue := strings.HasPrefix(name, "Flag") && name != "Flags" || strings.HasPrefix(name, "Source") && name != "Source" && name != "SourceHeaderName"
		if form := map[bool]*regexp.Regexp{true: value, false: key}[isValue]; !form.MatchString(text) {
			t.Errorf("%s = %q, want %s", name, text, form)
		}
		if other, twice := seen[text]; twice {
			t.Errorf("%s and %s are both %q", name, other, text)
		}
		seen[text] = name
	}
	if len(found) != 45 {
		t.Errorf("%d constants, want 45: readers rely on each", len(found))
	}
}
