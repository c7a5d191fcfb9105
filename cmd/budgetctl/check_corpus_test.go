package main

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// halves splits the requests of a Jaeger export in two: the earlier and the later.
func halves(t *testing.T, path string) (a, b []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var export struct {
		Data []map[string]any `json:"data"`
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&export); err != nil {
		t.Fatal(err)
	}
	started := func(one map[string]any) int64 {
		first := int64(math.MaxInt64)
		for _, s := range one["spans"].([]any) {
			first = min(first, number(s.(map[string]any), "startTime"))
		}
		return first
	}
	slices.SortStableFunc(export.Data, func(a, b map[string]any) int { return cmp.Compare(started(a), started(b)) })
	return export.Data[:len(export.Data)/2], export.Data[len(export.Data)/2:]
}

func saveTraces(t *testing.T, traces []map[string]any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"data": traces})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "traces.jaeger.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func number(span map[string]any, key string) int64 {
	n, _ := span[key].(json.Number).Int64()
	return n
}

// slow makes the calls of an operation take so many times as long, in us: what
// comes after them starts later, and what they are part of ends later.
//
//	caller   |------------------|            |----------------------------|
//	call        |---|                   ->      |---------|
//	later              |---|                                 |---|
func slow(traces []map[string]any, operation string, times int64) {
	for _, one := range traces {
		spans := one["spans"].([]any)
		var start, end int64
		for _, s := range spans {
			span := s.(map[string]any)
			if !strings.HasSuffix(span["operationName"].(string), operation) {
				continue
			}
			if from, to := number(span, "startTime"), number(span, "startTime")+number(span, "duration"); to-from > end-start {
				start, end = from, to // the caller's half is the longer one
			}
		}
		grown := (end - start) * (times - 1)
		for _, s := range spans {
			span := s.(map[string]any)
			from, took := number(span, "startTime"), number(span, "duration")
			switch {
			case strings.HasSuffix(span["operationName"].(string), operation):
				from, took = start+times*(from-start), times*took
			case from >= end:
				from += grown
			case from+took >= end:
				took += grown
			}
			span["startTime"], span["duration"] = json.Number(strconv.FormatInt(from, 10)), json.Number(strconv.FormatInt(took, 10))
		}
	}
}

// TestCheckOfRealTraces makes a plan from one half of the requests and holds the
// other half to it: as they are they keep it; with one leaf three times as slow,
// that hop alone is named, not its caller.
func TestCheckOfRealTraces(t *testing.T) {
	a, b := halves(t, corpus(t, "tw-hotel-load150.jaeger.json"))
	path := filepath.Join(t.TempDir(), "budgets.yaml")
	must(t, "analyze", saveTraces(t, a), "--budget", "200ms", "--write-plan", path)
	if r := checkOf(t, exitOK, "--plan", path, saveTraces(t, b)); !r.Passed || r.Checked[0].Traces != len(b) {
		t.Errorf("%d requests, failures %+v", r.Checked[0].Traces, r.Failures)
	}
	for operation, name := range map[string]string{
		"profile.Profile/GetProfiles": "profile profile.Profile/GetProfiles",
		"geo.Geo/Nearby":              "geo geo.Geo/Nearby",
	} {
		_, slowed := halves(t, corpus(t, "tw-hotel-load150.jaeger.json"))
		slow(slowed, operation, 3)
		r := checkOf(t, exitFindings, "--plan", path, saveTraces(t, slowed))
		var names []string
		for _, f := range r.Failures {
			names = append(names, f.Name)
		}
		if !slices.Equal(names, []string{name}) {
			t.Errorf("%s: %+v; want %s alone", operation, r.Failures, name)
		}
	}
}
