package db_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// pair is two servers behind a proxy, each with the schema in a database of the same name.
type pair struct {
	old, next *devpg.Server
	proxy     *storetest.Proxy
	url       string // through the proxy
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{old: storetest.NewServer(t, nil), next: storetest.NewServer(t, nil)}
	for _, s := range []*devpg.Server{p.old, p.next} {
		url, err := s.EnsureDatabase(t.Context(), "pair")
		if err != nil {
			t.Fatal(err)
		}
		if err := operate.MigrateUp(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	p.proxy, p.url = storetest.NewProxy(t, p.old.URL("pair"))
	return p
}

// readOnly makes the old server refuse changes, also on the connections that it has, or accept them again.
func (p *pair) readOnly(t *testing.T, on bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.old.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		"SET default_transaction_read_only = off",
		fmt.Sprintf("ALTER SYSTEM SET default_transaction_read_only = %v", on),
		"SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	check, err := pgx.Connect(t.Context(), p.old.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer check.Close(t.Context())
	waitUntil(t, "reload", func() bool {
		var now bool
		const query = "SELECT current_setting('default_transaction_read_only')::boolean"
		err := check.QueryRow(t.Context(), query).Scan(&now)
		return err == nil && now == on
	})
}

// open opens a store with idle connections in every pool.
func (p *pair) open(t *testing.T, change ...func(*store.Config)) *store.Store {
	t.Helper()
	cfg := store.Config{Config: db.Config{URL: p.url, Replica: "r1", PoolSize: 8}}
	for _, c := range change {
		c(&cfg)
	}
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := db.OnEveryPool(t.Context(), s.DB, func(string, *pgx.Conn) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

// A server that becomes read-only keeps its connections. They are not used any more once another accepts changes.
func TestWritesMoveToTheServerThatAcceptsThem(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := p.open(t)
	if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("before")); err != nil {
		t.Fatal(err)
	}
	p.readOnly(t, true)
	p.proxy.Move(t, p.next.URL("pair"))
	sub, err := s.Tasks.Submit(t.Context(), storetest.Submission("after"))
	if err != nil {
		t.Fatalf("after the demotion: %v", err)
	}
	next, err := pgx.Connect(t.Context(), p.next.URL("pair"))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close(t.Context())
	var stored bool
	const query = "SELECT EXISTS (SELECT FROM a2a.tasks WHERE id = $1)"
	if err := next.QueryRow(t.Context(), query, sub.Task.String()).Scan(&stored); err != nil || !stored {
		t.Errorf("the new server has the task: %v, %v", stored, err)
	}
	if err := s.DB.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
}

// Nobody writes: Watch notices it alone.
func TestIdleConnectionsMoveToTheServerThatAcceptsChanges(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	moved := make(chan struct{}, 10)
	s := p.open(t, func(c *store.Config) { c.Moved = func() { moved <- struct{}{} } })
	watch(t, s)
	p.readOnly(t, true)
	p.proxy.Move(t, p.next.URL("pair"))
	<-moved
	err := db.OnEveryPool(t.Context(), s.DB, func(pool string, conn *pgx.Conn) error {
		if conn.PgConn().ParameterStatus("default_transaction_read_only") != "off" {
			t.Errorf("the %s connections lead to the old server", pool)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// While no server accepts changes, a replica is not ready, and says why. Reads go on.
func TestReadOnlyIsNotReady(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	s := p.open(t)
	watch(t, s)
	sub, err := s.Tasks.Submit(t.Context(), storetest.Submission("before"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DB.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.readOnly(t, true)
	waitUntil(t, "refusal", func() bool { return s.DB.Ready(t.Context()) != nil })
	const want = "the database accepts no changes: it is a standby, or read-only"
	if err := s.DB.Ready(t.Context()); err == nil || err.Error() != want {
		t.Errorf("ready: %v, want %s", err, want)
	}
	_, err = s.Tasks.Submit(t.Context(), storetest.Submission("refused"))
	if a2a.CodeOf(err) != a2a.CodeUnavailable {
		t.Errorf("submit: %v", err)
	}
	if _, err := s.Tasks.Head(t.Context(), storetest.Ann, sub.Task); err != nil {
		t.Errorf("a read: %v", err)
	}
	p.readOnly(t, false)
	waitUntil(t, "readiness", func() bool { return s.DB.Ready(t.Context()) == nil })
	if _, err := s.Tasks.Submit(t.Context(), storetest.Submission("after")); err != nil {
		t.Error(err)
	}
}

// Some errors say that the server is not the one to use any more, or that a pooler has moved the session. All
// connections are replaced, of every pool.
func TestErrorsOfAServerThatIsLeftCloseConnections(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, code := range []string{"25006", "57P01", "57P02", "57P03", "57P04", "57P05", "08006", "0A000"} {
		moved := make(chan struct{}, 10)
		s := f.Replica("r1", func(c *store.Config) { c.Moved = func() { moved <- struct{}{} } })
		pids := func() (all []uint32) {
			err := db.OnEveryPool(t.Context(), s.DB, func(_ string, conn *pgx.Conn) error {
				all = append(all, conn.PgConn().PID())
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		before := pids()
		_, err := s.DB.Work().Exec(t.Context(), fmt.Sprintf("DO $$ BEGIN RAISE SQLSTATE '%s'; END $$", code))
		if !db.IsCode(err, code) {
			t.Fatalf("%s: %v", code, err)
		}
		if len(moved) != 1 {
			t.Errorf("%s: Moved is called %d times", code, len(moved))
		}
		for i, pid := range pids() {
			if pid == before[i] {
				t.Errorf("%s: a connection is used again", code)
			}
		}
	}
}
