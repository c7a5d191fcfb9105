package latencybudgetprocessor

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/latencybudget/latencybudget/analyzer/finding"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// Config is the configuration of the processor.
type Config struct {
	// UtilizationThreshold is the share of its budget that a span may use before it
	// is flagged. Default 0.8; above 0, at most 10.
	UtilizationThreshold float64 `mapstructure:"utilization_threshold"`
	// ResetTolerance is how much later than what was left a deadline may lie before
	// it counts as extended.
	ResetTolerance ResetTolerance `mapstructure:"reset_tolerance"`
	// MaxClockSkew is how far the clocks of two hosts may be apart, where a deadline
	// was sent as a point in time. Default 50ms.
	MaxClockSkew time.Duration `mapstructure:"max_clock_skew"`
	// BudgetsFile is a plan file as budgetctl writes it. Hops are also held to their
	// budgets in it, and spans that carry none are judged by it alone. It is read
	// again when it changes. Default none.
	BudgetsFile string `mapstructure:"budgets_file"`
	// RemainingAttributes are attributes in which services write what is left of the
	// budget when a span begins. Default deadline_remaining_ms, in ms.
	RemainingAttributes []RemainingAttribute `mapstructure:"remaining_attributes"`
	// AllowDetached are globs on "service operation" of calls that are meant to outlive
	// the request that makes them: neither they nor what they call is judged. Default
	// none.
	AllowDetached []string `mapstructure:"allow_detached"`
	// FlaggedEvent adds an event to each flagged span, for backends that show events
	// better than attributes. Default false.
	FlaggedEvent bool `mapstructure:"flagged_event"`
	// MaxHops is the number of different hops, as caller, callee and operation, that
	// are named; spans of all others are named _other. Default 1000.
	MaxHops int `mapstructure:"max_hops"`
}

// ResetTolerance is an allowance of time: the larger of its two parts.
type ResetTolerance struct {
	// Absolute is a time. Default 5ms.
	Absolute time.Duration `mapstructure:"absolute"`
	// Fraction is a share of what was left. Default 0.04, because some gRPC
	// libraries send up to 3 % more on purpose.
	Fraction float64 `mapstructure:"fraction"`
}

// RemainingAttribute is an attribute that says what is left of the budget.
type RemainingAttribute struct {
	Name string `mapstructure:"name"`
	// Unit of its number: ns, us, ms or s.
	Unit string `mapstructure:"unit"`
}

func createDefaultConfig() component.Config {
	d := finding.Defaults
	return &Config{
		UtilizationThreshold: d.Utilization,
		ResetTolerance:       ResetTolerance{Absolute: time.Duration(d.ResetFloor), Fraction: d.ResetShare},
		MaxClockSkew:         time.Duration(d.MaxSkew),
		RemainingAttributes:  []RemainingAttribute{{Name: "deadline_remaining_ms", Unit: "ms"}},
		MaxHops:              1000,
	}
}

// Validate tells what is wrong with the configuration, and which values are valid.
func (c *Config) Validate() error {
	var errs []error
	errs = append(errs, c.settings().Validate(finding.SettingNames{
		Utilization: "utilization_threshold",
		ResetFloor:  "reset_tolerance: absolute", ResetShare: "reset_tolerance: fraction",
		MaxSkew: "max_clock_skew",
	}))
	if _, err := c.remaining(); err != nil {
		errs = append(errs, fmt.Errorf("remaining_attributes: %w", err))
	}
	if err := finding.CheckAllowed(c.AllowDetached); err != nil {
		errs = append(errs, fmt.Errorf("allow_detached: %w", err))
	}
	if c.MaxHops < 1 || c.MaxHops > mostHops {
		errs = append(errs, fmt.Errorf("max_hops must be from 1 to %d (got %d)", mostHops, c.MaxHops))
	}
	return errors.Join(errs...)
}

// mostHops bounds max_hops, and with it the memory that names take.
const mostHops = 100_000

// remaining are RemainingAttributes as readers have them; never nil.
func (c *Config) remaining() ([]trace.RemainingAttribute, error) {
	list := make([]trace.RemainingAttribute, 0, len(c.RemainingAttributes))
	for _, r := range c.RemainingAttributes {
		unit, err := trace.ParseRemainingUnit(r.Unit)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", r.Name, err)
		}
		list = append(list, trace.RemainingAttribute{Name: r.Name, Unit: unit})
	}
	return list, trace.CheckRemainingAttributes(list)
}

// settings are those of the rules.
func (c *Config) settings() finding.Settings {
	return finding.Settings{
		Utilization: c.UtilizationThreshold,
		ResetFloor:  int64(c.ResetTolerance.Absolute), ResetShare: c.ResetTolerance.Fraction,
		MaxSkew: int64(c.MaxClockSkew),
	}
}
