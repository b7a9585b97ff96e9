package engine

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
)

// checkSize refuses a message whose parts and metadata are larger than limit; 0 is no limit.
func checkSize(m *a2a.Message, limit int64) error {
	if limit > 0 && messageSize(m) > limit {
		return a2a.InvalidParams("message", "must not be larger than %d bytes", limit)
	}
	return nil
}

func messageSize(m *a2a.Message) int64 {
	size := len(m.Metadata)
	for i := range m.Parts {
		p := &m.Parts[i]
		size += len(p.Text) + len(p.Data) + len(p.Metadata) + len(p.Filename) + len(p.MediaType)
	}
	return int64(size)
}

// gate limits how many operations use or wait for the database. It refuses further ones before they
// cost anything: an answer after the client has given up is useless, but what was
// accepted must be carried out. Operations that wait for an agent do not count.
type gate struct{ room chan struct{} }

func newGate(n int) gate {
	if n <= 0 {
		return gate{}
	}
	return gate{make(chan struct{}, n)}
}

var errBusy = &a2a.Error{Code: a2a.CodeUnavailable, Message: "the server is busy"}

func (g gate) enter() (leave func(), err error) {
	if g.room == nil {
		return func() {}, nil
	}
	select {
	case g.room <- struct{}{}:
		return func() { <-g.room }, nil
	default:
		return nil, errBusy
	}
}

// flights limits the unfinished tasks of each owner. All replicas create and end tasks, so they are
// counted in the database. To avoid a count for every task, each count admits a part of the free
// room without another one. So the limit is exact except for what other requests and replicas do at
// the same time.
type flights struct {
	now    func() time.Time
	mu     sync.Mutex
	owners map[owner]*flight // guarded by mu
}

type owner struct{ tenant, owner string }

// flight is what is known about one owner.
type flight struct {
	turn chan struct{} // capacity 1: a lock that a caller can stop waiting for
	left int           // guarded by turn; new tasks to admit until the next count
	full time.Time     // guarded by turn; when a count last found no room
}

const (
	knownOwners = 10_000
	stayFull    = time.Second // how long no further count is made
)

// admit counts one more task of the caller, or refuses it.
func (f *flights) admit(ctx context.Context, s *store.Store, c db.Caller, most int) error {
	o := f.of(owner{c.Tenant, c.Owner})
	select { // no mutex: a slow count would hold up callers that have disconnected
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.turn }()
	full := a2a.Errorf(a2a.CodeRateLimited, "more than %d tasks are in flight", most)
	if o.left == 0 {
		if f.now().Sub(o.full) < stayFull {
			return full
		}
		n, err := s.Tasks.TasksInFlight(ctx, c, most)
		if err != nil {
			return err
		}
		if n >= most {
			o.full = f.now()
			return full
		}
		o.left = max((most-n)/4, 1)
	}
	o.left--
	return nil
}

func (f *flights) of(key owner) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.owners[key]
	if o == nil {
		if len(f.owners) >= knownOwners || f.owners == nil {
			f.owners = make(map[owner]*flight)
		}
		o = &flight{turn: make(chan struct{}, 1)}
		f.owners[key] = o
	}
	return o
}
