package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// oracle says what a query must return for the spans, by key.
type oracle struct {
	labels []string
	// Exactly one of these. values: equal but for rounding. rates: within 25 %, for
	// Prometheus extrapolates to the ends of the range. exact: equal. spread with p:
	// the percentile p of these, within the width of a bucket. last: one of these, as
	// a gauge shows what came last, which may be of any request.
	values map[string]float64
	rates  map[string]float64
	exact  map[string]float64
	spread observed
	p      float64
	last   observed
	top    int     // only so many of the values come back
	native float64 // how far native histograms may be off, where an edge is none of theirs
}

// widest is how wide the buckets of the histograms are at most, as a factor, with
// native or classic ones.
var widest = map[string]float64{"native": 1.1, "classic": 2.5}

// within returns what a quantile may be that lies between two values: any point of
// the buckets that hold them.
func within(low, high float64, histograms string, isShare bool) (float64, float64) {
	factor := widest[histograms]
	low, high = low/factor, high*factor
	if histograms == "native" {
		return low, max(high, 1e-9) // 0 has a narrow bucket of its own
	}
	first, last := 0.001, 30.0 // edges of the seconds
	if isShare {
		first, last = 0.1, 5
	}
	// What is below the first edge may be anywhere there, and what is beyond the last
	// is said to be at the last.
	if low < first {
		low = 0
	}
	return min(low, last), min(max(high, first), last)
}

// oracles are the expected answers of all queries of the dashboards, by panel and
// query.
func oracles(spans []span, window time.Duration) map[string]oracle {
	hop := []string{"caller", "callee", "operation"}
	endpoint := []string{"callee", "operation"}
	number := func(name string, use func(span) bool) func(span) (float64, bool) {
		return func(s span) (float64, bool) {
			v, ok := s.number(name)
			return v, ok && use(s)
		}
	}
	entry := func(s span) bool { return s.counts() && s.text("caller") == "" }
	served := func(s span) bool { return s.judged() && s.kind == server }
	took := func(use func(span) bool) func(span) (float64, bool) {
		return func(s span) (float64, bool) { return s.seconds, use(s) }
	}
	count := func(use func(span) bool, labels ...string) map[string]float64 {
		return tally(spans, func(s span) []string {
			if use(s) {
				return []string{s.key(labels...)}
			}
			return nil
		})
	}
	used := func(edge float64, use func(span) bool, labels ...string) map[string]float64 {
		over := func(s span) bool { v, ok := s.number("utilization"); return ok && use(s) && v > edge }
		known := func(s span) bool { _, ok := s.number("utilization"); return ok && use(s) }
		return ratio(count(over, labels...), count(known, labels...))
	}
	negated := func(name string, use func(span) bool) func(span) (float64, bool) {
		return func(s span) (float64, bool) {
			v, ok := s.number(name)
			return -v, ok && v < 0 && use(s)
		}
	}
	late := func(s span) bool { return s.counts() && s.timedOut() }
	findings := func(labels []string, keep func(string) bool) map[string]float64 {
		return tally(spans, func(s span) (keys []string) {
			for _, f := range s.list("findings") {
				if s.judged() && keep(f) {
					keys = append(keys, strings.TrimSuffix(f+"|"+s.key(labels...), "|"))
				}
			}
			return keys
		})
	}
	resets := func(f string) bool { return f == "deadline_extended" || f == "deadline_dropped" }
	any := func(string) bool { return true }
	total := 0.0
	for _, n := range findings(nil, func(f string) bool { return f == "deadline_extended" }) {
		total += n
	}
	mean := func(kind int) map[string]float64 {
		out := map[string]float64{}
		for k, v := range observe(spans, hop, took(func(s span) bool { return s.judged() && s.kind == kind })) {
			sum := 0.0
			for _, one := range v {
				sum += one
			}
			out[k] = sum / float64(len(v))
		}
		return out
	}
	queueing := map[string]float64{}
	for k, v := range mean(client) {
		if own, ok := mean(server)[k]; ok {
			queueing[k] = v - own
		}
	}
	degraded := tally(spans, func(s span) (keys []string) {
		for _, d := range s.list("degraded") {
			if served(s) {
				keys = append(keys, s.key(endpoint...)+"|"+d)
			}
		}
		return keys
	})
	for k := range degraded {
		degraded[k] /= count(served, endpoint...)[k[:strings.LastIndex(k, "|")]]
	}
	attempts := count(func(s span) bool { return s.judged() && s.kind == client }, hop...)
	first := count(func(s span) bool {
		n, ok := s.number("attempt")
		return s.judged() && s.kind == client && (!ok || n == 1)
	}, hop...)
	retries := map[string]float64{}
	for k, n := range first {
		for attempt := 2.0; attempt <= 10; attempt++ {
			again := count(func(s span) bool { v, ok := s.number("attempt"); return ok && s.kind == client && v == attempt }, hop...)
			if again[k]/n > 0.05 {
				retries[k]++
			}
		}
		retries[k] += 0
	}
	rate := func(counts map[string]float64) map[string]float64 {
		out := map[string]float64{}
		for k, n := range counts {
			out[k] = n / window.Seconds()
		}
		return out
	}
	arrival := number("remaining.start", served)
	arrived := func(s span) (float64, bool) { v, ok := arrival(s); return max(v, 0), ok }
	worked := number("work_after", func(s span) bool { return s.judged() })
	utilization := observe(spans, hop, number("utilization", span.counts))

	return map[string]oracle{
		"overview/Requests over their budget A":            {labels: endpoint, values: used(1, entry, endpoint...)},
		"overview/Deadlines replaced by later ones A":      {exact: map[string]float64{"": total}},
		"overview/Calls over the budget of the plan A":     {values: ratio(count(span.overPlan), count(span.counts))},
		"overview/End-to-end latency against the budget A": {labels: endpoint, spread: observe(spans, endpoint, took(entry)), p: 99},
		"overview/End-to-end latency against the budget B": {labels: endpoint, spread: observe(spans, endpoint, took(entry)), p: 50},
		"overview/End-to-end latency against the budget C": {labels: endpoint, last: observe(spans, endpoint, number("limit", entry))},
		"overview/Degraded answers by dependency A":        {labels: []string{"callee", "operation", "dependency"}, values: degraded},
		"overview/Utilization P99 by hop A":                {labels: hop, spread: utilization, p: 99},
		"overview/Hops over 0.8 A":                         {labels: hop, values: used(0.8, span.counts, hop...), native: 0.01},
		"overview/Remaining at arrival A":                  {labels: []string{"callee"}, spread: observe(spans, []string{"callee"}, arrived), p: 5},
		"overview/Queue wait A":                            {labels: hop, values: queueing},
		"overview/Overrun P99 A":                           {labels: hop, spread: observe(spans, hop, negated("remaining.end", span.counts)), p: 99},
		"overview/Top offenders A":                         {labels: append([]string{"flag"}, hop...), exact: findings(hop, any), top: 20},
		"overview/Resets and their owners A":               {labels: append([]string{"flag"}, hop...), exact: findings(hop, resets)},
		"overview/Deadline exceeded by service A":          {labels: []string{"callee"}, values: ratio(count(late, "callee"), count(span.counts, "callee"))},
		"overview/Deadline exceeded by caller A":           {labels: []string{"caller"}, values: ratio(count(late, "caller"), count(span.counts, "caller"))},
		"overview/Retries P95 A":                           {labels: hop, exact: retries},
		"hop/Duration against share and cap A":             {labels: endpoint, spread: observe(spans, endpoint, took(served)), p: 99},
		"hop/Duration against share and cap B":             {labels: endpoint, spread: observe(spans, endpoint, took(served)), p: 50},
		"hop/Duration against share and cap C":             {labels: endpoint, spread: observe(spans, endpoint, took(served)), p: 90},
		"hop/Duration against share and cap D":             {labels: endpoint, spread: observe(spans, endpoint, took(served)), p: 99.9},
		"hop/Duration against share and cap E":             {labels: hop, exact: planned(func(share, _ float64) float64 { return share })},
		"hop/Duration against share and cap F":             {labels: hop, exact: planned(func(_, limit float64) float64 { return limit })},
		"hop/Utilization quantiles A":                      {labels: hop, spread: utilization, p: 99},
		"hop/Utilization quantiles B":                      {labels: hop, spread: utilization, p: 50},
		"hop/Remaining at arrival A":                       {labels: hop, spread: observe(spans, hop, arrived), p: 5},
		"hop/Remaining at arrival B":                       {labels: hop, spread: observe(spans, hop, arrived), p: 50},
		"hop/Queue wait A":                                 {labels: hop, values: queueing},
		"hop/Calls by caller A":                            {labels: []string{"caller"}, rates: rate(count(span.counts, "caller"))},
		"hop/Attempts per call A":                          {labels: hop, values: ratio(attempts, first)},
		"hop/Deadline exceeded by caller A":                {labels: []string{"caller"}, values: ratio(count(late, "caller"), count(span.counts, "caller"))},
		"hop/Findings by flag A":                           {labels: []string{"flag"}, rates: rate(findings(nil, any))},
		"hop/Overrun A":                                    {labels: hop, spread: observe(spans, hop, negated("remaining.end", span.counts)), p: 99},
		"hop/Work after the deadline A":                    {labels: hop, spread: observe(spans, hop, worked), p: 99},
	}
}

// planned are the share and cap of each hop in budgets.yaml.
func planned(of func(share, limit float64) float64) map[string]float64 {
	return map[string]float64{
		"|gateway|POST /order":                     of(0.8, 0.8),
		"gateway|auth|POST /order":                 of(0.1, 0.1),
		"gateway|inventory|orders.inventory/Order": of(0.15, 0.25),
		"gateway|coupon|POST /order":               of(0.15, 0.25),
		"gateway|risk|orders.risk/Order":           of(0.5, 0.6),
		"risk|payment|POST /order":                 of(0.4, 0.5),
		"payment|persist|orders.persist/Order":     of(0.35, 0.45),
	}
}

// check runs a query and compares its answer with the oracle.
func check(ctx context.Context, s *System, expr string, at time.Time, o oracle) error {
	samples, err := s.ask(ctx, expr, at)
	if err != nil {
		return err
	}
	if len(samples) == 0 {
		return fmt.Errorf("no series")
	}
	got := byKey(samples, o.labels...)
	want := o.values
	switch {
	case o.exact != nil:
		want = o.exact
	case o.rates != nil:
		want = o.rates
	case o.spread != nil, o.last != nil:
		want = map[string]float64{}
		for _, of := range []observed{o.spread, o.last} {
			for k := range of {
				want[k] = 0
			}
		}
	}
	for _, k := range keysOf(got) {
		if _, ok := want[k]; !ok {
			return fmt.Errorf("%s is %v, want nothing", k, got[k])
		}
	}
	if n := len(want); len(got) != n && (o.top == 0 || len(got) != min(n, o.top)) {
		return fmt.Errorf("%d series %q, want %d: %q", len(got), keysOf(got), n, keysOf(want))
	}
	for _, k := range keysOf(got) {
		v := got[k]
		low, high := want[k], want[k]
		switch {
		case o.values != nil:
			slack := 1e-5
			if s.Histograms == "native" {
				slack += o.native
			}
			low, high = low-slack, high+slack
		case o.rates != nil:
			low, high = low*0.75, high*1.25
		case o.spread != nil:
			low, high = around(o.spread[k], o.p)
			low, high = within(low, high, s.Histograms, strings.Contains(expr, "utilization"))
		case o.last != nil:
			if !slices.Contains(o.last[k], v) {
				return fmt.Errorf("%s is %v, want one of %v", k, v, slices.Compact(slices.Sorted(slices.Values(o.last[k]))))
			}
			continue
		}
		if !(v >= low && v <= high) {
			return fmt.Errorf("%s is %v, want %v to %v", k, v, low, high)
		}
	}
	return nil
}

// panels runs every query of every panel.
func panels(t *testing.T, s *System, at time.Time, window time.Duration, spans []span) {
	all := oracles(spans, window)
	metric := regexp.MustCompile(`latency_budget([_:][a-z_:]+[{\[])`)
	for _, q := range queries(t) {
		name := q.board + "/" + q.panel + " " + q.ref
		expr := q.filled(window)
		o, known := all[name]
		switch {
		case name == "hop/Utilization A": // buckets, for a heat map
			if got, err := s.ask(t.Context(), expr, at); err != nil || len(got) == 0 {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			continue
		case !known:
			t.Errorf("nobody says what %s must show", name)
			continue
		}
		delete(all, name)
		if err := check(t.Context(), s, expr, at, o); err != nil {
			t.Errorf("%s: %v\n%s", name, err, expr)
		}
		// A metric by another name must not go unseen.
		if renamed := metric.ReplaceAllString(expr, "renamed$1"); check(t.Context(), s, renamed, at, o) == nil {
			t.Errorf("%s does not notice that its metrics have other names\n%s", name, renamed)
		}
	}
	for name := range all {
		t.Errorf("no panel shows %s", name)
	}
}
