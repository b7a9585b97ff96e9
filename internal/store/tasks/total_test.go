package tasks_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestTotalIsExactUpToTenThousand(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.AddCompleted(9_999, "ann", storetest.Agent)
	f.AddCompleted(7, "ann", "other")
	f.AddCompleted(7, "bob", storetest.Agent)
	first := tasks.Filter{Agent: storetest.Agent, Limit: 10}
	total := func(c db.Caller, filter tasks.Filter, want int) {
		t.Helper()
		if _, n, err := f.Tasks.Page(t.Context(), c, filter); err != nil || n != (tasks.Total{N: want}) {
			t.Errorf("total = %+v, %v, want %d", n, err, want)
		}
	}
	total(storetest.Ann, first, 9_999)
	f.AddCompleted(1, "ann", storetest.Agent)
	total(storetest.Ann, first, 10_000)
	f.AddCompleted(1, "ann", storetest.Agent)
	total(storetest.Ann, first, 10_001)
	// A large total is remembered for a while, for all pages of this list and for no other list.
	f.AddCompleted(5, "ann", storetest.Agent)
	total(storetest.Ann, first, 10_001)
	rows, _, err := f.Tasks.Page(t.Context(), storetest.Ann, first)
	if err != nil {
		t.Fatal(err)
	}
	next := first
	next.BeforeAt, next.BeforeID = rows[9].At, rows[9].ID
	total(storetest.Ann, next, 10_001)
	total(db.Caller{Tenant: "acme", Owner: "ann", Actor: "key 2"}, next, 10_001)
	since := first
	since.Since = rows[9].At
	total(storetest.Ann, since, 10)
	working := first
	working.State = a2a.StateWorking
	total(storetest.Ann, working, 0)
	total(db.Caller{Tenant: "acme", Owner: "bob", Shared: true}, first, 10_013)
	total(db.Caller{Tenant: "acme", Owner: "bob"}, first, 7)
	total(db.Caller{Tenant: "corp", Owner: "ann"}, first, 0)
	tasks.AgeTotals(f.Store.Tasks)
	total(storetest.Ann, next, 10_006)
	// The total of a list that has become short is exact again.
	f.Exec(`
		DELETE FROM a2a.tasks WHERE agent = $1 AND owner = 'ann'
		  AND id NOT IN (SELECT id FROM a2a.tasks WHERE agent = $1 AND owner = 'ann' LIMIT 20)`, storetest.Agent)
	tasks.AgeTotals(f.Store.Tasks)
	total(storetest.Ann, first, 20)
	f.AddCompleted(1, "ann", storetest.Agent)
	total(storetest.Ann, first, 21)
}

// If the count times out, the page has an estimate.
func TestPageHasAnEstimateIfTheCountTimesOut(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.StatementTimeout = time.Minute })
	f.AddCompleted(10_500, "ann", storetest.Agent)
	first := tasks.Filter{Agent: storetest.Agent, Limit: 10}
	page := func(want tasks.Total) {
		t.Helper()
		rows, n, err := f.Tasks.Page(t.Context(), storetest.Ann, first)
		if err != nil || len(rows) != 10 || n != want {
			t.Errorf("%d tasks of %+v, %v, want 10 of %+v", len(rows), n, err, want)
		}
	}
	slow := func() { // every count fails as if it had timed out
		f.Exec(`CREATE FUNCTION a2a.slow(uuid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			IF current_setting('statement_timeout') = '20s' THEN
				RAISE EXCEPTION 'too long' USING ERRCODE = '57014';
			END IF;
			RETURN true;
		END $$`)
		f.Exec("CREATE POLICY slow ON a2a.tasks AS RESTRICTIVE FOR SELECT TO a2a_app USING (a2a.slow(id))")
	}
	fast := func() {
		f.Exec("DROP POLICY slow ON a2a.tasks")
		f.Exec("DROP FUNCTION a2a.slow")
	}
	slow()
	page(tasks.Total{N: 10, Estimated: true}) // only the page is known
	fast()
	page(tasks.Total{N: 10, Estimated: true}) // the estimate is remembered for a minute
	tasks.AgeTotals(f.Store.Tasks)
	page(tasks.Total{N: 10_500})
	slow()
	tasks.AgeTotals(f.Store.Tasks)
	page(tasks.Total{N: 10_500, Estimated: true}) // the last count
}
