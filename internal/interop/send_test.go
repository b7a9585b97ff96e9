package interop

import (
	"slices"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/google/uuid"
)

func TestBlockingSendReturnsTheFinishedTask(t *testing.T) {
	t.Parallel()
	p := dial(t, echoAgent)
	m := message("hello, wörld")
	before := time.Now()
	task := p.send(m)
	checkState(t, task, a2a.TaskStateCompleted)
	if got := texts(t, task, "echo-1"); !slices.Equal(got, []string{"hello, wörld"}) {
		t.Errorf("the artifact is %q", got)
	}
	if _, err := uuid.Parse(string(task.ID)); err != nil || task.ContextID == "" {
		t.Errorf("the task is %q in context %q", task.ID, task.ContextID)
	}
	// Both use the same clock, but the wire has milliseconds.
	if at := task.Status.Timestamp; at == nil || at.Before(before.Truncate(time.Millisecond)) || at.After(time.Now()) ||
		at.Location() != time.UTC {
		t.Errorf("the time of the status is %v, the request was made at %v", at, before)
	}
	m.TaskID, m.ContextID = task.ID, task.ContextID
	checkSame(t, "history", task.History, []*a2a.Message{m})
	checkSame(t, "tasks/get", p.get(task.ID), task)
}

func TestPollingSendReturnsAtOnceAndTheTaskContinues(t *testing.T) {
	t.Parallel()
	p, g := dial(t, scriptAgent, polling()), newGate(t)
	task := p.send(script(g.op(), op{"op": "artifact", "id": "a", "text": "done"}))
	if task.Status.State.Terminal() {
		t.Fatalf("the task is %s while its agent waits", task.Status.State)
	}
	s := p.resubscribe(task.ID)
	s.first()
	g.open()
	checkStream(t, s.rest())
	task = p.get(task.ID)
	checkState(t, task, a2a.TaskStateCompleted)
	if got := texts(t, task, "a"); !slices.Equal(got, []string{"done"}) {
		t.Errorf("the artifact is %q", got)
	}
}

func TestBlockingSendReturnsAtItsTimeLimit(t *testing.T) {
	t.Parallel()
	at, g := newAddress(t, "--blocking-max-wait", "50ms"), newGate(t)
	p := dialAt(t, at.url(), scriptAgent)
	task := p.send(script(g.op()))
	if task.Status.State.Terminal() {
		t.Errorf("the task is %s while its agent waits", task.Status.State)
	}
	s := p.resubscribe(task.ID)
	s.first()
	g.open()
	checkStream(t, s.rest())
	checkState(t, p.get(task.ID), a2a.TaskStateCompleted)
}

func TestSendWithoutContextStartsOneAndWithContextJoinsIt(t *testing.T) {
	t.Parallel()
	p := dial(t, echoAgent)
	first, other := p.send(message("one")), p.send(message("two"))
	if first.ContextID == other.ContextID {
		t.Error("two messages without a context have the same")
	}
	m := message("three")
	m.ContextID, m.ReferenceTasks = first.ContextID, []a2a.TaskID{first.ID}
	joined := p.send(m)
	if joined.ContextID != first.ContextID || joined.ID == first.ID {
		t.Errorf("the message led to %+v, want a new task beside %+v", joined.TaskInfo(), first.TaskInfo())
	}
	checkSame(t, "references", joined.History[0].ReferenceTasks, []a2a.TaskID{first.ID})
	m = message("four")
	m.ContextID = a2a.NewContextID()
	if task := p.send(m); task.ContextID != m.ContextID {
		t.Errorf("the context is %s, want the client's own, %s", task.ContextID, m.ContextID)
	}
}

func TestGetReturnsTheNewestOfTheHistory(t *testing.T) {
	t.Parallel()
	p := dial(t, scriptAgent)
	task := p.send(script(op{"op": "input", "text": "which?"}, op{"op": "input", "text": "and how?"}))
	task = p.send(reply(task, "this"))
	task = p.send(reply(task, "so"))
	checkState(t, task, a2a.TaskStateCompleted)
	whole := p.get(task.ID).History
	var said []string
	for _, m := range whole[1:] {
		said = append(said, text(t, m.Parts[0]))
	}
	if want := []string{"which?", "this", "and how?", "so"}; !slices.Equal(said, want) {
		t.Fatalf("the history after the script is %q, want %q", said, want)
	}
	for n := range len(whole) + 2 {
		task, err := p.GetTask(testContext(t), &a2a.TaskQueryParams{ID: task.ID, HistoryLength: &n})
		if err != nil {
			t.Fatalf("get with a history of %d: %v", n, err)
		}
		checkSame(t, "history", task.History, whole[len(whole)-min(n, len(whole)):])
	}
}

func TestSendHonorsTheHistoryLength(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*peer{"blocking": dial(t, echoAgent), "polling": dial(t, echoAgent, polling())} {
		for _, n := range []int{0, 1} {
			result, err := p.SendMessage(testContext(t),
				&a2a.MessageSendParams{Message: message("hello"), Config: &a2a.MessageSendConfig{HistoryLength: &n}})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(p.task(result).History); got != n {
				t.Errorf("%s: the history has %d messages, want %d", name, got, n)
			}
		}
	}
}

func TestIdempotencyKeyHeaderFindsTheTask(t *testing.T) {
	t.Parallel()
	p := dial(t, echoAgent, headers(map[string]string{"Idempotency-Key": a2a.NewMessageID()}))
	m := message("once")
	first := p.send(m)
	checkSame(t, "the task of the repeated message", p.send(m), first)
	checkSame(t, "the task of the repeated message, as a stream", fold(t, p.stream(m).rest()), first)
}

func TestTasksAreListedInPages(t *testing.T) {
	t.Parallel()
	p := dial(t, echoAgent)
	var want []a2a.TaskID
	context := a2a.NewContextID()
	for range 5 {
		m := message("hello")
		m.ContextID = context
		want = append(want, p.send(m).ID)
	}
	p.send(message("of another context"))
	slices.Reverse(want) // the newest is first

	var got []a2a.TaskID
	req := &a2a.ListTasksRequest{ContextID: context, Status: a2a.TaskStateCompleted, PageSize: 2, HistoryLength: 1,
		IncludeArtifacts: true}
	for range 3 {
		page := p.list(req)
		if page.TotalSize != 5 || page.PageSize != 2 {
			t.Errorf("the page says %d of %d", page.PageSize, page.TotalSize)
		}
		for _, task := range page.Tasks {
			got = append(got, task.ID)
			checkSame(t, "the task in the list", task, p.get(task.ID))
		}
		req.PageToken = page.NextPageToken
	}
	checkSame(t, "tasks in the list", got, want)
	if req.PageToken != "" {
		t.Errorf("after the last page there is another one, %q", req.PageToken)
	}

	newest := p.get(want[0]).Status.Timestamp
	list := p.list(&a2a.ListTasksRequest{ContextID: context, LastUpdatedAfter: newest})
	if len(list.Tasks) == 0 || list.Tasks[0].ID != want[0] || list.TotalSize == 5 {
		t.Errorf("%d tasks are as new as the newest", list.TotalSize)
	}
	if list := p.list(&a2a.ListTasksRequest{ContextID: context, Status: a2a.TaskStateWorking}); len(list.Tasks) != 0 {
		t.Errorf("%d finished tasks are working", len(list.Tasks))
	}
}

func (p *peer) list(req *a2a.ListTasksRequest) *a2a.ListTasksResponse {
	p.t.Helper()
	list, err := p.ListTasks(testContext(p.t), req)
	if err != nil {
		p.t.Fatalf("list: %v", err)
	}
	return list
}
