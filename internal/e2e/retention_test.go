package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
)

// Retention removes logs and tasks within seconds of their end, while clients send, follow, resume and cancel.
// Running tasks, tasks that wait for their client, and events that a webhook has not received stay.
func TestRetentionUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	keys := seal.Generate("k1")
	var open atomic.Bool
	sink := newHookSink(t, func(int, *http.Request) bool { return !open.Load() })
	// Far longer than a client of the load disconnects from an ended task.
	env := append(hooking(keys), "A2AD_RETENTION=9s", "A2AD_LOG_RETENTION=5s", "A2AD_RETIRE_INTERVAL=100ms",
		"A2AD_PUSH_RETRY=0"+strings.Repeat(",250ms", 400))
	a, b := c.start("a", env...), c.start("b", env...)

	unsettled := make([]string, 3)
	for i := range unsettled {
		unsettled[i] = c.sendHooked(a, fmt.Sprintf(`{"url":"%s/%d"}`, sink.URL, i), `{"op":"chunk","id":"a","n":3}`)
	}
	asks := submit(t, c.client(a, "script"), play(`{"op":"input","text":"?"},{"op":"complete"}`))
	const chunk = `{"op":"chunk","id":"a","n":140,"every_ms":100}`
	long := submit(t, c.client(b, "script"), play(chunk))
	var wg sync.WaitGroup
	var followed []client.Event
	wg.Go(func() {
		var err error
		if followed, err = collect(c.client(a, "script").Resubscribe(bounded(t), long, client.StreamOptions{}),
			nil); err != nil {
			t.Errorf("a stream of a running task: %v", err)
		}
	})
	l := c.startLoad(4, a, b)

	// A client that has seen three events resumes after they are removed.
	left := submit(t, c.client(a, "script"), play(`{"op":"chunk","id":"a","n":4}`))
	c.awaitState(left, "COMPLETED")
	third := one[string](c,
		`SELECT seq || '-' || left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 AND seq = 3`, left)
	until(t, "the log of the task is gone", func() bool {
		first, err := query[int64](c, `SELECT first_seq FROM audit.task WHERE id::text = $1`, left)
		return err == nil && first > 1
	})
	for _, r := range []*replica{a, b} {
		resumed := follow(t, c.client(r, "script").Resubscribe(bounded(t), left,
			client.StreamOptions{LastEventID: third}), nil)
		if first := resumed[0]; first.Kind != client.KindTask || !first.Gap || first.State != a2a.StateCompleted {
			t.Errorf("on %s a resume past the horizon begins with a %s (%s), gap %t; want the current Task "+
				"after a gap", r.name, first.Kind, first.State, first.Gap)
		}
	}
	until(t, "the task itself is gone",
		func() bool { gone, err := query[bool](c, retiredTask, left); return err == nil && gone })
	for _, r := range []*replica{a, b} {
		if _, err := c.client(r, "script").Get(bounded(t), left, -1); !refused(err, -32001) {
			t.Errorf("a task that retention has deleted is answered with %v, want -32001", err)
		}
	}
	until(t, "retention deletes what the load has made", func() bool {
		n, err := query[int](c,
			`SELECT coalesce(sum((detail ->> 'tasks')::int), 0)::int FROM audit.action WHERE action = 'task.retire'`)
		return err == nil && n >= 40
	})
	wg.Wait()
	endsWith(t, followed, a2a.StateCompleted)
	if diff := cmp.Diff(chunkTexts("a", 140), chunks(followed, "a")); diff != "" {
		t.Errorf("chunks of the task that ran all the time (-want +got):\n%s", diff)
	}
	l.finish()

	for _, task := range unsettled {
		if n := one[int](c,
			`SELECT count(*) FROM audit.delivery d JOIN audit.task t ON t.id = d.task_id AND t.first_seq = 1
				AND t.last_seq = 6 WHERE d.task_id::text = $1 AND d.state = 'pending'`, task); n != 6 {
			t.Errorf("%d events wait for the webhook of task %s, want all 6: none was delivered", n, task)
		}
	}
	got, err := c.client(a, "script").Send(bounded(t), client.SendParams{Message: reply(asks, "yes")})
	if err != nil || got.State != a2a.StateCompleted {
		t.Errorf("an answer to a question from before: %s, %v", got.Raw, err)
	}
	open.Store(true)
	until(t, "the webhooks are delivered, and their tasks deleted", func() bool {
		n, err := query[int](c, `SELECT count(*) FROM audit.task WHERE id::text = ANY($1)`, unsettled)
		return err == nil && n == 0
	})
	sink.judge()
	last := map[string]bool{}
	for _, h := range sink.all() {
		if h.accepted && strings.HasSuffix(h.id, "_6") {
			last[h.path] = true
		}
	}
	if len(last) != len(unsettled) {
		t.Errorf("%d webhooks got the end before their task was deleted, want %d", len(last), len(unsettled))
	}
	// At rest, so that no data disappears under the checkers.
	a.stop()
	b.stop()
	c.start("calm")
}
