package answer_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/a2a/a2atest"
	"github.com/a2ad/a2ad/internal/wire/answer"
)

// What our codecs write is read back whole from a store, in both generations, and nothing in it is unknown.
func TestStoredTasksAreReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		task := a2atest.Task().Draw(t, "task")
		ids := make(map[string]bool)
		for i := range task.Artifacts {
			if ids[task.Artifacts[i].ID] {
				t.Skip("a store has each artifact once")
			}
			ids[task.Artifacts[i].ID] = true
		}
		for _, c := range codecs {
			want := answer.Task{ID: task.ID.String(), ContextID: task.ContextID, Status: task.Status,
				Artifacts: task.Artifacts, History: task.History, Metadata: task.Metadata}
			got, err := answer.DecodeStored(c.AppendTask(nil, &task))
			if diff := cmp.Diff(want, got.Task, same); err != nil || diff != "" || len(got.Unknown) > 0 {
				t.Fatalf("%s: %v, unknown %q, task (-want +got):\n%s", c.Version(), err, got.Unknown, diff)
			}
		}
	})
}

func TestStoredTaskKeepsWhatAnAnswerLoses(t *testing.T) {
	t.Parallel()
	got, err := answer.DecodeStored([]byte(`{"id":"x",
		"status":{"state":"completed","timestamp":"2025-03-04T05:06:07.5"},
		"history":[{"role":"user","message_id":"m","reference_task_ids":["a","b"],"mood":1,"parts":[{"text":"x"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got.History[0].ReferenceTaskIDs); diff != "" {
		t.Error(diff)
	}
	if want := time.Date(2025, 3, 4, 5, 6, 7, 5e8, time.UTC); !got.Status.Time.Equal(want) {
		t.Errorf("the time without a zone is %s, want %s", got.Status.Time, want)
	}
	if diff := cmp.Diff([]string{"task.history[0].mood"}, got.Unknown); diff != "" {
		t.Error(diff)
	}
	if got.History[0].Role != a2a.RoleUser {
		t.Errorf("role %d", got.History[0].Role)
	}
}

// No year before 1 can be written as a timestamp of A2A, which a Protobuf Timestamp is.
func TestStoredTimeBeforeTheFirstYearIsAbsent(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"} {
		got, err := answer.DecodeStored([]byte(`{"id":"x","status":{"state":"completed","timestamp":"` + text + `"}}`))
		if err != nil || !got.Status.Time.IsZero() {
			t.Errorf("%s is read as %s, %v", text, got.Status.Time, err)
		}
	}
}
