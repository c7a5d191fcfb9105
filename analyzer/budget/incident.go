package budget

import (
	"math"

	"github.com/latencybudget/latencybudget/analyzer/profile"
)

// Incident is a what-if: a hop is slower than it was in some of the requests
// that call it. Its own time gets longer, after its own calls; whatever waited
// for it starts later by as much, and so do its callers end. Nothing is added to
// what else ran meanwhile.
type Incident struct {
	Hop int
	// Low and High bound the time in ns that comes on top, which is uniform
	// between them.
	Low, High int64
	// Ratio is the share of the requests with the hop in which it is slow.
	Ratio float64
}

// Slow returns the rows as they would have been with the incident, and how many
// requests it hit that did not fail. Which, and how hard, depends on the hashes
// of their traces alone.
func (p *Problem) Slow(rows *profile.Rows, i Incident) (slowed *profile.Rows, hit int) {
	n := rows.Len()
	out := *rows
	out.Start, out.Duration = make([][]int64, len(rows.Start)), make([][]int64, len(rows.Duration))
	for h := range rows.Duration {
		out.Start[h] = append(make([]int64, 0, n), rows.Start[h]...)
		out.Duration[h] = append(make([]int64, 0, n), rows.Duration[h]...)
	}
	none := limitSet{Timeouts: make([]float64, len(p.Hops))}
	for h := range none.Timeouts {
		none.Timeouts[h] = math.Inf(1)
	}
	var s shift
	s.reset(p)
	s.extra = make([]float64, len(p.Hops))
	for r := range n {
		if rows.Duration[i.Hop][r] < 0 || fraction(rows.Hash[r], 0) >= i.Ratio {
			continue
		}
		if !rows.FailedAt(0, r) {
			hit++
		}
		s.extra[i.Hop] = math.Round(float64(i.Low) + fraction(rows.Hash[r], 1)*float64(i.High-i.Low))
		s.run(rows, r, &none)
		for h := range p.Hops {
			if s.planned[h] && rows.Duration[h][r] >= 0 {
				out.Start[h][r] = int64(s.start[h])
				out.Duration[h][r] = int64(s.end[h] - s.start[h])
			}
		}
	}
	return &out, hit
}

// fraction returns a number from 0 to under 1 that looks random, the same for
// the same hash. It is the output function of SplitMix64 (Steele, Lea, Flood:
// Fast Splittable Pseudorandom Number Generators, 2014).
func fraction(hash, stream uint64) float64 {
	z := hash + (stream+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}
