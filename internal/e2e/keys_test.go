package e2e_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// refused reports whether err is an error of the server with this code.
func refused(err error, code int) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Code == code
}

// sendCopies sends n copies at once, to the replicas in turn, and returns the tasks.
func (c *cluster) sendCopies(n int, agent string, p client.SendParams, at ...*replica) map[string]int {
	c.t.Helper()
	ctx := bounded(c.t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	tasks := make(map[string]int)
	gate := make(chan struct{})
	for i := range n {
		cl := c.client(at[i%len(at)], agent)
		wg.Go(func() {
			<-gate
			got, err := cl.Send(ctx, p)
			if err != nil {
				c.t.Errorf("copy %d: %v", i, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			tasks[got.TaskID]++
		})
	}
	close(gate)
	wg.Wait()
	return tasks
}

func TestCopiesWithOneKeyMakeOneTask(t *testing.T) {
	t.Parallel()
	const copies = 16
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	message := play(`{"op":"chunk","id":"a","n":3}`)
	message.ID = "same for all"
	keyed := client.SendParams{Message: message, NoWait: true, IdempotencyKey: "k-1"}
	tasks := c.sendCopies(copies, "script", keyed, a, b)
	if len(tasks) != 1 {
		t.Errorf("%d copies with one key made %d tasks, want 1", copies, len(tasks))
	}
	blocking := keyed
	blocking.NoWait, blocking.IdempotencyKey = false, "k-2"
	if tasks := c.sendCopies(copies, "script", blocking, a, b); len(tasks) != 1 {
		t.Errorf("%d blocking copies with one key made %d tasks, want 1", copies, len(tasks))
	}
	bare := keyed
	bare.IdempotencyKey = ""
	if tasks := c.sendCopies(copies, "script", bare, a, b); len(tasks) != copies {
		t.Errorf("%d copies without a key made %d tasks, want %d", copies, len(tasks), copies)
	}
	if tasks := c.sendCopies(copies, "once", bare, a, b); len(tasks) != 1 {
		t.Errorf("%d copies to an agent that dedupes by message id made %d tasks, want 1", copies, len(tasks))
	}

	before := one[int](c, `SELECT count(*) FROM audit.message`)
	for what, other := range map[string]client.SendParams{
		"another body":  {Message: say("something else"), NoWait: true, IdempotencyKey: "k-1"},
		"another agent": keyed,
	} {
		agent := "script"
		if what == "another agent" {
			agent = "echo"
		}
		if got, err := c.client(b, agent).Send(bounded(t), other); !refused(err, -32602) {
			t.Errorf("%s under a used key: task %s, %v, want -32602", what, got.TaskID, err)
		}
	}
	changed := bare
	changed.Message = say("something else")
	changed.Message.ID = message.ID
	if got, err := c.client(a, "once").Send(bounded(t), changed); !refused(err, -32602) {
		t.Errorf("another body under a used message id: task %s, %v, want -32602", got.TaskID, err)
	}
	if after := one[int](c, `SELECT count(*) FROM audit.message`); after != before {
		t.Errorf("refused messages left %d rows", after-before)
	}
}

// The answer to a question is sent more than once.
func TestKeyedMessageToATaskIsAppliedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	asked, err := c.client(a, "script").Send(bounded(t),
		client.SendParams{Message: play(`{"op":"input","text":"?"},{"op":"input","text":"and?"},{"op":"complete"}`)})
	if err != nil || asked.State != a2a.StateInputRequired {
		t.Fatalf("%s, %v", asked.State, err)
	}
	answer := say("yes")
	answer.TaskID, answer.ID = asked.TaskID, "answer"
	p := client.SendParams{Message: answer, IdempotencyKey: "k"}
	if tasks := c.sendCopies(8, "script", p, a, b); len(tasks) != 1 || tasks[asked.TaskID] != 8 {
		t.Errorf("tasks %v, want only %s", tasks, asked.TaskID)
	}
	if n := one[int](c, `SELECT count(*) FROM audit.message WHERE message_id = 'answer'`); n != 1 {
		t.Errorf("the answer occurs %d times, want once", n)
	}
	if state := c.state(asked.TaskID); state != "INPUT_REQUIRED" {
		t.Errorf("the task is %s, want it to ask its second question", state)
	}
	if _, err := c.client(a, "script").Cancel(bounded(t), asked.TaskID); err != nil {
		t.Error(err)
	}
}

func TestReplayedStreamResumes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.start("a"), c.start("b")
	p := client.SendParams{Message: play(`{"op":"chunk","id":"a","n":20,"every_ms":30}`), IdempotencyKey: "k"}
	p.Message.ID = client.NewMessageID()
	first := follow(t, c.client(a, "script").Stream(bounded(t), p, client.StreamOptions{}), atChunk("a", 5))
	last := first[len(first)-1]

	rest := follow(t, c.client(b, "script").Stream(bounded(t), p, client.StreamOptions{LastEventID: last.ID}), nil)
	if rest[0].Seq != last.Seq+1 || rest[0].Gap {
		t.Errorf("the replay continues with seq %d (gap %t), want %d", rest[0].Seq, rest[0].Gap, last.Seq+1)
	}
	endsWith(t, rest, a2a.StateCompleted)

	whole := follow(t, c.client(b, "script").Stream(bounded(t), p, client.StreamOptions{}), nil)
	if whole[0].Kind != client.KindTask || whole[0].State != a2a.StateCompleted || len(chunks(whole, "a")) != 20 {
		t.Errorf("a replay without an id begins with %s", whole[0].Raw)
	}
	endsWith(t, whole, a2a.StateCompleted)
	if n := one[int](c, `SELECT count(*) FROM audit.task`); n != 1 {
		t.Errorf("%d tasks, want 1", n)
	}
}

// A client resumes after events that this task does not have.
func TestLastEventIDOfAnotherLogIsAGap(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	g := newGate(t)
	task := submit(t, c.client(a, "script"), play(`{"op":"chunk","id":"a","n":3},`+g.op()))
	until(t, "the chunks are in the log",
		func() bool { return one[int](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task) == 5 })
	last := one[string](c,
		`SELECT seq || '-' || left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 ORDER BY seq DESC
			LIMIT 1`, task)
	submit(t, c.client(a, "script"), play(`{"op":"complete"}`))
	foreign := one[string](c,
		`SELECT seq || '-' || left(event_uid::text, 8) FROM audit.event WHERE task_id::text <> $1 ORDER BY seq LIMIT 1`,
		task)
	for _, id := range []string{"3-00000000", "999-" + last[len(last)-8:], "0-12345678", "nonsense", "-1-00000000",
		last + "0", "9223372036854775808-00000000", "1; drop table a2a.tasks", "1-00000000; --",
		strings.Repeat("9", 1000), foreign} {
		events := follow(t, c.client(a, "script").Resubscribe(bounded(t), task, client.StreamOptions{LastEventID: id}),
			func(client.Event) bool { return true })
		if events[0].Kind != client.KindTask || !events[0].Gap || events[0].ID != last {
			t.Errorf("after %s: %s %s (gap %t), want the Task %s marked as a gap", id, events[0].Kind, events[0].ID,
				events[0].Gap, last)
		}
	}
	if got := c.post(a, "/agents/script", request("tasks/resubscribe", `{"id":"`+task+`"}`), "Last-Event-ID",
		strings.Repeat("1", 40<<10)); got.status != 431 {
		t.Errorf("an id longer than a header may be: %d %s", got.status, got.body)
	}
	g.open()
}
