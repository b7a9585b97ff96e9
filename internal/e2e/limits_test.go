package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// A client opens a stream and reads nothing of it.
func TestReaderThatStopsReadingIsCutOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_SSE_WRITE_TIMEOUT=1s")
	// More than the buffers between client and server hold.
	const ops = `{"op":"chunk","id":"a","n":30,"bytes":200000}`
	conn := a.dial()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	body := request("message/stream",
		`{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"script":[`+ops+`]}}]}}`)
	if _, err := fmt.Fprintf(conn,
		"POST /agents/script HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
			"\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	var task string
	until(t, "the task exists", func() bool {
		tasks := column[string](c, `SELECT id::text FROM audit.task`)
		if len(tasks) == 1 {
			task = tasks[0]
		}
		return task != ""
	})
	// not logged: a log this large is read once at the end, and no more
	beside := &client.Client{URL: a.base + "/agents/script"}
	events := follow(t, beside.Resubscribe(bounded(t), task, client.StreamOptions{}), nil)
	endsWith(t, events, a2a.StateCompleted)
	if got := len(chunks(events, "a")); got != 30 {
		t.Errorf("another reader has %d chunks, want 30", got)
	}
	cut := a.awaitLog("request", func(l logLine) bool { return l.str("method") == "message/stream" })
	if !strings.Contains(cut.str("err"), "timeout") {
		t.Errorf("the unread stream ended with %q, want a timeout", cut.str("err"))
	}
	within(t, "the cut", time.Duration(cut.num("ms"))*time.Millisecond, 15*time.Second)
}

// A client asks for a large task and does not read the answer. The time limit must not include the time that a
// blocking send may wait.
func TestUnreadAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// The answer of the send is as large. On a busy machine its client may be late, too.
	patient := c.start("patient")
	big := send(t, c.client(patient, "script"), play(`{"op":"chunk","id":"a","n":30,"bytes":200000}`))
	a := c.start("a", "A2AD_WRITE_TIMEOUT=1s", "A2AD_BLOCKING_MAX_WAIT=60s")
	for name, text := range map[string]string{
		"tasks/get": "POST /agents/script HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			"Content-Length: %d\r\n\r\n" + request("tasks/get", `{"id":"`+big.TaskID+`"}`),
		"HTTP+JSON": "GET /agents/script/tasks/" + big.TaskID +
			" HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n",
	} {
		conn := a.dial()
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(text, "\r\n\r\n")
		if _, err := io.WriteString(conn, strings.Replace(text, "%d", strconv.Itoa(len(body)), 1)); err != nil {
			t.Fatal(err)
		}
		cut := a.awaitLog("request", func(l logLine) bool {
			return strings.Contains(l.str("err"), "timeout") && strings.HasPrefix(text, l.str("http_method"))
		})
		within(t, "the cut of "+name, time.Duration(cut.num("ms"))*time.Millisecond, 20*time.Second)
	}
}

// Requests to a blocked database are refused within the configured time, with the error of that limit.
func TestBlockedDatabaseEndsRequestsInTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const long = "25s"
	slow := func(name, limit string) *replica {
		env := []string{"A2AD_LOCK_TIMEOUT=" + long, "A2AD_STATEMENT_TIMEOUT=" + long, "A2AD_POOL_TIMEOUT=" + long,
			"A2AD_LEASE_TTL=60s", "A2AD_WORKERS=0", "A2AD_DB_POOL=4", limit}
		r := c.start(name, env...)
		r.log.expectErrors()
		return r
	}
	lock, statement, pool := slow("lock", "A2AD_LOCK_TIMEOUT=300ms"), slow("statement", "A2AD_STATEMENT_TIMEOUT=300ms"),
		slow("pool", "A2AD_POOL_TIMEOUT=300ms")
	asked := submit(t, c.client(lock, "script"), play(`{"op":"complete"}`))
	get := func(r *replica) (rpc, rest httpAnswer) {
		return c.post(r, "/agents/script", request("tasks/get", `{"id":"`+asked+`"}`)),
			c.do(r, http.MethodGet, "/agents/script/tasks/"+asked, nil, "A2A-Version", "1.0")
	}
	held, err := c.db.Begin(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(context.Background()) //nolint:errcheck // it is over already
	if _, err := held.Exec(bounded(t), `LOCK TABLE a2a.tasks IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for range 4 { // every connection for reads
		waiting.Go(func() { get(pool) })
	}
	until(t, "all connections wait", func() bool {
		return one[int](c,
			`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
				AND application_name LIKE 'a2ad-pool-%'`) >= 2
	})
	for _, tt := range []struct {
		r         *replica
		rpc, rest int
		reason    string
		retry     bool
	}{{lock, 200, 500, "INTERNAL", false}, {statement, 200, 500, "INTERNAL", false},
		{pool, 503, 503, "UNAVAILABLE", true}} {
		began := time.Now()
		rpc, rest := get(tt.r)
		within(t, tt.r.name, time.Since(began), 15*time.Second)
		if rpc.status != tt.rpc || rest.status != tt.rest {
			t.Errorf("%s: JSON-RPC %d, HTTP+JSON %d", tt.r.name, rpc.status, rest.status)
		}
		for _, got := range []httpAnswer{rpc, rest} {
			if !strings.Contains(string(got.body), `"reason":"`+tt.reason+`"`) ||
				(got.header.Get("Retry-After") != "") != tt.retry || strings.Contains(string(got.body), "SQLSTATE") {
				t.Errorf("%s: %v %s", tt.r.name, got.header, got.body)
			}
		}
	}
	if err := held.Rollback(bounded(t)); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	for _, r := range []*replica{lock, statement, pool} {
		until(t, r.name+" answers again", func() bool {
			rpc, rest := get(r)
			return rpc.code == 0 && rpc.status == http.StatusOK && rest.status == http.StatusOK
		})
	}
	c.start("b") // runs the accepted work
}

// Streams beyond the limit of an owner or a replica are refused.
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
		var open, refused sync.WaitGroup
		for range at.most {
			open.Add(1)
			cl := c.client(at.r, "script")
			refused.Go(func() {
				// the stream ends below
				_, _ = collect(cl.Resubscribe(ctx, asked.TaskID, client.StreamOptions{}), func(client.Event) bool {
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
				t.Errorf("one stream too many on %s: %d, Retry-After %q, %s", at.r.name, got.status,
					got.header.Get("Retry-After"), got.body)
			}
		}
		if after := c.rows(); after != before {
			t.Errorf("refused streams left %d rows", after-before)
		}
		leave()
		refused.Wait()
		until(t, "there is room again", func() bool {
			cl := c.client(at.r, "script")
			cl.Tries = -1
			events, err := collect(cl.Resubscribe(bounded(t), asked.TaskID, client.StreamOptions{}),
				func(client.Event) bool { return true })
			return err == nil && len(events) == 1
		})
	}
}

// A stream on which nothing happens sends comments.
func TestIdleStreamShowsSignsOfLife(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_SSE_PING=100ms")
	asked := send(t, c.client(a, "script"), play(`{"op":"input"}`))
	conn := a.dial()
	body := request("tasks/resubscribe", `{"id":"`+asked.TaskID+`"}`)
	if _, err := fmt.Fprintf(conn,
		"POST /agents/script HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
			"\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for p := make([]byte, 4096); strings.Count(seen.String(), ": ping\n\n") < 5; {
		n, err := conn.Read(p)
		seen.Write(p[:n])
		if err != nil {
			t.Fatalf("%v after %s", err, seen.String())
		}
	}
	for _, header := range []string{"Content-Type: text/event-stream", "Cache-Control: no-store",
		"X-Accel-Buffering: no"} {
		if !strings.Contains(seen.String(), header) {
			t.Errorf("the answer lacks %q: %s", header, seen.String())
		}
	}
}

// A blocking send that reaches its time limit returns the task as it is.
func TestCappedWaitReturnsTheTaskAsItIs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_BLOCKING_MAX_WAIT=300ms")
	g := newGate(t)
	got := send(t, c.client(a, "script"), play(g.op()))
	if got.State.Terminal() {
		t.Errorf("the task is %s, want it to continue", got.State)
	}
	g.open()
	c.awaitState(got.TaskID, "COMPLETED")
}
