package e2e_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// All replicas are killed around the ticks of a schedule: right before a tick, and at random moments. Each tick starts
// one task, at its time or once a replica is there again.
func TestTicksSurviveKills(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	c.agent("timed", "name: timed\ndescription: Has a schedule.\nexecutor: {echo: {}}\nschedules:\n"+
		"  - {name: far, cron: \""+storetest.FarCron()+"\", owner: anonymous, overlap: allow, message: tick}\n")
	list := []*replica{c.start("a"), c.start("b")}
	until(t, "the schedule is stored", func() bool {
		return one[bool](c, `SELECT EXISTS (SELECT FROM a2a.schedules WHERE next_at IS NOT NULL)`)
	})
	const ticks = 6
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := c.db.Exec(bounded(t), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	recorded := func() int { return one[int](c, `SELECT count(*) FROM a2a.schedule_ticks`) }
	late := 0
	for i := range ticks {
		ahead, wait := time.Minute, time.Duration(0)
		if i%2 == 1 {
			ahead, wait = 50*time.Millisecond, time.Duration(draw.IntN(100))*time.Millisecond
		}
		// The replicas learn of the tick and sleep until then.
		exec(`WITH due AS (
				UPDATE a2a.schedules SET next_tick = clock_timestamp() + $1::interval, next_at = clock_timestamp() + $1
			) SELECT pg_notify('a2ad', 'test schedules')`, ahead)
		pause(t.Context(), wait)
		for _, r := range list {
			r.kill()
		}
		if recorded() == i {
			late++
		}
		exec(`UPDATE a2a.schedules SET next_tick = next_tick - interval '2 min', next_at = next_at - interval '2 min'
			WHERE next_at > clock_timestamp() AND next_at < clock_timestamp() + interval '2 min'`)
		for k, r := range list {
			list[k] = c.restart(r)
		}
		until(t, "the tick has a record", func() bool { return recorded() > i })
	}
	c.awaitRest()
	if n := one[int](c, `SELECT count(*) FROM audit.schedule_tick s JOIN audit.task t ON t.id = s.task_id
		WHERE s.outcome = 'started' AND t.state = 'COMPLETED'`); n != ticks {
		t.Errorf("%d of %d ticks have a completed task", n, ticks)
	}
	if n := one[int](c, `SELECT count(*) FROM audit.task`); n != ticks {
		t.Errorf("%d tasks of %d ticks", n, ticks)
	}
	if late < ticks/2 {
		t.Errorf("%d ticks started after the kills, want at least %d", late, ticks/2)
	}
}
