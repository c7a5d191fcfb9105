package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/latencybudget/latencybudget/analyzer/trace"
	"github.com/latencybudget/latencybudget/internal/tracegen"
)

// profiled writes a profile of inputs and returns its path.
func profiled(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if code, stdout, stderr := outcome(t, "", append([]string{"profile", "-o", path}, args...)...); code != exitOK || stdout != "" {
		t.Fatalf("profile %v: exit %d: %s%s", args, code, stdout, stderr)
	}
	return path
}

// files is the list of files in a JSON report.
var files = regexp.MustCompile(`(?s)"files": \[.*?\n    \]`)

// TestProfilesAreInputs makes profiles of folders, merges them through files and
// standard input, and compares the reports with those of the folders.
func TestProfilesAreInputs(t *testing.T) {
	report := func(stdin string, inputs ...string) string {
		t.Helper()
		code, stdout, stderr := outcome(t, stdin, append([]string{"analyze", "--budget", "800ms", "-o", "json"}, inputs...)...)
		if code != exitOK {
			t.Fatalf("analyze %v: exit %d: %s", inputs, code, stderr)
		}
		return files.ReplaceAllString(stdout, "")
	}
	orders, dag := profiled(t, "a.profile", "testdata/orders"), profiled(t, "b.profile", "testdata/dag")
	both := profiled(t, "both.profile", dag, orders)
	want := report("", "testdata/orders", "testdata/dag")
	content, err := os.ReadFile(both)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		"merged":         report("", both),
		"beside":         report("", orders, dag),
		"beside traces":  report("", "testdata/dag", orders),
		"in a folder":    report("", filepath.Dir(both)),
		"standard input": report(string(content), "-"),
	} {
		if got != want {
			t.Errorf("%s: the report differs from that of the traces", name)
		}
	}
	code, stdout, _ := outcome(t, "", "profile", "-o", "-", dag, orders)
	if code != exitOK || stdout != string(content) {
		t.Errorf("exit %d: merged to standard output it differs from the file", code)
	}
	if _, stdout, _ := outcome(t, "", "analyze", profiled(t, "few.profile", "--sample", "100", "testdata/orders")); !strings.Contains(stdout, "all else is from a sample") {
		t.Errorf("a report from a sample does not say so:\n%s", stdout)
	}
}

// TestProfilesThatCannotBeUsed holds the one line that says what, and what to do.
func TestProfilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, err := os.ReadFile(profiled(t, "good.profile", "testdata/tiny"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := zstd.NewReader(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	content, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(content)
	newer[len(trace.ProfileMagic)] = 9
	var bomb bytes.Buffer
	packed, err := zstd.NewWriter(&bomb)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	_, err = packed.Write([]byte(trace.ProfileMagic))
	for i := 0; i < 20 && err == nil; i++ {
		_, err = packed.Write(zeros)
	}
	if err := errors.Join(err, packed.Close()); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 0x55
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"newer", []string{"analyze", file("newer.profile", newer)}, exitFailed, []string{"newer.profile: ", "update budgetctl", "format is 9"}},
		{"cut plain", []string{"analyze", file("short.profile", content[:len(content)/2])}, exitFailed, []string{"short.profile: ", "copy it again"}},
		{"cut packed", []string{"analyze", file("cut.profile", good[:len(good)/2])}, exitFailed, []string{"cut.profile: ", "incomplete"}},
		{"bomb", []string{"analyze", file("bomb.profile", bomb.Bytes())}, exitFailed, []string{"bomb.profile: ", "no profile"}},
		{"flipped", []string{"analyze", file("flipped.profile", flipped)}, exitFailed, []string{"flipped.profile: "}},
		{"beside a good one", []string{"profile", "-o", filepath.Join(dir, "out"), file("newer.profile", newer), "testdata/tiny"}, exitFailed, []string{"newer.profile: "}},
		{"over the limit", []string{"analyze", "--max-bytes", "1KiB", file("good.profile", good)}, exitFailed, []string{"good.profile: ", "--max-bytes"}},
		{"no output", []string{"profile", "testdata/tiny"}, exitUsage, []string{"--output"}},
		{"no input", []string{"profile", "-o", "x"}, exitUsage, []string{"INPUT"}},
		{"no sample", []string{"profile", "-o", "x", "--sample", "0", "testdata/tiny"}, exitUsage, []string{"--sample"}},
		{"no place", []string{"profile", "-o", filepath.Join(dir, "none", "x"), "testdata/tiny"}, exitFailed, []string{"none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := outcome(t, "", c.args...)
			if code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr does not say %q:\n%s", want, stderr)
				}
			}
		})
	}
}

// TestAProfileIsHalfAMegabyteAnEndpoint measures files of real and drawn traces.
func TestAProfileIsHalfAMegabyteAnEndpoint(t *testing.T) {
	const most = 600_000
	size := func(t *testing.T, input string) int64 {
		info, err := os.Stat(profiled(t, "size.profile", input))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d KB", info.Size()/1000)
		return info.Size()
	}
	t.Run("real", func(t *testing.T) {
		if n := 2 * size(t, corpus(t, "tw-hotel-load150.jaeger.json")); n > most { // it has half a sample
			t.Errorf("a full sample takes %d bytes, want at most %d", n, most)
		}
	})
	t.Run("drawn", func(t *testing.T) {
		traces := 100_000
		if testing.Short() {
			traces = 5_000
		}
		path := filepath.Join(t.TempDir(), "traces.otlp")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tracegen.Stream(f, tracegen.StreamConfig{Seed: 1, Traces: traces, Append: tracegen.AppendOTLPProtoFramed})
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if n := size(t, path); n > most {
			t.Errorf("%d traces take %d bytes, want at most %d", traces, n, most)
		}
	})
}
