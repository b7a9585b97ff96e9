package mcp

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/a2ad/a2ad/internal/client"
)

const sessionHeader = "Mcp-Session-Id"

// retryLater is the Retry-After of refusals, in seconds.
const retryLater = "30"

// noTask is a task id that no task has.
const noTask = "00000000-0000-0000-0000-000000000000"

// sessions bounds the sessions of clients. The SDK keeps each one, and some kilobytes with it, until its client ends it
// or it times out.
type sessions struct {
	most, mostOfKey int
	live            func() map[string]bool // the ids of the sessions that have not ended

	mu       sync.Mutex
	users    map[string]string // by session, without those in starting; guarded by mu
	starting map[string]int    // requests that begin a session, by user; guarded by mu
}

var (
	errTooManySessions      = errors.New("too many sessions")
	errTooManySessionsOfKey = errors.New("too many sessions with this key: end one, or let one time out")
)

// begin counts a session of a user that a request begins. Callers without a key are the user "", and have no limit of
// their own. Unless it returns an error, call begun after the request.
func (l *sessions) begin(user string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full(user) != nil {
		live := l.live()
		for id := range l.users {
			if !live[id] {
				delete(l.users, id)
			}
		}
	}
	if err := l.full(user); err != nil {
		return err
	}
	l.starting[user]++
	return nil
}

// full must be called with mu held.
func (l *sessions) full(user string) error {
	all, own := len(l.users), l.starting[user]
	for _, n := range l.starting {
		all += n
	}
	for _, other := range l.users {
		if other == user {
			own++
		}
	}
	switch {
	case user != "" && own >= l.mostOfKey:
		return errTooManySessionsOfKey
	case all >= l.most:
		return errTooManySessions
	}
	return nil
}

// begun names the session that a request has begun, or "" if it has begun none.
func (l *sessions) begun(user, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.starting[user]--; l.starting[user] == 0 {
		delete(l.starting, user)
	}
	if id != "" {
		l.users[id] = user
	}
}

// liveSessions returns the ids of the sessions that have not ended.
func (s *Server) liveSessions() map[string]bool {
	ids := map[string]bool{}
	for session := range s.mcp.Sessions() {
		ids[session.ID()] = true
	}
	return ids
}

// bounded lets a request begin a session only if its key is valid and there are not too many sessions. The SDK makes
// the session before it reads the request.
func (s *Server) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get(sessionHeader) != "" {
			next.ServeHTTP(w, r)
			return
		}
		if !s.signedIn(w, r) {
			return
		}
		user := userOf(r)
		if err := s.sessions.begin(user); err != nil {
			status := http.StatusServiceUnavailable
			if errors.Is(err, errTooManySessionsOfKey) {
				status = http.StatusTooManyRequests
			}
			w.Header().Set("Retry-After", retryLater)
			http.Error(w, err.Error(), status)
			return
		}
		defer func() { s.sessions.begun(user, w.Header().Get(sessionHeader)) }()
		next.ServeHTTP(w, r)
	})
}

// signedIn asks the a2ad server whether the key of a request is valid, and refuses the request otherwise.
func (s *Server) signedIn(w http.ResponseWriter, r *http.Request) bool {
	key := bearer(r.Header)
	if key == "" {
		return true // identified has refused it if agents need a key
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	a := s.guarded()
	c := &client.Client{URL: a.url, Version: a.version, APIKey: key, HTTP: s.cfg.HTTP}
	_, err := c.Get(ctx, noTask, 0)
	var refused *client.Error
	switch {
	case err == nil:
		return true
	case !errors.As(err, &refused), refused.Status >= http.StatusInternalServerError,
		refused.Status == http.StatusTooManyRequests:
		w.Header().Set("Retry-After", retryLater)
		http.Error(w, "the a2ad server cannot check the key now", http.StatusServiceUnavailable)
		return false
	case refused.Status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the a2ad server does not accept this key", http.StatusUnauthorized)
		return false
	}
	return true // the server has looked for the task, or the key may not read tasks
}

// guarded returns an agent that accepts only callers with credentials, or any agent if there is none.
func (s *Server) guarded() *agent {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, a := range s.agents {
		if a.signIn {
			return a
		}
	}
	return s.agents[s.cfg.Agents[0]]
}

// userOf identifies the key of a request. It is "" without a key.
func userOf(r *http.Request) string {
	if token := auth.TokenInfoFromContext(r.Context()); token != nil {
		return token.UserID
	}
	return ""
}
