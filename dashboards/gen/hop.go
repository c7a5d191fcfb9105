package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

const hopUID = "latency-budget-hop"

// hopDetail shows one hop: how long it takes against what it should, and what
// goes wrong there.
func hopDetail() *dashboard.DashboardBuilder {
	return page("Latency budget: hop detail", hopUID,
		"One hop: its durations against the plan, how much of its budget it uses, its attempts and its findings. "+
			"Made from flagged spans by the Collector; docs/dashboards.md says how to read it.",
		chooser("service", "Service", "The service that is called.", "label_values("+calls+", "+callee+")"),
		chooser("hop", "Hop", "The operation of the hop.", "label_values("+calls+all(callee+`=~"$service"`)+", "+operation+")"),
	).
		Link(link("Overview", overviewUID)).
		WithRow(dashboard.NewRowBuilder("Time")).
		WithPanel(lines("Duration against share and cap",
			"Durations at the callee. Dots are exemplars: each links to a trace. Share (BUDGET) and cap (TIMEOUT) come from the plan and are shown where plan rules are loaded.",
			seconds, full,
			query{expr: quantile(0.99, duration, all(serverSide, chosenHops), callee+", "+operation), legend: exemplified},
			query{expr: quantile(0.5, duration, all(serverSide, chosenHops), callee+", "+operation), legend: "P50"},
			query{expr: quantile(0.9, duration, all(serverSide, chosenHops), callee+", "+operation), legend: "P90"},
			query{expr: quantile(0.999, duration, all(serverSide, chosenHops), callee+", "+operation), legend: "P99.9"},
			query{expr: "max by (" + hop + ") (" + planShare + all(chosenHops) + ")", legend: "share " + hopLegend},
			query{expr: "max by (" + hop + ") (" + planCap + all(chosenHops) + ")", legend: "cap " + hopLegend})).
		WithPanel(heat("Utilization",
			"How many calls used how much of their budget. 0.8 and 1 are edges of buckets.",
			share, half,
			query{expr: "sum by (le) (increase(" + utilization + "_bucket" + all(chosenHops) + "[" + window + "]))\n" +
				"or sum(increase(" + utilization + all(chosenHops) + "[" + window + "]))", legend: "{{le}}"})).
		WithPanel(marked(lines("Utilization quantiles",
			"The same as quantiles. Dashed: 0.8, from where a call is flagged, and 1, where its budget is spent.",
			share, half,
			query{expr: quantile(0.99, utilization, all(chosenHops), hop), legend: "P99 " + hopLegend},
			query{expr: quantile(0.5, utilization, all(chosenHops), hop), legend: "P50 " + hopLegend}))).
		WithPanel(lines("Remaining at arrival",
			"What was left of the request's budget when it arrived: the lowest 5 %, and half of all.",
			seconds, half,
			query{expr: quantile(0.05, arrival, all(chosenHops), hop), legend: "P5 " + hopLegend},
			query{expr: quantile(0.5, arrival, all(chosenHops), hop), legend: "P50 " + hopLegend})).
		WithPanel(lines("Queue wait",
			"How much longer callers waited than the callee worked, on average.",
			seconds, half,
			query{expr: queueing(all(chosenHops), hop), legend: hopLegend})).
		WithRow(dashboard.NewRowBuilder("Calls")).
		WithPanel(lines("Calls by caller",
			"Calls per second by who makes them. Without a name: clients from outside.",
			"reqps", third,
			query{expr: hopCalls(all(chosenHops), caller), legend: "{{latency_budget_caller}}"})).
		WithPanel(lines("Attempts per call",
			"Attempts over first attempts: 1 is a hop without retries.",
			number, third,
			query{expr: "sum by (" + hop + ") (rate(" + attempts + all(chosenHops) + "[" + window + "]))\n/ (sum by (" + hop + ") (rate(" +
				attempts + all(chosenHops, `latency_budget_attempt="1"`) + "[" + window + "])) > 0)", legend: hopLegend})).
		WithPanel(lines("Deadline exceeded by caller",
			"Share of calls that ended because their time was up, by who made them.",
			share, third,
			query{expr: hopShare(deadlineExceeded, all(chosenHops), caller), legend: "{{latency_budget_caller}}"})).
		WithRow(dashboard.NewRowBuilder("What goes wrong")).
		WithPanel(lines("Findings by flag",
			"Flagged spans per second. docs/findings.md explains each flag.",
			"cps", third,
			query{expr: perSecond(findings, all(chosenHops), flag), legend: "{{latency_budget_flag}}"})).
		WithPanel(lines("Overrun",
			"By how much calls ended after their deadline, of those that did.",
			seconds, third,
			query{expr: quantile(0.99, overrun, all(chosenHops), hop), legend: "P99 " + hopLegend})).
		WithPanel(lines("Work after the deadline",
			"How long the callee worked on when the deadline had passed or its caller had given up, of the calls where it did.",
			seconds, third,
			query{expr: quantile(0.99, workAfter, all(chosenHops), hop), legend: "P99 " + hopLegend}))
}
