package workerapi_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

var (
	runPath    = regexp.MustCompile(`^/runs/[^/]+/[^/]+/`)
	signalPath = regexp.MustCompile(`^/tasks/[^/]+/signals/[^/]+$`)
	document   = sync.OnceValue(func() map[string]any {
		b, err := os.ReadFile("openapi.json")
		if err != nil {
			panic(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			panic(err)
		}
		return doc.(map[string]any)
	})
	compiler = sync.OnceValue(func() *jsonschema.Compiler {
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("mem:///openapi.json", document()); err != nil {
			panic(err)
		}
		return c
	})
	compiling sync.Mutex // guards the compiler
)

func schema(pointer string) (*jsonschema.Schema, error) {
	compiling.Lock()
	defer compiling.Unlock()
	return compiler().Compile("mem:///openapi.json#" + pointer)
}

// documented fails the test if openapi.json does not describe the answer. A path that is not in the
// document must answer 404.
func (f *fixture) documented(method, path string, r reply) {
	path = runPath.ReplaceAllString(path, "/runs/{taskId}/{epoch}/")
	path = signalPath.ReplaceAllString(path, "/tasks/{taskId}/signals/{name}")
	pointer := "/components/schemas/Error"
	item, ok := document()["paths"].(map[string]any)[path].(map[string]any)
	if ok && item[strings.ToLower(method)] != nil {
		responses := item[strings.ToLower(method)].(map[string]any)["responses"].(map[string]any)
		if responses[fmt.Sprint(r.status)] == nil {
			f.t.Errorf("%s %s: got status %d, which the document lacks", method, path, r.status)
			return
		}
		pointer = "/paths/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path) + "/" +
			strings.ToLower(method) +
			fmt.Sprintf("/responses/%d/content/application~1json/schema", r.status)
	} else if r.status != http.StatusNotFound {
		f.t.Errorf("%s %s: status %d, want 404", method, path, r.status)
	}
	s, err := schema(pointer)
	if err != nil {
		f.t.Errorf("%s: %v", pointer, err)
		return
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(r.body))
	if err == nil {
		err = s.Validate(v)
	}
	if err != nil {
		f.t.Errorf("%s %s: status %d: %v\n%s", method, path, r.status, err, r.body)
	}
}
