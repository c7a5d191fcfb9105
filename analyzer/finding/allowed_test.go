package finding_test

import (
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/finding"
)

// A call is named by its callee: by what that calls itself, or else by what the caller
// calls it.
func TestCallsAreAllowedByTheNameOfTheirCallee(t *testing.T) {
	tr, _ := tree(t, []span{
		{name: ">edge", start: 0, end: 100},
		{name: "edge>prices", under: ">edge", start: 10, end: 90},
		{name: ">prices", under: "edge>prices", start: 11, end: 89},
		{name: "prices>db", under: ">prices", start: 20, end: 80},
		{name: "prices", under: ">prices", start: 81, end: 82},
	})
	for _, c := range []struct {
		globs []string
		want  string // the calls: the entry, prices, db
	}{
		{nil, "..."},
		{[]string{"prices op"}, ".x."},
		{[]string{"prices"}, "..."},
		{[]string{"p*"}, ".x."},
		{[]string{"db op"}, "..x"},
		{[]string{"?dge op", "db *"}, "x.x"},
		{[]string{"*"}, "xxx"},
	} {
		allowed := finding.NewAllowed(c.globs)
		if allowed.Any() != (len(c.globs) > 0) {
			t.Errorf("%q: any: %v", c.globs, allowed.Any())
		}
		for range 2 { // the second time from memory
			got := ""
			for i := range tr.Calls {
				got += map[bool]string{true: "x", false: "."}[allowed.Has(tr, int32(i))]
			}
			if got != c.want {
				t.Errorf("%q: %s, want %s", c.globs, got, c.want)
			}
		}
	}
}

func TestWhatCanNameNoCallIsRefused(t *testing.T) {
	if err := finding.CheckAllowed([]string{"prices *", "*", "SELECT"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", " prices *", "prices *\n"} {
		if err := finding.CheckAllowed([]string{"mail *", bad}); err == nil || !strings.Contains(err.Error(), "names no call") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
