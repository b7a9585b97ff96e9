package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/term"
)

// sending is one run of the command.
type sending struct {
	cmd    *SendCmd
	app    *App
	client *client.Client
	screen *term.Transcript

	taskID  string
	lastID  string
	state   a2a.State
	lost    bool // the connection is lost, and a note says so
	resumed bool // follows a task that was there before
}

func (s *sending) stream(ctx context.Context, p client.SendParams) error {
	return s.events(ctx, func(yield func(client.Event, error) bool) {
		s.client.Stream(ctx, p, client.StreamOptions{OnCut: s.cut})(yield)
	})
}

func (s *sending) follow(ctx context.Context, taskID string) error {
	s.taskID, s.lastID, s.resumed = taskID, s.cmd.LastEventID, true
	return s.events(ctx, func(yield func(client.Event, error) bool) {
		s.client.Resubscribe(ctx, taskID, client.StreamOptions{LastEventID: s.cmd.LastEventID, OnCut: s.cut})(yield)
	})
}

// cut notes each outage once, also with JSON, because stderr is for people.
func (s *sending) cut(error, time.Duration) {
	if !s.lost {
		s.screen.Note("connection lost, reconnecting")
	}
	s.lost = true
}

func (s *sending) events(ctx context.Context, stream func(func(client.Event, error) bool)) error {
	var failed error
	stream(func(ev client.Event, err error) bool {
		if err == nil {
			err = s.show(ev)
		}
		failed = err
		return err == nil
	})
	s.screen.EndLine()
	switch {
	case failed == nil:
		return s.done()
	case ctx.Err() != nil:
		return s.detached()
	default:
		if s.taskID != "" && !s.refused(failed) {
			s.howTo()
		}
		return s.explain(failed)
	}
}

// eventLine is one line of -o json.
type eventLine struct {
	ID    string          `json:"id"`
	Gap   bool            `json:"gap,omitempty"` // events before this one are missing
	Event json.RawMessage `json:"event"`
}

func (s *sending) show(ev client.Event) error {
	first := s.state == a2a.StateNone
	known := s.taskID != "" && !s.resumed
	if ev.TaskID != "" {
		s.taskID = ev.TaskID
	}
	if ev.ID != "" {
		s.lastID = ev.ID
	}
	if ev.State != a2a.StateNone {
		s.state = ev.State
	}
	if s.lost {
		s.lost = false
		s.screen.Note("connected again")
	}
	if s.cmd.json() {
		return term.JSON(s.app.Stdout, eventLine{ev.ID, ev.Gap, ev.Raw})
	}
	switch ev.Kind {
	case client.KindTask:
		s.showTask(ev, first && !known)
	case client.KindStatus:
		s.screen.State(ev.State, ev.Parts, ev.Metadata)
	case client.KindArtifact:
		s.screen.Chunk(ev.Artifact, ev.Append, ev.LastChunk)
	case client.KindMessage:
		s.screen.Parts(ev.Parts)
	}
	return nil
}

// showTask shows a snapshot. At the start of a new message it shows only the state. When it resumes a task or fills a
// gap, it shows everything.
func (s *sending) showTask(ev client.Event, first bool) {
	if first {
		s.screen.Note("task %s", ev.TaskID)
		if !s.resumed {
			s.screen.Note("to follow it again: %s", s.command("--resume "+ev.TaskID))
		}
	}
	if ev.Gap {
		s.screen.Note("some events are missing here; this is the task as it is now")
	}
	if s.resumed || ev.Gap {
		s.screen.Artifacts(ev.Artifacts)
	} else {
		s.screen.MarkSeen(ev.Artifacts)
	}
	s.screen.State(ev.State, ev.Parts, nil)
}

// done returns the result of a stream that has ended.
func (s *sending) done() error {
	if s.state == a2a.StateInputRequired && !s.cmd.json() {
		s.screen.Note(`to answer: %s`, s.command("--task "+s.taskID+` "…"`))
	}
	return taskExit(s.state)
}

func (s *sending) detached() error {
	if s.taskID == "" {
		s.screen.Note("interrupted before the server named the task: it may have accepted the message")
		return &exitError{code: exitInterrupted}
	}
	s.screen.Note("no longer following; the task continues")
	s.howTo()
	return &exitError{code: exitInterrupted}
}

// howTo says how to follow the task again, and how to cancel it.
func (s *sending) howTo() {
	resume := "--resume " + s.taskID
	if s.lastID != "" {
		resume += " --last-event-id " + s.lastID
	}
	s.screen.Note("to follow it again: %s", s.command(resume))
	s.screen.Note("to cancel it:       %s", s.command("--cancel "+s.taskID))
}

// command is a command line for the same agent.
func (s *sending) command(args string) string {
	line := s.app.program() + " send "
	for _, v := range s.app.settings {
		if v.Name == "A2AD_URL" && strings.HasPrefix(v.Source, "flag") {
			line += "--url " + string(s.cmd.URL) + " "
		}
	}
	if s.cmd.Agent != "" {
		line += "--agent " + s.cmd.Agent + " "
	}
	return line + args
}

// result shows an answer that is no stream.
func (s *sending) result(ctx context.Context, res client.Result, err error) error {
	if err != nil {
		if ctx.Err() != nil {
			return s.detached()
		}
		return s.explain(err)
	}
	s.taskID, s.state = res.TaskID, res.State
	if s.cmd.json() {
		if err := term.JSON(s.app.Stdout, eventLine{Event: res.Raw}); err != nil {
			return err
		}
		return s.exit()
	}
	if res.Kind == client.KindMessage {
		s.screen.Parts(res.Parts)
		return nil
	}
	s.screen.Note("task %s", res.TaskID)
	s.screen.Artifacts(res.Artifacts)
	s.screen.EndLine()
	s.screen.State(res.State, res.Parts, nil)
	if !res.State.EndsTurn() {
		s.howTo()
		return nil
	}
	if s.cmd.Cancel != "" {
		return s.exit()
	}
	return s.done()
}

// exit is the result for the task's state. After --cancel, a canceled task is a success.
func (s *sending) exit() error {
	if s.cmd.Cancel != "" && s.state == a2a.StateCanceled {
		return nil
	}
	return taskExit(s.state)
}

// refused reports whether the server itself has refused.
func (s *sending) refused(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && !e.Temporary()
}

const codeTaskNotFound = -32001

// explain adds to an error what the person at the terminal can do about it.
func (s *sending) explain(err error) error {
	var refused *client.Error
	var dial *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized && !s.cmd.APIKey.IsSet():
		return fmt.Errorf("%w\nSet A2AD_API_KEY to an API key; "+
			"an operator creates one with \"a2ad apikey create\"", err)
	case errors.As(err, &refused) && refused.Code == codeTaskNotFound && s.cmd.Agent == "":
		return fmt.Errorf("%w\nA task is found only at its own agent: name the agent with --agent, "+
			"unless it is the default one", err)
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound && s.cmd.Agent != "":
		return fmt.Errorf("agent %q not found at %s: %w\nThe name is the one in the agent file of the server; "+
			"\"a2ad dev\" prints the names when it starts", s.cmd.Agent, s.cmd.URL, err)
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return fmt.Errorf("no agent answers at %s: %w", s.cmd.URL, err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no server at %s: %w\n"+
			"Start one on this machine with \"a2ad dev\", or name another with --url", s.cmd.URL, dial.Err)
	}
	return err
}
