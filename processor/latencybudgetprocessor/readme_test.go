package latencybudgetprocessor

import (
	"os"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/confmap"
)

// The example of the README is a valid configuration.
func TestReadmeExampleIsValid(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, closed := strings.Cut(example, "```")
	if !closed {
		t.Fatal("there is no example")
	}
	read, err := confmap.NewRetrievedFromYAML([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	all, err := read.AsConf()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := all.Sub("processors::latency_budget")
	if err != nil {
		t.Fatal(err)
	}
	config := defaults()
	if err := ours.Unmarshal(config); err != nil {
		t.Fatal(err)
	}
	if err := confmap.Validate(config); err != nil {
		t.Error(err)
	}
	if !strings.Contains(example, "processors: [groupbytrace, latency_budget, batch]") {
		t.Error("the pipeline does not have whole traces before the processor")
	}
}
