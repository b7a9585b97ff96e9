package workerapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/store/tasks"
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

// claimAs asks for tasks without waiting.
func (f *fixture) claimAs(worker, agent, userAgent string) {
	f.t.Helper()
	body := `{"worker":"` + worker + `","agents":["` + agent + `"]}`
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.at+"/worker/v1/claim",
		strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer all")
	req.Header.Set("User-Agent", userAgent)
	if got, err := f.send(req); err != nil || got.status != http.StatusOK {
		f.t.Fatalf("the claim is answered with %d: %s, %v", got.status, got.body, err)
	}
}

// Workers that have asked for tasks are present, with all agents that they ask for, until they are taken.
func TestPresentWorkersAreThoseThatAsk(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.claimAs("w1", "words", "a2ad-typescript/0.2.0")
	f.claimAs("w1", "other", "a2ad-typescript/0.2.0")
	f.claimAs("w1", "words", "a2ad-typescript/0.2.1")
	got := f.api.Present()
	want := []tasks.RemoteWorker{{
		Tenant: "workers", Name: "w1", Version: "a2ad-typescript/0.2.1", Agents: []string{"other", "words"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("present (-want +got):\n%s", diff)
	}
	if got := f.api.Present(); len(got) != 0 {
		t.Errorf("present are %v although nothing asked again", got)
	}
}

func TestWaitingWorkersStayPresent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		f.claim("words", 1)
	}()
	<-f.claims.ended // it waits
	for range 2 {
		if got := f.api.Present(); len(got) != 1 || got[0].Name != "w1" {
			t.Errorf("present are %v while a worker waits", got)
		}
	}
	f.submit("words", "ann")
	<-answered
}

// A client that invents names fills no memory.
func TestPresentWorkersAreLimited(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range tasks.MostRemoteWorkers + 10 {
		f.claimAs(fmt.Sprint("w", i), "words", "x")
	}
	if n := len(f.api.Present()); n != tasks.MostRemoteWorkers {
		t.Errorf("%d workers are present, want %d", n, tasks.MostRemoteWorkers)
	}
}
