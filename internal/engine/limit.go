package engine

import (
	"context"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
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

// gate bounds how many operations are at the database or wait for it. Those beyond it are
// refused before they cost anything: what waits longer than its client does helps nobody, and
// what was taken on is to be carried out. Those that wait for an agent are not counted.
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

// flights bounds the tasks of each owner that wait for an agent or are with one. They are
// counted in the database, as all replicas make and end them; to not count for every task,
// each count gives leave for a part of the room that it found. So the bound is kept to
// within what other requests and replicas do at the same moment.
type flights struct {
	mu     sync.Mutex
	owners map[owner]*flight // guarded by mu
}

type owner struct{ tenant, owner string }

// flight is what is known of one owner.
type flight struct {
	turn chan struct{} // capacity 1: holds what the one that may count has put in
	left int           // guarded by turn; new tasks until the next count
	full time.Time     // guarded by turn; when a count last found no room
}

const (
	knownOwners = 10_000
	stayFull    = time.Second // without another count
)

// admit counts one more task of the caller, or refuses it.
func (f *flights) admit(ctx context.Context, s *store.Store, c store.Caller, most int) error {
	o := f.of(owner{c.Tenant, c.Owner})
	select { // no mutex: a count that gets no answer would keep callers that have gone
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.turn }()
	full := a2a.Errorf(a2a.CodeRateLimited, "more than %d tasks are in flight", most)
	if o.left == 0 {
		if time.Since(o.full) < stayFull {
			return full
		}
		n, err := s.TasksInFlight(ctx, c, most)
		if err != nil {
			return err
		}
		if n >= most {
			o.full = time.Now()
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
