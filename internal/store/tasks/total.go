package tasks

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

const (
	// exactTotal is the number of tasks up to which every page counts the total of a list.
	exactTotal = 10_000
	// totalFor is how long a larger count is used. Counting a million takes a tenth of a second or more, so it happens
	// at most once in this time.
	totalFor = time.Minute
	// totalsKept bounds the number of long lists whose total is kept.
	totalsKept = 4096
)

// countShare is the part of the statement timeout that a count may take, because a page that was read already waits for
// it.
const countShare = 3

// Total is how many tasks a list has over all its pages. Of more than 10,000 it may be a minute old.
type Total struct {
	N         int
	Estimated bool // the tasks could not be counted in time: N is the last count, or a lower bound
}

// listKey is a list without its position.
type listKey struct {
	tenant, owner string // owner is empty for the list of a whole tenant
	agent, ctx    string
	state         int16
	since         int64 // microseconds; of no time, 0
}

// totals keeps the totals of long lists. The zero value is ready.
type totals struct {
	mu    sync.Mutex
	known map[listKey]*total // guarded by mu
}

type total struct {
	Total
	at       time.Time // of the count, by the local clock: only its age is used
	counting bool      // a caller is counting; the others use the old number meanwhile
}

// recent returns the known total of a list, if it is recent enough. Otherwise, if mine is set, the caller must count,
// and then call found or gaveUp.
func (t *totals) recent(k listKey) (n Total, ok, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := t.known[k]
	switch {
	case have == nil:
		return Total{}, false, false
	case have.counting, time.Since(have.at) < totalFor:
		return have.Total, true, false
	}
	have.counting = true
	return have.Total, false, true
}

// found stores the result of a count.
func (t *totals) found(k listKey, n Total) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch have := t.known[k]; {
	case !n.Estimated && n.N <= exactTotal:
		delete(t.known, k)
		return
	case have == nil && len(t.known) >= totalsKept:
		t.makeRoom()
	}
	if t.known == nil {
		t.known = make(map[listKey]*total)
	}
	t.known[k] = &total{Total: n, at: time.Now()}
}

// gaveUp lets the next caller count.
func (t *totals) gaveUp(k listKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.known[k]; have != nil {
		have.counting = false
	}
}

// makeRoom removes totals that are too old, or else any.
func (t *totals) makeRoom() {
	for k, v := range t.known {
		if time.Since(v.at) >= totalFor {
			delete(t.known, k)
		}
	}
	for k := range t.known {
		if len(t.known) < totalsKept {
			return
		}
		delete(t.known, k)
	}
}

// total returns the length of the list that f selects from: exactly, or, beyond exactTotal, as it was within the last
// minute. If a count fails or takes too long, the total is an estimate: the page is answered all the same, and the next
// count comes a minute later.
func (s *Store) total(ctx context.Context, c db.Caller, f Filter, p dbsqlc.TaskCountForCallerParams) Total {
	k := listKey{tenant: c.Tenant, owner: c.Owner, agent: f.Agent, ctx: f.ContextID, state: int16(f.State)}
	if c.Shared {
		k.owner = "" // no owner has this name
	}
	if !f.Since.IsZero() {
		k.since = f.Since.UnixMicro()
	}
	known, ok, mine := s.totals.recent(k)
	if ok {
		return known
	}
	if !mine {
		n, err := s.count(ctx, c, p, exactTotal+1)
		if err != nil {
			return s.estimate(ctx, k, Total{}, err)
		}
		if n <= exactTotal {
			return Total{N: n}
		}
		known.N = n
	}
	n, err := s.count(ctx, c, p, 1<<62)
	if err != nil {
		return s.estimate(ctx, k, known, err)
	}
	s.totals.found(k, Total{N: n})
	return Total{N: n}
}

// count counts up to most tasks of a list, within a part of the timeout of statements.
func (s *Store) count(ctx context.Context, c db.Caller, p dbsqlc.TaskCountForCallerParams, most int64) (int, error) {
	p.Most = most
	var n int64
	err := s.db.SearchAs(ctx, c, func(tx *db.Tx) (err error) {
		q := dbsqlc.New(tx)
		if err = tx.AllowStatements(ctx, s.db.StatementTimeout()/countShare); err == nil {
			n, err = q.TaskCountForCaller(ctx, p)
		}
		return err
	})
	return int(n), err
}

// estimate is the total of a list that could not be counted, of which n is known.
func (s *Store) estimate(ctx context.Context, k listKey, n Total, err error) Total {
	n.Estimated = true
	if db.IsCode(err, "57014") {
		s.totals.found(k, n)
	} else { // the failure may be short
		s.totals.gaveUp(k)
	}
	if ctx.Err() == nil {
		s.db.Logger().WarnContext(ctx, "count of a list", "agent", k.agent, "err", err)
	}
	return n
}
