package budget

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer/quantile"
)

func TestSuggest(t *testing.T) {
	dist := func(values ...int64) *quantile.Dist {
		var s quantile.Sample
		for _, v := range values {
			s.Add(v, 0)
		}
		return s.Freeze()
	}
	upTo := func(n int64) *quantile.Dist {
		var s quantile.Sample
		for v := range n {
			s.Add(v+1, 0)
		}
		return s.Freeze()
	}
	tail := make([]int64, 1000) // P99 101, its upper bound 150
	for i := range tail {
		tail[i] = 101
	}
	for i := 996; i < 1000; i++ {
		tail[i] = 150
	}
	for _, c := range []struct {
		name string
		dist *quantile.Dist
		opts quantile.EstimateOptions
		want int64
		low  bool
	}{
		{"1.25 x 990 = 1237.5", upTo(1000), quantile.EstimateOptions{}, 1300, false},
		{"the upper bound is larger", dist(tail...), quantile.EstimateOptions{}, 150, false},
		{"few: 1.25 x 100 of the maximum", upTo(100), quantile.EstimateOptions{}, 130, true},
		{"few because they are not independent", upTo(1000), quantile.EstimateOptions{Shrink: 0.3}, 1300, true},
		{"one", dist(8), quantile.EstimateOptions{}, 10, true},
		{"below the clock's resolution", dist(0), quantile.EstimateOptions{Resolution: 1e6}, 1_300_000, true},
		{"two digits stay", dist(79), quantile.EstimateOptions{}, 99, true},
		{"none", nil, quantile.EstimateOptions{}, 0, true},
		{"the largest", dist(math.MaxInt64), quantile.EstimateOptions{}, math.MaxInt64, true},
	} {
		if got, low := Suggest(c.dist, c.opts); got != c.want || low != c.low {
			t.Errorf("%s: %d, low %v, want %d, %v", c.name, got, low, c.want, c.low)
		}
	}
}

func TestAttemptTimeout(t *testing.T) {
	for _, c := range []struct {
		name                              string
		budget, attempt, operation, floor int64
		want                              int64
	}{
		{"one attempt takes all", 200, 100, 100, 10, 200},
		{"two attempts in the P99", 200, 50, 100, 10, 100},
		{"at least the floor", 200, 1, 100, 10, 10},
		{"but never more than the budget", 200, 1, 100, 300, 200},
		{"unknown operation", 200, 50, 0, 10, 200},
		{"attempts of other calls", 200, 150, 100, 10, 200},
	} {
		if got := AttemptTimeout(c.budget, c.attempt, c.operation, c.floor); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func ExampleSuggest() {
	var s quantile.Sample
	for i := range int64(1000) {
		s.Add(i*int64(time.Millisecond), 0)
	}
	budget, low := Suggest(s.Freeze(), quantile.EstimateOptions{})
	fmt.Println(time.Duration(budget), low)
	// Output: 1.3s false
}

func TestAttemptsWithin(t *testing.T) {
	for _, c := range []struct {
		budget, timeout, pause int64
		want                   int
	}{
		{100, 50, 0, 2},
		{100, 50, 1, 1}, // 50 + 1 + 50 is too much
		{101, 50, 1, 2},
		{100, 100, 30, 1},
		{99, 100, 0, 0},
		{160, 40, 20, 3},
		{0, 0, 0, 0},
	} {
		if got := AttemptsWithin(c.budget, c.timeout, c.pause); got != c.want {
			t.Errorf("%d holds %d attempts of %d with pauses of %d, want %d", c.budget, got, c.timeout, c.pause, c.want)
		}
	}
}
