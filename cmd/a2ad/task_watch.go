package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskWatchCmd is `a2ad task watch`.
type TaskWatchCmd struct {
	ID    string `arg:"" help:"Id of the task."`
	After int64  `placeholder:"SEQ" help:"Only the events after this one."`
	Service
	Output
}

// Help is shown below the usage line.
func (*TaskWatchCmd) Help() string {
	return `Shows a task like "a2ad send", with the same exit codes: 0 completed; 3 failed, rejected or canceled. ` +
		`It continues while the task waits for input. Ctrl-C stops it.`
}

// Run watches.
func (c *TaskWatchCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		w := &watch{app: app, json: c.json(), transcript: term.NewTranscript(&app.Console)}
		err := onTask(c.ID, func() error { return w.run(ctx, api, c.ID, c.After) })
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

// reconnect is how long a watch waits before it connects again.
var reconnect = backoff.Policy{Base: 250 * time.Millisecond, Max: 10 * time.Second}

// watch shows one task.
type watch struct {
	app        *App
	json       bool
	transcript *term.Transcript
	state      a2a.State // of the task, as far as it was shown
	seq        int64     // of the newest event that was shown
	followed   bool      // the server has sent an event
	lost       bool      // the connection is lost, and a note says so
	failed     error     // to show an event
}

// run shows the task as it is, unless after is positive. Then it shows the events after it, until the task ends. If the
// connection is lost it connects again, and continues after the event that it has shown last.
func (w *watch) run(ctx context.Context, api *admin.Client, id string, after int64) error {
	w.seq = max(after, 0)
	for failures := 0; ; failures++ {
		err := api.Follow(ctx, taskPath(id, "events"), admin.EventQuery{After: w.seq}, func(ev sse.Event) error {
			failures, w.followed = 0, true
			w.failed = w.show(ev)
			return w.failed
		})
		switch {
		case w.failed != nil || w.state.Terminal():
			return w.failed
		case ctx.Err() != nil:
			return ctx.Err()
		case w.followed && notFound(err):
			return errors.New("it was removed")
		case !errors.Is(err, admin.ErrCut) && !(w.followed && mayPass(err)):
			return err
		}
		if !w.lost {
			w.transcript.Note("connection lost, reconnecting")
			w.lost = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reconnect.Delay(failures, nil)):
		}
	}
}

// notFound reports whether there is no such task.
func notFound(err error) bool {
	var refused *admin.RequestError
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound
}

// mayPass reports whether a request may succeed later: the server is unreachable, or has asked to come back.
func mayPass(err error) bool {
	var refused *admin.RequestError
	return !errors.As(err, &refused) ||
		refused.Status == http.StatusTooManyRequests || refused.Status == http.StatusServiceUnavailable
}

func (w *watch) show(item sse.Event) error {
	ev, err := client.DecodeEvent(item.Data, item.ID)
	if err != nil {
		return err
	}
	w.seq = ev.Seq
	if ev.State != a2a.StateNone {
		w.state = ev.State
	}
	if w.lost {
		w.transcript.Note("connected again")
		w.lost = false
	}
	if w.json {
		return term.JSON(w.app.Stdout, eventLine{ID: item.ID, Event: item.Data})
	}
	switch ev.Kind {
	case client.KindTask:
		w.transcript.Note("task %s", ev.TaskID)
		w.transcript.Artifacts(ev.Artifacts)
		w.transcript.State(ev.State, ev.Parts, nil)
	case client.KindStatus:
		w.transcript.State(ev.State, ev.Parts, ev.Metadata)
	case client.KindArtifact:
		w.transcript.Chunk(ev.Artifact, ev.Append, ev.LastChunk)
	case client.KindMessage:
		w.transcript.Parts(ev.Parts)
	}
	return nil
}
