package rpc

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/sse"
)

var (
	errPing   = errors.New("no event within the ping interval")
	errClosed = errors.New("stream ended")
)

// stream sends frames until the last one, until the client disconnects or reads too slowly, or
// until the server drains. A stream without a last event tells the client to reconnect. It returns
// an error only if the stream did not begin.
func (c *call) stream(ctx context.Context, st *engine.Stream) error {
	defer st.Close()
	c.rec.task = st.TaskID.String()
	ctx, stop := c.untilDrain(ctx)
	defer stop()
	out, err := c.front.open()
	if err != nil {
		return err
	}
	c.rec.streaming()
	c.ended(out, c.frames(ctx, st, out))
	return nil
}

// untilDrain returns a context that ends with ctx, with stop, and when the server drains.
func (c *call) untilDrain(ctx context.Context) (drained context.Context, stop func()) {
	drained, cancel := context.WithCancelCause(ctx)
	undo := context.AfterFunc(c.s.cfg.Drain, func() { cancel(engine.ErrDraining) })
	return drained, func() {
		undo()
		cancel(errClosed)
	}
}

// ended tells the client and the record why the stream ends.
func (c *call) ended(out items, err error) {
	c.cut(err)
	var refused *auth.Error
	c.rec.failed = errors.As(err, &refused)
	failed := out.end(err)
	if errors.Is(err, engine.ErrDraining) {
		err = nil // nothing to report
	}
	c.rec.err = errors.Join(err, failed)
}

// frames sends all frames, up to the last one.
func (c *call) frames(ctx context.Context, st *engine.Stream, out items) error {
	for {
		f, err := next(ctx, st, c.s.cfg.SSEPing)
		ended := auth.Ended(ctx) // checked even if there is a frame: a client that is always late never waits
		switch {
		case ended != nil:
			return ended
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

// frame sends one frame. All streams of the same form share the encoding of an event.
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
		result = f.Item.Encoded(c.gen.slot(f.Last), func(e *a2a.Entry) []byte {
			return c.gen.packed(c.gen.AppendEvent(nil, e, f.Last))
		})
	}
	if err := out.item(sse.FormatID(seq, uid.Short()), result); err != nil {
		return err
	}
	if f.Item != nil {
		c.sent(f.Item.Time, c.rec.opened)
	}
	return nil
}
