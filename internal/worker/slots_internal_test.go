package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/store/tasks"
)

func TestLoadSumsTheUseOfSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, q := newSlots(4, 4, 0), &queue{demand: &demand{most: maxClaim}}
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
	s, q := newSlots(4, 4, 100), &queue{demand: &demand{most: maxClaim}}
	s.open()
	s.expectBacklog(q)
	if n := s.reserveForClaim(q); n != 4 {
		t.Fatalf("%d slots are free, want 4", n)
	}
	s.started(q, 60)
	if n := s.fit(q, []tasks.Lease{{Bytes: 30}, {Bytes: 80}, {Bytes: 1}}); n != 1 {
		t.Errorf("%d tasks fit, want 1", n)
	}
	if n := s.fit(q, []tasks.Lease{{Bytes: 80}, {Bytes: 1}}); n != 1 {
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

// A claim of tasks that do not fit is followed by a claim of one. Claims grow again while memory is free.
func TestClaimsTakeAsManyTasksAsFit(t *testing.T) {
	t.Parallel()
	s, q := newSlots(1000, 1000, 100), &queue{demand: &demand{most: maxClaim}}
	s.open()
	claim := func(want, fit int) {
		t.Helper()
		n := s.reserveForClaim(q)
		if n != want {
			t.Fatalf("claimed %d tasks, want %d", n, want)
		}
		got := s.fit(q, slices.Repeat([]tasks.Lease{{Bytes: 10}}, n))
		if got != fit {
			t.Fatalf("%d of %d tasks fit, want %d", got, n, fit)
		}
		s.release(q, n-got)
		for range got {
			s.started(q, 10)
		}
	}
	end := func(runs int) {
		for range runs {
			s.executorEnded(q)
			s.finished(10)
		}
	}
	claim(256, 10)
	if !q.backlog {
		t.Error("tasks that were released may be overtaken by new ones")
	}
	claim(0, 0)
	for range 3 {
		end(1)
		claim(1, 1)
	}
	end(10)
	claim(1, 1) // 90 bytes are free after it
	claim(2, 2) // 70
	claim(4, 4) // 30: too few for eight
	claim(1, 1) // 20
	claim(2, 2) // 0
	end(10)
}
