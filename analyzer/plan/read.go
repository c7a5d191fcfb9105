package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// MaxBytes is the size of the largest file that Read takes.
const MaxBytes = 4 << 20

// Read reads a plan and validates it. name is the file's name, for messages.
//
// It is strict: a key that it does not know, a key that is there twice, or a
// value of another type than wanted is an error with its line. All of them are
// returned, as [Errors], not only the first, but for those after the first hundred,
// of which there is a count; what the values say together is
// checked once each of them can be read. Errors of r are returned as they are.
func Read(name string, r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := decoder{name: name, lines: make(map[any]int)}
	if len(text) > MaxBytes {
		d.fail(0, "larger than %d bytes, which no plan is", MaxBytes)
		return nil, d.errs
	}
	p := &Plan{Gate: DefaultGate()}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	switch err := documents.Decode(&document); {
	case errors.Is(err, io.EOF):
		d.fail(0, "the file is empty")
		return nil, d.errs
	case err != nil:
		d.syntax(err)
		return nil, d.errs
	}
	d.value(document.Content[0], "the plan", reflect.ValueOf(p).Elem())
	var more yaml.Node
	switch err := documents.Decode(&more); {
	case err == nil:
		d.fail(more.Line, "a second document: a plan is one")
	case !errors.Is(err, io.EOF):
		d.syntax(err)
	}
	if len(d.errs) == 0 {
		d.errs = p.check(func(value any) int { return d.lines[value] })
		for _, e := range d.errs {
			e.File = name
		}
	}
	if err := d.errs.orNil(); err != nil {
		return nil, d.bounded()
	}
	return p, nil
}

// maxErrors is how many errors of one plan are told: a file of something else may
// have one in each line.
const maxErrors = 100

// bounded returns the errors, which are in order, and a count of those beyond maxErrors.
func (d *decoder) bounded() Errors {
	if beyond := len(d.errs) - maxErrors; beyond > 0 {
		d.errs = d.errs[:maxErrors]
		d.untold += beyond
	}
	if d.untold > 0 {
		d.errs = append(d.errs, &Error{File: d.name, Text: fmt.Sprintf("and %d more", d.untold)})
	}
	return d.errs
}

// decoder turns the nodes of a document into values. It goes by the types and
// their yaml tags, so that reading and writing know the same keys.
type decoder struct {
	name  string
	lines map[any]int // line of each value, by the pointer to it
	errs  Errors
	// untold is how many more errors there are: texts of so many would fill the memory.
	untold int
}

func (d *decoder) fail(line int, format string, args ...any) {
	if len(d.errs) >= maxErrors {
		d.untold++
		return
	}
	d.errs = append(d.errs, &Error{File: d.name, Line: line, Text: oneLine(fmt.Sprintf(format, args...))})
}

// lineOf finds the line in an error of the YAML parser.
var lineOf = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?s:(.*))$`)

func (d *decoder) syntax(err error) {
	text, line := err.Error(), 0
	if m := lineOf.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1]) // none is 0
		text = m[2]
	}
	d.fail(line, "no YAML: %s", strings.ReplaceAll(text, "\n", " "))
}

// scalar is a type with a form of its own.
type scalar interface{ set(text string) error }

// value decodes a node, named key in messages.
func (d *decoder) value(n *yaml.Node, key string, to reflect.Value) {
	if n.Kind == yaml.AliasNode {
		d.fail(n.Line, "%s: write the value again instead of *%s", key, n.Value)
		return
	}
	at := to.Addr().Interface()
	d.lines[at] = n.Line
	null := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
	switch v := at.(type) {
	case scalar:
		if d.single(n, key, null) {
			d.refuse(n, key, v.set(n.Value))
		}
		return
	case *time.Time:
		if d.single(n, key, null) {
			t, err := time.Parse(time.RFC3339Nano, n.Value)
			if err != nil {
				err = fmt.Errorf("%q is no time: write it as 2026-01-31T12:00:00Z", n.Value)
			}
			*v = t.UTC()
			d.refuse(n, key, err)
		}
		return
	}
	switch to.Kind() {
	case reflect.Struct:
		if !null {
			d.mapping(n, key, to)
		}
	case reflect.Slice:
		if null || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			return
		}
		if n.Kind != yaml.SequenceNode {
			d.fail(n.Line, "%s: want a list", key)
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.value(item, key, to.Index(i))
		}
	case reflect.Pointer:
		if !null {
			to.Set(reflect.New(to.Type().Elem()))
			d.value(n, key, to.Elem())
		}
	case reflect.String:
		if d.single(n, key, null) {
			to.SetString(n.Value)
		}
	case reflect.Bool:
		if d.single(n, key, null) {
			to.SetBool(n.Value == "true")
			if n.Value != "true" && n.Value != "false" {
				d.fail(n.Line, "%s: %q: want true or false", key, n.Value)
			}
		}
	case reflect.Int:
		if d.single(n, key, null) {
			v, err := strconv.Atoi(n.Value)
			if err != nil {
				err = fmt.Errorf("%q is no whole number", n.Value)
			}
			to.SetInt(int64(v))
			d.refuse(n, key, err)
		}
	}
}

func (d *decoder) refuse(n *yaml.Node, key string, err error) {
	if err != nil {
		d.fail(n.Line, "%s: %v", key, err)
	}
}

// single tells whether a node is a single value.
func (d *decoder) single(n *yaml.Node, key string, null bool) bool {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.fail(n.Line, "%s: want a single value", key)
	case null:
		d.fail(n.Line, "%s: the value is missing", key)
	default:
		return true
	}
	return false
}

func (d *decoder) mapping(n *yaml.Node, key string, to reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, "%s: want keys and values", key)
		return
	}
	keys := keysOf(to.Type())
	first := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		at := slices.Index(keys, name.Value)
		switch {
		case name.Kind != yaml.ScalarNode || at < 0:
			d.fail(name.Line, "unknown key %q: want one of %s", name.Value, strings.Join(keys, ", "))
		case first[name.Value] > 0:
			d.fail(name.Line, "%s: there already, in line %d", name.Value, first[name.Value])
		default:
			first[name.Value] = name.Line
			d.value(n.Content[i+1], name.Value, to.Field(at))
		}
	}
}

// keysOf returns the keys of a struct, in the order of its fields.
func keysOf(t reflect.Type) []string {
	keys := make([]string, t.NumField())
	for i := range keys {
		keys[i], _, _ = strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
	}
	return keys
}
