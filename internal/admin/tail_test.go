package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/sse"
	"github.com/a2ad/a2ad/internal/tail"
	"github.com/a2ad/a2ad/internal/wake"
)

// tailed is a fixture whose streams of changes work. changed says that tasks have changed.
func tailed(t *testing.T, as auth.Principal) (f *fixture, client *admin.Client, changed func(...a2a.ID)) {
	t.Helper()
	var hub notify.Hub
	var changes *tail.Tail
	f = newFixture(t, func(c *admin.Config) {
		changes = tail.New(c.Store.Operate.SearchTasks, &hub, slog.New(slog.DiscardHandler))
		c.Streams.Tail = changes
		c.SignIn = func(*http.Request) (auth.Principal, error) { return as, nil }
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { changes.Run(ctx) }) //nolint:errcheck // it only returns nil
	t.Cleanup(func() { cancel(); wg.Wait() })
	return f, admin.Local(f.api), func(ids ...a2a.ID) {
		for _, id := range ids {
			hub.Wake(wake.Task(id))
		}
	}
}

// next follows until there is an event, and calls begun once the stream has begun.
func next(t *testing.T, c *admin.Client, q admin.TailQuery, begun func()) (change admin.TaskChange, id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := false
	follow := func() error {
		return c.Follow(ctx, "/tasks/tail", q, func(ev sse.Event) error {
			got, id = true, ev.ID
			cancel()
			return json.Unmarshal(ev.Data, &change)
		})
	}
	done := make(chan error, 1)
	go func() { done <- follow() }()
	for {
		begun() // until the stream has begun, nobody hears it
		select {
		case err := <-done:
			if !got {
				t.Fatal(err)
			}
			return change, id
		default:
		}
	}
}

func TestTailHasTheChangesThatMatch(t *testing.T) {
	t.Parallel()
	f, c, changed := tailed(t, callers["both"])
	other, own := f.submit("corp", "carl", "words", "y"), f.submit("acme", "ann", "words", "x")
	for name, q := range map[string]admin.TaskFilter{
		"tenant": {Tenant: "acme"}, "owner": {Owner: "ann"}, "id": {ID: own.String()},
		"ids":   {IDs: []string{own.String()}},
		"state": {State: []string{"TASK_STATE_SUBMITTED"}, Tenant: "acme"},
		"agent": {Agent: []string{"words"}, Owner: "ann"},
	} {
		got, _ := next(t, c, admin.TailQuery{TaskFilter: q}, func() { changed(other, own) })
		if got.Task == nil || got.Task.ID != own.String() {
			t.Errorf("%s: the change is %+v", name, got)
		}
	}
	if got, _ := next(t, c, admin.TailQuery{After: "00000000-1"}, func() {}); got.Missed == "" {
		t.Errorf("after an unknown change: %+v", got)
	}
	for _, q := range []admin.TaskFilter{{Text: "x"}, {Outcome: "retry"}, {NotRetried: true}, {ID: "xyz"}} {
		err := c.Follow(t.Context(), "/tasks/tail", admin.TailQuery{TaskFilter: q},
			func(sse.Event) error { return nil })
		var refused *admin.RequestError
		if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// A caller with tenant:read follows its own tenant alone. The older of two tasks comes first.
func TestTailOfATenant(t *testing.T) {
	t.Parallel()
	f, c, changed := tailed(t, callers["acme"])
	foreign, own := f.submit("corp", "carl", "words", "y"), f.submit("acme", "ann", "words", "x")
	got, _ := next(t, c, admin.TailQuery{}, func() { changed(foreign, own) })
	if got.Task == nil || got.Task.ID != own.String() {
		t.Errorf("the change is %+v", got)
	}
}
