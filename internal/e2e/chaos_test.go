package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
)

// chaosVerdict is the result of one seed.
type chaosVerdict struct {
	seed                                uint64
	faults                              map[string]int
	tasks, events, webhooks, executions int
	acknowledged                        int
	calls, parked, resumed, requests    int
	found                               map[string][]string // by class
	notes                               []string
}

// chaosClasses are the classes of findings, in the order of the report.
var chaosClasses = []string{"lost", "phantom", "orphan", "gap", "exit", "other"}

// classOf returns what the violation of an invariant means to a user of a2ad.
func classOf(v check.Violation) string {
	name, _, _ := strings.Cut(v.Name, " ")
	switch {
	case v.Name == check.Phantom:
		return "phantom"
	case v.Name == check.Lost, v.Name == check.Kept, v.Name == check.InLog, v.Name == check.Usage,
		name == "I6a", name == "I6b":
		return "lost"
	case name == "I8", name == "I4e", name == "I4f", name == "I4g", name == "I5a":
		return "orphan"
	case name == "I3a", v.Name == check.Contiguity, v.Name == check.Resume:
		return "gap"
	}
	return "other"
}

// judgeAll runs all checkers.
func (c *chaos) judgeAll() chaosVerdict {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	v := chaosVerdict{seed: c.seed, found: make(map[string][]string)}
	streams := c.log.Streams()
	var all []check.Violation
	add := func(found []check.Violation, err error) {
		if err != nil {
			c.note("check: %v", err)
		}
		all = append(all, found...)
	}
	c.world.mu.Lock()
	out := check.Outside{
		Acknowledged: c.acks, Executions: c.world.executions, Delivered: c.world.delivered, Requests: c.world.requests,
	}
	c.notes = append(c.notes, c.world.odd...)
	c.world.mu.Unlock()
	add(check.Database(ctx, c.db, chaosTTL))
	add(check.Shown(ctx, c.db, streams))
	add(check.CompareOutside(ctx, c.db, out))
	add(check.Clients(streams, c.log.Answers()), nil)
	for _, x := range all {
		if x.Name == check.Ending && strings.Contains(x.Detail, "without a last event") {
			continue // a stream may be cut and resumed
		}
		if strings.HasPrefix(x.Name, "I5b ") {
			continue // it depends on the clock, which jumps: see judgeHooks
		}
		v.found[classOf(x)] = append(v.found[classOf(x)], oneLine(x.String()))
	}
	_, unordered := judgeHooks(c.world.hooked)
	v.found["gap"] = append(v.found["gap"], unordered...)
	v.found["exit"] = append(v.found["exit"], c.exits...)
	v.found["other"] = append(v.found["other"], c.stucks...)
	v.faults, v.notes = c.done, c.notes
	v.executions, v.acknowledged = len(out.Executions), len(out.Acknowledged)
	for sql, n := range map[string]*int{
		`SELECT count(*) FROM audit.task`: &v.tasks, `SELECT count(*) FROM audit.event`: &v.events,
		`SELECT count(*) FROM audit.delivery`:                             &v.webhooks,
		`SELECT count(*) FROM audit.step WHERE kind = 'call'`:             &v.calls,
		`SELECT coalesce(sum(requests), 0)::int FROM audit.usage`:         &v.requests,
		`SELECT count(*) FROM audit.attempt WHERE outcome = 'parked'`:     &v.parked,
		`SELECT count(*) FROM a2a.audit_log WHERE action = 'task.resume'`: &v.resumed,
	} {
		var err error
		if *n, err = query[int](c.cluster, sql); err != nil {
			c.note("count: %v", err)
		}
	}
	return v
}

func playChaos(t *testing.T, seed uint64, duration time.Duration) chaosVerdict {
	t.Helper()
	c := newChaos(t, seed)
	stopped := false
	defer func() {
		if !stopped {
			c.stopAll()
		}
	}()
	c.play(duration)
	c.atRest(2 * patience)
	c.stopAll()
	stopped = true
	return c.judgeAll()
}

// chaosPlan is what the variables of make chaos request; the default is a short run of one seed.
type chaosPlan struct {
	seeds    []uint64
	duration time.Duration
	jobs     int
	report   string // a file; empty: none
}

func planChaos(t *testing.T) chaosPlan {
	t.Helper()
	p := chaosPlan{seeds: []uint64{1}, duration: 20 * time.Second, jobs: 1, report: os.Getenv("CHAOS_REPORT")}
	number := func(name string, set func(n int)) {
		text := os.Getenv(name)
		if text == "" {
			return
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s is not a number above 0", name, text)
		}
		set(n)
	}
	number("CHAOS_SEEDS", func(n int) {
		p.seeds = nil
		for i := range n {
			p.seeds = append(p.seeds, uint64(i+1))
		}
	})
	number("CHAOS_SEED", func(n int) { p.seeds = []uint64{uint64(n)} })
	number("CHAOS_JOBS", func(n int) { p.jobs = n })
	if text := os.Getenv("CHAOS_DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("CHAOS_DURATION: %v", err)
		}
		p.duration = d
	}
	return p
}

// TestChaos plays seeds of faults. Replicas, backends and PostgreSQL are killed, stopped and terminated; commits are
// lost before and after they take effect; connections fall silent; the database's clock jumps; the agent refuses
// connections. Meanwhile clients send, follow, answer and cancel, tasks call others, and an operator resumes those that
// are parked. At the end nothing acknowledged is lost, nothing refers to a missing task, nothing is left over, no log
// or stream has a gap, and no replica has ended by itself.
func TestChaos(t *testing.T) {
	t.Parallel()
	plan := planChaos(t)
	var mu sync.Mutex
	var verdicts []chaosVerdict
	t.Run("seeds", func(t *testing.T) {
		turn := make(chan struct{}, plan.jobs)
		for _, seed := range plan.seeds {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				turn <- struct{}{}
				defer func() { <-turn }()
				v := playChaos(t, seed, plan.duration)
				for _, class := range chaosClasses {
					for i, text := range v.found[class] {
						if i == 5 {
							t.Errorf("%s: and %d more", class, len(v.found[class])-i)
							break
						}
						t.Errorf("%s: %s", class, text)
					}
				}
				if len(v.faults) == 0 {
					t.Error("no fault happened: the test tests nothing")
				}
				if v.calls == 0 || v.parked == 0 || v.resumed == 0 || v.requests == 0 {
					t.Errorf("%d calls, %d tasks parked, %d resumed, %d requests to models, want some",
						v.calls, v.parked, v.resumed, v.requests)
				}
				mu.Lock()
				defer mu.Unlock()
				verdicts = append(verdicts, v)
				plan.write(t, verdicts) // partial results, in case the rest is cut short
			})
		}
	})
	t.Logf("\n%s", chaosReport(verdicts, plan))
}

func (p *chaosPlan) write(t *testing.T, verdicts []chaosVerdict) {
	if p.report == "" {
		return
	}
	if err := os.WriteFile(p.report, []byte(chaosReport(verdicts, *p)), 0o600); err != nil {
		t.Error(err)
	}
}

// The checkers of the soak find one planted fault of each class, and none before.
func TestChaosFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	c := newChaos(t, 1)
	ctx, stop := context.WithCancel(t.Context())
	c.clients(ctx, 4)
	untilChange(t, "clients have answers", c.kept.next, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.acks) > 20
	})
	if err := c.slots[0].at().cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	untilChange(t, "the exit is recorded", c.kept.next, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.exits) == 1
	})
	stop()
	c.wg.Wait()
	c.atRest(patience)
	c.stopAll()
	for class, list := range c.judgeAll().found {
		if class != "exit" && len(list) > 0 {
			t.Errorf("before any fault is planted there is %s: %v", class, list)
		}
	}
	for _, sql := range []string{
		`UPDATE a2a.messages SET idem_key = 'another' WHERE ctid = (SELECT ctid FROM a2a.messages
			WHERE idem_key LIKE 'client %' LIMIT 1)`,
		`INSERT INTO a2a.task_leases (task_id, epoch, worker, lease_until) SELECT id, lease_epoch, 'nobody', now()
			FROM a2a.tasks WHERE state >= 100 LIMIT 1`,
		`DELETE FROM a2a.task_events WHERE ctid = (SELECT ctid FROM a2a.task_events WHERE seq = 3 LIMIT 1)`,
	} {
		if tag, err := c.db.Exec(t.Context(), sql); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %s, %v", sql, tag, err)
		}
	}
	c.world.mu.Lock()
	c.world.executions = append(c.world.executions, check.Execution{Task: client.NewMessageID(), Token: 1})
	c.world.mu.Unlock()
	found := c.judgeAll().found
	for _, class := range []string{"lost", "phantom", "orphan", "gap", "exit"} {
		if len(found[class]) == 0 {
			t.Errorf("%s was planted and not found: %v", class, found)
		}
	}
}

// chaosReport returns a table with a row for each seed, and the findings.
func chaosReport(verdicts []chaosVerdict, plan chaosPlan) string {
	slices.SortFunc(verdicts, func(a, b chaosVerdict) int { return cmp.Compare(a.seed, b.seed) })
	var b strings.Builder
	total := map[string]int{}
	fmt.Fprintf(&b, "# Chaos: %d of %d seeds, %s each\n\n", len(verdicts), len(plan.seeds), plan.duration)
	b.WriteString("| seed | faults | tasks | events | webhooks | executions | acknowledged | " +
		"calls | parked | resumed | requests | " +
		strings.Join(chaosClasses, " | ") + " |\n")
	b.WriteString("|" + strings.Repeat(" ---: |", 11+len(chaosClasses)) + "\n")
	kinds := map[string]int{}
	for _, v := range verdicts {
		faults := 0
		for kind, n := range v.faults {
			faults += n
			kinds[kind] += n
		}
		fmt.Fprintf(&b, "| %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |", v.seed, faults, v.tasks, v.events,
			v.webhooks, v.executions, v.acknowledged, v.calls, v.parked, v.resumed, v.requests)
		for _, class := range chaosClasses {
			fmt.Fprintf(&b, " %d |", len(v.found[class]))
			total[class] += len(v.found[class])
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## Faults\n\n| fault |")
	for _, v := range verdicts {
		fmt.Fprintf(&b, " %d |", v.seed)
	}
	b.WriteString(" all |\n| :--- |" + strings.Repeat(" ---: |", len(verdicts)+1) + "\n")
	for _, f := range chaosFaults {
		fmt.Fprintf(&b, "| %s |", f.name)
		for _, v := range verdicts {
			fmt.Fprintf(&b, " %d |", v.faults[f.name])
		}
		fmt.Fprintf(&b, " %d |\n", kinds[f.name])
	}
	b.WriteString("\n## Found\n\n")
	for _, v := range verdicts {
		for _, class := range chaosClasses {
			for _, text := range v.found[class] {
				fmt.Fprintf(&b, "- seed %d, %s: %s\n", v.seed, class, text)
			}
		}
		for _, text := range v.notes {
			fmt.Fprintf(&b, "- seed %d, of the soak itself: %s\n", v.seed, text)
		}
	}
	sum := make([]string, 0, len(chaosClasses))
	for _, class := range slices.Sorted(maps.Keys(total)) {
		sum = append(sum, fmt.Sprintf("%d %s", total[class], class))
	}
	fmt.Fprintf(&b, "\n**%s**\n", strings.Join(sum, ", "))
	return b.String()
}
