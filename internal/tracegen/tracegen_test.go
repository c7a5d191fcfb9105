package tracegen

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const testdata = "../../testdata"

// files and spansOf make the stories once; no test changes what they return.
var (
	files   = sync.OnceValue(Testdata)
	stories = sync.OnceValue(func() map[string][]Span {
		byName := make(map[string][]Span)
		for _, s := range Stories() {
			byName[s.Name] = s.Spans
		}
		return byName
	})
)

func spansOf(name string) []Span { return stories()[name] }

// Goldens of other packages may stand beside the stories, but every trace file
// and README in testdata/ has to come from here.
func TestTestdataIsWhatTheGeneratorMakes(t *testing.T) {
	made := make(map[string]bool)
	for _, f := range files() {
		made[f.Path] = true
		got, err := os.ReadFile(filepath.Join(testdata, filepath.FromSlash(f.Path)))
		if err != nil {
			t.Errorf("%v (run: go run ./internal/tracegen/gen -out testdata)", err)
			continue
		}
		want, err := Expand(f.Path, f.Data)
		if err != nil {
			t.Fatalf("%s as generated: %v", f.Path, err)
		}
		if got, err = Expand(f.Path, got); err != nil {
			t.Errorf("%s as committed: %v", f.Path, err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s differs from the generator (run: go run ./internal/tracegen/gen -out testdata)", f.Path)
		}
	}
	for _, pattern := range []string{"README.md", "*/README.md", "*/trace.*"} {
		names, err := filepath.Glob(filepath.Join(testdata, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			rel, err := filepath.Rel(testdata, name)
			if err != nil {
				t.Fatal(err)
			}
			if !made[filepath.ToSlash(rel)] {
				t.Errorf("%s is in testdata but the generator does not make it", rel)
			}
		}
	}
}

func TestTestdataIsSmall(t *testing.T) {
	total := 0
	for _, f := range files() {
		total += len(f.Data)
		if len(f.Data) > 600<<10 {
			t.Errorf("%s has %d bytes, limit 600 KiB", f.Path, len(f.Data))
		}
	}
	if total > 4<<20 {
		t.Errorf("testdata has %d bytes, limit 4 MiB", total)
	}
}

func TestStoriesAreDeterministicAndApart(t *testing.T) {
	first, second := Stories(), Stories()
	names := make(map[string]bool)
	ids := make(map[[16]byte]string)
	for i, s := range first {
		if names[s.Name] {
			t.Errorf("two stories are named %s", s.Name)
		}
		names[s.Name] = true
		if !bytes.Equal(AppendOTLPProto(nil, s.Spans), AppendOTLPProto(nil, second[i].Spans)) {
			t.Errorf("%s: two runs differ", s.Name)
		}
		for j := range s.Spans {
			id := s.Spans[j].TraceID
			if other, ok := ids[id]; ok && other != s.Name {
				t.Fatalf("%s and %s share trace %x", s.Name, other, id)
			}
			ids[id] = s.Name
		}
	}
}

// durations returns the sorted durations of the spans that match.
func durations(spans []Span, match func(*Span) bool) []time.Duration {
	var out []time.Duration
	for i := range spans {
		if s := &spans[i]; match(s) {
			out = append(out, time.Duration(s.End-s.Start))
		}
	}
	slices.Sort(out)
	return out
}

// rank is the nearest rank quantile of a percentage.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(percent*len(sorted)+99)/100-1]
}

func TestNearestRankQuantilesOfCallsAreThoseOfTheModel(t *testing.T) {
	named := func(kind Kind, name string) func(*Span) bool {
		return func(s *Span) bool { return s.Kind == kind && s.Name == name }
	}
	for _, tt := range []struct {
		story    string
		kind     Kind
		name     string
		calls    int
		p50, p99 time.Duration
	}{
		{"orders", KindClient, "Check", 1000, 8 * ms, 25 * ms},
		{"orders", KindClient, "Reserve", 1000, 11 * ms, 30 * ms},
		{"orders", KindClient, "Apply", 1000, 15 * ms, 45 * ms},
		{"orders", KindClient, "Score", 1000, 42 * ms, 120 * ms},
		{"orders", KindClient, "persist", 1000, 26 * ms, 70 * ms},
		{"dag", KindClient, "A", 500, 2 * ms, 5 * ms},
		{"dag", KindClient, "B", 500, 900 * us, 2 * ms},
		{"dag", KindClient, "C", 500, 6 * ms, 15 * ms},
		{"dag", KindClient, "D", 500, 4 * ms, 10 * ms},
		{"dag", KindClient, "E", 500, 12 * ms, 30 * ms},
		{"dag", KindClient, "F", 500, 3500 * us, 8 * ms},
		{"dag", KindConsumer, "G", 500, 4 * ms, 10 * ms},
		{"dag", KindClient, "H", 500, 900 * us, 2 * ms},
		{"tiny", KindClient, "Lookup", 400, 120 * us, 300 * us},
		{"tiny", KindClient, "Search", 400, 2 * ms, 5 * ms},
		{"optional", KindClient, "Preview", 200, 20 * ms, 60 * ms},
	} {
		t.Run(tt.story+"/"+tt.name, func(t *testing.T) {
			d := durations(spansOf(tt.story), named(tt.kind, tt.name))
			if len(d) != tt.calls || rank(d, 50) != tt.p50 || rank(d, 99) != tt.p99 {
				t.Errorf("%d calls, P50 %v, P99 %v; want %d, %v, %v", len(d), rank(d, 50), rank(d, 99), tt.calls, tt.p50, tt.p99)
			}
		})
	}
}

func TestOrdersTellsItsStory(t *testing.T) {
	spans := spansOf("orders")
	cold := durations(spans, func(s *Span) bool { return s.Kind == KindClient && s.Name == "Score" && s.End-s.Start >= int64(200*ms) })
	if len(cold) != 5 || cold[0].Round(ms) != 270*ms || cold[4] != 900*ms {
		t.Errorf("cold starts %v, want 5 from 270 to 900 ms", cold)
	}
	roots := durations(spans, func(s *Span) bool { return s.Parent == none })
	if missed := len(roots) - slices.IndexFunc(roots, func(d time.Duration) bool { return d > 800*ms }); missed != 1 {
		t.Errorf("%d of %d requests miss 800 ms, want 1", missed, len(roots))
	}
}

func TestDAGHasOnlyTheMessageOutsideTheAnswer(t *testing.T) {
	for _, trace := range group(spansOf("dag"), traceKey) {
		at := make(map[string]Span)
		for _, s := range trace {
			if s.Kind != KindServer || s.Parent == none {
				at[fmt.Sprint(s.Kind, s.Name)] = s
			}
		}
		get := func(kind Kind, name string) Span { return at[fmt.Sprint(kind, name)] }
		root := get(KindServer, "GET /report")
		for _, pair := range []string{"AB", "BC", "BD", "CE", "DE", "EF", "FH"} {
			before, after := get(KindClient, pair[:1]), get(KindClient, pair[1:])
			if before.End > after.Start || after.End > root.End {
				t.Fatalf("trace %x: %s is not in sequence inside the request", root.TraceID, pair)
			}
		}
		if c, d := get(KindClient, "C"), get(KindClient, "D"); c.Start != d.Start {
			t.Fatalf("trace %x: C and D do not start together", root.TraceID)
		}
		if f, g := get(KindClient, "F"), get(KindProducer, "G"); f.Start != g.Start {
			t.Fatalf("trace %x: F and G do not start together", root.TraceID)
		}
	}
}

// A drawn request nests: all spans but those of messages lie inside their
// parents, and every id is used once.
func TestDrawnSpansNest(t *testing.T) {
	for name, spans := range map[string][]Span{
		"shop":   Draw(shop(), DrawConfig{Seed: 99, Traces: 50, Start: epoch, Every: ms}),
		"orders": spansOf("orders"), "dag": spansOf("dag"), "nested": spansOf("nested"), "hedge": spansOf("hedge"),
		"retry-storm": spansOf("retry-storm"), "loops": spansOf("loops"), "formats": spansOf("formats"),
	} {
		byID := make(map[[8]byte]Span)
		for _, s := range spans {
			if _, ok := byID[s.ID]; ok {
				t.Fatalf("%s: span id %x is used twice", name, s.ID)
			}
			byID[s.ID] = s
		}
		for _, s := range spans {
			if s.End < s.Start || s.Start%1000 != 0 || s.End%1000 != 0 {
				t.Errorf("%s: %s %s: [%d, %d] is no interval of whole microseconds", name, s.Service, s.Name, s.Start, s.End)
			}
			p, ok := byID[s.Parent]
			if ok != (s.Parent != none) || ok && p.TraceID != s.TraceID {
				t.Errorf("%s: %s %s: its parent is not in its trace", name, s.Service, s.Name)
			}
			if ok && s.Kind != KindConsumer && (s.Start < p.Start || s.End > p.End) {
				t.Errorf("%s: %s %s is not inside its parent", name, s.Service, s.Name)
			}
		}
	}
}

func TestQuantileIsMonotonicAndMeetsItsMarks(t *testing.T) {
	for _, d := range []Dist{
		{P50: 10 * ms, P99: 10 * ms},
		{P50: 10 * ms, P99: 30 * ms},
		{P50: 300 * us, P99: 900 * us},
		{P50: 40 * ms, P99: 120 * ms, Cold: 0.005, ColdFrom: 200 * ms, ColdTo: 900 * ms},
	} {
		if d.Quantile(0.5) != d.P50 || d.Quantile(0.99) != d.P99 {
			t.Errorf("%+v: P50 %v, P99 %v", d, d.Quantile(0.5), d.Quantile(0.99))
		}
		if d.Cold > 0 && d.Quantile(1) != d.ColdTo {
			t.Errorf("%+v: maximum %v", d, d.Quantile(1))
		}
		for i := 1; i < 1000; i++ {
			if d.Quantile(float64(i)/1000) > d.Quantile(float64(i+1)/1000) {
				t.Fatalf("%+v falls after %d/1000", d, i)
			}
		}
	}
}

func TestStoriesHoldWhatTheirREADMESays(t *testing.T) {
	count := func(spans []Span, match func(*Span) bool) int { return len(durations(spans, match)) }

	hedged := spansOf("hedge")
	cancelled := count(hedged, func(s *Span) bool { return s.Kind == KindClient && s.Status == StatusError })
	calls := count(hedged, func(s *Span) bool { return s.Kind == KindClient })
	if cancelled == 0 || calls != 200+cancelled {
		t.Errorf("hedge: %d calls, %d cancelled, of 200 requests", calls, cancelled)
	}

	for _, alternative := range []struct {
		service string
		want    int
	}{{"first", 14}, {"second", 5}, {"third", 6}} {
		got := count(spansOf("exclusive"), func(s *Span) bool { return s.Service == alternative.service })
		if got != alternative.want {
			t.Errorf("exclusive: %s answers %d times, want %d", alternative.service, got, alternative.want)
		}
	}

	states := make(map[string]int)
	for _, s := range spansOf("sampled") {
		if s.Parent == none {
			states[s.TraceState]++
		}
	}
	if states["ot=th:c"] != 40 || states["vendor=1,ot=th:0;rv:9b8233f7e3a151"] != 20 || states[""] != 1 || states["ot=th:zz"] != 1 {
		t.Errorf("sampled: %v", states)
	}

	storm := spansOf("retry-storm")
	attempts := make(map[[8]byte]int)
	failed := 0
	for _, s := range storm {
		if s.Kind == KindClient {
			attempts[s.Parent]++
			if s.Status == StatusError {
				failed++
			}
		}
	}
	most := 0
	for _, n := range attempts {
		most = max(most, n)
	}
	if failed == 0 || most != 3 {
		t.Errorf("retry-storm: %d failed attempts, at most %d in a row", failed, most)
	}

	rows := make(map[[8]byte]int)
	for _, s := range spansOf("loops") {
		if s.Name == "SELECT items" {
			rows[s.Parent]++
		}
	}
	longest := 0
	for _, n := range rows {
		longest = max(longest, n)
	}
	if len(rows) != 200 || longest != 8 {
		t.Errorf("loops: %d requests with at most %d queries", len(rows), longest)
	}

	if n := count(spansOf("unmeasured"), func(s *Span) bool { return s.End == 0 }); n != 8 {
		t.Errorf("unmeasured: %d spans without end, want 8", n)
	}

	for _, s := range spansOf("coarse-clock") {
		if s.Start%int64(ms) != 0 || s.End%int64(ms) != 0 {
			t.Fatalf("coarse-clock: [%d, %d] is not in whole milliseconds", s.Start, s.End)
		}
	}

	spans := spansOf("shared-ids")
	shared := 0
	for _, s := range spans {
		for _, other := range spans {
			if s.Kind == KindServer && other.Kind == KindClient && s.ID == other.ID && s.Parent == other.Parent {
				shared++
			}
		}
	}
	if shared != 40 {
		t.Errorf("shared-ids: %d pairs, want 40", shared)
	}

	for _, trace := range group(spansOf("nested"), traceKey) {
		if len(trace) != 15 {
			t.Fatalf("nested: %d spans in trace %x, want 15", len(trace), trace[0].TraceID)
		}
	}
}

// The midpoint of what the CLIENT and SERVER spans allow is 3 ms, whatever the
// network took.
func TestClockSkewIsThreeMilliseconds(t *testing.T) {
	spans := spansOf("clock-skew")
	byID := make(map[[8]byte]*Span)
	for i := range spans {
		byID[spans[i].ID] = &spans[i]
	}
	for _, s := range spans {
		p := byID[s.Parent]
		if s.Kind != KindServer || p == nil {
			continue
		}
		want := int64(0)
		switch "inventory" {
		case s.Service:
			want = int64(-3 * ms)
		case p.Service:
			want = int64(3 * ms)
		}
		if mid := (p.Start - s.Start + p.End - s.End) / 2; mid != want {
			t.Fatalf("%s to %s: midpoint %v, want %v", p.Service, s.Service, time.Duration(mid), time.Duration(want))
		}
	}
}

func TestJSONFormatsAreValidJSON(t *testing.T) {
	for _, s := range []string{"formats", "chinese", "tail-sampled", "deadline-reset", "producer-consumer", "unmeasured"} {
		for _, f := range allFormats {
			if !strings.Contains(f.Ext, "json") || strings.Contains(f.Ext, "framed") {
				continue
			}
			data, err := Expand("trace."+f.Ext, f.Append(nil, spansOf(s)))
			if err != nil {
				t.Fatal(err)
			}
			values := 0
			for dec := json.NewDecoder(bytes.NewReader(data)); ; values++ {
				var v any
				if err := dec.Decode(&v); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s as %s: value %d: %v", s, f.Ext, values, err)
				}
			}
			if values == 0 {
				t.Errorf("%s as %s is empty", s, f.Ext)
			}
		}
	}
}

// The two directions of field order carry the same fields.
func TestProtobufFieldOrderIsTheOnlyDifference(t *testing.T) {
	spans := slices.Concat(spansOf("formats"), spansOf("tail-sampled"), spansOf("deadline-reset"))[:400]
	ascending := AppendOTLPProto(nil, spans)
	framed := AppendOTLPProtoFramed(nil, spans)
	if n := binary.BigEndian.Uint32(framed); int(n) != len(framed)-4 {
		t.Fatalf("frame says %d bytes and has %d", n, len(framed)-4)
	}
	if bytes.Equal(ascending, framed[4:]) {
		t.Error("the framed form has its fields in ascending order")
	}
	// Depths: TracesData, ResourceSpans, ScopeSpans, Span, Event, KeyValue.
	if got, want := canonical(t, framed[4:], 6), canonical(t, ascending, 6); got != want {
		t.Error("the two forms differ in more than order")
	}
}

// canonical prints a message with its fields sorted by number, and those of
// its messages down to the given depth; what cannot be a message is a leaf.
func canonical(t *testing.T, data []byte, depth int) string {
	t.Helper()
	type entry struct {
		num  protowire.Number
		text string
	}
	var fields []entry
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Sprintf("%q", data)
		}
		m := protowire.ConsumeFieldValue(num, typ, data[n:])
		if m < 0 {
			return fmt.Sprintf("%q", data)
		}
		value := data[n : n+m]
		e := entry{num, fmt.Sprintf("%x", value)}
		if typ == protowire.BytesType && depth > 1 {
			inner, _ := protowire.ConsumeBytes(value)
			e.text = canonical(t, inner, depth-1)
		}
		fields = append(fields, e)
		data = data[n+m:]
	}
	slices.SortStableFunc(fields, func(a, b entry) int { return cmp.Compare(a.num, b.num) })
	return fmt.Sprint(fields)
}

func TestCompressedFormsExpandToTheirPlainForm(t *testing.T) {
	spans := spansOf("formats")
	for _, tt := range []struct {
		ext   string
		plain []byte
	}{
		{"otlp.jsonl.gz", AppendOTLPJSONLines(nil, spans)},
		{"otlp.jsonl.zst", AppendOTLPJSONLines(nil, spans)},
		{"otlp.framed.jsonl.zst", bytes.TrimSuffix(AppendOTLPJSONLines(nil, spans), []byte("\n"))},
		{"otlp.framed.pb.zst", AppendOTLPProtoFramed(nil, spans)[4:]},
	} {
		i := slices.IndexFunc(allFormats, func(f Format) bool { return f.Ext == tt.ext })
		got, err := Expand(path.Join("formats", "trace."+tt.ext), allFormats[i].Append(nil, spans))
		if err != nil || !bytes.Equal(got, tt.plain) {
			t.Errorf("%s: %d bytes (%v), want the %d of the plain form", tt.ext, len(got), err, len(tt.plain))
		}
	}
}

func TestShuffleKeepsTheSpans(t *testing.T) {
	spans := spansOf("formats")
	shuffled := slices.Clone(spans)
	Shuffle(shuffled, 1)
	if bytes.Equal(AppendStdouttrace(nil, shuffled), AppendStdouttrace(nil, spans)) {
		t.Error("the order did not change")
	}
	SortByEnd(shuffled)
	if !bytes.Equal(AppendStdouttrace(nil, shuffled), AppendStdouttrace(nil, spans)) {
		t.Error("sorted again, the spans are not the same")
	}
}

func TestStreamHasTheShapeItSays(t *testing.T) {
	var out bytes.Buffer
	var all []Span
	resources, batches := 0, 0
	total, err := Stream(&out, StreamConfig{Seed: 1, Traces: 2000, Append: func(dst []byte, spans []Span) []byte {
		if len(spans) > 500 || len(spans) < 100 && len(all)+len(spans) < 30000 {
			t.Errorf("a batch of %d spans after %d", len(spans), len(all))
		}
		all = append(all, spans...)
		resources += len(group(spans, processKey))
		batches++
		return AppendOTLPJSONLines(dst, spans)
	}})
	if err != nil {
		t.Fatal(err)
	}
	events, links, retried := 0, 0, 0
	for i, s := range all {
		if i > 0 && all[i-1].End > s.End {
			t.Fatalf("span %d ends before the one in front of it", i)
		}
		if n := len(s.Attrs); n < 8 || n > 12 || len(s.Resource) != 7 {
			t.Fatalf("span %d has %d attributes and %d of its resource beside service.name", i, n, len(s.Resource))
		}
		events += len(s.Events)
		links += len(s.Links)
		if s.Status == StatusError && s.Kind == KindClient {
			retried++
		}
	}
	if total != len(all) || len(group(all, traceKey)) != 2000 {
		t.Errorf("%d spans reported, %d spans of %d traces written", total, len(all), len(group(all, traceKey)))
	}
	for _, tt := range []struct {
		what      string
		got       float64
		low, high float64
	}{
		{"spans a trace", float64(total) / 2000, 15.4, 15.6},
		{"bytes of JSON a span", float64(out.Len()) / float64(total), 850, 1150},
		{"bytes of protobuf a span", float64(len(AppendOTLPProtoFramed(nil, all))) / float64(total), 380, 560},
		{"instances a batch", float64(resources) / float64(batches), 16, 18},
		{"events a span", float64(events) / float64(total), 0.12, 0.14},
		{"links a span", float64(links) / float64(total), 0.007, 0.013},
		{"retries a trace", float64(retried) / 2000, 0.08, 0.14},
	} {
		if tt.got < tt.low || tt.got > tt.high {
			t.Errorf("%s: %.3f, want %g to %g", tt.what, tt.got, tt.low, tt.high)
		}
	}

	var again bytes.Buffer
	if _, err := Stream(&again, StreamConfig{Seed: 1, Traces: 2000, Append: AppendOTLPJSONLines}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("two runs with one seed differ")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestStreamStopsWhenTheWriterFails(t *testing.T) {
	_, err := Stream(fullDisk{}, StreamConfig{Seed: 1, Traces: 300, Append: AppendOTLPProtoFramed})
	if !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v, want that of the writer", err)
	}
}
