package e2e_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/a2ad/a2ad/internal/client"
)

// When a key is revoked, its streams and waiting claims end at every replica. The task continues.
func TestStreamsEndWhenTheirKeyIsRevoked(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cutOK = true // a stream ends with an error, and its client must authenticate again
	c.agent("far", remoteAgent("far"))
	replicas := []*replica{c.start("a", "A2AD_AUTH=required"), c.start("b", "A2AD_AUTH=required")}
	key := c.apiKey("acme", "ann", "tasks:read,tasks:write,worker")
	cl := c.client(replicas[0], "script")
	cl.APIKey = key
	task := send(t, cl, play(`{"op":"input"}`)).TaskID
	opened, ended := make(chan struct{}), make(chan error)
	for _, r := range replicas {
		go func() {
			cl := c.client(r, "script")
			cl.APIKey = key
			for _, err := range cl.Resubscribe(bounded(t), task, client.StreamOptions{}) {
				if err != nil {
					ended <- err
					return
				}
				opened <- struct{}{}
			}
		}()
		<-opened
	}
	claimed := make(chan httpAnswer)
	go func() {
		claimed <- c.post(replicas[1], "/worker/v1/claim", `{"worker":"w","agents":["far"],"waitSeconds":60}`,
			"X-API-Key", key)
	}()
	c.must("apikey", "revoke", keyID(t, key))
	for range replicas {
		var refused *client.Error
		if err := <-ended; !errors.As(err, &refused) || refused.Code != -32041 {
			t.Errorf("a stream ended with %v", err)
		}
	}
	if got := <-claimed; got.status != http.StatusUnauthorized {
		t.Errorf("a waiting claim: %d %s", got.status, got.body)
	}
	c.key = c.apiKey("acme", "ann", "tasks:read,tasks:write")
	cl.APIKey = c.key
	if _, err := cl.Cancel(bounded(t), task); err != nil {
		t.Error(err)
	}
}
