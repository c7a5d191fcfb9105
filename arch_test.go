package latencybudget_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/latencybudget/latencybudget"

// directions lists, for every package of the module, which others of the
// module it may import; "*" is any. The picture is in docs/design.md. A package
// that is not listed has no place in the picture and fails the test.
var directions = map[string][]string{
	"":                      nil,
	"analyzer/trace":        nil,
	"analyzer/quantile":     nil,
	"analyzer/plan":         nil,
	"analyzer/profile":      {"analyzer/quantile", "analyzer/trace"},
	"analyzer/budget":       {"analyzer/plan", "analyzer/profile", "analyzer/quantile", "analyzer/trace"},
	"analyzer/finding":      {"analyzer/plan", "analyzer/trace", "propagation/attr"},
	"analyzer/source":       {"analyzer/trace", "propagation/attr"},
	"analyzer/report":       {"analyzer"},
	"analyzer":              {"analyzer/budget", "analyzer/finding", "analyzer/plan", "analyzer/profile", "analyzer/quantile", "analyzer/trace"},
	"cmd/budgetctl":         {"*"},
	"internal/e2e":          nil, // tests alone
	"internal/goldentest":   nil, // for tests
	"internal/ontime":       nil, // for tests
	"internal/otlp":         {"analyzer/trace", "propagation/attr"},
	"internal/tracegen":     {"*"},
	"internal/tracegen/gen": {"*"},
	"processor/latencybudgetprocessor": {
		"analyzer/finding", "analyzer/plan", "analyzer/trace", "internal/otlp", "propagation/attr",
		"processor/latencybudgetprocessor/internal/metadata",
	},
	"processor/latencybudgetprocessor/internal/metadata":     nil,
	"processor/latencybudgetprocessor/internal/metadatatest": {"processor/latencybudgetprocessor/internal/metadata"},
	"propagation/attr":     nil,
	"propagation":          {"propagation/attr"},
	"propagation/autoreg":  {"propagation", "propagation/attr"},
	"dashboards/planrules": {"analyzer/plan"},
	"examples/demo":        nil,
	"examples/orders":      {"propagation", "propagation/attr"},
}

// pure are the packages that only compute: what they return depends on their
// arguments alone.
var pure = []string{
	"analyzer", "analyzer/budget", "analyzer/finding", "analyzer/plan",
	"analyzer/profile", "analyzer/quantile", "analyzer/trace",
}

// impure are the imports that a pure package may not have. A path stands for
// itself and everything below it.
var impure = []string{
	"net", "os", "go.opentelemetry.io/collector", "github.com/spf13/cobra", "go.uber.org/zap",
}

// goPackage is what `go list -json` says of a package, as far as needed here.
type goPackage struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string // without tests
	Imports    []string // direct, without those of tests
	Deps       []string // transitive
}

func TestImportsFollowTheDirections(t *testing.T) {
	packages := listPackages(t)
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		rel, ours := inModule(path)
		if !ours {
			continue
		}
		allowed, placed := directions[rel]
		if !placed {
			t.Errorf("package %s has no place in the picture: add it to docs/design.md, .golangci.yml and directions", path)
			continue
		}
		for _, imp := range packages[path].Imports {
			to, ours := inModule(imp)
			if ours && !slices.Contains(allowed, to) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s: the directions allow %q", path, imp, allowed)
			}
		}
	}
}

// The binary has its own readers and only observes: neither pdata nor the
// propagator, which brings the SDK and net/http, may come in through any door.
func TestBinaryHasNoPdataAndNoPropagator(t *testing.T) {
	packages := listPackages(t)
	for _, path := range []string{"cmd/budgetctl", "analyzer"} {
		p, exists := packages[module+"/"+path]
		if !exists {
			t.Logf("%s does not exist", path)
			continue
		}
		for _, dep := range p.Deps {
			propagator := dep == module+"/propagation" || dep == module+"/propagation/autoreg"
			if propagator || under(dep, "go.opentelemetry.io/collector") || under(dep, "go.opentelemetry.io/otel") {
				t.Errorf("%s depends on %s", path, dep)
			}
		}
	}
}

// The rule is about what our code and its third parties import themselves:
// fmt, for one, needs os.
func TestPurePackagesReachNothingOutside(t *testing.T) {
	packages := listPackages(t)
	for _, path := range pure {
		root, exists := packages[module+"/"+path]
		if !exists {
			t.Logf("%s does not exist", path)
			continue
		}
		for _, dep := range append([]string{root.ImportPath}, root.Deps...) {
			p := packages[dep]
			if p.Standard {
				continue
			}
			for _, imp := range p.Imports {
				if slices.ContainsFunc(impure, func(prefix string) bool { return under(imp, prefix) }) {
					t.Errorf("%s is pure, but %s imports %s", path, dep, imp)
				}
			}
		}
	}
}

func TestPurePackagesReadNoClock(t *testing.T) {
	packages := listPackages(t)
	for _, path := range pure {
		p := packages[module+"/"+path]
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			// A file that does not parse fails the build, not this test.
			file, _ := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			for _, pos := range clockReads(file) {
				t.Errorf("%s: %s is pure: take the time as an argument", fset.Position(pos), path)
			}
		}
	}
}

func TestClockReadsAreFound(t *testing.T) {
	tests := map[string]struct {
		source string
		want   int
	}{
		"plain":        {`import "time"; var x = time.Now()`, 1},
		"since, until": {`import "time"; func f(t time.Time) { _, _ = time.Since(t), time.Until(t) }`, 2},
		"renamed":      {`import clock "time"; var now = clock.Now`, 1},
		"dot":          {`import . "time"; var now = Now`, 1},
		"durations":    {`import "time"; const d = 3 * time.Second`, 0},
		"another Now":  {`import "example.com/x/time2"; var now = time2.Now()`, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+test.source, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(clockReads(file)); got != test.want {
				t.Errorf("%d clock reads found, want %d", got, test.want)
			}
		})
	}
}

// clockReads returns where file uses the clock of package time. A dot import
// of time counts as a use: what comes through it cannot be told by its name.
func clockReads(file *ast.File) []token.Pos {
	if file == nil {
		return nil
	}
	local := "" // the name of package time in this file
	var found []token.Pos
	for _, imp := range file.Imports {
		if imp.Path.Value != `"time"` {
			continue
		}
		local = "time"
		if imp.Name != nil {
			local = imp.Name.Name
		}
		if local == "." {
			found = append(found, imp.Pos())
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name, ok := selector.X.(*ast.Ident)
		if ok && name.Name == local && slices.Contains([]string{"Now", "Since", "Until"}, selector.Sel.Name) {
			found = append(found, selector.Pos())
		}
		return true
	})
	return found
}

// listPackages returns the packages of the module and all they depend on, by
// import path. Packages with errors are listed as far as they can be read.
func listPackages(t *testing.T) map[string]goPackage {
	t.Helper()
	watchSources(t)
	var stderr bytes.Buffer
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Dir,Standard,GoFiles,Imports,Deps", "./...")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	packages := make(map[string]goPackage)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("output of go list: %v", err)
		}
		packages[p.ImportPath] = p
	}
	if _, exists := packages[module]; !exists {
		t.Fatalf("go list does not know %s: the test must run in the root of the module", module)
	}
	return packages
}

// watchSources reads the directories of the module, so that `go test` knows that
// the result hangs on them: it does not see what `go list` reads, and would
// repeat an old result from its cache.
func watchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inModule returns path relative to the module, "" for its root.
func inModule(path string) (rel string, ours bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// under tells whether path is prefix or lies below it.
func under(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}
