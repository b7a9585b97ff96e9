package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/sse"
)

func (c *call) streamMessage(ctx context.Context, op *a2a.SendMessage) error {
	st, err := c.s.cfg.Engine.Stream(ctx, c.caller, c.agent.agent, op)
	if err != nil {
		return err
	}
	defer st.Close()
	return c.stream(ctx, st)
}

func (c *call) subscribe(ctx context.Context, op *a2a.Subscribe) error {
	op.LastEventID = c.header.Get("Last-Event-ID")
	st, err := c.s.cfg.Engine.Subscribe(ctx, c.caller, c.agent.agent, op)
	if err != nil {
		return err
	}
	defer st.Close()
	return c.stream(ctx, st)
}

var (
	errPing   = errors.New("time for a sign of life")
	errClosed = errors.New("stream was read to its end")
)

// stream sends frames until the last one, the client is gone or too slow, or the server
// drains. An end without a last event tells the client to come back. It returns an error only
// if the stream did not begin.
func (c *call) stream(ctx context.Context, st *engine.Stream) error {
	c.rec.task = st.TaskID.String()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.s.cfg.Drain, func() { cancel(engine.ErrDraining) })
	defer stop()
	defer cancel(errClosed)
	out, err := c.front.open()
	if err != nil {
		return err
	}
	c.rec.streaming()
	err = c.frames(ctx, st, out)
	c.cut(err)
	failed := out.end(err)
	if errors.Is(err, engine.ErrDraining) {
		err = nil // nothing to report
	}
	c.rec.err = errors.Join(err, failed)
	return nil
}

// frames sends what comes, up to the last frame.
func (c *call) frames(ctx context.Context, st *engine.Stream, out items) error {
	for {
		f, err := next(ctx, st, c.s.cfg.SSEPing)
		switch {
		case err == nil:
			err = c.frame(out, &f)
			c.rec.events++
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errPing):
			err = out.ping()
		case errors.Is(context.Cause(ctx), engine.ErrDraining):
			return engine.ErrDraining
		}
		if err != nil {
			return err
		}
	}
}

// next returns the next frame, or errPing if none comes for a while.
func next(ctx context.Context, st *engine.Stream, ping time.Duration) (engine.Frame, error) {
	if st.Pending() {
		return st.Next(ctx)
	}
	wait, cancel := context.WithTimeoutCause(ctx, ping, errPing)
	defer cancel()
	return st.Next(wait)
}

// frame sends one frame. The encoding of an event is shared by all streams of its form.
func (c *call) frame(out items, f *engine.Frame) error {
	seq, uid := f.Seq()
	var result []byte
	if f.Task != nil {
		if f.Gap {
			if err := out.gap(); err != nil {
				return err
			}
			if wantsExtension(c.header, ResumeExtension) {
				markGap(f.Task)
			}
		}
		result = c.gen.packed(c.gen.AppendSnapshot(nil, f.Task))
	} else {
		result = f.Item.Encoded(c.gen.slot(f.Last), func(e *a2a.Entry) []byte { return c.gen.packed(c.gen.AppendEvent(nil, e, f.Last)) })
	}
	if err := out.item(sse.FormatID(seq, uid.Short()), result); err != nil {
		return err
	}
	if f.Item != nil {
		c.sent(f.Item.Time, c.rec.opened)
	}
	return nil
}
