package workerapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/workerapi"
)

// told passes on the messages that are logged.
type told struct {
	slog.Handler
	messages chan string
}

func (h told) Enabled(context.Context, slog.Level) bool { return true }

func (h told) Handle(_ context.Context, r slog.Record) error {
	h.messages <- r.Message
	return nil
}

// A worker that asks for tasks ends the outage of its agent, and of no other.
func TestWorkerInTouchEndsTheOutage(t *testing.T) {
	t.Parallel()
	logged := told{slog.DiscardHandler, make(chan string, 100)}
	f := newFixture(t, func(c *workerapi.Config) { c.Logger = slog.New(logged) })
	for _, agent := range []string{"words", "other"} {
		if err := f.Tasks.BeginOutage(t.Context(), agent, "no worker", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.post("/claim", `{"worker":"w1","agents":["words"]}`); got.status != http.StatusOK {
		t.Fatalf("the claim is answered with %d: %s", got.status, got.body)
	}
	for message := ""; message != "a worker claims the tasks of the agent again"; {
		select {
		case message = <-logged.messages:
		case <-time.After(5 * time.Minute):
			t.Fatal("the outage does not end")
		}
	}
	outages, err := f.Tasks.Outages(t.Context())
	if err != nil || len(outages) != 1 || outages[0].Agent != "other" {
		t.Errorf("outages %v, %v, want that of the agent without a worker", outages, err)
	}
}
