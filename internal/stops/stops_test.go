package stops_test

import (
	"log/slog"
	"testing"

	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/stops"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func TestViewFollowsWhatOperatorsStop(t *testing.T) {
	t.Parallel()
	hub := &notify.Hub{}
	s, err := store.Open(t.Context(), store.Config{Config: db.Config{
		URL: storetest.New(t).URL, Replica: "r1", PoolSize: 4, Wake: hub.Wake,
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v := stops.New(s.Tasks, hub, slog.New(slog.DiscardHandler))
	changed := make(chan struct{}, 10)
	v.OnChange(func() { changed <- struct{}{} })
	if v.MayStart("words", "r1") || v.Drained("w1") {
		t.Error("it knows something before it has read")
	}
	done := make(chan error, 1)
	go func() { done <- v.Run(t.Context()) }()
	<-changed // its first read
	if !v.MayStart("words", "r1") {
		t.Error("nothing is stopped, and words may not start")
	}
	for _, step := range []struct {
		kind                       tasks.Stoppable
		name                       string
		mayStart, other, w1Drained bool
	}{
		{tasks.StopAgent, "words", false, true, false},
		{tasks.StopWorker, "w1", true, true, true},
		{tasks.StopWorker, "r1", false, false, false},
	} {
		if _, _, err := s.Tasks.BeginStop(t.Context(), step.kind, step.name, false); err != nil {
			t.Fatal(err)
		}
		<-changed
		got := [3]bool{v.MayStart("words", "r1"), v.MayStart("other", "r1"), v.Drained("w1")}
		if got != [3]bool{step.mayStart, step.other, step.w1Drained} {
			t.Errorf("%s %s is stopped: %v", step.kind, step.name, got)
		}
		if _, err := s.Tasks.EndStop(t.Context(), step.kind, step.name); err != nil {
			t.Fatal(err)
		}
		<-changed
		if !v.MayStart("words", "r1") || v.Drained("w1") {
			t.Errorf("%s %s was resumed, and is still stopped", step.kind, step.name)
		}
	}
}
