package tenantfile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/tenants"
	"github.com/a2ad/a2ad/internal/tenantfile"
)

// config is that of an export which waits for nothing.
func config(wait time.Duration) tenantfile.ExportConfig {
	return tenantfile.ExportConfig{Tenant: "acme", Schema: schema, Wait: wait, Note: func(string) {}}
}

// broken is a target that loses the answer to every second page, before or after its commit.
type broken struct {
	*tenants.Store
	calls int
}

var errBroken = errors.New("broken")

func (b *broken) Put(ctx context.Context, tenant string, move a2a.ID, number int64, rows []tenants.Row) error {
	b.calls++
	switch b.calls % 4 {
	case 1:
		return errBroken
	case 3:
		return errors.Join(b.Store.Put(ctx, tenant, move, number, rows), errBroken)
	}
	return b.Store.Put(ctx, tenant, move, number, rows)
}

// An import that ends at any page continues, and stores every row once.
func TestImportContinuesAfterEveryPage(t *testing.T) {
	t.Parallel()
	from, to := storetest.Open(t), storetest.Open(t)
	fill(t, from)
	for range 5 {
		from.SubmitMany(50)
	}
	want := content(from)
	_, file := export(t, from, "acme")
	target := &broken{Store: to.Tenants}
	tries := 1
	for ; ; tries++ {
		_, _, err := importFile(t.Context(), target, file)
		if err == nil {
			break
		}
		if !errors.Is(err, errBroken) || tries > 100 {
			t.Fatal(err)
		}
	}
	if tries < 4 {
		t.Errorf("the import was interrupted %d times only: the file has too few pages", tries-1)
	}
	sameContent(t, "target", want, content(to))
	to.Invariants()
}

// While its tenant moves, a caller gets an error that it may repeat, and never an unknown task.
func TestTenantIsRefusedWhileItMoves(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	ctx := t.Context()
	task := f.NewTask()
	other := storetest.Submission("x")
	other.Tenant = "other"
	check := func(when string) {
		t.Helper()
		_, submitErr := f.Tasks.Submit(ctx, storetest.Submission("x"))
		_, headErr := f.Tasks.Head(ctx, storetest.Ann, task)
		_, _, listErr := f.Tasks.Page(ctx, storetest.Ann, tasks.Filter{Limit: 10})
		_, readErr := f.Tasks.Snapshot(ctx, storetest.Ann, task, tasks.Want{})
		for what, err := range map[string]error{
			"submit": submitErr, "head": headErr, "list": listErr, "read": readErr,
			"served": f.Tasks.Served(ctx, storetest.Ann),
		} {
			if a2a.CodeOf(err) != a2a.CodeUnavailable {
				t.Errorf("%s, %s: error = %v, want CodeUnavailable", when, what, err)
			}
		}
		if got := f.Claim(10); slices.ContainsFunc(got, func(l tasks.Lease) bool { return l.Tenant == "acme" }) {
			t.Errorf("%s: a task of the tenant was claimed", when)
		}
		f.Submit(other)
	}
	if _, err := f.Tenants.Leave(ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	check("leaving")
	export(t, f, "acme")
	check("left")
	_, cancelErr := f.Tasks.Cancel(ctx, storetest.Ann, storetest.Agent, task)
	say := storetest.Submission("x")
	say.Task = task
	_, sayErr := f.Tasks.Submit(ctx, say)
	hook := storetest.NewWebhook("h")
	hookErr := f.Tasks.SetWebhook(ctx, storetest.Ann, storetest.Agent, task, hook, 10)
	for what, err := range map[string]error{"cancel": cancelErr, "say": sayErr, "set a webhook": hookErr} {
		if a2a.CodeOf(err) != a2a.CodeUnavailable {
			t.Errorf("%s: error = %v, want CodeUnavailable", what, err)
		}
	}
	f.Invariants()
}

func TestExportWaitsForAttempts(t *testing.T) {
	t.Parallel()
	from, to := storetest.Open(t), storetest.Open(t)
	l := from.RunningTask()
	_, err := tenantfile.Export(t.Context(), from.Tenants, io.Discard, config(0))
	if err == nil || !strings.Contains(err.Error(), "1 attempts") {
		t.Fatalf("error = %v, want one about an attempt", err)
	}
	from.Append(l, storetest.Chunk("a", "1")) // it continues
	cfg := config(0)
	cfg.Expire = true
	cfg.Note = func(text string) {
		if strings.Contains(text, "were ended") {
			from.Rescue(1)
		}
	}
	var file bytes.Buffer
	if _, err := tenantfile.Export(t.Context(), from.Tenants, &file, cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Tasks.Append(t.Context(), l, storetest.Batch(storetest.Chunk("a", "2"))); err == nil {
		t.Error("a run whose lease has ended could write")
	}
	if _, _, err := importFile(t.Context(), to.Tenants, file.Bytes()); err != nil {
		t.Fatal(err)
	}
	again := to.ClaimTask(l.TaskID)
	to.Append(again, storetest.Status(a2a.StateCompleted))
	to.Invariants()
}

// A transaction that began before the refusal may make a task after it. The export does not pass it.
func TestExportWaitsForOlderTransactions(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	release := f.Lock("SELECT 1")
	_, err := tenantfile.Export(t.Context(), f.Tenants, io.Discard, config(0))
	if err == nil || !strings.Contains(err.Error(), "transactions") {
		t.Errorf("error = %v, want one about transactions", err)
	}
	release()
	export(t, f, "acme")
}

func TestReopenPutsEveryRowBack(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	fill(t, f)
	want := content(f)
	export(t, f, "acme")
	for more := true; more; {
		var err error
		if more, err = f.Tenants.Reopen(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
	}
	sameContent(t, "reopened", want, content(f))
	f.NewTask()
	f.Invariants()
	if _, err := f.Tenants.Reopen(t.Context(), "acme"); !errors.Is(err, tenants.ErrState) {
		t.Errorf("a tenant that has not left: error = %v, want ErrState", err)
	}
}

func TestForgetRemovesWhatWasExportedOrImported(t *testing.T) {
	t.Parallel()
	from, to := storetest.Open(t), storetest.Open(t)
	fill(t, from)
	_, file := export(t, from, "acme")
	if _, _, err := importFile(t.Context(), &broken{Store: to.Tenants, calls: 1}, file); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	for _, f := range []*storetest.Fixture{from, to} {
		for more := true; more; {
			var err error
			if more, err = f.Tenants.Forget(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
		}
		for table, rows := range content(f) {
			if table != "api_keys" && len(rows) > 0 {
				t.Errorf("%d rows in %s", len(rows), table)
			}
		}
	}
	if _, err := from.Tenants.Reopen(t.Context(), "acme"); !errors.Is(err, tenants.ErrState) {
		t.Errorf("reopen: error = %v, want ErrState", err)
	}
	if a2a.CodeOf(from.Tasks.Served(t.Context(), storetest.Ann)) != a2a.CodeUnavailable {
		t.Error("the old place serves the tenant")
	}
	if err := to.Tasks.Served(t.Context(), storetest.Ann); err != nil {
		t.Errorf("the other place: %v", err)
	}
	if _, _, err := importFile(t.Context(), to.Tenants, file); err != nil {
		t.Errorf("import after forget: %v", err)
	}
}

// What cannot be the tenant of the file is refused before anything is stored, or with the page that has it.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	from := storetest.Open(t)
	fill(t, from)
	_, file := export(t, from, "acme")
	lines := bytes.SplitAfter(file, []byte("\n"))
	without := slices.Delete(slices.Clone(lines), 2, 3)
	for name, tt := range map[string]struct {
		file []byte
		want error
	}{
		"a changed byte":      {bytes.Replace(file, []byte("paid"), []byte("pied"), 1), tenantfile.ErrHash},
		"a line is missing":   {bytes.Join(without, nil), tenantfile.ErrHash},
		"the end is missing":  {bytes.Join(lines[:len(lines)-2], nil), tenantfile.ErrPartial},
		"an empty file":       {nil, tenantfile.ErrNoFile},
		"something else":      {[]byte("{}\n"), tenantfile.ErrNoFile},
		"rows are here":       {file, tenants.ErrKnown},
		"a secret is foreign": {file, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := storetest.Open(t)
			if errors.Is(tt.want, tenants.ErrKnown) {
				to.NewTask()
			}
			before := content(to)
			_, _, err := tenantfile.Import(t.Context(), bytes.NewReader(tt.file), to.Tenants, tenantfile.ImportConfig{
				Schema: schema, Opens: func(_, column string, sealed []byte) error {
					if name == "a secret is foreign" && column == "token" && string(sealed) == "sealed" {
						return errBroken
					}
					return nil
				},
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
			sameContent(t, "target", before, content(to))
		})
	}
}

// A task of another tenant with the same id ends the import.
func TestImportRefusesIdsInUse(t *testing.T) {
	t.Parallel()
	from, to := storetest.Open(t), storetest.Open(t)
	task := from.NewTask()
	other := storetest.Submission("x")
	other.Tenant = "other"
	twin := to.Submit(other).Task
	for _, table := range []string{"messages", "task_events", "context_tasks", "task_ready"} {
		to.Exec("UPDATE a2a."+table+" SET task_id = $1 WHERE task_id = $2", task, twin)
	}
	to.Exec("UPDATE a2a.tasks SET id = $1 WHERE id = $2", task, twin)
	_, file := export(t, from, "acme")
	_, _, err := importFile(t.Context(), to.Tenants, file)
	if err == nil || !strings.Contains(err.Error(), "another row with the same key") {
		t.Errorf("error = %v, want one about a key", err)
	}
	if n := storetest.Value[int](to, "SELECT count(*)::int FROM a2a.tasks"); n != 1 {
		t.Errorf("%d tasks, want 1", n)
	}
	to.Invariants()
}
