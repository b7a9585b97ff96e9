package tasks_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/wake"
)

func TestOperatorSeesEveryTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var all []a2a.ID // newest first
	for i := range 6 {
		in := submission("x")
		in.Tenant, in.Owner, in.ContextID = fmt.Sprint("t", i%2), fmt.Sprint("o", i%3), fmt.Sprint("c", i)
		if i == 5 {
			in.Agent = "other"
		}
		all = slices.Insert(all, 0, f.submit(in).Task)
	}
	running := f.claimTask(all[5])
	list := func(filter operate.TaskFilter) []a2a.ID {
		t.Helper()
		filter.Limit = max(filter.Limit, 1)
		rows, err := f.Operate.ListTasks(f.ctx, filter)
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
		{"submitted", operate.TaskFilter{States: []a2a.State{a2a.StateSubmitted, a2a.StateCompleted}, Limit: 10}, all[:1]},
	} {
		same(t, tt.name, tt.want, list(tt.filter))
	}
	rows, err := f.Operate.ListTasks(f.ctx, operate.TaskFilter{ID: running.TaskID, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := rows[0]
	if r.Worker != "r1" || r.LeaseUntil.IsZero() || !r.ReadyAt.IsZero() || r.Epoch != 1 || r.Attempt != 1 || r.LastSeq != 2 || r.State != a2a.StateWorking {
		t.Errorf("a running task = %+v", r)
	}
	rows, err = f.Operate.ListTasks(f.ctx, operate.TaskFilter{ID: all[0], Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.Worker != "" || !r.LeaseUntil.IsZero() || r.ReadyAt.IsZero() || r.CreatedAt.IsZero() || r.StatusAt.IsZero() {
		t.Errorf("a waiting task = %+v", r)
	}
	owner, err := f.Operate.Owner(f.ctx, all[0])
	if err != nil || owner != (db.Caller{Tenant: "t1", Owner: "o2"}) {
		t.Errorf("Owner = %+v, %v", owner, err)
	}
	_, err = f.Operate.Owner(f.ctx, db.NewTaskID())
	wantCode(t, err, a2a.CodeTaskNotFound)
}

func TestCheckSchemaNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.Operate.CheckSchema(f.ctx); err != nil {
		t.Errorf("CheckSchema of a migrated database = %v", err)
	}
	newest := operate.SchemaVersion()
	f.exec("UPDATE a2a.schema_floor SET version = $1", newest)
	if err := f.Operate.CheckSchema(f.ctx); err != nil {
		t.Errorf("CheckSchema of one that serves this version and no older one = %v", err)
	}
	f.exec("INSERT INTO public.a2a_goose_version (version_id, is_applied) VALUES ($1, true)", newest+2)
	if err := f.Operate.CheckSchema(f.ctx); err != nil {
		t.Errorf("CheckSchema of a newer one that still serves this version = %v", err)
	}
	f.exec("UPDATE a2a.schema_floor SET version = $1", newest+1)
	if err := f.Operate.CheckSchema(f.ctx); err == nil || !strings.Contains(err.Error(), "upgrade a2ad") {
		t.Errorf("CheckSchema of one that serves newer versions alone = %v", err)
	}
	f.exec("DELETE FROM public.a2a_goose_version WHERE version_id > $1", newest)
	if err := operate.MigrateDown(f.ctx, f.url); err != nil {
		t.Fatal(err)
	}
	if err := f.Operate.CheckSchema(f.ctx); err == nil || !strings.Contains(err.Error(), "a2ad migrate up") {
		t.Errorf("CheckSchema of an older one = %v", err)
	}
	empty := storetest.NewEmpty(t)
	s := f.replica("r2", func(c *store.Config) { c.URL = empty.URL })
	if err := s.Operate.CheckSchema(f.ctx); err == nil || !strings.Contains(err.Error(), "version 0") {
		t.Errorf("CheckSchema of an empty database = %v", err)
	}
}

func TestOpenHidesThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:hunter2@127.0.0.1:99999/x", "postgres://u:hunter2@127.0.0.1:1/x", "host= password=hunter2 port=x"} {
		_, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: url, Replica: "r1", AcquireTimeout: time.Second}})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Open = %v", err)
		}
	}
	_, err := store.Open(t.Context(), store.Config{Config: db.Config{URL: "postgres://u:hunter2@127.0.0.1:1/x?sslmode=verify-full&sslrootcert=/no/such.pem", Replica: "r1"}})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "/no/such.pem: no such file") {
		t.Errorf("Open = %v, want it to name the file", err)
	}
}

func TestConnectionsSayWhoTheyAreAndHaveLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) {
		c.StatementTimeout, c.LockTimeout, c.IdleTxTimeout = 7*time.Second, 3*time.Second, 2*time.Second
	})
	f.task()
	same(t, "names", "a2ad-r1-api a2ad-r1-claim a2ad-r1-renew a2ad-r1-worker", value[string](f, `SELECT string_agg(DISTINCT application_name, ' ' ORDER BY application_name) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'a2ad-%'`))
	err := onPools(f.ctx, f.Store, func(pool string, conn *pgx.Conn) error {
		for name, want := range map[string]string{
			"statement_timeout": "7s", "lock_timeout": "3s", "idle_in_transaction_session_timeout": "2s", "search_path": "pg_catalog", "plan_cache_mode": "force_generic_plan",
			"role": map[string]string{"api": "a2a_app", "worker": "a2a_worker", "claim": "a2a_worker", "renew": "a2a_worker"}[pool],
		} {
			var have string
			if err := conn.QueryRow(f.ctx, "SELECT current_setting($1)", name).Scan(&have); err != nil {
				return err
			}
			same(t, pool+" "+name, want, have)
		}
		// How durable a commit is stays PostgreSQL's to say: what is acknowledged is on disk.
		var decides string
		if err := conn.QueryRow(f.ctx, "SELECT source FROM pg_settings WHERE name = 'synchronous_commit'").Scan(&decides); err != nil {
			return err
		}
		if decides == "session" || decides == "client" {
			t.Errorf("%s sets synchronous_commit by itself", pool)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Poolers refuse a request to connect that sets more.
	if p := f.DB.ConnConfig("listener").RuntimeParams; len(p) != 1 || p["application_name"] != "a2ad-r1-listener" {
		t.Errorf("parameters %v", p)
	}
	if err := f.DB.Ping(f.ctx); err != nil {
		t.Error(err)
	}
	if p := f.DB.Pools(); p[0].MaxConns()+p[1].MaxConns()+p[2].MaxConns() != 8 || p[3].MaxConns() != 2 {
		t.Errorf("the pools have %d, %d and %d connections, want 8 together, and %d for renewals", p[0].MaxConns(), p[1].MaxConns(), p[2].MaxConns(), p[3].MaxConns())
	}
	if err := f.DB.Notify(f.ctx, []string{"x"}); err != nil {
		t.Error(err)
	}
}

// A lock that somebody keeps must not keep a caller for ever.
func TestLockTimeoutEndsAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.LockTimeout = 50 * time.Millisecond })
	task := f.task()
	f.hold("SELECT FROM a2a.tasks WHERE id = $1 FOR UPDATE", task)
	if _, err := f.Tasks.Cancel(f.ctx, ann, agent, task); err == nil {
		t.Error("Cancel = nil while the task is locked")
	}
	in := submission("more")
	in.Task = task
	if _, err := f.Tasks.Submit(f.ctx, in); err == nil {
		t.Error("Submit = nil while the task is locked")
	}
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := [32]byte{1, 2, 3}
	k := access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Name: "laptop", Scopes: []string{"tasks:read"}, Agents: []string{"words"}}
	k, err := f.Access.CreateKey(f.ctx, k, secret, 0)
	if err != nil || k.CreatedAt.IsZero() || !k.ExpiresAt.IsZero() {
		t.Fatalf("made %+v, %v", k, err)
	}
	if _, err := f.Access.CreateKey(f.ctx, k, secret, 0); err == nil {
		t.Error("an id was given out twice")
	}
	for range 2 {
		got, gotSecret, err := f.Access.LookupKey(f.ctx, "k1")
		if err != nil || gotSecret != secret {
			t.Fatalf("lookup: secret %v, %v", gotSecret, err)
		}
		same(t, "key of a sign-in", access.Key{ID: "k1", Tenant: "acme", Owner: "ann", Scopes: k.Scopes, Agents: k.Agents}, got)
	}
	// To ask for a key is not to use it: who does may have another secret.
	if list, err := f.Access.Keys(f.ctx); err != nil || len(list) != 1 || !list[0].UsedAt.IsZero() {
		t.Fatalf("keys = %+v, %v, want one that was not used", list, err)
	}
	if err := f.Access.UseKey(f.ctx, "k1"); err != nil {
		t.Fatal(err)
	}
	list, err := f.Access.Keys(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].UsedAt.IsZero() {
		t.Fatalf("keys = %+v, want one that was used", list)
	}
	list[0].UsedAt = time.Time{}
	same(t, "key in the list", k, list[0])

	if err := f.Access.RevokeKey(f.ctx, "k1"); err != nil {
		t.Fatal(err)
	}
	same(t, "wakes", []string{wake.APIKeys}, f.takeWakes())
	if got, _, err := f.Access.LookupKey(f.ctx, "k1"); err != nil || got.RevokedAt.IsZero() {
		t.Errorf("a key that was revoked = %+v, %v", got, err)
	}
	if err := f.Access.RevokeKey(f.ctx, "k1"); err != nil {
		t.Errorf("revoked twice: %v", err)
	}
	if err := f.Access.RevokeKey(f.ctx, "none"); !errors.Is(err, access.ErrNoKey) {
		t.Errorf("revocation of no key = %v, want ErrNoKey", err)
	}
}

func TestAPIKeyExpires(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	made, err := f.Access.CreateKey(f.ctx, access.Key{ID: "k", Tenant: "acme", Owner: "ann", Scopes: []string{}}, [32]byte{}, time.Hour)
	if err != nil || made.ExpiresAt.Sub(made.CreatedAt).Round(time.Minute) != time.Hour {
		t.Fatalf("made %+v, %v", made, err)
	}
	got, _, err := f.Access.LookupKey(f.ctx, "k")
	if left := time.Until(got.ExpiresAt); err != nil || left > time.Hour || left < 50*time.Minute || got.Agents != nil {
		t.Errorf("a key that expires later = %+v, %v", got, err)
	}
	f.exec("UPDATE a2a.api_keys SET expires_at = clock_timestamp()")
	if got, _, err := f.Access.LookupKey(f.ctx, "k"); err != nil || got.ExpiresAt.IsZero() || got.ExpiresAt.After(time.Now()) {
		t.Errorf("a key that ran out = %+v, %v", got, err)
	}
}

// A guess must cost one read, be there a key of its id or not: who knows none could otherwise keep the database
// busy, and find out by the time which ids there are.
func TestAPIKeyIsLookedUpByOneRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, id := range []string{"revoked", "in force"} {
		if _, err := f.Access.CreateKey(f.ctx, access.Key{ID: id, Tenant: "t", Owner: "o", Scopes: []string{}}, [32]byte{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Access.RevokeKey(f.ctx, "revoked"); err != nil {
		t.Fatal(err)
	}
	s, p := f.behindProxy(t)
	for i, id := range []string{"none", "none", "revoked", "in force"} { // the first one prepares the statement
		n := 0
		p.arm(fault{match: func(request []byte) bool {
			if execute(request) {
				n++
			}
			return false
		}})
		_, _, err := s.Access.LookupKey(f.ctx, id)
		if errors.Is(err, access.ErrNoKey) != (id == "none") || err != nil && id != "none" {
			t.Errorf("%s: error = %v", id, err)
		}
		p.arm(fault{match: func([]byte) bool { return false }})
		if n != 1 && (n > 2 || i > 0) {
			t.Errorf("%s: %d statements, want one read", id, n)
		}
	}
}

func TestServerKeyIsMadeOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	replicas := []*store.Store{f.Store, f.replica("r2")}
	keys := make([][]byte, 16)
	var g errgroup.Group
	for i := range keys {
		g.Go(func() (err error) {
			keys[i], err = replicas[i%2].Access.ServerKey(f.ctx, "page-token")
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if len(k) != 32 || !bytes.Equal(k, keys[0]) {
			t.Errorf("key %x, want 32 bytes, all the same", k)
		}
	}
	if other, err := f.Access.ServerKey(f.ctx, "other"); err != nil || bytes.Equal(other, keys[0]) {
		t.Errorf("the key of another name is %x, %v", other, err)
	}
}
