package latencybudgetprocessor

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(*Config)) *Config {
		c := defaults()
		change(c)
		return c
	}
	tests := map[string]struct {
		want *Config
		err  []string // parts of the message
	}{
		"": {want: &Config{
			UtilizationThreshold: 0.8, ResetTolerance: ResetTolerance{Absolute: 5 * time.Millisecond, Fraction: 0.04},
			MaxClockSkew: 50 * time.Millisecond, MaxHops: 1000,
			RemainingAttributes: []RemainingAttribute{{Name: "deadline_remaining_ms", Unit: "ms"}},
		}},
		"all": {want: &Config{
			UtilizationThreshold: 0.9, ResetTolerance: ResetTolerance{Absolute: 20 * time.Millisecond, Fraction: 0.1},
			MaxClockSkew: 100 * time.Millisecond, BudgetsFile: "plan.yaml", FlaggedEvent: true, MaxHops: 50,
			AllowDetached:       []string{"prices Watch", "mail *"},
			RemainingAttributes: []RemainingAttribute{{Name: "app.left", Unit: "us"}, {Name: "app.deadline", Unit: "s"}},
		}},
		"part_of_tolerance":              {want: changed(func(c *Config) { c.ResetTolerance.Absolute = 0 })},
		"over_one":                       {want: changed(func(c *Config) { c.UtilizationThreshold = 1.5 })},
		"invalid_threshold_zero":         {err: []string{"utilization_threshold must be above 0", "got 0"}},
		"invalid_threshold_negative":     {err: []string{"utilization_threshold must be above 0", "got -0.8"}},
		"invalid_threshold_nan":          {err: []string{"utilization_threshold must be above 0", "got NaN"}},
		"invalid_threshold_percent":      {err: []string{"utilization_threshold must be above 0 and at most 10", "0.8 for 80 %", "got 80"}},
		"invalid_threshold_infinite":     {err: []string{"utilization_threshold must be above 0", "got +Inf"}},
		"invalid_tolerance_without_unit": {err: []string{"reset_tolerance: absolute must be 0s or at least 1ms", "got 300ns", "without a unit"}},
		"invalid_tolerance_negative":     {err: []string{"reset_tolerance: absolute must be from 0s to 1h", "got -5ms"}},
		"invalid_fraction":               {err: []string{"fraction must be at least 0 and less than 1", "got 4"}},
		"invalid_fraction_nan":           {err: []string{"fraction must be at least 0 and less than 1", "got NaN"}},
		"invalid_skew_without_unit":      {err: []string{"max_clock_skew must be 0s or at least 1ms", "got 50ns", "without a unit"}},
		"invalid_skew":                   {err: []string{"max_clock_skew must be from 0s to 1h", "got 2h0m0s"}},
		"no_remaining_attributes":        {want: changed(func(c *Config) { c.RemainingAttributes = []RemainingAttribute{} })},
		"invalid_unit":                   {err: []string{"remaining_attributes", "app.left", `"min"`, "ns, us, ms or s"}},
		"invalid_no_unit":                {err: []string{"remaining_attributes", "app.left", "ns, us, ms or s"}},
		"invalid_name":                   {err: []string{"remaining_attributes", "name", "empty"}},
		"invalid_twice":                  {err: []string{"remaining_attributes", "app.left", "twice"}},
		"invalid_allow_detached":         {err: []string{"allow_detached", `"" names no call`, "'prices *'"}},
		"invalid_allow_detached_spaces":  {err: []string{"allow_detached", `" prices *"`}},
		"invalid_hops":                   {err: []string{"max_hops must be from 1 to 100000", "got 0"}},
		"invalid_several":                {err: []string{"utilization_threshold", "max_hops"}},
		"invalid_unknown":                {err: []string{"utilisation_threshold"}},
	}
	for key := range file.ToStringMap() {
		if _, tested := tests[strings.TrimPrefix(strings.TrimPrefix(key, "latency_budget"), "/")]; !tested {
			t.Errorf("%s is not tested", key)
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			id := component.NewIDWithName(NewFactory().Type(), name)
			sub, err := file.Sub(id.String())
			if err != nil {
				t.Fatal(err)
			}
			got := defaults()
			err = sub.Unmarshal(got)
			if err == nil {
				err = confmap.Validate(got)
			}
			if test.err == nil {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				return
			}
			if err == nil {
				t.Fatal("it is valid")
			}
			for _, part := range test.err {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the message does not say %q: %v", part, err)
				}
			}
		})
	}
}
