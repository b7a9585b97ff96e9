package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/agents"
)

func agentDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bad.yaml": "name: bad\ndescription: d\nexecutor: {lambda: {}}\nlimits:\n  deadline: 30\t# \x1b[31mred\n",
		"far.yaml": "name: far\ndescription: d\nversion: '2'\n" +
			"executor:\n  http: {url: \"http://agent.internal/run\", bearer_env: A2AD_TEST_NO_SUCH_TOKEN}\n",
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
	golden(t, "agent-check-colours",
		tidy.Replace(screenful(t, t.Context(), func(app *App) { app.Color = true }, nil, "agent", "check", dir)))
	golden(t, "agent-check-json",
		tidy.Replace(screenful(t, t.Context(), nil, nil, "agent", "check", "-o", "json", dir)))
	golden(t, "agent-check-two",
		tidy.Replace(screenful(t, t.Context(), nil, nil,
			"agent", "check", dir+"/ok.json", dir+"/ok.json", dir+"/none.yaml")))
	golden(t, "agent-check-ok", tidy.Replace(screenful(t, t.Context(), nil, nil, "agent", "check", dir+"/ok.json")))
}

func TestAgentSchemaIsThatOfTheForm(t *testing.T) {
	t.Parallel()
	var i invocation
	if i.run(t, "agent", "schema"); i.code != exitOK || i.stdout != string(agents.FormSchema) ||
		!bytes.HasPrefix(agents.FormSchema, []byte("{\n")) {
		t.Errorf("exit code %d, %d bytes", i.code, len(i.stdout))
	}
}

func TestAgentCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"words.yaml": "name: words\ndescription: Counts words.\n" +
			"executor:\n  exec: {command: [wc, -w], input: text, output: text}\n",
		"bad.yaml": "name: bad/name\nexecutor: {}\nlimits: {deadline: soon}\n",
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
	if i.code != exitFailure || !strings.Contains(i.stdout, "bad.yaml:1: fault: ") ||
		strings.Count(i.stdout, ": fault: ") < 2 {
		t.Errorf("exit code %d\n%s", i.code, i.stdout)
	}
	i.run(t, "agent", "check", dir, "-o", "json")
	var line checkedLine
	if err := json.Unmarshal([]byte(strings.SplitAfter(i.stdout, "\n")[1]), &line); err != nil ||
		line.Level != "fault" || line.Line == 0 {
		t.Errorf("%v: %s", err, i.stdout)
	}
	i.run(t, "agent", "check", filepath.Join(dir, "none"))
	if i.code != exitFailure || !strings.Contains(i.stdout, "no such file") {
		t.Errorf("exit code %d\n%s", i.code, i.stdout)
	}
}
