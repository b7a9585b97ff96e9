package agents

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/schema"
)

// compiledSchema is a schema of an agent file.
type compiledSchema struct{ *schema.Schema }

// Check implements a2a.Schema.
func (s compiledSchema) Check(v a2a.Raw) (where, mismatch string) { return s.Schema.Check(v) }

// schema reads a JSON Schema and compiles it, which finds its errors.
func (d *decoder) schema(what string, raw *a2a.Raw, compiled *compiledSchema) func(node) {
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
		s, err := schema.Compile(text)
		if err != nil {
			line := n.line
			if fault := (*schema.Fault)(nil); errors.As(err, &fault) && fault.Position != nil {
				line = n.at(fault.Position).line
			}
			d.fault(line, "%s %s", what, err)
			return
		}
		compiled.Schema, *raw = s, text
	}
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
