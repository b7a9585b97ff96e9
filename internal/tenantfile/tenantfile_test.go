package tenantfile_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/tenantfile"
)

var failure = webhooks.Failure{}

const schema = 63

func export(t *testing.T, f *storetest.Fixture, tenant string) (tenantfile.Manifest, []byte) {
	t.Helper()
	var file bytes.Buffer
	m, err := tenantfile.Export(t.Context(), f.Tenants, &file, tenantfile.ExportConfig{
		Tenant: tenant, Schema: schema, Wait: 10 * time.Second, Note: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m, file.Bytes()
}

func importFile(ctx context.Context, target tenantfile.Target, file []byte) (tenantfile.Manifest, bool, error) {
	return tenantfile.Import(ctx, bytes.NewReader(file), target, tenantfile.ImportConfig{
		Schema: schema, Opens: func(string, string, []byte) error { return nil },
	})
}

// A tenant has the same rows after a move, and other tenants are not touched. Both commands can be repeated.
func TestMoveKeepsEveryRow(t *testing.T) {
	t.Parallel()
	from, to := storetest.Open(t), storetest.Open(t)
	fill(t, from)
	want := content(from)
	other := storetest.Submission("stays")
	other.Tenant = "other"
	stays := from.Submit(other).Task

	m, file := export(t, from, "acme")
	again, sameFile := export(t, from, "acme")
	if !bytes.Equal(file, sameFile) {
		t.Error("a second export has written another file")
	}
	if diff := cmp.Diff(m, again); diff != "" {
		t.Errorf("a second export (-first +second):\n%s", diff)
	}
	for range 2 {
		got, known, err := importFile(t.Context(), to.Tenants, file)
		if err != nil {
			t.Fatal(err)
		}
		if got.SHA256 != m.SHA256 || !cmp.Equal(got.Rows, m.Rows) {
			t.Errorf("imported %v, want %v (known: %t)", got, m, known)
		}
	}
	sameContent(t, "target", want, content(to))
	to.Invariants()
	from.Invariants()
	if n := len(from.Log(stays)); n != 1 {
		t.Errorf("the task of another tenant has %d events, want 1", n)
	}
}
