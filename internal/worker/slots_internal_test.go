package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestLoadSumsTheUseOfSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, q := newSlots(4, 4, 0), &queue{demand: &demand{}}
		s.open()
		start := func() {
			if !s.reserveForSubmit(q) {
				t.Fatal("no slot is free")
			}
			s.started(q, 10)
		}
		time.Sleep(time.Hour) // idle
		start()
		time.Sleep(10 * time.Second)
		start()
		time.Sleep(5 * time.Second)
		want := Load{Slots: 4, Busy: 2, Used: 20 * time.Second, Commands: 4, HeldBytes: 20}
		if got := s.load(); got != want {
			t.Errorf("load %+v, want %+v", got, want)
		}
		s.executorEnded(q)
		time.Sleep(time.Second)
		s.executorEnded(q)
		time.Sleep(time.Hour) // the ends are recorded, which uses no slot
		if got, want := s.load(), (Load{Slots: 4, Used: 21 * time.Second, Commands: 4, HeldBytes: 20}); got != want {
			t.Errorf("load %+v, want %+v", got, want)
		}
		s.finished(10)
		s.finished(10)
	})
}

// A large task does not wait until nothing else runs, which may never be.
func TestLargeTasksRunBesideOthers(t *testing.T) {
	t.Parallel()
	s, q := newSlots(4, 4, 100), &queue{demand: &demand{}}
	s.open()
	s.expectBacklog(q)
	if n := s.reserveForClaim(q); n != 4 {
		t.Fatalf("%d slots are free, want 4", n)
	}
	s.started(q, 60)
	if n := s.fit([]tasks.Lease{{Bytes: 30}, {Bytes: 80}, {Bytes: 1}}); n != 1 {
		t.Errorf("%d tasks fit, want 1", n)
	}
	if n := s.fit([]tasks.Lease{{Bytes: 80}, {Bytes: 1}}); n != 1 {
		t.Errorf("%d tasks fit, want the large one", n)
	}
	s.started(q, 80)
	s.release(q, 2)
	if s.anyFree() {
		t.Error("a slot is free, although the tasks of runs use all memory")
	}
	s.executorEnded(q)
	s.finished(60)
	if !s.anyFree() {
		t.Error("no slot is free, although there is memory again")
	}
	s.executorEnded(q)
	s.finished(80)
}
