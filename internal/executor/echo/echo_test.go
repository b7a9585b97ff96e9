package echo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/echo"
)

func text(s string) a2a.Part { return a2a.Part{Kind: a2a.PartText, Text: s} }

func message(id string, parts ...a2a.Part) a2a.Message {
	return a2a.Message{ID: id, Role: a2a.RoleUser, Parts: parts}
}

func completed() a2a.Event {
	return &a2a.StatusUpdate{Status: a2a.Status{State: a2a.StateCompleted}}
}

func TestEcho(t *testing.T) {
	t.Parallel()
	all := []a2a.Part{
		text("a"), {Kind: a2a.PartData, Data: a2a.Raw(`{"n":1e131071}`), Metadata: a2a.Raw(`{"k":1}`)},
		{Kind: a2a.PartURL, Text: "https://example.com/x", MediaType: "image/png", Filename: "x"},
	}
	one := message("1", text("hello"))
	for _, tc := range []struct {
		name string
		run  executor.Run
		want []a2a.Event
	}{
		{"one text part", executor.Run{Task: a2a.Task{History: []a2a.Message{one}}, Messages: []a2a.Message{one}},
			[]a2a.Event{whole("echo-1", text("hello")), completed()}},
		{"all parts as they are", executor.Run{Messages: []a2a.Message{message("1", all...)}},
			[]a2a.Event{whole("echo-1", all...), completed()}},
		{"second turn", executor.Run{Task: a2a.Task{History: []a2a.Message{one, message("1", text("again"))}},
			Messages: []a2a.Message{message("1", text("again"))}},
			[]a2a.Event{whole("echo-2", text("again")), completed()}},
		{"two messages", executor.Run{Messages: []a2a.Message{one, message("2", text("there"))}},
			[]a2a.Event{whole("echo-1", text("hello"), text("there")), completed()}},
		{"second attempt", executor.Run{Task: a2a.Task{Artifacts: []a2a.Artifact{{ID: "echo-1", Parts: one.Parts}}},
			Messages: []a2a.Message{one}, Attempt: 2},
			[]a2a.Event{completed()}},
	} {
		var got []a2a.Event
		for e, err := range (echo.Executor{}).Execute(t.Context(), tc.run) {
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			got = append(got, e)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func whole(id string, parts ...a2a.Part) a2a.Event {
	return &a2a.ArtifactUpdate{Artifact: a2a.Artifact{ID: id, Parts: parts}, LastChunk: true}
}

func TestEchoWithoutAMessageFails(t *testing.T) {
	t.Parallel()
	for _, err := range (echo.Executor{}).Execute(t.Context(), executor.Run{}) {
		if !executor.IsPermanent(err) {
			t.Errorf("got %v, want a permanent error", err)
		}
	}
}

func TestEchoStopsWhenItsCallerDoes(t *testing.T) {
	t.Parallel()
	for _, err := range (echo.Executor{}).Execute(t.Context(),
		executor.Run{Messages: []a2a.Message{message("1", text("x"))}}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
}
