package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Mode is how the services treat the deadline of a request when they call each
// other. All but Propagated, Ratio and Ctx3s are mistakes, each of them common.
type Mode string

// The modes.
const (
	Propagated Mode = "propagated" // the context goes on as it is
	Fresh      Mode = "fresh"      // a new timeout for every call, on a context without the deadline
	Dropped    Mode = "dropped"    // calls without any deadline
	Ratio      Mode = "ratio"      // every call gets a share of what is left
	Background Mode = "background" // a new timeout on context.Background, which also loses the trace
	Header     Mode = "header"     // the context goes on, but the HTTP header always says 3000 ms
	Ctx3s      Mode = "ctx3s"      // a timeout of 3 s on the context: the earlier deadline stays
)

// Modes lists all modes.
var Modes = []Mode{Propagated, Fresh, Dropped, Ratio, Background, Header, Ctx3s}

const (
	// fixedBudget is the timeout of modes Header and Ctx3s.
	fixedBudget = 3 * time.Second
	// callRatio is the share of what is left that a call gets in mode Ratio.
	callRatio = 0.9
)

// parseMode checks the name of a mode.
func parseMode(name string) (Mode, error) {
	if mode := Mode(name); slices.Contains(Modes, mode) {
		return mode, nil
	}
	names := make([]string, len(Modes))
	for i, mode := range Modes {
		names[i] = string(mode)
	}
	return "", fmt.Errorf("unknown mode %q; valid are %s", name, strings.Join(names, ", "))
}

// enforces tells whether services in this mode hold to their own deadline. One
// that makes a new timeout for every call has no deadline of its own.
func (m Mode) enforces() bool {
	return m != Fresh && m != Dropped && m != Background
}

// outgoing returns the context of a call; fresh is the timeout where the mode
// makes a new one.
func (m Mode) outgoing(ctx context.Context, fresh time.Duration) (context.Context, context.CancelFunc) {
	switch m {
	case Fresh:
		return context.WithTimeout(context.WithoutCancel(ctx), fresh)
	case Dropped:
		return context.WithCancel(context.WithoutCancel(ctx))
	case Background:
		return context.WithTimeout(context.Background(), fresh)
	case Ctx3s:
		return context.WithTimeout(ctx, fixedBudget)
	}
	return context.WithCancel(ctx)
}

// transport writes the header of the authority as services in this mode do.
func (m Mode) transport(authority *Authority, base http.RoundTripper) http.RoundTripper {
	if m != Header {
		return authority.Transport(base)
	}
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set(BudgetHeader, fmt.Sprint(fixedBudget.Milliseconds()))
		return base.RoundTrip(r)
	})
}
