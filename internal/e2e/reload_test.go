package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// names returns a list attribute of a log line.
func (l logLine) names(key string) (list []string) {
	all, _ := l[key].([]any)
	for _, v := range all {
		if s, ok := v.(string); ok {
			list = append(list, s)
		}
	}
	return list
}

// Agents are changed, added and removed under running streams and runs.
func TestReloadKeepsStreamsAndRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.start("a")
	ctx := bounded(t)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(c.agents, name)
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if text == "" {
			return
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const card = "/.well-known/agent-card.json"
	etag := func(path string) string {
		return c.do(a, http.MethodGet, path+card, nil).header.Get("ETag")
	}

	write("gone.yaml", scriptAgent("gone", ""))
	a.signal(syscall.SIGHUP)
	first := a.awaitLog("agent files reloaded",
		func(l logLine) bool { return slices.Equal(l.names("added"), []string{"gone"}) })
	if first.names("changed") != nil || first.names("removed") != nil {
		t.Errorf("reload says %v", first)
	}

	// One run each of an agent that stays, one that changes and one that is removed; they end when the gate opens.
	gate := newGate(t)
	agents := []string{"script", "busy", "gone"}
	seen := make(chan string, len(agents))
	type outcome struct {
		agent  string
		events []client.Event
		err    error
	}
	done := make(chan outcome, len(agents))
	op := `{"op":"chunk","id":"a","n":1},` + gate.op() + `,{"op":"chunk","id":"b","n":1}`
	for _, agent := range agents {
		cl := c.client(a, agent)
		go func() {
			logged := false
			events, err := collect(cl.Stream(ctx, client.SendParams{Message: play(op)}, client.StreamOptions{}),
				func(client.Event) bool {
					if !logged {
						logged = true
						seen <- agent
					}
					return false
				})
			done <- outcome{agent, events, err}
		}()
	}
	for range agents {
		<-seen
	}
	gate.await(len(agents) - 1)
	stays, changes, gone := etag("/agents/script"), etag("/agents/busy"), etag("/agents/gone")

	write("busy.yaml", strings.Replace(scriptAgent("busy", "on_busy: reject\n"), "Plays scripts.", "Plays better.", 1))
	write("gone.yaml", "")
	write("fresh.yaml", scriptAgent("fresh", ""))
	write("bad.yaml", "name: bad\n")
	a.signal(syscall.SIGHUP)
	a.awaitLog("agent files not reloaded, the agents stay as they are", nil)
	a.awaitLog("agent file", func(l logLine) bool {
		return strings.HasSuffix(l.str("file"), "bad.yaml") && strings.HasPrefix(l.str("err"), "description is missing")
	})
	if diff := cmp.Diff([]string{stays, changes, gone},
		[]string{etag("/agents/script"), etag("/agents/busy"), etag("/agents/gone")}); diff != "" {
		t.Errorf("invalid files have changed the cards:\n%s", diff)
	}

	write("bad.yaml", "")
	a.signal(syscall.SIGHUP)
	second := a.awaitLog("agent files reloaded",
		func(l logLine) bool { return slices.Equal(l.names("added"), []string{"fresh"}) })
	if !slices.Equal(second.names("changed"), []string{"busy"}) ||
		!slices.Equal(second.names("removed"), []string{"gone"}) {
		t.Errorf("reload says %v", second)
	}
	if etag("/agents/script") != stays || etag("/agents/busy") == changes {
		t.Error("the card of the unchanged agent must stay the same, and that of the changed agent must not")
	}
	if got := c.do(a, http.MethodGet, "/agents/gone"+card, nil); got.status != http.StatusNotFound {
		t.Errorf("the card of a removed agent: %d", got.status)
	}
	fresh, err := c.client(a, "fresh").Send(ctx, client.SendParams{Message: play(`{"op":"complete"}`)})
	if err != nil || fresh.State != a2a.StateCompleted {
		t.Errorf("a task of the added agent is %s, %v", fresh.State, err)
	}
	gate.open()
	for range agents {
		got := <-done
		if got.err != nil {
			t.Errorf("stream of %s: %v", got.agent, got.err)
			continue
		}
		endsWith(t, got.events, a2a.StateCompleted)
		for _, attempt := range c.attempts(got.events[0].TaskID) {
			// the gate's wait may time out
			if !strings.HasSuffix(attempt, " completed") && !strings.HasSuffix(attempt, " retry") {
				t.Errorf("an attempt of %s: %s", got.agent, attempt)
			}
		}
	}
	a.stop()
}

// Remote workers can claim an added agent's runs, also with a claim that already waits. They cannot claim a removed
// agent's runs, but can finish the ones they have.
func TestReloadOfAgentsWithRemoteWorkers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	path := filepath.Join(c.agents, "far.yaml")
	reload := func(a *replica, change func(logLine) bool, text string) {
		t.Helper()
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a.signal(syscall.SIGHUP)
		a.awaitLog("agent files reloaded", change)
	}
	added := func(l logLine) bool { return slices.Equal(l.names("added"), []string{"far"}) }
	removed := func(l logLine) bool { return slices.Equal(l.names("removed"), []string{"far"}) }
	again := func(l logLine) bool { return slices.Equal(l.names("added"), []string{"beside", "far"}) }
	far := remoteAgent("far")
	a := c.start("a")
	if answer := c.claim(a, "far", 0); answer.status != http.StatusNotFound {
		t.Errorf("a claim for an unknown agent: %d %s", answer.status, answer.body)
	}
	reload(a, added, far)
	waiting := make(chan httpAnswer, 1)
	go func() { waiting <- c.claim(a, "far", 60) }()
	first := submit(t, c.client(a, "far"), say("one"))
	run := c.claimed(<-waiting)
	if run.TaskID != first {
		t.Errorf("claimed %s, want %s", run.TaskID, first)
	}
	second := submit(t, c.client(a, "far"), say("two"))
	reload(a, removed, "")
	if answer := c.claim(a, "far", 0); answer.status != http.StatusNotFound {
		t.Errorf("a claim for a removed agent: %d %s", answer.status, answer.body)
	}
	c.finishRun(a, run, "done")
	c.awaitState(first, "COMPLETED")
	c.agent("beside", scriptAgent("beside", ""))
	reload(a, again, far)
	run = c.claimRun(a, "far")
	if run.TaskID != second {
		t.Errorf("claimed %s, want %s", run.TaskID, second)
	}
	c.finishRun(a, run, "done")
	c.awaitState(second, "COMPLETED")
}
