package analyzer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/finding"
)

// Settings are taken as they are: what is left out is 0, but for all of them.
func TestSettingsOutOfRangeAreAnError(t *testing.T) {
	for _, bad := range []finding.Settings{
		{MaxSkew: 50e6}, {Utilization: 80}, {Utilization: 0.8, ResetFloor: -1}, {Utilization: 0.8, ResetShare: 1}, {Utilization: 0.8, MaxSkew: 1},
	} {
		if _, err := Analyze(t.Context(), Config{Settings: bad}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "setting ") {
			t.Errorf("%+v: %v, want an error", bad, err)
		}
	}
	for _, good := range []finding.Settings{{}, {Utilization: 10}, finding.Defaults} {
		if _, err := Analyze(t.Context(), Config{Settings: good}); !errors.Is(err, ErrNothingUsable) {
			t.Errorf("%+v: %v, want no error but that there is nothing to read", good, err)
		}
	}
}

func TestParse(t *testing.T) {
	if b, err := ParseEndpointBudget("svc GET /a=b=800ms"); err != nil || b.Endpoint != "svc GET /a=b" || b.Budget != 800*time.Millisecond {
		t.Errorf("the name must end at the last '=': %+v, %v", b, err)
	}
	if b, err := ParseEndpointBudget("1.5s"); err != nil || b.Endpoint != "" || b.Budget != 1500*time.Millisecond {
		t.Errorf("%+v, %v", b, err)
	}
	if h, err := ParseHopAmount("auth=5%"); err != nil || h.Hop != "auth" || h.Amount.Share != 0.05 {
		t.Errorf("%+v, %v", h, err)
	}
	if i, err := ParseIncident("svc GET /a=b=slow 400ms..4s @2.5%"); err != nil ||
		i != (Incident{Hop: "svc GET /a=b", Low: 400 * time.Millisecond, High: 4 * time.Second, Share: 0.025}) {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := ParseIncident("risk=slow 1s @100%"); err != nil || i != (Incident{Hop: "risk", Low: time.Second, High: time.Second, Share: 1}) {
		t.Errorf("%+v, %v", i, err)
	}
	for _, bad := range []string{
		"", "risk", "=slow 1s @1%", "risk=", "risk=1s @1%", "risk=slow 1s", "risk=slow @1%", "risk=slow 1 @1%", "risk=slow 0s..1s @1%",
		"risk=slow 1s.. @1%", "risk=slow ..1s @1%", "risk=slow 1s..2s 1%", "risk=slow 1s..2s @1", "risk=slow 1s..2s @101%",
		"risk=slow 1s..2s @-1%", "risk=slow 1s..2s @1s", "risk=slow 1s..2s @1% more", "risk=fast 1s..2s @1%",
	} {
		if i, err := ParseIncident(bad); err == nil {
			t.Errorf("ParseIncident(%q) = %+v, want an error", bad, i)
		}
	}
	for _, bad := range []string{"", "800", "-1s", "0s", "1e400s", "=1s", "x=", "x=5", "NaNs"} {
		if b, err := ParseEndpointBudget(bad); err == nil {
			t.Errorf("ParseEndpointBudget(%q) = %+v, want an error", bad, b)
		}
	}
	for _, bad := range []string{"", "hop", "=5ms", "hop=", "hop=-1%", "hop=101%", "hop=NaN%", "hop=5"} {
		if h, err := ParseHopAmount(bad); err == nil {
			t.Errorf("ParseHopAmount(%q) = %+v, want an error", bad, h)
		}
	}
}
