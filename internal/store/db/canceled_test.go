package db_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/slowtest"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// A client that disconnects must not cost a connection to the database: the next request would have to open another.
func TestCanceledRequestsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	p, url := storetest.NewProxy(t, f.URL)
	s := f.Replica("r1", func(c *store.Config) { c.URL = url })
	task := f.NewTask()
	read := func(ctx context.Context) {
		// Each of them may fail: it may be canceled.
		_, _ = s.Tasks.Snapshot(ctx, storetest.Ann, task, tasks.Want{Artifacts: true})
		_, _ = s.Tasks.EventsAfter(ctx, task, 0, 10)
		_, _, _ = s.Tasks.Page(ctx, storetest.Ann, tasks.Filter{Limit: 10})
		webhook := webhooks.NewWebhook{ConfigID: "c", Seal: noSecrets}
		_ = s.Tasks.SetWebhook(ctx, storetest.Ann, storetest.Agent, task, webhook, 1)
	}
	const callers, requests = 20, 100
	run := func(cancelEarly bool) {
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := range requests {
					ctx, cancel := context.WithCancel(t.Context())
					if cancelEarly {
						time.AfterFunc(time.Duration((c*requests+i)%50)*100*time.Microsecond, cancel)
					}
					read(ctx)
					cancel()
				}
			})
		}
		wg.Wait()
	}
	run(false) // opens all connections
	before := p.Opened()
	run(true)
	n := p.Opened() - before
	if n > 10 {
		t.Errorf("%d canceled requests opened %d new connections", callers*requests, n)
	}
}

// Renewals need no connection of other pools: a run must not lose its lease because all other work waits.
func TestRenewalsDoNotWaitForOtherWork(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	release, err := db.FillWork(t.Context(), f.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	releaseRequests, err := db.FillRequests(t.Context(), f.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer releaseRequests()
	ctx, cancel := context.WithTimeout(t.Context(), backWithin)
	defer cancel()
	got, err := f.Tasks.Renew(ctx, []*tasks.Lease{l}, storetest.TTL)
	if err != nil || len(got) != 1 {
		t.Errorf("Renew = %v, %v while every other connection is in use", got, err)
	}
}

// A claim without an answer makes the replica unready, even if all other statements are answered.
func TestReadinessFailsWhenNoClaimIsAnswered(t *testing.T) {
	t.Parallel()
	slowtest.Only(t, slowtest.Crash)
	f := storetest.Open(t)
	p, url := storetest.NewProxy(t, f.URL)
	s := f.Replica("r1", func(c *store.Config) { c.URL, c.StatementTimeout = url, time.Minute })
	if err := s.DB.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 1, storetest.TTL, 0); err != nil {
		t.Fatal(err)
	}
	fired := p.Arm(storetest.Fault{Frozen: true, Match: storetest.IsExecute})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Tasks.NewClaimer().Claim(ctx, storetest.Agent, 1, storetest.TTL, 0)
		done <- err
	}()
	storetest.WantFired(t, fired)
	waitUntil(t, "not ready", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return s.DB.Ready(ctx) != nil
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("the claim succeeded without an answer")
	}
	waitUntil(t, "ready", func() bool { return s.DB.Ready(t.Context()) == nil })
}

func noSecrets(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil }
