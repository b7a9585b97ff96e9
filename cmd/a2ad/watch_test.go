package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
)

// scriptedTerminal is a terminal. When the text of the next step appears, it runs that step.
type scriptedTerminal struct {
	seen  bytes.Buffer
	from  int // where the next text may begin
	steps []step
}

type step struct {
	text string
	do   func()
}

func (s *scriptedTerminal) Write(p []byte) (int, error) {
	n, err := s.seen.Write(p)
	for len(s.steps) > 0 {
		next := s.steps[0]
		at := strings.Index(s.seen.String()[s.from:], next.text)
		if at < 0 {
			break
		}
		s.from += at + len(next.text)
		s.steps = s.steps[1:]
		next.do()
	}
	return n, err
}

func TestTaskWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var lease *tasks.Lease
	chunk := func(text string, more bool) *a2a.ArtifactUpdate {
		parts := []a2a.Part{{Kind: a2a.PartText, Text: text}}
		return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "count", Parts: parts}, Append: more}
	}
	screen := &scriptedTerminal{steps: []step{
		{"submitted", func() { lease = w.claim(); w.append(lease, chunk("one ", false)) }},
		{"one ", func() { w.append(lease, chunk("two\n", true)) }},
		{"two\n", cancel},
	}}
	onScreen := func(app *App) { app.Stdout, app.Stderr = screen, screen }
	got := screenful(t, ctx, onScreen, w.env, "task", "watch", taskID)
	golden(t, "task-watch-interrupted", screen.seen.String()+got)
	w.append(lease, statusUpdate(a2a.StateFailed))
	for name, args := range map[string][]string{
		"task-watch":       {taskID},
		"task-watch-after": {taskID, "--after", "3"},
		"task-watch-end":   {taskID, "--after", "99"},
		"task-watch-json":  {taskID, "-o", "json", "--after", "2"},
		"task-watch-none":  {oldTask},
		"task-watch-bad":   {"x"},
	} {
		golden(t, name, steady(screenful(t, t.Context(), nil, w.env, append([]string{"task", "watch"}, args...)...)))
	}
}

// TestTaskWatchConnectsAgain: a watch of a server whose connection breaks continues with the next event.
func TestTaskWatchConnectsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit(taskID, "alice", nil)
	ctx, cancel := context.WithCancel(t.Context())
	follower := stream.New(w.store.Tasks, &notify.Hub{}, 10*time.Millisecond, slog.New(slog.DiscardHandler))
	var polls sync.WaitGroup
	polls.Go(func() { follower.Run(ctx) }) //nolint:errcheck // it only returns nil
	defer func() { cancel(); polls.Wait() }()
	srv := w.serve(func(c *admin.Config) { c.Streams.Follower = follower })
	defer srv.Close()
	screen := &scriptedTerminal{steps: []step{
		{"submitted", srv.CloseClientConnections},
		{"connection lost, reconnecting", w.complete},
	}}
	got := screenful(t, t.Context(), func(app *App) {
		app.Stdout, app.Stderr = screen, screen
	}, []string{"A2AD_API_KEY=secret"}, "task", "watch", taskID, "--server", srv.URL)
	const want = "[task " + taskID + "]\n[submitted]\n[connection lost, reconnecting]\n[connected again]\n" +
		"[working]\n[artifact count]\ntwo\n[completed]\n"
	if screen.seen.String() != want || !strings.HasSuffix(got, "[exit code 0]\n") {
		t.Errorf("%s%s", screen.seen.String(), got)
	}
}

// TestTaskLsWatch checks that the command lists again until it is interrupted. A program gets only what changed, and
// a terminal shows as many of the newest tasks as fit.
func TestTaskLsWatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		terminal bool
		lines    int
		args     []string
	}{
		{"terminal", true, 0, nil},
		{"low", true, 3, nil},
		{"pipe", false, 0, nil},
		{"json", false, 0, []string{"-o", "json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.submit(oldTask, "bob", nil)
			w.complete()
			w.submit(taskID, "alice", nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			screen := &scriptedTerminal{steps: []step{{taskID, w.complete}, {taskID, cancel}}}
			got := screenful(t, ctx, func(app *App) {
				app.Terminal, app.Lines, app.Stdout, app.Stderr = tc.terminal, tc.lines, screen, screen
			}, w.env, append([]string{"task", "ls", "--watch", "--every", "100ms"}, tc.args...)...)
			golden(t, "task-ls-watch-"+tc.name, steady(screen.seen.String()+got))
		})
	}
}
