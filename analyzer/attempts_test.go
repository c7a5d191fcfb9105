package analyzer_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// The timeout of an attempt comes from attempts: where each call is tried several
// times, the usual time of the hop is that of all its attempts and pauses together.
//
//	>gw     |------------------------------------------|
//	gw>a     |-f-|     |-f-|     |-f-|     |--ok-|         20 to 40 ms each, 100 ms between
func TestTheTimeoutOfAnAttemptComesFromAttempts(t *testing.T) {
	const attempts = 4
	var spans memory
	for i := range uint64(requests) {
		spans = append(spans, retried(i, attempts)...)
	}
	for _, c := range []struct {
		name   string
		floors []analyzer.HopAmount
		least  int64 // ms
		most   int64
	}{
		{"the hop's usual time is none", nil, 20, 80},
		{"a floor that was set holds for each", []analyzer.HopAmount{{Hop: "a *", Amount: analyzer.Amount{Time: 150 * time.Millisecond}}}, 150, 160},
	} {
		report, err := analyzer.Analyze(t.Context(), analyzer.Config{Budgets: []analyzer.EndpointBudget{{Budget: 900 * time.Millisecond}}, Floors: c.floors}, spans)
		if err != nil {
			t.Fatal(err)
		}
		hop := &report.Endpoints[0].Hops[1]
		timeout := hop.AttemptTimeout
		if !timeout.Known || timeout.V < c.least*1e6 || timeout.V > c.most*1e6 {
			t.Errorf("%s: %v of %v for an attempt, want %d to %d ms", c.name, time.Duration(timeout.V), time.Duration(hop.Share.V), c.least, c.most)
		}
		warned := strings.Contains(strings.Join(report.Endpoints[0].Warnings, "\n"), "do not configure")
		if fits := hop.AttemptsFit.V >= attempts; fits == warned || fits != (c.floors == nil) {
			t.Errorf("%s: %d of %d attempts fit, and a warning: %v", c.name, hop.AttemptsFit.V, attempts, warned)
		}
	}
}

// retried is a request with a call that all its attempts but the last one failed.
func retried(request uint64, attempts int) (spans []trace.Span) {
	const epoch, ms = 1_700_000_000_000_000_000, 1_000_000
	span := func(id uint64, kind trace.Kind, desc *trace.Desc, start, duration int64, outcome trace.Outcome) {
		s := trace.Span{Start: epoch + start, Duration: duration, Kind: kind, Desc: desc, Outcome: outcome}
		binary.BigEndian.PutUint64(s.TraceID[8:], request+1)
		binary.BigEndian.PutUint64(s.ID[:], id)
		if id > 1 {
			s.Parent[7] = 1
		}
		spans = append(spans, s)
	}
	took := (20 + int64(request)%21) * ms
	whole := int64(attempts)*(took+100*ms) + 10*ms
	span(1, trace.KindServer, &trace.Desc{Service: "gw", Operation: "do"}, 0, whole, trace.OutcomeOK)
	get := &trace.Desc{Service: "gw", Operation: "get", Peer: "a"}
	for k := range int64(attempts) {
		outcome := trace.OutcomeFailed
		if k == int64(attempts)-1 {
			outcome = trace.OutcomeOK
		}
		span(uint64(k+2), trace.KindClient, get, ms+k*(took+100*ms), took, outcome)
	}
	return spans
}
