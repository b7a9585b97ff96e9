package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/client"
)

// streamerScript is an agent that writes an artifact in a step. Its first run stops in the middle of a sentence.
const streamerScript = `
read -r run
chunk() {
  printf '{"artifactUpdate":{"artifact":{"artifactId":"report","parts":[{"text":"%s"}]},"append":true}}\n' "$1"
}
case $run in *'"key":"write"'*) ;; *) chunk 'Intro. ';; esac
echo '{"step":{"key":"write","artifact":"report"}}'
case $run in *'"epoch":1,'*) chunk 'Half a sen'; read -r line < "$FIFO"; exit 1;; esac
chunk 'A whole '
chunk 'sentence.'
echo '{"step":{"key":"write","result":"written"}}'
echo '{"statusUpdate":{"status":{"state":"TASK_STATE_COMPLETED"}}}'
`

// A replica is killed in the middle of a step that streams, while a client follows the task on another replica. The
// step begins again on a third one, and the client never shows half a sentence before the whole one.
func TestKilledStepThatStreamsIsNotSeenTwice(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dir := t.TempDir()
	script, fifo := filepath.Join(dir, "agent.sh"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(script, []byte(streamerScript), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close() }) // ends the first run, if the kill did not
	c.agent("streamer", fmt.Sprintf("name: streamer\ndescription: Writes a report.\n"+
		"executor: {exec: {command: [/bin/sh, %s], env: {FIFO: %s}}}\n", script, fifo))
	a := c.start("a")
	b := c.start("b", "A2AD_WORKERS=0")
	reader := c.client(b, "streamer")
	var shown []a2a.Artifact // what a client shows
	show := func(ev client.Event) {
		switch ev.Kind {
		case client.KindTask:
			shown = nil
			for _, x := range ev.Artifacts {
				shown = append(shown, a2a.Artifact{ID: x.ID, Parts: x.Parts})
			}
		case client.KindArtifact:
			shown = a2a.Fold(shown, &a2a.ArtifactUpdate{
				Artifact: a2a.Artifact{ID: ev.Artifact.ID, Parts: ev.Artifact.Parts}, Append: ev.Append,
			})
		}
	}
	text := func() string {
		var b strings.Builder
		for _, x := range shown {
			for _, p := range x.Parts {
				b.WriteString(p.Text)
			}
		}
		return b.String()
	}
	half := false
	var states []string
	events := reader.Stream(bounded(t), client.SendParams{Message: say("x")}, client.StreamOptions{})
	follow(t, events, func(ev client.Event) bool {
		show(ev)
		states = append(states, text())
		if !half && text() == "Intro. Half a sen" {
			half = true
			a.kill()
			c.start("c")
		}
		return false
	})
	if got := text(); !half || got != "Intro. A whole sentence." {
		t.Errorf("the client shows %q in the end; it has shown %q", got, states)
	}
	for _, s := range states {
		if !strings.HasPrefix("Intro. Half a sen", s) && !strings.HasPrefix("Intro. A whole sentence.", s) {
			t.Errorf("the client has shown %q", s)
		}
	}
}
