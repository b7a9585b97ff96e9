// Package a2a runs tasks at an A2A agent elsewhere, the upstream: what it reports goes into
// our log, and what happens to us, to it or to the connection in between loses nothing of it.
//
// # One upstream task
//
// The first message of the client starts a task there, each further one is sent to that task
// when it waits for input or authentication. Its id is saved in the checkpoint as soon as it
// is known; every later attempt goes on with that task. It never starts another one as long
// as the upstream knows the first. When the upstream has forgotten it, Config.OnLostTask says
// what happens. Messages carry ids and an Idempotency-Key that are the same on every attempt.
//
// # No event twice, none missing
//
// While a stream lasts its events are relayed as they come. After a break the Task as the
// upstream has it is compared with what our log holds: artifacts part by part, messages by
// their ids, the state with the last one relayed; the difference is relayed. An artifact that
// the upstream shows otherwise than we have it is replaced. An upstream that does not stream,
// or whose resumed streams do not begin with the Task, is polled.
//
// # What is not passed on
//
// Ids of upstream tasks and contexts are not ours and stay here; artifact and message ids go
// through. Contexts of our clients are told apart by tenant and owner. States that say nothing
// (submitted, working without message and metadata) are dropped, and so are artifacts without
// parts. An upstream that cancels its task has failed ours.
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

// Config says where the upstream is. Card is required, everything else has a default.
type Config struct {
	Card    string      // URL of its card
	Version string      // "0.3" or "1.0"; default: the newest that the card offers
	Header  http.Header // sent with each request
	TLS     *tls.Config

	Connect  time.Duration // name, connection and TLS together; default 10 s
	Answer   time.Duration // to the header of an answer; default 5 min, as a blocking upstream takes its time
	Silence  time.Duration // in a stream, before it is taken for broken; default 2 min
	Resume   time.Duration // to the Task that a resumed stream must begin with; default 3 s
	Poll     time.Duration // between two looks at a task that is not streamed; default 1 s
	Patience time.Duration // how long an upstream may be away before the attempt is given up; default 30 s
	CardAge  time.Duration // how long a card is believed; default 5 min
	MaxBytes int           // of one answer or event; default 65 MiB, more than a2ad keeps of a task

	// AllowOrigins are servers, besides that of the card, that the card may lead to, as https://host:port.
	AllowOrigins []string

	OnLostTask OnLostTask
	Log        *slog.Logger // default: none
}

// OnLostTask says what becomes of a task that the upstream has forgotten, or that it may have
// taken without our having heard its id.
type OnLostTask uint8

// The default starts another task there; work that must not happen twice chooses the other.
const (
	LostTaskRetry OnLostTask = iota
	LostTaskFail
)

// Bounds of requests that take moments.
const (
	callTimeout   = 30 * time.Second
	cancelTimeout = 3 * time.Second // the worker waits five for an executor whose context has ended
)

// Executor relays one upstream. It holds connections that are idle for a while.
type Executor struct {
	c     Config
	http  *http.Client
	cards cards
}

// New returns an Executor. It starts nothing and asks nothing.
func New(c Config) (*Executor, error) {
	origin, err := originOf(c.Card)
	if err != nil {
		return nil, err
	}
	c.Connect, c.Answer, c.Silence = cmp.Or(c.Connect, 10*time.Second), cmp.Or(c.Answer, 5*time.Minute), cmp.Or(c.Silence, 2*time.Minute)
	c.Poll, c.Patience, c.CardAge = cmp.Or(c.Poll, time.Second), cmp.Or(c.Patience, 30*time.Second), cmp.Or(c.CardAge, 5*time.Minute)
	c.Resume, c.MaxBytes = cmp.Or(c.Resume, 3*time.Second), cmp.Or(c.MaxBytes, 65<<20)
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

// Execute relays one turn. A cancel, or the end of the deadline, is passed on once.
func (e *Executor) Execute(ctx context.Context, run executor.Run) iter.Seq2[a2a.Event, error] {
	ctx = context.WithValue(ctx, traceKey{}, run.Traceparent)
	return executor.Emit(ctx, func(emit func(a2a.Event) error) error {
		s := newSession(e, &run, emit)
		err := s.do(ctx)
		cause := context.Cause(ctx)
		if cause == nil || s.over {
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

// Cancel passes on that a task was canceled. One that the upstream has ended, or no longer knows, needs none.
func (e *Executor) Cancel(ctx context.Context, run executor.Run, metadata a2a.Raw) error {
	s := newSession(e, &run, nil)
	if err := s.cancel(context.WithValue(ctx, traceKey{}, run.Traceparent), metadata); err != nil {
		return s.verdict(err)
	}
	return nil
}

// invalid is the error of a run whose upstream does not keep to the rules.
func invalid(format string, args ...any) error {
	return executor.Permanent(a2a.Errorf(a2a.CodeInvalidAgentResponse, format, args...))
}

func (e *Executor) header(version string) http.Header {
	h := maps.Clone(e.c.Header)
	if h == nil {
		h = http.Header{}
	}
	h.Set("A2A-Version", version)
	return h
}
