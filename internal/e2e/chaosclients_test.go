package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
)

// chaosPatience is how long a client tries one thing before it counts as stuck: far longer than any fault and its
// recovery.
const chaosPatience = 2 * patience

// chaosClient does one thing after the other, each to its end, and records what was acknowledged.
type chaosClient struct {
	c      *chaos
	n      int
	draw   *rand.Rand
	key    string
	cl     *client.Client // client of agent script
	counts *client.Client // client of agent counts
	calls  *client.Client // client of agent calls
}

// clients starts n clients. When ctx ends they finish their current action and stop.
func (c *chaos) clients(ctx context.Context, n int) {
	for i := range n {
		draw := rand.New(rand.NewPCG(c.seed, uint64(1000+i)))
		c.wg.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), chaosPatience)
				u := &chaosClient{c: c, n: i, draw: draw, key: fmt.Sprintf("client %d, request %d", i, k)}
				pick := func(n int) *replica { return c.slots[(i+n)%len(c.slots)].at() }
				u.cl, u.counts = c.roamer("script", pick), c.roamer("counts", pick)
				u.calls = c.roamer("calls", pick)
				u.cl.Tries, u.counts.Tries, u.calls.Tries = 3, 3, 3
				if err := u.act(limit); err != nil {
					c.stuck("%s: %v", u.key, err)
				}
				cancel()
			}
		})
	}
}

func (u *chaosClient) act(ctx context.Context) error {
	switch u.draw.IntN(9) {
	case 0:
		return u.converse(ctx)
	case 1:
		return u.cancel(ctx)
	case 2, 3:
		return u.follow(ctx)
	case 4:
		return u.hooked(ctx, u.key)
	case 5:
		return u.hooked(ctx, "")
	case 6, 7:
		return u.family(ctx)
	default:
		return u.plain(ctx)
	}
}

func (u *chaosClient) chunks() string {
	return fmt.Sprintf(`{"op":"chunk","id":"a","n":%d,"every_ms":%d}`, 1+u.draw.IntN(6), u.draw.IntN(60))
}

// story returns what the database has of a task, for a client that is stuck.
func (c *chaos) story(task string) string {
	text, err := query[string](c.cluster, `SELECT concat_ws('; ', now()::text || ' by a clock that is off by ' ||
		extract(epoch FROM chaos_jump()),
		(SELECT to_jsonb(t) FROM a2a.tasks t WHERE t.id = $1::text::uuid)::text,
		(SELECT jsonb_agg(to_jsonb(e) - 'payload_sha' ORDER BY e.seq) FROM audit.event e
		WHERE e.task_id = $1::text::uuid)::text,
		(SELECT jsonb_agg(a ORDER BY a.token) FROM audit.attempt a WHERE a.task_id = $1::text::uuid)::text,
		(SELECT jsonb_agg(q) FROM a2a.task_ready q WHERE q.task_id = $1::text::uuid)::text,
		(SELECT jsonb_agg(l) FROM a2a.task_leases l WHERE l.task_id = $1::text::uuid)::text)`, task)
	if err != nil {
		return err.Error()
	}
	return text
}

// patiently repeats a call that a fault may have broken. No event tells a client that a fault has healed.
func (u *chaosClient) patiently(ctx context.Context, f func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var longest time.Duration // attempt
	why := map[string]int{}   // how often each error occurred
	for tries := 1; ; tries++ {
		begin := time.Now()
		err := f()
		longest = max(longest, time.Since(begin))
		why[fmt.Sprint(err)]++
		var refusal *client.Error
		if err == nil || errors.As(err, &refusal) && !refusal.Temporary() && refusal.Code != -32603 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stuck after %d tries, of which one took %s: %w; all errors: %v", tries,
				longest.Round(time.Millisecond), err, why)
		case <-tick.C:
		}
	}
}

// send sends a message with a key until it is acknowledged.
func (u *chaosClient) send(
	ctx context.Context, cl *client.Client, m a2a.Message, key string, noWait bool,
) (got client.Result, err error) {
	p := client.SendParams{Message: m, IdempotencyKey: key, NoWait: noWait}
	p.Message.ID = client.NewMessageID()
	err = u.patiently(ctx, func() (err error) {
		got, err = cl.Send(ctx, p)
		return err
	})
	if err == nil {
		u.c.acknowledged(check.Acknowledged{Task: got.TaskID, Key: key, MessageID: p.Message.ID})
	}
	return got, err
}

// until follows a task until it reaches a wanted state.
func (u *chaosClient) until(
	ctx context.Context, cl *client.Client, task string, want func(a2a.State) bool,
) (state a2a.State, err error) {
	err = u.patiently(ctx, func() error {
		events, err := collect(cl.Resubscribe(ctx, task, client.StreamOptions{}),
			func(ev client.Event) bool { return want(ev.State) })
		if len(events) > 0 && want(events[len(events)-1].State) {
			state = events[len(events)-1].State
			return nil
		}
		if err == nil {
			err = errors.New("the stream ended too early")
		}
		return err
	})
	return state, err
}

func (u *chaosClient) completed(ctx context.Context, cl *client.Client, task string) error {
	state, err := u.until(ctx, cl, task, a2a.State.Terminal)
	if err == nil && state != a2a.StateCompleted {
		err = fmt.Errorf("task %s is %s, want completed", task, state)
	}
	return err
}

// converse answers a question, before or after it is asked.
func (u *chaosClient) converse(ctx context.Context) error {
	script := u.chunks() + `,{"op":"input","text":"?"},` + u.chunks() + `,{"op":"complete"}`
	asked, err := u.send(ctx, u.cl, play(script), u.key, u.draw.IntN(2) == 0)
	if err != nil {
		return err
	}
	if u.draw.IntN(2) == 0 {
		waits := func(s a2a.State) bool { return s == a2a.StateInputRequired || s.Terminal() }
		if _, err := u.until(ctx, u.cl, asked.TaskID, waits); err != nil {
			return fmt.Errorf("the question: %w", err)
		}
	}
	if _, err := u.send(ctx, u.cl, reply(asked.TaskID, "yes"), u.key+", answer", true); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return u.completed(ctx, u.cl, asked.TaskID)
}

// cancel cancels a task after a random time. A task that has already ended is no error.
func (u *chaosClient) cancel(ctx context.Context) error {
	got, err := u.send(ctx, u.cl, play(u.chunks()+`,`+u.chunks()), u.key, true)
	if err != nil {
		return err
	}
	return u.cancelTask(ctx, u.cl, got.TaskID)
}

func (u *chaosClient) cancelTask(ctx context.Context, cl *client.Client, task string) error {
	if u.draw.IntN(2) == 0 {
		running := func(s a2a.State) bool { return s >= a2a.StateWorking }
		if _, err := u.until(ctx, cl, task, running); err != nil {
			return err
		}
	}
	err := u.patiently(ctx, func() error {
		canceled, err := cl.Cancel(ctx, task)
		if refused(err, -32002) { // it has ended, or an earlier attempt succeeded
			return nil
		}
		if err == nil {
			u.c.acknowledged(check.Acknowledged{Task: task, Canceled: canceled.State == a2a.StateCanceled})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	_, err = u.until(ctx, cl, task, a2a.State.Terminal)
	return err
}

// follow follows a stream with random disconnects and resumes.
func (u *chaosClient) follow(ctx context.Context) error {
	p := client.SendParams{Message: play(u.chunks() + `,{"op":"status","text":"half"},` + u.chunks()),
		IdempotencyKey: u.key}
	p.Message.ID = client.NewMessageID()
	var events []client.Event
	last := func() string {
		if len(events) == 0 {
			return ""
		}
		return events[len(events)-1].ID
	}
	task := ""
	ended := func() bool { return len(events) > 0 && events[len(events)-1].Final }
	for !ended() {
		err := u.patiently(ctx, func() error {
			stream := u.cl.Stream(ctx, p, client.StreamOptions{LastEventID: last()})
			if len(events) > 0 && u.draw.IntN(2) == 0 {
				stream = u.cl.Resubscribe(ctx, task, client.StreamOptions{LastEventID: last()})
			}
			more, err := collect(stream, func(client.Event) bool { return u.draw.IntN(6) == 0 })
			events = append(events, more...)
			if len(events) > 0 {
				task = events[0].TaskID
			}
			if ended() {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("after %d events: %w; the task: %s", len(events), err, u.c.story(task))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stuck after %d events", len(events))
		}
	}
	end := events[len(events)-1]
	u.c.acknowledged(check.Acknowledged{Task: end.TaskID, Key: u.key, MessageID: p.Message.ID})
	if end.State != a2a.StateCompleted {
		return fmt.Errorf("the stream ends with %s", end.Raw)
	}
	return nil
}

// plain sends a message once, without a key: without an answer its outcome is unknown. It waits for the answer or for
// the end.
func (u *chaosClient) plain(ctx context.Context) error {
	p := client.SendParams{Message: say(u.counting()), NoWait: u.draw.IntN(2) == 0}
	p.Message.ID = client.NewMessageID()
	got, err := u.counts.Send(ctx, p)
	if err != nil {
		return nil //nolint:nilerr // it may have been done or not
	}
	u.c.acknowledged(check.Acknowledged{Task: got.TaskID, MessageID: p.Message.ID})
	return u.completed(ctx, u.counts, got.TaskID)
}

func (u *chaosClient) counting() string {
	return fmt.Sprintf("%d %d", 1+u.draw.IntN(5), u.draw.IntN(60))
}

// hooked sends a message with a webhook, with or without a key.
func (u *chaosClient) hooked(ctx context.Context, key string) error {
	id := client.NewMessageID()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message",`+
		`"role":"user","messageId":%q,"parts":[{"kind":"text","text":%q}]},`+
		`"configuration":{"blocking":false,"pushNotificationConfig":{"url":%q,"token":"t"}}}}`, id, u.counting(),
		u.c.world.hooks.URL+"/x")
	var task string
	once := func() (err error) {
		task, err = u.post(ctx, body, key)
		return err
	}
	if key == "" {
		if once() != nil {
			return nil // the outcome is unknown
		}
	} else if err := u.patiently(ctx, once); err != nil {
		return err
	}
	u.c.acknowledged(check.Acknowledged{Task: task, Key: key, MessageID: id})
	return u.completed(ctx, u.counts, task)
}

// post sends a request to the next replica and returns the task of the answer.
func (u *chaosClient) post(ctx context.Context, body, key string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.counts.URL, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := u.counts.HTTP.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Result struct{ ID string }
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Result.ID == "" {
		return "", fmt.Errorf("answered with %s", oneLine(string(text)))
	}
	return answer.Result.ID, nil
}
