package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// TestReplaceWritesToWhatIsOpen: a name such as /dev/stdout leads to a file that
// somebody else has open, and who reads there must find the content.
func TestReplaceWritesToWhatIsOpen(t *testing.T) {
	if _, err := os.Stat("/dev/fd"); err != nil {
		t.Skipf("no names for open files: %v", err)
	}
	name := func(f *os.File) string { return fmt.Sprintf("/dev/fd/%d", f.Fd()) }
	for _, removed := range []bool{false, true} {
		file, err := os.Create(filepath.Join(t.TempDir(), "report"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		if removed {
			if err := os.Remove(file.Name()); err != nil {
				t.Fatal(err)
			}
		}
		err = replace(name(file), []byte("content"))
		if text, _ := io.ReadAll(file); err != nil || string(text) != "content" {
			t.Errorf("removed %v: the open file holds %q, %v", removed, text, err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	err = errors.Join(replace(name(w), []byte("content")), w.Close())
	if text, _ := io.ReadAll(r); err != nil || string(text) != "content" {
		t.Errorf("%q came out of the pipe, %v", text, err)
	}
}

// TestReportsReplaceWhole: who has the old report open reads all of it, whatever
// becomes of the new one.
func TestReportsReplaceWhole(t *testing.T) {
	for _, command := range [][]string{
		{"analyze", "testdata/orders"},
		{"check", "testdata/orders", "--plan", plans + "orders-tight.yaml"},
		{"compare", "testdata/orders", "testdata/orders"},
	} {
		path := filepath.Join(t.TempDir(), "report.json")
		if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		open, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = open.Close() }()
		_, _, stderr := outcome(t, "", append(command, "-o", "json="+path)...)
		if text, _ := io.ReadAll(open); string(text) != "before" {
			t.Errorf("%s: who had the old report open reads %.20q", command[0], text)
		}
		if text, err := os.ReadFile(path); err != nil || !json.Valid(text) {
			t.Errorf("%s: the new report is %.20q, %v, stderr %q", command[0], text, err, stderr)
		}
	}
}
