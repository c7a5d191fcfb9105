package analyzer_test

import (
	"encoding/binary"
	"testing"

	"github.com/latencybudget/latencybudget/analyzer"
	"github.com/latencybudget/latencybudget/analyzer/trace"
)

// A hop that is called five times needs the time of one call to be of use, not that
// of the loop. That is so whether its endpoint has a table or not.
//
//	>gw     |-------------------------------------| 300 left
//	gw>a     |--ok--||--ok--||--ok--||--ok--||-f-|        20 ms each
func TestADoomedCallHasLessThanOneCallTakes(t *testing.T) {
	for _, c := range []struct {
		left int64 // of the last call, ms
		want int
	}{{60, 0}, {15, requests / 2}} {
		const epoch, ms = 1_700_000_000_000_000_000, 1_000_000
		server := &trace.Desc{Service: "gw", Operation: "do"}
		client := &trace.Desc{Service: "gw", Operation: "get", Peer: "a"}
		stamp := func(left int64) *trace.Stamp {
			return &trace.Stamp{Remaining: left * ms, HasRemaining: true, DeadlineRemaining: left * ms, HasDeadline: true}
		}
		var spans memory
		for i := range int64(requests) {
			span := func(id uint64, kind trace.Kind, desc *trace.Desc, start, duration, left int64, outcome trace.Outcome) {
				s := trace.Span{
					Start: epoch + 1000*i*ms + start*ms, Duration: duration * ms, Kind: kind, Desc: desc, Stamp: stamp(left), Outcome: outcome,
				}
				binary.BigEndian.PutUint64(s.TraceID[8:], uint64(i+1))
				binary.BigEndian.PutUint64(s.ID[:], id)
				if id > 1 {
					s.Parent[7] = 1
				}
				spans = append(spans, s)
			}
			span(1, trace.KindServer, server, 0, 120, 300, trace.OutcomeOK)
			for k := range int64(4) {
				span(uint64(k+2), trace.KindClient, client, 20*k, 20, 300-20*k, trace.OutcomeOK)
			}
			if i%2 == 0 { // the others show what calls take
				span(6, trace.KindClient, client, 80, 10, c.left, trace.OutcomeFailed)
			} else {
				span(6, trace.KindClient, client, 80, 20, 220, trace.OutcomeOK)
			}
		}
		web := &trace.Desc{Service: "web", Operation: "do"}
		// A busier endpoint has the table where there is one only.
		for i := range uint64(requests + 1) {
			busy := trace.Span{Start: epoch, Duration: ms, Kind: trace.KindServer, Desc: web}
			binary.BigEndian.PutUint64(busy.TraceID[:], i+1)
			binary.BigEndian.PutUint64(busy.ID[:], 1)
			spans = append(spans, busy)
		}
		for top := 1; top <= 2; top++ {
			report, err := analyzer.Analyze(t.Context(), analyzer.Config{Top: top}, spans)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for _, e := range report.Endpoints {
				for _, f := range e.Findings {
					if f.Rule == "doomed-call" {
						got += f.Count
					}
				}
			}
			for _, e := range report.Others {
				for _, f := range e.Findings {
					if f.Rule == "doomed-call" {
						got += f.Count
					}
				}
			}
			if len(report.Endpoints) != top || got != c.want {
				t.Errorf("%d ms left, %d of 2 endpoints with a table: %d doomed calls, want %d", c.left, len(report.Endpoints), got, c.want)
			}
		}
	}
}

// A finding names a hop as the table does.
//
//	>gw            |-------------| 100 ms left
//	gw>cart Get     |-----------|
func TestAFindingNamesAHopAsTheTableDoes(t *testing.T) {
	const epoch, ms = 1_700_000_000_000_000_000, 1_000_000
	server := &trace.Desc{Service: "gw", Operation: "do"}
	client := &trace.Desc{Service: "gw", Operation: "shop.v1.Cart/Get", Peer: "cart"}
	var spans memory
	for i := range uint64(requests) {
		s := trace.Span{
			Start: epoch, Duration: 95 * ms, Kind: trace.KindServer, Desc: server,
			Stamp: &trace.Stamp{Remaining: 100 * ms, HasRemaining: true},
		}
		binary.BigEndian.PutUint64(s.TraceID[8:], i+1)
		s.ID[7] = 1
		c := s
		c.Start, c.Duration, c.Kind, c.Desc, c.Stamp, c.ID, c.Parent = epoch+ms, 90*ms, trace.KindClient, client, nil, trace.SpanID{2}, s.ID
		spans = append(spans, s, c)
	}
	report, err := analyzer.Analyze(t.Context(), analyzer.Config{}, spans)
	if err != nil {
		t.Fatal(err)
	}
	e := &report.Endpoints[0]
	want := "used up to 95 % of what it had, most of it in cart Get"
	if len(e.Findings) != 1 || e.Findings[0].Text != want || e.Hops[1].Label != "cart Get" {
		t.Errorf("%+v at hop %q, want %q", e.Findings, e.Hops[1].Label, want)
	}
}
