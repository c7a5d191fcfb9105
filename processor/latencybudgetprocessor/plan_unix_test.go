//go:build unix

package latencybudgetprocessor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/latencybudget/latencybudget/analyzer/plan"
)

// Whatever takes the place of the plan while the Collector runs: reading it ends, takes
// no more memory than a plan, and leaves the plan before it in force.
func TestNothingInThePlaceOfThePlanHoldsTheCollectorUp(t *testing.T) {
	valid, err := os.ReadFile(filepath.Join("testdata", "plan.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "plan.yaml")
	put := func(at, text string) error { return os.WriteFile(at, []byte(text), 0o644) }
	for what, test := range map[string]struct {
		replace func() error
		want    string // part of the message
	}{
		"pipe":           {func() error { return syscall.Mkfifo(name, 0o644) }, "regular file"},
		"directory":      {func() error { return os.Mkdir(name, 0o755) }, "regular file"},
		"device":         {func() error { return os.Symlink("/dev/zero", name) }, "regular file"},
		"circle":         {func() error { return os.Symlink(name, name) }, "too many"},
		"dangling":       {func() error { return os.Symlink(name+".gone", name) }, "no such file"},
		"nothing":        {func() error { return nil }, "no such file"},
		"empty":          {func() error { return put(name, "") }, "empty"},
		"no text":        {func() error { return put(name, "\x00\xff\xfe") }, "no YAML"},
		"nested":         {func() error { return put(name, strings.Repeat("[", plan.MaxBytes)) }, "no YAML"},
		"something else": {func() error { return put(name, "a: 1\n"+strings.Repeat("b: 1\n", plan.MaxBytes/5-1)) }, "more"},
		"huge": {func() error {
			file, err := os.Create(name)
			if err != nil {
				return err
			}
			return errors.Join(file.Truncate(1<<40), file.Close())
		}, "larger than"},
	} {
		t.Run(what, func(t *testing.T) {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
			write(t, name, string(valid))
			core, logs := observer.New(zap.InfoLevel)
			f := &planFile{name: name, logger: zap.New(core), failed: func() {}}
			if err := f.start(); err != nil {
				t.Fatal(err)
			}
			if err := f.close(t.Context()); err != nil { // polled by hand
				t.Fatal(err)
			}
			before := f.current()
			if err := errors.Join(os.Remove(name), test.replace()); err != nil {
				t.Skipf("the file system does not have it: %v", err)
			}
			f.poll()
			f.poll()
			if f.current() != before {
				t.Error("the plan is not in force any more")
			}
			if logs.Len() != 1 {
				t.Fatalf("%d lines are logged, want 1", logs.Len())
			}
			said := logs.All()[0].ContextMap()["error"].(string)
			if !strings.Contains(said, test.want) || !strings.Contains(said, name) || len(said) > 100_000 {
				t.Errorf("%d bytes are said, want the file and %q: %.300s", len(said), test.want, said)
			}
			// Files that are mounted into containers are replaced by links.
			next := filepath.Join(dir, "next.yaml")
			write(t, next, strings.Replace(string(valid), "2026-11-29a", "b", 1))
			if err := errors.Join(os.RemoveAll(name), os.Symlink(next, name)); err != nil {
				t.Fatal(err)
			}
			f.poll()
			if got := f.current().Revision(); got != "b" {
				t.Errorf("judged by %q when the plan is back", got)
			}
		})
	}
}

// A file system may hang: the shutdown does not wait longer than it is told.
func TestShutdownDoesNotWaitForAFileForever(t *testing.T) {
	stopped := false
	f := &planFile{name: "plan.yaml", stop: func() { stopped = true }, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.close(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "plan.yaml") || !stopped {
		t.Errorf("stopped %v, error %v", stopped, err)
	}
}
