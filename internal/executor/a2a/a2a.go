// Package a2a runs tasks at another A2A agent, the upstream, and relays its events to the local log. No event
// is lost if this server, the upstream or the connection between them fails.
//
// # One upstream task
//
// The client's first message starts an upstream task. Each further message is sent to that task when it waits for
// input or authentication. The id of the upstream task is saved in the checkpoint as soon as it is known, and every
// later attempt continues that task. It never starts another one while the upstream knows the first. If the upstream
// has lost the task, Config.OnLostTask decides. Messages have ids and an Idempotency-Key that are the same on every
// attempt.
//
// # No event twice, none missing
//
// The events of a stream are relayed as they arrive. After an interruption, and before a turn ends, the upstream's
// Task is compared with the local log: artifacts and messages by their content, and the state. The difference is
// relayed. An artifact that differs from the local one is replaced. An upstream that does not stream, or whose resumed
// streams do not begin with the Task, is polled.
//
// # What is not relayed
//
// Ids of upstream tasks and contexts are not shown to clients; artifact and message ids are. Contexts of different
// tenants and owners never meet at the upstream. States without information (submitted, working without message and
// metadata) and new artifacts without parts are dropped. If the upstream cancels its task, the local task fails.
package a2a

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

// Config says how to reach the upstream. Card is required, everything else has a default.
type Config struct {
	Card    string      // URL of its card
	Version string      // "0.3" or "1.0"; default: the newest that the card offers
	Header  http.Header // sent with each request
	TLS     *tls.Config

	Connect  time.Duration // name, connection and TLS together; default 10 s
	Answer   time.Duration // to the header of an answer; default 5 min, because an upstream may block
	Silence  time.Duration // in a stream, before the stream counts as broken; default 2 min
	Resume   time.Duration // to the Task with which a resumed stream must begin; default 3 s
	Drain    time.Duration // for what follows the status that ends a turn; default 0.5 s
	Settle   time.Duration // for the read of the Task at the end of a turn, if no event was missed; default 10 s
	Poll     time.Duration // between two reads of a task that is not streamed; default 1 s
	Patience time.Duration // how long an upstream may be unreachable before the attempt fails; default 30 s
	CardAge  time.Duration // how long a card is used before it is read again; default 5 min
	MaxBytes int           // of one answer or event; default 65 MiB, more than a2ad stores of a task

	// AllowOrigins are servers, besides the card's, to which the card may refer, as https://host:port.
	AllowOrigins []string

	OnLostTask OnLostTask
	Log        *slog.Logger // default: none
}

// OnLostTask says what happens if the upstream has lost a task, or may have started one whose id was not received.
type OnLostTask uint8

// The default starts another upstream task. For work that must not happen twice, choose LostTaskFail.
const (
	LostTaskRetry OnLostTask = iota
	LostTaskFail
)

// Timeouts of short requests.
const (
	callTimeout   = 30 * time.Second
	cancelTimeout = 3 * time.Second // the worker waits 5 s for an executor whose context has ended
)

// Executor relays one upstream. It keeps idle connections for a while.
type Executor struct {
	c     Config
	http  *http.Client
	cards cards
}

// New returns an Executor. It starts nothing and sends no request.
func New(c Config) (*Executor, error) {
	origin, err := originOf(c.Card)
	if err != nil {
		return nil, err
	}
	c.Connect, c.Answer = cmp.Or(c.Connect, 10*time.Second), cmp.Or(c.Answer, 5*time.Minute)
	c.Silence, c.Resume = cmp.Or(c.Silence, 2*time.Minute), cmp.Or(c.Resume, 3*time.Second)
	c.Drain, c.Settle = cmp.Or(c.Drain, 500*time.Millisecond), cmp.Or(c.Settle, 10*time.Second)
	c.Poll, c.Patience = cmp.Or(c.Poll, time.Second), cmp.Or(c.Patience, 30*time.Second)
	c.CardAge, c.MaxBytes = cmp.Or(c.CardAge, 5*time.Minute), cmp.Or(c.MaxBytes, 65<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Executor{c: c, http: newHTTP(&c)}
	origins := []string{origin}
	for _, address := range c.AllowOrigins {
		allowed, err := originOf(address)
		if err != nil {
			return nil, err
		}
		origins = append(origins, allowed)
	}
	e.cards = cards{e: e, origins: origins, busy: make(chan struct{}, 1)}
	return e, nil
}

// Execute relays one turn. A cancel, or the end of the deadline, is forwarded once.
func (e *Executor) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	ctx = context.WithValue(ctx, traceKey{}, run.Traceparent)
	return executor.Emit(ctx, func(emit func(a2a.Event) error) error {
		s := newSession(e, &run, emit)
		err := s.do(ctx)
		cause := context.Cause(ctx)
		if cause == nil || s.ended {
			return err
		}
		if errors.Is(cause, executor.ErrCanceled) || errors.Is(cause, executor.ErrDeadline) {
			if err := s.cancel(context.WithoutCancel(ctx), executor.CancelMetadata(ctx)); err != nil {
				s.log.Warn("cancel at the upstream", "err", err)
			}
		}
		return cause
	})
}

var _ executor.Canceler = (*Executor)(nil)

// Cancel forwards the cancel of a task. It does nothing for a task that the upstream has ended or no longer knows.
func (e *Executor) Cancel(ctx context.Context, run executor.Run, metadata a2a.Raw) error {
	s := newSession(e, &run, nil)
	if err := s.cancel(context.WithValue(ctx, traceKey{}, run.Traceparent), metadata); err != nil {
		return s.runError(err)
	}
	return nil
}

func (e *Executor) header(version string) http.Header {
	h := maps.Clone(e.c.Header)
	if h == nil {
		h = http.Header{}
	}
	h.Set("A2A-Version", version)
	return h
}
