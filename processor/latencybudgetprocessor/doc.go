// Package latencybudgetprocessor is the Collector processor latency_budget.
//
// It finds, for each span, how much of its request's latency budget was left,
// checks the spans of a trace by the rules of package finding, the same that
// budgetctl reports by, and sets latency_budget attributes. It changes nothing
// else, and it never drops, delays or reorders a span.
package latencybudgetprocessor

//go:generate go tool -modfile=mdatagen.mod mdatagen metadata.yaml
