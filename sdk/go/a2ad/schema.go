package a2ad

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// SchemaOf returns a JSON Schema of a type, by the rules of encoding/json: structs, slices, maps with keys that are
// texts or integers, pointers, texts, numbers, booleans, bytes and times. A type with its own MarshalJSON or
// UnmarshalJSON may be anything. A member without omitempty, or omitzero, is required; if it is a pointer, it may be
// null. Integers have the limits of their type, except int and uint.
func SchemaOf[T any]() (json.RawMessage, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer { // a question for nothing makes no sense
		t = t.Elem()
	}
	v, err := schemaOf(t, 0)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

type object = map[string]any

// The forms of texts that encoding/json reads as another type.
const (
	// patternTime is that of RFC 3339. The server does not check the format of a schema.
	patternTime = `^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]+)?` +
		`(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	patternInt   = `^-?(0|[1-9][0-9]*)$`
	patternUint  = `^(0|[1-9][0-9]*)$`
	patternFloat = `^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`
	patternBool  = `^(true|false)$`
)

func schemaOf(t reflect.Type, depth int) (object, error) {
	if depth > 32 {
		return nil, misuse("a question for a type that contains itself")
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time", "pattern": patternTime}, nil
	case t == reflect.TypeFor[json.Number]():
		return object{"type": "number"}, nil
	case implements[json.Marshaler](t), implements[json.Unmarshaler](t):
		return object{}, nil // it decides what it looks like
	case implements[encoding.TextMarshaler](t), implements[encoding.TextUnmarshaler](t):
		return object{"type": "string"}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}, nil
	case reflect.String:
		return object{"type": "string"}, nil
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}, nil
	case reflect.Interface:
		return object{}, nil
	case reflect.Pointer:
		v, err := schemaOf(t.Elem(), depth+1)
		return object{"anyOf": []any{v, object{"type": "null"}}}, err
	case reflect.Slice, reflect.Array:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 { // in base64
			return object{"type": "string"}, nil
		}
		items, err := schemaOf(t.Elem(), depth+1)
		return object{"type": "array", "items": items}, err
	case reflect.Map:
		return schemaOfMap(t, depth)
	case reflect.Struct:
		return schemaOfStruct(t, depth)
	}
	if isInt(t) || isUint(t) {
		return schemaOfInteger(t), nil
	}
	return nil, misuse("a question for a %s: it has no form in JSON", t)
}

func implements[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}

func isInt(t reflect.Type) bool  { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 }
func isUint(t reflect.Type) bool { return t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 }

func schemaOfInteger(t reflect.Type) object {
	switch {
	case t.Kind() == reflect.Int: // as the libraries for other languages say it
		return object{"type": "integer"}
	case t.Kind() == reflect.Uint:
		return object{"type": "integer", "minimum": 0}
	case isUint(t):
		return object{"type": "integer", "minimum": 0, "maximum": uint64(math.MaxUint64) >> (64 - t.Bits())}
	}
	most := int64(math.MaxInt64) >> (64 - t.Bits())
	return object{"type": "integer", "minimum": -most - 1, "maximum": most}
}

func schemaOfMap(t reflect.Type, depth int) (object, error) {
	values, err := schemaOf(t.Elem(), depth+1)
	if err != nil {
		return nil, err
	}
	s := object{"type": "object", "additionalProperties": values}
	switch key := t.Key(); {
	case key.Kind() == reflect.String, implements[encoding.TextUnmarshaler](key):
	case isInt(key):
		s["propertyNames"] = object{"pattern": patternInt}
	case isUint(key):
		s["propertyNames"] = object{"pattern": patternUint}
	default:
		return nil, misuse("a question for a %s: it has no form in JSON", t)
	}
	return s, nil
}

func schemaOfStruct(t reflect.Type, depth int) (object, error) {
	properties, required := object{}, []string{}
	for _, m := range membersOf(t) {
		v, err := m.schema(depth + 1)
		if err != nil {
			return nil, err
		}
		properties[m.name] = v
		if !m.optional {
			required = append(required, m.name)
		}
	}
	s := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s, nil
}

func (m *member) schema(depth int) (object, error) {
	t, nullable := m.t, false
	if t.Kind() == reflect.Pointer {
		t, nullable = t.Elem(), !m.optional
	}
	v, err := schemaOf(t, depth)
	if err != nil {
		return nil, err
	}
	if m.quoted {
		v = quoted(t, v)
	}
	if nullable {
		v = object{"anyOf": []any{v, object{"type": "null"}}}
	}
	return v, nil
}

// quoted returns the schema of a member with the option string, which counts for texts, numbers and booleans.
func quoted(t reflect.Type, v object) object {
	switch {
	case isInt(t):
		return object{"type": "string", "pattern": patternInt}
	case isUint(t):
		return object{"type": "string", "pattern": patternUint}
	}
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return object{"type": "string", "pattern": patternFloat}
	case reflect.Bool:
		return object{"type": "string", "pattern": patternBool}
	case reflect.String:
		return object{"type": "string", "pattern": `^".*"$`}
	}
	return v
}

// readAnswer decodes the data of an answer. To JSON Schema, 5.0 is an integer, but not to encoding/json.
func readAnswer(m *Message, v any) error {
	err := m.Data(v)
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Value, "number") {
		return err
	}
	var data json.RawMessage
	if err := m.Data(&data); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var decoded any
	if err := d.Decode(&decoded); err != nil {
		return err
	}
	reflect.ValueOf(v).Elem().SetZero() // what the first try has read
	return json.Unmarshal(mustCompact(integers(decoded)), v)
}

// integers writes each integer in a value without a fraction and an exponent.
func integers(value any) any {
	switch v := value.(type) {
	case object:
		for k := range v {
			v[k] = integers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case json.Number:
		// A number that is too large for an integer of Go, or smaller than one, could have a huge exponent.
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || math.Abs(f) < 1 || math.Abs(f) > math.MaxUint64 {
			if mantissa, _, _ := strings.Cut(strings.ToLower(string(v)), "e"); strings.Trim(mantissa, "-0.") == "" {
				return json.Number("0")
			}
			return v
		}
		if exact, ok := new(big.Rat).SetString(string(v)); ok && exact.IsInt() {
			return json.Number(exact.Num().String())
		}
	}
	return value
}
