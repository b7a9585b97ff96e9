package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

// mostSessions is how many other servers a process looks at. It bounds the locks that a look takes.
const mostSessions = 200

// settleGraces is for how many graces this process must be connected before it judges others: after a fail-over, all
// have to connect again.
const settleGraces = 6

// Sessions finds out which servers are gone, by their presence locks (db.DB.LockPresence). It is not safe for
// concurrent use.
type Sessions struct {
	Grace time.Duration // how long a server may have no session until it is gone

	locks  int64                // PresenceLocks of this process, since the time since
	since  time.Time            // zero: this process has no presence lock, as far as known
	looked time.Time            // last
	free   map[string]time.Time // since when which presence locks are free, as far as known
	failed bool                 // the last look
}

// look returns the servers that are gone. After an error, which ends the transaction, the next call does not look: the
// rescue goes on for leases that have expired.
func (w *Sessions) look(ctx context.Context, tx *db.Tx, own *db.DB) ([]string, error) {
	if own.Holder() == "" || w.failed {
		w.forget()
		return nil, nil
	}
	rows, err := dbsqlc.New(tx).ServersGone(ctx, own.Instance(), mostSessions)
	if err != nil {
		w.forget() // the database may have lost all sessions
		w.failed = true
		return nil, fmt.Errorf("look for servers that are gone: %w", err)
	}
	// The number is read after the statement has seen which sessions there are.
	return w.judge(time.Now(), own.Instance(), own.PresenceLocks(), rows), nil
}

// judge returns the servers whose locks were free for the grace, as far as this process has seen.
func (w *Sessions) judge(now time.Time, own string, locks int64, rows []dbsqlc.ServersGoneRow) []string {
	if now.Sub(w.looked) > w.Grace { // a lock that was free then may have been held since
		w.free = nil
	}
	w.looked = now
	seen := make(map[string]time.Time)
	for _, r := range rows {
		if !r.Gone {
			continue
		}
		if r.Instance == own { // this is another database than that of Watch
			w.forget()
			return nil
		}
		seen[r.Instance] = now
		if first, ok := w.free[r.Instance]; ok {
			seen[r.Instance] = first
		}
	}
	if w.since.IsZero() || w.locks != locks {
		w.since, w.locks = now, locks
	}
	w.free = seen
	if now.Sub(w.since) < settleGraces*w.Grace {
		return nil
	}
	var gone []string
	for instance, first := range seen {
		if now.Sub(first) >= w.Grace {
			gone = append(gone, instance)
		}
	}
	return gone
}

// Suspects reports whether a server has no session and is not gone yet, so that it is worth looking again soon.
func (w *Sessions) Suspects() bool {
	for _, first := range w.free {
		if time.Since(first) < w.Grace {
			return true
		}
	}
	return false
}

func (w *Sessions) forget() { w.since, w.free, w.failed = time.Time{}, nil, false }
