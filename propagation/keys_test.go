package propagation_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// names returns the names that file declares as constants.
func names(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			found[spec.Names[0].Name] = true
		}
		return true
	})
	return slices.Sorted(maps.Keys(found))
}

func TestEveryAttributeHasAKey(t *testing.T) {
	keys := names(t, "attributes.go")
	var want []string
	for _, name := range names(t, "attr/attr.go") {
		isValue := strings.HasPrefix(name, "Flag") && name != "Flags" || strings.HasPrefix(name, "Source") && name != "Source" && name != "SourceHeaderName"
		if !isValue {
			want = append(want, strings.TrimSuffix(name, "Name")+"Key")
		}
	}
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("keys %q\nwant %q", keys, want)
	}
}
