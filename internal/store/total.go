package store

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/store/dbsqlc"
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
	n        int64
	at       time.Time // of the count, by this process: it is an age, not a time
	counting bool      // somebody counts anew; the others take what is known meanwhile
}

// recent returns what is known of a list, if that is recent enough. If not, and mine is set,
// the caller is the one to count and calls found.
func (t *totals) recent(k listKey) (n int64, ok, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := t.known[k]
	switch {
	case have == nil:
		return 0, false, false
	case have.counting, time.Since(have.at) < totalFor:
		return have.n, true, false
	}
	have.counting = true
	return have.n, false, true
}

// found takes the result of a count; of one that failed, n is -1.
func (t *totals) found(k listKey, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch have := t.known[k]; {
	case n < 0 && have != nil:
		have.counting = false
		return
	case n < 0:
		return
	case n <= exactTotal:
		delete(t.known, k)
		return
	case have == nil && len(t.known) >= totalsKept:
		t.makeRoom()
	}
	if t.known == nil {
		t.known = make(map[listKey]*total)
	}
	t.known[k] = &total{n: n, at: time.Now()}
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
// last minute where that is more than exactTotal.
func (s *Store) total(ctx context.Context, q *dbsqlc.Queries, c Caller, f Filter, p dbsqlc.TaskCountForCallerParams) (n int64, err error) {
	k := listKey{tenant: c.Tenant, owner: c.Owner, agent: f.Agent, ctx: f.ContextID, state: int16(f.State)}
	if c.Shared {
		k.owner = "" // which no owner is
	}
	if !f.Since.IsZero() {
		k.since = f.Since.UnixMicro()
	}
	n, ok, mine := s.totals.recent(k)
	if ok {
		return n, nil
	}
	if !mine {
		p.Most = exactTotal + 1
		if n, err = q.TaskCountForCaller(ctx, p); err != nil || n <= exactTotal {
			return n, err
		}
	}
	counted := int64(-1)
	defer func() { s.totals.found(k, counted) }()
	p.Most = 1 << 62
	if n, err = q.TaskCountForCaller(ctx, p); err != nil {
		return 0, err
	}
	counted = n
	return n, nil
}
