// Package quantile computes quantiles that admit what they do not know.
package quantile

// Dist is a frozen, sorted sample.
type Dist struct{}
