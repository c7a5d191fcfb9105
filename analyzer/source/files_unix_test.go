//go:build unix

package source

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPipesAndDevicesAreReadOnlyByName holds that they cannot hold up a folder or
// glob that they lie in.
func TestPipesAndDevicesAreReadOnlyByName(t *testing.T) {
	// A folder of its own: the path of a socket must be short.
	dir, err := os.MkdirTemp("", "fifo")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(in("file.json"), []byte(otlp(otlpSpan("1", ""))), 0o600),
		os.WriteFile(in("elsewhere"), []byte(otlp(otlpSpan("2", ""))), 0o600),
		os.Symlink("elsewhere", in("link.json")),
		os.Mkdir(in("empty"), 0o700),
		syscall.Mkfifo(in("pipe.json"), 0o600),
		syscall.Mkfifo(in("empty/pipe.json"), 0o600),
		os.Symlink("pipe.json", in("pipelink.json")),
		os.Symlink("/dev/zero", in("zero.json")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", in("socket.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	read := func(input string) string {
		src, err := Open([]string{input}, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for batch, err := range src.Batches(ctx) {
			if err != nil {
				got = append(got, err.Error())
				continue
			}
			got = append(got, filepath.Base(batch.File.Name))
		}
		return strings.Join(got, " ")
	}
	for input, want := range map[string]string{
		dir:              "file.json link.json",
		in("*.json"):     "file.json link.json",
		in("pipe*.json"): in("pipe*.json") + ": no file matches this pattern",
		in("empty"):      in("empty") + ": no trace files in this folder",
	} {
		if got := read(input); !strings.HasPrefix(got, want) {
			t.Errorf("%s: read %s, want %s", input, got, want)
		}
	}
	go func() { _ = os.WriteFile(in("pipe.json"), []byte(otlp(otlpSpan("1", ""))), 0o600) }()
	if got := read(in("pipe.json")); got != "pipe.json" {
		t.Errorf("a pipe by its name: read %s", got)
	}
}
