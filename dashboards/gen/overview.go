package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

const overviewUID = "latency-budget-overview"

// What the reader of the overview has chosen.
const (
	chosenEntries = entries + `, latency_budget_callee=~"$service", latency_budget_operation=~"$endpoint"`
	chosenHops    = `latency_budget_callee=~"$service", latency_budget_operation=~"$hop"`
)

const hopLegend = "{{latency_budget_caller}} → {{latency_budget_callee}} {{latency_budget_operation}}"

// overview answers: is the promise kept, which hop eats the budget, who breaks
// the deadline.
func overview() *dashboard.DashboardBuilder {
	const endpoint = callee + ", " + operation
	const endpointLegend = "{{latency_budget_callee}} {{latency_budget_operation}}"
	return page("Latency budget overview", overviewUID,
		"Where the time budget of requests goes, which hops break it, and who resets deadlines. "+
			"Made from flagged spans by the Collector; docs/dashboards.md says how to read it.",
		chooser("service", "Service", "The service that is called.", "label_values("+calls+", "+callee+")"),
		chooser("endpoint", "Endpoint", "The operation of an entry.", "label_values("+calls+all(entries, callee+`=~"$service"`)+", "+operation+")"),
		chooser("hop", "Hop", "The operation of a hop.", "label_values("+calls+all(callee+`=~"$service"`)+", "+operation+")"),
	).
		Link(link("Hop detail", hopUID)).
		WithRow(dashboard.NewRowBuilder("Is the promise kept?")).
		WithPanel(figure("Requests over their budget",
			"Share of requests at the entries that took longer than the budget they came with. Requests without a budget do not count.",
			share, anyIsBad(),
			query{expr: above("1", utilization, all(chosenEntries), endpoint), legend: endpointLegend})).
		WithPanel(figure("Deadlines replaced by later ones",
			"Resets in the time shown: spans whose deadline was later than what was left. Each lets a hop and all behind it run on when nobody waits.",
			number, anyIsBad(),
			query{expr: "sum(" + grown(findings, all(flag+`="deadline_extended"`, chosenHops), flag) + ") or vector(0)", legend: "resets", last: true})).
		WithPanel(figure("Calls over the budget of the plan",
			"Share of calls that took longer than their hop's BUDGET in the plan file. 0 where the Collector has no plan.",
			share, anyIsBad(),
			query{expr: "sum(" + perSecond(planExcess, all(chosenHops), callee) + ") / (sum(" + hopCalls(all(chosenHops), callee) + ") > 0) or vector(0)", legend: "over plan"})).
		WithPanel(lines("End-to-end latency against the budget",
			"Durations of requests at the entries, and the budget of the last one. P99 over the budget: more than 1 % of requests fail their promise.",
			seconds, half,
			query{expr: quantile(0.99, duration, all(serverSide, chosenEntries), endpoint), legend: exemplified},
			query{expr: quantile(0.5, duration, all(serverSide, chosenEntries), endpoint), legend: "P50"},
			query{expr: "max by (" + endpoint + ") (" + limit + all(`latency_budget_callee=~"$service", latency_budget_operation=~"$endpoint"`) + ")", legend: "budget " + endpointLegend})).
		WithPanel(lines("Degraded answers by dependency",
			"Share of a service's answers that were given without a dependency, by propagation.MarkDegraded.",
			share, half,
			query{expr: degradedShare(all(callee+`=~"$service"`), endpoint), legend: endpointLegend + " without {{dependency}}"})).
		WithRow(dashboard.NewRowBuilder("Which hop eats it?")).
		WithPanel(bars("Utilization P99 by hop",
			"What each hop used of the time it had: its duration over the smaller of what was left and its budget in the plan. Over 0.8 it is flagged, over 1 the budget is spent.",
			share, half,
			query{expr: "topk(15, " + quantile(0.99, utilization, all(chosenHops), hop) + ")", legend: hopLegend})).
		WithPanel(rows("Hops over 0.8",
			"Share of each hop's calls that used over 0.8 of their budget, the highest first.",
			share, "calls over 0.8", half,
			query{expr: "topk(15, " + above("0.8", utilization, all(chosenHops), hop) + ")"})).
		WithPanel(lines("Remaining at arrival",
			"Of 100 requests that a service got, 95 had more than this left. Near 0 it works for nobody.",
			seconds, third,
			query{expr: quantile(0.05, arrival, all(chosenHops), callee), legend: "{{latency_budget_callee}}"})).
		WithPanel(lines("Queue wait",
			"How much longer callers waited than callees worked, on average: name look-up, connection pools, the network, and queues before the callee. It also falls below 0 where callers give up first.",
			seconds, third,
			query{expr: queueing(all(chosenHops), hop), legend: hopLegend})).
		WithPanel(lines("Overrun P99",
			"By how much calls ended after their deadline, of those that did.",
			seconds, third,
			query{expr: quantile(0.99, overrun, all(chosenHops), hop), legend: hopLegend})).
		WithRow(dashboard.NewRowBuilder("Who breaks the deadline?")).
		WithPanel(rows("Top offenders",
			"Flags in the time shown, by hop, the most frequent first. docs/findings.md explains each.",
			number, "spans", half,
			query{expr: "topk(20, " + grown(findings, all(chosenHops), flag+", "+hop) + " > 0)"})).
		WithPanel(rows("Resets and their owners",
			"Where a deadline was replaced by a later one, or dropped, in the time shown. The hop named is the first that did.",
			number, "spans", half,
			query{expr: grown(findings, all(flag+`=~"deadline_extended|deadline_dropped"`, chosenHops), flag+", "+hop) + " > 0"})).
		WithPanel(lines("Deadline exceeded by service",
			"Share of the calls of a service that ended because their time was up, as their callers saw it.",
			share, third,
			query{expr: hopShare(deadlineExceeded, all(chosenHops), callee), legend: "{{latency_budget_callee}}"})).
		WithPanel(lines("Deadline exceeded by caller",
			"The same by the upstream caller: a short name of who suffers. Without a name: clients from outside.",
			share, third,
			query{expr: hopShare(deadlineExceeded, all(chosenHops), caller), legend: "{{latency_budget_caller}}"})).
		WithPanel(lines("Retries P95",
			"95 % of a hop's calls needed at most so many retries. Over 0: more than one call in 20 is sent again.",
			number, third,
			query{expr: retries95(all(chosenHops), hop), legend: hopLegend}))
}
