package propagation

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
)

// vectors are the cases of testdata/header.json, which is written so that other
// languages can use it.
type vectors struct {
	Header string
	Cases  []struct {
		Name, Header, Result string
		RemainingMicros      int64 `json:"remaining_us"`
		LimitMicros          int64 `json:"limit_us"`
		Hop                  uint8
		SpanID               string `json:"span_id"`
		Canonical            string
	}
}

func readVectors(tb testing.TB) vectors {
	tb.Helper()
	data, err := os.ReadFile("testdata/header.json")
	if err != nil {
		tb.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		tb.Fatal(err)
	}
	if len(v.Cases) == 0 {
		tb.Fatal("no cases")
	}
	return v
}

func TestParseVectors(t *testing.T) {
	v := readVectors(t)
	if v.Header != Header {
		t.Errorf("vectors are for %q, want %q", v.Header, Header)
	}
	verdicts := map[string]verdict{"valid": valid, "invalid": invalid, "absent": absent}
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			want, known := verdicts[c.Result]
			if !known {
				t.Fatalf("unknown result %q", c.Result)
			}
			a, got := parse(c.Header, int64(time.Hour))
			if got != want {
				t.Fatalf("parse(%q) = %v, want %s", c.Header, got, c.Result)
			}
			if got != valid {
				return
			}
			span, err := trace.SpanIDFromHex(c.SpanID)
			if err != nil {
				t.Fatal(err)
			}
			figures := announcement{remaining: c.RemainingMicros * 1000, limit: c.LimitMicros * 1000, hop: c.Hop, span: span}
			if diff := cmp.Diff(figures, a, cmp.AllowUnexported(announcement{})); diff != "" {
				t.Errorf("parse(%q) (-want +got):\n%s", c.Header, diff)
			}
			if got := a.header(); got != c.Canonical {
				t.Errorf("written again %q, want %q", got, c.Canonical)
			}
		})
	}
}

func TestParseHoldsTheConfiguredMaximum(t *testing.T) {
	const value = `obs1;r=1;t=99999999.999;h=1;s="00f067aa0ba902b7"`
	if _, got := parse(value, int64(longestLimit)); got != valid {
		t.Errorf("at the maximum: %v, want valid", got)
	}
	if _, got := parse(value, int64(longestLimit)-1000); got != invalid {
		t.Errorf("1 µs beyond the maximum: %v, want invalid", got)
	}
}

// Written and read again, figures are the same to 1 µs: rounded down, so that
// no budget grows on the wire.
func TestHeaderRoundTripIsExactToTheMicrosecond(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		a := announcement{limit: 1 + r.Int64N(int64(time.Hour)), hop: uint8(1 + r.IntN(255))}
		a.remaining = a.limit - r.Int64N(2*a.limit)
		a.span[r.IntN(8)] = byte(1 + r.IntN(255))
		if r.IntN(4) == 0 { // Ends of fractions.
			a.remaining = a.remaining / 100_000 * 100_000
			a.limit = max(a.remaining, a.limit/1_000_000*1_000_000, 1000)
		}
		value := a.header()
		got, verdict := parse(value, int64(time.Hour))
		if verdict != valid {
			t.Fatalf("%+v is written %q, which is %v", a, value, verdict)
		}
		if d := a.remaining - got.remaining; d < 0 || d >= 1000 {
			t.Fatalf("%q: remaining %d ns became %d", value, a.remaining, got.remaining)
		}
		if d := max(a.limit, 1000) - got.limit; d < 0 || d >= 1000 {
			t.Fatalf("%q: limit %d ns became %d", value, a.limit, got.limit)
		}
		if got.hop != a.hop || got.span != a.span {
			t.Fatalf("%q: hop %d and span %s, want %d and %s", value, got.hop, got.span, a.hop, a.span)
		}
		if again := got.header(); again != value {
			t.Fatalf("%q is written again as %q", value, again)
		}
	}
}

// bareItem is RFC 9651's bare-item, apart from the contents of byte sequences
// and display strings.
const bareItem = `(?:-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|"(?:[ !#-\[\]-~]|\\["\\])*"|%"(?:[ !#-\[\]-~]|\\["\\])*"|` +
	`:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}|[A-Za-z*][!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:/-]*)`

var (
	accepted  = regexp.MustCompile(`^obs1(?:; *[a-z*][a-z0-9_.*-]*(?:=` + bareItem + `)?)+$`)
	otherForm = regexp.MustCompile(`^obs(?:[2-9]|[1-9][0-9]+)(?:;|$)`)
	parameter = regexp.MustCompile(`; *([a-z*][a-z0-9_.*-]*)(?:=(` + bareItem + `))?`)
	forms     = map[string]*regexp.Regexp{
		"r": regexp.MustCompile(`^-?[0-9]{1,8}(?:\.[0-9]{1,3})?$`),
		"t": regexp.MustCompile(`^[0-9]{1,8}(?:\.[0-9]{1,3})?$`),
		"h": regexp.MustCompile(`^[0-9]{1,3}$`),
		"s": regexp.MustCompile(`^"[0-9a-f]{16}"$`),
	}
)

// oracle decides about a value by regular expressions alone.
func oracle(value string) verdict {
	switch {
	case value == "":
		return absent
	case len(value) > 128:
		return invalid
	case otherForm.MatchString(value):
		return absent
	case !accepted.MatchString(value):
		return invalid
	}
	got := map[string]string{}
	for _, m := range parameter.FindAllStringSubmatch(value[len("obs1"):], -1) {
		form, ours := forms[m[1]]
		if !ours {
			continue
		}
		if _, twice := got[m[1]]; twice || !form.MatchString(m[2]) {
			return invalid
		}
		got[m[1]] = m[2]
	}
	if len(got) != len(forms) {
		return invalid
	}
	r, _ := strconv.ParseFloat(got["r"], 64)
	total, _ := strconv.ParseFloat(got["t"], 64)
	h, _ := strconv.Atoi(got["h"])
	if total <= 0 || total > 3600_000 || r > 3600_000 || r < -3600_000 || r > total+1.0000001 ||
		h < 1 || h > 255 || got["s"] == `"0000000000000000"` {
		return invalid
	}
	return valid
}

func FuzzParse(f *testing.F) {
	for _, c := range readVectors(f).Cases {
		f.Add(c.Header)
	}
	f.Fuzz(func(t *testing.T, value string) {
		a, got := parse(value, int64(time.Hour))
		if want := oracle(value); got != want {
			t.Fatalf("parse(%q) = %v, want %v", value, got, want)
		}
		if got != valid {
			if a != (announcement{}) {
				t.Fatalf("parse(%q) leaves %+v", value, a)
			}
			return
		}
		canonical := a.header()
		again, verdict := parse(canonical, int64(time.Hour))
		if verdict != valid || again != a {
			t.Fatalf("parse(%q) = %+v, written %q and read %+v, %v", value, a, canonical, again, verdict)
		}
		if !strings.Contains(canonical, hex.EncodeToString(a.span[:])) || len(canonical) > 70 {
			t.Fatalf("%q has the wrong span or length", canonical)
		}
	})
}

func TestParseDoesNotAllocate(t *testing.T) {
	for _, value := range []string{
		`obs1;r=254.318;t=300;h=2;s="00f067aa0ba902b7"`, "obs1;r=soon", "obs2;anything",
		`obs1;r=254.318;t=300;h=2;s="00f067aa0ba902b7";x="abc"`,
	} {
		if n := testing.AllocsPerRun(1000, func() { parse(value, int64(time.Hour)) }); n != 0 {
			t.Errorf("parse(%q): %v allocations", value, n)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	const value = `obs1;r=254.318;t=300;h=2;s="00f067aa0ba902b7"`
	b.ReportAllocs()
	for b.Loop() {
		if _, v := parse(value, int64(time.Hour)); v != valid {
			b.Fatal(v)
		}
	}
}
