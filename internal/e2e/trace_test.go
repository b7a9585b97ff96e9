package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/a2ad/a2ad/internal/seal"
)

// span is a span that a collector has received.
type span struct {
	trace, id, parent, name string
	attrs                   map[string]string
	millis                  int64
}

// collector receives spans as an OpenTelemetry collector does.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []span // guarded by mu
	raw   []byte // guarded by mu; everything received

	received change // of spans
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		data, err := io.ReadAll(body)
		var req coltrace.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &req)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw = append(c.raw, data...)
		defer c.received.happened()
		for _, res := range req.ResourceSpans {
			for _, scope := range res.ScopeSpans {
				for _, s := range scope.Spans {
					got := span{
						trace: hex.EncodeToString(s.TraceId), id: hex.EncodeToString(s.SpanId),
						parent: hex.EncodeToString(s.ParentSpanId), name: s.Name,
						attrs: map[string]string{}, millis: int64(s.EndTimeUnixNano-s.StartTimeUnixNano) / 1e6,
					}
					for _, a := range s.Attributes {
						if got.attrs[a.Key] = a.Value.GetStringValue(); got.attrs[a.Key] == "" {
							got.attrs[a.Key] = strconv.FormatInt(a.Value.GetIntValue(), 10)
						}
					}
					c.spans = append(c.spans, got)
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// await waits for a span of a trace that match accepts.
func (c *collector) await(t *testing.T, trace, name string, match func(span) bool) (found span) {
	t.Helper()
	untilChange(t, "the collector has "+name+" of trace "+trace, c.received.next, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if s.trace == trace && s.name == name && (match == nil || match(s)) {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
)

// A trace spans two replicas: one accepts the request, the other runs the agent and delivers the webhook.
func TestTraceSpansRequestToWebhook(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	col := newCollector(t)
	sink := newHookSink(t, nil)
	keys := seal.Generate("k1")
	front := c.start("front", append(hooking(keys), "A2AD_WORKERS=0", "OTEL_EXPORTER_OTLP_ENDPOINT="+col.URL,
		"OTEL_BSP_SCHEDULE_DELAY=50")...)
	params := `{
		"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"canary-text"}]},
		"configuration":{"blocking":false,"pushNotificationConfig":{"url":"` + sink.URL + `/x"}}}`
	got := c.rpc(front, "traced", "message/send", params, "Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")
	var sent struct{ ID string }
	if err := json.Unmarshal(got.result, &sent); err != nil {
		t.Fatalf("send: %s", got.body)
	}
	task := sent.ID
	worker := c.start("worker", append(hooking(keys), "OTEL_EXPORTER_OTLP_ENDPOINT="+col.URL,
		"OTEL_BSP_SCHEDULE_DELAY=50")...)
	c.awaitRest()
	c.awaitDelivered()
	if got := c.state(task); got != "COMPLETED" {
		t.Errorf("the task is %s", got)
	}

	request := col.await(t, clientTrace, "SendMessage", nil)
	submit := col.await(t, clientTrace, "submit", nil)
	run := col.await(t, clientTrace, "run", nil)
	execute := col.await(t, clientTrace, "execute", nil)
	webhook := col.await(t, clientTrace, "webhook", func(s span) bool { return s.attrs["a2ad.outcome"] == "delivered" })
	col.await(t, clientTrace, "TaskSubmit", func(s span) bool { return s.parent == submit.id })
	for _, s := range []struct {
		name, parent, want string
	}{
		{"SendMessage", request.parent, clientSpan}, {"submit", submit.parent, request.id},
		{"run", run.parent, request.id},
		{"execute", execute.parent, run.id}, {"webhook", webhook.parent, request.id},
	} {
		if s.parent != s.want {
			t.Errorf("%s is below %s, want %s", s.name, s.parent, s.want)
		}
	}
	for name, s := range map[string]span{"request": request, "run": run, "webhook": webhook} {
		if s.attrs["a2a.task.id"] != task {
			t.Errorf("%s has the attributes %v, want task %s", name, s.attrs, task)
		}
	}
	if a := request.attrs; a["a2a.method.name"] != "SendMessage" || a["a2a.protocol.version"] != "0.3" ||
		a["a2a.protocol.binding"] != "JSONRPC" {
		t.Errorf("the request has the attributes %v", a)
	}
	if a := run.attrs; a["a2a.task.state"] != "completed" || a["a2ad.outcome"] != "finished" {
		t.Errorf("the run has the attributes %v", a)
	}
	// The agent, the receiver and the row have their parent span.
	if said := one[string](c,
		`SELECT string_agg(coalesce(e.parts::text, '') || e.body::text, ' ') FROM a2a.task_events e
			WHERE e.task_id::text = $1`, task); !strings.Contains(said, "00-"+clientTrace+"-"+execute.id+"-01") {
		t.Errorf("the agent says %s, want the span %s", said, execute.id)
	}
	if kept := one[string](c, `SELECT traceparent FROM a2a.tasks WHERE id::text = $1`, task); kept != "00-"+clientTrace+
		"-"+request.id+"-01" {
		t.Errorf("the task keeps %s, want the span %s", kept, request.id)
	}
	received := false
	for _, h := range sink.all() {
		received = received || h.header.Get("Traceparent") == "00-"+clientTrace+"-"+webhook.id+"-01"
	}
	if !received {
		t.Errorf("no webhook has the span %s", webhook.id)
	}
	line := worker.awaitLog("run", func(l logLine) bool { return l.str("task_id") == task })
	if owner, _ := line["principal"].(map[string]any); line.str("trace_id") != clientTrace ||
		owner["owner"] != "anonymous" {
		t.Errorf("the run logs %v", line)
	}
	if line := front.awaitLog("request",
		func(l logLine) bool { return l.str("task_id") == task }); line.str("trace_id") != clientTrace {
		t.Errorf("the request logs %v", line)
	}
	// either replica may have sent it
	until(t, "a webhook is logged with its trace, agent and owner", func() bool {
		ours := func(l logLine) bool {
			owner, _ := l["principal"].(map[string]any)
			return l.str("msg") == "webhook" && l.str("task_id") == task && l.str("trace_id") == clientTrace &&
				owner["owner"] == "anonymous" && l.str("agent") == "traced"
		}
		return front.log.count(ours)+worker.log.count(ours) > 0
	})
	col.mu.Lock()
	defer col.mu.Unlock()
	if bytes.Contains(col.raw, []byte("canary-text")) {
		t.Error("a span has the text of a message")
	}
}

// The span of a stream is exported while the stream is still open.
func TestStreamSpanIsExportedBeforeTheStreamEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	col := newCollector(t)
	a := c.start("a", "OTEL_EXPORTER_OTLP_ENDPOINT="+col.URL, "OTEL_BSP_SCHEDULE_DELAY=50")
	done := make(chan httpAnswer, 1)
	go func() {
		done <- c.rpc(a, "script", "message/stream",
			`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data",`+
				`"data":{"script":[{"op":"hang"}]}}]}}`,
			"Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")
	}()
	task := col.await(t, clientTrace, "SendStreamingMessage", nil).attrs["a2a.task.id"]
	select {
	case got := <-done:
		t.Errorf("the stream had ended: %s", got.body)
	default:
	}
	if got := c.rpc(a, "script", "tasks/cancel", `{"id":"`+task+`"}`); got.code != 0 {
		t.Errorf("cancel: %s", got.body)
	}
	if got := <-done; !strings.Contains(string(got.body), "canceled") {
		t.Errorf("the stream is %s", got.body)
	}
}

// The trace in the log of a webhook is the one its receiver gets, also without an exporter and for a trace that
// begins with the webhook.
func TestWebhookLogsTheTraceItSends(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	col := newCollector(t)
	sink := newHookSink(t, nil)
	keys := hooking(seal.Generate("k1"))
	submit := func(r *replica, header ...string) string {
		t.Helper()
		got := c.rpc(r, "echo", "message/send", `{
			"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},
			"configuration":{"blocking":false,"pushNotificationConfig":{"url":"`+sink.URL+`/x"}}}`, header...)
		var sent struct{ ID string }
		if err := json.Unmarshal(got.result, &sent); err != nil {
			t.Fatalf("send: %s", got.body)
		}
		return sent.ID
	}
	// check reads the last delivery of a task by a replica, and returns its trace.
	check := func(r *replica, task string) string {
		t.Helper()
		c.awaitRest()
		c.awaitDelivered()
		seq := one[int64](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task)
		line := r.awaitLog("webhook", func(l logLine) bool {
			return l.str("task_id") == task &&
				l.num("seq") == float64(seq)
		})
		id := fmt.Sprintf("msg_%s_%d", line.str("push_id"), seq)
		for _, h := range sink.all() {
			if h.id == id {
				var trace string
				if parts := strings.Split(h.header.Get("Traceparent"), "-"); len(parts) == 4 {
					trace = parts[1]
				}
				if line.str("trace_id") != trace {
					t.Errorf("the receiver gets trace %q, and the log has %v", trace, line)
				}
				return trace
			}
		}
		t.Fatalf("the sink has not received %s", id)
		return ""
	}
	plain := c.start("plain", keys...)
	if got := check(plain, submit(plain, "Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")); got != clientTrace {
		t.Errorf("the trace of a client that has one is %q", got)
	}
	if got := check(plain, submit(plain)); got != "" {
		t.Errorf("the trace of a client that has none is %q", got)
	}
	plain.stop()
	front := c.start("front", append(keys, "A2AD_WORKERS=0")...)
	task := submit(front)
	front.stop()
	if got := check(c.start("traced", append(keys, "OTEL_EXPORTER_OTLP_ENDPOINT="+col.URL)...), task); got == "" {
		t.Error("the webhook of a replica with tracing has no trace")
	}
}

// The claim of a remote worker is a span below the request, and the worker's spans are to be below it.
func TestClaimOfARemoteWorkerIsASpan(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	col := newCollector(t)
	c.agent("far", remoteAgent("far"))
	a := c.start("a", "OTEL_EXPORTER_OTLP_ENDPOINT="+col.URL, "OTEL_BSP_SCHEDULE_DELAY=50")
	got := c.rpc(a, "far", "message/send",
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},`+
			`"configuration":{"blocking":false}}`,
		"Traceparent", "00-"+clientTrace+"-"+clientSpan+"-01")
	if got.code != 0 {
		t.Fatalf("send: %s", got.body)
	}
	for attempt, outcome := range []string{"retry", "done"} {
		run := c.claimRun(a, "far")
		request := col.await(t, clientTrace, "SendMessage", nil)
		claim := col.await(t, clientTrace, "claim",
			func(s span) bool { return s.attrs["a2ad.attempt"] == strconv.Itoa(attempt+1) })
		if want := "00-" + clientTrace + "-" + claim.id + "-01"; run.Traceparent != want || claim.parent != request.id {
			t.Errorf("the worker gets %s below %s, want %s below %s", run.Traceparent, claim.parent, want,
				request.id)
		}
		if at := claim.attrs; at["a2a.task.id"] != run.TaskID || at["gen_ai.agent.name"] != "far" ||
			at["a2ad.epoch"] != strconv.FormatInt(run.Epoch, 10) {
			t.Errorf("the claim has the attributes %v", at)
		}
		c.finishRun(a, run, outcome)
		line := a.awaitLog("run", func(l logLine) bool { return l.num("epoch") == float64(run.Epoch) })
		if line.str("trace_id") != clientTrace {
			t.Errorf("the run logs %v", line)
		}
	}
}
