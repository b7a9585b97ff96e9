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

// A reader that finds all connections in use fails soon. Readers that have a connection get their answer.
func TestReadersDoNotWaitForeverForAConnection(t *testing.T) {
	t.Parallel()
	// Three of the eight connections are for readers.
	f := storetest.Open(t, func(c *store.Config) {
		c.PoolSize, c.LockTimeout, c.StatementTimeout = 8, time.Hour, time.Hour
	})
	task := f.NewTask()
	release := f.Lock("LOCK TABLE a2a.tasks IN ACCESS EXCLUSIVE MODE")
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			if h, err := f.Tasks.Head(t.Context(), storetest.Ann, task); err != nil || h.LastSeq != 1 {
				t.Errorf("a reader with a connection: %+v, %v", h, err)
			}
		})
	}
	f.WaitBlocked(3)
	db.SetRequestWait(f.DB, 300*time.Millisecond)
	for what, read := range map[string]func() error{
		"one task": func() error { _, err := f.Tasks.Head(t.Context(), storetest.Ann, task); return err },
		"a list": func() error {
			_, _, err := f.Tasks.Page(t.Context(), storetest.Ann, tasks.Filter{Agent: storetest.Agent, Limit: 1})
			return err
		},
	} {
		err := read() // the readers with a connection may wait for an hour
		var e *a2a.Error
		if !errors.As(err, &e) || e.Code != a2a.CodeUnavailable || e.Message != "the server is busy" {
			t.Errorf("%s without a connection: %v, want unavailable: the server is busy", what, err)
		}
	}
	release()
	readers.Wait()
}
