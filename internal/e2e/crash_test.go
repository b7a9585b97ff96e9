package e2e_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// thirtyChunks takes some seconds, so that a kill hits it in the middle on most machines.
const thirtyChunks = `{"op":"chunk","id":"a","n":30,"bytes":64,"every_ms":120}`

// padded returns the text of a chunk of 64 bytes.
func padded(id string, n int) []string {
	texts := chunkTexts(id, n)
	for i := range texts {
		texts[i] += strings.Repeat("x", 64-len(texts[i]))
	}
	return texts
}

// runner returns the replica that runs a task, once there is one, and the others.
func (c *cluster) runner(task string) (runs *replica, others []*replica) {
	c.t.Helper()
	var worker string
	until(c.t, "a replica runs task "+task, func() bool {
		worker = one[string](c, `SELECT coalesce(lease_worker, '') FROM audit.task WHERE id::text = $1`, task)
		return worker != ""
	})
	for _, r := range c.alive() {
		if r.name == worker {
			runs = r
		} else {
			others = append(others, r)
		}
	}
	if runs == nil {
		c.t.Fatalf("task %s is run by %s, which is not in the cluster", task, worker)
	}
	return runs, others
}

// retries returns the working statuses that announce a further attempt.
func retries(events []client.Event) (list []string) {
	for _, ev := range events {
		if ev.State == a2a.StateWorking && strings.Contains(string(ev.Raw), `"a2ad/attempt"`) {
			list = append(list, string(ev.Raw))
		}
	}
	return list
}

func TestKilledReplicaIsReplacedByAnother(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// Nothing but the end of its sessions tells that a replica was killed.
	env := []string{"A2AD_LEASE_TTL=1h", "A2AD_RESCUE_GRACE=1s"}
	a := c.start("a", env...)
	c.start("b", env...)
	begin, end := newGate(t), newGate(t)
	// However late the reader is, it sees the chunks while the task runs.
	ops := begin.op() + "," + thirtyChunks + "," + end.op()
	once := client.SendParams{Message: play(ops), NoWait: true, IdempotencyKey: "the only one"}
	once.Message.ID = "m-1"
	sent, err := c.client(a, "script").Send(bounded(t), once)
	if err != nil {
		t.Fatal(err)
	}
	task := sent.TaskID
	victim, others := c.runner(task)
	heir := others[0]
	until(t, "two sessions show that the replica is there", func() bool {
		return one[bool](c, `SELECT count(*) = 2 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND a.datname = current_database()
			  AND a.application_name IN ('a2ad-' || $1 || '-watch', 'a2ad-' || $1 || '-listener')`, victim.name)
	})
	reader := c.roamer("script", func(n int) *replica { return []*replica{victim, heir}[min(n, 1)] })
	var killed time.Time
	var took time.Duration
	events := follow(t, reader.Resubscribe(bounded(t), task, client.StreamOptions{}), func(ev client.Event) bool {
		begin.open()
		switch {
		case killed.IsZero() && atChunk("a", 10)(ev):
			victim.kill()
			killed = time.Now()
			end.open()
		case took == 0 && !killed.IsZero() && ev.State == a2a.StateWorking:
			took = time.Since(killed)
		}
		return false
	})
	if killed.IsZero() {
		t.Fatal("the script was over before the kill")
	}
	endsWith(t, events, a2a.StateCompleted)
	if diff := cmp.Diff(padded("a", 30), chunks(events, "a")); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	if got := retries(events); len(got) != 1 {
		t.Errorf("%d working statuses of further attempts, want 1: %v", len(got), got)
	}
	logTook(t, "the takeover", took)
	if diff := cmp.Diff([]string{victim.name + " expired", heir.name + " completed"}, c.attempts(task)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if n := c.checkScript(heir, "script", task, 5, "["+ops+"]"); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
	again, err := c.client(heir, "script").Send(bounded(t), once)
	if err != nil || again.TaskID != task {
		t.Errorf("the same Idempotency-Key returns task %s, %v, want %s", again.TaskID, err, task)
	}
}

func TestKilledReplicaContinuesAfterRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var at atomic.Pointer[replica]
	at.Store(c.start("a"))
	reader := c.roamer("script", func(int) *replica { return at.Load() })
	killed := false
	g := newGate(t)
	ops := thirtyChunks + "," + g.op()
	stream := reader.Stream(bounded(t), client.SendParams{Message: play(ops)}, client.StreamOptions{})
	events := follow(t, stream, func(ev client.Event) bool {
		if !killed && atChunk("a", 10)(ev) {
			killed = true
			at.Load().kill()
			g.open()
			at.Store(c.restart(at.Load()))
		}
		return false
	})
	if !killed {
		t.Fatal("the script was over before the kill")
	}
	endsWith(t, events, a2a.StateCompleted)
	if diff := cmp.Diff(padded("a", 30), chunks(events, "a")); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	task := events[0].TaskID
	if diff := cmp.Diff([]string{"a expired", "a completed"}, c.attempts(task)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if n := c.checkScript(at.Load(), "script", task, 5, "["+ops+"]"); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
	if got := retries(events); len(got) != 1 {
		t.Errorf("%d working statuses of further attempts, want 1: %v", len(got), got)
	}
}

// The replica that runs a task is frozen for longer than its lease, like a long pause of its machine.
func TestFrozenReplicaWritesNothingAfterItsLease(t *testing.T) {
	t.Parallel()
	t.Run("beside its successor", func(t *testing.T) {
		t.Parallel()
		thaw := func(ev client.Event) bool { return len(retries([]client.Event{ev})) > 0 }
		zombieWakes(t, thaw)
	})
	t.Run("after the end", func(t *testing.T) {
		t.Parallel()
		thaw := func(ev client.Event) bool { return ev.Final }
		zombieWakes(t, thaw)
	})
}

// zombieWakes resumes the frozen replica at the first event of its successor that thaw accepts.
func zombieWakes(t *testing.T, thaw func(client.Event) bool) {
	t.Helper()
	c := newCluster(t)
	a := c.start("a")
	c.start("b")
	begin, end := newGate(t), newGate(t)
	ops := begin.op() + "," + thirtyChunks + "," + end.op()
	task := submit(t, c.client(a, "script"), play(ops))
	zombie, others := c.runner(task)
	heir := others[0]
	zombie.log.expectErrors() // writes that were in flight when it froze

	type outcome struct {
		events []client.Event
		err    error
	}
	onZombie := make(chan outcome, 1)
	ctx := bounded(t)
	watcher := c.client(zombie, "script")
	go func() {
		events, err := collect(watcher.Resubscribe(ctx, task, client.StreamOptions{}), nil)
		onZombie <- outcome{events, err}
	}()

	frozen, thawed := false, false
	events := follow(t, c.client(heir, "script").Resubscribe(ctx, task, client.StreamOptions{}),
		func(ev client.Event) bool {
			begin.open()
			switch {
			case !frozen && atChunk("a", 5)(ev):
				frozen = true
				zombie.freeze()
				end.open()
			case frozen && !thawed && thaw(ev):
				thawed = true
				zombie.thaw()
			}
			return false
		})
	if !frozen || !thawed {
		t.Fatalf("frozen %t, thawed %t: the fault did not happen", frozen, thawed)
	}
	endsWith(t, events, a2a.StateCompleted)
	if diff := cmp.Diff(padded("a", 30), chunks(events, "a")); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{zombie.name + " expired", heir.name + " completed"}, c.attempts(task)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	line := zombie.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task })
	if line.str("outcome") != "lost" {
		t.Errorf("the zombie records %v, want the outcome lost", line)
	}
	seen := <-onZombie
	if seen.err != nil {
		t.Errorf("the stream on the zombie: %v", seen.err)
	}
	endsWith(t, seen.events, a2a.StateCompleted)
	if n := c.checkScript(zombie, "script", task, 5, "["+ops+"]"); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}

	heir.stop()
	got, err := c.client(zombie, "echo").Send(ctx, client.SendParams{Message: say("alive?")})
	if err != nil || got.State != a2a.StateCompleted {
		t.Fatalf("the zombie answers %s, %v, want it to work again", got.State, err)
	}
	if diff := cmp.Diff([]string{zombie.name + " completed"}, c.attempts(got.TaskID)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

// The effects of an agent are counted over a crash. A recorded effect is not repeated; an unrecorded one happens once
// in each attempt.
func TestRecordedEffectsAreNotRepeated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	done, held := newGate(t), newGate(t)
	done.open()
	task := submit(t, c.client(a, "script"),
		play(done.op()+`,{"op":"chunk","id":"a","n":3},`+held.op()+`,{"op":"chunk","id":"b","n":3}`))
	held.await(0)
	until(t, "the chunks are in the log",
		func() bool { return one[int](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task) == 5 })
	a.kill()
	b := c.start("b")
	held.await(1)
	held.open()
	events := follow(t, c.client(b, "script").Resubscribe(bounded(t), task, client.StreamOptions{}), nil)
	endsWith(t, events, a2a.StateCompleted)
	if got := done.seen(); len(got) != 1 || got[0].Step != 0 || got[0].Task != task {
		t.Errorf("the recorded effect happened as %+v, want once", got)
	}
	got := held.seen()
	if len(got) != 2 || got[0].Epoch >= got[1].Epoch || got[0].Attempt != 1 || got[1].Attempt != 2 ||
		got[0].Step != 2 || got[1].Step != 2 {
		t.Errorf("the interrupted effect happened as %+v, want once by each of two attempts", got)
	}
}
