// Package wiretest has what the tests of all codecs share: validation against a schema, and a
// corpus of requests made from a full request by one change each.
package wiretest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire"
)

// Reporter is what *testing.T and *rapid.T have in common.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Schemas compiles the definitions of a schema file, each once. It is safe for concurrent use.
type Schemas struct {
	File      string
	Resources func(doc any) map[string]any // the documents in the file by their address
	Address   func(definition string) string

	mu       sync.Mutex
	compiler *jsonschema.Compiler          // guarded by mu
	byName   map[string]*jsonschema.Schema // guarded by mu
}

// Get returns a definition.
func (s *Schemas) Get(t testing.TB, definition string) *jsonschema.Schema {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compiler == nil {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(ReadFile(t, s.File)))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		for address, resource := range s.Resources(doc) {
			if err := c.AddResource(address, resource); err != nil {
				t.Fatal(err)
			}
		}
		s.compiler, s.byName = c, map[string]*jsonschema.Schema{}
	}
	if found := s.byName[definition]; found != nil {
		return found
	}
	found, err := s.compiler.Compile(s.Address(definition))
	if err != nil {
		t.Fatal(err)
	}
	s.byName[definition] = found
	return found
}

// Valid fails unless doc is strict JSON and an instance of the schema.
func Valid(t Reporter, s *jsonschema.Schema, doc []byte) {
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

// WantInvalid fails unless err names the one wrong member of the params, briefly.
func WantInvalid(t Reporter, err error, field, method, params string) {
	t.Helper()
	var e *a2a.Error
	if !errors.As(err, &e) || e.Code != a2a.CodeInvalidParams || e.Field != field {
		t.Errorf("%s %.200s: %#v, want invalid params in %q", method, params, err, field)
	} else if len(e.Message) > 200 || !strings.HasPrefix(e.Message, field) {
		t.Errorf("%s %.200s: message %q", method, params, e.Message)
	}
}

// WantClientError fails unless err is one that a codec may return for a request, and fits on the
// wire.
func WantClientError(t Reporter, c wire.Codec, err error) {
	t.Helper()
	var e *a2a.Error
	if !errors.As(err, &e) || e.Code != a2a.CodeInvalidParams && e.Code != a2a.CodeMethodNotFound {
		t.Fatalf("%#v", err)
	}
	doc := c.AppendError(nil, e, "")
	if err := rawjson.Check(doc, 8); err != nil || len(doc) > 1000 {
		t.Fatalf("%v in %d bytes: %.200s", err, len(doc), doc)
	}
}

// ReadFile returns the content of a file.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
