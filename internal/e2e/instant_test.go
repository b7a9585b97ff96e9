package e2e_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// The agents finish at once. Half of the streams are on the replica that runs them, half on one that runs none.
func TestStreamsOfInstantAgentsAreComplete(t *testing.T) {
	t.Parallel()
	const total, clients = 1000, 20
	c := newCluster(t)
	idle, busy := c.start("idle", "A2AD_WORKERS=0"), c.start("busy")
	ctx := bounded(t)
	var wg sync.WaitGroup
	for i := range clients {
		at := []*replica{idle, busy}[i%2]
		wg.Go(func() {
			for n := range total / clients {
				cl := c.client(at, "echo")
				cl.Tries = -1 // a stream that needs a resume is not complete
				text := fmt.Sprintf("%d of client %d", n, i)
				events, err := collect(cl.Stream(ctx, client.SendParams{Message: say(text)}, client.StreamOptions{}),
					nil)
				if err != nil {
					t.Errorf("%s on %s, after %d events: %v", text, at.name, len(events), err)
					return
				}
				checkEcho(t, events, text)
			}
		})
	}
	wg.Wait()
	if n := one[int](c, `SELECT count(*) FROM audit.task WHERE state = 'COMPLETED'`); n != total {
		t.Errorf("%d tasks completed, want %d", n, total)
	}
	if n := len(c.log.Streams()); n != total {
		t.Errorf("%d streams, want %d", n, total)
	}
}

// checkEcho compares a whole stream of the echo agent with its expected events.
func checkEcho(t *testing.T, events []client.Event, text string) {
	t.Helper()
	want := []struct {
		kind  client.Kind
		state a2a.State
	}{{client.KindTask, a2a.StateSubmitted}, {client.KindStatus, a2a.StateWorking},
		{client.KindArtifact, a2a.StateNone}, {client.KindStatus, a2a.StateCompleted}}
	if len(events) != len(want) {
		t.Errorf("%s: %d events, want %d", text, len(events), len(want))
		return
	}
	for i, ev := range events {
		if ev.Kind != want[i].kind || ev.State != want[i].state || ev.Seq != int64(i+1) ||
			ev.Final != (i == len(want)-1) {
			t.Errorf("%s: event %d is %s", text, i, ev.Raw)
		}
	}
	if got := client.Text(events[2].Artifact.Parts); got != text {
		t.Errorf("the artifact says %q, want %q", got, text)
	}
}
