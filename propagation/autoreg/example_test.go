package autoreg_test

import (
	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel"

	"github.com/latencybudget/latencybudget/propagation/autoreg"
)

// With OTEL_PROPAGATORS=tracecontext,baggage,latencybudget in the environment.
func Example() {
	autoreg.Register()
	otel.SetTextMapPropagator(autoprop.NewTextMapPropagator())
}
