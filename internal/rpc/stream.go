package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/jsonrpc"
	"github.com/a2ad/a2ad/internal/sse"
)

func (c *call) streamMessage(ctx context.Context, op *a2a.SendMessage) error {
	st, err := c.s.cfg.Engine.Stream(ctx, c.caller, c.agent.agent, op)
	if err != nil {
		return err
	}
	defer st.Close()
	c.stream(ctx, st)
	return nil
}

func (c *call) subscribe(ctx context.Context, op *a2a.Subscribe) error {
	op.LastEventID = c.r.Header.Get("Last-Event-ID")
	st, err := c.s.cfg.Engine.Subscribe(ctx, c.caller, c.agent.agent, op)
	if err != nil {
		return err
	}
	defer st.Close()
	c.stream(ctx, st)
	return nil
}

var (
	errPing   = errors.New("time for a sign of life")
	errClosed = errors.New("stream was read to its end")
)

// stream writes frames until the last one, the client is gone or too slow, or the server
// drains. An end without a last event tells the client to come back.
func (c *call) stream(ctx context.Context, st *engine.Stream) {
	c.rec.task = st.TaskID.String()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.s.cfg.Drain, func() { cancel(engine.ErrDraining) })
	defer stop()
	defer cancel(errClosed)
	// The request has been read; from here on only writes have a deadline, each its own.
	if err := http.NewResponseController(c.w).SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		c.rec.err = err
		return
	}
	w := frameWriter{call: c, out: sse.NewWriter(c.w, c.s.cfg.SSEWriteTimeout), prefix: jsonrpc.AppendResultPrefix(nil, c.id)}
	for {
		f, err := next(ctx, st, c.s.cfg.SSEPing)
		switch {
		case err == nil:
			err = w.frame(&f)
			c.rec.events++
		case errors.Is(err, io.EOF):
			return
		case errors.Is(err, errPing):
			err = w.out.Comment("ping")
		case errors.Is(context.Cause(ctx), engine.ErrDraining):
			if err = w.out.Retry(c.s.cfg.SSERetry); err == nil {
				err = w.out.Comment("draining")
			}
			c.rec.err = err
			return
		}
		if err != nil {
			c.rec.err = err
			return
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

// frameWriter encodes the frames of one stream.
type frameWriter struct {
	call   *call
	out    *sse.Writer
	prefix []byte // of every response, up to its result
}

var resultSuffix = []byte(jsonrpc.ResultSuffix)

func (w *frameWriter) frame(f *engine.Frame) error {
	seq, uid := f.Seq()
	var result []byte
	if f.Task != nil {
		if f.Gap {
			if err := w.out.Comment("gap"); err != nil {
				return err
			}
			if wantsExtension(w.call.r.Header, ResumeExtension) {
				markGap(f.Task)
			}
		}
		result = w.call.gen.AppendSnapshot(nil, f.Task)
	} else {
		slot := w.call.gen.slot
		if f.Last {
			slot++
		}
		result = f.Item.Encoded(slot, func(e *a2a.Entry) []byte { return w.call.gen.AppendEvent(nil, e, f.Last) })
	}
	return w.out.Event(sse.FormatID(seq, uid.Short()), w.prefix, result, resultSuffix)
}
