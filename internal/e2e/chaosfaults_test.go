package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// chaosFault injects one fault and heals it; a fault of a replica heals later by itself. It reports whether the fault
// happened.
type chaosFault struct {
	name string
	do   func(c *chaos) bool
}

var chaosFaults = []chaosFault{
	{"replica killed", func(c *chaos) bool {
		// a replica that has already ended is recorded as an exit
		return c.slot().end(func(r *replica) { _ = r.cmd.Process.Kill() })
	}},
	{"replica stopped",
		func(c *chaos) bool { return c.slot().pause(c, c.between(300*time.Millisecond, 6*time.Second)) }},
	{"replica terminated", func(c *chaos) bool {
		return c.slot().end(func(r *replica) { _ = r.cmd.Process.Signal(syscall.SIGTERM) })
	}},
	{"backend killed", func(c *chaos) bool {
		pid, ok := c.backend()
		if !ok || syscall.Kill(pid, syscall.SIGKILL) != nil {
			return false
		}
		return c.awaitDatabase()
	}},
	{"backend stopped", func(c *chaos) bool {
		pid, ok := c.backend()
		if !ok || syscall.Kill(pid, syscall.SIGSTOP) != nil {
			return false
		}
		c.rest(c.between(200*time.Millisecond, 3*time.Second))
		return syscall.Kill(pid, syscall.SIGCONT) == nil
	}},
	{"backends terminated", func(c *chaos) bool {
		n, err := query[int](c.cluster, `SELECT count(pg_terminate_backend(v.pid)) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'a2ad-%'
			ORDER BY random() LIMIT $1) v`, 1+c.draw.IntN(6))
		return err == nil && n > 0
	}},
	{"PostgreSQL killed", func(c *chaos) bool { return c.bounce(syscall.SIGKILL) }},
	{"PostgreSQL stopped", (*chaos).pausePostgres},
	{"PostgreSQL terminated", func(c *chaos) bool { return c.bounce(syscall.SIGINT) }},
	{"COMMIT dropped before", func(c *chaos) bool { return c.drop(chaosDrop{isCommit, false}) }},
	{"COMMIT dropped after", func(c *chaos) bool { return c.drop(chaosDrop{isCommit, true}) }},
	{"statement dropped before", func(c *chaos) bool { return c.drop(chaosDrop{isStatement, false}) }},
	{"statement dropped after", func(c *chaos) bool { return c.drop(chaosDrop{isStatement, true}) }},
	{"connections frozen", func(c *chaos) bool { return c.proxy.freeze(false) > 0 }},
	{"connections frozen and cut", func(c *chaos) bool { return c.proxy.freeze(true) > 0 }},
	{"clock jumped", (*chaos).jump},
	{"agent stopped", (*chaos).stopAgent},
}

// stopAgent makes the address of the agent refuse connections for a while. Runs that have reached it are cut off. It is
// a fault only if an attempt was refused meanwhile.
func (c *chaos) stopAgent() bool {
	const refused = `SELECT count(*) FROM a2a.task_attempts WHERE outcome = 'unreachable'`
	before, failed := query[int](c.cluster, refused)
	c.world.agent.stop()
	c.rest(c.between(500*time.Millisecond, 6*time.Second))
	for range 100 {
		err := c.world.agent.start()
		if err == nil {
			after, err := query[int](c.cluster, refused)
			return failed == nil && err == nil && after > before
		}
		c.note("start the agent again: %v", err)
		c.rest(100 * time.Millisecond)
	}
	return false
}

func (c *chaos) between(from, to time.Duration) time.Duration {
	return from + time.Duration(c.draw.Int64N(int64(to-from)))
}

func (c *chaos) slot() *chaosSlot { return c.slots[c.draw.IntN(len(c.slots))] }

// rest lets time pass while the load continues.
func (c *chaos) rest(d time.Duration) {
	pause(context.Background(), d)
}

// backend returns a backend that serves a replica.
func (c *chaos) backend() (int, bool) {
	pid, err := query[int](c.cluster,
		`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'a2ad-%'
			ORDER BY random() LIMIT 1`)
	return pid, err == nil
}

// bounce stops PostgreSQL and starts it again after a while. PostgreSQL may never stop if it is asked during
// recovery: then it is killed.
func (c *chaos) bounce(sig syscall.Signal) bool {
	pid, exited := c.srv.Pid(), c.srv.Exited()
	for _, sig := range []syscall.Signal{sig, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := syscall.Kill(pid, sig); err != nil {
			c.note("signal PostgreSQL: %v", err)
			return false
		}
		if within10s(exited) {
			break
		}
	}
	c.rest(c.between(0, 3*time.Second))
	for range 5 { // it refuses to start while a process of its predecessor is left
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := c.srv.Restart(ctx)
		cancel()
		if err == nil {
			return c.awaitDatabase()
		}
		c.note("restart PostgreSQL: %v", err)
	}
	return false
}

func within10s(done <-chan struct{}) bool {
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// pausePostgres stops all PostgreSQL processes with SIGSTOP for a while.
func (c *chaos) pausePostgres() bool {
	postmaster := c.srv.Pid()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	if err != nil || syscall.Kill(postmaster, syscall.SIGSTOP) != nil {
		return false
	}
	pids := []int{postmaster}
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && syscall.Kill(pid, syscall.SIGSTOP) == nil {
			pids = append(pids, pid)
		}
	}
	c.rest(c.between(300*time.Millisecond, 3*time.Second))
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT) // a backend may have ended
	}
	return true
}

// drop loses some commits or other statements, and waits until that has happened.
func (c *chaos) drop(d chaosDrop) bool {
	n := 1 + c.draw.IntN(4)
	c.proxy.drop(n, d)
	for range 40 {
		c.rest(25 * time.Millisecond)
	}
	return c.proxy.dropped() > 0
}

// awaitDatabase returns when PostgreSQL answers. The earlier connections are closed by then.
func (c *chaos) awaitDatabase() bool {
	for end := time.Now().Add(patience); time.Now().Before(end); c.rest(50 * time.Millisecond) {
		c.db.Reset()
		if _, err := query[int](c.cluster, `SELECT 1`); err == nil {
			return true
		}
	}
	c.note("PostgreSQL does not answer again")
	return false
}

// chaosClock makes the database's clock jump for everything that reads it through SQL, as a2ad does. Its functions
// return the time plus an offset from the server's configuration. Timeouts inside PostgreSQL do not change.
const chaosClock = `
	CREATE FUNCTION pg_catalog.chaos_clock_timestamp() RETURNS timestamptz LANGUAGE internal VOLATILE STRICT AS
	'clock_timestamp';
	CREATE FUNCTION pg_catalog.chaos_statement_timestamp() RETURNS timestamptz LANGUAGE internal STABLE STRICT AS
	'statement_timestamp';
	CREATE FUNCTION pg_catalog.chaos_now() RETURNS timestamptz LANGUAGE internal STABLE STRICT AS 'now';
	CREATE FUNCTION pg_catalog.chaos_jump() RETURNS interval LANGUAGE sql STABLE AS
	  $$SELECT pg_catalog.make_interval(secs => coalesce(nullif(pg_catalog.current_setting('chaos.jump', true), ''),
	'0')::pg_catalog.float8)$$;
	CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
	  $$SELECT pg_catalog.chaos_clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.chaos_jump()$$;
	CREATE OR REPLACE FUNCTION pg_catalog.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
	  $$SELECT pg_catalog.chaos_statement_timestamp() OPERATOR(pg_catalog.+) pg_catalog.chaos_jump()$$;
	CREATE OR REPLACE FUNCTION pg_catalog.now() RETURNS timestamptz LANGUAGE sql STABLE AS
	  $$SELECT pg_catalog.chaos_now() OPERATOR(pg_catalog.+) pg_catalog.chaos_jump()$$;
`

// jump moves the database's clock forward or back, by seconds or by hours.
func (c *chaos) jump() bool {
	steps := []time.Duration{-2 * time.Hour, -time.Hour, -30 * time.Second, -3 * time.Second, 0, 3 * time.Second,
		30 * time.Second, time.Hour}
	return c.setClock(steps[c.draw.IntN(len(steps))])
}

func (c *chaos) setClock(offset time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := c.db.Acquire(ctx)
	if err != nil {
		return false
	}
	defer conn.Release()
	// The first statement declares the setting in the session; without it the setting cannot be stored.
	for _, sql := range []string{`SET "chaos.jump" = '0'`,
		fmt.Sprintf(`ALTER SYSTEM SET "chaos.jump" = '%d'`, int(offset.Seconds())), `RESET "chaos.jump"`,
		`SELECT pg_reload_conf()`} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			c.note("set the clock: %v", err)
			return false
		}
	}
	for range 100 {
		var off float64
		if err := conn.QueryRow(ctx,
			`SELECT extract(epoch FROM clock_timestamp() - chaos_clock_timestamp())`).Scan(&off); err != nil {
			return false
		}
		if diff := off - offset.Seconds(); diff > -1 && diff < 1 {
			return true
		}
		c.rest(20 * time.Millisecond)
	}
	c.note("the clock of the database does not jump by %s", offset)
	return false
}
