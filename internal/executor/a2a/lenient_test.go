package a2a_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
)

func sseOf(results ...string) (body string) {
	for _, result := range results {
		body += `data: {"jsonrpc":"2.0","id":1,"result":` + result + "}\n\n"
	}
	return body
}

// What is unambiguous is read, although it is not what the specification says.
func TestUnusualStreamsAreRead(t *testing.T) {
	t.Parallel()
	unnamed := strings.NewReplacer(`"taskId":"u",`, "", `"contextId":"c",`, "")
	chunk := playedChunk(playedArtifact("a", "x"))
	named := sseOf(submitted, chunk, completed)
	for name, c := range map[string]struct{ kind, body string }{
		"no type":             {"", named},
		"text":                {"text/plain; charset=utf-8", "\n" + named},
		"a comment first":     {"text/plain", ": hello\n\n" + named},
		"JSON type":           {"application/json", named},
		"ids as text":         {"text/event-stream", strings.ReplaceAll(named, `"id":1`, `"id":"1"`)},
		"no ids of responses": {"text/event-stream", strings.ReplaceAll(named, `"id":1`, `"id":null`)},
		"blank events":        {"text/event-stream", "data:\n\ndata: {}\n\n" + named + "data: [DONE]\n\n"},
		"no ids of the task": {"text/event-stream",
			sseOf(submitted, unnamed.Replace(chunk), unnamed.Replace(completed))},
		"the id of the task only at the end": {"text/event-stream",
			sseOf(unnamed.Replace(playedUpdate("WORKING", "")), unnamed.Replace(chunk), completed)},
		"no id at all": {"text/event-stream", sseOf(unnamed.Replace(chunk), unnamed.Replace(completed))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := play(t, nil, playedTask(done, playedArtifacts(playedArtifact("a", "x"), playedArtifact("b", "y"))))
			played := p.raw
			p.raw = func(method string, w http.ResponseWriter, r *http.Request) bool {
				if method != "SendStreamingMessage" {
					return played(method, w, r)
				}
				w.Header()["Content-Type"] = nil
				if c.kind != "" {
					w.Header().Set("Content-Type", c.kind)
				}
				_, _ = io.WriteString(w, c.body)
				return true
			}
			k := newKeeper(t, p.fake)
			k.say("go")
			k.finish()
			want := []string{"a= x", "b= y", "completed"}
			if name == "no id at all" { // so the Task cannot be read
				want = []string{"a= x", "completed"}
			}
			checkTexts(t, "the log", k.shows(), want)
		})
	}
}

// Without the id of the task, the next attempt sends the messages again.
func TestStreamThatBreaksBeforeTheTaskIsNamedIsStartedAgain(t *testing.T) {
	t.Parallel()
	unnamed := strings.NewReplacer(`"taskId":"u",`, "", `"contextId":"c",`, "")
	p := play(t, []string{
		unnamed.Replace(playedUpdate("WORKING", "")), unnamed.Replace(playedChunk(playedArtifact("a", "0"))), "cut",
	})
	k := newKeeper(t, p.fake)
	k.say("go")
	if _, err := k.run(bounded(t), nil); err == nil || executor.IsPermanent(err) {
		t.Fatalf("the attempt ends with %v, want an error worth another", err)
	}
	p.locked(func() {
		p.stream = []string{unnamed.Replace(playedChunk(playedArtifact("a", "1"))), unnamed.Replace(completed)}
	})
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= 0", "a= 1", "completed"})
}

// A card may promise streaming that does not work.
func TestStreamingThatFailsIsReplacedByPolling(t *testing.T) {
	t.Parallel()
	for _, refused := range []int{404, 405, 500, 501} {
		f := newFake(t, "1.0")
		f.program = [][]a2a.Event{{chunk("a", 0, "x"), status(a2a.StateCompleted)}}
		f.raw = func(method string, w http.ResponseWriter, _ *http.Request) bool {
			if method == "SendStreamingMessage" {
				w.WriteHeader(refused)
			}
			return method == "SendStreamingMessage"
		}
		k := newKeeper(t, f)
		k.say("go")
		k.finish()
		checkTexts(t, "the log", k.shows(), []string{"a= x", "completed"})

		k = newKeeper(t, f, func(c *upstream.Config) { c.OnLostTask = upstream.LostTaskFail })
		k.say("go")
		_, err := k.run(bounded(t), nil)
		if n, _ := f.count(); (n == 2) != (refused != 500) || (err != nil) != (refused == 500) {
			t.Errorf("%d, for work that must not happen twice: %d messages, error %v", refused, n, err)
		}
	}
}

func TestAnswersArePolledToo(t *testing.T) {
	t.Parallel()
	for _, refused := range []int{404, 405, 406, 500, 501} {
		f := newFake(t, "1.0")
		f.program = [][]a2a.Event{{status(a2a.StateInputRequired, "which?")}, {status(a2a.StateCompleted, "done")}}
		f.raw = func(method string, w http.ResponseWriter, _ *http.Request) bool {
			if method == "SendStreamingMessage" {
				w.WriteHeader(refused)
			}
			return method == "SendStreamingMessage"
		}
		k := newKeeper(t, f)
		for _, text := range []string{"go", "this one"} {
			k.say(text)
			k.finish()
		}
		checkTexts(t, "the log", k.shows(), []string{"input-required which?", "completed done"})
		if n, _ := f.count(); n != 2 {
			t.Errorf("%d: %d messages were sent, want 2", refused, n)
		}
	}
}

func TestTurnsOfATaskWithoutAName(t *testing.T) {
	t.Parallel()
	unnamed := strings.NewReplacer(`"taskId":"u",`, "", `"contextId":"c",`, "")
	p := play(t, nil)
	k := newKeeper(t, p.fake)
	for _, state := range []string{"INPUT_REQUIRED", "COMPLETED", "COMPLETED"} {
		p.locked(func() { p.stream = []string{unnamed.Replace(playedUpdate(state, playedMessage("m", "AGENT", "x")))} })
		k.say("go")
		k.finish()
	}
	checkTexts(t, "the log", k.shows(), []string{"input-required x", "completed x", "completed x"})
}

func TestErrorsOfTheUpstreamAreShown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status           int
		kind, body, want string
	}{
		{200, "text/event-stream", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such skill"}}`,
			"no such skill"},
		{400, "application/json", `{"detail":"no such agent"}`, "HTTP status 400: no such agent"},
		{400, "application/problem+json", `{"title":"Bad","detail":"no such tool"}`, "HTTP status 400: no such tool"},
		{403, "application/json", `{"error":{"code":403,"message":"not yours"}}`, "HTTP status 403: not yours"},
		{400, "application/json", `{"error":"no such key"}`, "HTTP status 400: no such key"},
		{400, "text/html", `<h1>no such page</h1>`, "HTTP status 400"},
	} {
		f := newFake(t, "1.0")
		f.raw = func(_ string, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
			return true
		}
		k := newKeeper(t, f)
		k.say("go")
		if _, err := k.run(bounded(t), nil); !executor.IsPermanent(err) || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("the attempt ends with %v, want %s", err, c.want)
		}
	}
}
