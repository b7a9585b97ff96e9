package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/tail"
)

// livePace is the least time between two changes that a live page is told.
const livePace = time.Second

// watch waits for changes of what a page shows. It returns once there is one, or with the cause of ctx.
type watch func(ctx context.Context) error

// live serves the events of a live page. An event says only that the page has changed: the page then reads itself again
// as a page of the viewer, so that there is one way to see anything.
func (c *Console) live(open func(*request) (next watch, stop func(), err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := c.viewerOf(r)
		if errors.Is(err, errSignedOut) || err == nil && !mayEnter(&v.principal) {
			err = lacks(auth.ScopeOperatorRead, auth.ScopeTenantRead, auth.ScopeTasksWrite)
		}
		if err == nil {
			err = c.count(&v.principal, false)
		}
		if err != nil {
			c.fail(c.answer(w), r, err)
			return
		}
		own, done := c.ownLives.of(&v.principal)
		defer done()
		if err := c.serveLive(&request{w, r, v}, own, open); err != nil {
			c.fail(c.answer(w), r, err)
		}
	}
}

// serveLive serves the events of a live page, if own and lives have a slot for it. It returns an error only if it has
// sent nothing.
func (c *Console) serveLive(q *request, own chan struct{}, open func(*request) (watch, func(), error)) error {
	for _, slots := range []chan struct{}{own, c.lives} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			return errBusy
		}
	}
	next, stop, err := open(q)
	if err != nil {
		return err
	}
	defer stop()
	if err := http.NewResponseController(q.w).SetReadDeadline(time.Time{}); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return nil //nolint:nilerr // the client disconnected
	}
	ctx, cancel := context.WithCancelCause(q.Context())
	defer cancel(nil)
	defer context.AfterFunc(c.cfg.Drain, func() { cancel(errDraining) })()
	c.follow(ctx, q, sse.NewWriter(q.w, c.cfg.WriteTimeout), next)
	return nil
}

var (
	errDraining = errors.New("the server is about to stop")
	errSilent   = errors.New("nothing has changed")
)

// follow sends an event for each change. At each ping it checks that the session still exists and may see the same. An
// open page is no use of the session, which ends for being idle.
func (c *Console) follow(ctx context.Context, q *request, out *sse.Writer, next watch) {
	if out.Comment("live") != nil {
		return
	}
	for n, ping := 0, time.Now().Add(c.cfg.Ping); ; {
		if !time.Now().Before(ping) {
			if !c.mayFollow(q) || out.Comment("ping") != nil {
				return
			}
			ping = time.Now().Add(c.cfg.Ping)
		}
		wait, stop := context.WithDeadlineCause(ctx, ping, errSilent)
		err := next(wait)
		stop()
		switch {
		case err == nil:
			n++
			if out.Event(strconv.Itoa(n), []byte("changed")) != nil || !pause(ctx, livePace) {
				return
			}
		case !errors.Is(err, errSilent) || ctx.Err() != nil:
			return
		}
	}
}

// mayFollow reports whether the viewer of a live page is still signed in, and sees as much as when the page was opened.
func (c *Console) mayFollow(q *request) bool {
	v, err := c.viewerOf(q.r)
	return err == nil && mayEnter(&v.principal) && v.tenant() == q.tenant() && v.owner() == q.owner()
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

// followAll follows all tasks that the viewer sees: some of them have changed. Only who sees all is told without a look
// at the tasks.
func (c *Console) followAll(q *request) (watch, func(), error) {
	if q.tenant() != "" {
		return c.followOwn(q)
	}
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

// followOwn follows the tasks of a tenant, or of an owner. When others change is none of the viewer's business.
func (c *Console) followOwn(q *request) (watch, func(), error) {
	follower := c.cfg.Tail.Follow("")
	return func(ctx context.Context) error {
		for {
			list, err := follower.Next(ctx)
			if err != nil || slices.ContainsFunc(list, func(t tail.Change) bool {
				return t.Missed || t.Task.Tenant == q.tenant() && (q.owner() == "" || t.Task.Owner == q.owner())
			}) {
				return err
			}
			if ctx.Err() != nil { // a viewer among many changes of others must still hear of the end
				return context.Cause(ctx)
			}
		}
	}, follower.Close, nil
}
