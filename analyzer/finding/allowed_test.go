package finding_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// A glob that matches no call is told, one that matches what another does as well is not.
func TestGlobsThatMatchNoCallAreTold(t *testing.T) {
	tr, _ := tree(t, []span{{name: ">edge", start: 0, end: 100}, {name: "edge>prices", under: ">edge", start: 10, end: 90}})
	allowed := finding.NewAllowed([]string{"mail *", "p*", "prices op"})
	for i := range tr.Calls {
		allowed.Has(tr, int32(i))
	}
	if diff := cmp.Diff([]string{"mail *"}, allowed.Unused()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Two calls may say the same of themselves and yet be called by different names, whichever is met first.
func TestWhetherACallIsAllowedDoesNotDependOnOthers(t *testing.T) {
	tr, _ := tree(t, []span{{name: ">a", start: 0, end: 100}, {name: "a>", under: ">a", start: 10, end: 90}})
	if tr.Trace.Spans[0].Desc != tr.Trace.Spans[1].Desc {
		t.Fatal("the spans are described in two ways: the test shows nothing")
	}
	for _, order := range [][]int32{{0, 1}, {1, 0}} {
		allowed := finding.NewAllowed([]string{"a op"})
		for _, call := range order {
			if got := allowed.Has(tr, call); got != (call == 0) {
				t.Errorf("in the order %v call %d: %v", order, call, got)
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
