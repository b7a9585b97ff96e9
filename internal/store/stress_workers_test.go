package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/store"
	"github.com/a2ad/a2ad/internal/store/db"
	"github.com/a2ad/a2ad/internal/store/storetest"
	"github.com/a2ad/a2ad/internal/store/tasks"
)

func (s *stress) claimer(ctx context.Context, st *store.Store, work chan<- tasks.Lease) {
	c := st.Tasks.NewClaimer()
	for ctx.Err() == nil {
		leases, err := c.Claim(s.T.Context(), storetest.Agent, 4, stressTTL, time.Minute)
		s.fail("claim", err)
		_, err = st.Tasks.Inputs(s.T.Context(), leases)
		s.fail("inputs", err)
		for _, l := range leases {
			work <- l
		}
	}
}

// worker runs tasks. Some runs die, some continue after their lease expired, and some of the dead write later.
func (s *stress) worker(ctx context.Context, st *store.Store, r *rand.Rand, work <-chan tasks.Lease) {
	for l := range work {
		s.run(ctx, st, r, &l)
		if r.IntN(2) == 0 {
			s.zombie(st, r)
		}
	}
}

// run makes random calls under a lease, until one of them ends it.
func (s *stress) run(ctx context.Context, st *store.Store, r *rand.Rand, l *tasks.Lease) {
	for {
		var err error
		text := fmt.Sprint(l.Epoch, "-", l.LastSeq)
		switch r.IntN(20) {
		case 0: // dies
			s.mu.Lock()
			s.dead[st] = append(s.dead[st], l)
			s.mu.Unlock()
			return
		case 1: // writes nothing until its lease has expired
			select {
			case <-time.After(stressTTL + 20*time.Millisecond):
			case <-ctx.Done():
			}
		case 2:
			err = st.Tasks.Retry(s.T.Context(), l, "again", time.Duration(r.IntN(20))*time.Millisecond)
			if err == nil {
				return
			}
		case 3:
			s.fail("release", st.Tasks.Release(s.T.Context(), []*tasks.Lease{l}, "given back"))
			return
		case 4, 5:
			held, err := st.Tasks.Renew(s.T.Context(), []*tasks.Lease{l}, stressTTL)
			s.fail("renew", err)
			if err == nil && held[0] == tasks.Lost {
				s.zombieWrite(st, l)
				return
			}
		case 6, 7, 8, 9:
			ends := []a2a.State{a2a.StateCompleted, a2a.StateCompleted, a2a.StateInputRequired, a2a.StateFailed}
			b := storetest.Batch(storetest.Chunk("a", text), storetest.Status(ends[r.IntN(4)], text))
			var out tasks.Appended
			if out, err = st.Tasks.Append(s.T.Context(), l, b); err == nil {
				s.ack(l, out, text)
				return
			}
		default:
			b := storetest.Batch(storetest.Chunk("a", text), storetest.Status(a2a.StateWorking, text))
			if r.IntN(3) == 0 {
				b.Checkpoint = a2a.Raw(fmt.Sprintf("%q", text))
			}
			var out tasks.Appended
			if out, err = st.Tasks.Append(s.T.Context(), l, b); err == nil {
				s.ack(l, out, text)
			}
		}
		switch {
		case errors.Is(err, db.ErrLeaseLost):
			s.refused.Add(1)
			return
		case err != nil:
			s.fail("run", err)
			return
		}
	}
}

// ack records that an append was acknowledged.
func (s *stress) ack(l *tasks.Lease, out tasks.Appended, text string) {
	s.batches.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked[l.TaskID] == nil {
		s.acked[l.TaskID] = make(map[int64]string)
	}
	s.acked[l.TaskID][out.Base+1] = text
}

// zombie lets a dead worker write. If its lease has not expired yet, that ends the task.
func (s *stress) zombie(st *store.Store, r *rand.Rand) {
	s.mu.Lock()
	dead := s.dead[st]
	if len(dead) == 0 {
		s.mu.Unlock()
		return
	}
	i := r.IntN(len(dead))
	l := dead[i]
	s.dead[st] = slices.Delete(dead, i, i+1)
	s.mu.Unlock()
	s.zombieWrite(st, l)
}

// zombieWrite ends the task under a lease that may be lost.
func (s *stress) zombieWrite(st *store.Store, l *tasks.Lease) {
	b := storetest.Batch(storetest.Chunk("a", "zombie"), storetest.Status(a2a.StateCompleted, "zombie"))
	switch out, err := st.Tasks.Append(s.T.Context(), l, b); {
	case err == nil:
		s.ack(l, out, "zombie")
	case errors.Is(err, db.ErrLeaseLost):
		s.refused.Add(1)
	default:
		s.fail("zombie", err)
	}
}
