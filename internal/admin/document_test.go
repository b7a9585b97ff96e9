package admin_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/a2ad/a2ad/internal/admin"
)

var update = flag.Bool("update", false, "write the golden file")

func TestDocumentIsTheOneInTheReference(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "reference", "admin-api.openapi.json")
	if *update {
		if err := os.WriteFile(path, admin.Document(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, admin.Document()) {
		t.Errorf("%s differs from what is served (%v): run go test ./internal/admin -update", path, err)
	}
}

func TestDocumentIsServedToAnyone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.ask("a stranger", "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string `json:"openapi"`
	}
	err := json.Unmarshal([]byte(got.body), &doc)
	if err != nil || got.status != http.StatusOK || doc.OpenAPI != "3.1.0" {
		t.Errorf("%d %v %.100s", got.status, err, got.body)
	}
}
