package budget

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// stalled is a body that stops after its first bytes, until it is stopped.
type stalled struct {
	data []byte
	stop chan struct{}
	once sync.Once
}

func (s *stalled) Read(p []byte) (int, error) {
	if len(s.data) > 0 {
		n := copy(p, s.data)
		s.data = s.data[n:]
		return n, nil
	}
	<-s.stop
	return 0, errors.New("stopped")
}

func (s *stalled) end() { s.once.Do(func() { close(s.stop) }) }

// TestStalledBodiesMakeRoomForOthers: one owner has 100 bodies that lack their last byte. Another
// owner sends a body of the same size. The body that has waited longest is evicted first.
func TestStalledBodiesMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(64 * mib)
		var wg sync.WaitGroup
		var mu sync.Mutex
		counts := map[a2a.ErrorCode]int{}
		var bodies []*stalled
		for range 100 {
			r := &stalled{data: make([]byte, 4*mib-1), stop: make(chan struct{})}
			bodies = append(bodies, r)
			wg.Go(func() {
				l := b.Open(ann())
				defer l.Release()
				_, err := ReadAll(t.Context(), l, r, 4*mib, r.end)
				mu.Lock()
				defer mu.Unlock()
				counts[a2a.CodeOf(err)]++
			})
		}
		time.Sleep(3 * time.Second)
		if s := b.Stats(); s.Arriving > b.arrivalPart() || s.Arriving < mib {
			t.Errorf("%d bytes arrive", s.Arriving)
		}
		start := time.Now()
		l := b.Open(bob())
		body, err := ReadAll(t.Context(), l, io.LimitReader(zeros{}, 4*mib), 4*mib, func() { t.Error("evicted") })
		if err != nil || len(body) != 4*mib || time.Since(start) > DefaultWait {
			t.Errorf("another owner's body: %d bytes, %v after %s", len(body), err, time.Since(start))
		}
		l.Release()
		for _, r := range bodies {
			r.end()
		}
		wg.Wait()
		empty(t, b)
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestGrowingBodiesDoNotWaitForEachOther: bodies fill half of their part of the budget, and all of
// them need to grow. Some are evicted, and the others complete.
func TestGrowingBodiesDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(32 * mib)
		var wg sync.WaitGroup
		var mu sync.Mutex
		done := 0
		start := make(chan struct{})
		for range 12 {
			wg.Go(func() {
				l := b.Open(ann())
				defer l.Release()
				stop := make(chan struct{})
				r := io.MultiReader(io.LimitReader(zeros{}, mib/2), &gated{start, stop},
					io.LimitReader(zeros{}, 5*mib/2))
				if _, err := ReadAll(t.Context(), l, r, 3*mib, func() { close(stop) }); err == nil {
					mu.Lock()
					defer mu.Unlock()
					done++
				}
			})
		}
		synctest.Wait()
		close(start)
		wg.Wait()
		if done == 0 {
			t.Error("no body was completed")
		}
		empty(t, b)
	})
}

type gated struct{ open, stop chan struct{} }

func (g *gated) Read([]byte) (int, error) {
	select {
	case <-g.open:
		return 0, io.EOF
	case <-g.stop:
		return 0, errors.New("stopped")
	}
}

// TestBodyMemoryGrowsWithTheReceivedBytes: it does not grow with the announced size.
func TestBodyMemoryGrowsWithTheReceivedBytes(t *testing.T) {
	t.Parallel()
	b := newTest(64 * mib)
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000, 3 * mib} {
		for _, hint := range []int64{-1, int64(size), 4 * mib} {
			l := b.Open(ann())
			want := bytes.Repeat([]byte("x"), size)
			r := &measured{r: bytes.NewReader(want), l: l}
			got, err := ReadAll(t.Context(), l, r, hint, nil)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, hint %d: %d bytes, %v", size, hint, len(got), err)
			}
			if r.most > 4096 {
				t.Errorf("%d bytes, hint %d: %d bytes were held before they arrived", size, hint, r.most)
			}
			l.Release()
		}
	}
	empty(t, b)
}

// measured records how much more is held than twice what was received.
type measured struct {
	r    io.Reader
	l    *Lease
	n    int64
	most int64
}

func (m *measured) Read(p []byte) (int, error) {
	m.most = max(m.most, m.l.Held()-2*m.n)
	n, err := m.r.Read(p)
	m.n += int64(n)
	return n, err
}
