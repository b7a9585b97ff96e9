package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

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

	Stream   bool `default:"true" negatable:"" help:"@stream"`
	Blocking bool `default:"true" negatable:"" help:"Wait for the task, the default; --no-blocking only starts it."`

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

// messageID is derived from the key if there is one. A repeated send must be the same request, also from another run of
// the program, and the id is part of the request.
func (c *SendCmd) messageID() string {
	if c.IdempotencyKey == "" {
		return client.NewMessageID()
	}
	sum := sha256.Sum256([]byte(c.IdempotencyKey))
	return "msg-" + hex.EncodeToString(sum[:16])
}

// message builds the message from its parts: text, data, files.
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
