package tasks

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/store/db"
)

// A poll that failed because the database was unreachable does not delay the next one. A poll that was canceled does.
func TestUnreachableDatabaseDoesNotDelayTheNextPoll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		next time.Duration
	}{
		{errors.New("dial: timeout"), time.Second}, {&pgconn.PgError{Code: "57P03"}, time.Second},
		{&pgconn.PgError{Code: "57014"}, time.Minute}, {nil, time.Minute},
	} {
		var p db.Polls
		for range 3 {
			p.Polled(time.Now().Add(-5*time.Second), time.Second, tt.err)
		}
		if got := time.Until(p.Next).Round(time.Second); got != tt.next {
			t.Errorf("after polls of 5 s that end with %v, the next is in %s, want %s", tt.err, got, tt.next)
		}
	}
}

// While one submission polls the lanes, the others use what is known, however long the poll takes.
func TestOneSubmissionPollsTheLanes(t *testing.T) {
	t.Parallel()
	l := laner{owners: make(map[laneKey]*laneOwner), heads: make(map[string]*laneHeads)}
	key := laneKey{"a", "t", "ann"}
	choose := func() (lanes []int16, declined int) {
		for range 3 * laneRoom[0] {
			lane, ok := l.choose(key, false)
			if !ok {
				declined++
				continue
			}
			lanes = append(lanes, lane)
		}
		return lanes, declined
	}
	if got, declined := choose(); declined != 1 {
		t.Errorf("%d submissions poll the full lane, want 1; the others went to %v", declined, got)
	}
	if _, declined := choose(); declined != 0 {
		t.Errorf("while one submission polls, %d others do, want none", declined)
	}
}
