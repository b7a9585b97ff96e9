package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// The stopped replica runs agents, streams their events, has clients that wait for an answer, and gets new requests
// all the time.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	const drain = 4 * time.Second
	c := newCluster(t)
	a := c.start("a", "A2AD_DRAIN_TIMEOUT="+drain.String())
	ctx := bounded(t)
	// Three runs that do not end before the drain has, and one that ends earlier.
	g := newGate(t)
	const short = 10
	lengths := []int{40, 40, 40, short}
	script := func(n int) string {
		ops := fmt.Sprintf(`{"op":"chunk","id":"a","n":%d,"every_ms":100}`, n)
		if n != short {
			ops += "," + g.op()
		}
		return ops
	}
	tasks := make([]string, len(lengths))
	for i, n := range lengths {
		tasks[i] = submit(t, c.client(a, "script"), play(script(n)))
		c.runner(tasks[i])
	}
	b := c.start("b")

	var wg sync.WaitGroup
	var draining atomic.Bool
	streams := make([][]client.Event, len(tasks))
	var following sync.WaitGroup // until each stream has shown an event
	for i, task := range tasks {
		following.Add(1)
		reader := c.roamer("script", func(n int) *replica { return []*replica{a, b}[min(n, 1)] })
		wg.Go(func() {
			seen := false
			events, err := collect(reader.Resubscribe(ctx, task, client.StreamOptions{}), func(client.Event) bool {
				if !seen {
					seen = true
					following.Done()
				}
				return false
			})
			if err != nil {
				t.Errorf("stream of task %s after %d events: %v", task, len(events), err)
			}
			streams[i] = events
		})
	}
	following.Wait()

	var waited client.Result
	sent := make(chan struct{})
	wg.Go(func() {
		cl := c.client(a, "script")
		m := play(`{"op":"status","text":"begun"},` + g.op())
		close(sent)
		var err error
		if waited, err = cl.Send(ctx, client.SendParams{Message: m}); err != nil {
			t.Errorf("a send that was waiting: %v", err)
		}
	})
	<-sent
	until(t, "the blocking send has arrived",
		func() bool { return one[int](c, `SELECT count(*) FROM audit.task`) == len(tasks)+1 })

	// Each request has its own connection, because the replica closes idle ones.
	alone := &http.Transport{DisableKeepAlives: true}
	var answered atomic.Int64
	var moved change // of answered
	stopLoad := make(chan struct{})
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stopLoad:
					return
				default:
				}
				at := a
				if n%2 == 1 {
					at = b
				}
				cl := &client.Client{URL: at.base + "/agents/echo", HTTP: &http.Client{Transport: alone}, Tries: -1}
				_, err := cl.Send(ctx, client.SendParams{Message: say(fmt.Sprintf("%d %d", i, n)), NoWait: true})
				switch {
				case err == nil:
					answered.Add(1)
					moved.happened()
				case at == a && draining.Load() && refusedByDrain(err):
				default:
					t.Errorf("request to %s: %v", at.name, err)
					return
				}
			}
		})
	}
	untilChange(t, "requests are answered", moved.next, func() bool { return answered.Load() > 20 })

	draining.Store(true)
	start := time.Now()
	a.stop()
	logTook(t, "the drain", time.Since(start))
	g.open()
	close(stopLoad)
	wg.Wait()

	if waited.TaskID == "" || waited.State.Terminal() {
		t.Errorf("the waiting send was answered with %s, want the task as it was", waited.Raw)
	}
	for i, task := range tasks {
		endsWith(t, streams[i], a2a.StateCompleted)
		if diff := cmp.Diff(chunkTexts("a", lengths[i]), chunks(streams[i], "a")); diff != "" {
			t.Errorf("chunks of task %d (-want +got):\n%s", i, diff)
		}
		want := []string{"a released", "b completed"}
		if lengths[i] == short {
			want = []string{"a completed"}
		}
		if diff := cmp.Diff(want, c.attempts(task)); diff != "" {
			t.Errorf("attempts at task %d (-want +got):\n%s", i, diff)
		}
		c.checkScript(b, "script", task, 5, "["+script(lengths[i])+"]")
	}
	if n := one[int](c, `SELECT count(*) FROM audit.attempt WHERE outcome = 'expired'`); n != 0 {
		t.Errorf("%d leases expired, want them released", n)
	}
	if n := one[int](c, `SELECT count(*) FROM audit.attempt WHERE attempt > 1`); n != 0 {
		t.Errorf("%d attempts were charged, want none", n)
	}
	gap := one[float64](c, `
		SELECT coalesce(max(extract(epoch FROM n.claimed_at - r.ended_at)), 0)::float8
		FROM audit.attempt r JOIN audit.attempt n ON n.task_id = r.task_id AND n.token > r.token
		WHERE r.outcome = 'released'`)
	logTook(t, "the handover of a run", time.Duration(gap*float64(time.Second)))
	retried := 0
	for _, s := range c.log.Streams() {
		if s.Replica == "a" && s.Ended && s.Retry {
			retried++
		}
	}
	if retried < 3 { // the short run may already have ended
		t.Errorf("%d streams of the drained replica ended with a retry hint, want the 3 of the long runs", retried)
	}
}

// refusedByDrain reports whether a stopping replica refused a request. It never cuts one off in the middle.
func refusedByDrain(err error) bool {
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused.Status == http.StatusServiceUnavailable
	}
	return strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "connection reset")
}
