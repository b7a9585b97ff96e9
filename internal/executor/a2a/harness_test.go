package a2a_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
	"github.com/a2ad/a2ad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// keeper replaces the worker and the store of one task. It keeps events and checkpoints, history, folded
// artifacts and attempts in memory.
type keeper struct {
	t          *testing.T
	exec       *upstream.Executor
	task       a2a.Task
	said       []a2a.Message // messages of the client
	fresh      int           // index of the first new message
	checkpoint a2a.Raw
	log        []a2a.Event // all events
	epoch      int64
	attempt    int
	mayReply   bool
	trace      a2a.Traceparent
}

func newKeeper(t *testing.T, f *fake, change ...func(*upstream.Config)) *keeper {
	t.Helper()
	c := upstream.Config{Card: f.cardURL(), Poll: time.Millisecond, Resume: 100 * time.Millisecond,
		Patience: 5 * time.Minute}
	for _, ch := range change {
		ch(&c)
	}
	e, err := upstream.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.CloseIdle)
	k := &keeper{t: t, exec: e, task: a2a.Task{ID: a2a.ID{1, 2, 3}, Agent: "up", ContextID: "ctx",
		Status: a2a.Status{State: a2a.StateSubmitted}}}
	return k
}

func (k *keeper) say(text string) {
	m := a2a.Message{ID: "same", Role: a2a.RoleUser, Parts: textParts(text)}
	k.said = append(k.said, m)
	k.task.History = append(k.task.History, m)
}

// run makes an attempt. If stop returns true for an event, the attempt is killed after that event is recorded.
// Otherwise run returns the error of the executor.
func (k *keeper) run(ctx context.Context, stop func(a2a.Event) bool) (killed bool, err error) {
	k.epoch++
	k.attempt++
	if k.task.Status.Message != nil {
		k.task.History = append(k.task.History, *k.task.Status.Message)
	}
	k.task.Status = a2a.Status{State: a2a.StateWorking}
	run := executor.Run{
		Task: k.task, Messages: slices.Clone(k.said[k.fresh:]), Agent: "up", Tenant: "t", Owner: "o", Epoch: k.epoch,
		Attempt:    k.attempt,
		Checkpoint: k.checkpoint, MayReply: k.mayReply, Traceparent: k.trace,
	}
	run.Task.History, run.Task.Artifacts = slices.Clone(k.task.History), slices.Clone(k.task.Artifacts)
	n := len(k.said)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var pending a2a.Raw
	ended := false
	for event, e := range k.exec.Execute(ctx, run) {
		if e != nil {
			return false, e
		}
		if ended {
			k.t.Errorf("%s after the end of the turn", show(event))
		}
		if c, ok := event.(*a2a.Checkpoint); ok {
			if pending != nil {
				k.checkpoint = pending // saved without an event
			}
			pending = c.Body
		} else {
			if pending != nil {
				k.checkpoint, pending = pending, nil
			}
			ended = k.record(event)
		}
		if stop != nil && stop(event) {
			cancel()
			return true, nil
		}
	}
	if !ended {
		k.t.Error("the executor ended without the end of the turn")
	}
	k.fresh, k.attempt = n, 0
	return false, nil
}

func (k *keeper) record(event a2a.Event) (ends bool) {
	k.log = append(k.log, event)
	switch e := event.(type) {
	case *a2a.Message:
		return true
	case *a2a.StatusUpdate:
		if k.task.Status.Message != nil {
			k.task.History = append(k.task.History, *k.task.Status.Message)
		}
		k.task.Status = e.Status
		return e.Status.State.EndsTurn()
	case *a2a.ArtifactUpdate:
		if len(e.Artifact.Parts) == 0 {
			k.t.Error("an artifact without parts")
		}
		k.task.Artifacts = a2a.Fold(k.task.Artifacts, e)
	}
	return false
}

// finish runs attempts until the turn ends.
func (k *keeper) finish() {
	k.t.Helper()
	if _, err := k.run(bounded(k.t), nil); err != nil {
		k.t.Fatalf("attempt %d: %v", k.attempt, err)
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, fmt.Errorf("the test hangs"))
	t.Cleanup(cancel)
	return ctx
}

// texts returns the texts of a folded artifact.
func (k *keeper) texts(id string) (list []string) {
	for _, a := range k.task.Artifacts {
		if a.ID == id {
			for _, p := range a.Parts {
				list = append(list, p.Text)
			}
		}
	}
	return list
}

// shows returns a short form of the log.
func (k *keeper) shows() (list []string) {
	for _, e := range k.log {
		list = append(list, show(e))
	}
	return list
}

func show(event a2a.Event) string {
	text := func(parts []a2a.Part) (s string) {
		for _, p := range parts {
			s += " " + p.Text
		}
		return s
	}
	switch e := event.(type) {
	case *a2a.StatusUpdate:
		if e.Status.Message == nil {
			return e.Status.State.String()
		}
		return e.Status.State.String() + text(e.Status.Message.Parts)
	case *a2a.ArtifactUpdate:
		sign := "="
		if e.Append {
			sign = "+"
		}
		return e.Artifact.ID + sign + text(e.Artifact.Parts)
	}
	return fmt.Sprintf("%T", event)
}
