package tasks_test

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// imported is a task with two turns, whose last one is in a state.
func imported(state a2a.State) tasks.Import {
	agent := storetest.Message("m2", "Where to?")
	agent.Role = a2a.RoleAgent
	last := storetest.Message("m4", "Here you are")
	last.Role = a2a.RoleAgent
	id := db.NewUID() // random, as the servers make them
	return tasks.Import{
		Caller: storetest.Ann, Agent: storetest.Agent, Digest: sha256.Sum256(id[:]),
		Task: a2a.Task{
			ID: id, ContextID: "trip", Metadata: a2a.Raw(`{"k": 1.50}`),
			Status:    a2a.Status{State: state, Message: &last, Time: time.Date(2025, 3, 4, 5, 6, 7, 89e6, time.UTC)},
			History:   []a2a.Message{storetest.Message("m1", "A trip"), agent, storetest.Message("m3", "To Rome")},
			Artifacts: []a2a.Artifact{{ID: "plan", Name: "Plan", Parts: storetest.Texts("by", "train")}, {ID: "map"}},
		},
	}
}

func importAll(f *storetest.Fixture, list ...tasks.Import) []tasks.ImportOutcome {
	f.T.Helper()
	out, err := f.Store.Tasks.Import(f.T.Context(), "sqlite:tasks.db", list)
	if err != nil {
		f.T.Fatal(err)
	}
	return out
}

func TestImportedTaskIsReadAsItWas(t *testing.T) {
	t.Parallel()
	for _, state := range []a2a.State{
		a2a.StateCompleted, a2a.StateFailed, a2a.StateCanceled, a2a.StateRejected, a2a.StateInputRequired,
		a2a.StateAuthRequired,
	} {
		t.Run(state.String(), func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			in := imported(state)
			if got := importAll(f, in); got[0] != tasks.ImportStored {
				t.Fatalf("outcome %d", got[0])
			}
			got, want := f.Snapshot(in.Task.ID), in.Task
			want.Agent, want.CreatedAt, want.LastSeq, want.LastUID = in.Agent, got.CreatedAt, 5, got.LastUID
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
			if !got.CreatedAt.Equal(want.Status.Time) {
				t.Errorf("created at %s", got.CreatedAt)
			}
			wantLog := []a2a.State{a2a.StateSubmitted, a2a.StateWorking, state}
			if got := states(f, in.Task.ID); !slices.Equal(got, wantLog) {
				t.Errorf("log %v, want %v", got, wantLog)
			}
			f.Invariants()
		})
	}
}

func TestImportedQuestionIsAnswered(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := imported(a2a.StateInputRequired)
	importAll(f, in)
	f.Say(in.Task.ID, "By train")
	lease := f.ClaimTask(in.Task.ID)
	if lease.Read != 3 || lease.Through != 5 {
		t.Errorf("the run has read up to message %d of %d, want 3 of 5", lease.Read, lease.Through)
	}
	f.Append(lease, storetest.Artifact("ticket", "x"), storetest.Status(a2a.StateCompleted))
	got := f.Snapshot(in.Task.ID)
	if len(got.History) != 5 || len(got.Artifacts) != 3 || got.Status.State != a2a.StateCompleted {
		t.Errorf("the task is %+v", got)
	}
	f.Invariants()
}

func TestImportedRunningTaskRunsAgain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*a2a.Task){
		"working": func(*a2a.Task) {},
		"working without a message": func(task *a2a.Task) {
			task.Status.Message = nil
		},
		"submitted again": func(task *a2a.Task) {
			task.Status = a2a.Status{State: a2a.StateSubmitted}
		},
		"submitted": func(task *a2a.Task) {
			task.Status, task.Artifacts = a2a.Status{State: a2a.StateSubmitted}, nil
			task.History = slices.Delete(task.History, 1, 2) // two messages of the client
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := storetest.Open(t)
			in := imported(a2a.StateWorking)
			change(&in.Task)
			importAll(f, in)
			f.Invariants()
			if got := f.Snapshot(in.Task.ID); len(got.History) != len(in.Task.History) {
				t.Errorf("the history has %d messages, want %d", len(got.History), len(in.Task.History))
			}
			var late int
			if err := f.SQL.QueryRow(t.Context(), `
				SELECT count(*) FROM a2a.messages m JOIN a2a.tasks t ON t.id = m.task_id
				WHERE m.at_seq > t.last_seq`).Scan(&late); err != nil || late > 0 {
				t.Errorf("%d messages show only after the newest event, %v", late, err)
			}
			lease := f.ClaimTask(in.Task.ID)
			if lease.Read != 1 {
				t.Errorf("the run begins after message %d, want 1: the newest one of the client is new", lease.Read)
			}
			f.Append(lease, storetest.Status(a2a.StateCompleted))
			f.Invariants()
		})
	}
}

func TestImportFailsTask(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := imported(a2a.StateWorking)
	why := storetest.Message("m5", "The server was replaced")
	why.Role = a2a.RoleAgent
	in.Fail = &why
	importAll(f, in)
	got := f.Snapshot(in.Task.ID)
	if got.Status.State != a2a.StateFailed || got.Status.Message.ID != "m5" || len(got.History) != 4 {
		t.Errorf("the task is %+v", got)
	}
	if !got.Status.Time.After(got.CreatedAt) {
		t.Errorf("created %s, failed %s", got.CreatedAt, got.Status.Time)
	}
	f.Invariants()
}

func TestImportTwiceStoresOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	first, second := imported(a2a.StateCompleted), imported(a2a.StateCompleted)
	importAll(f, first)
	changed := imported(a2a.StateFailed)
	changed.Task.ID = first.Task.ID
	foreign := imported(a2a.StateCompleted)
	foreign.Task.ID, foreign.Owner = first.Task.ID, "bob"
	native := imported(a2a.StateCompleted)
	native.Task.ID = f.NewTask()
	other := first
	other.Agent = "other"
	list := []tasks.Import{second, changed, foreign, native, first, other, second}
	want := []tasks.ImportOutcome{
		tasks.ImportStored, tasks.ImportChanged, tasks.ImportIDInUse, tasks.ImportIDInUse, tasks.ImportKnown,
		tasks.ImportOtherAgent, tasks.ImportKnown,
	}
	dry, err := f.Store.Tasks.Imported(t.Context(), list)
	if err != nil || !slices.Equal(dry[:6], want[:6]) {
		t.Errorf("a dry run says %v, want %v; %v", dry, want, err)
	}
	if got := importAll(f, list...); !slices.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
	if got := f.Snapshot(first.Task.ID); got.Status.State != a2a.StateCompleted || got.LastSeq != 5 {
		t.Errorf("the first import has changed: %+v", got)
	}
	f.Invariants()
}

// Of many tasks with one id, the first of the list is stored. An unstable sort would choose another one.
func TestImportStoresTheFirstOfEqualIDs(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	var list []tasks.Import
	for range 30 {
		list = append(list, imported(a2a.StateCompleted))
	}
	for i := range 30 {
		second := imported(a2a.StateFailed)
		second.Task.ID = list[i].Task.ID
		list = append(list, second)
	}
	for i, got := range importAll(f, list...) {
		want := tasks.ImportStored
		if i >= 30 {
			want = tasks.ImportChanged
		}
		if got != want {
			t.Fatalf("outcome %d of element %d, want %d", got, i, want)
		}
	}
	f.Invariants()
}

func TestImportedTaskIsPurgedWithItsKey(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := imported(a2a.StateCompleted)
	importAll(f, in)
	if n, err := f.Store.Tasks.Purge(t.Context(), tasks.PurgeFilter{Task: in.Task.ID}); n != 1 || err != nil {
		t.Fatalf("%d purged, %v", n, err)
	}
	f.Invariants() // no key without its task
	if got := importAll(f, in); got[0] != tasks.ImportStored {
		t.Errorf("outcome %d after the purge", got[0])
	}
}

func TestImportOfTheFutureIsOfNow(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for name, at := range map[string]time.Time{"none": {}, "future": time.Now().Add(24 * time.Hour)} {
		in := imported(a2a.StateCompleted)
		in.Task.Status.Time = at
		importAll(f, in)
		if got := f.Snapshot(in.Task.ID).Status.Time; got.After(time.Now().Add(time.Hour)) || got.Year() < 2026 {
			t.Errorf("%s: the status is of %s", name, got)
		}
	}
	f.Invariants()
}

func TestImportStartsWebhooksAfterTheImport(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	in := imported(a2a.StateInputRequired)
	in.Webhooks = append(in.Webhooks, webhook("h"))
	importAll(f, in)
	claims := func() int {
		list, err := f.Store.Webhooks.Claim(t.Context(), 5, 5, storetest.TTL)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := claims(); n != 0 {
		t.Errorf("%d deliveries of what was imported", n)
	}
	f.Say(in.Task.ID, "By train")
	if n := claims(); n != 1 {
		t.Errorf("%d deliveries of what followed, want 1", n)
	}
	f.Invariants()
}

func TestImportedTasksAreRetired(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	old, young := imported(a2a.StateCompleted), imported(a2a.StateCompleted)
	old.Task.ID[0], young.Task.ID[0] = 0x80, 0x90 // beyond every id that this server makes
	young.Task.Status.Time = time.Time{}
	importAll(f, old, young)
	decide := func(e tasks.Ended) tasks.Fate {
		if e.For > 24*time.Hour {
			return tasks.Delete
		}
		return tasks.Keep
	}
	got, err := f.Store.Tasks.Retire(t.Context(), a2a.ID{}, time.Hour, 10, decide)
	if err != nil || !got.At.IsZero() {
		t.Errorf("the scan by creation reads %s, %v", got.At, err)
	}
	got, err = f.Store.Tasks.RetireImported(t.Context(), a2a.ID{}, 10, decide)
	if err != nil || got.Deleted != 1 || len(got.Left) != 1 || got.Left[0].ID != young.Task.ID {
		t.Errorf("got %+v, %v", got, err)
	}
	f.Invariants()
}
