package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

// leaseTTL is short, so that tests need not wait long for the end of a lease. A run loses its lease after two thirds of
// it without a renewal, which is more than a busy machine needs.
const leaseTTL = 10 * time.Second

// timings let a replica notice in seconds what takes minutes in production. Those limits that end what works are long:
// a busy machine must not reach them.
var timings = []string{
	"A2AD_LEASE_TTL=" + leaseTTL.String(), "A2AD_POLL_INTERVAL=500ms", "A2AD_WAKE_INTERVAL=5ms", "A2AD_SSE_PING=1s",
	"A2AD_LISTENER_PING=2s",
	"A2AD_IDLE_TX_TIMEOUT=60s", "A2AD_LOCK_TIMEOUT=60s", "A2AD_STATEMENT_TIMEOUT=60s", "A2AD_POOL_TIMEOUT=60s",
	"A2AD_RESCUE_INTERVAL=250ms",
	"A2AD_RETRY_BACKOFF_BASE=50ms", "A2AD_RETRY_BACKOFF_MAX=500ms", "A2AD_SSE_RETRY=50ms", "A2AD_DRAIN_TIMEOUT=6s",
	"A2AD_DB_POOL=8",
	"A2AD_BLOCKING_MAX_WAIT=10m",
	"A2AD_READ_HEADER_TIMEOUT=5m", "A2AD_READ_TIMEOUT=5m", "A2AD_WRITE_TIMEOUT=5m", "A2AD_SSE_WRITE_TIMEOUT=5m",
}

// chaosTTL is the lease of the replicas in shortTimings.
const chaosTTL = 3 * time.Second

// shortTimings let a replica notice a frozen backend, a silent connection and a frozen replica in seconds. They are for
// tests whose verdict does not depend on whether a limit ends what works.
var shortTimings = []string{
	"A2AD_LEASE_TTL=" + chaosTTL.String(), "A2AD_IDLE_TX_TIMEOUT=2s", "A2AD_LOCK_TIMEOUT=2s",
	"A2AD_STATEMENT_TIMEOUT=5s", "A2AD_POOL_TIMEOUT=2s",
}

// agentFiles are the agents of every replica.
var agentFiles = map[string]string{
	"echo.yaml": "name: echo\ndescription: Says what it was told.\ndefault: true\nskills: [{id: echo, name: " +
		"Echo, description: Echoes, tags: [test]}]\nexecutor: {echo: {}}\n",
	"script.yaml":   scriptAgent("script", ""),
	"busy.yaml":     scriptAgent("busy", "on_busy: reject\n"),
	"once.yaml":     scriptAgent("once", "dedupe: message_id\n"),
	"brief.yaml":    scriptAgent("brief", "limits: {max_attempts: 3, deadline: 2s, idle_timeout: 1h}\n"),
	"quiet.yaml":    scriptAgent("quiet", "limits: {max_attempts: 2, idle_timeout: 3s}\n"),
	"single.yaml":   scriptAgent("single", "limits: {concurrency: 1, max_attempts: 2}\n"),
	"asks.yaml":     scriptAgent("asks", "on_lost_lease: input-required\n"),
	"hookless.yaml": scriptAgent("hookless", "push: off\n"),
	"traced.yaml": "name: traced\ndescription: Says where it stands in a trace.\nskills: [{id: say, name: Say, " +
		"description: Says, tags: [test]}]\nexecutor: {exec: {command: [/bin/sh, -c, 'echo \"<$TRACEPARENT>\"'], " +
		"output: text}}\n",
}

func scriptAgent(name, more string) string {
	return fmt.Sprintf("name: %s\ndescription: Plays scripts.\nskills: [{id: play, name: Play, description: Plays, "+
		"tags: [test]}]\nexecutor: {script: {}}\n%s", name, more)
}

// cluster is a set of replicas on one database, and what their clients saw.
type cluster struct {
	t        *testing.T
	url      string // of the database
	db       *pgxpool.Pool
	agents   string
	replicas []*replica
	log      *check.Log
	http     *http.Transport
	readers  atomic.Int64
	retry    backoff.Policy // of clients
	cutOK    bool           // streams may end without a last event
	vast     bool           // the log is too large to be checked in time
	key      string         // API key that reads the tasks again at the end; empty: none
	mixed    bool           // the tasks have several owners, and no key reads all of them
}

// newCluster returns a cluster without replicas on a new database. At the end of the test it must be at rest: then
// the invariants are checked, and the remaining replicas are stopped.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return clusterOn(t, storetest.New(t))
}

func clusterOn(t *testing.T, db *storetest.DB) *cluster {
	t.Helper()
	c := &cluster{
		t: t, url: db.URL, db: db.Pool(t), agents: t.TempDir(), log: &check.Log{},
		http:  &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		retry: backoff.Policy{Base: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	}
	for name, text := range agentFiles {
		c.agent(strings.TrimSuffix(name, ".yaml"), text)
	}
	t.Cleanup(c.finish)
	return c
}

// agent writes an agent file, for replicas that start or reload later.
func (c *cluster) agent(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.agents, name+".yaml"), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// start adds a replica. env overrides the settings for tests.
func (c *cluster) start(name string, env ...string) *replica {
	c.t.Helper()
	return c.add(spawn(c.t, name, c.env(name, env...)))
}

// startBinary is start with another binary.
func (c *cluster) startBinary(binary, name string, env ...string) *replica {
	c.t.Helper()
	return c.add(spawnBinary(c.t, binary, name, c.env(name, env...)))
}

func (c *cluster) add(r *replica) *replica {
	c.t.Helper()
	c.replicas = append(c.replicas, r)
	r.awaitReady()
	return r
}

func (c *cluster) env(name string, env ...string) []string {
	all := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"A2AD_DATABASE_URL=" + c.url, "A2AD_AGENTS=" + c.agents, "A2AD_AUTH=none", "A2AD_LISTEN=127.0.0.1:0",
		"A2AD_ADMIN_LISTEN=off",
		// scripts call gates on the loopback address
		"A2AD_REPLICA=" + name, "A2AD_MAX_STREAMS_PER_OWNER=2000", "A2AD_PUSH_ALLOW_CIDRS=127.0.0.0/8",
	}
	return append(append(all, timings...), env...)
}

// restart starts an ended replica again, with its name and settings.
func (c *cluster) restart(old *replica) *replica {
	c.t.Helper()
	return c.add(spawnBinary(c.t, old.binary, old.name, old.env))
}

// alive returns the running replicas.
func (c *cluster) alive() []*replica {
	var list []*replica
	for _, r := range c.replicas {
		if r.running() {
			list = append(list, r)
		}
	}
	return list
}

// client returns a client of an agent on one replica. The log records it as one reader.
func (c *cluster) client(r *replica, agent string) *client.Client {
	return c.roamer(agent, func(int) *replica { return r })
}

// roamer returns a client that sends its n-th request, from 0, to the replica that pick returns.
func (c *cluster) roamer(agent string, pick func(n int) *replica) *client.Client {
	rec := &recorder{log: c.log, next: c.http, pick: pick, name: fmt.Sprintf("reader %d", c.readers.Add(1))}
	return &client.Client{URL: "http://replica/agents/" + agent, HTTP: &http.Client{Transport: rec}, Retry: c.retry}
}

// one reads one value from the database.
func one[T any](c *cluster, sql string, args ...any) T {
	c.t.Helper()
	v, err := query[T](c, sql, args...)
	if err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func query[T any](c *cluster, sql string, args ...any) (v T, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = c.db.QueryRow(ctx, sql, args...).Scan(&v)
	return v, err
}

// column reads one column of several rows.
func column[T any](c *cluster, sql string, args ...any) []T {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows, err := c.db.Query(ctx, sql, args...)
	if err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	return list
}

// attempts returns worker and outcome of each attempt at a task, in order.
func (c *cluster) attempts(task string) []string {
	c.t.Helper()
	return column[string](c,
		`SELECT worker || ' ' || coalesce(outcome, 'runs') FROM audit.attempt WHERE task_id::text = $1 ORDER BY token`,
		task)
}

// state returns the state of a task in the database.
func (c *cluster) state(task string) string {
	c.t.Helper()
	return one[string](c, `SELECT state FROM audit.task WHERE id::text = $1`, task)
}

// awaitState waits until a task has a state in the database.
func (c *cluster) awaitState(task, state string) {
	c.t.Helper()
	until(c.t, "task "+task+" is "+state, func() bool { return c.state(task) == state })
}

// awaitRest waits until no work is left.
func (c *cluster) awaitRest() {
	c.t.Helper()
	until(c.t, "all tasks have ended or wait for their clients", func() bool {
		n, err := query[int](c, `SELECT count(*) FROM audit.task WHERE state IN ('SUBMITTED', 'WORKING')`)
		return err == nil && n == 0
	})
}

// sampled is the number of tasks whose events are read again at the end.
const sampled = 30

// finish checks the invariants on everything that the test has left.
func (c *cluster) finish() {
	defer c.http.CloseIdleConnections()
	defer func() {
		for _, r := range c.replicas {
			r.end()
		}
	}()
	if c.t.Failed() {
		return
	}
	c.awaitRest()
	if !c.vast {
		if !c.mixed {
			c.readAgain()
		}
		c.judge()
	}
	c.checkSchema()
	for _, r := range c.alive() {
		r.stop()
	}
	c.noDeadlocks()
}

// noDeadlocks checks that PostgreSQL resolved no deadlock. Backends report their statistics when they end; those that
// a pooler keeps use another login.
func (c *cluster) noDeadlocks() {
	until(c.t, "the connections of the servers are closed", func() bool {
		n, err := query[int](c,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND application_name LIKE 'a2ad-%' AND usename = current_user`)
		return err == nil && n == 0
	})
	if n, err := query[int](c,
		`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); err != nil ||
		n != 0 {
		c.t.Errorf("%d deadlocks, %v", n, err)
	}
}

// judge runs the checkers of package check.
func (c *cluster) judge() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := check.Database(ctx, c.db, leaseTTL)
	if err != nil {
		c.t.Errorf("check the database: %v", err)
	}
	streams := c.log.Streams()
	shown, err := check.Shown(ctx, c.db, streams)
	if err != nil {
		c.t.Errorf("check what was shown: %v", err)
	}
	found = slices.Concat(found, shown, check.Clients(streams, c.log.Answers()))
	for i, v := range found {
		if c.cutOK && v.Name == check.Ending && strings.Contains(v.Detail, "without a last event") {
			continue
		}
		if i > 20 {
			c.t.Errorf("and %d more", len(found)-i)
			break
		}
		c.t.Errorf("%s", v)
	}
}

// patient returns the replicas from which readAgain reads. A replica that cuts slow readers off soon is none of them,
// because on a busy machine the test is slow. If there is no other, a new one is started, which has the usual settings.
func (c *cluster) patient() []*replica {
	running := c.alive()
	list := slices.DeleteFunc(slices.Clone(running), func(r *replica) bool {
		return slices.ContainsFunc(r.env, func(v string) bool {
			return strings.Contains(v, "WRITE_TIMEOUT=") && !slices.Contains(timings, v)
		})
	})
	switch {
	case len(list) > 0 || len(running) == 0:
		return list
	case c.key != "": // the usual settings know no keys
		return running
	}
	return append(list, c.start("reader"))
}

// readAgain reads tasks and their whole logs from each replica, so that the checkers can compare what clients saw
// with what exists.
func (c *cluster) readAgain() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rows, err := c.db.Query(ctx, `
		SELECT t.id::text, t.agent, t.last_seq, '1-' || left(e.event_uid::text, 8)
		FROM (SELECT v.*, row_number() OVER (ORDER BY v.id) AS n, count(*) OVER () AS total FROM audit.task v) t
		JOIN audit.event e ON e.task_id = t.id AND e.seq = 1
		WHERE t.n % greatest(t.total / $1, 1) = 0 AND t.last_seq > 1`, sampled)
	if err != nil {
		c.t.Errorf("list tasks: %v", err)
		return
	}
	type row struct {
		task, agent, first string
		last               int64
	}
	var list []row
	var r row
	for rows.Next() {
		err = errors.Join(err, rows.Scan(&r.task, &r.agent, &r.last, &r.first))
		list = append(list, r)
	}
	if err := errors.Join(err, rows.Err()); err != nil {
		c.t.Errorf("list tasks: %v", err)
		return
	}
	for _, at := range c.patient() {
		for _, r := range list {
			c.readOn(at, r.task, r.agent, r.first, r.last)
		}
	}
}

// readOn reads one task and its log, from the event after first up to number last.
func (c *cluster) readOn(at *replica, task, agent, first string, last int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl := c.client(at, agent)
	cl.APIKey = c.key
	for ev, err := range cl.Resubscribe(ctx, task, client.StreamOptions{LastEventID: first}) {
		if err != nil {
			c.t.Errorf("read task %s again on %s: %v", task, at.name, err)
			break
		}
		if ev.Seq >= last {
			break
		}
	}
	got, err := cl.Get(ctx, task, -1)
	for e := (*client.Error)(nil); errors.As(err, &e) && e.Temporary() && ctx.Err() == nil; {
		got, err = cl.Get(ctx, task, -1)
	}
	if err != nil {
		c.t.Errorf("read task %s again on %s: %v", task, at.name, err)
		return
	}
	c.log.AddAnswer(check.Answer{Replica: at.name, Task: got.Raw, Whole: true, AtEnd: true})
}
