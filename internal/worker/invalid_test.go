package worker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
)

const refusedByPostgres = "PostgreSQL cannot store "

// invalidEvents are events that fail a task. They follow a valid one, which is event 1.
var invalidEvents = []struct {
	name   string
	events []a2a.Event
	text   string // the beginning of what the client gets, after "invalid agent response: "
}{
	{"no final status", nil, "the agent ended without a final status"},
	{"no final status after a checkpoint", []a2a.Event{&a2a.Checkpoint{Body: a2a.Raw(`1`)}},
		"the agent ended without a final status"},
	{"submitted", []a2a.Event{status(a2a.StateSubmitted)}, `event 2: an agent cannot set the state "submitted"`},
	{"canceled", []a2a.Event{status(a2a.StateCanceled)}, `event 2: an agent cannot set the state "canceled"`},
	{"no state", []a2a.Event{status(a2a.StateNone)}, `event 2: an agent cannot set the state "unknown"`},
	{"an unknown state", []a2a.Event{status(42)}, `event 2: an agent cannot set the state "unknown"`},
	{"no event", []a2a.Event{nil}, ""},
	{"a nil status", []a2a.Event{(*a2a.StatusUpdate)(nil)}, ""},
	{"a nil artifact", []a2a.Event{(*a2a.ArtifactUpdate)(nil)}, ""},
	{"a nil checkpoint", []a2a.Event{(*a2a.Checkpoint)(nil)}, ""},
	{"a direct reply", []a2a.Event{&a2a.Message{ID: "m", Parts: texts("x")}},
		"event 2: a message by itself: report a status with it, or set direct_reply"},
	{"an artifact without an id", []a2a.Event{chunk("", "x")}, "event 2: an artifact without an id"},
	{"an artifact id with NUL", []a2a.Event{chunk("a\x00", "x")}, "event 2: artifactId"},
	{"an artifact id that is too long", []a2a.Event{chunk(strings.Repeat("x", 257), "x")}, "event 2: artifactId"},
	{"no parts", []a2a.Event{chunk("x")}, "event 2: 0 parts"},
	{"too many parts", []a2a.Event{artifact(make([]a2a.Part, 1001)...)}, "event 2: 1001 parts"},
	{"a part of no kind", []a2a.Event{artifact(a2a.Part{})}, "event 2: part 0 has no content"},
	{"a data part without data", []a2a.Event{artifact(a2a.Part{Kind: a2a.PartData})}, "event 2: part 0 has no content"},
	{"a part that is too large", []a2a.Event{chunk("x", "ok", strings.Repeat("x", 1<<20+1))},
		"event 2: part 1 is larger"},
	{"a message without parts", []a2a.Event{saying(&a2a.Message{ID: "m"})}, "event 2: 0 parts"},
	{"a message id that is not UTF-8", []a2a.Event{saying(&a2a.Message{ID: "\xff", Parts: texts("x")})},
		"event 2: messageId"},
	{"metadata that is not JSON",
		[]a2a.Event{&a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking}, Metadata: a2a.Raw(`{`)}},
		refusedByPostgres},
	{
		"data that is not JSON",
		[]a2a.Event{artifact(a2a.Part{Kind: a2a.PartData, Data: a2a.Raw(`[`)})},
		refusedByPostgres,
	},
	{"a checkpoint that is not JSON", []a2a.Event{&a2a.Checkpoint{Body: a2a.Raw(`{`)}, status(a2a.StateWorking)},
		refusedByPostgres},
}

func artifact(parts ...a2a.Part) a2a.Event {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: "x", Parts: parts}}
}

func saying(m *a2a.Message) a2a.Event {
	return &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateWorking, Message: m}}
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	fail := fmt.Errorf("wrapped: %w", executor.Permanent(errors.New("cannot")))
	newFixture(t).failsAtOnce(failing(fail, chunk("kept", "1")), "wrapped: cannot", true)
}

func TestInvalidEventsFailTheTask(t *testing.T) {
	t.Parallel()
	for _, tt := range invalidEvents {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := say(append([]a2a.Event{chunk("kept", "1")}, tt.events...)...)
			// PostgreSQL refuses an event together with the earlier ones of its batch.
			newFixture(t).failsAtOnce(e, "invalid agent response: "+tt.text, tt.text != refusedByPostgres)
		})
	}
}

// failsAtOnce runs a task that must fail at its first attempt, with a text that begins with this one. The chunk
// "kept" is recorded if kept is true.
func (f *fixture) failsAtOnce(e executor.Executor, text string, kept bool) {
	f.t.Helper()
	p := f.start(config(nil, agent("a", e)))
	task := f.submit("a", "x")
	got := f.waitState(task, a2a.StateFailed)
	if s := statusText(got); !strings.HasPrefix(s, text) {
		f.t.Errorf("the client gets %q, want %q", s, text)
	}
	same(f.t, "outcomes", []string{"failed"}, f.outcomes(task))
	if kept {
		same(f.t, "earlier artifacts", []a2a.Artifact{chunk("kept", "1").Artifact}, got.Artifacts)
	}
	p.stop()
}
