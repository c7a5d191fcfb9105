package trace

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// exclusive sums the critical path by node, and fails unless the segments tile
// the root's interval from its end to its start.
func exclusive(t *testing.T, nodes []Node, path []Segment) []int64 {
	t.Helper()
	out := make([]int64, len(nodes))
	at := nodes[0].End
	for _, s := range path {
		if s.Start >= s.End || s.End != at {
			t.Fatalf("segment [%d,%d] of node %d follows one that starts at %d; nodes %v path %v", s.Start,
				s.End, s.Node, at, nodes, path)
		}
		if n := nodes[s.Node]; s.Start < n.Start || s.End > n.End {
			t.Fatalf("segment [%d,%d] is outside of node %d [%d,%d]", s.Start, s.End, s.Node, n.Start, n.End)
		}
		out[s.Node] += s.End - s.Start
		at = s.Start
	}
	if len(path) > 0 && at != nodes[0].Start {
		t.Fatalf("the path ends at %d, the root starts at %d; nodes %v path %v", at, nodes[0].Start, nodes, path)
	}
	return out
}

func TestCriticalPathOfKnownTrees(t *testing.T) {
	tests := []struct {
		name  string
		nodes []Node // root first
		want  []int64
		self  []int64
	}{
		{
			// R |-----------------------------| 100
			// a    |--------| 40
			// b          |-------------| 80
			// c                        |--| 95
			name:  "of overlapping children the last to end is waited for",
			nodes: []Node{{-1, 0, 1000}, {0, 100, 400}, {0, 300, 800}, {0, 800, 950}},
			want:  []int64{350, 0, 500, 150}, self: []int64{150, 300, 500, 150},
		},
		{
			// R |-----------------------------| 100
			// d                |--------------| 100
			// b                 || 50.2-50.8, ends within the tolerance but starts after d
			name:  "a child that starts after the point reached makes no negative segment",
			nodes: []Node{{-1, 0, 1000}, {0, 500, 1000}, {0, 502, 508}},
			want:  []int64{500, 500, 0}, self: []int64{500, 500, 6},
		},
		{
			// P |----------|
			// A |-----|
			// B       |----|   starts when A ends
			name:  "back-to-back siblings are both on the path",
			nodes: []Node{{-1, 100, 200}, {0, 100, 150}, {0, 150, 200}},
			want:  []int64{0, 50, 50}, self: []int64{0, 50, 50},
		},
		{
			name:  "back-to-back siblings with own time after them",
			nodes: []Node{{-1, 0, 100}, {0, 10, 50}, {0, 50, 90}},
			want:  []int64{20, 40, 40}, self: []int64{20, 40, 40},
		},
		{
			// The window is 100, so the tolerance is 1: an end at 151 counts, one at 152 does not.
			name:  "an end within one hundredth of the window is before the next start",
			nodes: []Node{{-1, 100, 200}, {0, 100, 151}, {0, 150, 200}},
			want:  []int64{0, 50, 50}, self: []int64{0, 51, 50},
		},
		{
			name:  "an end beyond it is not",
			nodes: []Node{{-1, 100, 200}, {0, 100, 152}, {0, 150, 200}},
			want:  []int64{50, 0, 50}, self: []int64{0, 52, 50},
		},
		{
			name:  "of two earlier siblings the later end wins",
			nodes: []Node{{-1, 0, 200}, {0, 0, 120}, {0, 0, 150}, {0, 150, 200}},
			want:  []int64{0, 0, 150, 50}, self: []int64{0, 120, 150, 50},
		},
		{
			// R |------------------------------| 1000
			// c               |----------------| 500-1000
			// y |-------------|                  0-500
			// x             |--|                 450-504: within the tolerance, so both y and x reach c
			name:  "of two that reach the next start the earlier start wins",
			nodes: []Node{{-1, 0, 1000}, {0, 0, 500}, {0, 450, 504}, {0, 500, 1000}},
			want:  []int64{0, 500, 0, 500}, self: []int64{0, 500, 54, 500},
		},
		{
			// root |----------|
			// late              |----|
			// grand              |--|
			name:  "a child after its parent's end is not on the path, nor is what is below it",
			nodes: []Node{{-1, 0, 100}, {0, 120, 160}, {1, 125, 150}},
			want:  []int64{100, 0, 0}, self: []int64{100, 15, 25},
		},
		{
			// root |----------|          100
			// a         |----------|     150, clipped to 100
			// b                 |--|     110-140: outside of what is left of a
			name:  "a clipped parent clips its children",
			nodes: []Node{{-1, 0, 100}, {0, 50, 150}, {1, 110, 140}},
			want:  []int64{50, 50, 0}, self: []int64{50, 70, 30},
		},
		{
			// root |--------------------|             100
			// child  |-----------------------|        10-130, clipped to 100
			// grand    |-------------------|          20-120, clipped to 100
			name:  "both child and grandchild run over the root's end",
			nodes: []Node{{-1, 0, 100}, {0, 10, 130}, {1, 20, 120}},
			want:  []int64{10, 10, 80}, self: []int64{10, 20, 100},
		},
		{
			// main |------------------------| 600
			// foo1 |---|                      100
			// foo2 |-------|                  200
			// foo3         |-----------|      200-500
			name:  "overlapping siblings: the path is inferred from times alone",
			nodes: []Node{{-1, 0, 600}, {0, 0, 100}, {0, 0, 200}, {0, 200, 500}},
			want:  []int64{100, 0, 200, 300}, self: []int64{100, 100, 200, 300},
		},
		{
			name:  "three overlap by one hundredth: the time is cut where the next starts",
			nodes: []Node{{-1, 0, 600}, {0, 0, 200}, {0, 195, 295}, {0, 290, 590}},
			want:  []int64{10, 195, 95, 300}, self: []int64{10, 200, 100, 300},
		},
		{
			name:  "children without duration take nothing",
			nodes: []Node{{-1, 0, 100}, {0, 50, 50}, {0, 100, 100}, {0, 0, 0}},
			want:  []int64{100, 0, 0, 0}, self: []int64{100, 0, 0, 0},
		},
		{
			name:  "a child that covers its parent takes all",
			nodes: []Node{{-1, 0, 100}, {0, -50, 150}},
			want:  []int64{0, 100}, self: []int64{0, 200},
		},
		{
			name:  "a root without duration has no path",
			nodes: []Node{{-1, 50, 50}, {0, 40, 60}},
			want:  []int64{0, 0}, self: []int64{0, 20},
		},
		{
			name:  "a root alone",
			nodes: []Node{{-1, 5, 7}},
			want:  []int64{2}, self: []int64{2},
		},
	}
	var w Walker
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, exclusive(t, test.nodes, w.CriticalPath(test.nodes))); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
			var self []int64
			for _, o := range w.OwnTimes(test.nodes) {
				self = append(self, o.Self)
			}
			if diff := cmp.Diff(test.self, self); diff != "" {
				t.Errorf("self (-want +got):\n%s", diff)
			}
		})
	}
}

func ExampleWalker_CriticalPath() {
	// root |------------------| 100
	// a      |-----|            10-40
	// b          |--------|     30-80
	var w Walker
	for _, s := range w.CriticalPath([]Node{{-1, 0, 100}, {0, 10, 40}, {0, 30, 80}}) {
		fmt.Printf("%d-%d node %d\n", s.Start, s.End, s.Node)
	}
	// Output:
	// 80-100 node 0
	// 30-80 node 2
	// 0-30 node 0
}

func TestNoNodesHaveNoPath(t *testing.T) {
	var w Walker
	if path, own := w.CriticalPath(nil), w.OwnTimes(nil); len(path) != 0 || len(own) != 0 {
		t.Errorf("path %v, own %v", path, own)
	}
}

func TestEveryChildIsSeenHoweverMany(t *testing.T) {
	for _, n := range []int{65, 1000} {
		nodes := []Node{{-1, 0, int64(10 * n)}}
		want := []int64{int64(3 * n)}
		for i := range int64(n) { // [0,7], [10,17], …
			nodes = append(nodes, Node{0, 10 * i, 10*i + 7})
			want = append(want, 7)
		}
		// The last gap is wider than the tolerance; none of the others matters.
		var w Walker
		if diff := cmp.Diff(want, exclusive(t, nodes, w.CriticalPath(nodes))); diff != "" {
			t.Errorf("%d children (-want +got):\n%s", n, diff)
		}
		if own := w.OwnTimes(nodes)[0]; own != (OwnTime{Self: int64(3 * n), Tail: 3, Waited: true}) {
			t.Errorf("%d children: root %+v", n, own)
		}
	}
}

func TestTailIsTheTimeAfterTheLastChild(t *testing.T) {
	tests := []struct {
		name  string
		nodes []Node
		want  OwnTime
	}{
		{"head and tail", []Node{{-1, 0, 100}, {0, 60, 95}}, OwnTime{65, 5, true}},
		{"no child", []Node{{-1, 0, 100}}, OwnTime{100, 100, false}},
		{"the first child ends last", []Node{{-1, 0, 100}, {0, 10, 90}, {0, 20, 30}}, OwnTime{20, 10, true}},
		{"a child of no duration still ended then", []Node{{-1, 0, 100}, {0, 60, 60}}, OwnTime{100, 40, true}},
		{"a child over the end leaves none", []Node{{-1, 0, 100}, {0, 60, 130}}, OwnTime{60, 0, true}},
		{"a child after the end never ran inside", []Node{{-1, 0, 100}, {0, 100, 130}}, OwnTime{100, 100, false}},
		{"a child before the start neither", []Node{{-1, 0, 100}, {0, -20, -10}}, OwnTime{100, 100, false}},
	}
	var w Walker
	for _, test := range tests {
		if got := w.OwnTimes(test.nodes)[0]; got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// randomNodes makes a tree of work in preorder. Children overlap, run over
// their parents' ends, lie outside of them or take no time; times are drawn
// from a grid that is coarse or fine, so that ties are common or rare.
func randomNodes(r *rand.Rand, n int) []Node {
	nodes := []Node{{Parent: -1, Start: 0, End: 1 + r.Int64N([]int64{20, 400, 1_000_000}[r.IntN(3)])}}
	way := []int32{0}
	for len(nodes) < n {
		way = way[:1+r.IntN(len(way))]
		p := way[len(way)-1]
		size := max(nodes[p].End-nodes[p].Start, 1)
		start := nodes[p].Start + r.Int64N(size+size/2+1) - size/4
		end := start + r.Int64N(size+1)
		if r.IntN(8) == 0 {
			end = start
		}
		way = append(way, int32(len(nodes)))
		nodes = append(nodes, Node{Parent: p, Start: start, End: end})
	}
	return nodes
}

// pathByTheRule walks back as the rule is written, trying every unused child
// at each step.
func pathByTheRule(nodes []Node, i int32, lo, hi int64, out []Segment) []Segment {
	tolerance := (hi - lo) / pathTolerance
	used := make([]bool, len(nodes))
	cur := hi
	for cur > lo {
		best, bestEnd := int32(-1), int64(0)
		for c := range nodes {
			n := nodes[c]
			if n.Parent != i || used[c] || min(n.End,
				hi) > cur+tolerance || n.End <= lo || n.Start >= n.End || n.Start >= cur {
				continue
			}
			end := min(n.End, cur)
			if best < 0 || end > bestEnd || end == bestEnd && n.Start < nodes[best].Start {
				best, bestEnd = int32(c), end
			}
		}
		if best < 0 {
			break
		}
		used[best] = true
		if bestEnd < cur {
			out = append(out, Segment{i, bestEnd, cur})
		}
		start := max(nodes[best].Start, lo)
		out = pathByTheRule(nodes, best, start, bestEnd, out)
		cur = start
	}
	if cur > lo {
		out = append(out, Segment{i, lo, cur})
	}
	return out
}

func TestCriticalPathFollowsItsRule(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var w Walker
	for range 20_000 {
		nodes := randomNodes(r, 1+r.IntN(14))
		want := pathByTheRule(nodes, 0, nodes[0].Start, nodes[0].End, nil)
		if diff := cmp.Diff(want, slices.Clone(w.CriticalPath(nodes))); len(want) > 0 && diff != "" {
			t.Fatalf("nodes %v (-rule +got):\n%s", nodes, diff)
		}
	}
}

func TestCriticalPathTilesTheRoot(t *testing.T) {
	trees := 100_000
	if testing.Short() {
		trees = 10_000
	}
	r := rand.New(rand.NewPCG(2, 2))
	var w, again Walker
	permuted := 0
	for range trees {
		nodes := randomNodes(r, 1+r.IntN(40))
		times := exclusive(t, nodes, w.CriticalPath(nodes))
		shuffled, from := permuteSiblings(r, nodes)
		other := exclusive(t, shuffled, again.CriticalPath(shuffled))
		if siblingsStartTogether(nodes) {
			continue // the last tie-break is the order of the nodes
		}
		permuted++
		for i := range other {
			if other[i] != times[from[i]] {
				t.Fatalf("the order of siblings shows: node %d of %v has %d, permuted %d", from[i], nodes,
					times[from[i]], other[i])
			}
		}
	}
	if permuted < trees/10 {
		t.Errorf("only %d of %d trees were compared", permuted, trees)
	}
}

func siblingsStartTogether(nodes []Node) bool {
	seen := make(map[Node]bool)
	for _, n := range nodes {
		n.End = 0
		if seen[n] {
			return true
		}
		seen[n] = true
	}
	return false
}

// permuteSiblings gives the same tree with siblings in another order, and for
// each of its nodes the one it came from.
func permuteSiblings(r *rand.Rand, nodes []Node) ([]Node, []int32) {
	children := make([][]int32, len(nodes))
	for i, n := range nodes[1:] {
		children[n.Parent] = append(children[n.Parent], int32(i+1))
	}
	var out []Node
	var from []int32
	var visit func(i, parent int32)
	visit = func(i, parent int32) {
		at := int32(len(out))
		out = append(out, Node{parent, nodes[i].Start, nodes[i].End})
		from = append(from, i)
		r.Shuffle(len(children[i]), func(a, b int) { c := children[i]; c[a], c[b] = c[b], c[a] })
		for _, c := range children[i] {
			visit(c, at)
		}
	}
	visit(0, -1)
	return out, from
}

func TestOwnTimesAreWhatNoChildCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	var w Walker
	for range 5_000 {
		nodes := randomNodes(r, 1+r.IntN(8))
		if nodes[0].End > 400 {
			continue // the grid below has a point for each ns
		}
		own := w.OwnTimes(nodes)
		for i, n := range nodes {
			want := OwnTime{}
			last := n.Start
			for at := n.Start; at < n.End; at++ {
				covered := false
				for _, c := range nodes {
					covered = covered || c.Parent == int32(i) && c.Start <= at && at < c.End
				}
				if !covered {
					want.Self++
				}
			}
			for _, c := range nodes {
				if c.Parent == int32(i) && c.Start < n.End && c.End >= n.Start {
					want.Waited = true
					last = max(last, min(c.End, n.End))
				}
			}
			want.Tail = n.End - last
			if own[i] != want {
				t.Fatalf("node %d of %v: %+v, want %+v", i, nodes, own[i], want)
			}
		}
	}
}

// TestCriticalPathOfPublishedCases compares with the test cases of CRISP, which
// carry their expectations. In four of them siblings overlap by a hundredth:
// CRISP counts the overlap for both; here it is counted once, so that the path
// tiles the root.
func TestCriticalPathOfPublishedCases(t *testing.T) {
	dir := os.Getenv("LATENCYBUDGET_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "crisp", "*.json"))
	if len(files) == 0 {
		t.Skipf("no %s: set LATENCYBUDGET_CORPUS to a folder of public traces", filepath.Join(dir, "crisp"))
	}
	deviating := map[string]map[string]int64{
		"crisp-10.jaeger.json": {"O1": 402, "O2": 199, "O3": 99, "O4": 300},
		"crisp-19.jaeger.json": {"O1": 10, "O2": 195, "O3": 95, "O4": 300},
		"crisp-20.jaeger.json": {"O1": 10, "O2": 195, "O3": 95, "O4": 300},
		"crisp-21.jaeger.json": {"O1": 10, "O2": 195, "O3": 95, "O4": 300},
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var doc struct {
				Data []struct {
					Spans []struct {
						SpanID, OperationName, ProcessID string
						StartTime, Duration              int64
						References                       []struct{ SpanID string }
					}
				}
				Testing json.RawMessage
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatal(err)
			}
			want := make(map[string]int64)
			var list []map[string]int64
			var object struct{ OpTimeExclusive map[string]int64 }
			if json.Unmarshal(doc.Testing, &list) == nil {
				object.OpTimeExclusive = list[0]
			} else if err := json.Unmarshal(doc.Testing, &object); err != nil {
				t.Fatal(err)
			}
			for name, v := range object.OpTimeExclusive {
				_, op, _ := strings.Cut(name, " ")
				want[op] += v
			}
			if w, ok := deviating[filepath.Base(file)]; ok {
				want = w
			}
			var spans []Span
			id := func(text string) (id SpanID) { copy(id[:], text); return id }
			for _, s := range doc.Data[0].Spans {
				one := Span{
					ID: id(s.SpanID), Kind: KindServer, Start: s.StartTime, Duration: s.Duration,
					Desc: &Desc{Service: s.ProcessID, Operation: s.OperationName},
				}
				if len(s.References) > 0 {
					one.Parent = id(s.References[0].SpanID)
				}
				spans = append(spans, one)
			}
			tr := NewTrace(spans)
			var tree Tree
			var paths Paths
			var w Walker
			tree.Build(tr, tr.Entries()[0], &paths, nil)
			got := make(map[string]int64)
			for i, v := range exclusive(t, nodesOf(&tree), w.CriticalPath(nodesOf(&tree))) {
				_, key := paths.At(tree.Calls[i].Path)
				got[key.Operation] += v
			}
			drop0 := func(_ string, v int64) bool { return v == 0 }
			maps.DeleteFunc(got, drop0)
			maps.DeleteFunc(want, drop0)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
