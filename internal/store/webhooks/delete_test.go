package webhooks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/webhooks"
)

func TestDeleteWaitsForTheRequestInFlight(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("default")
	d := f.DueWebhook()
	done := make(chan error, 1)
	go func() { done <- f.Webhooks.Delete(t.Context(), storetest.Ann, task, "default") }()
	for len(webhooksOf(f, task)) > 0 { // clients no longer see it
		f.TakeWakes()
	}
	f.ClaimTask(task)
	select {
	case err := <-done:
		t.Fatalf("the delete did not wait: %v", err)
	default:
	}
	f.Delivered(d, false)
	if err := <-done; err != nil {
		t.Errorf("delete: %v", err)
	}
	storetest.Same(t, "progress", storetest.Progress{State: "active", From: 0, Cursor: 1, Head: 1},
		f.Progress(task, "default"))
	storetest.Same(t, "due", 0, len(f.ClaimWebhooks(10)))
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "default"); err != nil {
		t.Errorf("delete again: %v", err)
	}
	// Its id may be used again. The new webhook begins at the present end of the log.
	f.SetWebhook(task, "default")
	storetest.Same(t, "the new webhook", storetest.Progress{State: "active", From: 2, Cursor: 2, Head: 2},
		f.Progress(task, "default"))
	storetest.Same(t, "ledger", []string{"1 delivered 1 "}, deliveries(f, task, "default"))
}

// deleteWaits deletes the webhook of a task for a client that waits for 100 ms, and reports whether that was too short.
func deleteWaits(f *storetest.Fixture, task a2a.ID) bool {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(f.T.Context(), 100*time.Millisecond)
	defer cancel()
	err := f.Webhooks.Delete(ctx, storetest.Ann, task, "default")
	return errors.Is(err, context.DeadlineExceeded)
}

// A client that gave up its delete repeats it while the request is still in flight.
func TestRepeatedDeleteWaitsToo(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("default")
	d := f.DueWebhook()
	storetest.Same(t, "the first delete timed out", true, deleteWaits(f, task))
	storetest.Same(t, "the second delete timed out", true, deleteWaits(f, task))
	if err := f.Webhooks.Delete(t.Context(), db.Caller{Tenant: "acme", Owner: "bob"}, task, "default"); err != nil {
		t.Errorf("delete by another caller: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Webhooks.Delete(t.Context(), storetest.Ann, task, "default") }()
	f.Exec("UPDATE a2a.push_configs SET lease_until = clock_timestamp()") // its deliverer died
	if err := <-done; err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := f.Webhooks.Release(t.Context(), d); err != nil {
		t.Error(err)
	}
}

// Deleted webhooks are kept for a while. Neither a delete nor a sweep that finds nothing may read them all.
func TestDeletesAndSweepsDoNotReadDeletedWebhooks(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`
		INSERT INTO a2a.push_configs (
		  id, task_id, config_id, tenant, owner, agent, url, origin, schemes,
		  wire_version, from_seq, cursor_seq, head_seq, deleted_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'acme', 'ann', 'words', 'u', 'x', '{}',
		  3, 0, 1, 1, clock_timestamp()
		FROM generate_series(1, 2000)`)
	f.Exec(`
		INSERT INTO a2a.push_attempts (push_id, task_id, from_seq, seq, outcome, attempt, trigger, started_at)
		SELECT gen_random_uuid(), gen_random_uuid(), 0, 1, CASE n % 2 WHEN 0 THEN 'failed' ELSE 'delivered' END,
		  1, 'auto', clock_timestamp()
		FROM generate_series(1, 4000) n`)
	task := f.NewTask()
	f.SetWebhook(task, "default")
	s := f.Replica("r2")
	if err := s.Webhooks.Delete(t.Context(), storetest.Ann, task, "default"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Webhooks.Sweep(t.Context(), webhooks.SweepPolicy{
		Keep: time.Hour, Forget: time.Hour, Batch: 100,
	}); err != nil {
		t.Fatal(err)
	}
	s.Close() // so that its backends report what they read
	f.WaitDisconnected("a2ad-r2-worker")
	f.WaitDisconnected("a2ad-r2-api")
	n := storetest.Value[int64](f,
		`SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname LIKE 'push%')::bigint
		+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname LIKE 'push%')::bigint`)
	if n < 1 || n > 50 {
		t.Errorf("%d rows and entries were read, want a few", n)
	}
}

func TestSweepRemovesOnlyOldRows(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTaskWithWebhook("kept")
	f.SetWebhook(task, "deleted")
	f.Failed(f.DueWebhook(),
		webhooks.Failure{
			Breaker: &webhooks.Breaker{
				Fails: 100, FirstOpen: time.Second, MaxOpen: time.Second, DisableAfter: 240 * time.Hour,
			},
		})
	if err := f.Webhooks.RecordDelivery(t.Context(),
		f.DueWebhook(), &webhooks.Try{Status: 200, Answer: []byte("thank you")},
		false); err != nil {
		t.Fatal(err)
	}
	f.ClaimTask(task)
	d := f.ClaimWebhooks(10)
	for i := range d {
		f.Failed(&d[i], webhooks.Failure{})
	}
	if err := f.Webhooks.Delete(t.Context(), storetest.Ann, task, "deleted"); err != nil {
		t.Fatal(err)
	}
	sweep := func(keep, forget time.Duration, batch int) bool {
		t.Helper()
		more, err := f.Webhooks.Sweep(t.Context(), webhooks.SweepPolicy{Keep: keep, Forget: forget, Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		return more
	}
	count := func() []int64 {
		t.Helper()
		return []int64{
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_configs"),
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE outcome = 'failed'"),
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE outcome = 'delivered'"),
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_attempts WHERE answer IS NOT NULL"),
			storetest.Value[int64](f, "SELECT count(*) FROM a2a.push_destinations"),
		}
	}
	f.Exec("UPDATE a2a.push_destinations SET fails = 3, first_failure_at = clock_timestamp() - interval '1 day'")
	f.Exec("UPDATE a2a.push_attempts SET started_at = started_at - interval '1 day'")
	f.Exec("UPDATE a2a.push_configs SET deleted_at = deleted_at - interval '1 day'")
	before := count()
	storetest.Same(t, "rows", []int64{2, 3, 1, 1, 1}, before)
	sweep(48*time.Hour, 48*time.Hour, 10)
	storetest.Same(t, "when nothing is old", before, count())
	sweep(0, 48*time.Hour, 10)
	storetest.Same(t, "when everything is kept", before, count())

	f.Exec(`UPDATE a2a.push_configs SET lease_until = clock_timestamp() + interval '1 hour'
		WHERE deleted_at IS NOT NULL`)
	storetest.Same(t, "more than a batch", true, sweep(time.Hour, 48*time.Hour, 2))
	storetest.Same(t, "more than two batches", true, sweep(time.Hour, 48*time.Hour, 2))
	storetest.Same(t, "the rest", false, sweep(time.Hour, 48*time.Hour, 2))
	storetest.Same(t, "without leased webhooks", []int64{2, 0, 1, 0, 1}, count())
	f.Exec("UPDATE a2a.push_configs SET lease_until = NULL")
	sweep(time.Hour, time.Hour, 10)
	storetest.Same(t, "at last", []int64{1, 0, 1, 0, 0}, count())
	storetest.Same(t, "the outcome of a delivered event", "1 delivered 1 ", deliveries(f, task, "kept")[0])
}

// Destinations that work need no breaker. Only an operator enables a disabled one.
func TestSweepKeepsDisabledDestinations(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`INSERT INTO a2a.push_destinations (tenant, origin, fails, first_failure_at, open_until, disabled_at) VALUES
		('acme', 'works', 0, NULL, NULL, NULL),
		('acme', 'failing', 3, clock_timestamp() - interval '1 hour', NULL, NULL),
		('acme', 'open', 5, clock_timestamp() - interval '9 days', clock_timestamp() + interval '1 minute', NULL),
		('acme', 'forgotten', 5, clock_timestamp() - interval '9 days', clock_timestamp() - interval '8 days', NULL),
		('acme', 'disabled', 99, clock_timestamp() - interval '90 days', NULL, clock_timestamp() - interval '80 days')`)
	if _, err := f.Webhooks.Sweep(t.Context(), webhooks.SweepPolicy{Forget: 120 * time.Hour, Batch: 10}); err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "left", []string{"disabled", "failing", "open"},
		storetest.Value[[]string](f, "SELECT array_agg(origin ORDER BY origin) FROM a2a.push_destinations"))
}

// A task without webhooks costs one boolean in a row that the store reads anyway. From its submission to its end, the
// store reads no table of webhooks.
func TestTaskWithoutWebhooksTouchesNoWebhookTable(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	s := f.Replica("r2")
	runTask := func(push *webhooks.NewWebhook) {
		t.Helper()
		in := storetest.Submission("hello")
		in.Push = push
		out, err := s.Tasks.Submit(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		leases, err := s.Tasks.NewClaimer().Claim(t.Context(), storetest.Agent, 1, storetest.TTL, time.Hour)
		if err != nil || len(leases) != 1 || leases[0].TaskID != out.Task {
			t.Fatalf("claimed %v, %v", leases, err)
		}
		for _, e := range []a2a.Event{
			storetest.Chunk("a", "x"), storetest.Status(a2a.StateWorking), storetest.Status(a2a.StateCompleted),
		} {
			if _, err := s.Tasks.Append(t.Context(), &leases[0], storetest.Batch(e)); err != nil {
				t.Fatal(err)
			}
		}
	}
	touched := func() int64 {
		t.Helper()
		s.Close() // so that its backends report what they did
		f.WaitDisconnected("a2ad-r2-worker")
		f.WaitDisconnected("a2ad-r2-claim")
		return storetest.Value[int64](f, `
			SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd), 0)::bigint
			FROM pg_stat_user_tables WHERE schemaname = 'a2a' AND relname LIKE 'push%'`)
	}
	for range 20 {
		runTask(nil)
	}
	if n := touched(); n != 0 {
		t.Errorf("tables of webhooks were touched %d times", n)
	}
	const events = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'task_events'"
	if n := storetest.Value[int64](f, events); n != 20*5 {
		t.Errorf("%d events are in the statistics, want %d", n, 20*5)
	}
	s = f.Replica("r2")
	p := storetest.NewWebhook("default")
	runTask(&p)
	if touched() == 0 {
		t.Error("a task with a webhook touched no table of webhooks: the statistics are wrong")
	}
}
