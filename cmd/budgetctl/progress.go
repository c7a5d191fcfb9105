package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	progressAfter = time.Second // short reads show nothing
	progressEvery = 200 * time.Millisecond
	progressWidth = 30
)

// progress is a bar on stderr while a long read lasts. It shows only on a
// terminal.
type progress struct {
	mu    sync.Mutex
	w     io.Writer // nil: nothing to show on
	next  time.Time
	shown bool
}

func newProgress(w io.Writer) *progress {
	p := &progress{next: time.Now().Add(progressAfter)}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = w
	}
	return p
}

// set draws the bar. done and total are bytes; total is 0 where it is unknown.
func (p *progress) set(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.w == nil || now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(progressEvery), true
	if total <= 0 {
		fmt.Fprintf(p.w, "\rreading %d MiB\x1b[K", done>>20)
		return
	}
	share := min(1, float64(done)/float64(total))
	full := int(share * progressWidth)
	fmt.Fprintf(p.w, "\rreading [%s%s] %3.0f %%\x1b[K",
		strings.Repeat("=", full), strings.Repeat(" ", progressWidth-full), 100*share)
}

// done removes the bar.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.w, p.shown = nil, false
}
