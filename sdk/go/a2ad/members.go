package a2ad

import (
	"reflect"
	"slices"
	"strings"
)

// member is a member of the object that encoding/json makes of a struct.
type member struct {
	name     string
	t        reflect.Type
	optional bool // has omitempty or omitzero
	quoted   bool // has the option string

	depth  int  // of the embedded struct that has it
	tagged bool // its tag has the name
}

// membersOf returns the members of a struct. Of those with the same name, the least nested one counts; then the only
// one whose tag has the name; otherwise none.
func membersOf(t reflect.Type) (kept []member) {
	all := fieldsOf(t, 0, nil)
	for i, m := range all {
		hides := func(other member) bool {
			return other.name == m.name &&
				(other.depth < m.depth || other.depth == m.depth && (other.tagged || !m.tagged))
		}
		others := slices.Delete(slices.Clone(all), i, i+1)
		if !slices.ContainsFunc(others, hides) {
			kept = append(kept, m)
		}
	}
	return kept
}

// fieldsOf returns the fields of a struct and of those that it embeds without a name in their tag.
func fieldsOf(t reflect.Type, depth int, inside []reflect.Type) (all []member) {
	if slices.Contains(inside, t) {
		return nil
	}
	inside = append(slices.Clone(inside), t)
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		embedded := field.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		inner := field.Anonymous && embedded.Kind() == reflect.Struct
		if tag == "-" || !field.IsExported() && !inner {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if inner && name == "" {
			all = append(all, fieldsOf(embedded, depth+1, inside)...)
			continue
		}
		m := member{name: name, t: field.Type, depth: depth, tagged: name != ""}
		if name == "" {
			m.name = field.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			m.optional = m.optional || option == "omitempty" || option == "omitzero"
			m.quoted = m.quoted || option == "string"
		}
		all = append(all, m)
	}
	return all
}
