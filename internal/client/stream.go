package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/backoff"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/sse"
)

// errBadStream says that the server does not follow the protocol.
var errBadStream = errors.New("the stream is not A2A")

// StreamOptions says how to follow a task. The zero value works.
type StreamOptions struct {
	// LastEventID is the id of the last event that the caller has. Resubscribe continues after it
	// instead of starting with the Task. Stream uses it only with an idempotency key, because no
	// other stream can have started before.
	LastEventID string
	// OnCut is called before each wait with why the stream broke and when it resumes.
	OnCut func(err error, wait time.Duration)
}

// Stream sends a message and yields the events until the task ends or waits for its client. It
// resumes a cut stream by a subscription, and yields only the error that ends the stream, as the
// last item. The task continues if the caller stops reading.
func (c *Client) Stream(ctx context.Context, p SendParams, o StreamOptions) iter.Seq2[Event, error] {
	if p.Message.ID == "" {
		p.Message.ID = NewMessageID() // once: a repeated send must be the same message
	}
	return func(yield func(Event, error) bool) {
		f := &follower{c: c, opts: o, turn: true}
		if p.IdempotencyKey != "" {
			f.resumeAfter(o.LastEventID)
		}
		f.begin = &request{
			op: opStream, params: p.append(nil, c.Version, false), header: p.header(),
			repeatable: p.IdempotencyKey != "",
		}
		f.run(ctx, yield)
	}
}

// Resubscribe follows an existing task until it ends. Unlike Stream it continues when the task
// waits for its client.
func (c *Client) Resubscribe(ctx context.Context, taskID string, o StreamOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &follower{c: c, opts: o, taskID: taskID}
		f.resumeAfter(o.LastEventID)
		f.run(ctx, yield)
	}
}

type request struct {
	op         op
	params     []byte
	header     http.Header
	repeatable bool // the server accepts it once, however often it is sent
}

// follower is one stream over all its connections.
type follower struct {
	c     *Client
	opts  StreamOptions
	begin *request // the first request; nil once the task is known
	turn  bool     // ends with the turn, at input-required

	taskID  string
	lastID  string // of the last yielded event with an id
	lastSeq int64
	sent    bool // a request reached a connection
	yielded bool // any event, on any connection
	ended   bool // an event said that no other follows
	retry   time.Duration
	stopped bool // the caller stopped reading
}

func (f *follower) resumeAfter(id string) {
	f.lastID = id
	f.lastSeq, _, _ = sse.ParseID(id)
}

// run connects until the task has ended, the caller stops, or trying is pointless.
func (f *follower) run(ctx context.Context, yield func(Event, error) bool) {
	for try := 0; ; try++ {
		progress, err := f.connect(ctx, yield, try > 0)
		if f.ended || f.stopped {
			return
		}
		if progress {
			try = 0
		}
		if err = f.mendable(ctx, err, try); err != nil {
			yield(Event{}, err)
			return
		}
	}
}

// mendable waits for the next try, or returns the error that ends the stream.
func (f *follower) mendable(ctx context.Context, err error, try int) error {
	tries := f.c.Tries
	if tries == 0 {
		tries = DefaultTries
	}
	switch {
	case ctx.Err() != nil || !temporary(err) || !f.sent:
		// If the first request finds no server, the address is wrong or the server is down. Later
		// failures are cuts.
		return err
	case f.begin != nil && !f.begin.repeatable && turnedAway(err):
		return err
	case f.begin != nil && !f.begin.repeatable:
		return unknown(err)
	case try >= tries:
		return err
	}
	wait := f.wait(err, try)
	if f.opts.OnCut != nil {
		f.opts.OnCut(err, wait)
	}
	return f.c.pause(ctx, wait)
}

// wait returns the delay that the server asked for plus a backoff with jitter, so that clients that were cut together
// do not reconnect together.
func (f *follower) wait(err error, try int) time.Duration {
	policy := f.c.Retry
	if policy == (backoff.Policy{}) {
		policy = DefaultRetry
	}
	asked := f.retry
	var e *Error
	if errors.As(err, &e) {
		asked = max(asked, e.RetryAfter)
	}
	return min(asked, maxAsked) + policy.Delay(try, nil)
}

// maxAsked limits how long a server can make its clients wait.
const maxAsked = time.Minute

func (c *Client) pause(ctx context.Context, d time.Duration) error {
	if c.sleep != nil {
		return c.sleep(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errCut says that a stream stopped without an end.
var errCut = errors.New("the stream was cut")

// connect reads one connection to its end. progress says that it received an event.
func (f *follower) connect(
	ctx context.Context, yield func(Event, error) bool, resumed bool,
) (progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection of a stream that is not read to its end
	req := f.begin
	if req == nil {
		req = &request{op: opSubscribe, params: append(appendMember([]byte{'{'}, "id", f.taskID), '}')}
	}
	header := maps.Clone(req.header)
	if header == nil {
		header = http.Header{}
	}
	if f.lastID != "" {
		header.Set("Last-Event-ID", f.lastID)
	}
	resp, id, sent, err := f.c.post(ctx, req.op, req.params, header, "text/event-stream")
	f.sent = f.sent || sent
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK && f.c.isJSON(resp) {
		progress, err = f.single(resp, id, yield)
	} else if !isEventStream(resp) || resp.StatusCode != http.StatusOK {
		return false, httpError(resp)
	} else {
		progress, err = f.read(resp.Body, id, yield, resumed && f.yielded || f.lastID != "")
	}
	if hasEnded(err) && f.begin == nil && f.c.Version == V10 {
		return f.last(ctx, yield)
	}
	return progress, err
}

// codeEnded is the error of 1.0 for a subscription to a task that has ended.
const codeEnded = -32004

func hasEnded(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == codeEnded
}

// last yields a task that has ended and so cannot be followed: 1.0 has no stream for it.
func (f *follower) last(ctx context.Context, yield func(Event, error) bool) (bool, error) {
	res, err := f.c.Get(ctx, f.taskID, -1)
	if err != nil {
		return false, err
	}
	if !res.State.Terminal() {
		return false, errNotFollowed
	}
	f.ended = true
	f.deliver(Event{Result: res, Gap: f.yielded || f.lastID != ""}, yield)
	return true, nil
}

var errNotFollowed = errors.New("the server does not support following a task")

// single reads an answer that is no stream: an error, or one event.
func (f *follower) single(resp *http.Response, id int64, yield func(Event, error) bool) (bool, error) {
	body, err := f.c.readJSON(resp.Body)
	if err != nil {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	ev, err := decodeItem(sse.Event{Data: body}, id)
	if err != nil {
		return false, err
	}
	f.ended = true
	f.deliver(ev, yield)
	return true, nil
}

func (f *follower) read(
	body io.Reader, id int64, yield func(Event, error) bool, resumed bool,
) (progress bool, err error) {
	limit := f.c.maxBytes()
	r := sse.NewReader(body, sse.ReaderOptions{MaxLine: limit, MaxEvent: limit, Comments: true})
	gap := false
	var end *Event // the Task that the caller has already, when nothing may follow it
	for {
		item, err := r.Next()
		if d, ok := r.Retry(); ok {
			f.retry = d
		}
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			return progress, errTooLarge
		case err != nil && f.ended:
			return progress, nil
		case end != nil && errors.Is(err, io.EOF):
			f.ended = true
			f.deliver(*end, yield)
			return true, nil
		case err != nil:
			return progress, fmt.Errorf("%w (%w)", errCut, err)
		case item.Comment:
			gap = gap || string(item.Data) == "gap"
			end = nil // a stream that stays open, or drains, has not ended
			continue
		}
		ev, err := decodeItem(item, id)
		if err != nil {
			return progress, err
		}
		end = nil
		if ev.Kind == KindTask && !gap && ev.ID != "" && ev.ID == f.lastID {
			// A stream of 1.0 begins with the Task as of the caller's last event, and if the task
			// has ended nothing else comes.
			if ev.State.Terminal() || f.turn && ev.State == a2a.StateInputRequired {
				end = &ev
			}
			continue
		}
		// On a resumed connection a Task replaces events that the server no longer has, even if the
		// server does not say so or ignores Last-Event-ID.
		ev.Gap = ev.Kind == KindTask && (gap || resumed)
		gap = false
		if ev.Seq > 0 && ev.Seq <= f.lastSeq && !ev.Gap && !ev.Final {
			continue // seen before the cut; an end is yielded again, or the caller would wait for it
		}
		progress = true
		if !f.deliver(ev, yield) {
			return progress, nil
		}
	}
}

func decodeItem(item sse.Event, id int64) (Event, error) {
	if err := rawjson.Check(item.Data, maxDepth); err != nil {
		return Event{}, fmt.Errorf("%w: %w", errBadStream, err)
	}
	raw, err := open(rawjson.Trim(item.Data), id)
	if err != nil {
		return Event{}, err
	}
	ev, err := decodeEvent(raw, item.ID)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", errBadStream, err)
	}
	return ev, nil
}

// deliver records the position in the stream, yields, and reports whether to read on.
func (f *follower) deliver(ev Event, yield func(Event, error) bool) bool {
	first := !f.yielded
	f.yielded = true
	if ev.TaskID != "" {
		f.taskID, f.begin = ev.TaskID, nil
	}
	if ev.ID != "" {
		f.lastID, f.lastSeq = ev.ID, ev.Seq
	}
	switch {
	case ev.Final, ev.Kind == KindMessage, ev.State.Terminal():
		f.ended = true
	case f.turn && ev.State == a2a.StateInputRequired:
		// The first snapshot may be from before the message arrived.
		f.ended = f.ended || ev.Kind == KindStatus || !first
	}
	if !yield(ev, nil) {
		f.stopped = true
		return false
	}
	// After a finished Task comes its last status. Otherwise the event that ends a stream is its
	// last item.
	return !f.ended || ev.Kind == KindTask && ev.State.Terminal()
}
