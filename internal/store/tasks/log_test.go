package tasks_test

import (
	"fmt"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestTableRefusesASecondTerminalEvent(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Status(a2a.StateCompleted))
	_, err := f.SQL.Exec(t.Context(),
		`INSERT INTO a2a.task_events (task_id, seq, event_uid, kind, state, source, committed_at, body)
		VALUES ($1, 4, gen_random_uuid(), 1, 102, 2, now(), '{}')`, l.TaskID)
	if err == nil {
		t.Error("a second terminal event was stored")
	}
}

func TestEventUIDIsThatOfTheLog(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	log := f.Log(l.TaskID)
	uid, ok, err := f.Tasks.EventUID(t.Context(), l.TaskID, 2)
	if err != nil || !ok || uid != log[1].UID {
		t.Errorf("EventUID(2) = %s, %v, %v, want %s", uid, ok, err, log[1].UID)
	}
	for _, seq := range []int64{-1, 0, 3, 1 << 62} {
		if _, ok, err := f.Tasks.EventUID(t.Context(), l.TaskID, seq); ok || err != nil {
			t.Errorf("EventUID(%d) = %v, %v, want none", seq, ok, err)
		}
	}
	if _, ok, err := f.Tasks.EventUID(t.Context(), db.NewTaskID(), 1); ok || err != nil {
		t.Errorf("EventUID of an unknown task = %v, %v, want none", ok, err)
	}
}

func TestEventsAfterReadsAPage(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Chunk("a", "1"), storetest.Chunk("a", "2"), storetest.Status(a2a.StateCompleted))
	all := f.Log(l.TaskID)
	for after := range int64(7) {
		for limit := range 4 {
			got, err := f.Tasks.EventsAfter(t.Context(), l.TaskID, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			from := min(int(after), len(all))
			storetest.Same(t, fmt.Sprintf("%d after %d", limit, after), all[from:min(from+limit, len(all))], got)
		}
	}
	if got, err := f.Tasks.EventsAfter(t.Context(), db.NewTaskID(), 0, 10); err != nil || len(got) != 0 {
		t.Errorf("events of an unknown task = %v, %v, want none", got, err)
	}
}

func TestAheadReturnsTheLogsThatHaveMore(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	a, b, none := f.RunningTask().TaskID, f.RunningTask().TaskID, db.NewTaskID()
	got, deleted, err := f.Tasks.Ahead(t.Context(), []a2a.ID{a, b, none}, []int64{1, 2, 0})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Same(t, "ahead", []a2a.ID{a}, got)
	storetest.Same(t, "deleted", []a2a.ID{none}, deleted)
}
