// Package goldentest compares what tests get with files that hold what they should.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files; the tests then fail, so that it cannot be left on")

// Update tells whether files are to be rewritten: whether the test runs with
// -update. A test that rewrites a file by itself must fail, as [Compare] does.
func Update() bool { return *update }

// Compare fails t unless the file at path holds got. With -update it writes the
// file, and its folder, and fails all the same.
func Compare(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s was rewritten: look at the difference and run again without -update", path)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
