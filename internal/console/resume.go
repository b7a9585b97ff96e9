package console

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/store/operate"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// drop is where the viewer has dropped a stream, and what the server sent when it was resumed there.
type drop struct {
	ID      string // of the last frame before it
	Seq     int64  // of that frame
	Resumed bool
	Frames  []rawEvent // that followed; the first is the task as of ID
	Last    int64      // seq of the newest event that they have
	Missing []int64    // seqs that were not sent
	Refused string     // why the server did not resume the stream, or did not go on; empty: it did
}

// resumeTime is how long a page waits for the frames of a resumed stream. They are stored already.
const resumeTime = 5 * time.Second

// dropAt cuts the frames of a page after the one that the viewer has chosen, and reads the rest as a client does that
// resumes its stream.
func (c *Console) dropAt(q *request, t *playedTask, agent *a2a.Agent) error {
	form := q.r.URL.Query()
	at := slices.IndexFunc(t.Frames, func(f rawEvent) bool { return f.ID == form.Get("dropped") })
	if at < 0 || !t.Own || agent == nil {
		return nil
	}
	t.Drop = &drop{ID: t.Frames[at].ID, Seq: t.Frames[at].Seq, Resumed: form.Get("resumed") != ""}
	t.Frames, t.More = t.Frames[:at+1], 0
	if !t.Drop.Resumed {
		t.Live = "" // the page has dropped its stream, too
		return nil
	}
	err := c.resume(q, t.Drop, agent, &t.TaskRow)
	var refused *a2a.Error
	if errors.As(err, &refused) && refused.Code != a2a.CodeInternal {
		t.Drop.Refused, err = refused.Error(), nil
	}
	return err
}

// resume subscribes to a task with the id of the last frame that was seen, and reads what has happened since.
func (c *Console) resume(q *request, d *drop, agent *a2a.Agent, t *operate.TaskRow) error {
	ctx, cancel := context.WithTimeout(q.Context(), resumeTime)
	defer cancel()
	stream, err := c.cfg.Engine.Subscribe(ctx, q.caller(), agent, &a2a.Subscribe{
		ID: t.ID.String(), EndedOK: true, StreamRules: a2a.StreamRules{LastEventID: d.ID, ResumeAsTask: true},
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	d.Last = d.Seq
	for d.Last < t.LastSeq && len(d.Frames) < rawEvents {
		f, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return err
		}
		d.add(&q.shown, &f, t.ContextID)
	}
	for seq := d.Last + 1; seq <= t.LastSeq && len(d.Frames) < rawEvents; seq++ {
		d.Missing = append(d.Missing, seq)
	}
	return nil
}

// add adds a frame, and notes the events between it and the one before.
func (d *drop) add(s *shown, f *engine.Frame, contextID string) {
	seq, uid := f.Seq()
	frame := rawEvent{Seq: seq, ID: sse.FormatID(seq, uid.Short())}
	if f.Task != nil {
		frame.At, frame.JSON = f.Task.Status.Time, s.frame(v1.Codec{}.AppendSnapshot(nil, f.Task))
	} else {
		entry := f.Item.Entry
		entry.ContextID = contextID
		frame.At, frame.JSON = entry.Time, s.frame(v1.Codec{}.AppendEvent(nil, &entry, f.Last))
		for missing := d.Last + 1; missing < seq; missing++ {
			d.Missing = append(d.Missing, missing)
		}
	}
	d.Last = max(d.Last, seq)
	d.Frames = append(d.Frames, frame)
}

// Latest returns the frames, the newest first.
func (t *playedTask) Latest() []rawEvent {
	list := slices.Clone(t.Frames)
	slices.Reverse(list)
	return list
}
