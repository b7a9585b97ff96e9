//go:build unix

package exec_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/exec"
	"github.com/a2ad/a2ad/internal/leaktest"
	"github.com/a2ad/a2ad/internal/rawjson"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func message(texts ...string) a2a.Message {
	m := a2a.Message{ID: "m", Role: a2a.RoleUser}
	for _, s := range texts {
		m.Parts = append(m.Parts, a2a.Part{Kind: a2a.PartText, Text: s})
	}
	return m
}

func runOf(ms ...a2a.Message) executor.Run {
	return executor.Run{Task: a2a.Task{ID: a2a.ID{1}, ContextID: "c", History: ms,
		Status: a2a.Status{State: a2a.StateWorking}}, Messages: ms, Agent: "agent", Epoch: 3, Attempt: 2}
}

func newExecutor(t *testing.T, c exec.Config) *exec.Executor {
	t.Helper()
	if c.Environ == nil {
		c.Environ = os.Environ()
	}
	if c.Lull == 0 {
		c.Lull = 20 * time.Millisecond
	}
	e, err := exec.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// collect runs the command to its end.
func collect(t *testing.T, c exec.Config, run executor.Run) ([]a2a.Event, error) {
	t.Helper()
	var events []a2a.Event
	for e, err := range newExecutor(t, c).Execute(t.Context(), run) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

func stdout(id, text string, appended, last bool) a2a.Event {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}},
		Append: appended, LastChunk: last}
}

func status(s a2a.State) a2a.Event { return &a2a.StatusUpdate{Status: a2a.Status{State: s}} }

func TestFilter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 50_000)
	for _, tc := range []struct {
		name    string
		command []string
		run     executor.Run
		want    []a2a.Event
	}{
		{"wc", []string{"wc", "-w"}, runOf(message("one two three")),
			[]a2a.Event{stdout("stdout-1", "3\n", false, true), status(a2a.StateCompleted)}},
		{"tr", []string{"tr", "a-z", "A-Z"}, runOf(message("a", "b"), message("c")),
			[]a2a.Event{stdout("stdout-1", "A\nB\nC", false, true), status(a2a.StateCompleted)}},
		{"nothing", []string{"true"}, runOf(message("x")),
			[]a2a.Event{stdout("stdout-1", "", false, true), status(a2a.StateCompleted)}},
		{"arguments are not parsed", []string{"printf", "%s", "a  b;$HOME"}, runOf(message("x")),
			[]a2a.Event{stdout("stdout-1", "a  b;$HOME", false, true), status(a2a.StateCompleted)}},
		{"second turn", []string{"cat"},
			executor.Run{Task: a2a.Task{History: []a2a.Message{message("a"), message("b")}},
				Messages: []a2a.Message{message("b")}},
			[]a2a.Event{stdout("stdout-2", "b", false, true), status(a2a.StateCompleted)}},
		{"long", []string{"cat"}, runOf(message(long)),
			[]a2a.Event{stdout("stdout-1", strings.Repeat("ä", 32767), false, false),
				stdout("stdout-1", strings.Repeat("ä", 50_000-32767), true, true), status(a2a.StateCompleted)}},
		{"bytes", []string{"printf", `\377`}, runOf(message("x")),
			[]a2a.Event{&a2a.ArtifactUpdate{LastChunk: true, Artifact: a2a.Artifact{ID: "stdout-1",
				Parts: []a2a.Part{{Kind: a2a.PartFile, Text: "/w==",
					MediaType: "application/octet-stream"}}}}, status(a2a.StateCompleted)}},
	} {
		got, err := collect(t, exec.Config{Command: tc.command, Input: exec.InputText, Output: exec.OutputText,
			MaxLine: 65535}, tc.run)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%.2000s", tc.name, diff)
		}
	}
}

func TestRunIsOneLineOfJSON(t *testing.T) {
	t.Parallel()
	run := runOf(message("hello\nworld"))
	run.Checkpoint = a2a.Raw("{\"step\":\n1}")
	got, err := collect(t, exec.Config{Command: []string{"cat"}, Output: exec.OutputText}, run)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(got[0].(*a2a.ArtifactUpdate).Artifact.Parts[0].Text)
	if err := rawjson.Check(line, 64); err != nil || bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%v in %q", err, line)
	}
	doc := rawjson.Trim(line)
	for key, want := range map[string]string{
		"taskId": `"01000000-0000-0000-0000-000000000000"`, "contextId": `"c"`, "agent": `"agent"`, "epoch": "3",
		"attempt": "2", "checkpoint": `{"step": 1}`,
	} {
		if got := string(rawjson.Get(doc, key)); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	const events = `read run
echo '{"statusUpdate":{"status":{"state":"TASK_STATE_WORKING"}}}'
echo
echo '  {"checkpoint":{"n":1}}'
printf '{"artifactUpdate":{"artifact":{"parts":[{"text":"hi"}]},"lastChunk":true}}\r\n'
`
	working := []a2a.Event{status(a2a.StateWorking), &a2a.Checkpoint{Body: a2a.Raw(`{"n":1}`)},
		stdout("1-artifact-1", "hi", false, true)}
	for _, tc := range []struct {
		name, end string
		want      a2a.Event
	}{
		{"exit 0 completes", "", status(a2a.StateCompleted)},
		{"a final status", `printf '{"statusUpdate":{"status":{"state":"failed"}}}'`, status(a2a.StateFailed)},
		{"what follows a final status does not count",
			`echo '{"statusUpdate":{"status":{"state":"rejected"}}}'; echo junk; exit 3`, status(a2a.StateRejected)},
		{"a question", `echo '{"statusUpdate":{"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}'`,
			status(a2a.StateInputRequired)},
	} {
		got, err := collect(t, exec.Config{Command: sh(events + tc.end)}, runOf(message("x")))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if diff := cmp.Diff(append(working[:3:3], tc.want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestExits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		command   []string
		permanent bool
		want      string
	}{
		{sh("echo one >&2; echo two >&2; exit 1"), true, "/bin/sh: exit status 1: one\ntwo"},
		{sh("exit 75"), false, "/bin/sh: exit status 75"},
		{sh("kill -9 $$"), false, "/bin/sh: signal: killed"},
		{[]string{"/nonexistent/command"}, false,
			"start /nonexistent/command: fork/exec /nonexistent/command: no such file or directory"},
		{[]string{"a2ad-no-such-command"}, false,
			`start a2ad-no-such-command: exec: "a2ad-no-such-command": executable file not found in $PATH`},
		{[]string{"/"}, false, `start /: exec: "/": is a directory`},
	} {
		for _, output := range []exec.Output{exec.OutputEvents, exec.OutputText} {
			got, err := collect(t, exec.Config{Command: tc.command, Output: output}, runOf(message("x")))
			if err == nil || err.Error() != tc.want || executor.IsPermanent(err) != tc.permanent || len(got) > 0 {
				t.Errorf("%q: %d events, error %v, permanent %v; want %s, %v", tc.command, len(got), err,
					executor.IsPermanent(err), tc.want, tc.permanent)
			}
			if started := strings.HasPrefix(tc.want, "/bin/sh"); executor.IsUnreachable(err) == started {
				t.Errorf("%q: unreachable is %v, want %v", tc.command, !started, started)
			}
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		command []string
		output  exec.Output
		want    string
	}{
		{[]string{"yes"}, exec.OutputEvents, "line 1 of stdout is not an event: unexpected character at byte 0"},
		{sh(`echo '{"checkpoint":1}'; echo; echo '{"artefact":{}}'`), exec.OutputEvents,
			"line 3 of stdout is not an event: artefact is unknown; an event is a statusUpdate, artifactUpdate, " +
				"message, checkpoint, step, wait, call or usage"},
		{[]string{"yes", `{"checkpoint":1}`}, exec.OutputEvents, "stdout is longer than 1000000 bytes"},
		{[]string{"yes", ""}, exec.OutputEvents, "stdout is longer than 1000000 bytes"},
		{[]string{"cat", "/dev/zero"}, exec.OutputEvents, "line 1 of stdout is longer than 100000 bytes"},
		{[]string{"yes"}, exec.OutputText, "stdout is longer than 1000000 bytes"},
		{sh("tr '\\0' '\\377' </dev/zero"), exec.OutputText,
			"stdout is not UTF-8 text, and too long for a file of 100000 bytes in base64"},
		{sh("head -c 90000 /dev/zero | tr '\\0' '\\377'"), exec.OutputText,
			"stdout is not UTF-8 text, and too long for a file of 100000 bytes in base64"},
	} {
		_, err := collect(t, exec.Config{Command: tc.command, Output: tc.output, MaxLine: 100_000,
			MaxOutput: 1_000_000}, runOf(message("x")))
		if err == nil || err.Error() != tc.want || !executor.IsPermanent(err) ||
			a2a.CodeOf(err) != a2a.CodeInvalidAgentResponse {
			t.Errorf("%q: error %v, want %s", tc.command, err, tc.want)
		}
	}
}

func TestUnreadInputDoesNotBlock(t *testing.T) {
	t.Parallel()
	if _, err := collect(t, exec.Config{Command: []string{"true"}, Input: exec.InputText},
		runOf(message(strings.Repeat("x", 1<<20)))); err != nil {
		t.Error(err)
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Config{Command: []string{"/usr/bin/env"}, Output: exec.OutputText, Dir: dir,
		Env:     map[string]string{"OWN": "1", "LANG": "C"},
		Environ: []string{"PATH=/bin", "HOME=/root", "LANG=de", "A2AD_DATABASE_URL=postgres://secret", "PATHX=1"}}
	events, err := collect(t, c, runOf(message("x")))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(events[0].(*a2a.ArtifactUpdate).Artifact.Parts[0].Text)
	for _, want := range []string{"PATH=/bin", "HOME=/root", "LANG=C", "OWN=1"} {
		if !strings.Contains(strings.Join(lines, " ")+" ", want+" ") {
			t.Errorf("%s is not in %q", want, lines)
		}
	}
	if all := strings.Join(lines, " "); strings.Contains(all, "secret") || strings.Contains(all, "PATHX") ||
		strings.Contains(all, "LANG=de") {
		t.Errorf("the environment is %q", lines)
	}
	if strings.Contains(strings.Join(lines, " "), "TRACEPARENT") {
		t.Errorf("a run without a trace has the environment %q", lines)
	}
	c.Command = []string{"/bin/pwd"}
	if events, err = collect(t, c, runOf(message("x"))); err != nil ||
		events[0].(*a2a.ArtifactUpdate).Artifact.Parts[0].Text != dir+"\n" {
		t.Errorf("events %v, error %v, want %s", events, err, dir)
	}
}

func TestStderrGoesToTheLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := exec.Config{Command: sh(`echo hello >&2; head -c 1000 /dev/zero | tr '\0' x >&2; echo >&2; echo >&2; ` +
		`yes flood | head -n 50000 >&2; echo end >&2; exit 1`),
		Log: slog.New(slog.NewTextHandler(&log, nil))}
	_, err := collect(t, c, runOf(message("x")))
	if err == nil || !strings.HasSuffix(err.Error(), "flood\nend") || len(err.Error()) > 1100 {
		t.Errorf("error %v", err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if n := len(lines); n < 100 || n > 400 {
		t.Errorf("%d lines logged of 50,003", n)
	}
	for i, want := range []string{"line=hello", "line=" + strings.Repeat("x", 256) + "…"} {
		if !strings.Contains(lines[i], want) ||
			!strings.Contains(lines[i], "task_id=01000000-0000-0000-0000-000000000000 agent=agent epoch=3") {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, "not logged") {
		t.Errorf("the last line is %s", last)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []exec.Config{{}, {Command: []string{""}}, {Command: []string{"x"}, Input: "stdin"},
		{Command: []string{"x"}, Output: "json"}} {
		if _, err := exec.New(c); err == nil {
			t.Errorf("New(%+v) works", c)
		}
	}
}

func TestRunForwardsItsTrace(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	run := runOf(message("x"))
	run.Traceparent = trace
	for name, c := range map[string]exec.Config{
		"environment": {Command: sh(`echo $TRACEPARENT`), Output: exec.OutputText},
		"run object":  {Command: sh(`sed 's/.*"traceparent":"\([^"]*\)".*/\1/'`), Output: exec.OutputText},
	} {
		events, err := collect(t, c, run)
		if err != nil {
			t.Fatal(err)
		}
		if got := events[0].(*a2a.ArtifactUpdate).Artifact.Parts[0].Text; got != trace+"\n" {
			t.Errorf("%s: %q, want %s", name, got, trace)
		}
	}
	own := exec.Config{Command: sh(`echo $TRACEPARENT`), Output: exec.OutputText,
		Env: map[string]string{"TRACEPARENT": "own"}}
	events, err := collect(t, own, run)
	if err != nil || events[0].(*a2a.ArtifactUpdate).Artifact.Parts[0].Text != "own\n" {
		t.Errorf("with one of its own: %v, %v", events, err)
	}
}
