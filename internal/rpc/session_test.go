package rpc_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
)

// changingKey signs in the owner of a key. A test can change the key's row at any time.
type changingKey struct {
	key auth.Key

	mu  sync.Mutex
	row auth.StoredKey // guarded by mu
}

func newChangingKey(t *testing.T) *changingKey {
	t.Helper()
	key, err := auth.NewKey("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	hash := key.SecretHash()
	return &changingKey{key: key, row: auth.StoredKey{SecretHash: hash[:], Tenant: "acme", Owner: "ann",
		Kind: auth.KindUser, Scopes: auth.Scopes()}}
}

func (k *changingKey) change(change func(*auth.StoredKey)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.row)
}

func (k *changingKey) lookup(context.Context, string) (auth.StoredKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.row, nil
}

// openSessions is openGRPC with callers of one key. Their sessions are checked often.
func openSessions(t *testing.T, k *changingKey, change func(*rpc.Config)) (*site, *grpc.ClientConn) {
	t.Helper()
	keys, err := auth.NewKeys(auth.KeysConfig{Lookup: k.lookup, TTL: -1})
	if err != nil {
		t.Fatal(err)
	}
	chain := auth.Chain{keys}
	sessions := auth.NewSessions(chain, 10*time.Millisecond)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = sessions.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	s, conn, _ := openGRPC(t, func(c *rpc.Config) {
		c.Authenticator, c.Sessions = chain, sessions
		change(c)
	})
	return s, conn
}

// TestOperationsEndWithTheirCredential: streams and waiting sends end with an error in the form of
// their binding, however the credential changed.
func TestOperationsEndWithTheirCredential(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*auth.StoredKey){
		"revoked":        func(k *auth.StoredKey) { k.RevokedAt = time.Now() },
		"expired":        func(k *auth.StoredKey) { k.ExpiresAt = time.Now() },
		"of fewer scope": func(k *auth.StoredKey) { k.Scopes = []auth.Scope{auth.ScopeTasksRead} },
		"of no agent":    func(k *auth.StoredKey) { k.Agents = []string{} },
		"of another":     func(k *auth.StoredKey) { k.Owner = "bob" },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			k := newChangingKey(t)
			s, conn := openSessions(t, k, func(*rpc.Config) {})
			var running sync.WaitGroup
			key, streams, sends := k.key.Reveal(), 0, 0
			all, waiting := tellers(s, conn), map[string]string{}
			for name, as := range all { // before others hang, because there are fewer workers
				made, reason := as.do(t, &operation{name: "SendMessage", script: `{"op":"input"}`, apiKey: key})
				if reason != "" {
					t.Fatal(reason)
				}
				waiting[name] = id(object(t, made))
			}
			for name, as := range all {
				streams, sends = streams+2, sends+1
				for _, op := range []operation{
					{name: "SubscribeToTask", task: waiting[name], apiKey: key},
					{name: "SendStreamingMessage", script: `{"op":"hang"}`, apiKey: key},
					{name: "SendMessage", context: "of sends", script: `{"op":"hang"}`, apiKey: key},
				} {
					running.Go(func() {
						got := as.tell(t, &op, false)
						if !got.failed || !strings.Contains(got.raw, "the credentials have expired or were revoked") {
							t.Errorf("%s over %s ended with %s", op.name, name, got.raw)
						}
					})
				}
			}
			eventually(t, "all streams are open", func() bool { return s.engine.Streams() == streams })
			eventually(t, "all messages are stored", func() bool {
				page, _ := overRPC{s, dialects[1]}.do(t,
					&operation{name: "ListTasks", context: "of sends", size: "100", apiKey: key})
				return len(object(t, page)["tasks"].([]any)) == sends
			})
			k.change(change)
			running.Wait()
			if n := s.engine.Streams(); n != 0 {
				t.Errorf("%d streams are open", n)
			}
		})
	}
}

// TestStreamThatNeverWaitsEndsWithItsCredential: the stream always has a next event to send.
func TestStreamThatNeverWaitsEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	k := newChangingKey(t)
	s, _ := openSessions(t, k, func(*rpc.Config) {})
	c := client{s, t, dialects[1]}
	key := http.Header{"X-Api-Key": {k.key.Reveal()}}
	stream := c.follow(c.stream, c.message("", "", `{"op":"chunk","id":"a","n":100000}`, true), key)
	stream.untilArtifact()
	k.change(func(row *auth.StoredKey) { row.RevokedAt = time.Now() })
	for events := 0; ; events++ {
		ev, err := stream.reader.Next()
		if err != nil {
			t.Fatalf("the stream ended after %d events with %v", events, err)
		}
		if strings.Contains(string(ev.Data), `"error":{"code":-32041,`) {
			return
		}
	}
}

// TestMessageThatComesLateOverGRPC: a call begins with a good key, which is revoked before its
// message arrives.
func TestMessageThatComesLateOverGRPC(t *testing.T) {
	t.Parallel()
	k := newChangingKey(t)
	var entered sync.WaitGroup
	entered.Add(1)
	var sessions *auth.Sessions
	_, conn := openSessions(t, k, func(c *rpc.Config) {
		c.Authenticator, sessions = onceSigned{c.Authenticator, sync.OnceFunc(entered.Done)}, c.Sessions
	})
	path, req, resp := caller{t, conn, service1}.method("SendMessage")
	caller{t, conn, service1}.params(req, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}`)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", k.key.Reveal())
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, path)
	if err != nil {
		t.Fatal(err)
	}
	entered.Wait()
	k.change(func(row *auth.StoredKey) { row.RevokedAt = time.Now() })
	eventually(t, "the session has ended", func() bool { return sessions.Open() == 0 })
	if err := stream.SendMsg(req); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(resp); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the answer to a late message: %v, %v", resp, err)
	}
}

// onceSigned reports when a caller was signed in.
type onceSigned struct {
	auth.Authenticator
	signed func()
}

func (o onceSigned) Authenticate(r *http.Request) (auth.Principal, error) {
	p, err := o.Authenticator.Authenticate(r)
	if err == nil {
		o.signed()
	}
	return p, err
}
