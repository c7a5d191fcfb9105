package source

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
)

func TestParseInteger(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "7": 7, "-7": -7, "007": 7, "1e3": 1000, "1.5e1": 15, "1.58e18": 1580000000000000000, "15.0": 15,
		"1500e-2": 15, "0e99": 0, "0.0": 0, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "1E2": 100, "1e+2": 100,
		"1700000000000000001": 1700000000000000001, "0.00e5": 0, "0.5e1": 5,
	} {
		if got, ok := parseInteger([]byte(text)); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "-", ".", "1.5", "1e-1", "9223372036854775808", "-9223372036854775809", "-18446744073709551615", "1e19", "1e99", "x", "1x", "1e", "1e+", "--1", "1..0",
		"NaN", "+1", " 1", "1e1234", "99999999999999999999999999999999999999999", ".5e1",
	} {
		if got, ok := parseInteger([]byte(text)); ok {
			t.Errorf("%q: %d, want none", text, got)
		}
	}
}

// TestParseIntegerIsExact compares with rational arithmetic.
func TestParseIntegerIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		n := rng.Int64N(1 << rng.IntN(63))
		text := strconv.FormatInt(n, 10)
		if cut := rng.IntN(len(text)); cut > 0 {
			text = text[:cut] + "." + text[cut:] + "e" + strconv.Itoa(rng.IntN(len(text)))
		}
		rat, _ := new(big.Rat).SetString(text)
		want := rat.IsInt() && rat.Num().IsInt64()
		got, ok := parseInteger([]byte(text))
		if ok != want || ok && got != rat.Num().Int64() {
			t.Fatalf("%s: %d %v, want %v", text, got, ok, rat)
		}
	}
}
