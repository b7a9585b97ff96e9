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

// errBadStream is a server that does not speak the protocol.
var errBadStream = errors.New("the stream is not A2A")

// StreamOptions says how to follow a task. The zero value works.
type StreamOptions struct {
	// LastEventID is the id of the last event that the caller has. Resubscribe goes on
	// behind it instead of beginning with the Task; Stream uses it with an idempotency
	// key only, since no other stream can have begun before.
	LastEventID string
	// OnCut is told before each wait why the stream broke and when it is taken up again.
	OnCut func(err error, wait time.Duration)
}

// Stream sends a message and yields what happens, until the task ends or waits for its
// client. A cut is mended by a subscription; only an error that ends the stream is
// yielded, as the last item. The task goes on when the caller stops reading.
func (c *Client) Stream(ctx context.Context, p SendParams, o StreamOptions) iter.Seq2[Event, error] {
	if p.Message.ID == "" {
		p.Message.ID = NewMessageID() // once: a repeated send is the same message
	}
	return func(yield func(Event, error) bool) {
		f := &follower{c: c, opts: o, turn: true}
		if p.IdempotencyKey != "" {
			f.resumeAfter(o.LastEventID)
		}
		f.begin = &request{op: opStream, params: p.append(nil, c.Version, false), header: p.header(), repeatable: p.IdempotencyKey != ""}
		f.run(ctx, yield)
	}
}

// Resubscribe follows a task that exists, until it ends. Unlike Stream it stays when
// the task waits for its client.
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
	repeatable bool // the server takes it once, however often it is sent
}

// follower is one stream over all its connections.
type follower struct {
	c     *Client
	opts  StreamOptions
	begin *request // how to start; nil once the task is known
	turn  bool     // ends with the turn: at input-required

	taskID  string
	lastID  string // of the last event yielded that had one
	lastSeq int64
	sent    bool // a request got as far as a connection
	yielded bool // any event, on any connection
	ended   bool // an event said that no other follows
	retry   time.Duration
	stopped bool // the caller has had enough
}

func (f *follower) resumeAfter(id string) {
	f.lastID = id
	f.lastSeq, _, _ = sse.ParseID(id)
}

// run connects until the task has ended, the caller stops or trying is pointless.
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
		// A first request that found no server is an error in the address, or a server
		// that is down; a cut is what comes later.
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

// wait is what the server asked for and a backoff with jitter, which keeps clients
// that were cut together from coming back together.
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

// maxAsked keeps a server from sending its clients away for good.
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

// errCut is a stream that had begun and stopped without an end.
var errCut = errors.New("the stream was cut")

// connect reads one connection to its end. progress says that it brought an event.
func (f *follower) connect(ctx context.Context, yield func(Event, error) bool, resumed bool) (progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the connection of a stream that is left before its end
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
	if resp.StatusCode == http.StatusOK && isJSON(resp) {
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

// codeEnded is what 1.0 says to a subscription to a task that has ended.
const codeEnded = -32004

func hasEnded(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == codeEnded
}

// last yields a task that has ended where it cannot be followed: 1.0 has no stream for it.
func (f *follower) last(ctx context.Context, yield func(Event, error) bool) (bool, error) {
	res, err := f.c.Get(ctx, f.taskID, -1)
	if err != nil {
		return false, err
	}
	if !res.State.Terminal() {
		return false, errNotFollowed
	}
	f.ended = true
	f.take(Event{Result: res, Gap: f.yielded || f.lastID != ""}, yield)
	return true, nil
}

var errNotFollowed = errors.New("the server follows no tasks")

// single takes an answer that is no stream: an error, or one event.
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
	f.take(ev, yield)
	return true, nil
}

func (f *follower) read(body io.Reader, id int64, yield func(Event, error) bool, resumed bool) (progress bool, err error) {
	limit := f.c.maxBytes()
	r := sse.NewReader(body, sse.ReaderOptions{MaxLine: limit, MaxEvent: limit, Comments: true})
	gap := false
	var end *Event // the Task that the caller has already, when nothing may come after it
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
			f.take(*end, yield)
			return true, nil
		case err != nil:
			return progress, fmt.Errorf("%w (%w)", errCut, err)
		case item.Comment:
			gap = gap || string(item.Data) == "gap"
			end = nil // a stream that is kept open, or drained, has not ended
			continue
		}
		ev, err := decodeItem(item, id)
		if err != nil {
			return progress, err
		}
		end = nil
		if ev.Kind == KindTask && !gap && ev.ID != "" && ev.ID == f.lastID {
			// 1.0 begins with the Task as of the event that the caller has, and at the end there is only that.
			if ev.State.Terminal() || f.turn && ev.State == a2a.StateInputRequired {
				end = &ev
			}
			continue
		}
		// On a resumed connection a Task stands in for events that the server no longer
		// has, whether it says so or does not know Last-Event-ID at all.
		ev.Gap = ev.Kind == KindTask && (gap || resumed)
		gap = false
		if ev.Seq > 0 && ev.Seq <= f.lastSeq && !ev.Gap && !ev.Final {
			continue // seen before the cut; an end is told again, or the caller would wait for it
		}
		progress = true
		if !f.take(ev, yield) {
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

// take notes where the stream is, yields, and reports whether to read on.
func (f *follower) take(ev Event, yield func(Event, error) bool) bool {
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
		// The first snapshot may be of the moment before the message arrived.
		f.ended = f.ended || ev.Kind == KindStatus || !first
	}
	if !yield(ev, nil) {
		f.stopped = true
		return false
	}
	// A finished Task is followed by its last status; else what ends a stream is its last item.
	return !f.ended || ev.Kind == KindTask && ev.State.Terminal()
}
