package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Most is the longest duration that a plan may hold, as for spans: a day.
const Most = Duration(24 * time.Hour)

// off is how a gate says that it does not fail on something.
const off = "off"

// plain is off without quotes. Encoders quote it because YAML 1.1 takes it for false.
var plain = yaml.Node{Kind: yaml.ScalarNode, Value: off}

// Std returns the duration as package time has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String writes the duration as a plan does: exact, with its unit, 0 for none.
func (d Duration) String() string {
	if d == 0 {
		return "0"
	}
	text := strings.Replace(time.Duration(d).String(), "µ", "u", 1)
	for _, zero := range [...]string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// MarshalYAML writes the duration with its unit.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

func (d *Duration) set(text string) error {
	v, err := time.ParseDuration(text)
	switch {
	case err != nil && isNumber(text):
		return fmt.Errorf("%s has no unit: write %sms or %ss", text, text, text)
	case err != nil:
		return fmt.Errorf("%q is no duration: write a number with its unit, such as 200ms or 1.5s", text)
	case v < 0:
		return fmt.Errorf("%s is less than 0", text)
	case Duration(v) > Most:
		return fmt.Errorf("%s is more than %v", text, Most)
	}
	*d = Duration(v)
	return nil
}

func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// String writes the ratio in percent, exactly.
func (r Ratio) String() string {
	// Shifting the decimal point keeps every digit, a product would not.
	digits := strconv.FormatFloat(float64(r), 'f', -1, 64)
	whole, fraction, _ := strings.Cut(digits, ".")
	for len(fraction) < 2 {
		fraction += "0"
	}
	whole = strings.TrimLeft(whole+fraction[:2], "0")
	if whole == "" {
		whole = "0"
	}
	if fraction = strings.TrimRight(fraction[2:], "0"); fraction != "" {
		whole += "." + fraction
	}
	return whole + "%"
}

// MarshalYAML writes the ratio in percent.
func (r Ratio) MarshalYAML() (any, error) { return r.String(), nil }

func (r *Ratio) set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	percent = percent || text == "0"
	number = strings.TrimSpace(number)
	switch {
	case !percent && isNumber(text):
		return fmt.Errorf("%s has no unit: write %s%%", text, text)
	case number == "" || strings.Trim(number, "0123456789.") != "":
		return fmt.Errorf("%q is no percentage: write a number with %%, such as 0.1%%", text)
	}
	v, err := strconv.ParseFloat(number+"e-2", 64)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no percentage: write a number with %%, such as 0.1%%", text)
	case v > 1:
		return fmt.Errorf("%s is more than 100%%", text)
	}
	*r = Ratio(v)
	return nil
}

// MarshalYAML writes the percentage, or off.
func (l RatioLimit) MarshalYAML() (any, error) {
	if l.Off {
		return &plain, nil
	}
	return l.Ratio.String(), nil
}

func (l *RatioLimit) set(text string) error {
	if l.Off = text == off; l.Off {
		l.Ratio = 0
		return nil
	}
	return orOff(l.Ratio.set(text))
}

// MarshalYAML writes the duration, or off.
func (l DurationLimit) MarshalYAML() (any, error) {
	if l.Off {
		return &plain, nil
	}
	return l.Duration.String(), nil
}

func (l *DurationLimit) set(text string) error {
	if l.Off = text == off; l.Off {
		l.Duration = 0
		return nil
	}
	return orOff(l.Duration.set(text))
}

func orOff(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(err.Error() + "; or off")
}
