//go:build !race

// Under the race detector sync.Pool drops buffers on purpose.

package sse_test

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/a2ad/a2ad/internal/sse"
)

func TestEventDoesNotAllocate(t *testing.T) {
	w := sse.NewWriter(&sink{header: http.Header{}}, 0)
	small, large := []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), bytes.Repeat([]byte("x"), 1<<20)
	if n := testing.AllocsPerRun(1000, func() {
		if err := errors.Join(w.Event("17-00c0ffee", small, small), w.Event("", large), w.Comment("ping")); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 { // below one: a collection may empty the pool of buffers
		t.Errorf("%v allocations per event, want none", n)
	}
}
