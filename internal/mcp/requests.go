package mcp

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// requestHeader names a request in the calls that it contains. It is set here, whatever a client sends.
const requestHeader = "A2ad-Mcp-Request"

// requests ends calls whose HTTP request has ended: their results could not be delivered. The SDK does so only for
// versions without sessions. In a session it lets calls continue, and waits for them when the client ends the session.
type requests struct {
	mu   sync.Mutex
	open map[string]*openRequest // by requestHeader; guarded by mu
}

// openRequest is a request that its client still waits for.
type openRequest struct {
	session, user string
	cancels       []context.CancelFunc // of its calls
}

// tracked ends the calls of each request with it, and those of a session with a DELETE by the user who began it.
func (q *requests) tracked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := &openRequest{session: r.Header.Get(sessionHeader), user: userOf(r)}
		// Without a session it would end the calls of all clients of the versions that have none.
		if r.Method == http.MethodDelete && o.session != "" {
			q.end(func(other *openRequest) bool { return other.session == o.session && other.user == o.user })
		}
		id := rand.Text()
		r.Header.Set(requestHeader, id)
		q.mu.Lock()
		q.open[id] = o
		q.mu.Unlock()
		defer q.end(func(other *openRequest) bool { return other == o })
		next.ServeHTTP(w, r)
	})
}

// end ends the calls of some requests.
func (q *requests) end(which func(*openRequest) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, o := range q.open {
		if which(o) {
			delete(q.open, id)
			for _, cancel := range o.cancels {
				cancel()
			}
		}
	}
}

// bind makes the end of a call's request end the call. Calls over stdio have no request.
func (q *requests) bind(req sdk.Request, cancel context.CancelFunc) {
	extra := req.GetExtra()
	if extra == nil || extra.Header == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if o := q.open[extra.Header.Get(requestHeader)]; o != nil {
		o.cancels = append(o.cancels, cancel)
	} else {
		cancel() // it has ended already
	}
}
