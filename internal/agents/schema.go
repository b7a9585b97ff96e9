package agents

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	jskind "github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Limits of a value that is checked. The library uses some hundred bytes for each mismatch, and an
// exact fraction for each number that it compares.
const (
	maxValues   = 100_000
	maxDigits   = 400 // of a number, and of its exponent in either direction
	maxMismatch = 400 // bytes of a description
)

// schema is a compiled JSON Schema.
type schema struct{ compiled *jsonschema.Schema }

// remote refuses every document that a schema refers to but does not contain.
type remote struct{}

var errRemote = errors.New("a reference to another document")

func (remote) Load(string) (any, error) { return nil, errRemote }

// schemaBase resolves relative references. It leads nowhere.
const schemaBase = "https://schema.invalid/"

// schema reads a JSON Schema and compiles it, which finds its errors.
func (d *decoder) schema(what string, raw *a2a.Raw, compiled *schema) func(node) {
	return func(n node) {
		if n.kind != kindMap {
			d.fault(n.line,
				"%s must be a JSON Schema, which is a mapping, not %s; write {type: object, properties: {…}}", what,
				n.kind)
			return
		}
		text, ok := d.json(n, what)
		if !ok {
			return
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			d.fault(n.line, "%s: %s", what, err)
			return
		}
		c := jsonschema.NewCompiler()
		c.UseLoader(remote{})
		if err = c.AddResource(schemaBase, doc); err == nil {
			compiled.compiled, err = c.Compile(schemaBase)
		}
		if err != nil {
			d.schemaFault(n, what, err)
			return
		}
		*raw = text
	}
}

// schemaFault reports what is wrong with a schema, at its line if that is known.
func (d *decoder) schemaFault(n node, what string, err error) {
	var invalid *jsonschema.SchemaValidationError
	var load *jsonschema.LoadURLError
	var mismatch *jsonschema.ValidationError
	switch {
	case errors.As(err, &invalid) && errors.As(invalid.Err, &mismatch):
		at, text := first(mismatch)
		d.fault(n.at(at).line, "%s is not a JSON Schema: %s%s", what, strings.TrimPrefix(path(at)+": ", ": "), text)
	case errors.As(err, &load):
		d.fault(n.line, "%s refers to %s, which a2ad does not fetch; copy it under $defs and refer to #/$defs/NAME",
			what, strings.TrimPrefix(load.URL, schemaBase))
	default:
		d.fault(n.line, "%s is not a usable JSON Schema: %s", what, strings.ReplaceAll(err.Error(), schemaBase, ""))
	}
}

// Check implements a2a.Schema.
func (s schema) Check(v a2a.Raw) (where, mismatch string) {
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

// at returns the node at a path in n, or the last existing one on the path.
func (n node) at(steps []string) node {
	for _, step := range steps {
		i, err := strconv.Atoi(step)
		switch {
		case n.kind == kindList && err == nil && i >= 0 && i < len(n.list):
			n = n.list[i]
		case n.kind == kindMap:
			m := slices.IndexFunc(n.members, func(m member) bool { return m.key == step })
			if m < 0 {
				return n
			}
			line := n.members[m].line
			n = n.members[m].value
			n.line = line
		default:
			return n
		}
	}
	return n
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// json writes a value of the file as JSON. ok is false after a fault.
func (d *decoder) json(n node, what string) (text a2a.Raw, ok bool) {
	before := len(d.faults)
	text = d.appendJSON(nil, n, what)
	return text, len(d.faults) == before
}

func (d *decoder) appendJSON(dst []byte, n node, what string) []byte {
	switch n.kind {
	case kindNull:
		return append(dst, "null"...)
	case kindBool:
		return append(dst, strings.ToLower(n.text)...)
	case kindNumber:
		if !jsonNumber.MatchString(n.text) {
			d.fault(n.line, "%s: %s is not a number in JSON; write it in decimal, or in quotes if it is text", what,
				n.text)
		}
		return append(dst, n.text...)
	case kindString:
		return rawjson.AppendString(dst, strings.ToValidUTF8(n.text, "\uFFFD"))
	case kindList:
		dst = append(dst, '[')
		for i, e := range n.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.appendJSON(dst, e, what)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	seen := map[string]bool{}
	for i, m := range n.members {
		if seen[m.key] {
			d.fault(m.line, "%s: %s is there already; keep one", what, m.key)
		}
		seen[m.key] = true
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, strings.ToValidUTF8(m.key, "\uFFFD")), ':')
		dst = d.appendJSON(dst, m.value, what)
	}
	return append(dst, '}')
}

// extensions reads the extensions that the agent declares and implements itself.
func (d *decoder) extensions(n node, c *a2a.Card) {
	if n.kind != kindList {
		d.fault(n.line,
			"extensions must be a list, not %s; "+
				"write [{uri: \"https://example.com/ext/v1\", description: What it does}]", n.kind)
		return
	}
	seen := map[string]bool{}
	for _, e := range n.list {
		var x a2a.Extension
		lines := d.mapping(e, "an extension", []field{
			{name: "uri", read: d.text("uri", &x.URI)},
			{name: "description", read: d.text("description", &x.Description)},
			{name: "required", read: d.truth("required", &x.Required)},
			{name: "params", read: func(n node) {
				if n.kind != kindMap {
					d.fault(n.line, "params must be a mapping of keys to values, not %s", n.kind)
				} else if text, ok := d.json(n, "params"); ok {
					x.Params = text
				}
			}},
		}, nil)
		switch {
		case e.kind == kindMap && lines["uri"] == 0:
			d.fault(e.line, "an extension has no uri; add one, like uri: https://example.com/ext/v1")
		case strings.HasPrefix(x.URI, ownExtensions):
			d.fault(lines["uri"], "%s is declared by the server; leave it out", x.URI)
		case strings.ContainsAny(x.URI, ", \t\r\n"):
			d.fault(lines["uri"], "uri: %q cannot be in a header, where commas and blanks separate URIs", x.URI)
		case seen[x.URI] && x.URI != "":
			d.fault(lines["uri"], "%s is there already; keep one", x.URI)
		}
		seen[x.URI] = true
		c.Extensions = append(c.Extensions, x)
	}
}

// ownExtensions is the prefix of the URIs of a2ad's own extensions.
const ownExtensions = "https://a2ad.dev/extensions/"
