package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotesMergeInAnyOrder(t *testing.T) {
	parts := make([]Notes, 3)
	parts[0].Add(NoteCycle, 2, "02/01", "b.json:7")
	parts[0].Add(NoteBadSpan, 1, "", "b.json:9")
	parts[1].Add(NoteCycle, 1, "01/09", "")
	parts[2].Add(NoteSelfParent, 4, "03/01", "")
	parts[2].Add(NoteCycle, 0, "00/00", "a.json:1")
	want := []Note{
		{Kind: NoteBadSpan, Count: 1, Where: "b.json:9"},
		{Kind: NoteCycle, Count: 3, Example: "01/09", Where: "b.json:7"},
		{Kind: NoteSelfParent, Count: 4, Example: "03/01"},
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		var sum Notes
		for _, i := range order {
			sum.Merge(parts[i])
		}
		if diff := cmp.Diff(want, sum.List()); diff != "" {
			t.Errorf("order %v (-want +got):\n%s", order, diff)
		}
		if n := sum.Count(NoteCycle); n != 3 {
			t.Errorf("order %v: %d cycles, want 3", order, n)
		}
		if n := sum.Count(NoteNegative); n != 0 {
			t.Errorf("order %v: %d negative durations, want 0", order, n)
		}
	}
	left := Notes{}
	left.Merge(parts[0])
	left.Merge(parts[1])
	right := Notes{}
	right.Merge(parts[1])
	right.Merge(parts[2])
	left.Merge(parts[2])
	whole := Notes{}
	whole.Merge(parts[0])
	whole.Merge(right)
	if diff := cmp.Diff(left.List(), whole.List()); diff != "" {
		t.Errorf("grouping shows: %s", diff)
	}
}
