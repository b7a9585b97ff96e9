package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// The program that does the work is killed in the middle.
func TestKilledAgentContinuesFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	f := c.outside()
	a := c.start("a")
	for _, agent := range []string{"web", "command"} {
		killed := false
		stream := c.client(a, agent).Stream(bounded(t), client.SendParams{Message: say("30 60")},
			client.StreamOptions{})
		events := follow(t, stream, func(ev client.Event) bool {
			if !killed && atChunk("a", 10)(ev) {
				killed = true
				if agent == "web" {
					f.kill()
					f.start()
					return false
				}
				if err := syscall.Kill(f.actions("run", ev.TaskID)[0].PID, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			}
			return false
		})
		if !killed {
			t.Fatalf("%s was done before it could be killed", agent)
		}
		endsWith(t, events, a2a.StateCompleted)
		if diff := cmp.Diff(chunkTexts("a", 30), chunks(events, "a")); diff != "" {
			t.Errorf("%s: chunks (-want +got):\n%s", agent, diff)
		}
		task := events[0].TaskID
		attempts := c.attempts(task)
		reached := func(s string) bool { return s != "a unreachable" }
		if n := len(attempts); n < 2 || attempts[0] != "a retry" || attempts[n-1] != "a completed" ||
			slices.ContainsFunc(attempts[1:n-1], reached) {
			t.Errorf("%s: attempts %v, want the first to be retried and the last to complete", agent, attempts)
		}
		// Attempts while the web server was down reached no agent, and are not counted.
		if runs := c.checkRuns(f, task); len(runs) != 2 || runs[1].From < 10 {
			t.Errorf("%s: executions %+v, want two, the second after chunk 10", agent, runs)
		}
	}
}

// The server is killed in the middle. Another one starts the agents again, each after the last event in the log.
func TestCheckpointSurvivesAKilledReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	f := c.outside()
	a := c.start("a")
	b := c.start("b", "A2AD_WORKERS=0")
	tasks := map[string]string{}
	for _, agent := range []string{"web", "command"} {
		tasks[agent] = submit(t, c.client(b, agent), say("40 50"))
	}
	until(t, "both agents have reported some chunks", func() bool {
		return one[int](c, `SELECT count(*) FROM audit.task WHERE last_seq > 10`) == 2
	})
	a.kill()
	heir := c.start("heir")
	for agent, task := range tasks {
		events := follow(t, c.client(heir, agent).Resubscribe(bounded(t), task, client.StreamOptions{}), nil)
		endsWith(t, events, a2a.StateCompleted)
		if diff := cmp.Diff(chunkTexts("a", 40), chunks(events, "a")); diff != "" {
			t.Errorf("%s: chunks (-want +got):\n%s", agent, diff)
		}
		if diff := cmp.Diff([]string{"a expired", "heir completed"}, c.attempts(task)); diff != "" {
			t.Errorf("%s: attempts (-want +got):\n%s", agent, diff)
		}
		if runs := c.checkRuns(f, task); len(runs) != 2 || runs[1].From == 0 {
			t.Errorf("%s: executions %+v, want two, the second after the first", agent, runs)
		}
	}
}

// A web server learns of a cancel twice: its connection is closed, and its cancel URL is called.
func TestCancelReachesTheAgent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	f := c.outside()
	a := c.start("a")
	cl := c.client(a, "web")
	task := submit(t, cl, say("1000000 5"))
	until(t, "the agent works",
		func() bool { return one[int](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task) > 5 })
	got, err := cl.Cancel(bounded(t), task)
	if err != nil || got.State != a2a.StateCanceled {
		t.Fatalf("cancel: %s, %v", got.State, err)
	}
	until(t, "the agent has noticed", func() bool {
		return len(f.actions("gone", task)) == 1 &&
			len(f.actions("cancel", task)) == 1
	})
	if d := f.actions("cancel", task)[0]; d.Reason != "canceled" || d.Epoch != f.actions("run", task)[0].Epoch {
		t.Errorf("the agent gets %+v", d)
	}
	c.checkRuns(f, task)
}

// The task waits for its client, so no run exists that could pass the cancel on, and the only server that could do so
// is down.
func TestCancelReachesAWaitingUpstream(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	up := c.start("up")
	file := fmt.Sprintf("name: front\ndescription: Plays scripts elsewhere.\nexecutor: {a2a: {card: %q}}\n",
		up.base+"/agents/script/.well-known/agent-card.json")
	c.agent("front", file)
	a := c.start("a")
	b := c.start("b", "A2AD_WORKERS=0")
	task := submit(t, c.client(b, "front"), play(`{"op":"input","text":"which?"}`))
	c.awaitState(task, "INPUT_REQUIRED")
	upstream := one[string](c, `SELECT id::text FROM audit.task WHERE agent = 'script'`)
	a.kill()
	if got, err := c.client(b, "front").Cancel(bounded(t), task); err != nil || got.State != a2a.StateCanceled {
		t.Fatalf("cancel: %s, %v", got.State, err)
	}
	if state := c.state(upstream); state != "INPUT_REQUIRED" {
		t.Fatalf("the upstream task is %s before the cancel could arrive", state)
	}
	c.restart(a)
	c.awaitState(upstream, "CANCELED")
	up.stop() // it cannot list the tasks of the front, whose file was added later
}

// Agents report as fast as they can, without end. Their tasks fail with the reason, and other tasks continue
// meanwhile.
func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	floodIsBounded(t, 3000, "the task would have more than 3000 events", "A2AD_MAX_TASK=4MiB", "A2AD_MAX_CHUNKS=3000")
}

// The same up to the default limit of what an agent may report, 64 MiB in about 60,000 events. It creates the largest
// possible tasks.
func TestFloodOfFullSizeIsBounded(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("too slow under the race detector: TestFloodIsBounded covers the same path")
	}
	floodIsBounded(t, 100_000, "longer than 67108864 bytes")
}

func floodIsBounded(t *testing.T, events int, reason string, env ...string) {
	t.Helper()
	c := newCluster(t)
	c.vast = len(env) == 0
	c.outside()
	a := c.start("a", env...)
	var flooding sync.WaitGroup
	for _, agent := range []string{"web", "command"} {
		cl := c.client(a, agent)
		task := submit(t, cl, say("flood"))
		flooding.Go(func() {
			untilFor(t, 2*patience, "the flood has ended", func() bool { return c.state(task) == "FAILED" })
			if last := one[string](c,
				`SELECT m.body::text FROM a2a.messages m WHERE m.task_id::text = $1 ORDER BY m.seq DESC LIMIT 1`,
				task); !strings.Contains(last, reason) {
				t.Errorf("%s: the task fails with %.500s", agent, last)
			}
			if n := one[int](c, `SELECT last_seq FROM audit.task WHERE id::text = $1`, task); n > events+1 {
				t.Errorf("%s: the task has %d events", agent, n)
			}
			if diff := cmp.Diff([]string{"a failed"}, c.attempts(task)); diff != "" {
				t.Errorf("%s: attempts (-want +got):\n%s", agent, diff)
			}
		})
	}
	others := 0
	for ended := make(chan struct{}); ; others++ {
		if others == 0 {
			go func() {
				flooding.Wait()
				close(ended)
			}()
		}
		start := time.Now()
		got, err := c.client(a, "echo").Send(bounded(t), client.SendParams{Message: say("still there?")})
		if err != nil || got.State != a2a.StateCompleted {
			t.Fatalf("beside the flood: %s, %v", got.State, err)
		}
		logTook(t, "a send beside the flood", time.Since(start))
		select {
		case <-ended:
			t.Logf("%d sends beside the flood", others+1)
			return
		default:
		}
	}
}

// The agent gets exactly those of its extensions that a request names, in either header. Clients do not see that they
// are stored.
func TestAgentGetsItsRequestedExtensions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	const own, other = "https://example.com/own/v1", "https://example.com/other/v1"
	file := "name: tells\ndescription: Says what it is told.\nextensions: [{uri: " + own + "}, {uri: " + other +
		"}]\n" +
		`executor: {exec: {command: [sed, 's/.*],"extensions":\(.*\)}$/<\1>/'], output: text}}` + "\n"
	c.agent("tells", file)
	a := c.start("a")
	for _, tc := range []struct {
		header []string
		want   string
	}{
		{[]string{"A2A-Extensions", own + ", https://a2ad.dev/extensions/resume/v1, https://example.com/unknown"},
			`<[\"` + own + `\"]>`},
		{[]string{"X-A2A-Extensions", own, "A2A-Extensions", other}, `<[\"` + own + `\",\"` + other + `\"]>`},
		{nil, `\"messages\":[`},
	} {
		got := c.post(a, "/agents/tells", message(""), tc.header...)
		if !strings.Contains(string(got.body), tc.want) || strings.Contains(string(got.body), `"activated"`) ||
			got.code != 0 {
			t.Errorf("%q: %s, want %s", tc.header, got.body, tc.want)
		}
	}
}

// The metadata of a request reaches the run byte for byte, in either protocol version, and stays in the store.
func TestAgentGetsRequestMetadata(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	file := "name: tells\ndescription: Says what it is told.\n" +
		`executor: {exec: {command: [sed, 's/.*"requestMetadata":\(.*\)}$/<\1>/'], output: text}}` + "\n"
	c.agent("tells", file)
	a := c.start("a")
	const params = `{"message":{"kind":"message","messageId":"m","role":%s,"parts":[{%s"text":"x"}]},` +
		`"metadata":{"n": 9007199254740993}}`
	for _, tc := range []struct{ body, version string }{
		{`{"jsonrpc":"2.0","id":1,"method":"message/send","params":` + fmt.Sprintf(params, `"user"`, `"kind":"text",`) +
			`}`, "0.3"},
		{`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":` + fmt.Sprintf(params, `"ROLE_USER"`, "") + `}`,
			"1.0"},
	} {
		got := c.post(a, "/agents/tells", tc.body, "A2A-Version", tc.version)
		if want := `<[{\"n\": 9007199254740993}]>`; !strings.Contains(string(got.body), want) ||
			strings.Contains(string(got.body), `"requestMetadata"`) {
			t.Errorf("%s: %s, want %s", tc.version, got.body, want)
		}
	}
}
