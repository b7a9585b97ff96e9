// Package schema compiles JSON Schemas, and checks values with bounded effort. It is the only package that knows the
// library.
//
// A schema may not refer to other documents: nothing is fetched.
package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	jskind "github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// Limits of a value that is checked. The library uses some hundred bytes for each mismatch, and an
// exact fraction for each number that it compares.
const (
	maxValues   = 100_000
	maxDigits   = 400 // of a number, and of its exponent in either direction
	maxMismatch = 400 // bytes of a description
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// remote refuses every document that a schema refers to but does not contain.
type remote struct{}

var errRemote = errors.New("a reference to another document")

func (remote) Load(string) (any, error) { return nil, errRemote }

// base resolves relative references. It leads nowhere.
const base = "https://schema.invalid/"

// Fault says what is wrong with a schema.
type Fault struct {
	Position []string // of what is wrong in the schema, if it is not a JSON Schema
	Remote   string   // the other document that it refers to, if it does
	text     string
}

func (f *Fault) Error() string {
	switch {
	case f.Remote != "":
		return fmt.Sprintf("refers to %s, which a2ad does not fetch; copy it under $defs and refer to #/$defs/NAME",
			f.Remote)
	case f.Position != nil:
		return "is not a JSON Schema: " + f.text
	}
	return "is not a usable JSON Schema: " + f.text
}

// Compile compiles the text of a schema. Its errors are Faults.
func Compile(text []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, &Fault{text: err.Error()}
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(remote{})
	if err := c.AddResource(base, doc); err != nil {
		return nil, fault(err)
	}
	compiled, err := c.Compile(base)
	if err != nil {
		return nil, fault(err)
	}
	return &Schema{compiled}, nil
}

func fault(err error) *Fault {
	var invalid *jsonschema.SchemaValidationError
	var load *jsonschema.LoadURLError
	var mismatch *jsonschema.ValidationError
	switch {
	case errors.As(err, &invalid) && errors.As(invalid.Err, &mismatch):
		at, text := first(mismatch)
		return &Fault{Position: append([]string{}, at...), text: strings.TrimPrefix(path(at)+": ", ": ") + text}
	case errors.As(err, &load):
		return &Fault{Remote: strings.TrimPrefix(load.URL, base)}
	}
	return &Fault{text: strings.ReplaceAll(err.Error(), base, "")}
}

// Check returns the first mismatch and its path in the value, like .a[0]. Both are empty if the value is valid.
func (s *Schema) Check(v []byte) (where, mismatch string) {
	left := maxValues
	value, ok := plainValue(v, &left)
	switch {
	case !ok && left <= 0:
		return "", "holds more than " + strconv.Itoa(maxValues) + " values, too many to be checked"
	case !ok:
		return "", "holds a number of too many digits to be checked"
	}
	err := s.compiled.Validate(value)
	if err == nil {
		return "", ""
	}
	var e *jsonschema.ValidationError
	if !errors.As(err, &e) {
		return "", "does not fit the schema"
	}
	at, text := first(e)
	return path(at), text
}

// plainValue turns JSON into what the library accepts: maps, slices, strings, and numbers as
// written.
func plainValue(v []byte, left *int) (value any, ok bool) {
	if *left--; *left < 0 {
		return nil, false
	}
	switch rawjson.KindOf(v) {
	case rawjson.KindBool:
		b, _ := rawjson.Bool(v)
		return b, true
	case rawjson.KindNumber:
		return json.Number(v), shortNumber(string(v))
	case rawjson.KindString:
		s, _ := rawjson.String(v)
		return s, true
	case rawjson.KindArray:
		list := []any{}
		for e := range rawjson.Elements(v) {
			item, ok := plainValue(e, left)
			if !ok {
				return nil, false
			}
			list = append(list, item)
		}
		return list, true
	case rawjson.KindObject:
		obj := map[string]any{}
		for k, e := range rawjson.Members(v) {
			item, ok := plainValue(e, left)
			if !ok {
				return nil, false
			}
			obj[string(k)] = item
		}
		return obj, true
	}
	return nil, true
}

func shortNumber(s string) bool {
	if len(s) > maxDigits {
		return false
	}
	_, exponent, has := strings.Cut(strings.ToLower(s), "e")
	if !has {
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && n <= maxDigits && n >= -maxDigits
}

var english = message.NewPrinter(language.English)

// first returns the first mismatch by its position in the value, so that equal values get equal
// answers. Alternatives count as one mismatch.
func first(e *jsonschema.ValidationError) (at []string, text string) {
	var all []*jsonschema.ValidationError
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *jskind.AnyOf, *jskind.OneOf, *jskind.Not, *jskind.Contains:
			all = append(all, e)
			return
		}
		if len(e.Causes) == 0 {
			all = append(all, e)
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(e)
	best := slices.MinFunc(all, func(a, b *jsonschema.ValidationError) int {
		return cmp.Or(slices.Compare(a.InstanceLocation, b.InstanceLocation), cmp.Compare(describe(a), describe(b)))
	})
	return best.InstanceLocation, describe(best)
}

func describe(e *jsonschema.ValidationError) string {
	text := ""
	switch k := e.ErrorKind.(type) {
	case *jskind.AnyOf:
		text = "fits none of the alternatives (anyOf)"
	case *jskind.OneOf:
		text = "fits none of the alternatives (oneOf)"
		if len(k.Subschemas) > 0 {
			text = "fits more than one of the alternatives (oneOf)"
		}
	case *jskind.Not:
		text = "is what it must not be (not)"
	case *jskind.FalseSchema:
		text = "must not be there"
	default:
		text = e.ErrorKind.LocalizedString(english)
	}
	return clip(text)
}

func clip(s string) string {
	if len(s) > maxMismatch {
		return strings.ToValidUTF8(s[:maxMismatch], "") + "…"
	}
	return s
}

var plainKey = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

// path writes a position in a value as clients do: .a[0]["b c"].
func path(at []string) string {
	var out strings.Builder
	for _, step := range at {
		_, err := strconv.ParseUint(step, 10, 31)
		switch {
		case err == nil:
			out.WriteString("[" + step + "]")
		case plainKey.MatchString(step):
			out.WriteString("." + clip(step))
		default:
			out.WriteString("[" + strconv.Quote(clip(step)) + "]")
		}
	}
	return out.String()
}
