package v03_test

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/a2ad/a2ad/internal/rawjson"
)

// schemas compiles the definitions of the 0.3.0 schema, each once.
var schemas = struct {
	sync.Mutex
	compiler *jsonschema.Compiler
	byName   map[string]*jsonschema.Schema
}{byName: map[string]*jsonschema.Schema{}}

func schema(t testing.TB, definition string) *jsonschema.Schema {
	t.Helper()
	schemas.Lock()
	defer schemas.Unlock()
	if schemas.compiler == nil {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(readFile(t, "testdata/a2a-0.3.0.schema.json")))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("a2a.json", doc); err != nil {
			t.Fatal(err)
		}
		schemas.compiler = c
	}
	if s := schemas.byName[definition]; s != nil {
		return s
	}
	s, err := schemas.compiler.Compile("a2a.json#/definitions/" + definition)
	if err != nil {
		t.Fatal(err)
	}
	schemas.byName[definition] = s
	return s
}

// reporter is what *testing.T and *rapid.T have in common.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// valid fails unless doc is strict JSON and an instance of one definition.
func valid(t reporter, s *jsonschema.Schema, doc []byte) {
	t.Helper()
	if err := rawjson.Check(doc, 80); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	if err := s.Validate(v); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
