package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// payer is an agent that charges a card in a step, waits, and ends. It notes in a file what it does.
type payer struct {
	c       *cluster
	effects string // the file
	fifo    string // the first run reads it before it charges
}

const payerScript = `
read -r run
task=${run#*\"taskId\":\"}; task=${task%%\"*}
did() { case $run in *"\"key\":\"$1\""*) true;; *) false;; esac }
case $run in *\"epoch\":1,*)
  if [ -n "$FIFO" ]; then echo "$task began" >> "$EFFECTS"; read -r line < "$FIFO"; fi;;
esac
if ! did charge; then
  echo "$task charge" >> "$EFFECTS"
  echo '{"step":{"key":"charge","result":"paid"}}'
fi
if ! did pause; then echo "{\"wait\":$WAIT}"; exit; fi
echo "$task woke" >> "$EFFECTS"
echo '{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}'
`

// payer adds an agent that waits as the members of a wait say. With slow, its first run waits for the test.
func (c *cluster) payer(name, wait string, slow bool) *payer {
	c.t.Helper()
	dir := c.t.TempDir()
	p := &payer{c: c, effects: filepath.Join(dir, "effects")}
	if slow {
		p.fifo = filepath.Join(dir, "fifo")
		if err := syscall.Mkfifo(p.fifo, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	script := filepath.Join(dir, "agent.sh")
	for file, text := range map[string]string{script: payerScript, p.effects: ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	c.agent(name, fmt.Sprintf("name: %s\ndescription: Pays once.\nlimits: {deadline: 1h}\n"+
		"executor: {exec: {command: [/bin/sh, %s], env: {EFFECTS: %s, FIFO: '%s', WAIT: '{\"key\":\"pause\",%s}'}}}\n",
		name, script, p.effects, p.fifo, wait))
	return p
}

// did returns how often the agent has done something for a task.
func (p *payer) did(task, what string) int {
	p.c.t.Helper()
	text, err := os.ReadFile(p.effects)
	if err != nil {
		p.c.t.Fatal(err)
	}
	return strings.Count(string(text), task+" "+what+"\n")
}

// rowGate holds transactions that write rows of a table: in the statement, or at COMMIT, whose answer is then late.
type rowGate struct {
	c    *cluster
	conn *pgx.Conn
}

const gateLock = 1609

func (c *cluster) rowGate(table, op string, atCommit bool) *rowGate {
	c.t.Helper()
	return c.rowGateWhen(table, op, "true", atCommit)
}

// rowGateWhen is rowGate for those rows for which a condition holds.
func (c *cluster) rowGateWhen(table, op, condition string, atCommit bool) *rowGate {
	c.t.Helper()
	conn, err := pgx.Connect(bounded(c.t), c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	trigger := fmt.Sprintf("CREATE TRIGGER held BEFORE %s ON a2a.%s", op, table)
	if atCommit {
		trigger = fmt.Sprintf("CREATE CONSTRAINT TRIGGER held AFTER %s ON a2a.%s DEFERRABLE INITIALLY DEFERRED", op,
			table)
	}
	for _, sql := range []string{
		fmt.Sprintf(`CREATE FUNCTION a2a.held() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM pg_advisory_xact_lock_shared(%d); RETURN coalesce(NEW, OLD); END $$`, gateLock),
		trigger + " FOR EACH ROW WHEN (" + condition + ") EXECUTE FUNCTION a2a.held()",
		fmt.Sprintf("SELECT pg_advisory_lock(%d)", gateLock),
	} {
		if _, err := conn.Exec(bounded(c.t), sql); err != nil {
			c.t.Fatalf("%s: %v", sql, err)
		}
	}
	return &rowGate{c, conn}
}

// held waits until a transaction waits at the gate.
func (g *rowGate) held() {
	g.c.t.Helper()
	until(g.c.t, "a transaction waits at the gate", func() bool {
		n, err := query[int](g.c, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		return err == nil && n > 0
	})
}

// open lets all pass from now on.
func (g *rowGate) open() {
	g.c.t.Helper()
	if _, err := g.conn.Exec(bounded(g.c.t), "SELECT pg_advisory_unlock_all()"); err != nil {
		g.c.t.Fatal(err)
	}
}

// remove removes the gate of a database that has crashed, and so has opened it.
func (g *rowGate) remove() {
	g.c.t.Helper()
	until(g.c.t, "the gate is removed", func() bool {
		_, err := g.c.db.Exec(bounded(g.c.t), "DROP FUNCTION a2a.held() CASCADE")
		return err == nil
	})
}

// moment is a statement of steps and waits during which something dies.
type moment struct {
	table, op string
	wait      string // of the agent
	signal    bool   // the test sends the signal that ends the wait
	overdue   bool   // the deadline of the task passes while it waits
	alone     bool   // the statement may be a transaction of its own, which PostgreSQL completes without the replica
	written   string // SQL: whether the transaction of the statement was committed
}

const (
	byTime   = `"for":"300ms"`
	bySignal = `"signal":"go"`
)

var moments = map[string]moment{
	"StepsAdd": {table: "task_steps", op: "INSERT", wait: byTime, alone: true,
		written: `SELECT count(*) > 0 FROM a2a.task_steps WHERE task_id::text = $1`},
	"WaitBegin": {table: "task_waits", op: "INSERT", wait: bySignal, signal: true,
		written: `SELECT count(*) > 0 FROM a2a.task_waits WHERE task_id::text = $1`},
	"WaitsEnd": {table: "task_waits", op: "DELETE", wait: byTime,
		written: `SELECT count(*) = 0 FROM a2a.task_waits WHERE task_id::text = $1`},
	"SignalAdd": {table: "task_signals", op: "INSERT", wait: bySignal, signal: true,
		written: `SELECT count(*) > 0 FROM a2a.task_signals WHERE task_id::text = $1`},
	"WaitsFail": {table: "task_waits", op: "DELETE", wait: `"for":"1h"`, overdue: true,
		written: `SELECT state = 'FAILED' FROM audit.task WHERE id::text = $1`},
}

// sendSignal sends the signal that ends the wait of a task. It returns 0 if there is no answer.
func (c *cluster) sendSignal(r *replica, task string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/worker/v1/tasks/"+task+"/signals/go",
		strings.NewReader(`{"value":1}`))
	if err != nil {
		c.t.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "once")
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// reach brings a task to the moment, at which it waits at the gate.
func (m *moment) reach(c *cluster, r *replica, g *rowGate, agent string) (task string) {
	c.t.Helper()
	task = submit(c.t, c.client(r, agent), say("x"))
	if m.op == "DELETE" || m.table == "task_signals" {
		until(c.t, "the task waits", func() bool {
			n, err := query[int](c, `SELECT count(*) FROM a2a.task_waits WHERE task_id::text = $1`, task)
			return err == nil && n == 1
		})
	}
	if m.overdue {
		if _, err := c.db.Exec(bounded(c.t),
			`UPDATE a2a.task_waits SET deadline_at = clock_timestamp() WHERE task_id::text = $1`, task); err != nil {
			c.t.Fatal(err)
		}
	}
	if m.table == "task_signals" {
		done := make(chan struct{})
		c.t.Cleanup(func() { <-done })
		go func() { c.sendSignal(r, task); close(done) }()
	}
	g.held()
	return task
}

// end lets the task end after the fault, and checks the effects. charges is how often the agent may have charged.
func (m *moment) end(c *cluster, r *replica, p *payer, task string, charges ...int) {
	c.t.Helper()
	want, woke := "COMPLETED", 1
	if m.overdue {
		want, woke = "FAILED", 0
	}
	if m.signal {
		until(c.t, "the signal is stored", func() bool { return c.sendSignal(r, task) == http.StatusOK })
	}
	c.awaitState(task, want)
	if n := p.did(task, "charge"); !slices.Contains(charges, n) {
		c.t.Errorf("the agent charged %d times, want %v", n, charges)
	}
	if n := p.did(task, "woke"); n != woke {
		c.t.Errorf("the agent woke %d times, want %d", n, woke)
	}
	outcomes := column[string](c, `SELECT outcome FROM audit.attempt WHERE task_id::text = $1
		AND outcome IN ('waiting', 'completed') ORDER BY token`, task)
	if got := strings.Join(outcomes, " "); got != strings.Join([]string{"waiting", "completed"}[:1+woke], " ") {
		c.t.Errorf("the attempts ended with %s", got)
	}
	const steps = `SELECT string_agg(concat_ws(' ', seq, key, result ->> 'by', ended_at IS NOT NULL), ', ' ORDER BY seq)
		FROM (SELECT s.seq, s.key, CASE s.kind WHEN 'wait' THEN s.result END AS result, s.ended_at
		      FROM audit.step s WHERE s.task_id::text = $1) x`
	by := map[bool]string{true: "signal", false: "time"}[m.signal]
	recorded := "1 charge t, 2 pause " + by + " t"
	if m.overdue {
		recorded = "1 charge t, 2 pause f"
	}
	if got := one[string](c, steps, task); got != recorded {
		c.t.Errorf("the steps are %s, want %s", got, recorded)
	}
	signals := one[string](c, `SELECT coalesce(string_agg(step::text, ' '), '') FROM audit.signal
		WHERE task_id::text = $1`, task)
	if want := map[bool]string{true: "2"}[m.signal]; signals != want {
		c.t.Errorf("the signals ended the waits %q, want %q", signals, want)
	}
}

// recorded returns how often the agent charges: a step whose result was recorded never runs again.
func (c *cluster) recorded(task string) int {
	c.t.Helper()
	return 2 - one[int](c, `SELECT count(*)::int FROM a2a.task_steps WHERE task_id::text = $1 AND key = 'charge'`, task)
}

// A replica dies in each statement of steps and waits, or after the COMMIT whose answer it does not get. A step that
// was recorded does not run again, and each wait ends once.
func TestKilledReplicaAmongStepsAndWaits(t *testing.T) {
	t.Parallel()
	for name, m := range moments {
		for _, atCommit := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/commit=%t", name, atCommit), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				p := c.payer("pays", m.wait, false)
				a := c.start("a")
				g := c.rowGate(m.table, m.op, atCommit)
				task := m.reach(c, a, g, "pays")
				a.kill()
				g.open()
				until(t, "the connections of the replica are closed", func() bool {
					return one[int](c, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
						AND application_name LIKE 'a2ad-a-%'`) == 0
				})
				if written := one[bool](c, m.written, task); written != atCommit && !m.alone {
					t.Fatalf("the transaction was committed: %t, want %t", written, atCommit)
				}
				charges := c.recorded(task)
				m.end(c, c.restart(a), p, task, charges)
			})
		}
	}
}

// A replica is frozen in a statement until another one has done its work. After it thaws, it records nothing, and ends
// no wait.
func TestFrozenReplicaAmongStepsAndWaits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"StepsAdd", "WaitsEnd", "WaitsFail"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := moments[name]
			c := newCluster(t)
			p := c.payer("pays", m.wait, false)
			// PostgreSQL ends the transaction of the frozen replica.
			a := c.start("a", "A2AD_IDLE_TX_TIMEOUT=2s")
			g := c.rowGate(m.table, m.op, false)
			task := m.reach(c, a, g, "pays")
			a.log.expectErrors()
			a.freeze()
			g.open()
			until(t, "the statement has ended", func() bool {
				return one[int](c, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
					AND application_name LIKE 'a2ad-a-%' AND state = 'active'`) == 0
			})
			charges := c.recorded(task)
			m.end(c, c.start("b"), p, task, charges)
			before := one[string](c, `SELECT string_agg(s::text, ' ' ORDER BY s.seq) FROM a2a.task_steps s`)
			a.thaw()
			if name == "StepsAdd" {
				line := a.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task })
				// Released: it finds its connection closed before it finds its lease lost.
				if o := line.str("outcome"); o != "lost" && o != "released" {
					t.Errorf("the replica that was frozen records %v, want the outcome lost or released", line)
				}
			}
			// It works again, so what it had begun is over.
			if got := send(t, c.client(a, "echo"), say("alive?")); got.TaskID == "" {
				t.Error("the replica that was frozen does not answer")
			}
			m.end(c, a, p, task, charges)
			if after := one[string](c,
				`SELECT string_agg(s::text, ' ' ORDER BY s.seq) FROM a2a.task_steps s`); after != before {
				t.Errorf("after the thaw the steps are %s, before %s", after, before)
			}
		})
	}
}

// A replica is frozen while its agent works. The agent reports a step and a wait only after another replica has done
// the same, and the task waits. After the thaw, the replica records neither, and does not end the wait.
func TestZombieRecordsNoStepAndWakesNobody(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.payer("pays", bySignal, true)
	slow, err := os.OpenFile(p.fifo, os.O_RDWR, 0) // without a reader, an open to write alone would wait
	if err != nil {
		t.Fatal(err)
	}
	a := c.start("a", "A2AD_IDLE_TX_TIMEOUT=2s") // the zombie may hold a transaction
	task := submit(t, c.client(a, "pays"), say("x"))
	until(t, "the agent works", func() bool { return p.did(task, "began") == 1 })
	a.log.expectErrors()
	a.freeze()
	b := c.start("b")
	const waits = `SELECT count(*) FROM audit.wait WHERE task_id::text = $1`
	until(t, "the task waits", func() bool { return one[int](c, waits, task) == 1 })
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the zombie's agent has charged", func() bool { return p.did(task, "charge") == 2 })
	const rows = `SELECT string_agg(concat_ws(' ', key, token, worker, ended_at IS NOT NULL), ', ' ORDER BY seq)
		FROM audit.step WHERE task_id::text = $1`
	before := one[string](c, rows, task)
	a.thaw()
	line := a.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task })
	if line.str("outcome") != "lost" {
		t.Errorf("the zombie records %v, want the outcome lost", line)
	}
	if after := one[string](c, rows, task); after != before || one[int](c, waits, task) != 1 {
		t.Errorf("after the thaw the steps are %s, before %s", after, before)
	}
	m := moments["SignalAdd"]
	m.end(c, b, p, task, 2)
}

// PostgreSQL crashes in each statement of steps and waits.
func TestPostgresCrashAmongStepsAndWaits(t *testing.T) {
	t.Parallel()
	srv := storetest.NewServer(t, nil)
	c := clusterOn(t, storetest.NewOn(t, srv))
	agents := map[string]*payer{}
	for name, m := range moments {
		agents[name] = c.payer(strings.ToLower(name), m.wait, false)
	}
	a := c.start("a")
	a.log.expectErrors()
	for name, m := range moments {
		g := c.rowGate(m.table, m.op, false)
		task := m.reach(c, a, g, strings.ToLower(name))
		if err := srv.Kill(syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		if err := srv.Restart(bounded(t)); err != nil {
			t.Fatal(err)
		}
		c.db.Reset()
		g.remove()
		// The replica lives, and may write again what it had. Otherwise the agent runs again.
		m.end(c, a, agents[name], task, 1, 2)
	}
}
