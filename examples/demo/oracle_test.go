package main

import (
	"bufio"
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// span is what the tests read of a span that the Collector wrote. They read the
// JSON themselves, so that no mistake of ours can hide on both sides.
type span struct {
	trace   string
	kind    int // of OTLP: 2 is SERVER, 3 CLIENT
	seconds float64
	attrs   map[string]any // string, float64, bool, []string
}

const (
	server = 2
	client = 3
)

// readSpans reads files of OTLP JSON lines.
func readSpans(t *testing.T, files ...string) []span {
	t.Helper()
	type value struct {
		StringValue *string  `json:"stringValue"`
		IntValue    *string  `json:"intValue"`
		DoubleValue *float64 `json:"doubleValue"`
		BoolValue   *bool    `json:"boolValue"`
		ArrayValue  *struct {
			Values []struct {
				StringValue string `json:"stringValue"`
			} `json:"values"`
		} `json:"arrayValue"`
	}
	var spans []span
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var doc struct {
				ResourceSpans []struct {
					ScopeSpans []struct {
						Spans []struct {
							TraceID    string `json:"traceId"`
							Kind       int    `json:"kind"`
							Start      string `json:"startTimeUnixNano"`
							End        string `json:"endTimeUnixNano"`
							Attributes []struct {
								Key   string `json:"key"`
								Value value  `json:"value"`
							} `json:"attributes"`
						} `json:"spans"`
					} `json:"scopeSpans"`
				} `json:"resourceSpans"`
			}
			if err := json.Unmarshal(lines.Bytes(), &doc); err != nil {
				t.Fatal(err)
			}
			for _, r := range doc.ResourceSpans {
				for _, scope := range r.ScopeSpans {
					for _, s := range scope.Spans {
						from, _ := strconv.ParseInt(s.Start, 10, 64)
						to, _ := strconv.ParseInt(s.End, 10, 64)
						one := span{trace: s.TraceID, kind: s.Kind, seconds: float64(to-from) / 1e9, attrs: map[string]any{}}
						for _, a := range s.Attributes {
							switch v := a.Value; {
							case v.StringValue != nil:
								one.attrs[a.Key] = *v.StringValue
							case v.IntValue != nil:
								n, _ := strconv.ParseInt(*v.IntValue, 10, 64)
								one.attrs[a.Key] = float64(n)
							case v.DoubleValue != nil:
								one.attrs[a.Key] = *v.DoubleValue
							case v.BoolValue != nil:
								one.attrs[a.Key] = *v.BoolValue
							case v.ArrayValue != nil:
								var list []string
								for _, e := range v.ArrayValue.Values {
									list = append(list, e.StringValue)
								}
								one.attrs[a.Key] = list
							}
						}
						spans = append(spans, one)
					}
				}
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return spans
}

func (s span) text(key string) string { v, _ := s.attrs["latency_budget."+key].(string); return v }

func (s span) list(key string) []string { v, _ := s.attrs["latency_budget."+key].([]string); return v }

func (s span) number(key string) (float64, bool) {
	v, ok := s.attrs["latency_budget."+key].(float64)
	return v, ok
}

// judged tells whether the processor has named the hop of the span.
func (s span) judged() bool { return s.text("callee") != "" && (s.kind == server || s.kind == client) }

// counts tells whether the span is the one by which its hop is counted.
func (s span) counts() bool { return s.judged() && (s.kind == client || s.text("caller") == "") }

// overPlan tells whether the span took longer than the plan allows its hop.
func (s span) overPlan() bool {
	used, _ := s.number("utilization")
	return s.counts() && s.text("plan.revision") != "" && used > 1
}

// key names a span by some of its labels, as the results of queries are named.
func (s span) key(labels ...string) string {
	var parts []string
	for _, l := range labels {
		parts = append(parts, s.text(l))
	}
	return strings.Join(parts, "|")
}

// observed are values by key.
type observed map[string][]float64

// observe collects a value of each span for which get returns one.
func observe(spans []span, labels []string, get func(span) (float64, bool)) observed {
	all := observed{}
	for _, s := range spans {
		if v, ok := get(s); ok {
			all[s.key(labels...)] = append(all[s.key(labels...)], v)
		}
	}
	return all
}

// around returns the values at two percentiles a little below and above p, by
// nearest rank: between them lies what a histogram may say.
func around(values []float64, p float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	at := func(p float64) float64 {
		return sorted[min(max(int(math.Ceil(p/100*float64(len(sorted))))-1, 0), len(sorted)-1)]
	}
	slack := 100 / float64(len(sorted)) // Prometheus counts ranks from another end
	return at(p - slack), at(p + slack)
}

// tally counts by key.
func tally(spans []span, keys func(span) []string) map[string]float64 {
	n := map[string]float64{}
	for _, s := range spans {
		for _, k := range keys(s) {
			n[k]++
		}
	}
	return n
}

// ratio divides counts; what was never counted is 0.
func ratio(part, whole map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for k, n := range whole {
		out[k] = part[k] / n
	}
	return out
}

// timedOut is the table of the rule deadline-exceeded, for the wires of orders.
func (s span) timedOut() bool {
	kind, _ := s.attrs["error.type"].(string)
	kind = strings.ToLower(kind)
	if s.attrs["rpc.response.status_code"] == "DEADLINE_EXCEEDED" || s.attrs["http.response.status_code"] == 504.0 ||
		strings.Contains(kind, "deadline") || strings.Contains(kind, "timeout") || kind == "504" {
		return true
	}
	cancelled := s.attrs["rpc.response.status_code"] == "CANCELLED" || s.attrs["http.response.status_code"] == 499.0 ||
		strings.Contains(kind, "cancel") || kind == "499"
	left, known := s.number("remaining.end")
	return cancelled && known && left <= 0.005
}

// keysOf lists keys in order, for messages.
func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
