package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/finding"
)

// addRules registers the flags that rules are set by: they are named after the
// settings of the Collector's processor, and have its defaults.
func addRules(flags *pflag.FlagSet, c *analyzer.Config) {
	flags.StringArrayVar(&c.AllowDetached, "allow-detached", nil,
		"no findings for calls that match this glob on 'service operation', nor for what they call: "+
			"they are meant to outlive the request, such as streams that no attribute tells (repeatable)")
	d, s := finding.Defaults, &c.Settings
	flags.Float64Var(&s.Utilization, "utilization-threshold", d.Utilization, "share of its budget that a hop may use without a finding")
	flags.DurationVar((*time.Duration)(&s.ResetFloor), "reset-tolerance-absolute", time.Duration(d.ResetFloor),
		"how much later than what was left a deadline may lie without a finding, ...")
	flags.Float64Var(&s.ResetShare, "reset-tolerance-fraction", d.ResetShare, "... or this share of what was left, the larger of the two")
	flags.DurationVar((*time.Duration)(&s.MaxSkew), "max-clock-skew", time.Duration(d.MaxSkew),
		"how far clocks may be apart where a deadline was sent as a point in time")
}

// checkRules looks for mistakes in these flags.
func checkRules(c *analyzer.Config) error {
	err := c.Settings.Validate(finding.SettingNames{
		Utilization: "--utilization-threshold",
		ResetFloor:  "--reset-tolerance-absolute", ResetShare: "--reset-tolerance-fraction",
		MaxSkew: "--max-clock-skew",
	})
	if err != nil {
		return usageError{err}
	}
	return nil
}
