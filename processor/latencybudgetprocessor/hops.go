package latencybudgetprocessor

import (
	"strings"
	"sync"
)

// hop is how a call is named on its spans. An empty part is not known.
type hop struct{ caller, callee, operation string }

// parts is how many of its names are known; of nil none is.
func (h *hop) parts() int {
	if h == nil {
		return 0
	}
	return count(h.caller != "", h.callee != "", h.operation != "")
}

// other returns the hop that stands for all hops like h beyond the bound. An entry
// has no caller there either: metrics tell it by that.
func other(h hop) hop {
	beyond := hop{callee: "_other", operation: "_other"}
	if h.caller != "" {
		beyond.caller = "_other"
	}
	return beyond
}

// hopNames bounds the number of hops that are named: the names become labels of
// metrics, and a service that puts ids into its operations must not fill a
// database with series. The first come, first served.
type hopNames struct {
	max   int
	mu    sync.RWMutex
	known map[hop]struct{}
}

func newHopNames(most int) *hopNames {
	return &hopNames{max: most, known: make(map[hop]struct{})}
}

// maxName is the length from which the names of a hop make no label. They are kept
// as long as the Collector runs.
const maxName = 1024

// admit returns h, or the hop that stands for all others. Bytes that are no UTF-8
// become U+FFFD: one such label makes whole scrapes fail.
func (n *hopNames) admit(h hop) hop {
	if len(h.caller)+len(h.callee)+len(h.operation) > maxName {
		return other(h)
	}
	for _, name := range [...]*string{&h.caller, &h.callee, &h.operation} {
		*name = strings.ToValidUTF8(*name, "\uFFFD")
	}
	n.mu.RLock()
	_, known := n.known[h]
	full := len(n.known) >= n.max
	n.mu.RUnlock()
	switch {
	case known:
		return h
	case full:
		return other(h)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.known[h]; !known && len(n.known) >= n.max {
		return other(h)
	}
	n.known[h] = struct{}{}
	return h
}
