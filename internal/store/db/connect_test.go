package db_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestOpenHidesThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:hunter2@127.0.0.1:99999/x", "postgres://u:hunter2@127.0.0.1:1/x", "host= password=hunter2 port=x",
	} {
		cfg := store.Config{Config: db.Config{URL: url, Replica: "r1", AcquireTimeout: time.Second}}
		_, err := store.Open(t.Context(), cfg)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open = %v, want an error without the password", err)
		}
	}
	const missingFile = "postgres://u:hunter2@127.0.0.1:1/x?sslmode=verify-full&sslrootcert=/no/such.pem"
	_, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: missingFile, Replica: "r1"}})
	if err == nil || strings.Contains(err.Error(), "hunter2") ||
		!strings.Contains(err.Error(), "/no/such.pem: no such file") {
		t.Errorf("Open = %v, want it to name the file", err)
	}
}

func TestConnectionsHaveNamesAndLimits(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) {
		c.StatementTimeout, c.LockTimeout, c.IdleTxTimeout = 7*time.Second, 3*time.Second, 2*time.Second
	})
	f.NewTask()
	if err := f.DB.Ready(t.Context()); err != nil { // that connects the pools which nothing has used so far
		t.Error(err)
	}
	names := storetest.Value[string](f, `
		SELECT string_agg(DISTINCT application_name, ' ' ORDER BY application_name) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'a2ad-%'`)
	storetest.Same(t, "names", "a2ad-r1-api a2ad-r1-claim a2ad-r1-renew a2ad-r1-worker", names)
	err := db.OnEveryPool(t.Context(), f.DB, func(pool string, conn *pgx.Conn) error {
		for name, want := range map[string]string{
			"statement_timeout": "7s", "lock_timeout": "3s", "idle_in_transaction_session_timeout": "2s",
			"search_path": "pg_catalog", "plan_cache_mode": "force_generic_plan",
			"role": map[string]string{
				"api": "a2a_app", "worker": "a2a_worker", "claim": "a2a_worker", "renew": "a2a_worker",
			}[pool],
		} {
			var have string
			if err := conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&have); err != nil {
				return err
			}
			storetest.Same(t, pool+" "+name, want, have)
		}
		// The configuration of PostgreSQL alone decides how durable a commit is.
		var source string
		const query = "SELECT source FROM pg_settings WHERE name = 'synchronous_commit'"
		if err := conn.QueryRow(t.Context(), query).Scan(&source); err != nil {
			return err
		}
		if source == "session" || source == "client" {
			t.Errorf("%s sets synchronous_commit by itself", pool)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// A pooler refuses a connection that sets more parameters.
	if p := f.DB.ConnConfig("listener").RuntimeParams; len(p) != 1 || p["application_name"] != "a2ad-r1-listener" {
		t.Errorf("parameters %v, want only the application name", p)
	}
	if err := f.DB.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if p := f.DB.Pools(); p[0].MaxConns()+p[1].MaxConns()+p[2].MaxConns() != 8 || p[3].MaxConns() != 2 {
		t.Errorf("the pools have %d, %d and %d connections, want 8 together, and %d for renewals",
			p[0].MaxConns(), p[1].MaxConns(), p[2].MaxConns(), p[3].MaxConns())
	}
	if err := f.DB.Notify(t.Context(), []string{"x"}); err != nil {
		t.Error(err)
	}
}

// A caller must not wait for ever for a lock that another transaction keeps.
func TestLockTimeoutEndsAWait(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond })
	task := f.NewTask()
	f.Lock("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task)
	if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, task); err == nil {
		t.Error("Cancel = nil while the task is locked")
	}
	in := storetest.Submission("more")
	in.Task = task
	if _, err := f.Tasks.Submit(t.Context(), in); err == nil {
		t.Error("Submit = nil while the task is locked")
	}
}
