package dockertest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/client"
)

// load sends messages to echo until it is stopped. It repeats a send with its key until it is answered, as a client
// that must not lose work does.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	tasks   map[string]string // key of an answered send, to its task
	refused int               // sends that were answered by an error first
	longest time.Duration     // until a send was answered
}

const senders = 8

func (s *stack) load(t *testing.T) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel, tasks: make(map[string]string)}
	for range senders {
		c := s.client("echo")
		l.done.Go(func() {
			for ctx.Err() == nil {
				l.send(ctx, c)
			}
		})
	}
	return l
}

func (l *load) send(ctx context.Context, c *client.Client) {
	key, begun := client.NewMessageID(), time.Now()
	message := text("hello")
	message.ID = key
	pause := time.NewTicker(50 * time.Millisecond) // of the sender: the load is no flood
	defer pause.Stop()
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		got, err := c.Send(one, client.SendParams{Message: message, IdempotencyKey: key})
		cancel()
		l.mu.Lock()
		if err == nil {
			l.tasks[key] = got.TaskID
			l.longest = max(l.longest, time.Since(begun))
			l.mu.Unlock()
			<-pause.C
			return
		}
		if ctx.Err() == nil {
			l.refused++
		}
		l.mu.Unlock()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// count returns the number of answered sends.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tasks)
}

// more waits until a number of further sends are answered.
func (l *load) more(s *stack, n int) {
	s.t.Helper()
	want := l.count() + n
	s.until("more sends are answered", func() bool { return l.count() >= want })
}

// check stops the load, and fails the test if an answered send is not stored as a completed task, once.
func (l *load) check(s *stack) {
	s.t.Helper()
	l.cancel()
	l.done.Wait()
	conn := s.database()
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	ids, lost := make(map[string]bool), 0
	for key, id := range l.tasks {
		if ids[id] {
			s.t.Errorf("two sends have the task %s", id)
		}
		ids[id] = true
		var state string
		err := conn.QueryRow(ctx, "SELECT state FROM audit.task WHERE id::text = $1", id).Scan(&state)
		if err != nil || state != "COMPLETED" {
			if lost++; lost == 1 {
				s.t.Errorf("the task %s of the answered send %s is %q (%v), want COMPLETED", id, key, state, err)
			}
		}
	}
	s.t.Logf("%d sends answered, %d lost; %d refused at first; the longest took %s", len(l.tasks), lost, l.refused,
		l.longest.Round(time.Millisecond))
	if len(l.tasks) == 0 {
		s.t.Error("no send was answered")
	}
}
