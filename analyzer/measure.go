package analyzer

import (
	"regexp"
	"slices"
	"strings"

	"github.com/latencybudget/latencybudget/analyzer/profile"
	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

// quantileOf returns the quantile where there is one.
func quantileOf(d *quantile.Dist, l quantile.Level) Opt[int64] {
	v, ok := d.At(l)
	return Opt[int64]{v, ok}
}

// doubt is what is known of the measurement besides its values.
func (e *endpoint) doubt() quantile.EstimateOptions {
	return quantile.EstimateOptions{Resolution: e.p.Resolution, Shrink: e.p.Shrink}
}

// measure fills in what was seen: it needs no budget.
func (e *endpoint) measure() {
	p := e.p
	doubt := e.doubt()
	level := e.config.level()
	if level != quantile.P99 {
		e.Percentile = Some(100 * level.Float())
	}
	e.Hops = make([]Hop, len(p.Hops))
	e.estimate = make([]quantile.Estimate, len(p.Hops))
	labels := labels(p.Hops)
	hottest := 0.0
	for i := range p.Hops {
		from := &p.Hops[i]
		e.estimate[i] = from.Duration.Estimate(level, doubt)
		p99 := from.Duration.Estimate(quantile.P99, doubt)
		h := &e.Hops[i]
		*h = Hop{
			ID: from.ID, Depth: from.Depth, Caller: from.Caller, Callee: from.Callee, Operation: from.Operation,
			Label: labels[i], Kind: kindNames[from.Kind], Calls: from.Calls, Presence: from.Presence,
			MaxAttempts: from.MaxAttempts,
			P50:         quantileOf(from.Duration, quantile.P50), P90: quantileOf(from.Duration, quantile.P90),
			P95: quantileOf(from.Duration, quantile.P95), P99: quantileOf(from.Duration, quantile.P99),
			BackoffP99:    quantileOf(from.Backoff, quantile.P99),
			CensoredRatio: from.Duration.CensoredRatio(),
			NetP50:        quantileOf(from.Net, quantile.P50),
			Confidence:    quantile.Grade(e.estimate[i].EffN).String(),
		}
		if from.Parent >= 0 {
			h.Parent = p.Hops[from.Parent].ID
		}
		if k, ok := from.Count.At(quantile.P99); ok {
			h.CallsPerTraceP99 = k
		}
		if v, ok := from.Duration.Max(); ok {
			h.Max = Some(v)
		}
		if p99.N > 0 {
			h.P99Lo = Some(p99.Lo)
			h.P99Hi = Opt[int64]{p99.Hi, p99.HiKnown}
		}
		if level != quantile.P99 {
			h.PercentileNS = quantileOf(from.Duration, level)
		}
		if from.Kind.Waited() {
			h.SelfP50, h.SelfP99 = quantileOf(from.Self, quantile.P50), quantileOf(from.Self, quantile.P99)
			h.TailP50 = quantileOf(from.Tail, quantile.P50)
			h.CriticalPath, h.SlowPath = Some(from.CriticalPath), Some(from.SlowPath)
			if i > 0 {
				h.Order = orderNames[from.Order]
			}
			if from.CriticalPath > hottest {
				hottest, e.Hot = from.CriticalPath, from.ID
			}
		}
		h.After = slices.Grow(h.After, len(from.After))
		for _, before := range from.After {
			h.After = append(h.After, p.Hops[before].ID)
		}
		if from.Skew != 0 {
			h.Skew = Some(from.Skew)
		}
		h.Flags = flags(from, p99.Censored)
	}
	e.overlaps()
	root := &e.Hops[0]
	e.Duration = Quantiles{
		P50: root.P50, P90: root.P90, P95: root.P95, P99: root.P99, P999: quantileOf(p.Hops[0].Duration, quantile.P999),
		P99Lo: root.P99Lo, P99Hi: root.P99Hi, Max: root.Max,
	}
	e.OrderPairs, e.OrderSure = p.Pairs, p.SurePairs
	e.Resolution = p.Resolution
}

var kindNames = map[profile.HopKind]string{
	profile.KindRoot: HopRoot, profile.KindCall: HopCall, profile.KindStage: HopStage,
	profile.KindStep: HopStep, profile.KindAsync: HopAsync,
}

var orderNames = map[profile.Order]string{
	profile.OrderSure: "sure", profile.OrderUncertain: "uncertain", profile.OrderExclusive: "exclusive",
}

// flags are single facts of a hop, in alphabetical order.
func flags(h *profile.Hop, censored bool) []string {
	var out []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"censored", censored},
		{"failed_calls_left_out", h.Failed > 0},
		{"from_sample", h.FromSample},
		{"hedged", h.Hedged},
		{"looped", h.Looped},
		{"optional", h.Optional},
		{"retried", h.Retried},
		{"server_side_only", h.ServerOnly},
		{"server_spans_missing", h.Unanswered > 0},
		{"skew_not_fitted", h.Unfitted > 0},
		{"stream", h.Streamed},
	} {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// overlaps marks hops that may run beside a sibling.
func (e *endpoint) overlaps() {
	siblings := make([][]int, len(e.p.Hops)) // that come earlier, by parent
	for b := range e.p.Hops {
		y := &e.p.Hops[b]
		if y.Parent < 0 || !y.Kind.Waited() {
			continue
		}
		earlier, after := siblings[y.Parent], y.After // both ascend
		siblings[y.Parent] = append(earlier, b)
		for _, a := range earlier {
			for len(after) > 0 && after[0] < a {
				after = after[1:]
			}
			if len(after) > 0 && after[0] == a || y.Slot != 0 && e.p.Hops[a].Slot == y.Slot {
				continue
			}
			e.Hops[a].Overlaps, e.Hops[b].Overlaps = true, true
		}
	}
}

// method finds the short name in a full RPC name such as "shop.v1.Cart/Add".
var method = regexp.MustCompile(`^[\w.$-]+/([\w$-]+)$`)

// labels names the hops for people: callee and operation, an RPC by its method
// alone where that is unambiguous. Stages and steps need no callee.
func labels(hops []profile.Hop) []string {
	full, short := make([]string, len(hops)), make([]string, len(hops))
	meaning := make(map[string]string) // full name that a short one stands for; "" if several
	for i := range hops {
		h := &hops[i]
		callee := h.Callee
		if h.Kind == profile.KindStage || h.Kind == profile.KindStep {
			callee = ""
		}
		full[i] = strings.TrimSpace(callee + " " + h.Operation)
		short[i] = full[i]
		if m := method.FindStringSubmatch(h.Operation); m != nil {
			short[i] = strings.TrimSpace(callee + " " + m[1])
		}
		if other, ok := meaning[short[i]]; ok && other != full[i] {
			meaning[short[i]] = ""
		} else {
			meaning[short[i]] = full[i]
		}
	}
	for i := range short {
		if meaning[short[i]] == "" {
			short[i] = full[i]
		}
	}
	return short
}
