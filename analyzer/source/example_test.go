package source_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/source"
)

func ExampleOpen() {
	stdin := strings.NewReader(`{"resourceSpans":[{
	  "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"inventory"}}]},
	  "scopeSpans":[{"spans":[{
	    "traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"/shop.Inventory/Reserve",
	    "kind":"SPAN_KIND_SERVER","startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000030000000"}]}]}]}`)
	src, err := source.Open([]string{"-"}, stdin, source.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for batch, err := range src.Batches(context.Background()) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, s := range batch.Spans {
			fmt.Println(batch.File.Format, s.Desc.Service, s.Desc.Operation, s.Kind, s.Duration)
		}
	}
	// Output: otlp-json inventory shop.Inventory/Reserve server 30000000
}
