package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

// story is the life of one task, and what the test knows of it without the database.
type story struct {
	*storetest.Fixture
	task  a2a.ID
	lease *tasks.Lease // nil: no worker has one
	state a2a.State
	last  int64 // newest event
	said  []said
	seen  map[int64]*a2a.Task // by event: what Snapshot returned when it was the newest
	n     int
}

// said is a message, with the first event whose snapshot has it and the event whose status it is.
type said struct {
	message      a2a.Message
	from, status int64
}

// text returns a text that no other message has.
func (s *story) text() string {
	s.n++
	return fmt.Sprint(s.n)
}

// wrote records n more events, and the snapshot after the last of them.
func (s *story) wrote(n int64, state a2a.State) {
	if s.last += n; state != a2a.StateNone {
		s.state = state
	}
	now := s.Snapshot(s.task)
	if now.LastSeq != s.last || now.Status.State != s.state {
		s.T.Fatalf("the task is %s at %d, want %s at %d", now.Status.State, now.LastSeq, s.state, s.last)
	}
	s.seen[s.last] = now
}

func (s *story) begin() {
	in := storetest.Submission(s.text())
	s.task = s.Submit(in).Task
	s.said = append(s.said, said{message: in.Message, from: 1})
	s.wrote(1, a2a.StateSubmitted)
}

func (s *story) claim() {
	s.lease = s.ClaimTask(s.task)
	s.wrote(1, a2a.StateWorking)
}

// client adds a message. That adds an event if the task waits for the client.
func (s *story) client() {
	text := s.text()
	out := s.Say(s.task, text)
	s.said = append(s.said, said{message: storetest.Message("m-"+text, text), from: s.last + 1})
	if out.Resumed != s.state.Interrupted() {
		s.T.Fatalf("a message to a task that is %s: resumed = %v", s.state, out.Resumed)
	}
	if out.Resumed {
		s.wrote(1, a2a.StateSubmitted)
	}
}

// report appends events of a run. Only the last one may end its turn.
func (s *story) report(events ...a2a.Event) {
	state := a2a.StateNone
	for i, e := range events {
		u, ok := e.(*a2a.StatusUpdate)
		if !ok {
			continue
		}
		if state = u.Status.State; u.Status.Message != nil {
			at := s.last + int64(i) + 1
			s.said = append(s.said, said{*u.Status.Message, at, at})
		}
	}
	out := s.Append(s.lease, events...)
	if state != a2a.StateNone {
		state = out.State
	}
	if out.State.EndsTurn() || out.Requeued {
		s.lease = nil
	}
	s.wrote(int64(len(events)), state)
}

// lose lets the worker die. The policy of the agent decides about the task.
func (s *story) lose(fate string, state a2a.State) {
	s.Expire(s.task)
	policy := tasks.Policy{Agent: storetest.Agent, Fate: fate, MaxAttempts: 100}
	others := tasks.Policy{MaxAttempts: 100}
	if _, err := s.Tasks.Rescue(s.T.Context(), []tasks.Policy{policy}, others, 100); err != nil {
		s.T.Fatal(err)
	}
	s.lease = nil
	m := s.Snapshot(s.task).Status.Message
	s.said = append(s.said, said{*m, s.last + 1, s.last + 1})
	s.wrote(1, state)
}

func (s *story) cancel() {
	if _, err := s.Tasks.Cancel(s.T.Context(), storetest.Ann, storetest.Agent, s.task); err != nil {
		s.T.Fatal(err)
	}
	s.lease = nil
	s.wrote(1, a2a.StateCanceled)
}

// expected returns the task as it was at an event, from the log and the messages.
func (s *story) expected(log []a2a.Entry, seq int64) *a2a.Task {
	now := s.Snapshot(s.task)
	t := &a2a.Task{
		ID: s.task, Agent: now.Agent, ContextID: now.ContextID, CreatedAt: now.CreatedAt, LastSeq: seq,
		LastUID: log[seq-1].UID,
	}
	var status int64
	for _, e := range log[:seq] {
		switch ev := e.Event.(type) {
		case *a2a.StatusUpdate:
			t.Status, status = ev.Status, e.Seq
		case *a2a.ArtifactUpdate:
			t.Artifacts = a2a.Fold(t.Artifacts, ev)
		}
	}
	for _, m := range s.said {
		if m.from <= seq && m.status != status {
			t.History = append(t.History, m.message)
		}
	}
	return t
}

// check compares SnapshotAt at every event with the log, and with the snapshot of that time.
func (s *story) check(t cmpReporter) {
	log := s.Log(s.task)
	for seq := int64(1); seq <= s.last; seq++ {
		got := s.at(seq, tasks.Want{Artifacts: true})
		want := s.expected(log, seq)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("at %d of %d (-want +got):\n%s", seq, s.last, diff)
		}
		if then := s.seen[seq]; then != nil {
			if diff := cmp.Diff(then, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("at %d of %d (-at that time +now):\n%s", seq, s.last, diff)
			}
		}
		for n := range 3 {
			few := s.at(seq, tasks.Want{History: &n})
			newest := want.History[max(0, len(want.History)-n):]
			diff := cmp.Diff(newest, few.History, cmpopts.EquateEmpty())
			if diff != "" || few.Artifacts != nil {
				t.Fatalf("at %d of %d with %d messages: %d artifacts\n%s", seq, s.last, n, len(few.Artifacts), diff)
			}
		}
	}
}

type cmpReporter interface {
	Fatalf(format string, args ...any)
}

func (s *story) at(seq int64, w tasks.Want) *a2a.Task {
	s.T.Helper()
	got, err := s.Tasks.SnapshotAt(s.T.Context(), s.task, seq, w)
	if err != nil {
		s.T.Fatalf("snapshot at %d: %v", seq, err)
	}
	return got
}

// Whatever happens to a task, SnapshotAt of an event matches the log, and what Snapshot returned when that event was
// the newest.
func TestSnapshotAtMatchesEveryEvent(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	event := rapid.Custom(func(t *rapid.T) a2a.Event {
		id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "artifact")
		text := rapid.StringN(0, 3, 10).Draw(t, "text")
		switch rapid.IntRange(0, 3).Draw(t, "event") {
		case 0:
			return storetest.Status(a2a.StateWorking)
		case 1:
			return storetest.Status(a2a.StateWorking, "s-"+rapid.StringMatching("[a-z]{8}").Draw(t, "says"))
		case 2:
			return storetest.Artifact(id, text)
		}
		return storetest.Chunk(id, text, text)
	})
	rapid.Check(t, func(t *rapid.T) {
		s := &story{Fixture: f, seen: map[int64]*a2a.Task{}}
		s.begin()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			s.step(t, event)
		}
		s.check(t)
	})
}

// step does one thing that can happen to the task in its present state.
func (s *story) step(t *rapid.T, event *rapid.Generator[a2a.Event]) {
	if s.state.Terminal() {
		return
	}
	steps := []string{"client", "client", "cancel"}
	switch {
	case s.lease != nil:
		steps = append(steps, "report", "report", "report", "ask", "complete", "lose", "fail")
	case !s.state.Interrupted():
		steps = append(steps, "claim", "claim", "claim")
	}
	switch rapid.SampledFrom(steps).Draw(t, "step") {
	case "client":
		s.client()
	case "cancel":
		s.cancel()
	case "claim":
		s.claim()
	case "report":
		s.report(rapid.SliceOfN(event, 1, 4).Draw(t, "events")...)
	case "ask":
		s.report(storetest.Status(a2a.StateInputRequired, "ask"+s.text()))
	case "complete":
		s.report(append(rapid.SliceOfN(event, 0, 2).Draw(t, "events"), storetest.Status(a2a.StateCompleted))...)
	case "lose":
		s.lose("input-required", a2a.StateInputRequired)
	case "fail":
		s.lose("fail", a2a.StateFailed)
	}
}

// A webhook that is sent again must have the same bytes, even if the client has sent messages since.
func TestSnapshotAtStaysTheSame(t *testing.T) {
	t.Parallel()
	s := &story{Fixture: storetest.Open(t), seen: map[int64]*a2a.Task{}}
	s.begin()
	s.claim()
	s.report(storetest.Status(a2a.StateWorking, "one moment"), storetest.Chunk("a", "x"))
	before := s.at(s.last, tasks.Want{Artifacts: true})
	s.client()
	storetest.Same(t, "the snapshot at the newest event", before, s.at(s.last, tasks.Want{Artifacts: true}))
	if n := len(s.Snapshot(s.task).History); n != len(before.History)+1 {
		t.Errorf("the task has %d messages, want one more than at the event, %d", n, len(before.History))
	}
	s.report(storetest.Status(a2a.StateWorking))
	if got := s.at(s.last, tasks.Want{}).History; !slices.ContainsFunc(got, func(m a2a.Message) bool {
		return m.ID == s.said[len(s.said)-1].message.ID
	}) {
		t.Errorf("the snapshot of the next event has no message: %+v", got)
	}
	s.check(t)
	s.Invariants()
}

func TestSnapshotAtAnUnknownEventIsNotFound(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	task := f.NewTask()
	for _, seq := range []int64{-1, 0, 2, 1 << 40} {
		_, err := f.Tasks.SnapshotAt(t.Context(), task, seq, tasks.Want{})
		storetest.WantCode(t, err, a2a.CodeTaskNotFound)
	}
	_, err := f.Tasks.SnapshotAt(t.Context(), db.NewTaskID(), 1, tasks.Want{})
	storetest.WantCode(t, err, a2a.CodeTaskNotFound)
	if got, err := f.Tasks.SnapshotAt(t.Context(), task, 1, tasks.Want{}); err != nil ||
		got.Status.Time.Truncate(time.Millisecond) != got.Status.Time {
		t.Errorf("%+v, %v", got, err)
	}
}

// Each of several tasks is read as alone, and has a limit of its own.
func TestSnapshotsAtReadEachTaskApart(t *testing.T) {
	t.Parallel()
	f := storetest.Open(t)
	small, large := f.RunningTask(), f.RunningTask()
	f.Append(small, storetest.Chunk("a", "x"))
	f.Append(large, storetest.Chunk("b", strings.Repeat("y", 20_000)))
	f.Append(small, storetest.Status(a2a.StateWorking, "on it"))
	at := []tasks.Moment{{Task: large.TaskID, Seq: 3}, {Task: small.TaskID, Seq: 3}, {Task: db.NewTaskID(), Seq: 1}}
	for _, most := range []int64{0, 16 << 10} {
		w := tasks.Want{Artifacts: true, Most: most}
		read, err := f.Tasks.SnapshotsAt(t.Context(), at, w)
		if err != nil || len(read) != len(at) {
			t.Fatalf("%d tasks, %v", len(read), err)
		}
		for i, m := range at {
			want, err := f.Tasks.SnapshotAt(t.Context(), m.Task, m.Seq, w)
			var much *tasks.TooMuch
			tooMuch := most > 0 && i == 0
			if errors.As(err, &much) != tooMuch || errors.As(read[i].Err, &much) != tooMuch {
				t.Errorf("%d of at most %d: %v, alone %v", i, most, read[i].Err, err)
			}
			storetest.Same(t, "the task", want, read[i].Task)
		}
		storetest.WantCode(t, read[2].Err, a2a.CodeTaskNotFound)
	}
}
