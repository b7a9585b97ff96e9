package access_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestActionsAreRecorded(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.Actor = "operator ann@desk" })
	key := access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: []string{"tasks:read"}}
	if _, err := f.Access.CreateKey(t.Context(), key, [32]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call changes nothing
		if err := f.Access.RevokeKey(t.Context(), "k1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Access.RevokeKey(t.Context(), "k2"); !errors.Is(err, access.ErrNoKey) {
		t.Errorf("revoke an unknown key: %v, want ErrNoKey", err)
	}
	task := f.NewTask()
	caller := storetest.Ann
	caller.Actor = "key k9"
	if _, err := f.Tasks.Cancel(t.Context(), caller, storetest.Agent, task); err != nil {
		t.Fatal(err)
	}
	_, err := f.Tasks.Cancel(t.Context(), caller, storetest.Agent, task) // refused, so it is not recorded
	storetest.WantCode(t, err, a2a.CodeTaskNotCancelable)
	if err := f.Access.Record(t.Context(), access.Action{
		Actor: "address 192.0.2.1", Name: access.ActionSignInFailed, Detail: map[string]any{"method": "api_key"},
	}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "actions", []string{
		`operator ann@desk key.create acme/ann {"key":"k1","scopes":["tasks:read"]}`,
		`operator ann@desk key.revoke acme/ann {"key":"k1"}`,
		`key k9 task.cancel acme/ann`,
		`address 192.0.2.1 signin.failed / {"method":"api_key"}`,
	}, f.Actions())
	found, err := f.Access.Actions(t.Context(), access.ActionFilter{Task: task, Limit: 5})
	if err != nil || len(found) != 1 || found[0].Name != access.ActionTaskCancel {
		t.Errorf("actions on the task: %+v, %v", found, err)
	}
}

func TestServerMayOnlyAppendToTheAuditLog(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	conn, err := pgx.Connect(t.Context(), f.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "SET ROLE a2a_worker"); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{
		"UPDATE a2a.audit_log SET actor = 'x'", "DELETE FROM a2a.audit_log", "TRUNCATE a2a.audit_log",
	} {
		if _, err := conn.Exec(t.Context(), query); err == nil {
			t.Errorf("the server may %s", query)
		}
	}
}

// The sweep removes old entries, failed sign-ins earlier than the rest. It never removes an entry that is younger than
// the database allows.
func TestSweepRemovesOldActions(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`
		INSERT INTO a2a.audit_log (at, actor, action)
		SELECT clock_timestamp() - make_interval(days => d), 'operator', a
		FROM unnest(ARRAY[0, 2, 29, 31, 401]) d, unnest(ARRAY['signin.failed', 'key.create']) a`)
	left := func() string {
		t.Helper()
		return storetest.Value[string](f, `
			SELECT string_agg(a || ':' || days, ' ' ORDER BY a) FROM (
			  SELECT l.action AS a,
			    string_agg((extract(day FROM clock_timestamp() - l.at))::int::text, ',' ORDER BY l.at DESC) AS days
			  FROM a2a.audit_log l WHERE l.action <> 'audit.retire' GROUP BY 1) x`)
	}
	sweep := func(keep, signIns time.Duration, batch int, want string) {
		t.Helper()
		for more := true; more; {
			var err error
			if _, more, err = f.Access.SweepActions(t.Context(), access.ActionSweep{
				Keep: keep, KeepSignIns: signIns, Batch: batch,
			}); err != nil {
				t.Fatal(err)
			}
		}
		if got := left(); got != want {
			t.Errorf("after a sweep that keeps %s and %s: %s, want %s", keep, signIns, got, want)
		}
	}
	const day = 24 * time.Hour
	sweep(0, 0, 10, "key.create:0,2,29,31,401 signin.failed:0,2,29,31,401")
	sweep(400*day, 30*day, 1, "key.create:0,2,29,31 signin.failed:0,2,29")
	sweep(time.Second, time.Second, 1, "key.create:0,2,29 signin.failed:0")
	const removed = "SELECT sum((detail->>'actions')::int)::int FROM a2a.audit_log WHERE action = 'audit.retire'"
	if n := storetest.Value[int](f, removed); n != 6 {
		t.Errorf("the audit log says that %d actions were removed, want 6", n)
	}
	plan := strings.Join(f.Column(`
		EXPLAIN SELECT x.ctid FROM a2a.audit_log x
		WHERE x.action = 'signin.failed' AND x.at < (SELECT clock_timestamp()) ORDER BY x.at LIMIT 10`), "\n")
	if !strings.Contains(plan, "audit_log_signins") {
		t.Errorf("failed sign-ins are found by\n%s", plan)
	}
}
