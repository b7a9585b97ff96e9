package engine_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
)

func TestCancelStoresTheMetadataOfItsClient(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("x")
	s, err := r.Subscribe(t.Context(), ann, words, &a2a.Subscribe{ID: id.String()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	same(t, "before", "task@1 …", frames(t, s, "task@1 …"))
	said := a2a.Raw(`{"why":  "\u0000", "n":9007199254740993}`)
	if _, err := r.Cancel(t.Context(), ann, words, &a2a.CancelTask{ID: id.String(), Metadata: said}); err != nil {
		t.Fatal(err)
	}
	if e, ok := next(t, s).Item.Event.(*a2a.StatusUpdate); !ok || string(e.Metadata) != string(said) {
		t.Errorf("the cancel event is %+v, want the metadata %s", e, said)
	}
	if got, err := r.store.Tasks.CancelMetadata(t.Context(), id); err != nil || string(got) != string(said) {
		t.Errorf("CancelMetadata = %s, %v", got, err)
	}
}

func TestCancelReturnsTheTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.task("x").String()
	got, err := r.Cancel(t.Context(), ann, words, &a2a.CancelTask{ID: id})
	if err != nil || got.Status.State != a2a.StateCanceled {
		t.Fatalf("Cancel = %+v, %v", got, err)
	}
	_, err = r.Cancel(t.Context(), ann, words, &a2a.CancelTask{ID: id})
	wantCode(t, "again", err, a2a.CodeTaskNotCancelable)
	again, err := r.Cancel(t.Context(), ann, words, &a2a.CancelTask{ID: id, RepeatOK: true})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "again, where that is right", got, again)
	done := r.task("y")
	r.append(r.claim(), status(a2a.StateCompleted, ""))
	_, err = r.Cancel(t.Context(), ann, words, &a2a.CancelTask{ID: done.String(), RepeatOK: true})
	wantCode(t, "of a completed task", err, a2a.CodeTaskNotCancelable)
}
