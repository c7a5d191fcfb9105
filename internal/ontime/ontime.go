// Package ontime is for tests of laws that are about time and run on real clocks
// and sockets. A machine that is busy with something else does everything later,
// and then such a test says nothing about the code.
package ontime

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Trial is one attempt at a scenario that needs a machine that is on time.
type Trial struct {
	*testing.T

	// Scale is by how much the times of the scenario are to be longer than they
	// are meant to be, from 1 on, so that there is more room for what comes late.
	Scale time.Duration

	faults []string
}

// Errorf keeps what is wrong until [Judge] knows whether the machine was on time.
// All other ways to fail fail at once.
func (t *Trial) Errorf(format string, args ...any) {
	t.faults = append(t.faults, fmt.Sprintf(format, args...))
}

const (
	// tolerated is how late a timer may be on a machine that is on time.
	tolerated = 2 * time.Millisecond
	// longest is the last scale that is tried.
	longest = 16
)

// Judge runs a scenario. If timers were on time meanwhile, the verdict stands. If
// they were not and something is wrong, the scenario is run again with all its
// times twice as long, five times at most: what is really wrong is wrong at every
// scale.
func Judge(t *testing.T, scenario func(t *Trial)) {
	t.Helper()
	for scale := time.Duration(1); ; scale *= 2 {
		trial := &Trial{T: t, Scale: scale}
		late := lateness(func() { scenario(trial) })
		if len(trial.faults) == 0 {
			return
		}
		faults := strings.Join(trial.faults, "\n")
		if late <= tolerated || scale == longest {
			t.Fatalf("wrong at scale %d, on a machine that was late by up to %v:\n%s", scale, late, faults)
		}
		t.Logf("again with longer times, as the machine was late by up to %v at scale %d:\n%s", late, scale, faults)
	}
}

// lateness returns by how much timers were late, at most, while f ran.
func lateness(f func()) time.Duration {
	const tick = time.Millisecond
	var worst time.Duration
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
			}
			began := time.Now()
			time.Sleep(tick)
			worst = max(worst, time.Since(began)-tick)
		}
	}()
	func() {
		defer func() { close(end); <-ended }() // also if f ends the test
		f()
	}()
	return worst
}
