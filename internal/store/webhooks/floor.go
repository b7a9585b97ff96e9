package webhooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/webhooks/dbsqlc"
)

// claimFloor is the next_attempt_at below which no webhook was seen that has something to deliver. Every claim moves it
// on.
type claimFloor struct {
	mu      sync.Mutex
	at      time.Time // guarded by mu
	whole   db.Polls  // guarded by mu; of polls from the start
	polling bool      // guarded by mu; a claim polls from the start: the others begin at the floor as it is
}

// poll is what a claim of webhooks begins with.
type poll struct {
	floor pgtype.Timestamptz
	empty bool // no webhook is due that is not parked
	lists []dbsqlc.PushPollRow
}

// poll reads from the floor, or from the start if it is time for that. If the read fails, the floor stays. No statement
// runs under the mutex: without an answer it would delay every claim.
func (f *claimFloor) poll(ctx context.Context, s *Store) (poll, error) {
	if begin := time.Now(); f.begin(begin) {
		out, err := f.pollFrom(ctx, s, time.Time{}, &begin)
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		s.db.Logger().WarnContext(ctx, "look for the first webhook", "err", err)
	}
	f.mu.Lock()
	at := f.at
	f.mu.Unlock()
	return f.pollFrom(ctx, s, at, nil)
}

// pollFrom reads from a floor, and puts the floor where the first webhook is. whole is when a poll from the start
// began.
func (f *claimFloor) pollFrom(ctx context.Context, s *Store, from time.Time, whole *time.Time) (out poll, err error) {
	err = errors.New("the poll did not end")
	var at time.Time
	defer func() { f.ended(at, whole, err) }()
	rows, err := dbsqlc.New(s.db.Work()).PushPoll(ctx, db.PGFloor(from), pushLists)
	if err != nil {
		return out, err
	}
	for _, r := range rows {
		if r.Part == 0 {
			at, out.empty = r.At.Time.Add(-db.WideMargin), r.Empty // there are fewer webhooks than claims
		} else {
			out.lists = append(out.lists, r)
		}
	}
	out.floor = db.PGFloor(at)
	return out, nil
}

// begin reports whether it is time for a poll from the start. The caller then makes it and calls ended.
func (f *claimFloor) begin(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	whole := !f.polling && f.whole.Due(now)
	f.polling = f.polling || whole
	return whole
}

func (f *claimFloor) ended(at time.Time, whole *time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if whole != nil {
		f.polling = false
		f.whole.Polled(*whole, db.FloorsAge, err)
	}
	if err == nil {
		f.at = at
	}
}
