package e2e_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/a2ad/a2ad/internal/seal"
)

// rpc makes one call of the 0.3 binding.
func (c *cluster) rpc(r *replica, agent, method, params string, header ...string) httpAnswer {
	c.t.Helper()
	return c.post(r, "/agents/"+agent, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, header...)
}

// The sink has received the webhook, but the replica is killed before it records that.
func TestKilledBetweenAnswerAndRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	keys := seal.Generate("k1")
	var victim atomic.Pointer[replica]
	sink := newHookSink(t, func(n int, _ *http.Request) bool {
		if n == 0 {
			victim.Load().kill()
		}
		return false
	})
	a := c.start("a", append(hooking(keys), "A2AD_PUSH_TIMEOUT=1h")...)
	victim.Store(a)
	task := c.sendHooked(a, `{"url":"`+sink.URL+`/x","token":"tok"}`, `{"op":"chunk","id":"a","n":3}`)
	<-a.exited
	if !one[bool](c, `SELECT lease_until < clock_timestamp() + $2::interval FROM a2a.push_configs WHERE task_id = $1`,
		task, leaseTTL.String()) {
		t.Error("the webhook is held for longer than A2AD_LEASE_TTL")
	}
	c.start("b", hooking(keys)...)
	c.awaitState(task, "COMPLETED")
	c.awaitDelivered()
	if n := sink.judge(); n != 1 {
		t.Errorf("%d duplicates, want the one that was not recorded", n)
	}
	got := sink.all()
	if got[0].id != got[1].id || got[0].header.Get("X-A2a-Notification-Token") != "tok" {
		t.Errorf("ids %s and %s, want the same", got[0].id, got[1].id)
	}
}

// Tasks of 8 events have three webhooks each. The replicas that work and deliver are killed at random moments to the
// very end, and the receiver refuses every tenth request.
func TestWebhooksSurviveKills(t *testing.T) {
	t.Parallel()
	tasks := 200
	if raceEnabled || testing.Short() {
		tasks = 40
	}
	c := newCluster(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	draw := rand.New(rand.NewPCG(seed, 0))
	keys := seal.Generate("k1")
	sink := newHookSink(t, func(n int, _ *http.Request) bool { return n%10 == 9 })
	front := c.start("front", append(hooking(keys), "A2AD_WORKERS=0", "A2AD_PUSH_PER_DESTINATION=64")...)
	// all go to one receiver, and there should be many requests
	many := append(hooking(keys), "A2AD_PUSH_PER_DESTINATION=64")
	list := []*replica{c.start("a", many...), c.start("b", many...)}
	kills := 0
	kill := func() {
		k := draw.IntN(len(list))
		list[k].kill()
		list[k] = c.restart(list[k])
		kills++
	}
	tenth, at := tasks/10, 0
	for i := range tasks {
		if i%tenth == 0 { // one kill in each, somewhere
			at = i + draw.IntN(tenth)
		}
		task := c.sendHooked(front, `{"id":"one","url":"`+sink.URL+`/one","token":"tok"}`,
			`{"op":"chunk","id":"a","n":5,"every_ms":100}`)
		for _, id := range []string{"two", "three"} {
			got := c.rpc(front, "script", "tasks/pushNotificationConfig/set",
				`{"taskId":"`+task+`","pushNotificationConfig":{"id":"`+id+`","url":"`+sink.URL+`/`+id+`"}}`)
			if got.code != 0 {
				t.Fatalf("set: %s", got.body)
			}
		}
		if i == at {
			kill()
		}
	}
	pending := func() bool {
		return one[bool](c,
			`SELECT EXISTS (SELECT FROM audit.task WHERE state IN ('SUBMITTED', 'WORKING')) OR EXISTS (SELECT
				FROM audit.delivery WHERE state = 'pending')`)
	}
	for kills < 25 && pending() {
		next := len(sink.all()) + draw.IntN(60)
		until(t, "some more are delivered, or all", func() bool { return len(sink.all()) >= next || !pending() })
		kill()
	}
	c.awaitDelivered()
	if n := one[int](c, `SELECT count(*) FROM audit.delivery WHERE state <> 'delivered'`); n != 0 {
		t.Errorf("%d events are given up", n)
	}
	if n := one[int](c,
		`SELECT count(*) FROM audit.push_config WHERE state = 'done' AND cursor_seq = head_seq`); n != 3*tasks {
		t.Errorf("%d webhooks are done, want %d", n, 3*tasks)
	}
	if n := one[int](c,
		`SELECT count(*) FROM (SELECT FROM audit.event GROUP BY task_id HAVING count(*) >= 8) t`); n != tasks {
		t.Errorf("%d tasks have their 8 events, want %d", n, tasks)
	}
	hit := one[int](c, `SELECT count(*) FROM audit.attempt WHERE outcome = 'expired'`)
	if hit == 0 {
		t.Errorf("%d kills hit %d runs: the test proves nothing", kills, hit)
	}
	duplicates := sink.judge()
	t.Logf("%d kills hit %d runs; %d requests, %d duplicates", kills, hit, len(sink.all()), duplicates)
	if duplicates > 64*kills { // what was in flight, and no more
		t.Errorf("%d duplicates after %d kills", duplicates, kills)
	}
}

// The replica is frozen in the handshake before its request, and resumes when another replica has answered a delete.
func TestFrozenReplicaSendsNothingAfterADelete(t *testing.T) {
	t.Parallel()
	entered, opened := make(chan struct{}), make(chan struct{})
	first, open := sync.OnceFunc(func() { close(entered) }), sync.OnceFunc(func() { close(opened) })
	defer open()
	var came atomic.Int32
	sink := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
	sink.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	sink.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		first()
		<-opened
		return nil, nil
	}}
	sink.StartTLS()
	t.Cleanup(sink.Close)
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sink.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	a := c.start("a", append(hooking(""), "SSL_CERT_FILE="+trusted)...)
	task := c.sendHooked(a, `{"url":"`+sink.URL+`"}`, `{"op":"complete"}`)
	<-entered
	a.freeze()
	b := c.start("b", hooking("")...)
	if got := c.rpc(b, "script", "tasks/pushNotificationConfig/delete",
		`{"id":"`+task+`","pushNotificationConfigId":"default"}`); got.code != 0 {
		t.Errorf("delete: %s", got.body)
	}
	if one[bool](c, `SELECT lease_until > clock_timestamp() FROM a2a.push_configs WHERE task_id = $1`, task) {
		t.Error("the delete did not wait for the lease")
	}
	open()
	a.thaw()
	until(t, "the frozen replica releases the webhook", func() bool {
		free, err := query[bool](c, `SELECT lease_until IS NULL FROM a2a.push_configs WHERE task_id = $1`, task)
		return err == nil && free
	})
	if n := came.Load(); n != 0 {
		t.Errorf("%d requests came after the delete", n)
	}
}

func TestWebhooksOverTheWire(t *testing.T) {
	t.Parallel()
	const canary = "canary-5ca1ab1e"
	c := newCluster(t)
	a := c.start("a", append(hooking(seal.Generate("k1")), "A2AD_LOG_LEVEL=debug")...)
	sink := newHookSink(t, func(n int, _ *http.Request) bool { return n == 0 })

	card := c.do(a, http.MethodGet, "/agents/script/.well-known/agent-card.json", nil)
	if !strings.Contains(string(card.body), `"pushNotifications":true`) {
		t.Errorf("card: %s", card.body)
	}
	if set := c.do(a, http.MethodGet, "/.well-known/jwks.json", nil); set.status != http.StatusOK ||
		strings.Count(string(set.body), `"kid"`) != 2 {
		t.Errorf("key set: %d %s", set.status, set.body)
	}
	g := newGate(t)
	task := c.sendHooked(a, `{"url":"`+sink.URL+`/inline","token":"`+canary+
		`1","authentication":{"schemes":["Bearer"],"credentials":"`+canary+`2"}}`, g.op(), `{"op":"complete"}`)
	g.await(0)
	call := func(method, params string) httpAnswer {
		t.Helper()
		got := c.rpc(a, "script", "tasks/pushNotificationConfig/"+method, params)
		if strings.Contains(string(got.body), canary) {
			t.Errorf("%s shows secrets: %s", method, got.body)
		}
		return got
	}
	config := func(id, rest string) string { return `{"taskId":"` + id + `","pushNotificationConfig":` + rest + `}` }

	if got := call("set",
		config(task, `{"id":"x","url":"`+sink.URL+`/x","token":"`+canary+
			`3","authentication":{"schemes":["Basic"],"credentials":"`+canary+`4"}}`)); got.code != 0 ||
		!strings.Contains(string(got.result), `"id":"x"`) || !strings.Contains(string(got.result), `"Basic"`) {
		t.Errorf("set: %s", got.body)
	}
	if got := call("set", config(task, `{"url":"`+sink.URL+`/replaced","token":"`+canary+`5"}`)); got.code != 0 ||
		!strings.Contains(string(got.result), `"id":"default"`) {
		t.Errorf("set without an id: %s", got.body)
	}
	if got := call("get", `{"id":"`+task+`"}`); !strings.Contains(string(got.result), sink.URL+"/replaced") {
		t.Errorf("get: %s", got.body)
	}
	if got := call("get", `{"id":"`+task+`","pushNotificationConfigId":"x"}`); !strings.Contains(string(got.result),
		sink.URL+"/x") {
		t.Errorf("get x: %s", got.body)
	}
	var listed []any
	if got := call("list", `{"id":"`+task+`"}`); json.Unmarshal(got.result, &listed) != nil || len(listed) != 2 {
		t.Errorf("list: %s", got.body)
	}
	if got := call("delete", `{"id":"`+task+`","pushNotificationConfigId":"x"}`); got.code != 0 {
		t.Errorf("delete: %s", got.body)
	}
	if got := call("get", `{"id":"`+task+`","pushNotificationConfigId":"x"}`); got.code != -32001 {
		t.Errorf("get of a deleted webhook: %s", got.body)
	}

	none := "00000000-0000-7000-8000-000000000000"
	for what, tt := range map[string]struct {
		method, params string
		code           int
	}{
		"unknown task, set":    {"set", config(none, `{"url":"`+sink.URL+`"}`), -32001},
		"unknown task, get":    {"get", `{"id":"` + none + `"}`, -32001},
		"unknown task, list":   {"list", `{"id":"` + none + `"}`, -32001},
		"unknown task, delete": {"delete", `{"id":"` + none + `","pushNotificationConfigId":"x"}`, -32001},
		"CR/LF in credentials": {"set",
			config(task, `{"url":"`+sink.URL+`","authentication":{"schemes":["Bearer"],"credentials":"`+canary+
				`\r\nX-Evil: 1"}}`), -32602},
		"CR/LF in the token": {"set", config(task, `{"url":"`+sink.URL+`","token":"`+canary+`\r\n"}`), -32602},
		"NUL in the credentials": {"set",
			config(task, `{"url":"`+sink.URL+`","authentication":{"schemes":["Bearer"],"credentials":"a\u0000b"}}`),
			-32602},
		"CR/LF in a scheme": {"set",
			config(task, `{"url":"`+sink.URL+`","authentication":{"schemes":["Bearer\r\nX: 1"],"credentials":"x"}}`),
			-32602},
		"private address": {"set", config(task, `{"url":"http://169.254.169.254/latest"}`), -32602},
		"itself":          {"set", config(task, `{"url":"`+a.base+`/x"}`), -32602},
		"another scheme":  {"set", config(task, `{"url":"file:///etc/passwd"}`), -32602},
		"user info":       {"set", config(task, `{"url":"http://u:p@127.0.0.1:1/"}`), -32602},
		"no url":          {"set", config(task, `{"token":"x"}`), -32602},
	} {
		if got := call(tt.method, tt.params); got.code != tt.code {
			t.Errorf("%s: %s, want %d", what, got.body, tt.code)
		}
	}
	// A message whose webhook is refused creates no task.
	before := one[int](c, `SELECT count(*) FROM audit.task`)
	if got := c.rpc(a, "script", "message/send", `{
		"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},
		"configuration":{"pushNotificationConfig":{"url":"http://10.0.0.1/"}}}`); got.code != -32602 {
		t.Errorf("send with a bad webhook: %s", got.body)
	}
	if after := one[int](c, `SELECT count(*) FROM audit.task`); after != before {
		t.Errorf("it created %d tasks", after-before)
	}
	if got := c.rpc(a, "hookless", "tasks/pushNotificationConfig/list", `{"id":"`+task+`"}`); got.code != -32003 {
		t.Errorf("an agent without webhooks: %s", got.body)
	}
	if card := c.do(a, http.MethodGet, "/agents/hookless/.well-known/agent-card.json",
		nil); strings.Contains(string(card.body), `"pushNotifications":true`) {
		t.Errorf("its card: %s", card.body)
	}
	for i := range 9 {
		call("set", config(task, `{"id":"n`+itoa(i)+`","url":"`+sink.URL+`/many"}`))
	}
	if got := call("set", config(task, `{"id":"one more","url":"`+sink.URL+`/many"}`)); got.code != -32602 {
		t.Errorf("an eleventh webhook: %s", got.body)
	}
	g.open()
	c.awaitState(task, "COMPLETED")
	c.awaitDelivered()
	sink.judge()
	if got := call("set", config(task, `{"id":"n1","url":"`+sink.URL+`/late"}`)); got.code != 0 {
		t.Errorf("set on a finished task: %s", got.body)
	}
	for _, h := range sink.all() {
		if h.path == "/replaced" && h.header.Get("X-A2a-Notification-Token") != canary+"5" {
			t.Errorf("token %q", h.header.Get("X-A2a-Notification-Token"))
		}
	}
	if n := one[int](c, `SELECT count(*) FROM a2a.push_attempts a WHERE a::text LIKE '%canary%'`) +
		one[int](c,
			`SELECT count(*) FROM a2a.push_configs p WHERE p::text LIKE '%canary%'
				OR position('canary'::bytea IN token) > 0 OR position('canary'::bytea IN credentials) > 0`); n != 0 {
		t.Errorf("%d rows hold secrets in plain text", n)
	}
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	for _, l := range a.log.lines {
		if text := fmt.Sprint(l); strings.Contains(text, canary) {
			t.Errorf("log: %s", text)
		}
	}
}
