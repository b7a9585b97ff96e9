package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/sse"
)

// livePace is the least time between two changes that a live page is told.
const livePace = time.Second

// watch waits for changes of what a page shows. It returns once there is one, or with the cause of ctx.
type watch func(ctx context.Context) error

// live serves the events of a live page. An event says only that the page has changed: the page then reads itself again
// as a page of the viewer, so that there is one way to see anything.
func (c *Console) live(open func(*request) (next watch, stop func(), err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case c.lives <- struct{}{}:
			defer func() { <-c.lives }()
		default:
			c.fail(w, r, errBusy)
			return
		}
		v, err := c.viewerOf(r)
		if errors.Is(err, errSignedOut) || err == nil && !mayEnter(&v.principal) {
			err = lacks(auth.ScopeOperatorRead, auth.ScopeTenantRead, auth.ScopeTasksWrite)
		}
		if err != nil {
			c.fail(w, r, err)
			return
		}
		next, stop, err := open(&request{w, r, v})
		if err != nil {
			c.fail(w, r, err)
			return
		}
		defer stop()
		if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil &&
			!errors.Is(err, http.ErrNotSupported) {
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(c.cfg.Drain, func() { cancel(errDraining) })()
		c.follow(ctx, r, sse.NewWriter(w, c.cfg.WriteTimeout), next)
	}
}

var (
	errDraining = errors.New("the server is about to stop")
	errSilent   = errors.New("nothing has changed")
)

// follow sends an event for each change. Between them it checks that the session still exists.
func (c *Console) follow(ctx context.Context, r *http.Request, out *sse.Writer, next watch) {
	if out.Comment("live") != nil {
		return
	}
	for n := 0; ; {
		wait, stop := context.WithTimeoutCause(ctx, c.cfg.Ping, errSilent)
		err := next(wait)
		stop()
		switch {
		case err == nil:
			n++
			if out.Event(strconv.Itoa(n), []byte("changed")) != nil || !pause(ctx, livePace) {
				return
			}
		case errors.Is(err, errSilent) && ctx.Err() == nil:
			if v, err := c.viewerOf(r); err != nil || !mayEnter(&v.principal) || out.Comment("ping") != nil {
				return
			}
		default:
			return
		}
	}
}

// pause waits, and reports false if ctx has ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// followTask follows the log of a task.
func (c *Console) followTask(q *request) (watch, func(), error) {
	t, err := c.find(q)
	if err != nil {
		return nil, nil, err
	}
	after, err := strconv.ParseInt(q.r.URL.Query().Get("after"), 10, 64)
	if err != nil || after < 0 || after > t.LastSeq {
		after = t.LastSeq
	}
	cursor := c.cfg.Follower.Follow(t.ID, t.ContextID, after, t.LastSeq)
	return func(ctx context.Context) error {
		_, err := cursor.Next(ctx)
		return err
	}, cursor.Close, nil
}

// followAll follows all tasks: some task has changed.
func (c *Console) followAll(*request) (watch, func(), error) {
	changed, stop := c.cfg.Changed()
	return func(ctx context.Context) error {
		select {
		case <-changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, stop, nil
}
