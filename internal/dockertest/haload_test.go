package dockertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/e2e/check"
)

const (
	haSenders = 50 // each sends one message a second
	haReaders = 4  // each follows one stream after the other
	sendLimit = 3 * time.Second
	hooked    = 5 // each fifth message has a webhook
)

// haLoad sends messages until it is ended, follows streams, and asks for webhooks. A send is repeated with its key
// until it is accepted, as a client that must not lose work does.
type haLoad struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	url    string
	key    string
	hook   string
	http   *http.Client

	mu       sync.Mutex
	accepted []acceptance // guarded by mu
	refused  int          // guarded by mu; tries that were not accepted
	streams  int          // guarded by mu
	wrong    []error      // guarded by mu; what streams had that they must not have
}

type acceptance struct {
	check.Acknowledged
	at     time.Time
	hooked bool
}

func (h *ha) startLoad() *haLoad {
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{MaxIdleConnsPerHost: haSenders}
	h.t.Cleanup(transport.CloseIdleConnections)
	l := &haLoad{cancel: cancel, url: api + "/agents/echo", key: h.key, hook: h.hooks.url,
		http: &http.Client{Transport: transport}}
	for i := range haSenders {
		l.done.Go(func() {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				l.send(ctx, (i+n)%hooked == 0)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	for range haReaders {
		c := h.client("script")
		l.done.Go(func() {
			for ctx.Err() == nil {
				l.follow(ctx, h.t, c)
			}
		})
	}
	return l
}

// send sends a message until it is accepted.
func (l *haLoad) send(ctx context.Context, withHook bool) {
	key := client.NewMessageID()
	pause := time.NewTicker(200 * time.Millisecond)
	defer pause.Stop()
	for {
		task, err := l.try(ctx, key, withHook)
		l.mu.Lock()
		if err == nil {
			l.accepted = append(l.accepted, acceptance{
				Acknowledged: check.Acknowledged{Task: task, Key: key, MessageID: key}, at: time.Now(),
				hooked: withHook,
			})
			l.mu.Unlock()
			return
		}
		if ctx.Err() == nil {
			l.refused++
		}
		l.mu.Unlock()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *haLoad) try(ctx context.Context, key string, withHook bool) (task string, err error) {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	config := map[string]any{"blocking": false}
	if withHook {
		config["pushNotificationConfig"] = map[string]any{"url": l.hook}
	}
	message := map[string]any{"kind": "message", "messageId": key, "role": "user",
		"parts": []any{map[string]any{"kind": "text", "text": "hello"}}}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "message/send",
		"params": map[string]any{"configuration": config, "message": message}})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+l.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := l.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got struct{ Result struct{ ID string } }
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(raw, &got); err != nil || got.Result.ID == "" {
		return "", fmt.Errorf("status %d: %s", resp.StatusCode, raw)
	}
	return got.Result.ID, nil
}

// follow follows one stream to its end, also when the load ends meanwhile.
func (l *haLoad) follow(ctx context.Context, t *testing.T, c *client.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), electionLimit+eventually)
	defer cancel()
	_, err := follow(ctx, t, c, 50, func() {})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams++
	if err != nil {
		l.wrong = append(l.wrong, err)
	}
}

// acceptedAfter returns when the first send was accepted that was answered after a time, or zero.
func (l *haLoad) acceptedAfter(at time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accepted {
		if a.at.After(at) {
			return a.at
		}
	}
	return time.Time{}
}

func (l *haLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
}

// more waits until a number of further sends are accepted.
func (l *haLoad) more(s *stack, n int) {
	s.t.Helper()
	want := l.count() + n
	s.until("more sends are accepted", func() bool { return l.count() >= want })
}

// end stops the load, and waits for the streams that are being followed.
func (l *haLoad) end() {
	l.cancel()
	l.done.Wait()
}

// String returns the figures.
func (l *haLoad) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d sends accepted, %d tries refused, %d streams", len(l.accepted), l.refused, l.streams)
}

// compare compares what was acknowledged, streamed and delivered with the database, in which all tasks have ended.
func (l *haLoad) compare(t *testing.T, conn *pgx.Conn, hooks *sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually)
	defer cancel()
	var outside check.Outside
	var tasks, withHook []string
	for _, a := range l.accepted {
		outside.Acknowledged = append(outside.Acknowledged, a.Acknowledged)
		tasks = append(tasks, a.Task)
		if a.hooked {
			withHook = append(withHook, a.Task)
		}
	}
	found, err := check.CompareOutside(ctx, conn, outside)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
	var completed int
	err = conn.QueryRow(ctx, "SELECT count(*) FROM audit.task WHERE id::text = ANY ($1) AND state = 'COMPLETED'",
		tasks).Scan(&completed)
	if err != nil || completed != len(tasks) {
		t.Errorf("%d of %d accepted tasks are completed: %v", completed, len(tasks), err)
	}
	for _, err := range l.wrong {
		t.Error(err)
	}
	if len(tasks) == 0 || l.streams == 0 || len(withHook) == 0 {
		t.Errorf("the load did nothing: %s, %d webhooks", l, len(withHook))
	}
	hooks.await(t, withHook)
}

// sink receives webhooks.
type sink struct {
	url string

	mu    sync.Mutex
	got   []check.Delivery // guarded by mu
	ended map[string]bool  // guarded by mu; the tasks that are completed, as received
}

// newSink listens at an address of this machine until the test ends.
func newSink(t *testing.T, host string) *sink {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	k := &sink{url: "http://" + listener.Addr().String() + "/", ended: make(map[string]bool)}
	server := &http.Server{Handler: k, ReadHeaderTimeout: eventually}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return k
}

func (k *sink) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // its sender was cut off
	}
	var task struct {
		ID     string
		Status struct{ State string }
	}
	if json.Unmarshal(body, &task) != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, check.Delivery{ID: r.Header.Get("Webhook-Id"), Body: string(body), Accepted: true})
	if strings.EqualFold(task.Status.State, "completed") {
		k.ended[task.ID] = true
	}
}

// await waits until each of the tasks was delivered as completed.
func (k *sink) await(t *testing.T, tasks []string) {
	t.Helper()
	s := &stack{t: t, files: haFiles}
	s.until("all webhooks are delivered", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, task := range tasks {
			if !k.ended[task] {
				return false
			}
		}
		return true
	})
}

// check checks the order of what was delivered.
func (k *sink) check(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	duplicates, wrong := check.Deliveries(k.got)
	for _, text := range wrong {
		t.Error(text)
	}
	t.Logf("%d webhooks received, %d of them again", len(k.got), duplicates)
}
