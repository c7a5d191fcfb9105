package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReplaceLeavesOneWholeFile: of a file that is written again, its mode and the
// links to it stay, and nothing is left beside it.
func TestReplaceLeavesOneWholeFile(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(dir string) error
		mode    os.FileMode
		entries int
	}{
		{"new", func(string) error { return nil }, 0o644, 1},
		{"there", func(dir string) error { return os.WriteFile(dir+"/plan", []byte("a longer text before"), 0o600) }, 0o600, 1},
		{"link", func(dir string) error {
			if err := os.WriteFile(dir+"/real", []byte("before"), 0o640); err != nil {
				return err
			}
			return os.Symlink("real", dir+"/plan")
		}, 0o640, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := test.prepare(dir); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "plan")
			if err := replace(path, []byte("after")); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil || string(text) != "after" {
				t.Errorf("the file holds %q, %v", text, err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm() | 0o022; got != test.mode|0o022 { // the umask of whoever tests
				t.Errorf("mode %o, want %o", info.Mode().Perm(), test.mode)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != test.entries {
				t.Errorf("%d files in the folder, want %d: %v", len(entries), test.entries, err)
			}
			if link, err := os.Lstat(path); err != nil || (link.Mode()&os.ModeSymlink != 0) != (test.name == "link") {
				t.Errorf("link: %v, %v", link.Mode(), err)
			}
		})
	}
}

// TestReplaceKeepsWhatCannotBeReplaced: where the new content cannot be put in
// place, the error says so and the old content stays.
func TestReplaceKeepsWhatCannotBeReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/plan", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replace(dir+"/plan", []byte("after")); err == nil {
		t.Error("a folder was written to")
	}
	if err := replace(dir+"/missing/plan", []byte("after")); err == nil {
		t.Error("a file was made in a folder that does not exist")
	}
}
