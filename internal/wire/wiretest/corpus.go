package wiretest

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// A corpus of bad params is made from a full request. Along its schema each member is left out, set
// to null, and given each wrong type and each wrong constant, one change at a time.

// Node is the part of JSON Schema that the requests of the protocol use.
type Node struct {
	Ref        string           `json:"$ref"`
	Type       any              `json:"type"`
	Const      any              `json:"const"`
	Enum       []string         `json:"enum"`
	Properties map[string]*Node `json:"properties"`
	Required   []string         `json:"required"`
	Items      *Node            `json:"items"`
	AnyOf      []*Node          `json:"anyOf"`
}

// Case is the full request with one change. Field is the member with the error, and empty if the
// request is still valid.
type Case struct{ What, Params, Field string }

// Corpus makes the cases of one request.
type Corpus struct {
	Full    string
	Resolve func(ref string) *Node
	// Missing returns the member with the error if one is left out, or else null.
	Missing func(path string, required, null bool) string
	// Wrong returns invalid values for the member at path, whose valid value is v.
	Wrong func(path string, n *Node, v any) []any

	t     Reporter
	cases []Case
}

// Cases returns the cases of a request that is an instance of n. It reports members of the schema
// that the full request lacks.
func (c *Corpus) Cases(t Reporter, n *Node) []Case {
	var doc map[string]any
	if err := json.Unmarshal([]byte(c.Full), &doc); err != nil {
		t.Fatalf("%v", err)
	}
	c.t, c.cases = t, nil
	c.object(n, doc, nil)
	return c.cases
}

// resolve follows references, and chooses the alternative that fits value.
func (c *Corpus) resolve(n *Node, value any) *Node {
	for n.Ref != "" {
		n = c.Resolve(n.Ref)
	}
	for _, alternative := range n.AnyOf {
		alternative = c.resolve(alternative, value)
		object, _ := value.(map[string]any)
		fits := func(member string) bool {
			v, ok := object[member]
			p := alternative.Properties[member]
			return ok && (p.Const == nil || p.Const == v)
		}
		if !slices.ContainsFunc(alternative.Required, func(m string) bool { return !fits(m) }) {
			return alternative
		}
	}
	return n
}

func (c *Corpus) object(n *Node, value map[string]any, path []any) {
	for name, p := range n.Properties {
		v, ok := value[name]
		at := append(slices.Clone(path), name)
		if !ok {
			if !strings.Contains(PathOf(at), "parts[") { // a part has one content of several
				c.t.Errorf("the full request lacks %s", PathOf(at))
			}
			continue
		}
		required := slices.Contains(n.Required, name)
		c.add("without "+PathOf(at), c.Missing(PathOf(at), required, false), at, nil, true)
		c.add("null for "+PathOf(at), c.Missing(PathOf(at), required, true), at, nil, false)
		c.value(c.resolve(p, v), v, at)
	}
	c.add("an unknown member in "+PathOf(path), "", append(slices.Clone(path), "unknown"), []any{1}, false)
}

// WrongType returns values of every other type than n's.
func WrongType(n *Node) []any {
	return map[any][]any{
		"string": {1, true, map[string]any{}, []any{}}, "boolean": {"true", 0, map[string]any{}, []any{}},
		"integer": {"1", 1.5, true, map[string]any{}, []any{}},
		"object":  {"x", 1, true, []any{}}, "array": {"x", 1, true, map[string]any{}},
	}[n.Type]
}

func (c *Corpus) value(n *Node, v any, at []any) {
	for _, w := range c.Wrong(PathOf(at), n, v) {
		text, _ := json.Marshal(w)
		c.add(PathOf(at)+" = "+string(text), PathOf(at), at, w, false)
	}
	switch v := v.(type) {
	case map[string]any:
		c.object(n, v, at)
	case []any:
		for i, e := range v {
			element := append(slices.Clone(at), i)
			c.add("null for "+PathOf(element), PathOf(element), element, nil, false)
			c.value(c.resolve(n.Items, e), e, element)
		}
	}
}

// add adds a copy of the full request with one change.
func (c *Corpus) add(what, field string, at []any, v any, remove bool) {
	var doc any
	_ = json.Unmarshal([]byte(c.Full), &doc) // parsed before
	holder := doc
	for _, step := range at[:len(at)-1] {
		holder = child(holder, step)
	}
	switch last := at[len(at)-1].(type) {
	case int:
		holder.([]any)[last] = v
	case string:
		if holder.(map[string]any)[last] = v; remove {
			delete(holder.(map[string]any), last)
		}
	}
	params, _ := json.Marshal(doc)
	c.cases = append(c.cases, Case{what, string(params), field})
}

func child(v any, step any) any {
	if i, ok := step.(int); ok {
		return v.([]any)[i]
	}
	return v.(map[string]any)[step.(string)]
}

// PathOf writes a path of member names and indexes as errors do.
func PathOf(at []any) string {
	var b strings.Builder
	for i, step := range at {
		switch step := step.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(step) + "]")
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}
