package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// source is where the events of a task come from: a message, or a task that exists.
type source struct {
	message *client.SendParams
	task    string
}

// say sends a message. With a key the server accepts it once, however often it is sent. So the id of the message, which
// is part of the request, comes from the key too.
func (c *call) say(m a2a.Message, key string) source {
	m.ID = client.NewMessageID()
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		m.ID = "msg-" + hex.EncodeToString(sum[:16])
	}
	return source{message: &client.SendParams{Message: m, IdempotencyKey: key}}
}

// events yields the events of a turn that begins with a message, or of a task.
func (c *call) events(ctx context.Context, from source) iter.Seq2[client.Event, error] {
	if from.message != nil {
		return c.client.Stream(ctx, *from.message, client.StreamOptions{})
	}
	return c.client.Resubscribe(ctx, from.task, client.StreamOptions{})
}

// start sends a message and does not wait for its task.
func (c *call) start(ctx context.Context, message client.SendParams) (client.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	message.NoWait = true
	return c.client.Send(ctx, message)
}

// converse follows a task until its turn has ended or the wait is over. If the agent asks a question, and the client
// can ask its user, it sends the answer and continues. rounds counts the questions that were answered already.
func (c *call) converse(ctx context.Context, from source, rounds int) (*sdk.CallToolResult, error) {
	for ; ; rounds++ {
		res, err := c.turn(ctx, from)
		if err != nil {
			return nil, err
		}
		q, ok := c.ask(res)
		if !ok || rounds >= maxRounds {
			return outcome(c.agent, res, ""), nil
		}
		if c.retriesCalls() {
			return q.roundTrip(rounds + 1)
		}
		reply, err := c.elicit(ctx, q)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return outcome(c.agent, res, fmt.Sprintf("The user could not be asked: %v.", err)), nil
		}
		parts, note := q.parts(reply)
		if note != "" {
			return outcome(c.agent, res, note), nil
		}
		from = c.say(a2a.Message{TaskID: res.TaskID, Parts: parts}, q.key(parts))
	}
}

// outcome is the result of a call that waited for the task. If the task ended without success, the call has failed.
func outcome(agent string, res client.Result, note string) *sdk.CallToolResult {
	r := render(agent, res, note)
	r.IsError = res.State.Terminal() && res.State != a2a.StateCompleted
	return r
}

// turn follows the events of a task until its turn has ended or the wait is over, reports them as progress, and returns
// the task as it is then.
func (c *call) turn(ctx context.Context, from source) (client.Result, error) {
	if from.message != nil && c.wait() == 0 {
		return c.start(ctx, *from.message)
	}
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	p := c.newProgress(ctx)
	defer p.close()
	// An agent that may reply without a task is silent until it does, so the first event may need the whole wait.
	timer := time.AfterFunc(c.wait()+requestTimeout, cancel)
	defer func() { timer.Stop() }()
	task := ""
	for ev, err := range c.events(following, from) {
		switch {
		case err != nil && ctx.Err() == nil && following.Err() != nil && task == "":
			return client.Result{}, errNoAnswer
		case err != nil && ctx.Err() == nil && following.Err() != nil:
			return c.read(ctx, task)
		case err != nil:
			return client.Result{}, err
		case ev.Kind == client.KindMessage:
			return ev.Result, nil
		}
		first := task == ""
		task = ev.TaskID
		p.event(ev, first)
		if turnEnded(ev.State, first, from.message != nil) {
			return c.read(ctx, task)
		}
		if first {
			timer.Stop()
			timer = time.AfterFunc(c.wait(), cancel)
		}
	}
	if task == "" {
		return client.Result{}, errors.New("the server ended the stream before it named a task")
	}
	return c.read(ctx, task)
}

// turnEnded reports whether a task needs its client, or has ended. The first event after a message may show the task as
// it was before. A task that is found waiting for authentication may
// continue by itself, once its user has signed in.
func turnEnded(state a2a.State, first, sent bool) bool {
	switch state {
	case a2a.StateInputRequired:
		return !first || !sent
	case a2a.StateAuthRequired:
		return !first
	default:
		return state.Terminal()
	}
}
