package tasks

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// EventsAfter reads at most limit events after the one with seq after. The caller has checked that the client may see
// the task.
func (s *Store) EventsAfter(ctx context.Context, task a2a.ID, after int64, limit int) ([]a2a.Entry, error) {
	entries, _, err := s.EventPage(ctx, task, after, limit, noLimit)
	return entries, err
}

// noLimit is more bytes than there are.
const noLimit = int64(1) << 60

// EventPage is EventsAfter with a limit of bytes: it reads as many events as fit, but at least one. more says that
// there may be more events.
func (s *Store) EventPage(
	ctx context.Context, task a2a.ID, after int64, most int, limit int64,
) (page []a2a.Entry, more bool, err error) {
	var rows []dbsqlc.EventsAfterRow
	err = s.db.RepeatRead(ctx, func() (err error) {
		rows, err = dbsqlc.New(s.db.Reads()).EventsAfter(ctx, dbsqlc.EventsAfterParams{
			TaskID: db.PGID(task), After: after, Bytes: limit, Max: int32(most),
		})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("read events: %w", err)
	}
	entries := make([]a2a.Entry, len(rows))
	for i, r := range rows {
		var state int16
		if r.State != nil {
			state = *r.State
		}
		var artifact string
		if r.ArtifactID != nil {
			artifact = *r.ArtifactID
		}
		e, err := DecodeEvent(r.Kind, state, artifact, r.Body, r.Parts)
		if err != nil {
			return nil, false, fmt.Errorf("read event %d of task %s: %w", r.Seq, task, err)
		}
		entries[i] = a2a.Entry{
			TaskID: task, Seq: r.Seq, UID: r.EventUid.Bytes, Time: db.WireTime(r.CommittedAt), Event: e,
		}
		if s, ok := e.(*a2a.StatusUpdate); ok {
			s.Status.Time = entries[i].Time
		}
	}
	return entries, len(rows) == most || len(rows) > 0 && rows[0].Found > int64(len(rows)), nil
}

// Log is what streams read of a Store. Each page waits for a connection as long as its context lasts: an open stream is
// not refused.
type Log struct{ *Store }

// Log returns the Log of s.
func (s *Store) Log() Log { return Log{s} }

// EventPage is that of the Store.
func (l Log) EventPage(
	ctx context.Context, task a2a.ID, after int64, most int, limit int64,
) (page []a2a.Entry, more bool, err error) {
	return l.Store.EventPage(db.Patient(ctx), task, after, most, limit)
}

// EventUID returns the uid of one event; ok is false if there is none.
func (s *Store) EventUID(ctx context.Context, task a2a.ID, seq int64) (uid a2a.ID, ok bool, err error) {
	err = s.db.RepeatRead(ctx, func() error {
		u, err := dbsqlc.New(s.db.Reads()).EventUID(ctx, db.PGID(task), seq)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		uid, ok = u.Bytes, err == nil
		return err
	})
	if err != nil {
		return uid, false, fmt.Errorf("read event uid: %w", err)
	}
	return uid, ok, nil
}

// Ahead returns the tasks that have events after the given seqs, and those that do not exist.
func (s *Store) Ahead(ctx context.Context, ids []a2a.ID, seen []int64) (ahead, gone []a2a.ID, err error) {
	rows, err := dbsqlc.New(s.db.Reads()).TasksAhead(ctx, db.PGIDs(ids), seen)
	if err != nil {
		return nil, nil, fmt.Errorf("poll tasks: %w", db.Unavailable(err))
	}
	for _, r := range rows {
		if r.Gone {
			gone = append(gone, r.ID.Bytes)
		} else {
			ahead = append(ahead, r.ID.Bytes)
		}
	}
	return ahead, gone, nil
}
