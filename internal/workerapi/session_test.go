package workerapi_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/workerapi"
)

// untilRevoked accepts the credentials of its callers until they are revoked.
type untilRevoked struct {
	callers
	revoked atomic.Bool
}

func (u *untilRevoked) Authenticate(r *http.Request) (auth.Principal, error) {
	if u.revoked.Load() {
		return auth.Principal{}, auth.ErrNoCredential
	}
	p, err := u.callers.Authenticate(r)
	p.Method = auth.MethodAPIKey
	return p, err
}

// TestWaitingClaimEndsWithItsCredential: the claim also gets no tasks after that.
func TestWaitingClaimEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	door := &untilRevoked{}
	chain := auth.Chain{door}
	sessions := auth.NewSessions(chain, 10*time.Millisecond)
	f := newFixture(t, func(c *workerapi.Config) { c.Authenticator, c.Sessions = chain, sessions })
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = sessions.Run(ctx) })
	defer func() { stop(); running.Wait() }()
	ended := make(chan reply, 1)
	go func() {
		r, err := f.tryAsk(t.Context(), f.at, "all", "POST", "/claim",
			`{"worker":"w1","agents":["words"],"waitSeconds":60}`)
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	f.waitPolled()
	door.revoked.Store(true)
	if r := <-ended; r.status != http.StatusUnauthorized || r.header.Get("WWW-Authenticate") == "" {
		t.Errorf("a claim with a revoked key: got %d %v %s", r.status, r.header, r.body)
	}
}
