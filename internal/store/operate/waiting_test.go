package operate_test

import (
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestWaitingTasksAreCounted(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	wait := func(w a2a.Wait) {
		t.Helper()
		if _, err := f.Tasks.Append(t.Context(), f.RunningTask(), tasks.Batch{
			Wait: &w, Steps: []a2a.StepRecord{{Step: a2a.Step{Key: "wait#1"}, Seq: 1, Kind: a2a.StepWait}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	left := f.RunningTask()
	// A row that a server of the version before this one has left.
	f.Exec("INSERT INTO a2a.task_waits (task_id, epoch, step, due_at) VALUES ($1, 0, 1, now())", left.TaskID)
	for _, tt := range []struct {
		wait        a2a.Wait
		least, most time.Duration // until the next is due; 0: never
	}{
		{a2a.Wait{Signal: "s"}, 0, 0},
		{a2a.Wait{For: 2 * time.Hour}, time.Hour, 3 * time.Hour},
	} {
		wait(tt.wait)
		f.Exec("UPDATE a2a.task_waits SET deadline_at = NULL")
		g, err := f.Operate.Gauges(t.Context())
		if err != nil || len(g.Waiting) != 1 {
			t.Fatalf("Gauges = %+v, %v, want one agent whose tasks wait", g.Waiting, err)
		}
		w := g.Waiting[0]
		if w.Next.IsZero() != (tt.most == 0) || tt.most > 0 &&
			(time.Until(w.Next) < tt.least || time.Until(w.Next) > tt.most) {
			t.Errorf("after %+v the next one is due at %v", tt.wait, w.Next)
		}
	}
	o, err := f.Operate.Overview(t.Context())
	if err != nil || len(o.Waiting) != 1 || o.Waiting[0].Agent != storetest.Agent || o.Waiting[0].Tasks != 2 {
		t.Errorf("the overview has %+v, %v, want 2 tasks of one agent", o.Waiting, err)
	}
}

// Of many waits, a sample is read, and the count is an estimate.
func TestManyWaitingTasksAreEstimated(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.RunningTask()
	const waits = 3000
	f.Exec(`DO $$ BEGIN
		CREATE TEMP TABLE copy ON COMMIT DROP AS SELECT t.* FROM a2a.tasks t, generate_series(1, 3000);
		UPDATE copy SET id = gen_random_uuid();
		INSERT INTO a2a.tasks SELECT * FROM copy;
		INSERT INTO a2a.task_waits (task_id, epoch, step, due_at) SELECT c.id, c.lease_epoch, 1, 'infinity' FROM copy c;
	END $$`)
	size := storetest.Value[int64](f, `SELECT pg_relation_size('a2a.task_waits') / current_setting('block_size')::int`)
	for _, tt := range []struct {
		pages       int64
		least, most int64
	}{{size, waits, waits}, {size / 2, waits / 2, 2 * waits}, {size / 4, waits / 2, 2 * waits}} {
		list, err := operate.CountWaiting(t.Context(), f.Operate, tt.pages)
		if err != nil || len(list) != 1 || list[0].Tasks < tt.least || list[0].Tasks > tt.most {
			t.Errorf("from %d of %d pages the count is %+v, %v, want %d to %d",
				tt.pages, size, list, err, tt.least, tt.most)
		}
	}
}
