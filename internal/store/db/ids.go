package db

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/a2a"
)

// NewTaskID makes the id of a new task.
func NewTaskID() a2a.ID { return a2a.ID(uuid.Must(uuid.NewV7())) }

// NewUID makes a random uid for an event or a message.
func NewUID() (id a2a.ID) {
	rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// PGID is an id as an argument.
func PGID(id a2a.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// PGIDs are ids as an argument.
func PGIDs(ids []a2a.ID) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = PGID(id)
	}
	return out
}

// PGTime is a time as an argument, null for the zero time.
func PGTime(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()} }

// PGInterval is a duration as an argument, null for zero.
func PGInterval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: d > 0}
}

// Duration is a stored interval. It has no months.
func Duration(i pgtype.Interval) time.Duration {
	return time.Duration(i.Days)*24*time.Hour + time.Duration(i.Microseconds)*time.Microsecond
}

// WireTime is a stored time in the form of the wire: UTC, whole milliseconds.
func WireTime(t pgtype.Timestamptz) time.Time { return t.Time.UTC().Truncate(time.Millisecond) }

// TimeOrZero is a stored time, or the zero time for a null.
func TimeOrZero(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// IDAt is the least id of a task that was made at a time: UUIDv7 begins with milliseconds.
func IDAt(t time.Time) (id a2a.ID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(t.UnixMilli(), 0)))
	copy(id[:6], ms[2:])
	return id
}

// IDTime is when a task was made, by its id: the end of the millisecond with which it begins.
func IDTime(id a2a.ID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:])) + 1)
}
