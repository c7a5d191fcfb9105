package propagation

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/latencybudget/latencybudget/propagation/attr"
)

// Attribute keys. Package attr documents each and has their values.
const (
	LimitKey              = attribute.Key(attr.Limit)
	RemainingStartKey     = attribute.Key(attr.RemainingStart)
	RemainingEndKey       = attribute.Key(attr.RemainingEnd)
	UtilizationKey        = attribute.Key(attr.Utilization)
	ConsumedKey           = attribute.Key(attr.Consumed)
	SourceKey             = attribute.Key(attr.Source)
	SourceHeaderKey       = attribute.Key(attr.SourceHeaderName)
	DeadlineRemainingKey  = attribute.Key(attr.DeadlineRemaining)
	AnnouncedRemainingKey = attribute.Key(attr.AnnouncedRemaining)
	AnnouncedFreshKey     = attribute.Key(attr.AnnouncedFresh)
	AnnouncedSpanIDKey    = attribute.Key(attr.AnnouncedSpanID)
	HopKey                = attribute.Key(attr.Hop)
	ResetKey              = attribute.Key(attr.Reset)
	FlagsKey              = attribute.Key(attr.Flags)
	DegradedKey           = attribute.Key(attr.Degraded)
	DetachedKey           = attribute.Key(attr.Detached)
	CallerKey             = attribute.Key(attr.Caller)
	CalleeKey             = attribute.Key(attr.Callee)
	OperationKey          = attribute.Key(attr.Operation)
	PlanRevisionKey       = attribute.Key(attr.PlanRevision)
	WorkAfterKey          = attribute.Key(attr.WorkAfter)
	AttemptKey            = attribute.Key(attr.Attempt)
	FindingsKey           = attribute.Key(attr.Findings)
	PartialKey            = attribute.Key(attr.Partial)
)
