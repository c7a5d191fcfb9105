package propagation_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const self = "github.com/latencybudget/latencybudget/propagation"

// list runs go list and returns its lines.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %q: %v", args, err)
	}
	return strings.Fields(string(out))
}

// deps returns what packages depend on, apart from the standard library.
func deps(t *testing.T, packages ...string) []string {
	t.Helper()
	return list(t, append([]string{"-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)...)
}

func TestLeafImportsOnlyOpenTelemetryAndItsNames(t *testing.T) {
	standard := list(t, "std")
	for _, imported := range list(t, "-f", `{{join .Imports " "}}`, self) {
		if !slices.Contains(standard, imported) && imported != self+"/attr" &&
			imported != "go.opentelemetry.io/otel" && !strings.HasPrefix(imported, "go.opentelemetry.io/otel/") {
			t.Errorf("imports %s", imported)
		}
	}
	if got := list(t, "-f", `{{join .Imports " "}}`, self+"/attr"); len(got) != 0 {
		t.Errorf("attr imports %q, want nothing", got)
	}
}

// Who has the SDK gets nothing more with us.
func TestLeafBringsNothingThatTheSDKDoesNot(t *testing.T) {
	theirs := deps(t, "go.opentelemetry.io/otel/sdk/trace", "go.opentelemetry.io/otel/propagation")
	if len(theirs) < 10 {
		t.Fatalf("the SDK depends on %q only", theirs)
	}
	for _, dep := range deps(t, self) {
		if dep != self && dep != self+"/attr" && !slices.Contains(theirs, dep) {
			t.Errorf("depends on %s", dep)
		}
	}
}
