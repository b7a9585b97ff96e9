package tail_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/notify"
	"github.com/a2ad/a2ad/internal/store/operate"
	"github.com/a2ad/a2ad/internal/tail"
	"github.com/a2ad/a2ad/internal/wake"
)

// rig is a Tail of tasks that need no database.
type rig struct {
	*tail.Tail
	t     *testing.T
	hub   *notify.Hub
	reads int   // searches so far
	fails error // what the next searches return
}

// run calls test with a Tail, in a bubble.
func run(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, hub: &notify.Hub{}}
		r.Tail = tail.New(r.search, r.hub, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }() //nolint:errcheck // it only returns nil
		synctest.Wait()
		test(r)
		cancel()
		<-done
	})
}

func (r *rig) search(_ context.Context, f operate.TaskSearch) (found []operate.FoundTask, err error) {
	r.reads++
	if r.fails != nil {
		return nil, r.fails
	}
	slices.SortFunc(f.IDs, func(x, y a2a.ID) int { return slices.Compare(y[:], x[:]) }) // the newest first
	for _, id := range f.IDs {
		found = append(found, operate.FoundTask{TaskRow: operate.TaskRow{ID: id}})
	}
	return found, nil
}

func id(n int) (id a2a.ID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// change wakes the keys of tasks.
func (r *rig) change(from, to int) {
	for n := from; n <= to; n++ {
		r.hub.Wake(wake.Task(id(n)))
	}
}

// want reads changes of the tasks with these numbers; 0 is one that says that others are missing. It returns the id of
// the last one.
func (r *rig) want(f *tail.Follower, numbers ...int) (last string) {
	r.t.Helper()
	var got []int
	for len(got) < len(numbers) {
		list, err := f.Next(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		for _, c := range list {
			n := 0
			if !c.Missed {
				n = int(binary.BigEndian.Uint64(c.Task.ID[8:]))
			}
			got, last = append(got, n), c.ID
		}
	}
	if !slices.Equal(got, numbers) {
		r.t.Errorf("the changes are of %v, want %v", got, numbers)
	}
	return last
}

func TestFollowersShareReads(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		r.change(1, 1) // nobody follows
		synctest.Wait()
		if r.reads != 0 {
			t.Errorf("%d reads without a follower", r.reads)
		}
		a, b := r.Follow(""), r.Follow("")
		defer a.Close()
		defer b.Close()
		r.change(2, 2)
		r.want(a, 2)
		r.change(3, 5)
		r.change(3, 5) // within the pace: one read
		r.want(a, 3, 4, 5)
		r.want(b, 2, 3, 4, 5)
		if r.reads != 2 {
			t.Errorf("%d reads, want 2", r.reads)
		}
	})
}

func TestFollowerComesBack(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		stays, a := r.Follow(""), r.Follow("")
		r.change(1, 1)
		seen := r.want(a, 1)
		a.Close()
		r.change(2, 2)
		r.want(stays, 1, 2)
		a = r.Follow(seen)
		seen = r.want(a, 2)
		for _, unknown := range []string{"00000000-0", "x", seen + "0"} {
			f := r.Follow(unknown)
			r.want(f, 0)
			f.Close()
		}
		a.Close()
		stays.Close() // nothing is collected from now on
		r.change(3, 3)
		synctest.Wait()
		a = r.Follow(seen)
		r.want(a, 0)
		r.change(4, 4)
		r.want(a, 4)
		a.Close()
	})
}

// What was not read is said, in its place.
func TestMissedChangesAreSaid(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		f := r.Follow("")
		defer f.Close()
		r.hub.WakeAll() // the connection for wake-ups was lost
		r.want(f, 0)
		r.fails = errors.New("the database is away")
		r.change(1, 1)
		r.want(f, 0)
		r.fails = nil
		r.change(2, 2)
		r.want(f, 2)
	})
}

// Memory is bounded: a follower that does not read is cut off, and too many changes at once are said to be missed.
func TestSlowFollowerIsCutOff(t *testing.T) {
	t.Parallel()
	run(t, func(r *rig) {
		slow, quick := r.Follow(""), r.Follow("")
		defer slow.Close()
		defer quick.Close()
		for from := 1; from < 4500; from += 500 {
			r.change(from, from+499)
			n := 0
			for n < 500 {
				list, err := quick.Next(r.t.Context())
				if err != nil {
					t.Fatal(err)
				}
				n += len(list)
			}
		}
		if _, err := slow.Next(r.t.Context()); !errors.Is(err, tail.ErrSlow) {
			t.Errorf("the slow follower got %v", err)
		}
		r.change(1, 10_000)
		list, err := quick.Next(r.t.Context())
		if err != nil || !list[0].Missed || len(list) != 501 {
			t.Errorf("%d changes, the first %+v, %v", len(list), list[0], err)
		}
	})
}
