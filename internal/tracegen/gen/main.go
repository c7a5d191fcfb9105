// Command gen writes the files of testdata/.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/latencybudget/latencybudget/internal/tracegen"
)

func main() {
	out := flag.String("out", "testdata", "folder to write to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	for _, f := range tracegen.Testdata() {
		name := filepath.Join(out, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
