package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// replicas are the ones that the load uses.
type replicas struct {
	mu   sync.Mutex
	list []*replica // guarded by mu
}

func (s *replicas) at(i int) *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[i%len(s.list)]
}

func (s *replicas) replace(i int, r *replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[i] = r
}

func (s *replicas) add(more ...*replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, more...)
}

// load is clients that act until they are stopped. Everything acknowledged to them is compared with the database at
// the end.
type load struct {
	c     *cluster
	acked sync.Map // Idempotency-Key -> task id
	done  atomic.Int64
	moved change // of done, or the end of a client
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// startLoad starts clients that draw from a seed, which a failure prints.
func (c *cluster) startLoad(clients int, list ...*replica) *load {
	c.t.Helper()
	return c.startLoadOn(clients, &replicas{list: list})
}

func (c *cluster) startLoadOn(clients int, set *replicas) *load {
	c.t.Helper()
	ctx, cancel := context.WithCancel(bounded(c.t))
	l := &load{c: c, stop: cancel}
	seed := rand.Uint64()
	c.t.Logf("seed %d", seed)
	for i := range clients {
		draw := rand.New(rand.NewPCG(seed, uint64(i)))
		l.wg.Go(func() {
			defer l.moved.happened()
			for n := 0; ctx.Err() == nil; n++ {
				u := &user{load: l, draw: draw, key: fmt.Sprintf("client %d, request %d", i, n)}
				// Each request goes to the next replica, so that a replica continues what another one began.
				u.cl = c.roamer("script", func(n int) *replica { return set.at(i + n) })
				if err := u.act(context.WithoutCancel(ctx)); err != nil {
					c.t.Errorf("%s: %v", u.key, err)
					return
				}
				l.done.Add(1)
				l.moved.happened()
			}
		})
	}
	c.t.Cleanup(cancel)
	return l
}

// progress waits until n more requests are done, and returns how long that took.
func (l *load) progress(n int64) time.Duration {
	l.c.t.Helper()
	start, from := time.Now(), l.done.Load()
	untilChange(l.c.t, "the load continues", l.moved.next,
		func() bool { return l.done.Load() >= from+n || l.c.t.Failed() })
	return time.Since(start)
}

// retiredTask tells whether retention recorded the deletion of a task.
const retiredTask = `
	SELECT NOT EXISTS (SELECT FROM audit.task t WHERE t.id = $1::text::uuid) AND EXISTS (
	  SELECT FROM audit.action a
	  WHERE a.action = 'task.retire' AND $1::text::uuid BETWEEN (a.detail ->> 'from')::uuid
	AND (a.detail ->> 'to')::uuid)`

// finish lets the clients complete what they have begun, and checks that everything acknowledged exists.
func (l *load) finish() {
	l.c.t.Helper()
	l.stop()
	l.wg.Wait()
	n := 0
	l.acked.Range(func(key, task any) bool {
		n++
		got := one[int](l.c, `SELECT count(*) FROM audit.message WHERE idem_key = $1 AND task_id::text = $2`, key, task)
		if got == 0 && one[bool](l.c, retiredTask, task) {
			return true
		}
		if got != 1 {
			l.c.t.Errorf("%s was acknowledged as task %s and exists %d times", key, task, got)
		}
		return true
	})
	l.c.t.Logf("%d requests acknowledged", n)
}

// user is one client and its current action.
type user struct {
	*load
	cl   *client.Client
	draw *rand.Rand
	key  string
}

// act does one thing to its end. It retries temporary failures; a refusal is an error.
func (u *user) act(ctx context.Context) error {
	switch u.draw.IntN(5) {
	case 0:
		return u.wait(ctx)
	case 1:
		return u.converse(ctx)
	case 2:
		return u.cancel(ctx)
	default:
		return u.follow(ctx)
	}
}

func (u *user) chunks() string {
	return fmt.Sprintf(`{"op":"chunk","id":"a","n":%d,"every_ms":%d}`, 1+u.draw.IntN(6), u.draw.IntN(40))
}

// send sends a message with a key until it is acknowledged.
func (u *user) send(ctx context.Context, m a2a.Message, key string, noWait bool) (got client.Result, err error) {
	p := client.SendParams{Message: m, IdempotencyKey: key, NoWait: noWait}
	p.Message.ID = client.NewMessageID()
	err = u.patiently(func() (err error) {
		got, err = u.cl.Send(ctx, p)
		return err
	})
	if err == nil {
		u.acked.Store(key, got.TaskID)
	}
	return got, err
}

// wait makes a blocking send.
func (u *user) wait(ctx context.Context) error {
	got, err := u.send(ctx, play(u.chunks()), u.key, false)
	if err == nil && got.State != a2a.StateCompleted {
		err = fmt.Errorf("a blocking send is answered with a task that is %s", got.State)
	}
	return err
}

// follow follows a stream with random disconnects and resumes.
func (u *user) follow(ctx context.Context) error {
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
	ended := func() bool { return len(events) > 0 && events[len(events)-1].Final }
	leave := func(client.Event) bool { return u.draw.IntN(6) == 0 }
	for !ended() {
		err := u.patiently(func() error {
			stream := u.cl.Stream(ctx, p, client.StreamOptions{LastEventID: last()})
			if len(events) > 0 && u.draw.IntN(2) == 0 {
				stream = u.cl.Resubscribe(ctx, events[0].TaskID, client.StreamOptions{LastEventID: last()})
			}
			more, err := collect(stream, leave)
			events = append(events, more...)
			if ended() {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("after %d events: %w", len(events), err)
		}
	}
	end := events[len(events)-1]
	if end.State != a2a.StateCompleted {
		return fmt.Errorf("the stream ends with %s", end.Raw)
	}
	u.acked.Store(u.key, end.TaskID)
	return nil
}

// converse answers a question, before or after it is asked.
func (u *user) converse(ctx context.Context) error {
	early := u.draw.IntN(2) == 0
	script := u.chunks() + `,{"op":"input","text":"?"},` + u.chunks() + `,{"op":"complete"}`
	asked, err := u.send(ctx, play(script), u.key, early)
	if err != nil {
		return err
	}
	if !early && asked.State != a2a.StateInputRequired {
		return fmt.Errorf("the task is %s and asks nothing", asked.State)
	}
	got, err := u.send(ctx, reply(asked.TaskID, "yes"), u.key+", answer", false)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	// The current run may read an early answer, or it becomes the next turn.
	return u.awaitEnd(ctx, got, a2a.StateCompleted)
}

// cancel cancels a task after a random time. A task that has already ended is no error.
func (u *user) cancel(ctx context.Context) error {
	got, err := u.send(ctx, play(u.chunks()+`,`+u.chunks()), u.key, true)
	if err != nil {
		return err
	}
	if u.draw.IntN(2) == 0 {
		if err := u.patiently(func() error {
			_, err := collect(u.cl.Resubscribe(ctx, got.TaskID, client.StreamOptions{}),
				func(client.Event) bool { return u.draw.IntN(4) == 0 })
			return err
		}); err != nil {
			return err
		}
	}
	want := a2a.StateCanceled
	err = u.patiently(func() error {
		canceled, err := u.cl.Cancel(ctx, got.TaskID)
		if refused(err, -32002) {
			want = a2a.StateNone // it has ended, or an earlier attempt succeeded
			return nil
		}
		if err == nil && canceled.State != a2a.StateCanceled {
			return fmt.Errorf("a cancel is answered with a task that is %s", canceled.State)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return u.awaitEnd(ctx, got, want)
}

// awaitEnd follows a task to its end. Any end is fine if want is none.
func (u *user) awaitEnd(ctx context.Context, task client.Result, want a2a.State) error {
	state := task.State
	err := u.patiently(func() error {
		if state.Terminal() {
			return nil
		}
		events, err := collect(u.cl.Resubscribe(ctx, task.TaskID, client.StreamOptions{}), nil)
		if len(events) > 0 {
			state = events[len(events)-1].State
		}
		return err
	})
	if err == nil && (!state.Terminal() || want != a2a.StateNone && state != want) {
		err = fmt.Errorf("the task is %s, want %s", state, want)
	}
	return err
}

// patiently repeats a call that a fault may have broken. No event tells a client that a fault has healed.
func (u *user) patiently(f func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		err := f()
		var refusal *client.Error
		if err == nil || time.Now().After(end) || errors.As(err, &refusal) && !refusal.Temporary() &&
			refusal.Code != -32603 {
			return err
		}
	}
}
