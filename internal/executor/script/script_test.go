package script_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/script"
	"github.com/a2ad/a2ad/internal/executor/script/model"
)

var (
	working   = model.Event{State: a2a.StateWorking}
	completed = model.Event{State: a2a.StateCompleted}
)

func status(s a2a.State, text string) model.Event { return model.Event{State: s, Text: text} }

func whole(id, text string) model.Event { return model.Event{Artifact: id, Text: text, Last: true} }

func TestOps(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ops  string
		want []model.Event
	}{
		{`[]`, []model.Event{completed}},
		{`[{"op":"status","state":"working","text":"on it"},{"op":"status"}]`,
			[]model.Event{status(a2a.StateWorking, "on it"), working, completed}},
		{`[{"op":"chunk","id":"a","n":3,"bytes":6}]`, []model.Event{
			{Artifact: "a", Text: "a:0:xx"}, {Artifact: "a", Text: "a:1:xx", Append: true}, {Artifact: "a",
				Text: "a:2:xx", Append: true, Last: true}, completed}},
		{`[{"op":"chunk","id":"long","n":1,"bytes":2}]`, []model.Event{whole("long", "long:0:"), completed}},
		{`[{"op":"artifact","id":"a","text":"t"},{"op":"complete","text":"done"},{"op":"fail"}]`,
			[]model.Event{whole("a", "t"), status(a2a.StateCompleted, "done")}},
		{`[{"op":"fail","text":"f"}]`, []model.Event{status(a2a.StateFailed, "f")}},
		{`[{"op":"reject","text":"r"}]`, []model.Event{status(a2a.StateRejected, "r")}},
		{`[{"op":"input","text":"i"}]`, []model.Event{status(a2a.StateInputRequired, "i")}},
		{`[{"op":"auth","text":"a"}]`, []model.Event{status(a2a.StateAuthRequired, "a")}},
		{`[{"op":"status","state":"failed"}]`, []model.Event{status(a2a.StateFailed, "")}},
		{`[{"op":"error","text":"e","times":2},{"op":"complete"}]`, []model.Event{completed}},
	} {
		s := newServer(script.Config{})
		s.send(play(tc.ops))
		s.finish(t)
		if diff := cmp.Diff(tc.want, s.events()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.ops, diff)
		}
		modelled, _ := model.Expected(never, tc.ops)
		if diff := cmp.Diff(tc.want, modelled); diff != "" {
			t.Errorf("model of %s (-want +got):\n%s", tc.ops, diff)
		}
	}
}

func TestModelEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ops  string
		want model.End
	}{
		{`[]`, model.Done}, {`[{"op":"input"}]`, model.Waits}, {`[{"op":"hang"}]`, model.Stuck}, {`[{"op":"panic"}]`,
			model.Stuck},
		{`[{"op":"error"}]`, model.Done}, {`[{"op":"error","times":3}]`, model.Stuck}, {`[{"op":"error","times":0}]`,
			model.Done},
	} {
		if _, got := model.Expected(3, tc.ops); got != tc.want {
			t.Errorf("%s ends with %d, want %d", tc.ops, got, tc.want)
		}
	}
}

func TestIDsOfStatusMessagesAreStable(t *testing.T) {
	t.Parallel()
	s := newServer(script.Config{})
	s.send(play(`[{"op":"status","text":"a"},{"op":"status","text":"b"},{"op":"input","text":"c"}]`))
	s.finish(t)
	s.send(play(`[{"op":"status","text":"d"}]`))
	s.finish(t)
	seen := map[string]bool{}
	for _, e := range s.log[:4] {
		m := e.(*a2a.StatusUpdate).Status.Message
		if seen[m.ID] || m.Role != a2a.RoleAgent || m.TaskID != s.task.ID.String() || m.ContextID != "c" {
			t.Errorf("message %+v", m)
		}
		seen[m.ID] = true
	}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	const asks = `[{"op":"input","text":"?"},{"op":"artifact","id":"a","text":"1"}]`
	for _, tc := range []struct {
		name  string
		turns [][]a2a.Message
		want  []model.Event
	}{
		{"a plain message continues after the op", [][]a2a.Message{{play(asks)}, {say("m", "go")}},
			[]model.Event{status(a2a.StateInputRequired, "?"), whole("a", "1"), completed}},
		{"a script replaces the one that waits", [][]a2a.Message{{play(asks)}, {play(`[{"op":"fail"}]`)}},
			[]model.Event{status(a2a.StateInputRequired, "?"), status(a2a.StateFailed, "")}},
		{"a known prefix does not disturb a script", [][]a2a.Message{{play(asks)}, {say("tck-reject-task", "go")}},
			[]model.Event{status(a2a.StateInputRequired, "?"), whole("a", "1"), completed}},
		{"a plain message after the end completes", [][]a2a.Message{{play(`[{"op":"input"}]`)}, {say("m", "go")}},
			[]model.Event{status(a2a.StateInputRequired, ""), completed}},
		{"an answer that is there already", [][]a2a.Message{{play(asks), say("m", "go")}},
			[]model.Event{whole("a", "1"), completed}},
		{"two scripts at once run in turn", [][]a2a.Message{{play(asks), play(`[{"op":"fail"}]`)}},
			[]model.Event{status(a2a.StateFailed, "")}},
		{"plain messages", [][]a2a.Message{{say("m", "a")}, {say("m", "b"), say("m", "c")}, {say("m", "d")}},
			[]model.Event{waits, waits, waits}},
		{"a script after plain messages", [][]a2a.Message{{say("m", "a")}, {play(`[]`)}},
			[]model.Event{waits, completed}},
		{"the kit reuses ids", [][]a2a.Message{{say("tck-input-required-1", "a")}, {say("tck-input-required-1", "b")},
			{say("tck-complete-task-1", "c")}},
			[]model.Event{status(a2a.StateInputRequired, ""), status(a2a.StateInputRequired, ""),
				status(a2a.StateCompleted, "Hello from TCK")}},
		{"a script that comes before the end counts",
			[][]a2a.Message{{play(`[{"op":"artifact","id":"a"}]`)}, {play(`[{"op":"artifact","id":"b"}]`)}},
			[]model.Event{whole("a", ""), completed, whole("b", ""), completed}},
		{"a plain message that comes before the end",
			[][]a2a.Message{{play(`[{"op":"complete","text":"1"},{"op":"fail"}]`)}, {say("m", "more")}, {}},
			[]model.Event{status(a2a.StateCompleted, "1"), completed, completed}},
		{"a message that comes before the kit's task ends",
			[][]a2a.Message{{say("tck-complete-task", "a")}, {say("tck-input-required", "b")}},
			[]model.Event{status(a2a.StateCompleted, "Hello from TCK"), status(a2a.StateInputRequired, "")}},
		{"a turn without a message waits on", [][]a2a.Message{{play(asks)}, {}, {say("m", "go")}},
			[]model.Event{status(a2a.StateInputRequired, "?"), status(a2a.StateInputRequired, "?"), whole("a", "1"),
				completed}},
	} {
		s := newServer(script.Config{})
		for _, messages := range tc.turns {
			s.send(messages...)
			s.finish(t)
		}
		if diff := cmp.Diff(tc.want, s.events()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

var waits = status(a2a.StateInputRequired, `Send a data part {"script":[…]}, or anything else for another turn.`)

// An answer arrives while the script runs. The attempt after the crash gets both messages as new, and the
// script still runs to its end.
func TestAnswerQueuedBeforeACrash(t *testing.T) {
	t.Parallel()
	for crash := range 9 {
		s := newServer(script.Config{})
		s.send(play(`[{"op":"artifact","id":"a","text":"1"},{"op":"input"},{"op":"artifact","id":"b","text":"2"}]`))
		if ended, _ := s.run(t.Context(), crash); ended {
			break
		}
		s.queue(play(`[{"op":"artifact","id":"c","text":"3"}]`))
		s.finish(t)
		if diff := cmp.Diff([]model.Event{whole("a", "1"), whole("c", "3"), completed}, s.events()); diff != "" {
			t.Errorf("crash at %d (-want +got):\n%s", crash, diff)
		}
	}
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	file := a2a.Part{Kind: a2a.PartFile, Text: "dGNr", MediaType: "text/plain", Filename: "output.txt"}
	for _, tc := range []struct {
		id   string
		part a2a.Part // of the artifact
		want []model.Event
	}{
		{"tck-complete-task-x", a2a.Part{}, []model.Event{status(a2a.StateCompleted, "Hello from TCK")}},
		{"tck-delayed-complete-x", a2a.Part{}, []model.Event{working, status(a2a.StateCompleted, "Done after delay")}},
		{"tck-artifact-text-x", a2a.Part{}, []model.Event{whole("output", "Generated text content"), completed}},
		{"tck-artifact-file-x", file, []model.Event{whole("output", "dGNr"), completed}},
		{"tck-artifact-file-url-x", a2a.Part{Kind: a2a.PartURL, Text: "https://example.com/output.txt",
			MediaType: "text/plain", Filename: "output.txt"},
			[]model.Event{whole("output", "https://example.com/output.txt"), completed}},
		{"tck-artifact-data-x", a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`{"key":"value","count":42}`)},
			[]model.Event{whole("output", ""), completed}},
		{"tck-message-response-x", a2a.Part{}, []model.Event{status(a2a.StateCompleted, "Direct message response")}},
		{"tck-input-required-x", a2a.Part{}, []model.Event{status(a2a.StateInputRequired, "")}},
		{"tck-reject-task-x", a2a.Part{}, []model.Event{status(a2a.StateRejected, "rejected")}},
		{"tck-stream-001-x", a2a.Part{}, []model.Event{working, whole("output", "Stream hello from TCK"), completed}},
		{"tck-stream-002-x", a2a.Part{}, []model.Event{completed}},
		{"tck-stream-003-x", a2a.Part{}, []model.Event{working, whole("output", "Stream task lifecycle"), completed}},
		{"tck-stream-ordering-001-x", a2a.Part{}, []model.Event{working, whole("output", "Ordered output"), completed}},
		{"tck-stream-artifact-text-x", a2a.Part{},
			[]model.Event{working, whole("output", "Streamed text content"), completed}},
		{"tck-stream-artifact-file-x", file, []model.Event{working, whole("output", "dGNr"), completed}},
		{"tck-stream-artifact-chunked-x", a2a.Part{}, []model.Event{working,
			{Artifact: "output", Text: "chunk-1 "}, {Artifact: "output", Text: "chunk-2", Append: true,
				Last: true}, completed}},
		{"test-resubscribe-message-id-x", a2a.Part{}, []model.Event{working, completed}},
		{"", a2a.Part{}, []model.Event{waits}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(script.Config{})
			s.send(say(tc.id, "hello"))
			start := time.Now()
			s.finish(t)
			if diff := cmp.Diff(tc.want, s.events()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.id, diff)
			}
			if took := time.Since(start); strings.HasPrefix(tc.id, "test-resub") != (took >= 8*time.Second) {
				t.Errorf("%s took %s", tc.id, took)
			}
			for _, a := range s.task.Artifacts {
				if diff := cmp.Diff(tc.part, a.Parts[0]); tc.part.Kind != 0 && diff != "" {
					t.Errorf("%s: part (-want +got):\n%s", tc.id, diff)
				}
			}
		})
	}
}

func TestTimesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(script.Config{})
		s.send(play(`[{"op":"chunk","id":"a","n":4,"every_ms":1000},{"op":"sleep","ms":86400000},` +
			`{"op":"ignore_cancel","ms":500}]`))
		start := time.Now()
		s.finish(t)
		if took, want := time.Since(start), 24*time.Hour+3500*time.Millisecond; took != want {
			t.Errorf("took %s, want %s", took, want)
		}
	})
}

func TestCancelEndsWaiting(t *testing.T) {
	t.Parallel()
	for _, ops := range []string{`[{"op":"chunk","id":"b","n":1},{"op":"sleep","ms":10000}]`, `[{"op":"hang"}]`,
		`[{"op":"chunk","id":"a","n":2,"every_ms":10000}]`} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(executor.ErrCanceled) })
			s := newServer(script.Config{})
			s.send(play(ops))
			start := time.Now()
			if _, err := s.run(ctx, never); !errors.Is(err, executor.ErrCanceled) || time.Since(start) != time.Second {
				t.Errorf("%s: error %v after %s, want %v after 1s", ops, err, time.Since(start), executor.ErrCanceled)
			}
		})
	}
}

func TestCancelEndsAScriptThatNeverWaits(t *testing.T) {
	t.Parallel()
	for _, ops := range []string{`[{"op":"chunk","id":"a","n":100000},{"op":"complete"}]`,
		`[` + strings.Repeat(`{"op":"status"},`, 100) + `{"op":"complete"}]`} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := newServer(script.Config{})
		s.send(play(ops))
		run := executor.Run{Task: s.task, Messages: s.fresh, Attempt: 1}
		var last error
		events := 0
		for event, err := range s.exec.Execute(ctx, run) {
			if last = err; err == nil {
				if _, ok := event.(*a2a.Checkpoint); !ok {
					events++
				}
			}
			if events == 5 {
				cancel(executor.ErrCanceled)
			}
		}
		cancel(nil)
		if events != 5 || !errors.Is(last, executor.ErrCanceled) {
			t.Errorf("%.30s: %d events, error %v", ops, events, last)
		}
	}
}

func TestIgnoreCancelContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(executor.ErrCanceled)
		s := newServer(script.Config{})
		s.send(play(`[{"op":"ignore_cancel","ms":3000},{"op":"artifact","id":"a","text":"late"},{"op":"hang"}]`))
		start := time.Now()
		_, err := s.run(ctx, never)
		if diff := cmp.Diff([]model.Event{whole("a", "late")}, s.events()); diff != "" ||
			!errors.Is(err, executor.ErrCanceled) || time.Since(start) != 3*time.Second {
			t.Errorf("error %v after %s, events (-want +got):\n%s", err, time.Since(start), diff)
		}
	})
}

func TestPanic(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s := newServer(script.Config{})
	s.send(play(`[{"op":"panic"}]`))
	_, _ = s.run(t.Context(), never)
}

func TestErrorOp(t *testing.T) {
	t.Parallel()
	s := newServer(script.Config{})
	s.send(play(`[{"op":"artifact","id":"a"},{"op":"error","text":"flaky","times":2},{"op":"error"},` +
		`{"op":"artifact","id":"b"}]`))
	for range 2 {
		if ended, err := s.run(t.Context(), never); ended || err == nil || executor.IsPermanent(err) ||
			!strings.Contains(err.Error(), "flaky") {
			t.Fatalf("got %v, %v, want an error worth another try", ended, err)
		}
	}
	s.finish(t)
	if diff := cmp.Diff([]model.Event{whole("a", ""), whole("b", ""), completed}, s.events()); diff != "" ||
		s.runs != 3 {
		t.Errorf("%d runs, events (-want +got):\n%s", s.runs, diff)
	}
}

func TestBadScripts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ script, want string }{
		{`5`, `script must be an array of ops`},
		{`[5]`, `script[0] must be an object with a member op`},
		{`[{}]`, `script[0].op must be a string`},
		{`[{"op":"input"},{"op":"dance"}]`,
			`script[1].op: "dance" is not one of status, chunk, artifact, sleep, input, auth, complete, fail, ` +
				`reject, error, panic, hang, ignore_cancel, effect, reply`},
		{`[{"op":"sleep"}]`, `script[0].ms must be a whole number from 0 to 86400000`},
		{`[{"op":"sleep","ms":86400001}]`, `script[0].ms must be a whole number from 0 to 86400000`},
		{`[{"op":"sleep","ms":-1}]`, `script[0].ms must be a whole number from 0 to 86400000`},
		{`[{"op":"sleep","ms":"5"}]`, `script[0].ms must be a whole number from 0 to 86400000`},
		{`[{"op":"sleep","ms":null}]`, `script[0].ms must be a whole number from 0 to 86400000`},
		{`[{"op":"sleep","s":5,"ms":1}]`, `script[0]: unknown member "s"`},
		{`[{"op":"chunk","id":"a"}]`, `script[0].n must be a whole number from 1 to 100000`},
		{`[{"op":"chunk","id":"a","n":0}]`, `script[0].n must be a whole number from 1 to 100000`},
		{`[{"op":"chunk","id":"a","n":1.5}]`, `script[0].n must be a whole number from 1 to 100000`},
		{`[{"op":"chunk","id":"a","n":1,"bytes":1048577}]`, `script[0].bytes must be a whole number from 0 to 1048576`},
		{`[{"op":"chunk","n":1}]`, `script[0].id must be a string`},
		{`[{"op":"artifact","id":""}]`, `script[0].id must be a string of 1 to 256 bytes`},
		{`[{"op":"artifact","id":"a","text":5}]`, `script[0].text must be a string`},
		{`[{"op":"status","state":"submitted"}]`,
			`script[0].state: "submitted" is not a state that an agent can report, like working`},
		{`[{"op":"status","state":"canceled"}]`,
			`script[0].state: "canceled" is not a state that an agent can report, like working`},
		{`[{"op":"status","state":"done"}]`,
			`script[0].state: "done" is not a state that an agent can report, like working`},
		{`[{"op":"effect","url":"ftp://x/"}]`, `script[0].url must be an http or https URL`},
		{`[` + strings.Repeat(`{"op":"hang"},`, 10_000) + `{"op":"hang"}]`, `script has more than 10000 ops`},
	} {
		s := newServer(script.Config{})
		s.send(play(tc.script))
		_, err := s.run(t.Context(), never)
		if !executor.IsPermanent(err) || err.Error() != tc.want || len(s.log) > 0 {
			t.Errorf("%.60s: %d events, error %v, want %s", tc.script, len(s.log), err, tc.want)
		}
	}
}
