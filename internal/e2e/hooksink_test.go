package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/a2ad/a2ad/internal/e2e/check"
)

// hookSink is a receiver of webhooks. What it received is an independent record of deliveries.
type hookSink struct {
	*httptest.Server
	t *testing.T

	mu   sync.Mutex
	got  []hooked                          // guarded by mu
	deny func(n int, r *http.Request) bool // n counts all requests, from 0

	received change // of got
}

// hooked is one request that a sink answered, or was about to answer when its sender died.
type hooked struct {
	path, id, body string
	header         http.Header
	accepted       bool
}

func newHookSink(t *testing.T, deny func(n int, r *http.Request) bool) *hookSink {
	t.Helper()
	s := &hookSink{t: t, deny: deny}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // its sender was killed
		}
		s.mu.Lock()
		n := len(s.got)
		s.got = append(s.got, hooked{path: r.URL.Path, id: r.Header.Get("Webhook-Id"), body: string(body),
			header: r.Header.Clone()})
		s.mu.Unlock()
		s.received.happened()
		if s.deny != nil && s.deny(n, r) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s.mu.Lock()
		s.got[n].accepted = true
		s.mu.Unlock()
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *hookSink) all() []hooked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]hooked(nil), s.got...)
}

// await waits for a request to a path.
func (s *hookSink) await(ctx context.Context, path string) error {
	for {
		received := s.received.next()
		if slices.ContainsFunc(s.all(), func(h hooked) bool { return h.path == path }) {
			return nil
		}
		select {
		case <-received:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// judge checks what arrived against I5.
func (s *hookSink) judge() (duplicates int) {
	s.t.Helper()
	duplicates, wrong := judgeHooks(s.all())
	for _, text := range wrong {
		s.t.Error(text)
	}
	return duplicates
}

// judgeHooks checks what a receiver got against I5.
func judgeHooks(got []hooked) (duplicates int, wrong []string) {
	list := make([]check.Delivery, len(got))
	for i, h := range got {
		list[i] = check.Delivery{ID: h.id, Body: h.body, Accepted: h.accepted}
	}
	return check.Deliveries(list)
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// hooking returns the settings of replicas that deliver webhooks to this machine with short retries.
func hooking(keys string) []string {
	return []string{
		"A2AD_KEYS=" + keys, "A2AD_PUSH_ALLOW_HTTP=on", "A2AD_PUSH_ALLOW_CIDRS=127.0.0.0/8", "A2AD_PUSH_TIMEOUT=1m",
		"A2AD_PUSH_POLL=200ms",
		"A2AD_PUSH_RETRY=0" + strings.Repeat(",50ms", 30), "A2AD_PUSH_BREAKER=1000,1s,2s",
		"A2AD_PUSH_THROTTLE_WAIT=50ms",
	}
}

// sendHooked submits a script with a webhook and returns the task.
func (c *cluster) sendHooked(r *replica, hook string, ops ...string) string {
	c.t.Helper()
	got := c.rpc(r, "script", "message/send", fmt.Sprintf(`{
		"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"script":[%s]}}]},
		"configuration":{"blocking":false,"pushNotificationConfig":%s}}`, strings.Join(ops, ","), hook))
	var task struct{ ID string }
	if err := json.Unmarshal(got.result, &task); err != nil || task.ID == "" {
		c.t.Fatalf("send: %s", got.body)
	}
	return task.ID
}

// awaitDelivered waits until all tasks are at rest and every webhook has delivered everything.
func (c *cluster) awaitDelivered() {
	c.t.Helper()
	c.awaitRest()
	until(c.t, "all webhooks are delivered", func() bool {
		n, err := query[int](c, `SELECT count(*) FROM audit.delivery WHERE state = 'pending'`)
		return err == nil && n == 0
	})
}
