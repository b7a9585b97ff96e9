package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/a2ad/a2ad/internal/a2a"
)

// besidePool is the number of a replica's connections in addition to A2AD_DB_POOL: the listener, the database check
// and the renewal of leases.
const besidePool = 4

// footprint is what a replica uses: goroutines, descriptors and database connections.
type footprint struct{ goroutines, files, connections int }

func (c *cluster) footprint(r *replica) (f footprint) {
	c.t.Helper()
	c.http.CloseIdleConnections()
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(r.admin +
		"/debug/pprof/goroutine?debug=1")
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, "goroutine profile: total %d", &f.goroutines); scanErr != nil {
		c.t.Fatalf("%q: %v, %v", line, err, scanErr)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
	if err != nil {
		c.t.Skipf("no /proc here: %v", err)
	}
	f.files = len(files)
	f.connections = one[int](c,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE $1`,
		"a2ad-"+r.name+"-%")
	return f
}

// A replica with a small pool gets many waiting requests, and slow clients that never finish theirs.
func TestFloodLeavesTasksReadable(t *testing.T) {
	t.Parallel()
	const streams, sends, slow, pool = 1000, 300, 50, 8
	c := newCluster(t)
	c.cutOK = true // the streams end below
	a := c.start("a", "A2AD_ADMIN_LISTEN=127.0.0.1:0", fmt.Sprint("A2AD_DB_POOL=", pool),
		"A2AD_READ_HEADER_TIMEOUT=15s", "A2AD_READ_TIMEOUT=15s",
		"A2AD_BLOCKING_MAX_WAIT=10m", "A2AD_POOL_TIMEOUT=5m", "A2AD_STATEMENT_TIMEOUT=5m")
	asked := send(t, c.client(a, "script"), play(`{"op":"input"}`))
	get := request("tasks/get", `{"id":"`+asked.TaskID+`"}`)
	for range 50 { // until everything that is created once exists
		c.post(a, "/agents/script", get)
	}
	before := c.footprint(a)

	flood := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	ask := func(ctx context.Context, body string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/agents/script", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		return flood.Do(req)
	}
	var open, watching, sending sync.WaitGroup
	open.Add(streams)
	for range streams {
		watching.Go(func() {
			resp, err := ask(ctx, request("tasks/resubscribe", `{"id":"`+asked.TaskID+`"}`))
			if err != nil {
				t.Errorf("stream: %v", err)
				open.Done()
				return
			}
			defer resp.Body.Close()
			r := bufio.NewReader(resp.Body)
			if line, err := r.ReadString('\n'); !strings.HasPrefix(line, "id:") {
				t.Errorf("a stream begins with %q, %v", line, err)
			}
			open.Done()
			_, _ = io.Copy(io.Discard, r) // until the stream ends
		})
	}
	open.Wait()
	g := newGate(t)
	patient, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	body := request("message/send",
		`{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"script":[`+g.op()+`]}}]}}`)
	for range sends {
		sending.Go(func() {
			resp, err := ask(patient, body)
			if err != nil {
				t.Errorf("send: %v", err)
				return
			}
			defer resp.Body.Close()
			if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK ||
				!strings.Contains(string(answer), `"completed"`) {
				t.Errorf("an accepted message: %s, %v: %.300s", resp.Status, err, answer)
			}
		})
	}
	until(t, "all messages are accepted",
		func() bool { return one[int](c, `SELECT count(*) FROM audit.task`) == sends+1 })
	lazy := c.lazyClients(a, slow)

	var took []time.Duration
	for range 200 {
		start := time.Now()
		if got := c.post(a, "/agents/script", get); got.status != http.StatusOK || got.code != 0 {
			t.Fatalf("a read meanwhile: %d %s", got.status, got.body)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	logTook(t, "99 of 100 reads meanwhile", took[len(took)*99/100])
	during := c.footprint(a)
	if during.connections > pool+besidePool {
		t.Errorf("%d connections to the database, want at most %d", during.connections, pool+besidePool)
	}
	if during.files < streams+sends {
		t.Errorf("%d descriptors: there was no flood", during.files)
	}
	lazy() // each was cut off

	g.open()
	sending.Wait()
	leave()
	watching.Wait()
	flood.CloseIdleConnections()
	until(t, "the replica is as it was before", func() bool {
		now := c.footprint(a)
		t.Logf("before %+v, during %+v, now %+v", before, during, now)
		return now.goroutines <= before.goroutines*21/20+5 && now.files <= before.files*21/20+5 &&
			now.connections <= pool+besidePool
	})
	if state := c.state(asked.TaskID); state != "INPUT_REQUIRED" {
		t.Errorf("the task is %s", state)
	}
	if end := send(t, c.client(a, "script"), reply(asked.TaskID, "done")); end.State != a2a.StateCompleted {
		t.Errorf("got %s", end.Raw)
	}
}

// lazyClients begins n headers and n bodies and finishes none. The returned function waits until the replica has cut
// all of them off.
func (c *cluster) lazyClients(r *replica, n int) (wait func()) {
	c.t.Helper()
	var conns []net.Conn
	for i := range 2 * n {
		conn := r.dial()
		text := "POST /agents/script HTTP/1.1\r\nHost: localhost\r\nContent-Ty"
		if i%2 == 0 {
			text = "POST /agents/script HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
				"Content-Length: 1000\r\n\r\n{"
		}
		if _, err := io.WriteString(conn, text); err != nil {
			c.t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	return func() {
		for _, conn := range conns {
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				c.t.Fatal(err)
			}
			if answer, err := io.ReadAll(conn); err != nil { // to its end
				c.t.Errorf("a slow client is not cut off: %v after %q", err, answer)
			}
			conn.Close()
		}
	}
}

// Requests beyond the limit are refused at once while the database is blocked. Subscriptions wait.
func TestRequestsBeyondThePendingLimitAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a", "A2AD_MAX_PENDING=1", "A2AD_LOCK_TIMEOUT=1h", "A2AD_STATEMENT_TIMEOUT=1h",
		"A2AD_POOL_TIMEOUT=1h", "A2AD_LEASE_TTL=1h", "A2AD_WORKERS=0", "A2AD_DB_POOL=8",
		"A2AD_GRPC_LISTEN=127.0.0.1:0")
	a.log.expectErrors() // 503
	asked := submit(t, c.client(a, "script"), play(`{"op":"complete"}`))
	get := request("tasks/get", `{"id":"`+asked+`"}`)
	message := strings.Replace(message(""), `"params":{`, `"params":{"configuration":{"blocking":false},`, 1)
	lock, err := c.db.Begin(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background()) //nolint:errcheck // it is over already
	if _, err := lock.Exec(bounded(t), `LOCK TABLE a2a.tasks IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	var claiming, following sync.WaitGroup
	for _, body := range []string{get, message} {
		claiming.Go(func() {
			if got := c.post(a, "/agents/script", body); got.status != http.StatusOK || got.code != 0 {
				t.Errorf("an accepted request: %d %s", got.status, got.body)
			}
		})
	}
	blocked := func(n int) {
		until(t, fmt.Sprint(n, " reads and writes are blocked"), func() bool {
			return one[int](c,
				`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
					AND (application_name = 'a2ad-a-api' OR query LIKE '%TaskSubmit%')`) == n
		})
	}
	blocked(2)
	c.subscribeThrice(&following, a, asked)
	blocked(2 + 2) // and the first subscriptions
	for _, body := range []string{get, message} {
		got := c.post(a, "/agents/script", body)
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" ||
			!strings.Contains(string(got.body), `"the server is busy"`) {
			t.Errorf("one too many: %d %v %s", got.status, got.header, got.body)
		}
	}
	if got := c.do(a, "GET", "/v1/tasks/"+asked, nil); got.status != http.StatusServiceUnavailable ||
		got.header.Get("Retry-After") == "" {
		t.Errorf("one too many over REST: %d %s", got.status, got.body)
	}
	if got := c.do(a, "GET", "/agents/script/.well-known/agent-card.json", nil); got.status != http.StatusOK {
		t.Errorf("the card meanwhile: %d", got.status)
	}
	if err := lock.Rollback(bounded(t)); err != nil {
		t.Fatal(err)
	}
	claiming.Wait()
	c.start("b") // runs the accepted work
	following.Wait()
}

// subscribeThrice follows a task to its end, three times over each binding in each version.
func (c *cluster) subscribeThrice(following *sync.WaitGroup, r *replica, task string) {
	c.t.Helper()
	for range 3 {
		for _, ask := range [][4]string{
			{"0.3", "POST", "/agents/script", request("tasks/resubscribe", `{"id":"`+task+`"}`)},
			{"1.0", "POST", "/agents/script", request("SubscribeToTask", `{"id":"`+task+`"}`)},
			{"0.3", "POST", "/agents/script/v1/tasks/" + task + ":subscribe", ""},
			{"1.0", "GET", "/agents/script/tasks/" + task + ":subscribe", ""},
		} {
			following.Go(func() {
				got := c.do(r, ask[1], ask[2], strings.NewReader(ask[3]), "A2A-Version", ask[0])
				if got.status != http.StatusOK || !strings.Contains(strings.ToLower(string(got.body)), "completed") {
					c.t.Errorf("a subscription of %s, %s: %d %s", ask[0], ask[2], got.status, got.body)
				}
			})
		}
		following.Go(func() { c.subscribeOverGRPC(r, task) })
	}
}

func (c *cluster) subscribeOverGRPC(r *replica, task string) {
	conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Error(err)
		return
	}
	defer conn.Close()
	op := &apb1.SubscribeToTaskRequest{Tenant: "script", Id: task}
	stream, err := apb1.NewA2AServiceClient(conn).SubscribeToTask(bounded(c.t), op)
	if err != nil {
		c.t.Error(err)
		return
	}
	for events := 0; ; events++ {
		switch _, err := stream.Recv(); {
		case errors.Is(err, io.EOF) && events > 1:
			return
		case err != nil:
			c.t.Errorf("a subscription over gRPC, after %d events: %v", events, err)
			return
		}
	}
}
