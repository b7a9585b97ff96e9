package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"
)

type object = map[string]any

// Document returns the OpenAPI document of the API. It is made of the table of routes and the types that it names.
func Document() []byte {
	schemas := object{}
	refOf(schemas, reflect.TypeFor[Failure](), false)
	paths := object{}
	for i := range routes {
		rt := &routes[i]
		item, ok := paths[rt.path].(object)
		if !ok {
			item = object{}
			paths[rt.path] = item
		}
		item[strings.ToLower(rt.method)] = describeRoute(schemas, rt)
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "a2ad operators", "version": "1",
			"description": "What operators do with a running service: find tasks, see what happened to them, and " +
				"repair them. Later versions may add members to answers.",
		},
		"servers":  []any{object{"url": Prefix}},
		"security": []any{object{"bearer": []any{}}, object{"apiKey": []any{}}},
		"paths":    paths,
		"components": object{
			"schemas": schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer"},
				"apiKey": object{"type": "apiKey", "in": "header", "name": "X-API-Key"},
			},
		},
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic("admin: " + err.Error()) // impossible: the document has texts, numbers, lists and objects alone
	}
	return append(b, '\n')
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

func describeScopes(rt *route) string {
	text := "Needs the scope "
	for i, one := range rt.needs() {
		if i > 0 {
			text += ", and "
		}
		text += anyOf(one)
	}
	return text + "."
}

func describeRoute(schemas object, rt *route) object {
	op := object{
		"operationId": rt.name, "summary": rt.summary,
		"description": describeScopes(rt),
		"responses":   describeAnswers(schemas, rt),
	}
	var parameters []any
	for _, m := range placeholder.FindAllStringSubmatch(rt.path, -1) {
		parameters = append(parameters, object{
			"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"},
		})
	}
	if rt.query != nil {
		for _, f := range fieldsOf(reflect.TypeOf(rt.query)) {
			parameters = append(parameters, object{
				"name": f.name, "in": "query", "description": f.structTag.Get("doc"),
				"schema": schemaOf(schemas, f.of, f.structTag, true),
			})
		}
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if rt.body != nil {
		op["requestBody"] = object{"required": true, "content": asJSON(refOf(schemas, reflect.TypeOf(rt.body), true))}
	}
	return op
}

func describeAnswers(schemas object, rt *route) object {
	failure := object{"$ref": "#/components/schemas/Failure"}
	content := object{"text/event-stream": object{"schema": object{"type": "string"}}}
	if rt.answer != nil {
		content = asJSON(refOf(schemas, reflect.TypeOf(rt.answer), false))
	}
	answers := object{"200": object{"description": "Done.", "content": content}}
	statuses := append([]int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable,
	}, rt.errors...)
	if rt.body != nil {
		statuses = append(statuses, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	for _, status := range statuses {
		answers[fmt.Sprint(status)] = object{"description": http.StatusText(status) + ".", "content": asJSON(failure)}
	}
	return answers
}

func asJSON(schema object) object { return object{"application/json": object{"schema": schema}} }

// refOf adds the schema of a struct, and returns a reference to it. A request must have no unknown members.
func refOf(schemas object, t reflect.Type, isRequest bool) object {
	ref := object{"$ref": "#/components/schemas/" + t.Name()}
	if schemas[t.Name()] != nil {
		return ref
	}
	schema := object{"type": "object"}
	schemas[t.Name()] = schema // before its fields, which may refer to it
	properties, required := object{}, []any{}
	for _, f := range fieldsOf(t) {
		property := schemaOf(schemas, f.of, f.structTag, isRequest)
		if text := f.structTag.Get("doc"); text != "" {
			property["description"] = text
		}
		properties[f.name] = property
		if !f.optional {
			required = append(required, f.name)
		}
	}
	schema["properties"] = properties
	if len(required) > 0 {
		schema["required"] = required
	}
	if isRequest {
		schema["additionalProperties"] = false
	}
	return ref
}

func schemaOf(schemas object, t reflect.Type, tag reflect.StructTag, isRequest bool) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{} // any value
	}
	switch t.Kind() { //nolint:exhaustive // others are a fault of this package, which its tests find
	case reflect.String:
		s := object{"type": "string"}
		if words := wordsOf(tag); words != nil {
			s["enum"] = words
		}
		return s
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		s := object{"type": "integer"}
		if tag.Get("range") != "" {
			f := field{structTag: tag}
			s["minimum"], s["maximum"] = bounds(&f)
		}
		return s
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(schemas, t.Elem(), tag, isRequest)}
	case reflect.Pointer:
		return schemaOf(schemas, t.Elem(), tag, isRequest)
	case reflect.Struct:
		return refOf(schemas, t, isRequest)
	}
	panic("admin: a type that no document describes: " + t.String())
}
