package budget

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const mib = 1 << 20

func newTest(total int64) *Budget { return New(Config{Total: total}) }

// empty fails if anything is still drawn.
func empty(t *testing.T, b *Budget) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	leases := 0
	for _, a := range b.owners {
		leases += a.leases
	}
	if leases != 0 || b.used != 0 || b.arriving != 0 || b.freeing != 0 || b.smallUsed.Load() != 0 ||
		len(b.arrivals) != 0 || len(b.waiting) != 0 {
		t.Errorf("still drawn: %d used, %d arriving, %d freeing, %d small, %d leases, %d arrivals, %d waiting",
			b.used, b.arriving, b.freeing, b.smallUsed.Load(), leases, len(b.arrivals), len(b.waiting))
	}
}

func ann() Owner { return Owner{"t", "ann"} }
func bob() Owner { return Owner{"t", "bob"} }

func TestNilBudgetHasNoLimit(t *testing.T) {
	t.Parallel()
	var b *Budget
	l := b.Open(ann())
	body, err := ReadAll(t.Context(), l, strings.NewReader("body"), 4, nil)
	if err != nil || string(body) != "body" || l.Grow(t.Context(), 1<<60) != nil || l.Held() != 0 {
		t.Errorf("got %q, %v", body, err)
	}
	l.Shrink(1)
	l.Release()
	if From(With(t.Context(), l)) != nil {
		t.Error("From returned a lease for a context without one")
	}
}

func TestOneOwnerCannotHoldEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(64 * mib)
		var leases []*Lease
		for range 200 {
			l := b.Open(ann())
			leases = append(leases, l)
			if err := l.Grow(t.Context(), mib); err != nil {
				if a2a.CodeOf(err) != a2a.CodeRateLimited {
					t.Errorf("refused with %v", err)
				}
				break
			}
		}
		if n := int64(len(leases)-1) * mib; n > b.Share() {
			t.Errorf("one owner holds %d, want at most %d", n, b.Share())
		}
		other := b.Open(bob())
		if err := other.Grow(t.Context(), 8*mib); err != nil {
			t.Errorf("another owner: %v", err)
		}
		for _, l := range append(leases, other) {
			l.Release()
		}
		empty(t, b)
	})
}

func TestDrawLargerThanAShareIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(64 * mib)
		l := b.Open(ann())
		start := time.Now()
		if err := l.Grow(t.Context(), b.Share()+1); a2a.CodeOf(err) != a2a.CodeUnavailable || time.Since(start) != 0 {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		l.Release()
		empty(t, b)
	})
}

// TestSmallDrawsSucceedWhileTheRestIsFull: two owners hold everything, and a third one still gets
// small draws.
func TestSmallDrawsSucceedWhileTheRestIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(64 * mib)
		var held []*Lease
		for _, o := range []Owner{ann(), bob()} {
			for {
				l := b.Open(o)
				held = append(held, l)
				if l.Grow(t.Context(), mib) != nil {
					break
				}
			}
		}
		l := b.Open(Owner{"t", "cid"})
		start := time.Now()
		if err := l.Grow(t.Context(), Small); err != nil || time.Since(start) != 0 {
			t.Errorf("a small draw: %v after %s", err, time.Since(start))
		}
		err := l.Grow(t.Context(), Small+1)
		if a2a.CodeOf(err) != a2a.CodeUnavailable || time.Since(start) != DefaultWait {
			t.Errorf("a large draw: %v after %s", err, time.Since(start))
		}
		l.Release()
		for _, l := range held {
			l.Release()
		}
		empty(t, b)
	})
}

func TestWaitingDrawGetsReleasedMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(64 * mib)
		first, second := b.Open(ann()), b.Open(ann())
		if err := first.Grow(t.Context(), b.Share()); err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() { got <- second.Grow(t.Context(), mib) }()
		synctest.Wait()
		first.Release()
		if err := <-got; err != nil {
			t.Error(err)
		}
		second.Release()
		empty(t, b)
	})
}

func TestEndOfTheContextEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(64 * mib)
		first, second := b.Open(ann()), b.Open(ann())
		if err := first.Grow(t.Context(), b.Share()); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error)
		go func() { got <- second.Grow(ctx, mib) }()
		synctest.Wait()
		cancel(gone)
		if err := <-got; !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
		first.Release()
		second.Release()
		empty(t, b)
	})
}

// TestWorkNeverWaitsForWork: two leases that each hold what the other needs fail at once.
func TestWorkNeverWaitsForWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTest(64 * mib)
		x, y := b.Open(ann()), b.Open(bob())
		half := b.main / 2
		if x.Grow(t.Context(), half) != nil || y.Grow(t.Context(), half) != nil {
			t.Fatal("the first draws were refused")
		}
		start := time.Now()
		if err := x.Grow(t.Context(), mib); a2a.CodeOf(err) != a2a.CodeUnavailable || time.Since(start) != 0 {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		x.Release()
		y.Release()
		empty(t, b)
	})
}

// FuzzDraws plays requests of several owners at once and checks the invariants.
func FuzzDraws(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			b := newTest(16 * mib)
			var wg sync.WaitGroup
			over := make(chan struct{})
			go func() {
				for {
					select {
					case <-over:
						return
					case <-time.After(time.Millisecond):
						b.check(t)
					}
				}
			}()
			for i := range 60 {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() { play(t, b, rnd) })
			}
			wg.Wait()
			close(over)
			b.check(t)
			empty(t, b)
		})
	})
}

func (b *Budget) check(t *testing.T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var held, arriving int64
	for _, a := range b.owners {
		held += a.held
		arriving += a.arriving
		if a.held > b.Share() || a.arriving > b.arrivalShare() || a.held < a.arriving || a.arriving < 0 {
			t.Errorf("%v holds %d, %d of it in arrival", a.owner, a.held, a.arriving)
		}
	}
	if held != b.used || arriving != b.arriving || b.used > b.main || b.arriving > b.arrivalPart() || b.freeing < 0 {
		t.Errorf("%d used (%d), %d arriving (%d), %d freeing", b.used, held, b.arriving, arriving, b.freeing)
	}
}

// play is one request: a body that arrives in pieces or stalls, then work, then perhaps more work.
func play(t *testing.T, b *Budget, rnd *rand.Rand) {
	for range 4 {
		l := b.Open(Owner{"t", string(rune('a' + rnd.IntN(3)))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(4000))*time.Millisecond)
		stop := make(chan struct{})
		body := &pieces{rnd: rnd, left: rnd.IntN(2 * mib), stop: stop}
		if rnd.IntN(2) == 0 {
			body.left = rnd.IntN(100)
		}
		if _, err := ReadAll(ctx, l, body, int64(rnd.IntN(2*mib)-1), func() { close(stop) }); err == nil {
			for range rnd.IntN(3) {
				_ = l.Grow(ctx, int64(rnd.IntN(4*mib))) // it may be refused
				time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
				l.Shrink(int64(rnd.IntN(mib)))
			}
		}
		l.Release()
		cancel()
	}
}

type pieces struct {
	rnd  *rand.Rand
	left int
	stop chan struct{}
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-p.stop:
		return 0, errors.New("stopped")
	case <-time.After(time.Duration(p.rnd.IntN(80)) * time.Millisecond):
	}
	n := min(len(b), p.left, 1+p.rnd.IntN(mib))
	p.left -= n
	return n, nil
}

func BenchmarkSmallDraw(b *testing.B) {
	budget := newTest(256 * mib)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		l := budget.Open(ann())
		if err := l.Grow(ctx, 4096); err != nil {
			b.Fatal(err)
		}
		l.Release()
	}
}
