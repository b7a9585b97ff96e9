package console

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
)

// How many pages are made at once, and how many pages may be live.
const (
	maxPages    = 8
	maxOwnPages = 4 // of one owner, from the sign-in until they are sent
	maxLive     = 500
	maxOwnLive  = 50 // of one owner
)

// slotWait is how long a request waits for others, in all.
const slotWait = 10 * time.Second

// page signs the viewer in and serves a page or an action. It bounds how many are made at once, so that open consoles
// never take all connections to the database. Strangers, and clients that are slow to send or to read, take no such
// slot. An owner has a share, which its requests have until their answers are sent. So it delays no other owner for
// long, and large answers to slow clients do not fill the memory.
func (c *Console) page(h func(*request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out := c.answer(w)
		v, err := c.viewerOf(r)
		if errors.Is(err, errSignedOut) {
			c.redirectToSignIn(out, r)
			return
		}
		if err == nil {
			err = c.count(&v.principal, r.Method == http.MethodPost)
		}
		if err != nil {
			c.fail(out, r, err)
			return
		}
		own, done := c.ownPages.of(&v.principal)
		defer done()
		left := slotWait
		leave, err := enter(r.Context(), own, &left)
		if err == nil {
			defer leave()
			err = c.make(out, &request{out, r, v}, &left, h)
		}
		if err != nil {
			c.fail(out, r, err)
		}
	}
}

// count counts a request of a viewer as the admin API does: what may change something as a message, the rest as a read.
func (c *Console) count(p *auth.Principal, write bool) error {
	if c.cfg.Admit == nil {
		return nil
	}
	return c.cfg.Admit(*p, write)
}

// make makes a page of a viewer, who waits for it for the time left. Its slot is free again when the answer begins.
func (c *Console) make(out *answer, q *request, left *time.Duration, h func(*request) error) error {
	if err := q.readForm(maxForm); err != nil {
		return err
	}
	c.use(q.r, &q.viewer)
	leave, err := enter(q.Context(), c.slots, left)
	if err != nil {
		return err
	}
	defer leave()
	out.begins = leave
	return h(q)
}

// enter takes a slot. It waits for one for the time left, of which it takes off how long it has waited.
func enter(ctx context.Context, slots chan struct{}, left *time.Duration) (leave func(), err error) {
	begun := time.Now()
	defer func() { *left -= time.Since(begun) }()
	wait, cancel := context.WithTimeout(ctx, *left)
	defer cancel()
	select {
	case slots <- struct{}{}:
		return sync.OnceFunc(func() { <-slots }), nil
	case <-wait.Done():
		return nil, errBusy
	}
}

// piece is how much of an answer a client must read within the limit of the answer.
const piece = 64 << 10

// answer is the answer to a request. Its client has some time to read each piece of it: one that stops reading is cut
// off, and one on a slow line is not.
type answer struct {
	http.ResponseWriter
	limit  time.Duration
	begins func() // called at the first byte; nil: nothing is
	begun  bool
}

func (c *Console) answer(w http.ResponseWriter) *answer {
	return &answer{ResponseWriter: w, limit: c.cfg.AnswerTimeout}
}

func (a *answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	if a.begins != nil {
		a.begins()
	}
	a.extend()
}

// extend gives the client time for the next piece.
func (a *answer) extend() {
	// If the deadline cannot be set, the client has disconnected, or the write timeout of the server ends the answer.
	rc := http.NewResponseController(a.ResponseWriter)
	rc.SetWriteDeadline(time.Now().Add(a.limit)) //nolint:errcheck // see above
}

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	a.begin()
	a.ResponseWriter.WriteHeader(status)
}

// Write begins the answer, or continues it.
func (a *answer) Write(b []byte) (n int, err error) {
	a.begin()
	for len(b) > piece && err == nil {
		var sent int
		sent, err = a.ResponseWriter.Write(b[:piece])
		n, b = n+sent, b[sent:]
		a.extend()
	}
	if err == nil {
		var sent int
		sent, err = a.ResponseWriter.Write(b)
		n += sent
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// shares are slots of owners.
type shares struct {
	each int // slots of one owner

	mu sync.Mutex
	by map[owner]*share // guarded by mu; of the owners that use them
}

type owner struct{ tenant, name string }

type share struct {
	slots chan struct{}
	users int // guarded by shares.mu
}

func newShares(each int) *shares { return &shares{each: each, by: make(map[owner]*share)} }

// of returns the slots of an owner. Call done when they are no longer used.
func (s *shares) of(p *auth.Principal) (slots chan struct{}, done func()) {
	key := owner{p.Tenant, p.Owner}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.by[key]
	if one == nil {
		one = &share{slots: make(chan struct{}, s.each)}
		s.by[key] = one
	}
	one.users++
	return one.slots, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(s.by, key)
		}
	}
}
