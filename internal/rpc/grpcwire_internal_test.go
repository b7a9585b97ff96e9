package rpc

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/a2ad/a2ad/internal/budget"
)

// trickle returns its data in pieces, and checks that memory was drawn for each piece first.
type trickle struct {
	t     *testing.T
	from  *bytes.Reader
	lease *budget.Lease
	given int64
	piece int
}

func (s *trickle) Read(p []byte) (int, error) {
	p = p[:min(len(p), s.piece)]
	if held := s.lease.Held(); held < 2*(s.given+int64(len(p))) {
		s.t.Errorf("%d bytes were drawn, but %d were read", held, s.given+int64(len(p)))
	}
	n, err := s.from.Read(p)
	s.given += int64(n)
	return n, err
}

func (*trickle) Close() error { return nil }

// newTestBody returns the body of a call. After the message of size bytes, which arrives in pieces,
// come more bytes.
func newTestBody(t *testing.T, b *budget.Budget, size, piece int, most int64) (*callBody, *trickle, *budget.Lease) {
	t.Helper()
	message := append([]byte{0, 0, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size+100)...)
	lease := b.Open(budget.Owner{Name: "o"})
	from := &trickle{t: t, from: bytes.NewReader(message), lease: lease, piece: piece}
	r := (&http.Request{Body: from}).WithContext(t.Context())
	return newCallBody(r, most, func() {}), from, lease
}

// TestCallBodyDrawsBeforeItReads: gRPC allocates 16 KiB for each read, however few bytes it
// returns.
func TestCallBodyDrawsBeforeItReads(t *testing.T) {
	t.Parallel()
	const buffer = 16 << 10
	for _, piece := range []int{1, 7, 1000, 1 << 20} {
		for _, size := range []int{0, 1, buffer - 5, buffer - 4, 3*buffer + 17} {
			body, from, lease := newTestBody(t, budget.New(budget.Config{Total: 16 << 20}), size, piece, 1<<20)
			body.pay(lease)
			reads, got := 0, 0
			for p := make([]byte, buffer); ; reads++ {
				n, err := body.Read(p)
				got += n
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if want := (size + 5 + buffer - 1) / buffer; got != size+5 || reads != want || from.given != int64(got) {
				t.Errorf("%d bytes in pieces of %d: got %d of %d bytes in %d reads, want %d reads", size, piece, got,
					from.given, reads, want)
			}
			if err := body.finish(); err != nil {
				t.Error(err)
			}
			lease.Release()
		}
	}
}

// TestCallBodyRefusesByTheHead: the header is enough to refuse a message that is too large.
func TestCallBodyRefusesByTheHead(t *testing.T) {
	t.Parallel()
	body, from, lease := newTestBody(t, budget.New(budget.Config{}), 2000, 1<<20, 1999)
	body.pay(lease)
	n, err := body.Read(make([]byte, 16<<10))
	if _, next := body.Read(make([]byte, 16<<10)); n != 5 || err != nil || !errors.Is(next, io.EOF) || from.given != 5 {
		t.Errorf("got %d bytes, %v, then %v", n, err, next)
	}
	lease.Release()
}

// TestCallBodyWaitsToBePaidFor: nothing is read before it is known whose memory it takes. The end
// of the call ends this wait, and also a wait for memory.
func TestCallBodyWaitsToBePaidFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(budget.Config{Total: budget.Least})
		full := b.Open(budget.Owner{Name: "other"})
		if err := full.Grow(t.Context(), full.Most()); err != nil {
			t.Fatal(err)
		}
		rest := b.Open(budget.Owner{Name: "another"})
		if err := rest.Grow(t.Context(), rest.Most()/3); err != nil {
			t.Fatal(err)
		}
		for _, paid := range []bool{false, true} {
			body, from, lease := newTestBody(t, b, 100<<10, 1<<20, 1<<20)
			failed := make(chan error, 1)
			go func() {
				for {
					if _, err := body.Read(make([]byte, 64<<10)); err != nil {
						failed <- err
						return
					}
				}
			}()
			if paid {
				body.pay(lease)
			}
			synctest.Wait()
			if from.given != 0 {
				t.Errorf("paid %v: %d bytes were read", paid, from.given)
			}
			if err := body.finish(); paid && !errors.Is(err, errCallOver) || !paid && err != nil {
				t.Error(err)
			}
			if err := <-failed; !errors.Is(err, errCallOver) {
				t.Errorf("paid %v: the read failed with %v", paid, err)
			}
			lease.Release()
		}
		full.Release()
		rest.Release()
		if used := b.Stats().Used; used != 0 {
			t.Errorf("%d bytes are still drawn", used)
		}
	})
}

// TestCallBodyMakesNoRoomAfterItsEnd: the call may have its lease after the request has ended. By
// then net/http does not allow access to the request.
func TestCallBodyMakesNoRoomAfterItsEnd(t *testing.T) {
	t.Parallel()
	body, _, lease := newTestBody(t, budget.New(budget.Config{}), 2000, 1<<20, 1<<20)
	evicted := 0
	body.evict = func() { evicted++ }
	body.pay(lease)
	body.makeRoom()
	if err := body.Close(); err != nil {
		t.Fatal(err)
	}
	body.makeRoom()
	if evicted != 1 {
		t.Errorf("reads were made to fail %d times, want once, before Close", evicted)
	}
	lease.Release()
}
