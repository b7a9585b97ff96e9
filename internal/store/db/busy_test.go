package db_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A reader that finds every connection taken is told so in good time, and those that have one
// get their answer.
func TestReadersDoNotWaitForeverForAConnection(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t, func(c *store.Config) { c.PoolSize, c.LockTimeout, c.StatementTimeout = 5, time.Hour, time.Hour }) // two of them for readers
	task := f.NewTask()
	lock, err := f.SQL.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "LOCK TABLE a2a.tasks IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			if h, err := f.Tasks.Head(t.Context(), storetest.Ann, task); err != nil || h.LastSeq != 1 {
				t.Errorf("a reader with a connection: %+v, %v", h, err)
			}
		})
	}
	for waiting := 0; waiting < 2; {
		if err := f.SQL.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	db.SetRequestWait(f.DB, 300*time.Millisecond)
	for what, read := range map[string]func() error{
		"one task": func() error { _, err := f.Tasks.Head(t.Context(), storetest.Ann, task); return err },
		"a list": func() error {
			_, _, err := f.Tasks.Page(t.Context(), storetest.Ann, tasks.Filter{Agent: storetest.Agent, Limit: 1})
			return err
		},
	} {
		err := read() // the others wait for an hour
		var e *a2a.Error
		if !errors.As(err, &e) || e.Code != a2a.CodeUnavailable || e.Message != "the server is busy" {
			t.Errorf("%s without a connection: %v", what, err)
		}
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}
