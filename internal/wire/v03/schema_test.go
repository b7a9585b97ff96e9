package v03_test

import (
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var schemas = wiretest.Schemas{
	File:      "testdata/a2a-0.3.0.schema.json",
	Resources: func(doc any) map[string]any { return map[string]any{"a2a.json": doc} },
	Address:   func(definition string) string { return "a2a.json#/definitions/" + definition },
}

func schema(t testing.TB, definition string) *jsonschema.Schema {
	t.Helper()
	return schemas.Get(t, definition)
}
