package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/config"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/term"
)

// SendCmd is `a2ad send`.
type SendCmd struct {
	Text []string `arg:"" optional:"" help:"Text of the message; - reads it from stdin."`

	Agent   string   `placeholder:"NAME" help:"Agent to send to; without it the server's default agent."`
	Task    string   `placeholder:"ID" help:"Task to continue."`
	Context string   `placeholder:"ID" help:"Conversation of a new task."`
	Data    []string `sep:"none" placeholder:"JSON" help:"Structured part of the message; @FILE reads it from a file."`
	File    []string `sep:"none" placeholder:"PATH" help:"File to attach."`

	Stream         bool   `default:"true" negatable:"" help:"Show events as they happen; without it, wait for the result."`
	Blocking       bool   `default:"true" negatable:"" help:"Wait for the task; without it, only start it."`
	IdempotencyKey string `placeholder:"KEY" help:"Makes it safe to repeat the command."`

	Resume      string `placeholder:"ID" help:"Follow a task instead of sending a message."`
	LastEventID string `placeholder:"EVENT" help:"With --resume: continue after this event."`
	Cancel      string `placeholder:"ID" help:"Cancel a task instead of sending a message."`

	config.ClientGroup
	Output
}

// Help is shown below the usage line.
func (*SendCmd) Help() string {
	return `What the agent says goes to stdout, everything else to stderr. Ctrl-C stops following; the task continues.

It speaks A2A 1.0 if the agent's card offers it, or else 0.3.

With -o json each event is one line on stdout: {"id":…,"event":…}, the event as the server sent it.

A2AD_API_KEY, or a file named by A2AD_API_KEY_FILE, holds the key to sign in with.`
}

// Validate is called by the parser.
func (c *SendCmd) Validate() error {
	acts := 0
	for _, on := range []bool{c.sends(), c.Resume != "", c.Cancel != ""} {
		if on {
			acts++
		}
	}
	switch {
	case strings.Contains(c.Agent, "/"):
		return errors.New("--agent is a name, not a path")
	case acts == 0:
		return errors.New(`there is nothing to send: ` +
			`write a2ad send "hello", or - to read stdin, or use --data or --file`)
	case acts > 1:
		return errors.New("a message, --resume and --cancel exclude each other")
	case c.LastEventID != "" && c.Resume == "":
		return errors.New("--last-event-id goes with --resume only")
	}
	return nil
}

func (c *SendCmd) sends() bool { return len(c.Text)+len(c.Data)+len(c.File) > 0 }

// Run sends, follows or cancels.
func (c *SendCmd) Run(ctx context.Context, app *App) error {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	s := &sending{
		cmd: c, app: app, screen: term.NewTranscript(&app.Console),
		client: &client.Client{URL: c.agentURL(), APIKey: c.APIKey.Reveal(), HTTP: &http.Client{Transport: transport}},
	}
	var msg a2a.Message
	var err error
	if c.sends() {
		if msg, err = c.message(app); err != nil {
			return err
		}
	}
	if err := s.client.Negotiate(ctx); err != nil {
		if ctx.Err() != nil {
			return &exitError{code: exitInterrupted}
		}
		return s.explain(err)
	}
	if c.Cancel != "" {
		res, err := s.client.Cancel(ctx, c.Cancel)
		return s.result(ctx, res, err)
	}
	if c.Resume != "" {
		return s.follow(ctx, c.Resume)
	}
	params := client.SendParams{Message: msg, NoWait: !c.Blocking, IdempotencyKey: c.IdempotencyKey}
	if !c.Stream || !c.Blocking {
		res, err := s.client.Send(ctx, params)
		return s.result(ctx, res, err)
	}
	return s.stream(ctx, params)
}

func (c *SendCmd) agentURL() string {
	if c.Agent == "" {
		return string(c.URL)
	}
	return string(c.URL) + "/agents/" + url.PathEscape(c.Agent)
}

const maxInput = 64 << 20

// messageID is derived from the key if there is one. A repeated send, also by another run of the
// program, must be the same request, and the id is part of the request.
func (c *SendCmd) messageID() string {
	if c.IdempotencyKey == "" {
		return client.NewMessageID()
	}
	sum := sha256.Sum256([]byte(c.IdempotencyKey))
	return "msg-" + hex.EncodeToString(sum[:16])
}

// message puts the parts together: text, data, files.
func (c *SendCmd) message(app *App) (a2a.Message, error) {
	m := a2a.Message{ID: c.messageID(), Role: a2a.RoleUser, TaskID: c.Task, ContextID: c.Context}
	if len(c.Text) == 1 && c.Text[0] == "-" {
		text, err := io.ReadAll(io.LimitReader(app.Stdin, maxInput))
		if err != nil {
			return m, fmt.Errorf("read stdin: %w", err)
		}
		c.Text = []string{strings.ToValidUTF8(string(text), "\ufffd")}
	}
	if len(c.Text) > 0 {
		text := strings.ToValidUTF8(strings.Join(c.Text, " "), "\ufffd")
		m.Parts = append(m.Parts, a2a.Part{Kind: a2a.PartText, Text: text})
	}
	for _, text := range c.Data {
		data := []byte(text)
		if path, ok := strings.CutPrefix(text, "@"); ok {
			var err error
			if data, err = readInput(app, path); err != nil {
				return m, fmt.Errorf("--data: %w", err)
			}
		}
		if err := rawjson.Check(data, 64); err != nil {
			return m, &exitError{exitUsage, fmt.Errorf("--data is not JSON: %w", err)}
		}
		m.Parts = append(m.Parts, a2a.Part{Kind: a2a.PartData, Data: rawjson.Trim(data)})
	}
	for _, path := range c.File {
		data, err := readInput(app, path)
		if err != nil {
			return m, fmt.Errorf("--file: %w", err)
		}
		mediaType := mime.TypeByExtension(filepath.Ext(path))
		if mediaType == "" {
			mediaType = http.DetectContentType(data)
		}
		m.Parts = append(m.Parts, a2a.Part{
			Kind: a2a.PartFile, Text: base64.StdEncoding.EncodeToString(data),
			MediaType: mediaType, Filename: filepath.Base(path),
		})
	}
	return m, nil
}

func readInput(app *App, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(app.Stdin, maxInput))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxInput))
}

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

// showTask shows a snapshot. At the start of a new message it shows only the state; when it resumes a task,
// or fills a gap, it shows everything.
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

// done ends a stream that came to its end.
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
	line := "a2ad send "
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

// exit is that of the task's state; a cancel that canceled is a success.
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
		return fmt.Errorf("%w\nPut an API key into A2AD_API_KEY; \"a2ad apikey create\" makes one on the server", err)
	case errors.As(err, &refused) && refused.Code == codeTaskNotFound && s.cmd.Agent == "":
		return fmt.Errorf("%w\nA task is found only at its own agent: name the agent with --agent, "+
			"unless it is the default one", err)
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return fmt.Errorf("no agent answers at %s: %w", s.cmd.agentURL(), err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no server at %s: %w\nStart one on this machine with \"a2ad dev\", or name another with --url",
			s.cmd.URL, dial.Err)
	}
	return err
}
