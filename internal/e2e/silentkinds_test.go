package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
)

// silenceKinds are what clients do repeatedly. Each returns nil on success.
var silenceKinds = map[string]func(s *silence, ctx context.Context, key string) error{
	"send": func(s *silence, ctx context.Context, key string) error {
		got, err := s.send(ctx, "echo", say("hello"), key, false)
		if err == nil && got.State != a2a.StateCompleted {
			err = fmt.Errorf("a blocking send is answered with a task that is %s", got.State)
		}
		return err
	},
	"get": func(s *silence, ctx context.Context, key string) error {
		got, err := s.send(ctx, "echo", say("hello"), key, true)
		if err == nil {
			_, err = s.client(s.a, "echo").Get(ctx, got.TaskID, -1)
		}
		return err
	},
	"stream": func(s *silence, ctx context.Context, key string) error {
		p := client.SendParams{Message: play(`{"op":"chunk","id":"a","n":3}`), IdempotencyKey: key}
		p.Message.ID = key
		events, err := collect(s.client(s.a, "script").Stream(ctx, p, client.StreamOptions{}), nil)
		if err == nil && (len(events) == 0 || events[len(events)-1].State != a2a.StateCompleted) {
			err = errors.New("the stream ended early")
		}
		return err
	},
	"cancel": func(s *silence, ctx context.Context, key string) error {
		got, err := s.send(ctx, "script", play(`{"op":"sleep","ms":5000}`), key, true)
		if err != nil {
			return err
		}
		_, err = s.client(s.a, "script").Cancel(ctx, got.TaskID)
		if refused(err, -32002) {
			err = nil // an earlier attempt did it
		}
		return err
	},
	// The second task has to wait for the first, so the statement that creates it does not claim it.
	"claim": func(s *silence, ctx context.Context, key string) error {
		var tasks []string
		agent := s.narrow()
		for _, more := range []string{" first", " second"} {
			got, err := s.send(ctx, agent, play(`{"op":"sleep","ms":20}`), key+more, true)
			if err != nil {
				return err
			}
			tasks = append(tasks, got.TaskID)
		}
		return s.awaitCompleted(ctx, tasks)
	},
	"webhook": func(s *silence, ctx context.Context, key string) error {
		body := request("message/send", fmt.Sprintf(`{
			"message":{"kind":"message","messageId":%q,"role":"user","parts":[{"kind":"text","text":"x"}]},
			"configuration":{"blocking":false,"pushNotificationConfig":{"url":"%s/%s"}}}`, key, s.sink.URL, key))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.a.base+"/agents/echo", strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		resp, err := s.http.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var answer struct{ Result struct{ ID string } }
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Result.ID == "" {
			return errors.Join(errors.New(resp.Status), err)
		}
		s.acknowledged(check.Acknowledged{Task: answer.Result.ID, Key: key, MessageID: key})
		return s.sink.await(ctx, "/"+key)
	},
}

// awaitCompleted polls the database itself: a stream or a notification could be among what fell silent.
func (s *silence) awaitCompleted(ctx context.Context, tasks []string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := query[bool](s.cluster,
			`SELECT bool_and(state = 'COMPLETED') FROM audit.task WHERE id::text = ANY ($1)`, tasks)
		if done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send makes one attempt.
func (s *silence) send(
	ctx context.Context, agent string, m a2a.Message, key string, noWait bool,
) (client.Result, error) {
	p := client.SendParams{Message: m, IdempotencyKey: key, NoWait: noWait}
	p.Message.ID = key
	cl := s.client(s.a, agent)
	cl.Tries = -1
	got, err := cl.Send(ctx, p)
	if err == nil {
		s.acknowledged(check.Acknowledged{Task: got.TaskID, Key: key, MessageID: key})
	}
	return got, err
}
