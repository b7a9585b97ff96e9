package tasks_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

// A client that goes away does not take the connection of its statement along: the next request would have to open another.
func TestRequestsThatAreAbortedKeepTheirConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, url := newProxy(t, f.url)
	s := f.replica("r1", func(c *store.Config) { c.URL = url })
	task := f.task()
	read := func(ctx context.Context) {
		s.Tasks.Snapshot(ctx, ann, task, tasks.Want{Artifacts: true})                                     //nolint:errcheck // it may be aborted
		s.Tasks.EventsAfter(ctx, task, 0, 10)                                                             //nolint:errcheck // as above
		s.Tasks.Page(ctx, ann, tasks.Filter{Limit: 10})                                                   //nolint:errcheck // as above
		s.Tasks.SetWebhook(ctx, ann, agent, task, webhooks.NewWebhook{ConfigID: "c", Seal: noSecrets}, 1) //nolint:errcheck // as above
	}
	const callers, requests = 20, 100
	run := func(abort bool) {
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				for i := range requests {
					ctx, cancel := context.WithCancel(f.ctx)
					if abort {
						time.AfterFunc(time.Duration((c*requests+i)%50)*100*time.Microsecond, cancel)
					}
					read(ctx)
					cancel()
				}
			})
		}
		wg.Wait()
	}
	run(false) // all connections are there
	before := p.made()
	run(true)
	n := p.made() - before
	t.Logf("%d aborted requests opened %d new connections", callers*requests, n)
	if n > 10 {
		t.Errorf("%d aborted requests opened %d new connections", callers*requests, n)
	}
}

// Renewals go on while everything else waits for a lock or the disk: runs must not lose their leases for the others' sake.
func TestRenewalsDoNotWaitForOtherWork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.running()
	release, err := holdPool(f.ctx, f.Store, "worker")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if free, err := holdPool(f.ctx, f.Store, "api"); err != nil {
		t.Fatal(err)
	} else {
		defer free()
	}
	ctx, cancel := context.WithTimeout(f.ctx, backWithin)
	defer cancel()
	got, err := f.Tasks.Renew(ctx, []*tasks.Lease{l}, ttl)
	if err != nil || len(got) != 1 {
		t.Errorf("Renew = %v, %v while every other connection is in use", got, err)
	}
}

// A claim that gets no answer makes the replica unready, though all other statements get theirs.
func TestReadinessFailsWhenNoClaimGetsAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, url := newProxy(t, f.url)
	s := f.replica("r1", func(c *store.Config) { c.URL, c.StatementTimeout = url, time.Minute })
	if err := s.DB.Ready(f.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Tasks.NewClaimer().Claim(f.ctx, agent, 1, ttl, 0); err != nil {
		t.Fatal(err)
	}
	fired := p.arm(fault{frozen: true, match: execute})
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := s.Tasks.NewClaimer().Claim(ctx, agent, 1, ttl, 0)
		done <- err
	}()
	wantFired(t, fired)
	awaits(t, "not ready", func() bool {
		ctx, cancel := context.WithTimeout(f.ctx, time.Second)
		defer cancel()
		return s.DB.Ready(ctx) != nil
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("the claim has gone through")
	}
	awaits(t, "ready", func() bool { return s.DB.Ready(f.ctx) == nil })
}

func noSecrets(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil }
