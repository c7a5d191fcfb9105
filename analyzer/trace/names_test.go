package trace

import (
	"fmt"
	"math/rand/v2"
	"strings"
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

// What is known of a name does not depend on the names before it, however many there
// are and wherever they are kept.
func TestNamesAreKnownWhateverCameBefore(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	own := append(DefaultRemainingAttributes(), RemainingAttribute{Name: "app.left", Unit: 1000})
	a := Attributes{Remaining: own}
	wanted, flagged := 0, 0
	for range 200_000 {
		name := drawName(rng)
		key, flags := lookUp(&a, name)
		if k, f := classify(&a, name); k != key || f != flags {
			t.Fatalf("%q: key %d and flags %b, want %d and %b", name, k, f, key, flags)
		}
		if key != 0 {
			wanted++
		}
		if flags != 0 {
			flagged++
		}
	}
	if wanted < 1000 || flagged < 1000 {
		t.Errorf("%d names are wanted, %d give flags: the test shows little", wanted, flagged)
	}
}

// Names that share a place with others are told apart.
func TestNamesThatShareAPlaceAreToldApart(t *testing.T) {
	var a Attributes
	var crowd []string
	place := nameHash("http.route")
	for i := 0; len(crowd) < 4; i++ {
		if name := fmt.Sprintf("x.route%d", i); nameHash(name) == place {
			crowd = append(crowd, name)
		}
	}
	for range 3 {
		for _, name := range crowd {
			if key, wanted := a.SeeText(name); wanted {
				t.Errorf("%q is taken for attribute %d", name, key)
			}
			if key, wanted := a.SeeText("http.route"); !wanted || key != attrRoute {
				t.Errorf("http.route is not known after %q", name)
			}
		}
	}
}

// How a span is described does not depend on the spans before it.
func TestDescriptionsDependOnTheSpanAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	names := []string{
		"http.route", "url.template", "http.request.method", "rpc.service", "rpc.method", "db.query.summary", "db.operation.name",
		"db.collection.name", "db.system.name", "messaging.system", "messaging.operation.name", "messaging.destination.name",
		"peer.service", "server.address", "host.name", "ip", "app.x",
	}
	texts := []string{"", "GET", "POST", "_OTHER", "/a/17", "/a", "a", "b", "ab", "10.0.0.1", "shop:80", "订单", strings.Repeat("long", 80)}
	var a Attributes
	cache := new(Interner).NewCache()
	descs := make(map[Desc]bool)
	for range 20_000 {
		a.Reset()
		var fresh Attributes
		for range rng.IntN(5) {
			name, text := names[rng.IntN(len(names))], texts[rng.IntN(len(texts))]
			for _, to := range []*Attributes{&a, &fresh} {
				if key, wanted := to.SeeText(name); wanted {
					to.SetText(key, text)
				}
			}
		}
		name := texts[rng.IntN(len(texts))] + texts[rng.IntN(len(texts))]
		a.SetText(AttrSpanName, name)
		fresh.SetText(AttrSpanName, name)
		kind, r := Kind(rng.IntN(6)), Resource{Service: texts[rng.IntN(len(texts))], Host: texts[rng.IntN(len(texts))]}
		got, want := a.Desc(kind, r, cache), fresh.Desc(kind, r, new(Interner).NewCache())
		if *got != *want {
			t.Fatalf("%+v after other spans, %+v alone", *got, *want)
		}
		descs[*got] = true
	}
	if len(descs) < 3_000 {
		t.Errorf("only %d descriptions: the test shows little", len(descs))
	}
}

// Spans that say nearly the same, one after the other, are described each by itself.
func TestDescriptionsAreToldApart(t *testing.T) {
	type said struct {
		kind          Kind
		service, host string
		texts         map[AttrKey]string
	}
	key := func(k AttrKey) string { return string(rune(k)) }
	rest := strings.Repeat("r", 254)
	for name, pair := range map[string][2]said{
		"kind": {
			{kind: KindClient, texts: map[AttrKey]string{AttrPeerService: "a"}},
			{kind: KindServer, texts: map[AttrKey]string{AttrPeerService: "a"}},
		},
		"service and host":  {{service: "ab", host: "c"}, {service: "a", host: "bc"}},
		"service and texts": {{service: "a" + key(AttrSpanName) + "\x01b"}, {service: "a", texts: map[AttrKey]string{AttrSpanName: "b"}}},
		"host and texts":    {{host: "a" + key(AttrSpanName) + "\x01b"}, {host: "a", texts: map[AttrKey]string{AttrSpanName: "b"}}},
		"one text and two": {
			{texts: map[AttrKey]string{attrRoute: "a" + key(attrURLTemplate) + "b"}},
			{texts: map[AttrKey]string{attrRoute: "a", attrURLTemplate: "b"}},
		},
		"a long text and two": {
			{texts: map[AttrKey]string{attrRoute: "a" + key(attrURLTemplate) + "\xfe" + rest}},
			{texts: map[AttrKey]string{attrRoute: "a", attrURLTemplate: rest}},
		},
		"names": {{texts: map[AttrKey]string{AttrSpanName: "a"}}, {texts: map[AttrKey]string{AttrPeerService: "a"}}},
	} {
		describe := func(s said, c *Cache) *Desc {
			var a Attributes
			for key, text := range s.texts {
				a.SetText(key, text)
			}
			return a.Desc(s.kind, Resource{s.service, s.host}, c)
		}
		for first := range pair {
			cache := new(Interner).NewCache()
			describe(pair[first], cache)
			other := pair[1-first]
			if got, want := describe(other, cache), describe(other, new(Interner).NewCache()); *got != *want {
				t.Errorf("%s: %+v after the other, %+v alone", name, *got, *want)
			}
		}
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
