package admin

import (
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// field is one field of a struct that is read or written as JSON, or that has the parameters of a query.
type field struct {
	index     []int
	name      string
	optional  bool
	structTag reflect.StructTag
	of        reflect.Type
}

// fieldsOf returns the fields of a struct, with those of embedded structs.
func fieldsOf(t reflect.Type) (all []field) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		all = append(all, field{f.Index, name, strings.Contains(options, "omitempty"), f.Tag, f.Type})
	}
	return all
}

func namesOf(t reflect.Type) []string {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	return names
}

// unknown refuses a name, and says which ones there are.
func unknown(what, name string, known []string) error {
	if len(known) == 0 {
		return a2a.InvalidParams(clip(name), "unknown %s; there are none here", what)
	}
	return a2a.InvalidParams(clip(name), "unknown %s; there are %s", what, strings.Join(known, ", "))
}

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > 64 {
		return string(r[:64]) + "…"
	}
	return s
}

// decodeQuery reads the parameters of a query into a struct. A parameter may be given once, except for lists.
func decodeQuery(raw string, into reflect.Value) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return a2a.Errorf(a2a.CodeInvalidParams, "the query is not valid")
	}
	known := fieldsOf(into.Type())
	for name, given := range values {
		i := slices.IndexFunc(known, func(f field) bool { return f.name == name })
		if i < 0 {
			return unknown("parameter", name, namesOf(into.Type()))
		}
		target := into.FieldByIndex(known[i].index)
		if target.Kind() != reflect.Slice && len(given) > 1 {
			return a2a.InvalidParams(name, "is given more than once")
		}
		for _, text := range given {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) || len(text) > maxParameter {
				return a2a.InvalidParams(name, "must be text of at most %d bytes", maxParameter)
			}
			if err := setParameter(target, &known[i], text); err != nil {
				return err
			}
		}
	}
	return nil
}

// wordLists are the lists of words that are too long for a tag.
var wordLists = map[string][]string{
	"outcomes": {
		"completed", "failed", "rejected", "canceled", "input", "retry", "released", "expired", "parked", "waiting",
	},
}

// wordsOf returns the words that the tag enum allows, directly or by the name of their list; nil: any text.
func wordsOf(tag reflect.StructTag) []string {
	text := tag.Get("enum")
	if words, ok := wordLists[text]; ok {
		return words
	}
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// maxParameter bounds the text of one parameter.
const maxParameter = 2000

func setParameter(target reflect.Value, f *field, text string) error {
	if words := wordsOf(f.structTag); words != nil && !slices.Contains(words, text) {
		return a2a.InvalidParams(f.name, "%q is none of %s", clip(text), strings.Join(words, ", "))
	}
	switch v := target.Addr().Interface().(type) {
	case *string:
		*v = text
	case *[]string:
		*v = append(*v, text)
	case *bool:
		if text != "true" && text != "false" {
			return a2a.InvalidParams(f.name, "must be true or false")
		}
		*v = text == "true"
	case **bool:
		yes := text == "true"
		if !yes && text != "false" {
			return a2a.InvalidParams(f.name, "must be true or false")
		}
		*v = &yes
	case *int:
		least, most := bounds(f)
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return a2a.InvalidParams(f.name, "must be a number from %d to %d", least, most)
		}
		*v = n
	case *int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return a2a.InvalidParams(f.name, "must be a number, at least 0")
		}
		*v = n
	case *time.Time:
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return a2a.InvalidParams(f.name, "must be a time such as 2026-11-20T14:00:00Z")
		}
		*v = at
	default:
		panic("admin: parameter " + f.name + " has a type that is not read")
	}
	return nil
}

// bounds returns the range of a number, from its tag range:"1-1000".
func bounds(f *field) (least, most int) {
	low, high, _ := strings.Cut(f.structTag.Get("range"), "-")
	least, err := strconv.Atoi(low)
	if err != nil {
		panic("admin: parameter " + f.name + " has no range")
	}
	if most, err = strconv.Atoi(high); err != nil {
		panic("admin: parameter " + f.name + " has no range")
	}
	return least, most
}

// maxDepth bounds how deeply the JSON of a body is nested.
const maxDepth = 64

// decodeBody reads a body into a struct. Every member must have the exact name and type of a field.
func decodeBody(body []byte, into any) error {
	if err := rawjson.Check(body, maxDepth); err != nil {
		return a2a.Errorf(a2a.CodeParse, "the body is not valid JSON: %w", err)
	}
	if body = rawjson.Trim(body); rawjson.KindOf(body) != rawjson.KindObject {
		return a2a.Errorf(a2a.CodeInvalidRequest, "the body must be a JSON object")
	}
	kind := reflect.TypeOf(into).Elem()
	if err := checkMembers(body, kind); err != nil {
		return err
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(body, into); errors.As(err, &wrong) {
		return a2a.InvalidParams(wrong.Field, "must not be a %s", wrong.Value)
	} else if err != nil {
		return a2a.Errorf(a2a.CodeInvalidRequest, "the body cannot be read: %w", err)
	}
	return checkTexts(reflect.ValueOf(into).Elem())
}

// checkMembers checks that every member has the exact name of a field, and that none is missing.
func checkMembers(body []byte, kind reflect.Type) error {
	known := fieldsOf(kind)
	given := map[string]bool{}
	for key, value := range rawjson.Members(body) {
		name := string(key)
		i := slices.IndexFunc(known, func(f field) bool { return f.name == name }) // encoding/json ignores case
		if i < 0 {
			return unknown("member", name, namesOf(kind))
		}
		if rawjson.KindOf(value) == rawjson.KindNull && known[i].of != reflect.TypeFor[json.RawMessage]() {
			return a2a.InvalidParams(name, "must not be null")
		}
		if isGroup(known[i].of) && rawjson.KindOf(value) == rawjson.KindObject {
			if err := checkMembers(value, known[i].of); err != nil {
				return err
			}
		}
		given[name] = true
	}
	for _, f := range known {
		if !f.optional && !given[f.name] {
			return a2a.InvalidParams(f.name, "is missing")
		}
	}
	return nil
}

// isGroup reports whether a field is a struct with fields of its own.
func isGroup(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]()
}

// checkTexts refuses texts that PostgreSQL cannot store, and words that a field does not have.
func checkTexts(from reflect.Value) error {
	for _, f := range fieldsOf(from.Type()) {
		v := from.FieldByIndex(f.index)
		if isGroup(f.of) {
			if err := checkTexts(v); err != nil {
				return err
			}
			continue
		}
		texts, _ := v.Interface().([]string)
		if text, ok := v.Interface().(string); ok {
			texts = []string{text}
		}
		words := wordsOf(f.structTag)
		for _, text := range texts {
			if strings.ContainsRune(text, 0) {
				return a2a.InvalidParams(f.name, "must not contain a NUL character")
			}
			if words != nil && !slices.Contains(words, text) && !(f.optional && text == "") {
				return a2a.InvalidParams(f.name, "%q is none of %s", clip(text), strings.Join(words, ", "))
			}
		}
	}
	return nil
}
