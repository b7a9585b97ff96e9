package tasks

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/tasks/dbsqlc"
)

const (
	// exactTotal is up to how many tasks the total of a list is counted for every page.
	exactTotal = 10_000
	// totalFor is how long a count beyond that is good. A count of a million takes a tenth of
	// a second or more: at most once in this time, whoever turns how many pages.
	totalFor = time.Minute
	// totalsKept is of how many long lists the total is known at a time.
	totalsKept = 4096
)

// countShare is which part of the timeout of statements a count may take: the page that waits for it
// is there already.
const countShare = 3

// Total is how many tasks a list has over all its pages. Of more than 10,000 it may be a minute old.
type Total struct {
	N         int
	Estimated bool // they could not be counted in time: N is what was counted last, or a number that there are at least
}

// listKey is a list without its position.
type listKey struct {
	tenant, owner string // owner is empty for the list of a whole tenant
	agent, ctx    string
	state         int16
	since         int64 // microseconds; of no time, 0
}

// totals remembers how long the long lists are. The zero value is ready.
type totals struct {
	mu    sync.Mutex
	known map[listKey]*total // guarded by mu
}

type total struct {
	Total
	at       time.Time // of the count, by this process: it is an age, not a time
	counting bool      // somebody counts anew; the others take what is known meanwhile
}

// recent returns what is known of a list, if that is recent enough. If not, and mine is set,
// the caller is the one to count and calls found.
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

// found takes the result of a count.
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

// makeRoom forgets what is no longer good, or else any.
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

// total returns how long the list is that f selects from: exactly, or as it was within the
// last minute where that is more than exactTotal. A count that fails, or takes too long, leaves an
// estimate: the page that it is for is answered all the same, and the next count is a minute away.
func (s *Store) total(ctx context.Context, c db.Caller, f Filter, p dbsqlc.TaskCountForCallerParams) Total {
	k := listKey{tenant: c.Tenant, owner: c.Owner, agent: f.Agent, ctx: f.ContextID, state: int16(f.State)}
	if c.Shared {
		k.owner = "" // which no owner is
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
	} else { // what is wrong may be over soon
		s.totals.gaveUp(k)
	}
	if ctx.Err() == nil {
		s.db.Logger().WarnContext(ctx, "count of a list", "agent", k.agent, "err", err)
	}
	return n
}
