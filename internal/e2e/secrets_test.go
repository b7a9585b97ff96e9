package e2e_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// canaries are secrets that must appear only where they belong, by kind.
type canaries map[string]string

func (c canaries) new(what string) string {
	c[what] = "canary" + strings.ToLower(rand.Text()[:16])
	return c[what]
}

// in reports the canaries in a text, also as hex and base64, except those that belong there.
func (c canaries) in(t *testing.T, where, text string, belong ...string) {
	t.Helper()
	for what, canary := range c {
		if slices.Contains(belong, what) {
			continue
		}
		for _, form := range forms(canary) {
			if at := strings.Index(text, form); at >= 0 {
				t.Errorf("%s shows %s: …%s…", where, what, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
}

// forms returns the encodings of a canary, at every alignment.
func forms(canary string) []string {
	all := []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)}
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), canary...))
		all = append(all, text[(before*8+5)/6:len(text)-1]) // without the digits shared with neighboring bytes
	}
	return all
}

// Canaries are found in all their forms.
func TestCanariesAreFound(t *testing.T) {
	t.Parallel()
	const canary = "canaryabcdefgh"
	for before := range 5 {
		text := strings.Repeat("x", before) + canary + "yz"
		for _, written := range []string{text, hex.EncodeToString([]byte(text)),
			base64.StdEncoding.EncodeToString([]byte(text)), base64.RawURLEncoding.EncodeToString([]byte(text))} {
			if !slices.ContainsFunc(forms(canary), func(form string) bool { return strings.Contains(written, form) }) {
				t.Errorf("not found in %s", written)
			}
		}
	}
}

// watchDatabase collects the queries of all connections and all wake-ups, until stop is called.
func (c *cluster) watchDatabase() (stop func() (queries, wakes string)) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	var queries, wakes strings.Builder
	conn, err := pgx.Connect(ctx, c.url)
	if err == nil {
		_, err = conn.Exec(ctx, `LISTEN a2ad`)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	parts.Go(func() {
		defer conn.Close(context.Background())
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			fmt.Fprintln(&wakes, n.Channel, n.Payload)
		}
	})
	parts.Go(func() {
		seen := map[string]bool{}
		for ctx.Err() == nil {
			rows, err := c.db.Query(ctx,
				`SELECT DISTINCT coalesce(query, '') || ' ' || application_name FROM pg_stat_activity
					WHERE datname = current_database() AND application_name LIKE 'a2ad-%'`)
			if err != nil {
				continue
			}
			list, _ := pgx.CollectRows(rows, pgx.RowTo[string]) // what there is
			for _, q := range list {
				if !seen[q] {
					seen[q] = true
					fmt.Fprintln(&queries, q)
				}
			}
		}
	})
	return func() (string, string) {
		cancel()
		parts.Wait()
		return queries.String(), wakes.String()
	}
}

// Everything that can go wrong with secrets happens, at the most verbose log level. Afterwards no output contains
// them.
func TestSecretsAppearInNoOutput(t *testing.T) {
	t.Parallel()
	secret := canaries{}
	c := newCluster(t)
	at, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	password, own := at.User.Password()
	if !own { // a user that may log in without a password may do so with any
		password = secret.new("password of the database")
		at.User = url.UserPassword(at.User.Username(), password)
	} else {
		secret["password of the database"] = password
	}
	sealing := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef" + secret.new("key for secrets")[:16]))
	secret["key for secrets"] = sealing
	signing := base64.StdEncoding.EncodeToString([]byte(secret.new("key for signatures") + "xx"))
	secret["key for signatures"] = signing
	// A receiver that fails at first, and echoes what it received.
	tries := make(chan struct{}, 100)
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(tries) < cap(tries) {
			tries <- struct{}{}
		}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%v %s", r.Header["X-A2a-Notification-Token"], body)
	}))
	defer sink.Close()
	spans := newCollector(t)
	collecting := secret.new("header for the collector of traces")
	a := c.start("a", "A2AD_AUTH=required", "OTEL_EXPORTER_OTLP_ENDPOINT="+spans.URL, "OTEL_BSP_SCHEDULE_DELAY=50",
		"OTEL_EXPORTER_OTLP_HEADERS=x-key="+collecting,
		"A2AD_DATABASE_URL="+at.String(), "A2AD_LOG_LEVEL=debug", "A2AD_ADMIN_LISTEN=127.0.0.1:0",
		"A2AD_KEYS=k:"+sealing,
		"A2AD_PUSH_SIGNING_SECRETS=whsec_"+signing, "A2AD_PUSH_ALLOW_HTTP=on", "A2AD_PUSH_ALLOW_CIDRS=127.0.0.0/8",
		"A2AD_PUSH_RETRY=0,50ms,50ms", "A2AD_RATE_SIGN_INS=0.01,4")
	a.log.expectErrors()
	key := c.apiKey("acme", "ann", "tasks:read,tasks:write,push:write")
	secret["API key"] = key[:len(key)-9] // without its checksum
	stop := c.watchDatabase()
	signed := []string{"Authorization", "Bearer " + key}
	text, metadata, token, credentials := secret.new("text of a message"), secret.new("metadata"),
		secret.new("token of a webhook"), secret.new("credentials of a webhook")
	query, odd := secret.new("query"), secret.new("header")
	var failures strings.Builder
	fails := func(what string, got httpAnswer) {
		t.Helper()
		if got.status == http.StatusOK && got.code == 0 {
			t.Errorf("%s went well: %s", what, got.body)
		}
		fmt.Fprintf(&failures, "%s %d %v %s\n", what, got.status, got.header, got.body)
	}
	send := func(more string, header ...string) httpAnswer {
		return c.post(a, "/agents/script?key="+query,
			request("message/send", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"`+text+
				`"},{"kind":"data","data":{"script":[{"op":"status"},{"op":"complete"}]}}],"metadata":{"k":"`+metadata+
				`"}}`+more+`}`),
			append(header, "X-Custom", odd, "Cookie", odd, "Tracestate", "a="+odd, "Baggage", "a="+odd, "Traceparent",
				"00-"+clientTrace+"-"+clientSpan+"-01")...)
	}
	hook := `{"url":"` + sink.URL + `/hook","token":"` + token +
		`","authentication":{"schemes":["Bearer"],"credentials":"` + credentials + `"}}`
	if got := send(`,"configuration":{"blocking":true,"pushNotificationConfig":`+hook+`}`, signed...); got.code != 0 ||
		got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.body)
	} else {
		for what := range map[string]string{"token of a webhook": token, "credentials of a webhook": credentials,
			"API key": key} {
			if strings.Contains(string(got.body), secret[what]) {
				t.Errorf("the answer has the %s", what)
			}
		}
	}
	<-tries
	<-tries
	<-tries

	bearer := secret.new("bearer token")
	fails("no key", send(""))
	fails("a bad bearer token", send("", "Authorization", "Bearer "+bearer))
	fails("a bad key", send("", "X-API-Key", "a2ad_live_"+bearer))
	fails("basic", send("", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:"+bearer))))
	for range 4 {
		fails("bad keys", send("", "X-API-Key", bearer))
	}
	fails("a body that ends early", c.post(a, "/agents/script",
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"text":"`+text, signed...))
	fails("bytes that are no text", c.post(a, "/agents/script",
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":"`+text+"\xff"+`"}`, signed...))
	fails("params of another kind", c.post(a, "/agents/script", request("message/send", `"`+text+`"`), signed...))
	fails("a message of another kind", c.post(a, "/agents/script", request("message/send", `{"message":"`+text+`"}`),
		signed...))
	fails("a role",
		c.post(a, "/agents/script", request("message/send",
			`{"message":{"messageId":"m","role":"`+text+`","parts":[{"kind":"text","text":"x"}]}}`), signed...))
	fails("a part", c.post(a, "/agents/script", withPart(`{"kind":"`+text+`","text":"`+text+`"}`), signed...))
	fails("a task", c.post(a, "/agents/script", message(`,"taskId":"`+text+`"`), signed...))
	fails("a page token", c.post(a, "/agents/script", request("tasks/list", `{"pageToken":"`+token+`"}`), signed...))
	fails("a webhook with a bad URL",
		send(`,"configuration":{"pushNotificationConfig":{"url":"ftp://u:`+credentials+`@h/","token":"`+token+`"}}`,
			signed...))
	fails("a webhook with a bad token",
		send(`,"configuration":{"pushNotificationConfig":{"url":"`+sink.URL+`","token":"`+token+`\n"}}`, signed...))
	fails("an idempotency key", send("", append(signed, "Idempotency-Key", strings.Repeat(token, 20))...))
	c.post(a, "/agents/script",
		request("message/send", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"`+text+
			`"},{"kind":"data","data":{"script":[{"op":"panic"}]}}]}}`), signed...)
	c.post(a, "/agents/script",
		request("message/stream", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"`+text+
			`"},{"kind":"data","data":{"script":[{"op":"error"}]}}]}}`), signed...)

	// Statements that fail, with the values in the detail of the error.
	for _, broken := range []struct{ name, do, undo string }{
		{"a constraint", `ALTER TABLE a2a.messages ADD CONSTRAINT canary CHECK (seq < 0) NOT VALID`,
			`ALTER TABLE a2a.messages DROP CONSTRAINT canary`},
		{"a table that is not there", `ALTER TABLE a2a.messages RENAME TO gone`,
			`ALTER TABLE a2a.gone RENAME TO messages`},
	} {
		if _, err := c.db.Exec(bounded(t), broken.do); err != nil {
			t.Fatal(err)
		}
		fails(broken.name, send(`,"configuration":{"pushNotificationConfig":`+hook+`}`, signed...))
		if _, err := c.db.Exec(bounded(t), broken.undo); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.db.Exec(bounded(t),
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'a2ad-%'`); err != nil {
		t.Fatal(err)
	}
	until(t, "it serves again", func() bool { return send("", signed...).status == http.StatusOK })
	c.key = key
	c.awaitRest()
	// The worker API refuses too.
	for _, path := range []string{"/worker/v1/claim", "/worker/v1/runs/x/1/events", "/message:send",
		"/v1/message:stream"} {
		fails(path, c.post(a, path+"?key="+query, `{"worker":"`+text+`","message":"`+text+`"}`, "Authorization",
			"Bearer "+bearer))
	}

	queries, wakes := stop()
	for where, text := range map[string]string{"pg_stat_activity": queries, "NOTIFY": wakes,
		"an answer about what went wrong": failures.String()} {
		if text == "" {
			t.Errorf("%s was not seen", where)
		}
		secret.in(t, where, text)
	}
	if !strings.Contains(queries, "TaskSubmit") || !strings.Contains(wakes, "task:") {
		t.Errorf("the work was not seen: %s\n%s", queries, wakes)
	}
	secret.in(t, "the log", a.log.all())
	c.pages(a, secret)
	c.tables(secret)
	for name, env := range map[string][]string{"config": nil, "config -v": {"-v"}, "config json": {"-o", "json"}} {
		secret.in(t, name, c.configOf(a, env...))
	}
	c.commands(a, secret)
	a.stop() // sends the remaining spans
	spans.mu.Lock()
	defer spans.mu.Unlock()
	for _, name := range []string{"SendMessage", "TaskSubmit", "run", "webhook"} {
		if !slices.ContainsFunc(spans.spans, func(s span) bool { return s.name == name }) {
			t.Errorf("there are no spans %s", name)
		}
	}
	secret.in(t, "a trace", string(spans.raw))
}

// pages checks what operators see over HTTP.
func (c *cluster) pages(r *replica, secret canaries) {
	c.t.Helper()
	for page, has := range map[string]string{
		"/metrics": "a2ad_http_requests_total{", "/readyz": "database: ok", "/debug/pprof/cmdline": "a2ad",
		"/debug/pprof/goroutine?debug=2": "goroutine ", "/debug/pprof/heap?debug=1": "heap profile",
	} {
		resp, err := http.Get(r.admin + page)
		if err != nil {
			c.t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), has) {
			c.t.Errorf("%s: %v, %.200s", page, err, body)
		}
		secret.in(c.t, page, string(body))
	}
}

// said are the relations that hold what clients say, as intended, or what receivers of webhooks answer; this test's
// receiver echoes what it received.
var said = []string{"a2a.messages", "a2a.task_events", "audit.message", "audit.event", "a2a.push_attempts"}

// tables checks every row of every table and view, and what the database says about them.
func (c *cluster) tables(secret canaries) {
	c.t.Helper()
	all := column[string](c, `SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n
		ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'v', 'm', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`)
	if len(all) < 25 {
		c.t.Errorf("there are %d tables and views", len(all))
	}
	rows := 0
	for _, name := range append(all, "pg_stats", "pg_description", "pg_db_role_setting", "pg_proc") {
		text := one[string](c, `SELECT coalesce(string_agg(t::text, E'\n'), '') FROM `+name+` t`)
		if rows += len(text); slices.Contains(said, name) {
			secret.in(c.t, name, text, "text of a message", "metadata")
			if !strings.Contains(text, secret["text of a message"]) && name == "a2a.messages" {
				c.t.Errorf("%s lacks its intended content", name)
			}
			continue
		}
		secret.in(c.t, name, text)
	}
	if rows == 0 {
		c.t.Error("the tables contain nothing")
	}
}

// commands checks the output of commands that read the database.
func (c *cluster) commands(r *replica, secret canaries) {
	c.t.Helper()
	var database string // as the replica has it: the last value counts
	for _, e := range r.env {
		if strings.HasPrefix(e, "A2AD_DATABASE_URL=") {
			database = e
		}
	}
	webhook := one[string](c, `SELECT max(id::text) FROM a2a.push_configs`)
	for _, args := range [][]string{
		{"task", "ls"}, {"task", "ls", "-o", "json"}, {"push", "ls"}, {"push", "ls", "-o", "json"},
		{"push", "attempts", webhook}, {"push", "attempts", webhook, "-o", "json"},
		{"apikey", "ls"}, {"apikey", "ls", "-o", "json"}, {"stats", "-o", "json"}, {"doctor", "-o", "json"},
		{"migrate", "status"}, {"migrate", "up"},
	} {
		out, notes, code := c.operate([]string{database}, args...)
		if code != 0 && args[0] != "doctor" {
			c.t.Errorf("%v: exit code %d, %s", args, code, notes)
		}
		var belong []string
		if args[1] == "attempts" { // it shows the receiver's answers
			belong = []string{"text of a message", "metadata"}
		}
		secret.in(c.t, "a2ad "+strings.Join(args, " "), out+notes, belong...)
	}
	// Commands that cannot reach the database show no more.
	unreachable := "A2AD_DATABASE_URL=postgres://u:" + secret["password of the database"] + "@127.0.0.1:1/x"
	for _, args := range [][]string{{"task", "ls"}, {"migrate", "up"}, {"doctor"}, {"keys", "rewrap"}} {
		out, notes, code := c.operate([]string{unreachable}, args...)
		if code == 0 {
			c.t.Errorf("%v succeeded without a database: %s", args, out)
		}
		secret.in(c.t, "a2ad "+strings.Join(args, " ")+" without a database", out+notes)
	}
}

// configOf returns the output of a2ad config with the settings of a replica.
func (c *cluster) configOf(r *replica, args ...string) string {
	c.t.Helper()
	binary, err := build()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(bounded(c.t), binary, append([]string{"config"}, args...)...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Errorf("config: %v: %s", err, out)
	}
	return string(out)
}
