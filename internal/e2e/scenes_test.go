package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	apb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/a2ad/a2ad/internal/client"
	"github.com/a2ad/a2ad/internal/seal"
)

// scenes move metrics, each on its own cluster.
var scenes = map[string]func(s *stage){
	"requests": sceneRequests, "work": sceneWork, "lost leases": sceneLeases, "remote workers": scenePull,
	"streams": sceneStreams, "slow readers": sceneSlow,
	"wakes": sceneWakes, "webhooks": sceneWebhooks, "what the database holds": sceneFacts, "connections": scenePools,
	"readiness": sceneReady, "memory": sceneMemory, "sweeps": sceneSweeps, "agents": sceneAgents, "steps": sceneSteps,
	"commands": sceneCommands, "replication": sceneReplication,
}

const admin = "A2AD_ADMIN_LISTEN=127.0.0.1:0"

// dialects are requests that only a rule of docs/reference/protocol.md accepts, by rule.
var dialects = map[string][2]string{
	"L-01": {"tasks/list", `{}`},
	"L-02": {"message/send",
		`{"contextId":"c","message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text",` +
			`"text":"x"}]}}`},
	"L-03": {"message/send", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`},
	"L-04": {"tasks/list", `{"status":"cancelled"}`},
	"L-05": {"message/send",
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","bytes":"QQ=="}]}}`},
	"L-07": {"message/send",
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":1}]}}`},
	"L-08": {"message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"text":"x"}]}}`},
	"L-24": {"tasks/list", `{"context_id":"c"}`},
}

func sceneRequests(s *stage) {
	a := s.start("a", admin, "A2AD_LENIENT_VERSION=on")
	s.shows(unseen, a, became(1, "a2ad_build_info"), became(1, "a2ad_ready"))
	for rule, ask := range dialects {
		before := a.scrape()
		s.rpc(a, "echo", ask[0], ask[1])
		s.shows(before, a, grew(1, "a2ad_lenient_uses_total", "rule", rule))
	}
	before := a.scrape()
	s.post(a, "/", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"none"}}`) // of 1.0, without saying so
	about := []string{"method", "GetTask", "version", "1.0"}
	s.shows(before, a, grew(1, "a2ad_lenient_uses_total", "rule", "T-02"),
		grew(1, "a2ad_http_requests_total", append(about, "route", "/", "code", "200")...),
		grew(1, "a2ad_http_request_duration_seconds_count", about...),
		rose("a2ad_http_request_duration_seconds_sum", about...),
		grew(1, "a2ad_http_request_duration_seconds_bucket", append(about, "le", "+Inf")...),
		grew(1, "a2ad_request_errors_total", append(about, "reason", "TASK_NOT_FOUND")...))
}

func sceneWork(s *stage) {
	a := s.start("a", admin, "A2AD_WORKERS=7")
	s.shows(unseen, a, became(7, "a2ad_run_slots"))
	before := a.scrape()
	for _, op := range []string{"complete", "fail", "reject", "input", "auth"} {
		send(s.t, s.client(a, "script"), play(`{"op":"`+op+`"}`))
	}
	send(s.t, s.client(a, "script"), play(`{"op":"error","times":1}`))
	send(s.t, s.client(a, "single"), play(`{"op":"error","times":2}`)) // as often as it is attempted
	hangs, ignores := submit(s.t, s.client(a, "script"), play(`{"op":"hang"}`)),
		submit(s.t, s.client(a, "script"), play(`{"op":"ignore_cancel","ms":8000}`))
	s.shows(before, a, became(2, "a2ad_runs"), rose("a2ad_run_slot_seconds_total"))
	for _, task := range []string{hangs, ignores} {
		if _, err := s.client(a, "script").Cancel(bounded(s.t), task); err != nil {
			s.t.Fatal(err)
		}
	}
	states := []moved{
		grew(9, "a2ad_task_transitions_total", "state", "submitted"),
		grew(11, "a2ad_task_transitions_total", "state", "working"),
		grew(2, "a2ad_task_transitions_total", "state", "completed"),
		grew(2, "a2ad_task_transitions_total", "state", "failed"),
		grew(1, "a2ad_task_transitions_total", "state", "rejected"),
		grew(1, "a2ad_task_transitions_total", "state", "input-required"),
		grew(1, "a2ad_task_transitions_total", "state", "auth-required"),
		grew(2, "a2ad_task_transitions_total", "state", "canceled"),
	}
	s.shows(before, a, append(states, grew(11, "a2ad_claims_total", "worker", "local"),
		grew(6, "a2ad_attempts_total", "worker", "local", "outcome", "finished"),
		grew(1, "a2ad_attempts_total", "worker", "local", "agent", "single", "outcome", "failed"),
		grew(1, "a2ad_attempts_total", "worker", "local", "agent", "single", "outcome", "retry"),
		grew(1, "a2ad_attempts_total", "worker", "local", "agent", "script", "outcome", "retry"),
		grew(2, "a2ad_attempts_total", "worker", "local", "outcome", "canceled"),
		grew(1, "a2ad_executors_abandoned_total"),
		grew(9, "a2ad_submit_group_size_sum"), rose("a2ad_submit_group_size_count"), rose("a2ad_append_group_size_sum"),
		rose("a2ad_append_group_size_count"))...)
}

// sceneCommands has more tasks of a command than slots for commands.
func sceneCommands(s *stage) {
	s.agent("sleeps", "name: sleeps\ndescription: Sleeps.\nskills: [{id: s, name: S, description: S, tags: [test]}]\n"+
		"executor: {exec: {command: [/bin/sleep, \"600\"]}}\n")
	a := s.start("a", admin, "A2AD_COMMANDS=1")
	s.shows(unseen, a, became(1, "a2ad_command_slots"))
	before := a.scrape()
	tasks := []string{submit(s.t, s.client(a, "sleeps"), say("one")), submit(s.t, s.client(a, "sleeps"), say("two"))}
	s.shows(before, a, became(1, "a2ad_command_slots_used"),
		rose("a2ad_command_wait_seconds"), rose("a2ad_run_held_bytes"))
	before = a.scrape()
	for _, task := range tasks {
		if _, err := s.client(a, "sleeps").Cancel(bounded(s.t), task); err != nil {
			s.t.Fatal(err)
		}
	}
	s.shows(before, a, became(0, "a2ad_command_slots_used"), became(0, "a2ad_run_held_bytes"))
}

func sceneLeases(s *stage) {
	s.agent("ends", scriptAgent("ends", "on_lost_lease: fail\n"))
	a := s.start("a", admin)
	var again string
	for _, agent := range []string{"script", "asks", "ends"} {
		task := submit(s.t, s.client(a, agent), play(`{"op":"hang"}`))
		s.runner(task)
		if agent == "script" {
			again = task
		}
	}
	b := s.start("b", admin)
	before, own := b.scrape(), a.scrape()
	a.freeze()
	s.shows(before, b, grew(1, "a2ad_leases_expired_total", "fate", "retry"),
		grew(1, "a2ad_leases_expired_total", "fate", "fail"),
		grew(1, "a2ad_leases_expired_total", "fate", "input-required"))
	a.thaw()
	s.shows(own, a, grew(3, "a2ad_attempts_total", "worker", "local", "outcome", "lost"))
	s.runner(again)
	if _, err := s.client(b, "script").Cancel(bounded(s.t), again); err != nil {
		s.t.Fatal(err)
	}
}

func scenePull(s *stage) {
	s.agent("far", remoteAgent("far")+"limits: {max_attempts: 5, backoff: {base: 10ms, max: 10ms}}\n")
	a := s.start("a", admin)
	before := a.scrape()
	submit(s.t, s.client(a, "far"), say("x"))
	for _, outcome := range []string{"retry", "release", "done"} {
		s.finishRun(a, s.claimRun(a, "far"), outcome)
	}
	submit(s.t, s.client(a, "far"), say("y"))
	s.finishRun(a, s.claimRun(a, "far"), "fail")
	s.shows(before, a, grew(4, "a2ad_claims_total", "worker", "remote"),
		grew(1, "a2ad_attempts_total", "worker", "remote", "agent", "far", "outcome", "retry"),
		grew(1, "a2ad_attempts_total", "worker", "remote", "outcome", "released"),
		grew(1, "a2ad_attempts_total", "worker", "remote", "outcome", "finished"),
		grew(1, "a2ad_attempts_total", "worker", "remote", "outcome", "failed"))
}

func sceneStreams(s *stage) {
	a, b := s.start("a", admin, "A2AD_WORKERS=0"), s.start("b", "A2AD_WAKE_INTERVAL=1h")
	send(s.t, s.client(b, "echo"), say("its first wake-up is sent at once, and the next an hour later"))
	before := a.scrape()
	g := newGate(s.t)
	task := submit(s.t, s.client(b, "script"), play(g.op()+`,{"op":"chunk","id":"a","n":10,"every_ms":100}`))
	g.await(0)
	ended, begun := make(chan error, 1), make(chan bool, 1)
	go func() {
		defer close(begun)
		events, err := collect(s.client(a, "script").Resubscribe(bounded(s.t), task, client.StreamOptions{}),
			func(client.Event) bool {
				select {
				case begun <- true:
				default:
				}
				return false
			})
		if err == nil && len(events) != 12 {
			err = fmt.Errorf("the stream has %d events, want 12", len(events))
		}
		ended <- err
	}()
	<-begun // the task before its chunks
	s.shows(before, a, grew(1, "a2ad_sse_streams"))
	g.open()
	if err := <-ended; err != nil {
		s.t.Error(err)
	}
	s.shows(before, a, grew(11, "a2ad_sse_events_total"), grew(11, "a2ad_sse_lag_seconds_count"),
		rose("a2ad_sse_lag_seconds_sum"), rose("a2ad_stream_poll_hits_total"))
}

// Scripts whose events exceed the buffers of sockets and the flow-control window of a call.
const (
	much  = `{"op":"chunk","id":"a","n":18,"bytes":500000}`
	aCall = `{"op":"chunk","id":"a","n":6,"bytes":500000}`
)

// sceneSlow has clients that begin a stream and never read it, over each transport.
func sceneSlow(s *stage) {
	limits := []string{admin, "A2AD_SSE_WRITE_TIMEOUT=500ms"}
	a := s.start("a", append(limits, "A2AD_GRPC_LISTEN=127.0.0.1:0")...)
	before := a.scrape()
	params := `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"script":[` +
		much + `]}}]}}`
	body := `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":` + params + `}`
	lazy := a.dial()
	if _, err := fmt.Fprintf(lazy,
		"POST /agents/script HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
			"\r\n%s", len(body), body); err != nil {
		s.t.Fatal(err)
	}
	s.shows(before, a, grew(1, "a2ad_sse_slow_readers_total"))

	conn, err := grpc.NewClient(a.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	var req apb1.SendMessageRequest
	if err := protojson.Unmarshal([]byte(`{"tenant":"script","message":{"messageId":"m","role":"ROLE_USER",`+
		`"parts":[{"data":{"script":[`+aCall+`]}}]}}`), &req); err != nil {
		s.t.Fatal(err)
	}
	if _, err := apb1.NewA2AServiceClient(conn).SendStreamingMessage(metadata.AppendToOutgoingContext(bounded(s.t),
		"a2a-version", "1.0"), &req); err != nil {
		s.t.Fatal(err)
	}
	s.shows(before, a, grew(2, "a2ad_sse_slow_readers_total"))

	trust := newTrust(s.t)
	b := s.start("b", append(limits, "A2AD_TLS_CERT="+trust.cert, "A2AD_TLS_KEY="+trust.key)...)
	before = b.scrape()
	tr := trust.shows(nil).transport()
	defer tr.CloseIdleConnections()
	post, err := http.NewRequestWithContext(bounded(s.t), http.MethodPost, b.base+"/agents/script",
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	post.Header.Set("Content-Type", "application/json")
	resp, err := tr.RoundTrip(post)
	if err != nil || resp.ProtoMajor != 2 {
		s.t.Fatalf("a stream over HTTP/2: %v, %v", resp, err)
	}
	defer resp.Body.Close()
	s.shows(before, b, grew(1, "a2ad_sse_slow_readers_total"))
	s.awaitRest()
	b.stop() // the other helpers do not speak TLS
	a.stop() // it would cut who reads the tasks again at the end
	s.start("c")
}

func sceneWakes(s *stage) {
	a, b := s.start("a", admin), s.start("b")
	before := a.scrape()
	send(s.t, s.client(a, "echo"), say("x"))
	s.shows(before, a, rose("a2ad_wakes_sent_total"), rose("a2ad_wake_flushes_total", "result", "sent"),
		rose("a2ad_wakes_received_total", "kind", "own"))
	before = a.scrape()
	send(s.t, s.client(b, "echo"), say("x"))
	s.exec(`NOTIFY a2ad, 'gibberish'`)
	s.shows(before, a, rose("a2ad_wakes_received_total", "kind", "all"),
		grew(1, "a2ad_wakes_received_total", "kind", "unreadable"))

	// The listener cannot reconnect for a while.
	cfg, err := pgx.ParseConfig(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	name := pgx.Identifier{cfg.Database}.Sanitize()
	cfg.Database = "postgres"
	conn, err := pgx.ConnectConfig(bounded(s.t), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	before = a.scrape()
	for _, allowed := range []string{"false", "true"} {
		if _, err := conn.Exec(bounded(s.t), `ALTER DATABASE `+name+` ALLOW_CONNECTIONS `+allowed); err != nil {
			s.t.Fatal(err)
		}
		if allowed == "false" {
			for _, pid := range s.backends(a, "listener") {
				s.terminate(pid)
			}
			s.shows(before, a, became(0, "a2ad_listener_up"))
		}
	}
	s.shows(before, a, grew(1, "a2ad_listener_reconnects_total"))
}

// exec runs a statement.
func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(bounded(s.t), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func sceneWebhooks(s *stage) {
	blocked := make(chan struct{})
	open := sync.OnceFunc(func() { close(blocked) })
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/held":
			<-blocked
		case "/timeout":
			<-r.Context().Done()
		case "/redirect":
			http.Redirect(w, r, "/delivered", http.StatusFound)
		default:
			w.WriteHeader(map[string]int{
				"/gone": http.StatusGone, "/client_error": http.StatusBadRequest,
				"/throttled":    http.StatusTooManyRequests,
				"/server_error": http.StatusInternalServerError, "/delivered": http.StatusNoContent,
			}[r.URL.Path])
		}
	}))
	defer sink.Close()
	defer open()
	hooks := map[string]string{"connect": "http://" + freePort(s.t) + "/",
		"tls": "https" + strings.TrimPrefix(sink.URL, "http") + "/"}
	for _, class := range []string{"delivered", "gone", "redirect", "client_error", "throttled", "server_error"} {
		hooks[class] = sink.URL + "/" + class
	}
	env := append(hooking(seal.Generate("k1")), admin, "A2AD_PUSH_RETRY=0")
	a := s.start("a", slices.Concat(env, []string{"A2AD_PUSH_TIMEOUT=1h"})...)
	for class, hook := range hooks {
		before := a.scrape()
		s.sendHooked(a, `{"url":"`+hook+`"}`, `{"op":"complete"}`)
		s.shows(before, a, rose("a2ad_push_attempts_total", "class", class))
	}
	s.awaitDelivered()
	before := a.scrape()
	s.sendHooked(a, `{"url":"`+sink.URL+`/held"}`, `{"op":"complete"}`)
	s.shows(before, a, grew(1, "a2ad_push_in_flight"))
	open()
	s.shows(unseen, a, rose("a2ad_push_attempts_total", "class", "delivered"))
	s.awaitDelivered()
	a.stop()
	b := s.start("b", slices.Concat(env, []string{"A2AD_PUSH_TIMEOUT=1s"})...)
	before = b.scrape()
	s.sendHooked(b, `{"url":"`+sink.URL+`/timeout"}`, `{"op":"complete"}`)
	s.shows(before, b, rose("a2ad_push_attempts_total", "class", "timeout"))
	s.awaitDelivered()
}
