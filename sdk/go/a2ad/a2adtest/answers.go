package a2adtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// refusal says why the server refuses an answer to a question that expects one of the choices, or a value that fits the
// schema. It returns nothing for a good answer.
func refusal(answer *a2ad.Message, choices []string, schema json.RawMessage) string {
	if schema != nil {
		var value, root any
		i := slices.IndexFunc(answer.Parts, func(p a2ad.Part) bool { return p.Data != nil })
		if i < 0 {
			return "the question expects data, and no text"
		}
		if json.Unmarshal(answer.Parts[i].Data, &value) != nil || json.Unmarshal(schema, &root) != nil {
			return "it is not JSON"
		}
		return checker{root}.mismatch(value, root, "the answer")
	}
	var texts []string
	for _, p := range answer.Parts {
		if p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	said := strings.TrimSpace(strings.Join(texts, " "))
	if choices == nil || slices.Contains(choices, said) {
		return ""
	}
	return fmt.Sprintf("the question expects one of %q", choices)
}

// checker compares values with a JSON Schema.
type checker struct{ root any }

type object = map[string]any

// mismatch returns the first thing in which a value does not fit a schema, or nothing.
func (c checker) mismatch(value, schema any, at string) string {
	if allowed, ok := schema.(bool); ok && !allowed {
		return at + " is not allowed"
	}
	s, ok := schema.(object)
	if !ok {
		return ""
	}
	if ref, ok := s["$ref"].(string); ok {
		if found := c.mismatch(value, c.target(ref), at); found != "" {
			return found
		}
	}
	if found := c.ofValue(value, s, at); found != "" {
		return found
	}
	for _, one := range list(s["allOf"]) {
		if found := c.mismatch(value, one, at); found != "" {
			return found
		}
	}
	for _, several := range []string{"anyOf", "oneOf"} {
		if found := c.ofNone(value, list(s[several]), at); found != "" {
			return found
		}
	}
	switch v := value.(type) {
	case object:
		return c.ofObject(v, s, at)
	case []any:
		return c.ofArray(v, s, at)
	}
	return ""
}

// ofNone returns why a value fits none of the schemas; nothing if it fits one, or if there are none.
func (c checker) ofNone(value any, schemas []any, at string) string {
	var all []string
	for _, one := range schemas {
		found := c.mismatch(value, one, at)
		if found == "" {
			return ""
		}
		if !slices.Contains(all, found) {
			all = append(all, found)
		}
	}
	return strings.Join(all, " or ")
}

func (c checker) ofValue(value any, s object, at string) string {
	if kinds, ok := s["type"]; ok {
		names := list(kinds)
		if names == nil {
			names = []any{kinds}
		}
		if !slices.ContainsFunc(names, func(name any) bool { return is(value, name) }) {
			return fmt.Sprintf("%s must be of the type %s, not %s", at, alternatives(names), shortValue(value))
		}
	}
	allowed := list(s["enum"])
	if one, ok := s["const"]; ok && allowed == nil {
		allowed = []any{one}
	}
	if allowed != nil && !slices.ContainsFunc(allowed, func(one any) bool { return reflect.DeepEqual(one, value) }) {
		return fmt.Sprintf("%s must be %s, not %s", at, alternatives(allowed), shortValue(value))
	}
	for _, b := range bounds() {
		if limit, ok := s[b.name]; ok && !b.fits(value, limit) {
			return fmt.Sprintf("%s does not fit %s %v: %s", at, b.name, limit, shortValue(value))
		}
	}
	return ""
}

func (c checker) ofObject(value, s object, at string) string {
	for _, name := range list(s["required"]) {
		if text, ok := name.(string); ok {
			if _, ok := value[text]; !ok {
				return fmt.Sprintf("%s needs %q", at, text)
			}
		}
	}
	properties, _ := s["properties"].(object)
	patterns, _ := s["patternProperties"].(object)
	for _, name := range slices.Sorted(maps.Keys(value)) {
		var fitting []any
		for pattern, one := range patterns {
			if re, err := regexp.Compile(pattern); err == nil && re.MatchString(name) {
				fitting = append(fitting, one)
			}
		}
		if one, ok := properties[name]; ok {
			fitting = append(fitting, one)
		}
		if len(fitting) == 0 {
			fitting = []any{s["additionalProperties"]}
		}
		for _, one := range fitting {
			if found := c.mismatch(value[name], one, at+"."+name); found != "" {
				return found
			}
		}
	}
	return ""
}

func (c checker) ofArray(value []any, s object, at string) string {
	first := list(s["prefixItems"])
	for i, v := range value {
		one := s["items"]
		if i < len(first) {
			one = first[i]
		}
		if found := c.mismatch(v, one, fmt.Sprintf("%s[%d]", at, i)); found != "" {
			return found
		}
	}
	return ""
}

// target returns the schema that a reference such as #/$defs/Order names, or nil.
func (c checker) target(ref string) any {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	target := c.root
	for name := range strings.SplitSeq(path, "/") {
		o, _ := target.(object)
		target = o[strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")]
	}
	return target
}

func is(value, kind any) bool {
	number, isNumber := value.(float64)
	switch kind {
	case "null":
		return value == nil
	case "boolean":
		_, ok := value.(bool)
		return ok
	case "object":
		_, ok := value.(object)
		return ok
	case "array":
		_, ok := value.([]any)
		return ok
	case "string":
		_, ok := value.(string)
		return ok
	case "number":
		return isNumber
	case "integer":
		return isNumber && number == math.Trunc(number)
	}
	return true
}

// bound is a keyword that limits values of one type.
type bound struct {
	name string
	fits func(value, limit any) bool
}

func bounds() []bound {
	return []bound{
		{"minimum", numbers(func(v, n float64) bool { return v >= n })},
		{"maximum", numbers(func(v, n float64) bool { return v <= n })},
		{"exclusiveMinimum", numbers(func(v, n float64) bool { return v > n })},
		{"exclusiveMaximum", numbers(func(v, n float64) bool { return v < n })},
		{"minLength", sizes[string](atLeast)}, {"maxLength", sizes[string](atMost)},
		{"minItems", sizes[[]any](atLeast)}, {"maxItems", sizes[[]any](atMost)},
		{"minProperties", sizes[object](atLeast)}, {"maxProperties", sizes[object](atMost)},
		{"pattern", func(value, pattern any) bool {
			text, isText := value.(string)
			re, err := regexp.Compile(fmt.Sprint(pattern))
			return !isText || err != nil || re.MatchString(text)
		}},
	}
}

func atLeast(v, n float64) bool { return v >= n }
func atMost(v, n float64) bool  { return v <= n }

func numbers(fits func(v, n float64) bool) func(value, limit any) bool {
	return func(value, limit any) bool {
		v, ok := value.(float64)
		n, _ := limit.(float64)
		return !ok || fits(v, n)
	}
}

// sizes limits the size of values of one type.
func sizes[T any](fits func(v, n float64) bool) func(value, limit any) bool {
	return func(value, limit any) bool {
		if _, ok := value.(T); !ok {
			return true
		}
		n, _ := limit.(float64)
		return fits(float64(size(value)), n)
	}
}

func size(value any) int {
	switch v := value.(type) {
	case string:
		return utf8.RuneCountInString(v)
	case []any:
		return len(v)
	case object:
		return len(v)
	}
	return 0
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func alternatives(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = shortValue(v)
	}
	return strings.Join(texts, " or ")
}

func shortValue(v any) string { return fmt.Sprintf("%.60s", encode(v)) }
