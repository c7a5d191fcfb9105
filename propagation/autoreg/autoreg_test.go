package autoreg_test

import (
	"slices"
	"testing"

	"go.opentelemetry.io/contrib/propagators/autoprop"

	"github.com/latencybudget/latencybudget/propagation"
	"github.com/latencybudget/latencybudget/propagation/autoreg"
)

// untouched tells what importing the package leaves of the name.
var _, untouched = autoprop.TextMapPropagator(propagation.Name)

func TestEnvironmentChoosesThePropagator(t *testing.T) {
	t.Setenv("OTEL_PROPAGATORS", "tracecontext,baggage,latencybudget")
	if untouched == nil {
		t.Error("the name is known before Register")
	}
	autoreg.Register()
	autoreg.Register() // Does nothing, where autoprop would panic.
	got := autoprop.NewTextMapPropagator().Fields()
	slices.Sort(got)
	if want := []string{"baggage", propagation.Header, "traceparent", "tracestate"}; !slices.Equal(got, want) {
		t.Errorf("fields %q, want %q", got, want)
	}
	p, err := autoprop.TextMapPropagator(propagation.Name)
	if err != nil || !slices.Equal(p.Fields(), []string{propagation.Header}) {
		t.Errorf("%v, %v", p, err)
	}
}
