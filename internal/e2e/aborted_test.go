package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A thousand clients disconnect while they wait, a thousand disconnect from their streams, and a thousand webhooks go
// to a receiver that never answers. Afterwards the replica holds nothing of theirs.
func TestDisconnectedClientsLeaveNothing(t *testing.T) {
	t.Parallel()
	const many, pool = 1000, 8
	c := newCluster(t)
	c.cutOK = true
	leftSink := make(chan struct{})
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leftSink:
		case <-r.Context().Done():
		}
	}))
	defer sink.Close()
	defer close(leftSink)
	a := c.start("a", "A2AD_ADMIN_LISTEN=127.0.0.1:0", fmt.Sprint("A2AD_DB_POOL=", pool), "A2AD_BLOCKING_MAX_WAIT=2m",
		"A2AD_POOL_TIMEOUT=20s", "A2AD_PUSH_ALLOW_HTTP=on",
		"A2AD_PUSH_ALLOW_CIDRS=127.0.0.0/8", "A2AD_PUSH_TIMEOUT=1s", "A2AD_PUSH_RETRY=0", "A2AD_PUSH_THROTTLE_WAIT=0s",
		"A2AD_PUSH_PER_DESTINATION=256", "A2AD_PUSH_BREAKER=100000,1s,1s")
	asked := send(t, c.client(a, "script"), play(`{"op":"input"}`))
	for range 50 {
		c.post(a, "/agents/script", request("tasks/get", `{"id":"`+asked.TaskID+`"}`))
	}
	before := c.footprint(a)

	flood := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	g := newGate(t)
	script := `{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"script":[` + g.op() + `]}}]}`
	hook := `,"configuration":{"blocking":true,"pushNotificationConfig":{"url":"` + sink.URL + `"}}`
	for _, round := range []struct{ what, body string }{
		{"sends", request("message/send", script+hook+`}`)},
		{"streams", request("tasks/resubscribe", `{"id":"`+asked.TaskID+`"}`)},
	} {
		ctx, leave := context.WithCancel(context.Background())
		var left sync.WaitGroup
		for range many {
			left.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/agents/script",
					strings.NewReader(round.body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := flood.Do(req)
				if err != nil {
					return // it has disconnected
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", round.what, resp.Status)
				}
				<-ctx.Done()
			})
		}
		if round.what == "sends" {
			until(t, "all sends are accepted",
				func() bool { return one[int](c, `SELECT count(*) FROM audit.task`) == many+1 })
		} else {
			until(t, "all streams are open", func() bool { return c.footprint(a).files >= before.files+many })
		}
		leave()
		left.Wait()
		flood.CloseIdleConnections()
	}
	if during := c.footprint(a); during.connections > pool+besidePool {
		t.Errorf("%d connections to the database", during.connections)
	}
	g.open()
	c.awaitRest()
	until(t, "every webhook has been tried", func() bool {
		return one[int](c, `SELECT count(*) FROM audit.push_config WHERE state = 'dead'`) == many
	})
	until(t, "the replica is as it was before", func() bool {
		now := c.footprint(a)
		t.Logf("before %+v, now %+v", before, now)
		return now.goroutines <= before.goroutines*21/20+10 && now.files <= before.files*21/20+5 &&
			now.connections <= pool+besidePool
	})
}

// A client and an agent write text that would do harm if the server interpreted it. In particular, the server fetches
// no file that a part names by URL.
func TestAgentOutputIsNeverInterpreted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var fetched atomic.Int64
	bait := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fetched.Add(1) }))
	defer bait.Close()
	parts := fmt.Sprintf(`[{"text":"<script>alert(1)</script>\u2028\r\n\r\nevent: x\ndata: y"},`+
		`{"url":"file:///etc/passwd","filename":"../../etc/passwd","mediaType":"text/html\r\nSet-Cookie: a=b"},`+
		`{"url":"%s/x"},{"raw":"//4AAQ==","mediaType":"application/octet-stream"},`+
		`{"data":{"$ref":"%s/y","__proto__":{"a":1}}}]`, bait.URL, bait.URL)
	event := `{"artifactUpdate":{"artifact":{"artifactId":"a\r\nX: y","name":"<b>","parts":` + parts +
		`},"lastChunk":true}}`
	events := filepath.Join(c.agents, "events.txt")
	c.agent("harm",
		"name: harm\ndescription: Writes bait.\nskills: [{id: h, name: H, description: H, tags: [test]}]\nexecutor: "+
			"{exec: {command: [/bin/cat, "+events+"], output: events}}\n")
	if err := os.WriteFile(events,
		[]byte(event+"\n"+`{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := fmt.Sprintf(`[{"text":"x"},{"url":"%s/z","mediaType":"text/plain"}]`, bait.URL)
	a := c.start("a")
	got := c.post(a, "/agents/harm", request("SendMessage",
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":`+asked+`}}`), "A2A-Version", "1.0")
	var task struct {
		Task struct {
			ID        string
			Artifacts []struct {
				ArtifactID string
				Parts      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(got.result, &task); err != nil || len(task.Task.Artifacts) != 1 {
		t.Fatalf("%v: %s", err, got.body)
	}
	var have, want any
	if err := json.Unmarshal(task.Task.Artifacts[0].Parts, &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(parts), &want); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(have) != fmt.Sprint(want) || task.Task.Artifacts[0].ArtifactID != "a\r\nX: y" {
		t.Errorf("the client reads\n%v %q\nwant\n%v", have, task.Task.Artifacts[0].ArtifactID, want)
	}
	if got.header.Get("Set-Cookie") != "" || got.header.Get("X") != "" ||
		got.header.Get("Content-Type") != "application/json" || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers: %v", got.header)
	}
	stream := c.post(a, "/agents/harm", request("SendStreamingMessage",
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":`+asked+`}}`), "A2A-Version", "1.0")
	for line := range strings.Lines(string(stream.body)) {
		name, _, _ := strings.Cut(line, ":")
		if name != "id" && name != "data" && name != "retry" && name != "" && line != "\n" {
			t.Errorf("a stream has the line %q", line)
		}
	}
	if n := fetched.Load(); n != 0 {
		t.Errorf("%d links of the client or the agent were followed", n)
	}
}
