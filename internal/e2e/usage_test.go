package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Agents of every kind report usage. It is summed by task and by day, and on the spans of runs.
func TestUsageOfEveryExecutor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	col := newCollector(t)
	reports := []string{
		`{"step":{"key":"plan#1","result":"ok"}}`,
		`{"usage":{"model":"m1","inputTokens":12,"outputTokens":34,"cachedInputTokens":5,` +
			`"reasoningTokens":3,"requests":1}}`,
		`{"usage":{"model":"m1","inputTokens":1,"requests":1}}`,
	}
	const completed = `{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}`
	lines := strings.Join(append(reports[:3:3], completed), "\n") + "\n"
	file := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprint(w, lines)
	}))
	defer web.Close()
	c.agent("command", "name: command\ndescription: Counts.\nexecutor: {exec: {command: [/bin/cat, "+file+
		"], output: events}}\n")
	c.agent("web", "name: web\ndescription: Counts.\nexecutor: {http: {url: "+web.URL+"}}\n")
	c.agent("far", remoteAgent("far"))
	a := c.start("a", admin, "OTEL_EXPORTER_OTLP_ENDPOINT="+col.URL, "OTEL_BSP_SCHEDULE_DELAY=50")

	tasks := map[string]string{}
	for _, agent := range []string{"command", "web", "far"} {
		tasks[agent] = submit(t, c.client(a, agent), say("x"))
	}
	c.reported(a, c.claimRun(a, "far"), append(reports[:3:3], completed)...)
	c.awaitRest()
	const row = `concat_ws(' ', model, input_tokens, output_tokens, cached_input_tokens, reasoning_tokens, requests)`
	const want = "m1 13 34 5 3 2"
	for agent, task := range tasks {
		if got := one[string](c, "SELECT "+row+" FROM audit.usage WHERE task_id::text = $1", task); got != want {
			t.Errorf("%s: the task has used %s, want %s", agent, got, want)
		}
		if got := one[string](c, "SELECT "+row+" FROM audit.usage_day WHERE agent = $1", agent); got != want {
			t.Errorf("%s: the day has %s, want %s", agent, got, want)
		}
		if agent == "far" {
			continue // a run of a remote worker has no span
		}
		run := col.awaitTask(t, "run", task)
		for key, want := range map[string]string{
			"gen_ai.operation.name": "invoke_agent", "gen_ai.response.model": "m1",
			"gen_ai.usage.input_tokens": "13", "gen_ai.usage.output_tokens": "34",
			"gen_ai.usage.cache_read.input_tokens": "5", "gen_ai.usage.reasoning.output_tokens": "3",
		} {
			if run.attrs[key] != want {
				t.Errorf("%s: the span has %s = %q, want %q", agent, key, run.attrs[key], want)
			}
		}
	}
}

// awaitTask waits for a span of a task, in whatever trace.
func (c *collector) awaitTask(t *testing.T, name, task string) (found span) {
	t.Helper()
	untilChange(t, "the collector has "+name+" of task "+task, c.received.next, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if s.name == name && s.attrs["a2a.task.id"] == task {
				found = s
				return true
			}
		}
		return false
	})
	return found
}
