//go:build linux && patroni

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// TestPatroni pauses the leader of three Patroni nodes, and cuts it off, while clients send. It prints how long each
// part of the service was unavailable. It fails if a replica reports ready while nothing works, or if
// anything acknowledged is lost. Run it with make patroni.
func TestPatroni(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	p := newPatroniNodes(t)
	p.awaitWhole()
	through := p.proxy()
	for _, tt := range []struct {
		name  string
		where string
		fault func(*patroniNodes, int) func()
	}{
		{"leader paused, hosts in the URL", "", (*patroniNodes).pause},
		{"leader cut off, hosts in the URL", "", (*patroniNodes).cut},
		{"leader paused, behind HAProxy", through, (*patroniNodes).pause},
		{"leader cut off, behind HAProxy", through, (*patroniNodes).cut},
	} {
		if !t.Run(tt.name, func(t *testing.T) { patroniCase(t, p, tt.where, tt.fault) }) {
			break // the nodes may not be whole again
		}
	}
}

// patroniRun is what was observed in one case.
type patroniRun struct {
	*cluster
	mu    sync.Mutex
	acked map[string]time.Time   // guarded by mu; task to the time of its answer
	sends []sendTry              // guarded by mu
	ready map[string][]readiness // guarded by mu; by replica

	answered change // of acked
}

type sendTry struct {
	begin, end time.Time
	ok         bool
}

func patroniURL(where, db string) string {
	if where == "" {
		return fmt.Sprintf("postgres://postgres:x@%s,%s,%s/%s?target_session_attrs=read-write&sslmode=disable",
			nodeAddr(1), nodeAddr(2), nodeAddr(3), db)
	}
	return fmt.Sprintf("postgres://postgres:x@%s/%s?sslmode=disable", where, db)
}

func patroniCase(t *testing.T, p *patroniNodes, where string, fault func(*patroniNodes, int) func()) {
	leader := p.awaitWhole()
	url := newPatroniDatabase(t, p, where)
	c := &patroniRun{cluster: clusterOn(t, &storetest.DB{URL: url}), acked: make(map[string]time.Time),
		ready: make(map[string][]readiness)}
	c.cutOK = true
	keys := "A2AD_KEYS=" + seal.Generate("k1")
	worker := c.add(spawnBinary(t, os.Getenv("A2AD_TEST_PATRONI_BIN"), "worker", append(c.defaults("worker"), keys)))
	front := c.add(spawnBinary(t, os.Getenv("A2AD_TEST_PATRONI_BIN"), "front",
		append(c.defaults("front"), keys, "A2AD_WORKERS=0")))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range 4 {
		wg.Go(func() { c.sendOn(ctx, front, i) })
	}
	for _, r := range []*replica{front, worker} {
		wg.Go(func() { c.askReady(ctx, r) })
	}
	untilChange(t, "sends are answered", c.answered.next, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.acked) > 40
	})

	worker.log.expectErrors()
	front.log.expectErrors()
	fell := time.Now()
	heal := fault(p, leader)
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	var led time.Time
	untilFor(t, 2*patience, "there is a new leader", func() bool { led = time.Now(); return p.leader(leader) != 0 })
	c.db.Reset()
	untilFor(t, 2*patience, "tasks that were sent after that are claimed", func() bool {
		return c.firstClaimAfter(led) && c.readyAfter(led, front) && c.readyAfter(led, worker)
	})
	c.report(t, fell, led, front, worker)
	heal()
	healed = true
	stop()
	wg.Wait()
	p.awaitWhole()
	c.db.Reset()
	c.awaitRest()
	for task := range c.acked {
		if n := one[int](c.cluster, `SELECT count(*) FROM audit.task WHERE id::text = $1 AND state = 'COMPLETED'`,
			task); n != 1 {
			t.Errorf("task %s was acknowledged and does not exist", task)
		}
	}
}

func newPatroniDatabase(t *testing.T, p *patroniNodes, where string) (url string) {
	t.Helper()
	name := fmt.Sprintf("a2ad_%d", time.Now().UnixNano())
	untilFor(t, patience, "a database can be created", func() bool {
		conn, err := pgx.Connect(bounded(t), patroniURL(where, "postgres"))
		if err != nil {
			return false
		}
		defer conn.Close(bounded(t))
		_, err = conn.Exec(bounded(t), "CREATE DATABASE "+name)
		return err == nil
	})
	url = patroniURL(where, name)
	untilFor(t, patience, "the database is on all nodes, and is migrated",
		func() bool { return operate.MigrateUp(bounded(t), url) == nil })
	return url
}

// sendOn sends one message after the other. Each creates a task, which the front replica accepts and the worker has
// to claim.
func (c *patroniRun) sendOn(ctx context.Context, to *replica, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		cl := &client.Client{URL: to.base + "/agents/echo", HTTP: &http.Client{Transport: c.http}, Retry: c.retry,
			Tries: -1}
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		try := sendTry{begin: time.Now()}
		got, err := cl.Send(one, client.SendParams{Message: say("hello"), NoWait: true,
			IdempotencyKey: fmt.Sprintf("%d %d", i, n)})
		try.end, try.ok = time.Now(), err == nil
		cancel()
		c.mu.Lock()
		c.sends = append(c.sends, try)
		if err == nil {
			c.acked[got.TaskID] = try.end
			c.answered.happened()
		}
		c.mu.Unlock()
		pause(ctx, 100*time.Millisecond)
	}
}

func (c *patroniRun) askReady(ctx context.Context, r *replica) {
	for ctx.Err() == nil {
		at := time.Now()
		status, text := r.health("/readyz")
		c.mu.Lock()
		c.ready[r.name] = append(c.ready[r.name], readiness{at, status == http.StatusOK, text})
		c.mu.Unlock()
		pause(ctx, 200*time.Millisecond)
	}
}

func (c *patroniRun) firstClaimAfter(t time.Time) bool {
	ok, err := query[bool](c.cluster,
		`SELECT EXISTS (SELECT FROM audit.attempt a JOIN audit.task k ON k.id = a.task_id WHERE k.created_at > $1)`, t)
	return err == nil && ok
}

func (c *patroniRun) readyAfter(t time.Time, r *replica) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.ready[r.name]
	return len(list) > 0 && list[len(list)-1].ready && list[len(list)-1].at.After(t)
}

// report prints the figures. The nodes use this machine's clock.
func (c *patroniRun) report(t *testing.T, fell, led time.Time, list ...*replica) {
	t.Helper()
	first := one[time.Time](c.cluster, `SELECT min(claimed_at) FROM audit.attempt WHERE claimed_at > $1`,
		fell.Add(time.Second))
	late := one[float64](c.cluster,
		`SELECT max(extract(epoch FROM a.claimed_at - k.created_at))::float8 FROM audit.attempt a JOIN audit.task k
			ON k.id = a.task_id WHERE a.token = 1`)
	c.mu.Lock()
	defer c.mu.Unlock()
	sort.Slice(c.sends, func(i, j int) bool { return c.sends[i].end.Before(c.sends[j].end) })
	var answered time.Time
	var longest time.Duration
	for _, s := range c.sends {
		if s.ok && s.begin.After(fell) && answered.IsZero() && s.end.After(fell.Add(time.Second)) {
			answered = s.end
		}
		if !s.ok {
			longest = max(longest, s.end.Sub(s.begin))
		}
	}
	since := func(at time.Time) string { return at.Sub(fell).Round(100 * time.Millisecond).String() }
	t.Logf("new leader after %s; sends answered after %s; first claim after %s; "+
		"longest wait of an accepted task for its claim %.1fs; slowest refusal %s",
		since(led), since(answered), since(first), late, longest.Round(100*time.Millisecond))
	for what, at := range map[string]time.Time{"sends": answered, "claims": first} {
		logTook(t, what+" after the new leader", max(at.Sub(led), 0))
	}
	for _, r := range list {
		var no, yes time.Time
		for _, s := range c.ready[r.name] {
			switch {
			case s.at.Before(fell):
			case !s.ready:
				if no.IsZero() {
					no = s.at
					t.Logf("%s says: %s", r.name, oneWord(s.text))
				}
				yes = time.Time{}
			case yes.IsZero() && !no.IsZero():
				yes = s.at
			}
		}
		if no.IsZero() {
			t.Errorf("%s reported ready while nothing worked", r.name)
		}
		t.Logf("%s: not ready after %s, ready again after %s", r.name, since(no), since(yes))
	}
}
