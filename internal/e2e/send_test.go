package e2e_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/executor/script/model"
)

// bounded returns a context that ends a hanging call.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// play returns a message with a script of these ops.
func play(ops ...string) a2a.Message {
	return a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartData,
		Data: a2a.Raw(`{"script":[` + strings.Join(ops, ",") + `]}`)}}}
}

func say(text string) a2a.Message {
	return a2a.Message{Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}
}

// submit sends a message without waiting and returns the task.
func submit(t *testing.T, cl *client.Client, m a2a.Message) string {
	t.Helper()
	got, err := cl.Send(bounded(t), client.SendParams{Message: m, NoWait: true})
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return got.TaskID
}

// follow reads a stream until it ends or until returns true, and returns what it read.
func follow(t *testing.T, events iter.Seq2[client.Event, error], until func(client.Event) bool) []client.Event {
	t.Helper()
	list, err := collect(events, until)
	if err != nil {
		t.Fatalf("after %d events: %v", len(list), err)
	}
	return list
}

// collect is follow for goroutines.
func collect(events iter.Seq2[client.Event, error], until func(client.Event) bool) (list []client.Event, err error) {
	for ev, err := range events {
		if err != nil {
			return list, err
		}
		list = append(list, ev)
		if until != nil && until(ev) {
			break
		}
	}
	return list, nil
}

// endsWith checks the last event of a stream.
func endsWith(t *testing.T, events []client.Event, want a2a.State) {
	t.Helper()
	if len(events) == 0 {
		t.Fatal("a stream without events")
	}
	if last := events[len(events)-1]; last.State != want || !last.Final {
		t.Errorf("the stream ends with %s (final %t), want %s: %s", last.State, last.Final, want, last.Raw)
	}
}

// chunkText returns the text of chunk k of an artifact.
func chunkText(id string, k int) string { return id + ":" + itoa(k) + ":" }

// atChunk matches the event of a chunk.
func atChunk(id string, k int) func(client.Event) bool {
	return func(ev client.Event) bool {
		return ev.Kind == client.KindArtifact && ev.Artifact.ID == id &&
			strings.HasPrefix(client.Text(ev.Artifact.Parts), chunkText(id, k))
	}
}

// chunks returns the texts of an artifact's chunks among events, including those in a snapshot.
func chunks(events []client.Event, id string) []string {
	var texts []string
	for _, ev := range events {
		switch {
		case ev.Kind == client.KindArtifact && ev.Artifact.ID == id:
			texts = append(texts, client.Text(ev.Artifact.Parts))
		case ev.Kind == client.KindTask:
			texts = nil
			for _, a := range ev.Artifacts {
				for i := range a.Parts {
					if a.ID == id {
						texts = append(texts, client.Text(a.Parts[i:i+1]))
					}
				}
			}
		}
	}
	return texts
}

func chunkTexts(id string, n int) []string {
	texts := make([]string, n)
	for k := range texts {
		texts[k] = chunkText(id, k)
	}
	return texts
}

// checkScript compares the log of a task with its scripts: their events, and one working status for each claim. It
// returns the number of claims.
func (c *cluster) checkScript(at *replica, agent, task string, maxAttempts int, scripts ...string) int {
	c.t.Helper()
	first := one[string](c,
		`SELECT '1-' || left(event_uid::text, 8) FROM audit.event WHERE task_id::text = $1 AND seq = 1`, task)
	last := one[int64](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task)
	claims := column[int64](c,
		`SELECT min(seq) FROM audit.event WHERE task_id::text = $1 AND source = 'worker' GROUP BY token ORDER BY 1`,
		task)
	others := column[int64](c, `SELECT seq FROM audit.event WHERE task_id::text = $1 AND source <> 'worker'`, task)
	skip := make(map[int64]bool)
	for _, seq := range append(claims, others...) {
		skip[seq] = true
	}
	events := follow(c.t, c.client(at, agent).Resubscribe(bounded(c.t), task, client.StreamOptions{LastEventID: first}),
		func(ev client.Event) bool { return ev.Seq >= last })
	var got []model.Event
	for _, ev := range events {
		if skip[ev.Seq] {
			continue
		}
		m := model.Event{State: ev.State, Append: ev.Append, Last: ev.LastChunk, Text: client.Text(ev.Parts)}
		if ev.Kind == client.KindArtifact {
			m.Artifact, m.Text = ev.Artifact.ID, client.Text(ev.Artifact.Parts)
		}
		got = append(got, m)
	}
	want, _ := model.Expected(maxAttempts, scripts...)
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("events of task %s (-want +got):\n%s", task, diff)
	}
	attempts := one[int](c, `SELECT count(*) FROM audit.attempt WHERE task_id::text = $1`, task)
	if len(claims) != attempts {
		c.t.Errorf("task %s: %d working statuses of claims, want %d, one for each attempt", task, len(claims), attempts)
	}
	return attempts
}

// logTook logs a figure, without a verdict: it depends on the machine.
func logTook(t *testing.T, what string, took time.Duration) {
	t.Helper()
	t.Logf("%s took %s", what, took.Round(time.Millisecond))
}
