package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/store/db"
)

func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *engine.Config) { c.MaxStreams, c.MaxStreamsPerOwner = 3, 2 })
	bob := db.Caller{Tenant: "acme", Owner: "bob"}
	eve := db.Caller{Tenant: "acme", Owner: "eve"}
	open := func(c db.Caller) (*engine.Stream, error) { return r.Stream(t.Context(), c, words, send("x")) }
	must := func(c db.Caller) *engine.Stream {
		t.Helper()
		s, err := open(c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, second := must(ann), must(ann)
	_, err := open(ann)
	wantCode(t, "a third one of one owner", err, a2a.CodeRateLimited)
	_, err = r.Subscribe(t.Context(), ann, words, &a2a.Subscribe{ID: first.TaskID.String()})
	wantCode(t, "a subscription", err, a2a.CodeRateLimited)
	third := must(bob)
	_, err = open(eve)
	wantCode(t, "a fourth one", err, a2a.CodeUnavailable)
	if page, err := r.List(t.Context(), eve, words, &a2a.ListTasks{}); err != nil || page.Total != 0 {
		t.Errorf("a refused stream left %d tasks, %v", page.Total, err)
	}
	first.Close()
	first.Close() // the second Close has no effect
	fourth := must(eve)
	for _, s := range []*engine.Stream{second, third, fourth} {
		s.Close()
	}
	if n := r.Streams(); n != 0 {
		t.Errorf("%d streams are open, want none", n)
	}
}

func TestStreamReadsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := r.Stream(t.Context(), ann, words, send("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	next(t, s)
	cause := errors.New("ping")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := s.Next(ctx); !errors.Is(err, cause) {
		t.Errorf("Next = %v, want the cause", err)
	}
	r.append(r.claim(), status(a2a.StateCompleted, ""))
	if got := frames(t, s, "2 3!"); got != "2 3!" { // the stream lost nothing
		t.Errorf("got %s, want 2 3!", got)
	}
}
