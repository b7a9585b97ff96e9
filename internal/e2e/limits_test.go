package e2e_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// TestReaderThatStopsIsCutOff has a client that opens a stream and reads nothing of it.
func TestReaderThatStopsIsCutOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_SSE_WRITE_TIMEOUT=1s")
	// More than the buffers between the two hold.
	const ops = `{"op":"chunk","id":"a","n":30,"bytes":200000}`
	conn := a.dial()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	body := request("message/stream", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"script":[`+ops+`]}}]}}`)
	if _, err := fmt.Fprintf(conn, "POST /agents/script HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	var task string
	until(t, "the task is there", func() bool {
		tasks := column[string](c, `SELECT id::text FROM audit.task`)
		if len(tasks) == 1 {
			task = tasks[0]
		}
		return task != ""
	})
	beside := &client.Client{URL: a.base + "/agents/script"} // not logged: so much is read once at the end, and no more
	events := follow(t, beside.Resubscribe(bounded(t), task, client.StreamOptions{}), nil)
	endsWith(t, events, a2a.StateCompleted)
	if got := len(chunks(events, "a")); got != 30 {
		t.Errorf("the reader beside it has %d chunks, want 30", got)
	}
	cut := a.awaitLog("request", func(l logLine) bool { return l.str("method") == "message/stream" })
	if !strings.Contains(cut.str("err"), "timeout") {
		t.Errorf("the stream that nobody reads ended with %q, want a timeout", cut.str("err"))
	}
	within(t, "the cut", time.Duration(cut.num("ms"))*time.Millisecond, 15*time.Second)
}

// TestStreamsAreBounded opens more streams than an owner and a replica may have.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_MAX_STREAMS_PER_OWNER=3", "A2AD_MAX_STREAMS=3")
	b := c.start("b", "A2AD_MAX_STREAMS_PER_OWNER=2", "A2AD_MAX_STREAMS=3")
	a.log.expectErrors() // 503
	asked := send(t, c.client(a, "script"), play(`{"op":"input"}`))
	for _, at := range []struct {
		r      *replica
		most   int
		status int
	}{{a, 3, 503}, {b, 2, 429}} {
		ctx, leave := context.WithCancel(bounded(t))
		var open, over sync.WaitGroup
		for range at.most {
			open.Add(1)
			cl := c.client(at.r, "script")
			over.Go(func() {
				_, _ = collect(cl.Resubscribe(ctx, asked.TaskID, client.StreamOptions{}), func(client.Event) bool { // it is left below
					open.Done()
					return false
				})
			})
		}
		open.Wait()
		before := c.rows()
		for _, body := range []string{
			request("tasks/resubscribe", `{"id":"`+asked.TaskID+`"}`),
			strings.Replace(message(""), "message/send", "message/stream", 1),
		} {
			got := c.post(at.r, "/agents/script", body)
			if got.status != at.status || got.header.Get("Retry-After") == "" || got.code == 0 {
				t.Errorf("one stream too many on %s: %d, Retry-After %q, %s", at.r.name, got.status, got.header.Get("Retry-After"), got.body)
			}
		}
		if after := c.rows(); after != before {
			t.Errorf("refused streams left %d rows", after-before)
		}
		leave()
		over.Wait()
		until(t, "there is room again", func() bool {
			cl := c.client(at.r, "script")
			cl.Tries = -1
			events, err := collect(cl.Resubscribe(bounded(t), asked.TaskID, client.StreamOptions{}), func(client.Event) bool { return true })
			return err == nil && len(events) == 1
		})
	}
}

// TestIdleStreamShowsSignsOfLife reads the comments of a stream on which nothing happens.
func TestIdleStreamShowsSignsOfLife(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_SSE_PING=100ms")
	asked := send(t, c.client(a, "script"), play(`{"op":"input"}`))
	conn := a.dial()
	body := request("tasks/resubscribe", `{"id":"`+asked.TaskID+`"}`)
	if _, err := fmt.Fprintf(conn, "POST /agents/script HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for p := make([]byte, 4096); strings.Count(seen.String(), ": ping\n\n") < 5; {
		n, err := conn.Read(p)
		seen.Write(p[:n])
		if err != nil {
			t.Fatalf("%v behind %s", err, seen.String())
		}
	}
	for _, header := range []string{"Content-Type: text/event-stream", "Cache-Control: no-store", "X-Accel-Buffering: no"} {
		if !strings.Contains(seen.String(), header) {
			t.Errorf("the answer lacks %q: %s", header, seen.String())
		}
	}
}

// TestCappedWaitAnswersWithTheTaskAsItIs is a blocking send that takes longer than it may.
func TestCappedWaitAnswersWithTheTaskAsItIs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_BLOCKING_MAX_WAIT=300ms")
	g := newGate(t)
	got := send(t, c.client(a, "script"), play(g.op()))
	if got.State.Terminal() {
		t.Errorf("the task is %s, want it to go on", got.State)
	}
	g.open()
	c.awaitState(got.TaskID, "COMPLETED")
}
