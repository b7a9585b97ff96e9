package v03_test

import (
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/a2ad/a2ad/internal/wire/wiretest"
)

var schemas = wiretest.SchemasV03("testdata/a2a-0.3.0.schema.json")

func schema(t testing.TB, definition string) *jsonschema.Schema {
	t.Helper()
	return schemas.Get(t, definition)
}
