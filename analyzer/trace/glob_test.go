package trace

import "testing"

func TestGlobsHaveStarsAndQuestionMarks(t *testing.T) {
	for _, c := range []struct {
		glob, text string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "POST /orders", true}, // * crosses slashes and spaces
		{"gateway *", "gateway POST /orders", true},
		{"gateway", "gateway POST /orders", false},
		{"*orders", "gateway POST /orders", true},
		{"*or*er?", "gateway POST /orders", true},
		{"?", "支", true},
		{"支付*", "支付服务 下单", true},
		{"[a]", "a", false}, // only * and ? are special
		{"[a]", "[a]", true},
		{"a*b*c", "aXbXbXc", true},
		{"a*b*c", "aXbXbX", false},
		{"*a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", false},
	} {
		if got := Match(c.glob, c.text); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.glob, c.text, got)
		}
	}
}
