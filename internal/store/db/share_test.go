package db_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/access"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// What must not be refused waits for a connection as long as its context lasts, where others are refused.
func TestPatientReadsWait(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	head := func(ctx context.Context) error {
		_, err := f.Tasks.Head(ctx, storetest.Ann, task)
		return err
	}
	events := func(ctx context.Context) error {
		_, _, err := f.Tasks.Log().EventPage(ctx, task, 0, 10, 1<<20)
		return err
	}
	event := func(ctx context.Context) error {
		_, _, err := f.Tasks.EventUID(ctx, task, 1)
		return err
	}
	calls := func() func() { return filled(t, f, db.FillCalls) }
	all := func() func() { return filled(t, f, db.FillRequests) }
	streams := func() func() { return db.FillReads(f.DB) }
	as := func(ctx context.Context) context.Context { return ctx }
	for what, c := range map[string]struct {
		fill    func() (release func())
		read    func(context.Context) error
		ctx     func(context.Context) context.Context
		refused func(context.Context) error // beside it
	}{
		"an answer":                                {calls, head, db.Patient, head},
		"an answer while no connection is free":    {all, head, db.Patient, head},
		"a stream that begins":                     {streams, head, db.PatientOfStream, event},
		"a stream that begins while none is free":  {all, head, db.PatientOfStream, event},
		"events of an open stream":                 {streams, events, as, event},
		"events of an open one while none is free": {all, events, as, event},
	} {
		db.SetRequestWait(f.DB, time.Minute)
		release := c.fill()
		db.SetRequestWait(f.DB, time.Millisecond)
		ended, leave := context.WithCancelCause(t.Context())
		gone := errors.New("the client disconnected")
		leave(gone)
		if err := c.read(c.ctx(ended)); err == nil || a2a.CodeOf(err) == a2a.CodeUnavailable {
			t.Errorf("%s of a client that has disconnected: %v", what, err)
		}
		done := make(chan error, 1)
		go func() { done <- c.read(c.ctx(t.Context())) }()
		for range 20 { // each takes longer than others may wait
			if err := c.refused(t.Context()); a2a.CodeOf(err) != a2a.CodeUnavailable {
				t.Errorf("another read beside %s: %v, want that the server is busy", what, err)
			}
		}
		select {
		case err := <-done:
			t.Errorf("%s did not wait: %v", what, err)
			done <- nil
		default:
		}
		release()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func filled(
	t *testing.T, f *storetest.Fixture, fill func(context.Context, *db.DB) (func(), error),
) (release func()) {
	t.Helper()
	release, err := fill(t.Context(), f.DB)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// However many requests and searches wait for a connection, a part of the pool is left for streams: for the sign-in of
// their clients, and for those that begin or are open.
func TestRequestsLeaveConnectionsToStreams(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	release := filled(t, f, db.FillCalls)
	defer release()
	db.SetRequestWait(f.DB, time.Millisecond)
	_, _, err := f.Tasks.Page(t.Context(), storetest.Ann, tasks.Filter{Agent: storetest.Agent, Limit: 1})
	storetest.WantCode(t, err, a2a.CodeUnavailable)
	_, err = f.Operate.SearchTasks(t.Context(), operate.TaskSearch{Limit: 1, Timeout: time.Minute})
	storetest.WantCode(t, err, a2a.CodeUnavailable)
	db.SetRequestWait(f.DB, 5*time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for what, read := range readsOf(ctx, f, task) {
		if err := read(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := f.Access.LookupKey(ctx, "unknown"); !errors.Is(err, access.ErrNoKey) {
		t.Errorf("a sign-in: %v", err)
	}
	begin := db.PatientOfStream(ctx)
	if _, err := f.Tasks.Head(begin, storetest.Ann, task); err != nil {
		t.Errorf("the head of a stream that begins: %v", err)
	}
	if _, err := f.Tasks.Snapshot(begin, storetest.Ann, task, tasks.Want{}); err != nil {
		t.Errorf("the task of a stream that begins: %v", err)
	}
}

// Operators see waits for a share as waits for a connection, which is what the reader waits for.
func TestWaitsForSharesAreCounted(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	release := filled(t, f, db.FillCalls)
	db.SetRequestWait(f.DB, time.Millisecond)
	before := f.DB.Pools()[0]
	_, err := f.Tasks.Head(t.Context(), storetest.Ann, task)
	storetest.WantCode(t, err, a2a.CodeUnavailable)
	after := f.DB.Pools()[0]
	if after.Waits != before.Waits+1 || after.WaitTime <= before.WaitTime || after.Canceled != before.Canceled+1 {
		t.Errorf("pool %s: %d waits of %v, %d canceled; want one more of each than %d, %v, %d", after.Name,
			after.Waits, after.WaitTime, after.Canceled, before.Waits, before.WaitTime, before.Canceled)
	}
	release()
}
