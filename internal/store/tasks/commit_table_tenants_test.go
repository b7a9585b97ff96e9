package tasks_test

import (
	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tenants"
)

// leaving begins to move the tenant of Ann away.
func (w *witness) leaving() {
	w.T.Helper()
	if _, err := w.Tenants.Leave(w.T.Context(), storetest.Ann.Tenant); err != nil {
		w.T.Fatal(err)
	}
}

// left moves the tenant of Ann away, with one task.
func (w *witness) left() {
	w.T.Helper()
	w.NewTask()
	w.leaving()
	if _, found, err := w.Tenants.TakeTasks(w.T.Context(), storetest.Ann.Tenant, a2a.ID{}); err != nil || !found {
		w.T.Fatalf("take tasks: %t, %v", found, err)
	}
	if done, err := w.Tenants.Finish(w.T.Context(), storetest.Ann.Tenant); err != nil || !done {
		w.T.Fatalf("finish: %t, %v", done, err)
	}
}

// arriving begins to import a tenant.
func (w *witness) arriving() a2a.ID {
	w.T.Helper()
	move := db.NewUID()
	if _, err := w.Tenants.Arrive(w.T.Context(), storetest.Ann.Tenant, move, "sum"); err != nil {
		w.T.Fatal(err)
	}
	return move
}

const ofAnn = "a2a.tenant_moves WHERE tenant = 'acme' AND state = $1"

// writingsOfTenants are those of moves of tenants.
var writingsOfTenants = []writing{
	answering("tenants.Leave", storetest.IsCommit, func(w *witness) func(*store.Store) (tenants.Move, error) {
		return func(s *store.Store) (tenants.Move, error) {
			return s.Tenants.Leave(w.T.Context(), storetest.Ann.Tenant)
		}
	}, func(w *witness, m tenants.Move) string { return w.count(1, ofAnn+" AND move_id = $2", "leaving", m.ID) }),
	answering("tenants.ExpireLeases", storetest.IsCommit, func(w *witness) func(*store.Store) (int, error) {
		w.RunningTask()
		w.leaving()
		return func(s *store.Store) (int, error) {
			return s.Tenants.ExpireLeases(w.T.Context(), storetest.Ann.Tenant)
		}
	}, func(w *witness, _ int) string {
		return w.count(1, "a2a.task_leases WHERE lease_until <= clock_timestamp()")
	}),
	answering("tenants.TakeTasks", storetest.IsCommit, func(w *witness) func(*store.Store) (a2a.ID, error) {
		w.NewTask()
		w.leaving()
		return func(s *store.Store) (a2a.ID, error) {
			last, _, err := s.Tenants.TakeTasks(w.T.Context(), storetest.Ann.Tenant, a2a.ID{})
			return last, err
		}
	}, func(w *witness, _ a2a.ID) string { return w.count(1, "a2a.tenant_rows WHERE kind = 'tasks'") }),
	answering("tenants.TakeRest", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		w.Exec("INSERT INTO a2a.push_destinations (tenant, origin) VALUES ('acme', 'https://x')")
		w.leaving()
		return func(s *store.Store) (bool, error) { return s.Tenants.TakeRest(w.T.Context(), storetest.Ann.Tenant) }
	}, func(w *witness, _ bool) string { return w.count(1, "a2a.tenant_rows WHERE kind = 'push_destinations'") }),
	answering("tenants.Finish", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		w.leaving()
		return func(s *store.Store) (bool, error) { return s.Tenants.Finish(w.T.Context(), storetest.Ann.Tenant) }
	}, func(w *witness, done bool) string {
		if !done {
			return "no move that is finished"
		}
		return w.count(1, ofAnn, "left")
	}),
	answering("tenants.Forget", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		w.left()
		return func(s *store.Store) (bool, error) { return s.Tenants.Forget(w.T.Context(), storetest.Ann.Tenant) }
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.tenant_rows") }),
	answering("tenants.Forget an import", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		w.arriving()
		return func(s *store.Store) (bool, error) { return s.Tenants.Forget(w.T.Context(), storetest.Ann.Tenant) }
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.tenant_moves") }),
	answering("tenants.Arrive", storetest.IsCommit, func(w *witness) func(*store.Store) (tenants.Move, error) {
		move := db.NewUID()
		return func(s *store.Store) (tenants.Move, error) {
			return s.Tenants.Arrive(w.T.Context(), storetest.Ann.Tenant, move, "sum")
		}
	}, func(w *witness, m tenants.Move) string {
		return w.count(1, ofAnn+" AND move_id = $2", "arriving", m.ID)
	}),
	plain("tenants.Put", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		move := w.arriving()
		row := tenants.Row{Kind: "push_parked", Body: `{"tenant":"acme","origin":"https://x","look_at":"infinity"}`}
		return func(s *store.Store) error {
			return s.Tenants.Put(w.T.Context(), storetest.Ann.Tenant, move, 1, []tenants.Row{row})
		}
	}),
	plain("tenants.Open", storetest.IsCommit, func(w *witness) func(*store.Store) error {
		move := w.arriving()
		return func(s *store.Store) error {
			return s.Tenants.Open(w.T.Context(), storetest.Ann.Tenant, move, []string{storetest.Agent})
		}
	}),
	answering("tenants.Reopen a page", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		w.left()
		return func(s *store.Store) (bool, error) { return s.Tenants.Reopen(w.T.Context(), storetest.Ann.Tenant) }
	}, func(w *witness, _ bool) string { return w.count(1, "a2a.tasks") }),
	answering("tenants.Reopen the last page", storetest.IsCommit, func(w *witness) func(*store.Store) (bool, error) {
		w.leaving()
		return func(s *store.Store) (bool, error) { return s.Tenants.Reopen(w.T.Context(), storetest.Ann.Tenant) }
	}, func(w *witness, _ bool) string { return w.count(0, "a2a.tenant_moves") }),
}
