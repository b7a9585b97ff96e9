package operate_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestParkedTasksAreCountedAndListed(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first, second, left := f.RunningTask(), f.RunningTask(), f.RunningTask()
	if err := f.Tasks.Park(t.Context(), first, "bad luck", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := f.Tasks.Park(t.Context(), second, "bad luck", 0); err != nil {
		t.Fatal(err)
	}
	f.Exec("UPDATE a2a.task_parked SET since = since - interval '1 h' WHERE task_id = $1", first.TaskID)
	// A row that a server of the version before this one has left.
	f.Exec("INSERT INTO a2a.task_parked VALUES ($1, 0, $2, 'acme', now(), 'infinity', 'x', 1)", left.TaskID, left.Agent)
	g, err := f.Operate.Gauges(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Parked) != 1 || g.Parked[0].Agent != storetest.Agent || g.Parked[0].Tasks != 2 ||
		g.Parked[0].Oldest < time.Hour || g.Parked[0].Oldest > 2*time.Hour {
		t.Errorf("parked tasks %+v, want 2 of one agent, the first for an hour", g.Parked)
	}
	o, err := f.Operate.Overview(t.Context())
	if err != nil || len(o.Parked) != 1 || o.Parked[0].Tasks != 2 {
		t.Errorf("the overview has %+v, %v", o.Parked, err)
	}
	rows, err := f.Operate.ListTasks(t.Context(), operate.TaskFilter{Parked: true, Limit: 10})
	if err != nil || len(rows) != 2 || rows[0].ID != second.TaskID || rows[1].ID != first.TaskID {
		t.Fatalf("%d tasks are listed as parked, %v, want 2", len(rows), err)
	}
	if p := rows[0].Parked; !p.Until.IsZero() || p.Reason != "bad luck" {
		t.Errorf("the task without a limit: %+v", p)
	}
	if p := rows[1].Parked; p.Until.Sub(p.Since) != 2*time.Hour {
		t.Errorf("the task with a limit: %+v", p)
	}
	all, err := f.Operate.ListTasks(t.Context(), operate.TaskFilter{Limit: 10})
	if err != nil || len(all) != 3 || all[0].Parked != nil {
		t.Errorf("%d tasks are listed, %v, the running one as %+v", len(all), err, all[0].Parked)
	}
}

func TestMissedTicksOfTheLastHourAreCounted(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.Exec(`INSERT INTO a2a.schedule_ticks (agent, name, tick, outcome, at)
		SELECT 'a', 's', now() - n * interval '1 min', CASE WHEN n = 1 THEN 'skipped' ELSE 'missed' END,
			now() - n * interval '20 min'
		FROM generate_series(-1, 4) n`) // the first one was recorded before the clock was set back
	g, err := f.Operate.Gauges(t.Context())
	if err != nil || len(g.TicksMissed) != 1 || g.TicksMissed[0] != (operate.TicksMissed{Agent: "a", Ticks: 2}) {
		t.Errorf("missed ticks %+v, %v, want 2 of one agent", g.TicksMissed, err)
	}
}
