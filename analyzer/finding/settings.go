package finding

import (
	"errors"
	"fmt"
	"time"
)

// Settings are the thresholds of the rules that users may set: the Collector's
// processor and budgetctl have the same.
type Settings struct {
	// Utilization is the share of its budget that a hop may use; above 0, at most 10.
	Utilization float64 `json:"utilization_threshold"`
	// ResetFloor (ns, up to an hour) and ResetShare (at least 0, less than 1), the
	// larger of the two, are how much later than what was left a deadline may lie: a
	// relative timeout starts again when it arrives, and gRPC libraries may send up to
	// 3 % more on purpose.
	ResetFloor int64   `json:"reset_tolerance_absolute_ns"`
	ResetShare float64 `json:"reset_tolerance_fraction"`
	// MaxSkew is how far clocks may be apart where a deadline was sent as a point
	// in time, ns, up to an hour.
	MaxSkew int64 `json:"max_clock_skew_ns"`
}

// Defaults are the settings that rules are described with.
var Defaults = Settings{Utilization: 0.8, ResetFloor: 5e6, ResetShare: 0.04, MaxSkew: 50e6}

// SettingNames are what users know the settings by.
type SettingNames struct{ Utilization, ResetFloor, ResetShare, MaxSkew string }

// Validate tells by these names which settings are out of range, and which values
// are valid.
func (s Settings) Validate(names SettingNames) error {
	var errs []error
	if !(s.Utilization > 0 && s.Utilization <= 10) { // 80 is meant as a percentage, and would find nothing.
		errs = append(errs, fmt.Errorf("%s must be above 0 and at most 10, such as 0.8 for 80 %% (got %v)", names.Utilization, s.Utilization))
	}
	errs = append(errs, validTime(names.ResetFloor, s.ResetFloor, "5ms"))
	if !(s.ResetShare >= 0 && s.ResetShare < 1) {
		errs = append(errs, fmt.Errorf("%s must be at least 0 and less than 1, such as 0.04 (got %v)", names.ResetShare, s.ResetShare))
	}
	return errors.Join(append(errs, validTime(names.MaxSkew, s.MaxSkew, "50ms"))...)
}

// validTime refuses what is negative, more than an hour, or was written
// without a unit, which makes nanoseconds of it.
func validTime(name string, ns int64, example string) error {
	switch d := time.Duration(ns); {
	case d < 0 || d > time.Hour:
		return fmt.Errorf("%s must be from 0s to 1h, such as %s (got %v)", name, example, d)
	case d > 0 && d < time.Millisecond:
		return fmt.Errorf("%s must be 0s or at least 1ms, such as %s (got %v): a number without a unit counts nanoseconds", name, example, d)
	}
	return nil
}
