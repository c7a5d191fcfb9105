// Package latencybudget is the root of a module that shows where a request's
// time budget goes, which hop broke it, and what budget every hop should have,
// from OpenTelemetry traces alone. It holds no code of its own: the command is
// cmd/budgetctl, the library behind it is package analyzer, and docs/design.md
// says how the parts fit together.
package latencybudget

//go:generate go run ./internal/tracegen/gen -out testdata
