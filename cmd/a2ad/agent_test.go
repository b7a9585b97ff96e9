package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/agents"
	"github.com/a2ad/a2ad/internal/executor/echo"
)

func agentDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bad.yaml": "name: bad\ndescription: d\nexecutor: {lambda: {}}\nlimits:\n  deadline: 30\t# \x1b[31mred\n",
		"far.yaml": "name: far\ndescription: d\nversion: '2'\nexecutor:\n  http: {url: \"http://agent.internal/run\", bearer_env: A2AD_TEST_NO_SUCH_TOKEN}\n",
		"gone.yml": "name: gone\ndescription: d\nexecutor: {exec: {command: [./no-such-program]}}\n",
		"ok.json":  `{"name": "ok", "description": "d", "executor": {"echo": {}}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAgentCheckOnAScreen(t *testing.T) {
	t.Parallel()
	dir := agentDir(t)
	tidy := strings.NewReplacer(dir, "agents", "\x1b", "ESC")
	golden(t, "agent-check", tidy.Replace(screenful(t, t.Context(), nil, nil, "agent", "check", dir)))
	golden(t, "agent-check-colours", tidy.Replace(screenful(t, t.Context(), func(app *App) { app.Color = true }, nil, "agent", "check", dir)))
	golden(t, "agent-check-json", tidy.Replace(screenful(t, t.Context(), nil, nil, "agent", "check", "-o", "json", dir)))
	golden(t, "agent-check-two", tidy.Replace(screenful(t, t.Context(), nil, nil, "agent", "check", dir+"/ok.json", dir+"/ok.json", dir+"/none.yaml")))
	golden(t, "agent-check-ok", tidy.Replace(screenful(t, t.Context(), nil, nil, "agent", "check", dir+"/ok.json")))
}

func TestAgentSchemaIsThatOfTheForm(t *testing.T) {
	t.Parallel()
	var i invocation
	if i.run(t, "agent", "schema"); i.code != exitOK || i.stdout != string(agents.FormSchema) || !bytes.HasPrefix(agents.FormSchema, []byte("{\n")) {
		t.Errorf("exit code %d, %d bytes", i.code, len(i.stdout))
	}
}

func TestHireKeepsTheExecutorsOfAgentsThatStay(t *testing.T) {
	t.Parallel()
	app := &App{}
	command := func(args ...string) agents.File {
		return agents.File{Agent: a2a.Agent{Name: "a"}, Executor: agents.Exec{Command: args, Input: "run", Output: "events"}}
	}
	r := &replica{}
	hire := func(files ...agents.File) crew {
		t.Helper()
		next, err := r.hire(app, files)
		if err != nil {
			t.Fatal(err)
		}
		added, changed, removed := r.crew.compare(next)
		t.Logf("added %v, changed %v, removed %v", added, changed, removed)
		r.crew = next
		return next
	}
	first := hire(command("x"))
	described := command("x")
	described.Agent.Card.Description = "new"
	second := hire(described)
	if first[0].executor != second[0].executor {
		t.Error("another description of the agent has made another executor")
	}
	if third := hire(command("y")); third[0].executor == second[0].executor {
		t.Error("another command has the same executor")
	}
	if _, err := r.hire(app, []agents.File{command()}); err == nil || r.crew[0].executor == nil {
		t.Error("an executor that cannot be made is no error, or has changed the crew")
	}
	if fourth := hire(agents.File{Agent: a2a.Agent{Name: "a"}, Executor: agents.Echo{}}); fourth[0].executor != (echo.Executor{}) {
		t.Errorf("the executor is %T", fourth[0].executor)
	}
}

func TestDigestTellsOfOtherKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ca.pem")
	spec := agents.HTTP{Remote: agents.Remote{TLS: agents.TLS{CA: path}}}
	var sums [][32]byte
	for _, text := range []string{"", "a", "b"} {
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		sums = append(sums, digest(spec))
	}
	if sums[0] == sums[1] || sums[1] == sums[2] || digest(spec) != sums[2] {
		t.Errorf("digests %x", sums)
	}
}

func TestCompareNamesWhatChanged(t *testing.T) {
	t.Parallel()
	load := func(description string) agents.File {
		path := filepath.Join(t.TempDir(), "a.yaml")
		text := "name: a\ndescription: " + description + "\nskills: [{id: s, input_schema: {type: object, pattern: x, format: uri}}]\nexecutor: {echo: {}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := agents.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return files[0]
	}
	named := func(name string) member { return member{File: agents.File{Agent: a2a.Agent{Name: name}}} }
	old := crew{{File: load("d")}, named("b")}
	for _, tc := range []struct {
		next                    crew
		added, changed, removed []string
	}{
		{crew{{File: load("d")}, named("b")}, nil, nil, nil},
		{crew{{File: load("e")}, named("c")}, []string{"c"}, []string{"a"}, []string{"b"}},
	} {
		added, changed, removed := old.compare(tc.next)
		if got, want := [][]string{added, changed, removed}, [][]string{tc.added, tc.changed, tc.removed}; !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestHangupOfTheTerminalStopsTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	hangups, stopped := make(chan os.Signal, 1), false
	r := &replica{reload: &reload{hangups: hangups, orphaned: func() bool { return true }, stop: func() { stopped = true }}}
	hangups <- syscall.SIGHUP
	if err := r.followFiles(ctx); err != nil || !stopped || ctx.Err() != nil {
		t.Errorf("stopped %t, %v, %v", stopped, err, ctx.Err())
	}
}

func TestAgentCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"words.yaml": "name: words\ndescription: Counts words.\nexecutor:\n  exec: {command: [wc, -w], input: text, output: text}\n",
		"bad.yaml":   "name: bad/name\nexecutor: {}\nlimits: {deadline: soon}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var i invocation
	i.run(t, "agent", "check", filepath.Join(dir, "words.yaml"))
	if want := filepath.Join(dir, "words.yaml") + ": ok, agent words\n"; i.code != exitOK || i.stdout != want {
		t.Errorf("exit code %d, %q, want %q", i.code, i.stdout, want)
	}
	i.run(t, "agent", "check", dir)
	if i.code != exitFailure || !strings.Contains(i.stdout, "bad.yaml:1: fault: ") || strings.Count(i.stdout, ": fault: ") < 2 {
		t.Errorf("exit code %d\n%s", i.code, i.stdout)
	}
	i.run(t, "agent", "check", dir, "-o", "json")
	var line checkedLine
	if err := json.Unmarshal([]byte(strings.SplitAfter(i.stdout, "\n")[1]), &line); err != nil || line.Level != "fault" || line.Line == 0 {
		t.Errorf("%v: %s", err, i.stdout)
	}
	i.run(t, "agent", "check", filepath.Join(dir, "none"))
	if i.code != exitFailure || !strings.Contains(i.stdout, "no such file") {
		t.Errorf("exit code %d\n%s", i.code, i.stdout)
	}
}
