package a2ad

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// SchemaOf returns a JSON Schema of a type, by the rules of encoding/json: structs, slices, maps with string keys,
// pointers, texts, numbers, booleans, bytes and times. A type with its own MarshalJSON may be anything. A member
// without omitempty, or omitzero, is required.
func SchemaOf[T any]() (json.RawMessage, error) {
	v, err := schemaOf(reflect.TypeFor[T](), 0)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

func schemaOf(t reflect.Type, depth int) (map[string]any, error) {
	if depth > 32 {
		return nil, misuse("a question for a type that contains itself")
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}, nil
	case t.Implements(jsonMarshaler), reflect.PointerTo(t).Implements(jsonMarshaler):
		return map[string]any{}, nil // it decides what it looks like
	case t.Implements(textMarshaler), t == reflect.TypeFor[[]byte]():
		return map[string]any{"type": "string"}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}, nil
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}, nil
	case reflect.Interface:
		return map[string]any{}, nil
	case reflect.Pointer:
		return schemaOf(t.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		items, err := schemaOf(t.Elem(), depth+1)
		return map[string]any{"type": "array", "items": items}, err
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			values, err := schemaOf(t.Elem(), depth+1)
			return map[string]any{"type": "object", "additionalProperties": values}, err
		}
	case reflect.Struct:
		return schemaOfStruct(t, depth)
	}
	return nil, misuse("a question for a %s: it has no form in JSON", t)
}

func schemaOfStruct(t reflect.Type, depth int) (map[string]any, error) {
	properties, required := map[string]any{}, []string{}
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if !field.IsExported() || field.Anonymous || tag == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		v, err := schemaOf(field.Type, depth+1)
		if err != nil {
			return nil, err
		}
		properties[name] = v
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s, nil
}
