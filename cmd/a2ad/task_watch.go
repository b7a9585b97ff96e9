package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/tasks"
	"github.com/a2ad/a2ad/internal/stream"
	"github.com/a2ad/a2ad/internal/term"
	v03 "github.com/a2ad/a2ad/internal/wire/v03"
)

// TaskWatchCmd is `a2ad task watch`.
type TaskWatchCmd struct {
	ID       string `arg:"" help:"Id of the task."`
	After    int64  `placeholder:"SEQ" help:"Only the events after this one."`
	Database `group:"database"`
	Output
}

// Help is shown below the usage line.
func (*TaskWatchCmd) Help() string {
	return `Shows a task like "a2ad send", with the same exit codes: 0 completed; 3 failed, rejected or canceled. ` +
		`It continues while the task waits for input. Ctrl-C stops it.`
}

// Run watches.
func (c *TaskWatchCmd) Run(ctx context.Context, app *App) error {
	return c.withStore(ctx, app, func(s *store.Store) error {
		w := &watch{app: app, json: c.json(), store: s, transcript: term.NewTranscript(&app.Console)}
		err := w.run(ctx, c.ID, c.After)
		w.transcript.EndLine()
		switch {
		case ctx.Err() != nil:
			return &exitError{code: exitInterrupted}
		case err != nil:
			return err
		}
		return taskExit(w.state)
	})
}

// watchPoll is how often the log is read. A terminal needs no wake-ups.
const watchPoll = 250 * time.Millisecond

// watch shows one task.
type watch struct {
	app        *App
	json       bool
	store      *store.Store
	codec      v03.Codec
	transcript *term.Transcript
	state      a2a.State // of the task, as far as it was shown
}

// run shows the task as it is, unless after is positive. Then it shows the events after it, until the task ends.
func (w *watch) run(ctx context.Context, text string, after int64) error {
	id, err := parseTaskID(text)
	if err != nil {
		return err
	}
	task, err := w.store.Tasks.SnapshotOfAny(ctx, id, tasks.Want{Artifacts: true})
	if err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}
	pruned, err := w.pruned(ctx, id, max(after, 0))
	if err != nil {
		return err
	}
	ended := task.Status.State.Terminal()
	if after <= 0 || pruned || ended && after >= task.LastSeq { // no event comes after the end
		if err := w.showSnapshot(task); err != nil || ended {
			return err
		}
		after = task.LastSeq
	}
	return w.follow(ctx, task, min(after, task.LastSeq))
}

// pruned reports whether retention has removed events after the given one.
func (w *watch) pruned(ctx context.Context, id a2a.ID, after int64) (bool, error) {
	next, err := w.store.Tasks.EventsAfter(ctx, id, after, 1)
	if err != nil {
		return false, fmt.Errorf("task %s: %w", id, err)
	}
	return len(next) == 1 && next[0].Seq > after+1, nil
}

func (w *watch) follow(ctx context.Context, task *a2a.Task, after int64) error {
	ctx, cancel := context.WithCancel(ctx)
	follower := stream.New(w.store.Tasks, &notify.Hub{}, watchPoll, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		follower.Run(ctx) //nolint:errcheck // it only returns nil
	}()
	cursor := follower.Follow(task.ID, task.ContextID, after, task.LastSeq)
	defer func() { cursor.Close(); cancel(); <-done }()
	for {
		items, err := cursor.Next(ctx)
		if err != nil {
			return fmt.Errorf("task %s: %w", task.ID, err)
		}
		for _, it := range items {
			ended := it.State().Terminal()
			if err := w.showEvent(&it.Entry, ended); err != nil || ended {
				return err
			}
		}
	}
}

func (w *watch) line(seq int64, uid a2a.ID, raw json.RawMessage) error {
	return term.JSON(w.app.Stdout, eventLine{ID: sse.FormatID(seq, uid.Short()), Event: raw})
}

func (w *watch) showSnapshot(t *a2a.Task) error {
	w.state = t.Status.State
	if w.json {
		return w.line(t.LastSeq, t.LastUID, w.codec.AppendSnapshot(nil, t))
	}
	w.transcript.Note("task %s", t.ID)
	for _, a := range t.Artifacts {
		w.transcript.Artifacts([]client.Artifact{{ID: a.ID, Name: a.Name, Parts: a.Parts}})
	}
	w.transcript.State(t.Status.State, messageParts(t.Status.Message), nil)
	return nil
}

func (w *watch) showEvent(entry *a2a.Entry, last bool) error {
	if s := entry.State(); s != a2a.StateNone {
		w.state = s
	}
	if w.json {
		return w.line(entry.Seq, entry.UID, w.codec.AppendEvent(nil, entry, last))
	}
	switch e := entry.Event.(type) {
	case *a2a.StatusUpdate:
		w.transcript.State(e.Status.State, messageParts(e.Status.Message), e.Metadata)
	case *a2a.ArtifactUpdate:
		a := client.Artifact{ID: e.Artifact.ID, Name: e.Artifact.Name, Parts: e.Artifact.Parts}
		w.transcript.Chunk(a, e.Append, e.LastChunk)
	case *a2a.Message:
		w.transcript.Parts(e.Parts)
	}
	return nil
}

func messageParts(m *a2a.Message) []a2a.Part {
	if m == nil {
		return nil
	}
	return m.Parts
}
