package operate_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestOperatorSeesEveryTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	var all []a2a.ID // newest first
	for i := range 6 {
		in := storetest.Submission("x")
		in.Tenant, in.Owner, in.ContextID = fmt.Sprint("t", i%2), fmt.Sprint("o", i%3), fmt.Sprint("c", i)
		if i == 5 {
			in.Agent = "other"
		}
		all = slices.Insert(all, 0, f.Submit(in).Task)
	}
	running := f.ClaimTask(all[5])
	list := func(filter operate.TaskFilter) []a2a.ID {
		t.Helper()
		filter.Limit = max(filter.Limit, 1)
		rows, err := f.Operate.ListTasks(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		out := make([]a2a.ID, len(rows))
		for i, r := range rows {
			out[i] = r.ID
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		filter operate.TaskFilter
		want   []a2a.ID
	}{
		{"all", operate.TaskFilter{Limit: 10}, all},
		{"limit", operate.TaskFilter{Limit: 2}, all[:2]},
		{"before", operate.TaskFilter{Before: all[1], Limit: 2}, all[2:4]},
		{"one", operate.TaskFilter{ID: all[3], Limit: 10}, all[3:4]},
		{"tenant", operate.TaskFilter{Tenant: "t1", Limit: 10}, []a2a.ID{all[0], all[2], all[4]}},
		{"owner", operate.TaskFilter{Owner: "o0", Limit: 10}, []a2a.ID{all[2], all[5]}},
		{"agent", operate.TaskFilter{Agent: "other", Limit: 10}, all[:1]},
		{"context", operate.TaskFilter{ContextID: "c4", Limit: 10}, all[1:2]},
		{"states", operate.TaskFilter{States: []a2a.State{a2a.StateCompleted}, Limit: 10}, nil},
		{
			"submitted", operate.TaskFilter{States: []a2a.State{a2a.StateSubmitted, a2a.StateCompleted}, Limit: 10},
			all[:1],
		},
	} {
		storetest.Same(t, tt.name, tt.want, list(tt.filter))
	}
	rows, err := f.Operate.ListTasks(t.Context(), operate.TaskFilter{ID: running.TaskID, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := rows[0]
	if r.Worker != "r1" || r.LeaseUntil.IsZero() || !r.ReadyAt.IsZero() || r.Epoch != 1 || r.Attempt != 1 ||
		r.LastSeq != 2 || r.State != a2a.StateWorking {
		t.Errorf("a running task = %+v", r)
	}
	rows, err = f.Operate.ListTasks(t.Context(), operate.TaskFilter{ID: all[0], Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.Worker != "" || !r.LeaseUntil.IsZero() || r.ReadyAt.IsZero() || r.CreatedAt.IsZero() ||
		r.StatusAt.IsZero() {
		t.Errorf("a waiting task = %+v", r)
	}
	owner, err := f.Operate.Owner(t.Context(), all[0])
	if err != nil || owner != (db.Caller{Tenant: "t1", Owner: "o2"}) {
		t.Errorf("Owner = %+v, %v", owner, err)
	}
	_, err = f.Operate.Owner(t.Context(), db.NewTaskID())
	storetest.WantCode(t, err, a2a.CodeTaskNotFound)
}

// Imported tasks keep ids that other servers have made, which do not tell when the tasks were created.
func TestTasksAreListedInTheOrderOfCreation(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first, last := f.Submit(storetest.Submission("x")).Task, f.Submit(storetest.Submission("y")).Task
	days := []time.Time{
		time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2025, 3, 2, 0, 0, 0, 0, time.UTC),
		time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC), time.Date(2025, 3, 3, 0, 0, 0, 0, time.UTC),
	}
	ids := []a2a.ID{{0xff}, {0x00, 0x01}, {0x80}, {0xc0}}
	for i, id := range ids {
		out, err := f.Store.Tasks.Import(t.Context(), "sqlite:tasks.db", []tasks.Import{{
			Caller: storetest.Ann, Agent: storetest.Agent, Digest: sha256.Sum256(id[:]),
			Task: a2a.Task{ID: id, ContextID: "c", Status: a2a.Status{State: a2a.StateCompleted, Time: days[i]}},
		}})
		if err != nil || out[0] != tasks.ImportStored {
			t.Fatalf("import: %v, %v", out, err)
		}
	}
	all := []a2a.ID{last, first, ids[3], ids[2], ids[1], ids[0]}
	list := func(filter operate.TaskFilter) (got []a2a.ID) {
		t.Helper()
		filter.Limit = 10
		rows, err := f.Operate.ListTasks(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			got = append(got, r.ID)
		}
		return got
	}
	storetest.Same(t, "all", all, list(operate.TaskFilter{}))
	for i, id := range all[:len(all)-1] {
		storetest.Same(t, fmt.Sprint("before ", i), all[i+1:], list(operate.TaskFilter{Before: id}))
	}
	storetest.Same(t, "since", all[:5], list(operate.TaskFilter{Since: days[1]}))
	storetest.Same(t, "until", all[4:], list(operate.TaskFilter{Until: days[2]}))
	storetest.Same(t, "in between", all[4:5], list(operate.TaskFilter{Since: days[1], Until: days[2]}))
	f.Exec("DELETE FROM a2a.tasks WHERE id = $1", db.PGID(last))
	storetest.Same(t, "before a task that was deleted", all[1:], list(operate.TaskFilter{Before: last}))
}

func TestCheckSchemaNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	if err := f.Operate.CheckSchema(t.Context()); err != nil {
		t.Errorf("CheckSchema of a migrated database = %v", err)
	}
	newest := operate.SchemaVersion()
	f.Exec("UPDATE a2a.schema_floor SET version = $1", newest)
	if err := f.Operate.CheckSchema(t.Context()); err != nil {
		t.Errorf("CheckSchema of a schema that serves this version and no older one = %v", err)
	}
	f.Exec("INSERT INTO public.a2a_goose_version (version_id, is_applied) VALUES ($1, true)", newest+2)
	if err := f.Operate.CheckSchema(t.Context()); err != nil {
		t.Errorf("CheckSchema of a newer schema that still serves this version = %v", err)
	}
	f.Exec("UPDATE a2a.schema_floor SET version = $1", newest+1)
	if err := f.Operate.CheckSchema(t.Context()); err == nil || !strings.Contains(err.Error(), "upgrade a2ad") {
		t.Errorf("CheckSchema of a schema that serves only newer versions = %v, want it to say: upgrade a2ad", err)
	}
	f.Exec("DELETE FROM public.a2a_goose_version WHERE version_id > $1", newest)
	if err := operate.MigrateDown(t.Context(), f.URL); err != nil {
		t.Fatal(err)
	}
	if err := f.Operate.CheckSchema(t.Context()); err == nil || !strings.Contains(err.Error(), "a2ad migrate up") {
		t.Errorf("CheckSchema of an older schema = %v, want it to say: a2ad migrate up", err)
	}
	empty := storetest.NewEmpty(t)
	s := f.Replica("r2", func(c *store.Config) { c.URL = empty.URL })
	if err := s.Operate.CheckSchema(t.Context()); err == nil || !strings.Contains(err.Error(), "version 0") {
		t.Errorf("CheckSchema of an empty database = %v, want it to name version 0", err)
	}
}

// A search that PostgreSQL refuses is refused each time, so its error says so.
func TestSearchForATextThatPostgreSQLCannotHold(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	_, err := f.Operate.SearchTasks(t.Context(), operate.TaskSearch{Owner: "\x00", Limit: 1, Timeout: time.Minute})
	const want = `PostgreSQL cannot search for this: invalid byte sequence for encoding "UTF8": 0x00`
	if a2a.CodeOf(err) != a2a.CodeInvalidParams || err.Error() != want {
		t.Errorf("the search returned %v, want %s", err, want)
	}
}

// A task that was put back had no error of its own.
func TestReleasesAreNoErrors(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	if err := f.Tasks.Release(t.Context(), []*tasks.Lease{l}, "the memory is full"); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"": 1, "memory": 0} {
		search := operate.TaskSearch{Error: text, Limit: 1, Timeout: time.Minute}
		found, err := f.Operate.SearchTasks(t.Context(), search)
		if err != nil || len(found) != want || want == 1 && found[0].Error != "" {
			t.Errorf("the tasks with an error like %q are %+v, %v", text, found, err)
		}
	}
}
