package a2a_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	upstream "github.com/a2ad/a2ad/internal/executor/a2a"
)

func TestInterruptedStreamsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, generation := range generations {
		for cut := 1; cut < 8; cut++ {
			f := newFake(t, generation)
			f.cutAt = cut
			f.program = [][]a2a.Event{slices.Concat([]a2a.Event{status(a2a.StateWorking, "thinking")}, chunksOf("a", 4),
				[]a2a.Event{status(a2a.StateCompleted, "done")})}
			k := newKeeper(t, f)
			k.say("go")
			k.finish()
			checkTexts(t, "the artifact", k.texts("a"), []string{"0", "1", "2", "3"})
			checkTexts(t, "the ends", []string{k.shows()[0], k.shows()[len(k.shows())-1]},
				[]string{"working thinking", "completed done"})
			if n, _ := f.count(); n != 1 {
				t.Errorf("%d messages were sent, want 1", n)
			}
		}
	}
}

// forgotten makes an upstream lose a task in the middle of the first attempt.
func forgotten(t *testing.T, change ...func(*upstream.Config)) (*fake, *keeper, error) {
	f := newFake(t, "1.0")
	f.program = [][]a2a.Event{{chunk("a", 0, "0"), chunk("a", 1, "1"), status(a2a.StateCompleted)}}
	f.pace, f.allowed = true, 1
	k := newKeeper(t, f, change...)
	k.say("go")
	_, err := k.run(bounded(t), func(e a2a.Event) bool {
		if _, ok := e.(*a2a.ArtifactUpdate); ok {
			f.forget()
		}
		return false
	})
	f.allow(100)
	return f, k, err
}

func TestLostTaskIsStartedAgainByTheNextAttempt(t *testing.T) {
	t.Parallel()
	f, k, err := forgotten(t)
	if err == nil || executor.IsPermanent(err) {
		t.Fatalf("the first attempt ends with %v, want an error worth another", err)
	}
	k.finish()
	checkTexts(t, "the log", k.shows(), []string{"a= 0", "a= 0", "a+ 1", "completed"})
	if n, _ := f.count(); n != 2 || f.messages[0].ID != f.messages[1].ID {
		t.Errorf("%d messages were sent, want 2 of the same id", n)
	}
}

func TestLostTaskFailsIfItMustNotRunTwice(t *testing.T) {
	t.Parallel()
	f, _, err := forgotten(t, func(c *upstream.Config) { c.OnLostTask = upstream.LostTaskFail })
	if !executor.IsPermanent(err) {
		t.Errorf("the attempt ends with %v, want a permanent error", err)
	}
	if n, _ := f.count(); n != 1 {
		t.Errorf("%d messages were sent, want 1", n)
	}
}

func TestRunWaitsForAnUnreachableUpstream(t *testing.T) {
	t.Parallel()
	f := newFake(t, "1.0")
	f.down = true
	f.program = [][]a2a.Event{{status(a2a.StateCompleted)}}
	k := newKeeper(t, f)
	k.say("go")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for up := false; !up; {
			f.mu.Lock()
			if up = len(f.headers) >= 3; up {
				f.down = false
			}
			f.mu.Unlock()
		}
	}()
	k.finish()
	<-done
}

func TestUnreachableUpstreamIsRetried(t *testing.T) {
	t.Parallel()
	f := newFake(t, "1.0")
	f.down = true
	k := newKeeper(t, f, func(c *upstream.Config) { c.Patience = time.Millisecond })
	k.say("go")
	if _, err := k.run(bounded(t), nil); !executor.IsUnreachable(err) || executor.IsPermanent(err) ||
		strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("the attempt ends with %v, want an error worth another that has no address", err)
	}
}

// Answers that cannot be understood fail the task.
func TestInvalidUpstreamsFailTheTaskWithAReason(t *testing.T) {
	t.Parallel()
	sse := func(data string) func(string, http.ResponseWriter, *http.Request) bool {
		return func(_ string, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: "+data+"\n\n")
			return true
		}
	}
	answer := func(status int, header, body string) func(string, http.ResponseWriter, *http.Request) bool {
		return func(_ string, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", header)
			w.Header().Set("Location", r.URL.String())
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	task := `{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"u","contextId":"c",` +
		`"status":{"state":"TASK_STATE_WORKING"}}}}`
	for _, c := range []struct {
		name      string
		raw       func(string, http.ResponseWriter, *http.Request) bool
		permanent bool
		text      string
	}{
		{"no JSON", sse(`{"jsonrpc":`), true, "not JSON"},
		{"twice the same key", sse(`{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`), true, "not JSON"},
		{"another id", sse(`{"jsonrpc":"2.0","id":2,"result":{}}`), true, "another request"},
		{"nothing known", sse(`{"jsonrpc":"2.0","id":1,"result":{"thing":{}}}`), true, "is no task"},
		{"no state", sse(`{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"u","status":{"state":"HAPPY"}}}}`), true,
			"task.status.state"},
		{"another task", sse(task + "\n\ndata: " +
			strings.ReplaceAll(strings.ReplaceAll(task, `"task"`, `"statusUpdate"`), `"id":"u"`,
				`"taskId":"v"`)), true, "another task"},
		{"too large", sse(strings.Repeat(" ", 1<<20) + task), true, "larger than"},
		{"HTML", answer(200, "text/html", "<html>"), true, "text/html"},
		{"a redirect to itself", answer(302, "text/plain", "away"), true, "redirects are not followed"},
		{"no access", answer(401, "text/plain", "who are you?"), true, "401: who are you?"},
		{"an error of the protocol", sse(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such skill"}}`),
			true, "no such skill"},
		{"overload", answer(503, "text/plain", "later"), false, "503: later"},
		{"a fault", answer(500, "application/json",
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"oops"}}`), false, "oops"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, "1.0")
			f.raw = c.raw
			k := newKeeper(t, f, func(c *upstream.Config) { c.MaxBytes = 1 << 20 })
			k.say("go")
			_, err := k.run(bounded(t), nil)
			if err == nil || !strings.Contains(err.Error(), c.text) || executor.IsPermanent(err) != c.permanent {
				t.Errorf("the attempt ends with %v (permanent: %v), want %q (%v)", err, executor.IsPermanent(err),
					c.text, c.permanent)
			}
			if executor.IsUnreachable(err) != (c.name == "overload") {
				t.Errorf("unreachable is %v", executor.IsUnreachable(err))
			}
			if c.name == "overload" && executor.RetryDelay(err) != 7*time.Second {
				t.Errorf("tried again after %s, want 7s", executor.RetryDelay(err))
			}
		})
	}
}
