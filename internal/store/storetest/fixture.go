package storetest

import (
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/devpg"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
)

// Agent is the agent of tests that need only one.
const Agent = "words"

// Ann is the caller of tests that need only one.
var Ann = db.Caller{Tenant: "acme", Owner: "ann"}

// Fixture is a store on a database that one test has for itself. It records the wake-ups and the events that the store
// reports after its commits. Its methods fail the test on any error.
type Fixture struct {
	*store.Store
	T   testing.TB
	URL string        // of the database; the user may do anything
	SQL *pgxpool.Pool // connections of the test itself

	AttemptsSwept bool // the test sweeps attempts: an event without its attempt is no fault

	mu        sync.Mutex
	wakes     []string                 // guarded by mu
	committed map[a2a.ID][][]a2a.Entry // guarded by mu
}

// Open returns the store of replica r1 on a new database, with the changes made to its configuration. Both end with
// the test.
func Open(t testing.TB, change ...func(*store.Config)) *Fixture {
	t.Helper()
	return openOn(t, New(t), change...)
}

// OpenOn is Open on a server from NewServer.
func OpenOn(t testing.TB, srv *devpg.Server, change ...func(*store.Config)) *Fixture {
	t.Helper()
	return openOn(t, NewOn(t, srv), change...)
}

func openOn(t testing.TB, pg *DB, change ...func(*store.Config)) *Fixture {
	t.Helper()
	f := &Fixture{T: t, URL: pg.URL, SQL: pg.Pool(t), committed: map[a2a.ID][][]a2a.Entry{}}
	f.Store = f.Replica("r1", change...)
	return f
}

// Replica opens another store on the same database, as another process would.
func (f *Fixture) Replica(name string, change ...func(*store.Config)) *store.Store {
	f.T.Helper()
	cfg := store.Config{Config: db.Config{URL: f.URL, Replica: name, PoolSize: 8}}
	cfg.Wake = func(keys ...string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.wakes = append(f.wakes, keys...)
	}
	cfg.Committed = func(id a2a.ID, events []a2a.Entry) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.committed[id] = append(f.committed[id], events)
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := store.Open(f.T.Context(), cfg)
	if err != nil {
		f.T.Fatalf("open store: %v", err)
	}
	f.T.Cleanup(s.Close)
	if cfg.URL != f.URL { // a fault on the way must hit a statement of the test, and not one that sets a connection up
		if err := s.DB.Ready(f.T.Context()); err != nil {
			f.T.Fatalf("connect all pools: %v", err)
		}
	}
	return s
}

// TakeWakes returns the keys that were woken since the last call, sorted, each once.
func (f *Fixture) TakeWakes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := slices.Compact(slices.Sorted(slices.Values(f.wakes)))
	f.wakes = nil
	return keys
}

// TakeCommitted returns the events of a task that Committed received since the last call, one list per call. It clears
// the numbers of messages: the store does not know them when the answer to a commit was lost.
func (f *Fixture) TakeCommitted(id a2a.ID) [][]a2a.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.committed[id]
	delete(f.committed, id)
	for _, entries := range calls {
		for i := range entries {
			entries[i].Messages = 0
		}
	}
	return calls
}

// Actions returns the audit log, oldest first, as "actor action tenant/owner detail". An empty detail is left out.
func (f *Fixture) Actions() (list []string) {
	f.T.Helper()
	found, err := f.Access.Actions(f.T.Context(), access.ActionFilter{Limit: 100})
	if err != nil {
		f.T.Fatalf("read audit log: %v", err)
	}
	for _, a := range slices.Backward(found) {
		line := a.Actor + " " + a.Name + " " + a.Tenant + "/" + a.Owner
		if string(a.Detail) != "{}" {
			line += " " + string(a.Detail)
		}
		list = append(list, line)
	}
	return list
}
