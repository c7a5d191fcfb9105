package trace

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// on describes a span with what was captured of it. It starts at 1000 s, below
// the span 1 unless it is a root.
func on(t *testing.T, kind Kind, root bool, pairs ...any) (*Stamp, []NoteKind) {
	t.Helper()
	var (
		a  Attributes
		in Interner
	)
	notes := attrs(&a, pairs...)
	s := Span{ID: SpanID{7: 2}, Parent: SpanID{7: 1}, Kind: kind, Start: 1000e9, Duration: 1e6}
	if root {
		s.Parent = SpanID{}
	}
	a.Describe(&s, Resource{}, in.NewCache())
	return s.Stamp, notes
}

const http = "http.request.header."

func header(name, value string) []any { return []any{http + name, value} }

const msec = int64(time.Millisecond)

func TestCapturedHeadersStandInForStamps(t *testing.T) {
	authority := func(v int64) *Stamp {
		return &Stamp{Remaining: v, HasRemaining: true, DeadlineRemaining: v, HasDeadline: true, Derived: true}
	}
	fresh := `obs1;r=254.318;t=300;h=2;s="0000000000000001"`
	for _, c := range []struct {
		name  string
		kind  Kind
		root  bool
		attrs []any
		want  *Stamp
	}{
		{"relative", KindServer, false, header("x-timeout-budget-ms", "300"), authority(300 * msec)},
		{"nothing left", KindServer, false, header("x-timeout-budget-ms", "0"), authority(0)},
		{"relative, at the client", KindClient, false, header("x-timeout-budget-ms", "300"), authority(300 * msec)},
		{"Connect", KindServer, false, header("connect-timeout-ms", "250"), authority(250 * msec)},
		{"gRPC", KindServer, false, []any{"rpc.request.metadata.grpc-timeout", "99999u"}, authority(99_999_000)},
		{
			"the smallest of several", KindServer, false, append(header("x-timeout-budget-ms", "300"), http+"connect-timeout-ms", "200", "rpc.request.metadata.grpc-timeout", "1S"),
			authority(200 * msec),
		},
		{
			"where the request begins it is the limit", KindServer, true, header("x-timeout-budget-ms", "300"),
			&Stamp{Limit: 300 * msec, Remaining: 300 * msec, HasRemaining: true, DeadlineRemaining: 300 * msec, HasDeadline: true, Derived: true},
		},
		{
			"the limit comes in the steps of its attribute", KindServer, true,
			[]any{"deadline_remaining_ms", 300.0006},
			&Stamp{Limit: 300_001_000, Remaining: 300_000_600, HasRemaining: true, Derived: true},
		},
		{
			"but for a limit that was stamped", KindServer, true, append(header("x-timeout-budget-ms", "300"), "latency_budget.limit", 2.0),
			&Stamp{Limit: 2000 * msec, Remaining: 300 * msec, HasRemaining: true, DeadlineRemaining: 300 * msec, HasDeadline: true, Derived: true},
		},
		{"a number", KindServer, false, []any{http + "x-timeout-budget-ms", 300}, authority(300 * msec)},
		{"a list in a text", KindServer, false, header("x-timeout-budget-ms", `["300"]`), authority(300 * msec)},
		{"a list of two", KindServer, false, header("x-timeout-budget-ms", `["300","200"]`), nil},
		{"an empty list", KindServer, false, header("x-timeout-budget-ms", `[]`), nil},
		{
			"absolute", KindServer, false, header("x-request-deadline", "1000200"),
			&Stamp{Remaining: 200 * msec, HasRemaining: true, DeadlineRemaining: 200 * msec, HasDeadline: true, Absolute: true, Derived: true},
		},
		{"absolute, on the clock of its writer", KindClient, false, header("x-request-deadline", "1000200"), authority(200 * msec)},
		{"absolute, and over", KindClient, false, header("x-request-deadline", "999995"), authority(-5 * msec)},
		{"absolute, in seconds by mistake", KindServer, false, header("x-request-deadline", "1000"), authorityNone},
		{
			"the smaller of an absolute and a relative one", KindServer, false, append(header("x-request-deadline", "1000200"), http+"x-timeout-budget-ms", "100"),
			authority(100 * msec),
		},
		{
			"of a proxy: a deadline, and nothing of the request", KindServer, false, header("x-envoy-expected-rq-timeout-ms", "15000"),
			&Stamp{DeadlineRemaining: 15000 * msec, HasDeadline: true, Derived: true},
		},
		{"a proxy without timeout", KindServer, false, header("x-envoy-expected-rq-timeout-ms", "0"), nil},
		{
			"of a proxy, beside an authority", KindServer, false, append(header("x-envoy-expected-rq-timeout-ms", "15000"), http+"x-timeout-budget-ms", "300"),
			authority(300 * msec),
		},
		{
			"an announcement", KindServer, false, header("latency-budget-observed", fresh),
			&Stamp{Limit: 300 * msec, Remaining: 254_318_000, HasRemaining: true, Announced: 254_318_000, HasAnnounced: true, Derived: true},
		},
		{
			"an announcement in a list in a text", KindServer, false, header("latency-budget-observed", `["`+strings.ReplaceAll(fresh, `"`, `\"`)+`"]`),
			&Stamp{Limit: 300 * msec, Remaining: 254_318_000, HasRemaining: true, Announced: 254_318_000, HasAnnounced: true, Derived: true},
		},
		{
			"an announcement of another span", KindServer, false, header("latency-budget-observed", strings.Replace(fresh, "01", "09", 1)),
			&Stamp{Limit: 300 * msec, Remaining: 254_318_000, HasRemaining: true, Announced: 254_318_000, HasAnnounced: true, Stale: true, Derived: true},
		},
		{"a stranger's announcement", KindServer, true, header("latency-budget-observed", fresh), nil},
		{
			"an announcement and a later deadline: a reset", KindServer, false, append(header("latency-budget-observed", fresh), http+"x-timeout-budget-ms", "1000"),
			&Stamp{Limit: 300 * msec, Remaining: 254_318_000, HasRemaining: true, DeadlineRemaining: 1000 * msec, HasDeadline: true, Announced: 254_318_000, HasAnnounced: true, Derived: true},
		},
		{
			"an announcement and an earlier deadline", KindServer, false, append(header("latency-budget-observed", fresh), http+"x-timeout-budget-ms", "200"),
			&Stamp{Limit: 300 * msec, Remaining: 200 * msec, HasRemaining: true, DeadlineRemaining: 200 * msec, HasDeadline: true, Announced: 254_318_000, HasAnnounced: true, Derived: true},
		},
		{
			"an announcement and the timeout of a proxy", KindServer, false, append(header("latency-budget-observed", fresh), http+"x-envoy-expected-rq-timeout-ms", "15000"),
			&Stamp{Limit: 300 * msec, Remaining: 254_318_000, HasRemaining: true, DeadlineRemaining: 15000 * msec, HasDeadline: true, Announced: 254_318_000, HasAnnounced: true, Derived: true},
		},
		{"a message may have waited", KindConsumer, false, header("x-timeout-budget-ms", "300"), nil},
		{"an attribute of its own", KindServer, false, []any{"deadline_remaining_ms", 254.5}, &Stamp{Remaining: 254_500_000, HasRemaining: true, Derived: true}},
		{"as a text", KindServer, false, []any{"deadline_remaining_ms", "254.5"}, &Stamp{Remaining: 254_500_000, HasRemaining: true, Derived: true}},
		{"as a negative number", KindServer, false, []any{"deadline_remaining_ms", -3}, &Stamp{Remaining: -3 * msec, HasRemaining: true, Derived: true}},
		{"nothing left", KindServer, false, []any{"deadline_remaining_ms", 0}, &Stamp{HasRemaining: true, Derived: true}},
		{
			"it counts more than headers", KindServer, false, append(header("x-timeout-budget-ms", "300"), "deadline_remaining_ms", 100),
			&Stamp{Remaining: 100 * msec, HasRemaining: true, Derived: true},
		},
		{
			"a stamp counts more than all", KindServer, false, append(header("x-timeout-budget-ms", "300"), "deadline_remaining_ms", 100, "latency_budget.remaining.start", 0.25),
			&Stamp{Remaining: 250 * msec, HasRemaining: true},
		},
		{
			"a stamp without deadline stays so", KindClient, false, append(header("x-timeout-budget-ms", "300"), "latency_budget.remaining.start", 0.25),
			&Stamp{Remaining: 250 * msec, HasRemaining: true},
		},
		{"a header that nobody knows", KindServer, false, header("x-timeout", "300"), nil},
	} {
		got, notes := on(t, c.kind, c.root, c.attrs...)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want || len(notes) > 0 {
			t.Errorf("%s: %+v, notes %v; want %+v", c.name, got, notes, c.want)
		}
	}
}

// authorityNone: a point in time a thousand seconds before the span is believed;
// only what is more than a day away cannot be meant.
var authorityNone = &Stamp{
	Remaining: -999 * int64(time.Second), HasRemaining: true,
	DeadlineRemaining: -999 * int64(time.Second), HasDeadline: true, Absolute: true, Derived: true,
}

func TestHeadersAreFoundUnderAllPrefixesAndSpellings(t *testing.T) {
	values := map[string]string{
		"x-timeout-budget-ms": "300", "connect-timeout-ms": "300", "grpc-timeout": "300m", "x-request-deadline": "1000300",
		"x-envoy-expected-rq-timeout-ms": "300", "latency-budget-observed": `obs1;r=300;t=300;h=1;s="0000000000000001"`,
	}
	for name, value := range values {
		for _, prefix := range []string{"http.request.header.", "rpc.request.metadata.", "rpc.grpc.request.metadata.", "rpc.connect_rpc.request.metadata."} {
			for _, spelling := range []string{name, strings.ReplaceAll(name, "-", "_")} {
				st, _ := on(t, KindServer, false, prefix+spelling, value)
				if left := 300 * msec; st == nil || max(st.Remaining, st.DeadlineRemaining) != left {
					t.Errorf("%s%s: %+v", prefix, spelling, st)
				}
			}
		}
		for _, other := range []string{"http.response.header." + name, "rpc.response.metadata." + name, "rpc." + name, http + name + "s", http} {
			if st, _ := on(t, KindServer, false, other, value); st != nil {
				t.Errorf("%s: %+v, want nothing", other, st)
			}
		}
	}
}

func TestAValueThatIsNoneIsCountedAndLeftOut(t *testing.T) {
	bad := map[string][]string{
		"x-timeout-budget-ms":            {"", " ", "1e3", "-1", "+5", "-0", "10s", "1.5", "0x1", "99999999999", "3600001", "３００"},
		"x-envoy-expected-rq-timeout-ms": {"-1", "15s"},
		"connect-timeout-ms":             {"-1"},
		"x-request-deadline":             {"-1", "9999999999999999", "2026-11-30T00:00:00Z"},
		"grpc-timeout":                   {"", "5", "S", "1e3m", "-1S", "+1S", "123456789S", "10s", "1 S", "99999999H", "61M"},
		"latency-budget-observed": {
			"obs1", "obs1;r=1", `obs1;r=2;t=1;h=0;s="0000000000000001"`, `obs1;r=400;t=300;h=1;s="0000000000000001"`,
			`obs1;r=1;r=1;t=1;h=1;s="0000000000000001"`, `obs1;r=1;t=0;h=1;s="0000000000000001"`,
			`obs1;r=1;t=1;h=1;s="0000000000000000"`, `obs1;r=1;t=1;h=1;s=0000000000000001`, `obs1;r=1;t=1;h=1;s="00000000000000A1"`,
			`obs1;r=1;t=1;h=1;s="0000000000000001";`, `obs1,r=1`, `obs1;r=1.2345;t=9;h=1;s="0000000000000001"`,
			`obs1;r=1;t=3600001;h=1;s="0000000000000001"`, "obs1;x=" + strings.Repeat("y", 128),
		},
		"deadline_remaining_ms": {"", "soon", "NaN", "1e99"},
	}
	for name, values := range bad {
		key := http + name
		if name == "deadline_remaining_ms" {
			key = name
		}
		for _, v := range values {
			if st, notes := on(t, KindServer, false, key, v); st != nil || len(notes) != 1 || notes[0] != NoteBadStamp {
				t.Errorf("%s %q: %+v, notes %v", name, v, st, notes)
			}
		}
	}
	for _, v := range []any{math.Inf(1), math.NaN(), 1e30, true} {
		if st, notes := on(t, KindServer, false, "deadline_remaining_ms", v); st != nil || len(notes) != 1 {
			t.Errorf("deadline_remaining_ms %v: %+v, notes %v", v, st, notes)
		}
	}
	if st, notes := on(t, KindServer, false, header("latency-budget-observed", "obs2;left=5")...); st != nil || len(notes) > 0 {
		t.Errorf("another version: %+v, notes %v", st, notes)
	}
	for v, want := range map[string]int64{"1H": 3600e9, "60M": 3600e9, "2S": 2e9, "5m": 5e6, "7u": 7e3, "99999999n": 99999999, "0n": 0} {
		if st, _ := on(t, KindServer, false, http+"grpc-timeout", v); st == nil || st.Remaining != want {
			t.Errorf("grpc-timeout %s: %+v, want %d", v, st, want)
		}
	}
}

func TestOtherAttributesForWhatRemains(t *testing.T) {
	list := make([]RemainingAttribute, 0, 2)
	for _, s := range []string{"app.budget=left=us", "rest=s"} {
		r, err := ParseRemainingAttribute(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	if err := CheckRemainingAttributes(list); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		attrs []any
		want  int64
	}{
		{[]any{"app.budget=left", 1500}, 1_500_000},
		{[]any{"rest", 0.25}, 250 * msec},
		{[]any{"rest", 0.25, "app.budget=left", 1500}, 1_500_000},
		{[]any{"deadline_remaining_ms", 7}, 0}, // not asked for
	} {
		a := Attributes{Remaining: list}
		for range 2 { // Reset keeps the list
			a.Reset()
			attrs(&a, c.attrs...)
			var in Interner
			s := Span{Kind: KindServer}
			a.Describe(&s, Resource{}, in.NewCache())
			if got := s.Stamp; (got == nil) != (c.want == 0) || got != nil && got.Remaining != c.want {
				t.Errorf("%v: %+v, want %d", c.attrs, got, c.want)
			}
		}
	}
	for _, s := range []string{"", "=ms", "rest", "rest=", "rest=h", "rest=MS"} {
		if r, err := ParseRemainingAttribute(s); err == nil {
			t.Errorf("%q: %+v, want an error", s, r)
		}
	}
	many := make([]RemainingAttribute, MaxRemainingAttributes+1)
	for i := range many {
		many[i] = RemainingAttribute{fmt.Sprint("a", i), time.Second}
	}
	for want, bad := range map[string][]RemainingAttribute{
		"at most 16":          many,
		"twice":               {{"a", 1}, {"a", 2}},
		"empty":               {{"", 1}},
		"unit":                {{"a", 0}},
		"meaning of its own":  {{"http.route", 1}},
		"meaning of its o":    {{"latency_budget.remaining.end", 1}},
		"a meaning of its ow": {{"http.request.header.grpc-timeout", 1}},
	} {
		if err := CheckRemainingAttributes(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", bad, err, want)
		}
	}
	if err := CheckRemainingAttributes(DefaultRemainingAttributes()); err != nil {
		t.Error(err)
	}
}

func TestDetachedAndUnsafeSpans(t *testing.T) {
	for _, c := range []struct {
		attrs []any
		want  Flags
	}{
		{[]any{"latency_budget.detached", true}, FlagFollowsFrom},
		{[]any{"latency_budget.detached", "true"}, FlagFollowsFrom},
		{[]any{"latency_budget.detached", false}, 0},
		{[]any{"http.request.method", "POST"}, FlagUnsafe},
		{[]any{"http.method", "PATCH"}, FlagUnsafe},
		{[]any{"http.request.method", "PUT"}, 0}, // safe to repeat
		{[]any{"http.request.method", "POST", "http.request.header.idempotency-key", `["k1"]`}, 0},
		{[]any{"http.request.header.idempotency_key", "k1", "http.request.method", "POST"}, 0},
		{[]any{"http.request.method", "POST", "http.request.header.idempotency-key", ""}, FlagUnsafe},
	} {
		if s, notes := described(KindClient, "x", Resource{}, c.attrs...); s.Flags != c.want || len(notes) > 0 {
			t.Errorf("%v: flags %b, notes %v; want %b", c.attrs, s.Flags, notes, c.want)
		}
	}
}

// TestAttributesAreReadWithoutAllocation: what nobody wants costs nothing, and
// headers no more than their stamp.
func TestAttributesAreReadWithoutAllocation(t *testing.T) {
	names := [][]byte{
		[]byte("http.request.header.x-timeout-budget-ms"), []byte("rpc.grpc.request.metadata.grpc_timeout"),
		[]byte("http.request.header.user-agent"), []byte("deadline_remaining_ms"), []byte("app.other"),
	}
	value := []byte("300")
	var a Attributes
	if n := testing.AllocsPerRun(100, func() {
		a.Reset()
		for _, name := range names {
			if key, wanted := a.See(name); wanted {
				a.SetString(key, value)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// FuzzCapturedHeaders: whatever stands in a header, in whatever form it was captured, a span has no
// more left than a day and no limit over an hour, and says the same in files and in a Collector.
func FuzzCapturedHeaders(f *testing.F) {
	for _, v := range []string{
		"300", "-1", "0", "1800000000100", "999999999999999", "99999u", "8H", "1n", `["300"]`, `["a","b"]`, `["\""]`, "[", "",
		`obs1;r=254.318;t=300;h=2;s="0000000000000001"`, `obs1; s="0000000000000001";x="a;\"";h=255;t=1;r=-1`, "obs1;r=;t=;h=;s=", "obs2;r=1",
	} {
		for i := range headers {
			f.Add(uint8(i), uint8(KindServer), v, "")
		}
		f.Add(uint8(len(headers)), uint8(KindClient), v, "0.25")
	}
	f.Fuzz(func(t *testing.T, which, kind uint8, value, own string) {
		keys := []string{"deadline_remaining_ms", "latency_budget.remaining.start", "latency_budget.limit", "latency_budget.deadline.remaining"}
		for _, h := range headers {
			keys = append(keys, http+h.name)
		}
		cache := new(Interner).NewCache()
		var asBytes, asText Attributes
		for _, pair := range [][2]string{{keys[int(which)%len(keys)], value}, {keys[int(which/16)%len(keys)], own}} {
			key, wanted := asBytes.See([]byte(pair[0]))
			if !wanted {
				t.Fatalf("%s is not wanted", pair[0])
			}
			if b, s := asBytes.SetString(key, []byte(pair[1])), asText.SetText(key, pair[1]); b != s {
				t.Fatalf("%s=%q: note %q as bytes, %q as text", pair[0], pair[1], b, s)
			}
		}
		span := Span{ID: SpanID{7: 2}, Kind: Kind(kind % 6), Start: 1000e9, Duration: 1e6}
		if kind&8 != 0 {
			span.Parent = SpanID{7: 1}
		}
		other := span
		asBytes.Describe(&span, Resource{}, cache)
		asText.Describe(&other, Resource{}, cache)
		if diff := cmp.Diff(span, other); diff != "" {
			t.Fatalf("as bytes (-) and as text (+):\n%s", diff)
		}
		if st := span.Stamp; st != nil {
			for _, ns := range []int64{st.Remaining, st.DeadlineRemaining, st.Announced} {
				if ns > maxRemaining || ns < -maxRemaining {
					t.Errorf("%+v", *st)
				}
			}
			if st.Limit < 0 || st.Limit > maxLimit {
				t.Errorf("%+v", *st)
			}
		}
	})
}
