// Package autoreg registers the propagator by its name, so that it can be
// chosen by environment:
//
//	OTEL_PROPAGATORS=tracecontext,baggage,latencybudget
//
// The variable is read by autoprop.NewTextMapPropagator, which takes names
// exactly as written: a blank after a comma loses the name, with an error in the
// log. Importing this package registers nothing; it is apart from propagation
// because autoprop brings the propagators of several vendors.
package autoreg

import (
	"fmt"
	"sync"

	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel"

	"github.com/latencybudget/latencybudget/propagation"
)

var once sync.Once

// Register registers propagation.New(opts...) under propagation.Name. Call it
// before autoprop.NewTextMapPropagator. Calls after the first do nothing. If
// other code has taken the name, the error goes to the global error handler, and
// the name stays with it.
func Register(opts ...propagation.Option) {
	once.Do(func() {
		defer func() {
			if r := recover(); r != nil { // autoprop panics where a name is taken.
				otel.Handle(fmt.Errorf("register propagator %q: %v; register it only once", propagation.Name, r))
			}
		}()
		autoprop.RegisterTextMapPropagator(propagation.Name, propagation.New(opts...))
	})
}
