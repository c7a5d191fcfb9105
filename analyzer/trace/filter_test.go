package trace

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// drawName is the name of an attribute: one that is wanted, or one that is nearly so.
func drawName(rng *rand.Rand) string {
	name := "app.left"
	switch rng.IntN(3) {
	case 0:
		name = wantedNames[rng.IntN(len(wantedNames))].name
	case 1:
		name = headerPrefixes[rng.IntN(len(headerPrefixes))] + headers[rng.IntN(len(headers))].name
	}
	for _, prefixes := range [...][]string{outboundPrefixes, samplerPrefixes} {
		if rng.IntN(8) == 0 {
			name = prefixes[rng.IntN(len(prefixes))] + name[:rng.IntN(len(name))]
		}
	}
	switch at := rng.IntN(len(name)); rng.IntN(8) {
	case 0:
		return name[:at]
	case 1:
		return name + "x"
	case 2:
		return name[:at] + string(rune('a'+rng.IntN(26))) + name[at+1:]
	}
	return name
}

// A name that a filter passes over has no part in what a span says.
func TestFilterPassesOverNothingThatMatters(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	own := append(DefaultRemainingAttributes(), RemainingAttribute{Name: "app.left", Unit: 1000})
	f := NewFilter(own)
	passed, taken := 0, 0
	for range 200_000 {
		name := drawName(rng)
		a := Attributes{Remaining: own}
		_, wanted := a.SeeText(name)
		switch {
		case (wanted || a.flags != 0) && !f.May(name):
			t.Fatalf("%q is passed over", name)
		case wanted:
			taken++
		case !f.May(name):
			passed++
		}
	}
	if passed < 1000 || taken < 1000 {
		t.Errorf("%d names are passed over, %d are taken: the test shows little", passed, taken)
	}
}

// Whether names and texts come as strings or as bytes makes no difference.
func TestStringsAreTakenLikeBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	texts := []string{
		"", "504", "499", "4", "true", "false", "POST", "GET", "/users/7", "pkg.Service", "Get", "client", "timeout", "0.25", "300", "300m",
		"context canceled", "ot=th:8", "derived", "10.0.0.1:80", "db", `["300"]`, `obs1;r=254.318;t=300;h=2;s="00f067aa0ba902b7"`,
	}
	var asBytes, asText Attributes
	cache := new(Interner).NewCache()
	for range 50_000 {
		asBytes.Reset()
		asText.Reset()
		for range rng.IntN(8) {
			name, text := drawName(rng), texts[rng.IntN(len(texts))]
			key, wanted := asBytes.See([]byte(name))
			if k, w := asText.SeeText(name); k != key || w != wanted {
				t.Fatalf("%q: %v, %v as text, %v, %v as bytes", name, k, w, key, wanted)
			}
			if !wanted {
				continue
			}
			if rng.IntN(4) == 0 {
				n := rng.Int64N(600)
				asBytes.SetInt(key, n)
				asText.SetInt(key, n)
				continue
			}
			if b, s := asBytes.SetString(key, []byte(text)), asText.SetText(key, text); b != s {
				t.Fatalf("%s=%q: note %q as text, %q as bytes", name, text, s, b)
			}
		}
		kind := Kind(rng.IntN(6))
		want, got := Span{Kind: kind}, Span{Kind: kind}
		asBytes.Describe(&want, asBytes.Resource(cache), cache)
		asText.Describe(&got, asText.Resource(cache), cache)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("as bytes (-) and as text (+):\n%s", diff)
		}
	}
}
