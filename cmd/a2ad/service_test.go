package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store/webhooks"
	"github.com/a2ad/a2ad/internal/stream"
)

// serve starts a server with the admin API of the world. Callers sign in with the key "secret".
func (w *world) serve(change ...func(*admin.Config)) *httptest.Server {
	w.Helper()
	cfg := admin.Config{Store: w.store, SignIn: func(r *http.Request) (p auth.Principal, err error) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			return p, auth.ErrNoCredential
		}
		return auth.Principal{
			Tenant: "ops", Owner: "olga", Scopes: []auth.Scope{auth.ScopeOperatorRead, auth.ScopeOperatorWrite},
			Method: auth.MethodAPIKey, KeyID: "k1",
		}, nil
	}}
	for _, c := range change {
		c(&cfg)
	}
	srv := httptest.NewServer(admin.New(cfg))
	w.Cleanup(srv.Close)
	return srv
}

// TestCommandsOfAServer: with --server and a key, a command needs no database, and its output and exit code are those
// that it has with a database.
func TestCommandsOfAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const origin = "https://hooks.example:443"
	w.submit(oldTask, "bob", nil)
	w.complete()
	w.submit(taskID, "alice", &webhooks.NewWebhook{
		ConfigID: "default", URL: "https://hooks.example/a2a", Origin: origin, Version: a2a.PushV10,
		Seal: func(a2a.ID) (token, credentials []byte, err error) { return nil, nil, nil },
	})
	w.loadSchedule()
	w.run(exitOK, "apikey", "create", "--tenant", "acme", "--owner", "ci")
	w.run(exitOK, "task", "cancel", taskID)
	w.run(exitOK, "schedule", "pause", "words/daily")
	webhook := rows[pushRow](t, w.run(exitOK, "push", "ls", "-o", "json"))[0].ID
	key := rows[keyRow](t, w.run(exitOK, "apikey", "ls", "-o", "json"))[0].ID
	far := &world{T: t, env: []string{"A2AD_API_KEY=secret"}}
	// It follows tasks that have ended, so it need not run.
	follower := stream.New(w.store.Tasks, &notify.Hub{}, watchPoll, slog.New(slog.DiscardHandler))
	url := w.serve(func(c *admin.Config) { c.Streams.Follower = follower }).URL
	for _, line := range []string{
		"stats --usage", "stats --usage --by day -o json", "actions", "actions --limit 1 -o json", "actions --task x",
		"schedule ls", "schedule ls -o json --all", "schedule ticks words/daily", "schedule ticks words/none",
		"schedule pause words/daily words/none -o json", "schedule pause words/daily",
		"push ls", "push ls --limit 1 -o json", "push ls --task x", "push attempts " + webhook,
		"push attempts " + taskID,
		"push destinations", "push destinations -o json", "push replay " + webhook + " x",
		"push replay --tenant acme --origin " + origin + " --since 1h", "push enable --tenant acme " + origin,
		"apikey ls", "apikey ls --tenant acme -o json", "apikey revoke " + key + " none -o json",
		"task purge --yes ffff", "task purge --yes --tenant acme --owner nobody -o json",
		"task watch " + oldTask, "task watch " + oldTask + " -o json", "task watch " + oldTask + " --after 1 -o json",
		"task watch ffff",
	} {
		args := strings.Fields(line)
		near := &invocation{env: w.env}
		near.run(t, args...)
		got := &invocation{env: far.env}
		got.run(t, append(args, "--server", url)...)
		if got.code != near.code || steady(got.stdout) != steady(near.stdout) || got.stderr != near.stderr {
			t.Errorf("a2ad %s: exit code %d\n%s%s\nwith the database: exit code %d\n%s%s",
				line, got.code, got.stdout, got.stderr, near.code, near.stdout, near.stderr)
		}
	}
	made := rows[createdKey](t, far.run(exitOK, "apikey", "create", "--tenant", "acme", "--owner", "o", "--scopes",
		"tenant:read", "--reason", "support", "-o", "json", "--server", url))[0]
	if !strings.HasPrefix(made.Key, "a2ad_live_") {
		t.Errorf("%+v", made)
	}
	last := rows[actionRow](t, far.run(exitOK, "actions", "--limit", "1", "-o", "json", "--server", url))[0]
	if last.Actor != "key k1" || !strings.Contains(string(last.Detail), `"reason":"support"`) {
		t.Errorf("the audit log has %+v", last)
	}
	far.env = nil
	if i := far.run(exitFailure, "stats", "--server", url); !strings.Contains(i.stderr, "a2ad: ") || i.stdout != "" {
		t.Errorf("without a key: %s%s", i.stdout, i.stderr)
	}
}
