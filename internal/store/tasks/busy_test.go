package tasks_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// A reader that finds every connection taken is told so in good time, and those that have one
// get their answer.
func TestReadersDoNotWaitForeverForAConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *store.Config) { c.PoolSize, c.LockTimeout, c.StatementTimeout = 5, time.Hour, time.Hour }) // two of them for readers
	task := f.task()
	lock, err := f.sql.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(f.ctx, "LOCK TABLE a2a.tasks IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			if h, err := f.Tasks.Head(f.ctx, ann, task); err != nil || h.LastSeq != 1 {
				t.Errorf("a reader with a connection: %+v, %v", h, err)
			}
		})
	}
	for waiting := 0; waiting < 2; {
		if err := f.sql.QueryRow(f.ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	waitForConnections(f.Store, 300*time.Millisecond)
	for what, read := range map[string]func() error{
		"one task": func() error { _, err := f.Tasks.Head(f.ctx, ann, task); return err },
		"a list":   func() error { _, _, err := f.Tasks.Page(f.ctx, ann, tasks.Filter{Agent: agent, Limit: 1}); return err },
	} {
		err := read() // the others wait for an hour
		var e *a2a.Error
		if !errors.As(err, &e) || e.Code != a2a.CodeUnavailable || e.Message != "the server is busy" {
			t.Errorf("%s without a connection: %v", what, err)
		}
	}
	if err := lock.Rollback(f.ctx); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}

// The count of what is in flight reads those alone, whatever else there is.
func TestTasksInFlightAreTheOwnersUnfinishedOnes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submitMany(5)
	other := ann
	other.Owner = "somebody else"
	count := func(c db.Caller, most, want int) {
		t.Helper()
		if n, err := f.Tasks.TasksInFlight(f.ctx, c, most); err != nil || n != want {
			t.Errorf("%d of at most %d, %v, want %d", n, most, err, want)
		}
	}
	count(ann, 100, 5)
	count(ann, 3, 3)
	count(other, 100, 0)
	f.claim(2)
	count(ann, 100, 5)
	done := f.task()
	if _, err := f.Tasks.Cancel(f.ctx, ann, "", done); err != nil {
		t.Fatal(err)
	}
	count(ann, 100, 5)

	if plan := f.explain("", "TaskCountInFlightForCaller"); !strings.Contains(strings.Join(plan, " "), "tasks_running") {
		t.Errorf("%v", plan)
	}
}
