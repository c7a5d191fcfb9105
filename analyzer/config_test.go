package analyzer

import (
	"testing"
	"time"
)

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
