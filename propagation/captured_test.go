package propagation

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// TestACapturedHeaderMeansWhatItMeantToTheService: whoever reads the header off a
// span understands what the propagator does. Only of parameters that are none of
// ours is it less strict.
func TestACapturedHeaderMeansWhatItMeantToTheService(t *testing.T) {
	const begin = `obs1;r=254.318;t=300;h=2;s="00f067aa0ba902b7"`
	const alphabet = `0123456789abrths;="-. ,A`
	rng := rand.New(rand.NewPCG(1, 2))
	var in trace.Interner
	cache := in.NewCache()
	valids := 0
	for range 200_000 {
		b := []byte(begin)
		for range rng.IntN(4) {
			switch at := rng.IntN(len(b)); rng.IntN(3) {
			case 0:
				b[at] = alphabet[rng.IntN(len(alphabet))]
			case 1:
				b = append(b[:at], b[at+1:]...)
			case 2:
				b = append(b[:at], append([]byte{alphabet[rng.IntN(len(alphabet))]}, b[at:]...)...)
			}
		}
		value := string(b)
		want, verdict := parse(value, int64(defaultMaxLimit))
		var a trace.Attributes
		key, _ := a.See([]byte("http.request.header." + Header))
		note := a.SetString(key, b)
		s := trace.Span{Kind: trace.KindServer, Parent: trace.SpanID(want.span)}
		if s.Parent.IsZero() {
			s.Parent[0] = 1
		}
		a.Describe(&s, trace.Resource{}, cache)
		got := s.Stamp != nil
		foreign := strings.Count(value, ";") != 4
		switch {
		case verdict == valid:
			valids++
			if !got || note != "" || s.Stamp.Announced != want.remaining || s.Stamp.Limit != want.limit || s.Stamp.Stale {
				t.Fatalf("%q: %+v, the service read %+v", value, s.Stamp, want)
			}
		case got && !foreign:
			t.Fatalf("%q: %+v, the service read nothing", value, s.Stamp)
		}
	}
	if valids < 50_000 {
		t.Errorf("only %d values were valid", valids)
	}
}
