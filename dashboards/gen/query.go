package main

import (
	"fmt"
	"strings"
)

// The metrics as Prometheus sees them. ../collector.yaml makes them, and a test
// of examples/demo finds every query that no longer matches.
const (
	// Histograms: series NAME_bucket with classic buckets, NAME with native ones.
	duration    = "latency_budget_duration_seconds" // with span_kind
	utilization = "latency_budget_utilization"
	arrival     = "latency_budget_arrival_remaining_seconds"
	overrun     = "latency_budget_overrun_seconds"
	workAfter   = "latency_budget_work_after_deadline_seconds"

	// Counters.
	calls            = "latency_budget_calls_total" // with span_kind
	findings         = "latency_budget_findings_total"
	deadlineExceeded = "latency_budget_deadline_exceeded_calls_total"
	attempts         = "latency_budget_attempts_total"
	degraded         = "latency_budget_degraded_calls_total"
	planExcess       = "latency_budget_plan_excess_calls_total"

	// Gauges.
	limit     = "latency_budget_limit_seconds"
	planShare = "latency_budget:plan_share:seconds" // recorded by ../plan-rules.yaml
	planCap   = "latency_budget:plan_cap:seconds"
)

// Labels.
const (
	caller    = "latency_budget_caller"
	callee    = "latency_budget_callee"
	operation = "latency_budget_operation"
	flag      = "latency_budget_flag"
)

// hop is what identifies a hop.
const hop = caller + ", " + callee + ", " + operation

// window is the range of every rate: the data source makes it long enough to
// hold several scrapes.
const window = "$__rate_interval"

// Selectors. An entry has no caller, and is seen by its SERVER span alone. Of
// every other hop the caller's CLIENT span counts.
const (
	entries    = caller + `=""`
	clientSide = `span_kind="SPAN_KIND_CLIENT"`
	serverSide = `span_kind="SPAN_KIND_SERVER"`
)

// all joins selectors.
func all(selectors ...string) string { return "{" + strings.Join(selectors, ", ") + "}" }

// quantile is the q-quantile of a histogram by labels, from classic buckets or
// from a native histogram, whichever there is.
func quantile(q float64, histogram, selector, by string) string {
	return fmt.Sprintf("histogram_quantile(%[1]g, sum by (%[4]s, le) (rate(%[2]s_bucket%[3]s[%[5]s])))\n"+
		"or histogram_quantile(%[1]g, sum by (%[4]s) (rate(%[2]s%[3]s[%[5]s])))",
		q, histogram, selector, by, window)
}

// above is the share of observations over an edge. With classic buckets edge must
// be one of them: 0.8 and 1 are. Then it is exact, as with native ones for 1.
func above(edge string, histogram, selector, by string) string {
	// Prometheus writes 1 as 1 or 1.0, depending on its version.
	le := strings.ReplaceAll(edge, ".", "[.]")
	if !strings.Contains(edge, ".") {
		le += "([.]0)?"
	}
	at := "{" + strings.TrimSuffix(strings.TrimPrefix(selector, "{"), "}")
	if at != "{" {
		at += ", "
	}
	at += `le=~"` + le + `"}`
	return fmt.Sprintf("1 - sum by (%[4]s) (rate(%[2]s_bucket%[6]s[%[5]s])) / sum by (%[4]s) (rate(%[2]s_count%[3]s[%[5]s]) > 0)\n"+
		"or 1 - histogram_fraction(0, %[1]s, sum by (%[4]s) (rate(%[2]s%[3]s[%[5]s])))",
		edge, histogram, selector, by, window, at)
}

// perSecond is how often something happens.
func perSecond(counter, selector, by string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s%s[%s]))", by, counter, selector, window)
}

// mean is the mean of a histogram with classic or native buckets.
func mean(histogram, selector, by string) string {
	return fmt.Sprintf("(sum by (%[3]s) (rate(%[1]s_sum%[2]s[%[4]s])) / (sum by (%[3]s) (rate(%[1]s_count%[2]s[%[4]s])) > 0)\n"+
		"or histogram_sum(sum by (%[3]s) (rate(%[1]s%[2]s[%[4]s]))) / (histogram_count(sum by (%[3]s) (rate(%[1]s%[2]s[%[4]s]))) > 0))",
		histogram, selector, by, window)
}

// grown is by how much counters grew in the range of the dashboard, exactly.
// Prometheus extrapolates what increase() returns, and it takes the first value
// of a series as its start, so what happened once would never show. Here a
// series that was not there at the beginning counts in full; only where the
// Collector was restarted meanwhile does increase() answer.
func grown(counter, selector, by string) string {
	series := counter + selector
	return fmt.Sprintf("sum by (%[1]s) (\n  (%[2]s - %[2]s offset $__range >= 0)\n"+
		"  or (%[2]s unless %[2]s offset $__range)\n  or increase(%[2]s[$__range])\n)", by, series)
}

// hopShare is the share of a hop's calls that a counter counts; 0 where it never
// did.
func hopShare(counter, selector, by string) string {
	base := hopCalls(selector, by)
	return fmt.Sprintf("(%s or 0 * %s) / (%s > 0)", perSecond(counter, selector, by), base, base)
}

// hopCalls is how often hops are called, each call counted once.
func hopCalls(selector, by string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(selector, "{"), "}")
	return fmt.Sprintf("sum by (%s) (\n  rate(%s%s[%s])\n  or rate(%s%s[%s])\n)",
		by, calls, join(inner, clientSide), window, calls, join(inner, serverSide, entries, callee+`!=""`), window)
}

// join adds selectors to the inside of another.
func join(inner string, selectors ...string) string {
	if inner != "" {
		selectors = append([]string{inner}, selectors...)
	}
	return all(selectors...)
}

// retries95 is the 95th percentile of the retries of a call. Of N calls, as many
// have at least k retries as there are attempts with the number k+1: so it is the
// number of k for which those are over 5 % of the first attempts.
func retries95(selector, by string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(selector, "{"), "}")
	return fmt.Sprintf("sum by (%[1]s) (\n"+
		"  sum by (%[1]s, latency_budget_attempt) (rate(%[2]s%[3]s[%[5]s]))\n"+
		"  / on (%[1]s) group_left () (sum by (%[1]s) (rate(%[2]s%[4]s[%[5]s])) > 0)\n"+
		"  > bool 0.05\n) - 1",
		by, attempts, selector, join(inner, `latency_budget_attempt="1"`), window)
}

// queueing is how much longer callers wait than callees work: the network, pools
// and queues before the callee.
func queueing(selector, by string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(selector, "{"), "}")
	return mean(duration, join(inner, clientSide), by) + "\n- " + mean(duration, join(inner, serverSide), by)
}

// degradedShare is the share of a service's answers that lack a dependency. The
// label holds a list in JSON; its first three names are counted.
func degradedShare(selector, by string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(selector, "{"), "}")
	parts := make([]string, 3)
	for i := range parts {
		name := fmt.Sprintf("`\\[(?:\"[^\"]*\",){%d}\"([^\"]*)\".*`", i)
		parts[i] = fmt.Sprintf("  label_replace(label_replace(\n    rate(%s%s[%s]),\n"+
			"    \"dependency\", \"$1\", \"latency_budget_degraded\", %s), \"place\", \"%d\", \"\", \"\")",
			degraded, join(inner, "latency_budget_degraded=~"+name), window, name, i+1)
	}
	return fmt.Sprintf("sum by (%[1]s, dependency) (\n%[2]s\n)\n/ on (%[1]s) group_left () (sum by (%[1]s) (rate(%[3]s%[4]s[%[5]s])) > 0)",
		by, strings.Join(parts, "\n  or\n"), calls, join(inner, serverSide), window)
}
