package tasks_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestArtifactsAreTheFoldOfTheLog(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		events []a2a.Event
	}{
		{"none", nil},
		{"one whole", []a2a.Event{storetest.Artifact("a", "1", "2")}},
		{
			"chunks",
			[]a2a.Event{storetest.Artifact("a", "1"), storetest.Chunk("a", "2"), storetest.Chunk("a", "3", "4")},
		},
		{"a chunk of an unknown artifact makes it", []a2a.Event{storetest.Chunk("a", "1"), storetest.Chunk("a", "2")}},
		{
			"a whole one supersedes",
			[]a2a.Event{
				storetest.Artifact("a", "1"), storetest.Chunk("a", "2"), storetest.Artifact("a", "3"),
				storetest.Chunk("a", "4"),
			},
		},
		{
			"a whole one supersedes chunks, in place",
			[]a2a.Event{storetest.Chunk("a", "1"), storetest.Artifact("b", "2"), storetest.Artifact("a", "3")},
		},
		{
			"order is that of the first event",
			[]a2a.Event{
				storetest.Artifact("b", "1"), storetest.Artifact("a", "2"), storetest.Artifact("b", "3"),
				storetest.Chunk("c", "4"), storetest.Artifact("a", "5"),
			},
		},
		{
			"interleaved",
			[]a2a.Event{
				storetest.Chunk("a", "1"), storetest.Chunk("b", "2"), storetest.Status(a2a.StateWorking, "x"),
				storetest.Chunk("a", "3"), storetest.Chunk("b", "4"),
			},
		},
		{
			"no parts",
			[]a2a.Event{
				storetest.Artifact("a"), storetest.Chunk("b"), storetest.Chunk("a", "1"), storetest.Artifact("c", "1"),
				storetest.Artifact("c"),
			},
		},
		{"text with NUL", []a2a.Event{storetest.Artifact("a", "\x00"), storetest.Chunk("a", "b\x00c")}},
	}
	f := storetest.Open(t)
	for _, tt := range tests {
		want := storetest.Fold(tt.events)
		living := f.RunningTask()
		f.Append(living, tt.events...)
		storetest.Same(t, tt.name+", living", want, f.Snapshot(living.TaskID).Artifacts)
		f.Append(living, storetest.Status(a2a.StateWorking))
		storetest.Same(t, tt.name+", living, one event later", want, f.Snapshot(living.TaskID).Artifacts)
		f.Append(living, storetest.Status(a2a.StateFailed))
		storetest.Same(t, tt.name+", ended", want, f.Snapshot(living.TaskID).Artifacts)
		together := f.RunningTask()
		f.Append(together, append(slices.Clone(tt.events), storetest.Status(a2a.StateCompleted))...)
		storetest.Same(t, tt.name+", ended at once", want, f.Snapshot(together.TaskID).Artifacts)
	}
	f.Invariants()
}

// artifactUpdates draws events of only a few artifacts, so that several events are of the same one.
func artifactUpdates(t *rapid.T) []a2a.Event {
	var events []a2a.Event
	for range rapid.IntRange(0, 5).Draw(t, "events") {
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			s := a2atest.Status().Draw(t, "status")
			s.State, s.Time = a2a.StateWorking, time.Time{}
			if s.Message != nil { // not stored in the message: they are those of the task
				s.Message.ContextID, s.Message.TaskID = "", ""
			}
			events = append(events, &a2a.StatusUpdate{Status: s})
			continue
		}
		a := a2atest.Artifact().Draw(t, "artifact")
		a.ID = rapid.SampledFrom([]string{"a", "b", "\u2028"}).Draw(t, "id")
		if rapid.IntRange(0, 4).Draw(t, "empty") == 0 {
			a.Parts = nil
		}
		events = append(events, &a2a.ArtifactUpdate{
			Artifact: a, Append: rapid.Bool().Draw(t, "append"), LastChunk: rapid.Bool().Draw(t, "last"),
		})
	}
	return events
}

func TestAnyListOfEventsReadsTheSameBeforeAndAfterFolding(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	end := time.Now().Add(2 * time.Second) // time for some dozens of lists
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(end) {
			return
		}
		l := f.RunningTask()
		var all []a2a.Event
		check := func(when string) {
			t.Helper()
			got := f.Snapshot(l.TaskID)
			storetest.Same(rt, when+": artifacts", storetest.Fold(all), got.Artifacts)
			logged := f.Log(l.TaskID)
			if got.LastSeq != int64(len(logged)) || got.LastUID != logged[len(logged)-1].UID {
				rt.Fatalf("%s: the snapshot is of event %d, the log has %d", when, got.LastSeq, len(logged))
			}
			var read []a2a.Event
			for _, e := range logged[2:] {
				if u, ok := e.Event.(*a2a.StatusUpdate); ok {
					u.Status.Time = time.Time{}
				}
				read = append(read, e.Event)
			}
			storetest.Same(rt, when+": log", all, read)
		}
		for range rapid.IntRange(1, 3).Draw(rt, "batches") {
			if events := artifactUpdates(rt); len(events) > 0 {
				f.Append(l, events...)
				all = append(all, events...)
			}
			check("living")
		}
		end := append(artifactUpdates(rt), storetest.Status(a2a.StateCompleted))
		f.Append(l, end...)
		all = append(all, end...)
		check("ended")
	})
	f.Invariants()
}

func TestSnapshotReadsOnlyWhatIsWanted(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	f.Append(l, storetest.Artifact("a", "x"), storetest.Status(a2a.StateWorking, "one"),
		storetest.Status(a2a.StateWorking, "two"))
	for _, tt := range []struct {
		name      string
		want      tasks.Want
		history   int
		artifacts int
	}{
		{"all", tasks.Want{Artifacts: true}, 2, 1},
		{"no artifacts", tasks.Want{}, 2, 0},
		{"no history", tasks.Want{History: new(int), Artifacts: true}, 0, 1},
		{"one message", tasks.Want{History: ptr(1)}, 1, 0},
		{"more than there are", tasks.Want{History: ptr(1 << 40)}, 2, 0},
	} {
		got, err := f.Tasks.SnapshotOfAny(t.Context(), l.TaskID, tt.want)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.History) != tt.history || len(got.Artifacts) != tt.artifacts || got.Status.Message == nil ||
			got.Status.Message.ID != "agent-two" {
			t.Errorf("%s: %d messages, %d artifacts, status message %+v",
				tt.name, len(got.History), len(got.Artifacts), got.Status.Message)
		}
	}
	_, err := f.Tasks.SnapshotOfAny(t.Context(), db.NewTaskID(), tasks.Want{})
	storetest.WantCode(t, err, a2a.CodeTaskNotFound)
}

func ptr[T any](v T) *T { return &v }

func TestSnapshotsKeepTheOrderAskedFor(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	var want []a2a.ID
	for i := range 6 {
		l := f.RunningTask()
		f.Append(l, storetest.Artifact("a", fmt.Sprint(i)))
		if i%2 == 0 {
			f.Append(l, storetest.Status(a2a.StateCompleted, fmt.Sprint(i)))
		}
		want = append([]a2a.ID{l.TaskID}, want...)
	}
	asked := slices.Insert(slices.Clone(want), 3, db.NewTaskID())
	taskList, err := f.Tasks.Snapshots(t.Context(), storetest.Ann, asked, tasks.Want{Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []a2a.ID
	for i, task := range taskList {
		got = append(got, task.ID)
		if text := task.Artifacts[0].Parts[0].Text; text != fmt.Sprint(5-i) {
			t.Errorf("task %d has the artifact %q", i, text)
		}
	}
	storetest.Same(t, "order", want, got)
}

func TestHeadIsOnlyForTheOwner(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	l := f.RunningTask()
	got, err := f.Tasks.Head(t.Context(), storetest.Ann, l.TaskID)
	if err != nil {
		t.Fatal(err)
	}
	want := tasks.Head{Agent: storetest.Agent, ContextID: "ctx", State: a2a.StateWorking, LastSeq: 2, Bytes: got.Bytes}
	storetest.Same(t, "head", want, got)
	_, err = f.Tasks.Snapshot(t.Context(), storetest.Ann, l.TaskID, tasks.Want{Artifacts: true, Most: 1})
	if much := (*tasks.TooMuch)(nil); !errors.As(err, &much) || much.Bytes != got.Bytes {
		t.Errorf("the head says %d bytes, a read %v", got.Bytes, err)
	}
	for _, c := range []db.Caller{{Tenant: "acme", Owner: "bob"}, {Tenant: "corp", Owner: "ann"}, {}} {
		_, err := f.Tasks.Head(t.Context(), c, l.TaskID)
		storetest.WantCode(t, err, a2a.CodeTaskNotFound)
	}
}

// listed is a task in the model of the list.
type listed struct {
	id      a2a.ID
	at      time.Time
	context string
	state   a2a.State
}

func TestPagesReturnEveryTaskOnce(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	for _, c := range []db.Caller{{Tenant: "acme", Owner: "bob"}, {Tenant: "corp", Owner: "ann"}} {
		in := storetest.Submission("foreign")
		in.Caller = c
		f.Submit(in)
	}
	other := storetest.Submission("for another agent")
	other.Agent = "other"
	f.Submit(other)
	var all []listed
	states := []a2a.State{a2a.StateSubmitted, a2a.StateWorking, a2a.StateCompleted}
	base := time.UnixMilli(1_700_000_000_000).UTC()
	for i := range 23 {
		in := storetest.Submission("x")
		in.ContextID = fmt.Sprint("ctx", i%3)
		// Five tasks of each time.
		x := listed{
			f.Submit(in).Task, base.Add(time.Duration(i/5) * time.Millisecond), in.ContextID, states[i%len(states)],
		}
		f.Exec("UPDATE a2a.tasks SET status_at = $2, state = $3 WHERE id = $1", x.id, x.at, int16(x.state))
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b listed) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.id.String(), a.id.String()))
	})
	filters := map[string]struct {
		filter tasks.Filter
		keep   func(listed) bool
	}{
		"all":        {tasks.Filter{}, func(listed) bool { return true }},
		"context":    {tasks.Filter{ContextID: "ctx1"}, func(x listed) bool { return x.context == "ctx1" }},
		"no context": {tasks.Filter{ContextID: "none"}, func(listed) bool { return false }},
		"state": {
			tasks.Filter{State: a2a.StateWorking}, func(x listed) bool { return x.state == a2a.StateWorking },
		},
		"since a tie": {tasks.Filter{Since: base.Add(2 * time.Millisecond)}, func(x listed) bool {
			return !x.at.Before(base.Add(2 * time.Millisecond))
		}},
		"since later": {tasks.Filter{Since: base.Add(time.Hour)}, func(listed) bool { return false }},
		"all conditions": {tasks.Filter{
			ContextID: "ctx2", State: a2a.StateCompleted, Since: base.Add(time.Millisecond),
		}, func(x listed) bool {
			return x.context == "ctx2" && x.state == a2a.StateCompleted && !x.at.Before(base.Add(time.Millisecond))
		}},
	}
	for name, tt := range filters {
		var want []tasks.Position
		for _, x := range all {
			if tt.keep(x) {
				want = append(want, tasks.Position{ID: x.id, At: x.at})
			}
		}
		for _, limit := range []int{1, 2, 5, 100} {
			filter := tt.filter
			filter.Agent, filter.Limit = storetest.Agent, limit
			var got []tasks.Position
			for {
				page, total, err := f.Tasks.Page(t.Context(), storetest.Ann, filter)
				if err != nil {
					t.Fatal(err)
				}
				if total.N != len(want) {
					t.Errorf("%s, %d per page: total %d, want %d", name, limit, total.N, len(want))
				}
				if got = append(got, page...); len(page) < limit {
					break
				}
				last := page[len(page)-1]
				filter.BeforeAt, filter.BeforeID = last.At, last.ID
			}
			storetest.Same(t, fmt.Sprintf("%s, %d a page", name, limit), want, got)
		}
	}
}

// A task that does not change is on exactly one page, even if other tasks change between the pages.
func TestPagesAreStableWhileOtherTasksChange(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	f.SubmitMany(20)
	still, err := pageOf(f, tasks.Filter{Agent: storetest.Agent, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(still, func(a, b tasks.Position) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	movers := still[:10]
	still = still[10:]
	var got []tasks.Position
	filter := tasks.Filter{Agent: storetest.Agent, Limit: 3}
	for i := 0; ; i++ {
		page, err := pageOf(f, filter)
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, page...); len(page) < 3 {
			break
		}
		f.NewTask()
		if _, err := f.Tasks.Cancel(t.Context(), storetest.Ann, storetest.Agent, movers[i].ID); err != nil {
			t.Fatal(err)
		}
		filter.BeforeAt, filter.BeforeID = page[2].At, page[2].ID
	}
	seen := map[a2a.ID]int{}
	for _, p := range got {
		seen[p.ID]++
	}
	for _, p := range still {
		if seen[p.ID] != 1 {
			t.Errorf("a task that did not change is on %d pages, want 1", seen[p.ID])
		}
	}
}

func pageOf(f *storetest.Fixture, filter tasks.Filter) ([]tasks.Position, error) {
	page, _, err := f.Tasks.Page(f.T.Context(), storetest.Ann, filter)
	return page, err
}
