package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/seal"
)

// sceneFacts prepares the database before a replica first reads it, because the next read is 15 s later.
func sceneFacts(s *stage) {
	a := s.start("a", append(hooking(seal.Generate("k1")), admin, "A2AD_PUSH_RETRY=0,1h",
		"A2AD_PUSH_BREAKER=1,1h,1h")...)
	for _, op := range []string{"complete", "fail", "reject", "input", "auth"} {
		send(s.t, s.client(a, "script"), play(`{"op":"`+op+`"}`))
	}
	working := submit(s.t, s.client(a, "script"), play(`{"op":"hang"}`))
	canceled := submit(s.t, s.client(a, "script"), play(`{"op":"hang"}`))
	s.runner(working)
	s.runner(canceled)
	if _, err := s.client(a, "script").Cancel(bounded(s.t), canceled); err != nil {
		s.t.Fatal(err)
	}
	var rests, hooked [2]string
	for i := range rests {
		rests[i] = "http://" + freePort(s.t)
		hooked[i] = s.sendHooked(a, `{"url":"`+rests[i]+`/"}`, `{"op":"complete"}`)
	}
	until(s.t, "two destinations have an open breaker", func() bool {
		return one[int](s.cluster,
			`SELECT count(*) FROM a2a.push_destinations WHERE open_until > clock_timestamp()`) == 2
	})
	s.exec(`UPDATE a2a.push_destinations SET disabled_at = clock_timestamp() WHERE origin = $1`, rests[1])

	// Two agents with remote workers: one that the next replica serves, and one that it does not.
	s.agents = s.t.TempDir()
	s.agent("far", remoteAgent("far"))
	s.agent("foreign", remoteAgent("foreign"))
	b := s.start("b", "A2AD_DEFAULT_AGENT=far")
	waiting := []string{submit(s.t, s.client(b, "far"), say("x")), submit(s.t, s.client(b, "foreign"), say("x"))}

	// This transaction keeps dead rows, and does not receive the notifications that it listens for.
	conn, err := pgx.Connect(bounded(s.t), s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{`LISTEN unread`, `BEGIN ISOLATION LEVEL REPEATABLE READ`,
		`SELECT count(*) FROM a2a.tasks`} {
		if _, err := conn.Exec(bounded(s.t), sql); err != nil {
			s.t.Fatal(err)
		}
	}
	s.exec(`SELECT pg_notify('unread', repeat('x', 7000) || n) FROM generate_series(1, 20) n`)

	if err := os.Remove(filepath.Join(s.agents, "foreign.yaml")); err != nil {
		s.t.Fatal(err)
	}
	// Statistics are sent at the latest when a session ends.
	s.exec(`CREATE TABLE a2a.worn (n int) WITH (autovacuum_enabled = off)`)
	s.exec(`INSERT INTO a2a.worn SELECT generate_series(1, 1000)`)
	s.exec(`DELETE FROM a2a.worn WHERE n <= 400`)
	until(s.t, "the statistics have the dead rows", func() bool {
		n, err := query[int64](s.cluster, `SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'worn'`)
		return err == nil && n == 400
	})
	c := s.start("c", admin, "A2AD_WORKERS=0", "A2AD_DEFAULT_AGENT=far")
	states := make([]moved, 0, 8)
	for state, n := range map[string]float64{"submitted": 2, "working": 1, "completed": 3, "failed": 1, "canceled": 1,
		"rejected": 1, "input-required": 1, "auth-required": 1} {
		states = append(states, became(n, "a2ad_tasks", "state", state))
	}
	s.shows(unseen, c, append(states, became(1, "a2ad_queue_tasks", "agent", "far"),
		became(1, "a2ad_queue_tasks", "agent", "other"),
		rose("a2ad_queue_oldest_seconds", "agent", "far"), rose("a2ad_queue_oldest_seconds", "agent", "other"),
		became(2, "a2ad_push_backlog"), rose("a2ad_push_oldest_seconds"), became(1, "a2ad_push_dest_open"),
		became(1, "a2ad_push_dest_disabled"),
		rose("a2ad_db_oldest_transaction_seconds"), rose("a2ad_db_notification_queue_ratio"),
		became(400, "a2ad_db_table_dead_rows", "table", "worn"), became(600, "a2ad_db_table_rows", "table", "worn"),
		rose("a2ad_db_table_bytes", "table", "worn"))...)
	s.exec(`DROP TABLE a2a.worn`)
	for i, task := range append(waiting, working) {
		if _, err := s.client([]*replica{b, b, a}[i], []string{"far", "foreign", "script"}[i]).Cancel(bounded(s.t),
			task); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, task := range hooked {
		if got := s.rpc(a, "script", "tasks/pushNotificationConfig/delete",
			`{"id":"`+task+`","pushNotificationConfigId":"default"}`); got.code != 0 {
			s.t.Errorf("delete: %s", got.body)
		}
	}
	for _, r := range s.alive() {
		r.stop() // none serves all agents, whose tasks are read again at the end
	}
}

// scenePools blocks everything that reads tasks.
func scenePools(s *stage) {
	a := s.start("a", admin, "A2AD_DB_POOL=5", "A2AD_POOL_TIMEOUT=1s", "A2AD_LOCK_TIMEOUT=1h",
		"A2AD_STATEMENT_TIMEOUT=1h")
	s.shows(unseen, a, rose("a2ad_db_pool_max", "pool", "api"), rose("a2ad_db_pool_idle"),
		rose("a2ad_db_pool_waits_total", "pool", "api")) // for the first connection
	task := send(s.t, s.client(a, "echo"), say("x")).TaskID
	a.log.expectErrors()
	b := s.start("b", admin, "A2AD_WORKERS=0", "A2AD_STATEMENT_TIMEOUT=1s")
	b.log.expectErrors()
	lock, err := s.db.Begin(bounded(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	defer lock.Rollback(context.Background()) //nolint:errcheck // it is over already
	if _, err := lock.Exec(bounded(s.t), `LOCK TABLE a2a.tasks IN ACCESS EXCLUSIVE MODE`); err != nil {
		s.t.Fatal(err)
	}
	before := a.scrape() // the tasks are not counted
	var asked sync.WaitGroup
	for range 12 {
		asked.Go(func() { s.rpc(a, "echo", "tasks/get", `{"id":"`+task+`"}`) })
	}
	for range 3 {
		asked.Go(func() { s.rpc(a, "echo", "tasks/resubscribe", `{"id":"`+task+`"}`) })
	}
	s.shows(before, a, rose("a2ad_db_pool_acquired", "pool", "api"),
		rose("a2ad_db_pool_canceled_total", "pool", "api"), rose("a2ad_sse_streams_waiting"))
	s.shows(unseen, b, rose("a2ad_db_metrics_failures_total"))
	if err := lock.Rollback(bounded(s.t)); err != nil {
		s.t.Fatal(err)
	}
	asked.Wait()
	s.shows(before, a, rose("a2ad_db_pool_acquires_total", "pool", "api"),
		rose("a2ad_db_pool_wait_seconds_total", "pool", "api"))
}

func sceneReady(s *stage) {
	a := s.start("a", admin, "A2AD_DRAIN_DELAY=5s")
	s.shows(unseen, a, became(1, "a2ad_ready"))
	before := a.scrape()
	a.signal(syscall.SIGTERM)
	s.shows(before, a, became(0, "a2ad_ready"))
	a.awaitExit()
}

// sceneMemory uses up the memory budget with stalled bodies, so that other requests wait and are refused.
func sceneMemory(s *stage) {
	a := s.start("a", admin, "A2AD_MEMORY_BUDGET=16MiB")
	a.log.expectErrors()
	s.shows(unseen, a, became(16<<20, "a2ad_memory_budget_bytes"))
	before := a.scrape()
	ctx, stop := context.WithCancel(s.t.Context())
	var bodies sync.WaitGroup
	defer bodies.Wait()
	defer stop()
	for range 12 {
		bodies.Go(func() {
			for ctx.Err() == nil {
				stall(ctx, strings.TrimPrefix(a.base, "http://"))
			}
		})
	}
	s.shows(before, a, rose("a2ad_memory_used_bytes"), rose("a2ad_memory_waiting"), rose("a2ad_memory_waits_total"),
		rose("a2ad_memory_refused_total"))
}

// stall sends most of a body and waits until the server gives up.
func stall(ctx context.Context, addr string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	const size = 3 << 20
	_, err = fmt.Fprintf(conn,
		"POST / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, size,
		strings.Repeat(" ", size-1))
	if err == nil {
		_, _ = io.Copy(io.Discard, conn) // until the server closes it
	}
}

// sceneSweeps lets ended tasks and an entry of the audit log grow old.
func sceneSweeps(s *stage) {
	a := s.start("a", admin, "A2AD_RETENTION=1s", "A2AD_RETIRE_INTERVAL=50ms", "A2AD_SWEEP_INTERVAL=50ms")
	before := a.scrape()
	if _, err := s.db.Exec(bounded(s.t),
		"INSERT INTO a2a.audit_log (at, actor, action) "+
			"VALUES (now() - interval '500 days', 'operator', 'key.create')"); err != nil {
		s.t.Fatal(err)
	}
	s.rpc(a, "echo", "message/send",
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`)
	s.shows(before, a, grew(1, "a2ad_swept_total", "sweep", "tasks"), grew(1, "a2ad_swept_total", "sweep", "audit_log"),
		rose("a2ad_sweep_last_run_timestamp_seconds", "sweep", "attempts"),
		rose("a2ad_sweep_last_run_timestamp_seconds", "sweep", "audit_log"))
}
