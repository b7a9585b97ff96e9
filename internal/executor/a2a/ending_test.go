package a2a_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
)

// firstID is the id of the client's first message at the upstream.
const firstID = "01020300-0000-0000-0000-000000000000-1"

// played is an upstream that plays what a real server was seen to send.
type played struct {
	*fake
	stream []string // the items of the answer to the message
	resume []string // the items of a resumed stream; none: it is refused
	tasks  []string // the answers to GetTask, the last of them for ever, or "503", "silence", or "": no such method
	gets   int
	more   chan struct{} // if not nil, streams stay open until it is closed
}

func play(t *testing.T, stream []string, tasks ...string) *played {
	t.Helper()
	p := &played{fake: newFake(t, "1.0"), stream: stream, tasks: tasks}
	p.raw = func(method string, w http.ResponseWriter, r *http.Request) bool {
		switch method {
		case "SendStreamingMessage":
			p.items(w, r, p.stream)
		case "SubscribeToTask":
			if p.resume == nil {
				return false
			}
			p.items(w, r, p.resume)
		case "GetTask":
			p.task(w, r)
		default:
			return false
		}
		return true
	}
	return p
}

func (p *played) items(w http.ResponseWriter, r *http.Request, items []string) {
	write := p.fake.stream(w)
	for _, item := range items {
		if item == "cut" {
			panic(http.ErrAbortHandler)
		}
		write([]byte(`data: {"jsonrpc":"2.0","id":1,"result":` + item + "}\n\n"))
	}
	if p.more != nil {
		select {
		case <-p.more:
		case <-r.Context().Done():
		}
	}
}

func (p *played) task(w http.ResponseWriter, r *http.Request) {
	var body string
	p.locked(func() {
		if len(p.tasks) > 0 {
			body = p.tasks[min(p.gets, len(p.tasks)-1)]
		}
		p.gets++
	})
	switch body {
	case "":
		body = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`
	case "silence":
		<-r.Context().Done()
	case "503":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		body = `{"jsonrpc":"2.0","id":1,"result":` + body + "}"
	}
	_, _ = io.WriteString(w, body)
}

// What servers send, in 1.0. The task's id is u.

func playedMessage(id, role, text string) string {
	return fmt.Sprintf(`{"messageId":%q,"taskId":"u","role":%q,"parts":[{"text":%q}]}`, id, "ROLE_"+role, text)
}

func playedStatus(state, message string) string {
	if message != "" {
		message = `,"message":` + message
	}
	return `{"state":"TASK_STATE_` + state + `"` + message + `}`
}

func playedUpdate(state, message string) string {
	return `{"statusUpdate":{"taskId":"u","contextId":"c","status":` + playedStatus(state, message) + `}}`
}

func playedArtifact(id string, texts ...string) string {
	var parts []string
	for _, text := range texts {
		parts = append(parts, fmt.Sprintf(`{"text":%q}`, text))
	}
	return fmt.Sprintf(`{"artifactId":%q,"parts":[%s]}`, id, strings.Join(parts, ","))
}

func playedChunk(artifact string, flags ...string) string {
	for i, flag := range flags {
		flags[i] = fmt.Sprintf(`,%q:true`, flag)
	}
	return `{"artifactUpdate":{"taskId":"u","contextId":"c","artifact":` + artifact + strings.Join(flags, "") + `}}`
}

func playedTask(status string, more ...string) string {
	return `{"id":"u","contextId":"c","status":` + status + strings.Join(more, "") + `}`
}

func playedItem(task string) string { return `{"task":` + task + `}` }

func playedArtifacts(list ...string) string { return `,"artifacts":[` + strings.Join(list, ",") + `]` }

func playedHistory(list ...string) string { return `,"history":[` + strings.Join(list, ",") + `]` }

var (
	submitted = playedItem(playedTask(playedStatus("SUBMITTED", "")))
	working   = playedStatus("WORKING", "")
	done      = playedStatus("COMPLETED", "")
	completed = playedUpdate("COMPLETED", "")
)

// relayed is what an upstream sends, and what the client gets.
type relayed struct {
	name   string
	stream []string
	tasks  []string
	want   []string
}

func (c *relayed) test(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		t.Parallel()
		p := play(t, c.stream, c.tasks...)
		k := newKeeper(t, p.fake)
		k.say("go")
		k.finish()
		checkTexts(t, "the log", k.shows(), c.want)
	})
}

func TestNothingOfTheTaskIsLostAtTheEnd(t *testing.T) {
	t.Parallel()
	question := playedMessage("q", "AGENT", "which?")
	for _, c := range []relayed{
		{"artifact only in the Task, as of fasta2a", []string{submitted, completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "x")))},
			[]string{"a= x", "completed"}},
		{"the Task after the status, as of agno", []string{
			submitted, `{"message":` + playedMessage("m", "AGENT", "Hel") + `}`,
			`{"message":` + playedMessage("m", "AGENT", "lo") + `}`, completed,
			playedItem(playedTask(done, playedHistory(playedMessage("m", "AGENT", "Hello")),
				playedArtifacts(playedArtifact("a", "x"))))},
			nil,
			[]string{"working Hel", "working lo", "a= x", "completed"}},
		{"an artifact after the status", []string{submitted, completed, playedChunk(playedArtifact("a", "x"))}, nil,
			[]string{"a= x", "completed"}},
		{"an artifact after the question", []string{submitted, playedUpdate("INPUT_REQUIRED", question),
			playedChunk(playedArtifact("a", "x"))}, nil,
			[]string{"a= x", "input-required which?"}},
		{"the question only in the Task", []string{submitted, playedUpdate("INPUT_REQUIRED", "")},
			[]string{playedTask(playedStatus("INPUT_REQUIRED", question), playedArtifacts(playedArtifact("a", "x")))},
			[]string{"a= x", "input-required which?"}},
		{"the question in the next status", []string{submitted, playedUpdate("INPUT_REQUIRED", ""),
			playedUpdate("INPUT_REQUIRED", question)}, nil,
			[]string{"input-required which?"}},
		{"another artifact in the Task", []string{submitted, playedChunk(playedArtifact("a", "draft")), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "final")))},
			[]string{"a= draft", "a= final", "completed"}},
		{"a Task that is late", []string{submitted, completed},
			[]string{playedTask(working), playedTask(done, playedArtifacts(playedArtifact("a", "x")))},
			[]string{"a= x", "completed"}},
		{"a Task that cannot be read at first", []string{submitted, completed},
			[]string{"503", "503", playedTask(done, playedArtifacts(playedArtifact("a", "x")))},
			[]string{"a= x", "completed"}},
		{"work that goes on in the stream", []string{submitted,
			playedUpdate("AUTH_REQUIRED", playedMessage("q", "AGENT", "sign in")), playedUpdate("WORKING", ""),
			playedChunk(playedArtifact("a", "x")), completed}, nil,
			[]string{"working sign in", "a= x", "completed"}},
		{"work that has gone on meanwhile", []string{submitted,
			playedUpdate("AUTH_REQUIRED", playedMessage("q", "AGENT", "sign in"))},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a", "x")))},
			[]string{"working sign in", "a= x", "completed"}},
		{"an artifact that is emptied", []string{submitted, playedChunk(playedArtifact("a", "x")),
			playedChunk(playedArtifact("a")), completed},
			[]string{playedTask(done, playedArtifacts(playedArtifact("a")))},
			[]string{"a= x", "a= ", "completed"}},
		{"a longer message in the Task", []string{
			submitted, playedUpdate("COMPLETED", playedMessage("m", "AGENT", "Do"))},
			[]string{playedTask(playedStatus("COMPLETED", playedMessage("m", "AGENT", "Done.")))},
			[]string{"completed Done."}},
		{"another message in the Task", []string{
			submitted, playedUpdate("COMPLETED", playedMessage("m", "AGENT", "Done."))},
			[]string{playedTask(playedStatus("COMPLETED", playedMessage("n", "AGENT", "More.")))},
			[]string{"working More.", "completed Done."}},
		{"two questions", []string{submitted, playedUpdate("INPUT_REQUIRED", question),
			playedUpdate("INPUT_REQUIRED", playedMessage("r", "AGENT", "When?"))}, nil,
			[]string{"working which?", "input-required When?"}},
		{"a message after the end", []string{submitted, completed,
			playedUpdate("WORKING", playedMessage("m", "AGENT", "late"))}, nil,
			[]string{"working late", "completed"}},
		{"a Task that never shows the question", []string{submitted, playedUpdate("INPUT_REQUIRED", question)},
			[]string{playedTask(working)},
			[]string{"input-required which?"}},
		{"a Task whose time shows that the question is over", []string{submitted, playedUpdate("INPUT_REQUIRED",
			question+`,"timestamp":"2026-11-29T08:00:00Z"`)},
			[]string{playedTask(playedStatus("WORKING", `{"messageId":"m","parts":[{"text":"on it"}]},`+
				`"timestamp":"2026-11-29T08:00:01Z"`)), playedTask(done)},
			[]string{"working which?", "working on it", "completed"}},
		{"the newest entry first in the history", []string{submitted, completed},
			[]string{playedTask(done, playedHistory(playedMessage("2", "AGENT", "B"), playedMessage("1", "AGENT", "A"),
				playedMessage(firstID, "USER", "go")))},
			[]string{"working B", "working A", "completed"}},
		{"equal texts with ids of their own, polled", []string{submitted, "cut"},
			[]string{playedTask(playedStatus("WORKING", playedMessage("1", "AGENT", "ok"))),
				playedTask(playedStatus("WORKING", playedMessage("2", "AGENT", "ok"))), playedTask(done)},
			[]string{"working ok", "working ok", "completed"}},
	} {
		c.test(t)
	}
}

// A stream that stays open after the end delays the end only for a moment.
func TestOpenStreamDoesNotKeepATaskFromItsEnd(t *testing.T) {
	t.Parallel()
	p := play(t, []string{submitted, completed}, playedTask(done, playedArtifacts(playedArtifact("a", "x"))))
	p.more = make(chan struct{})
	t.Cleanup(func() { close(p.more) })
	k := newKeeper(t, p.fake, func(c *upstream.Config) { c.Drain = time.Millisecond })
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= x", "completed"})
}

// If all events have arrived, an upstream that fails right after its end does not make the task fail. If some are
// missing, the task waits for the upstream.
func TestUpstreamThatFailsAfterTheEnd(t *testing.T) {
	t.Parallel()
	impatient := func(c *upstream.Config) { c.Patience = time.Millisecond }
	p := play(t, []string{submitted, playedChunk(playedArtifact("a", "x")), completed}, "503")
	k := newKeeper(t, p.fake, impatient)
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= x", "completed"})

	p = play(t, []string{submitted, playedChunk(playedArtifact("a", "x")), completed}, "silence")
	k = newKeeper(t, p.fake, func(c *upstream.Config) { c.Settle = time.Millisecond })
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= x", "completed"})

	p = play(t, []string{submitted, "cut"}, "503", "503", playedTask(done, playedArtifacts(playedArtifact("a", "x"))))
	p.resume = []string{submitted, completed}
	k = newKeeper(t, p.fake, impatient)
	k.say("go")
	if _, err := k.run(bounded(t), nil); !executor.IsUnreachable(err) {
		t.Errorf("the attempt ends with %v, want an unreachable agent", err)
	}
	p.locked(func() { p.resume = nil })
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= x", "completed"})
}

func TestLastChunkWithoutParts(t *testing.T) {
	t.Parallel()
	p := play(t, []string{submitted, playedChunk(playedArtifact("a", "x")),
		playedChunk(playedArtifact("a"), "append", "lastChunk"), completed},
		playedTask(done, playedArtifacts(playedArtifact("a", "x"))))
	k := newKeeper(t, p.fake)
	k.say("go")
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= x", "a+ ", "completed"})
	if !k.log[1].(*a2a.ArtifactUpdate).LastChunk {
		t.Error("the last chunk is not marked")
	}
}

func TestLargeTextsAreCut(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("ä", 800_000)
	p := play(t, []string{submitted, playedChunk(playedArtifact("a", large)),
		playedUpdate("COMPLETED", playedMessage("m", "AGENT", large))},
		playedTask(playedStatus("COMPLETED", playedMessage("m", "AGENT", large)),
			playedArtifacts(playedArtifact("a", large))))
	k := newKeeper(t, p.fake)
	k.say("go")
	k.finish()
	message := k.task.Status.Message
	for what, parts := range map[string][]a2a.Part{"artifact": k.task.Artifacts[0].Parts, "message": message.Parts} {
		got := ""
		for _, part := range parts {
			if len(part.Text) > 1<<20 {
				t.Errorf("%s: a part has %d bytes", what, len(part.Text))
			}
			got += part.Text
		}
		if got != large {
			t.Errorf("the %s has %d bytes, want %d", what, len(got), len(large))
		}
	}
}
