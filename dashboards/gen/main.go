// Command gen writes the Grafana dashboards into the folder above it:
//
//	go generate ./...
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

//go:generate go run .

// files are the dashboards by the name of their file.
func files() map[string]*dashboard.DashboardBuilder {
	return map[string]*dashboard.DashboardBuilder{
		"overview.json": overview(),
		"hop.json":      hopDetail(),
	}
}

// render builds a dashboard, numbers its panels in the order they are read, and
// encodes it.
func render(b *dashboard.DashboardBuilder) ([]byte, error) {
	d, err := b.Build()
	if err != nil {
		return nil, err
	}
	next := uint32(1)
	number := func(id **uint32) {
		n := next
		*id, next = &n, next+1
	}
	for _, p := range d.Panels {
		switch {
		case p.RowPanel != nil:
			n := next
			p.RowPanel.Id, next = n, next+1
		case p.Panel != nil:
			number(&p.Panel.Id)
		}
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	// The encoders of the SDK escape what HTML would need; people read queries.
	for escaped, plain := range map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&"} {
		text = bytes.ReplaceAll(text, []byte(escaped), []byte(plain))
	}
	return append(text, '\n'), nil
}

func run(dir string) error {
	for name, b := range files() {
		text, err := render(b)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
