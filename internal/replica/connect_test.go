package replica

import (
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/a2ad/a2ad/internal/rpc"
)

// TestBorrowedListenerServesAgain: after a borrower stops, another server can use the listener.
func TestBorrowedListenerServesAgain(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for range 3 {
		stop := borrow(l, nil, rpc.Starting())
		resp, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body) //nolint:errcheck // the status is what counts
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("it answers %s", resp.Status)
		}
		stop()
	}
	stop := borrow(l, nil, rpc.Starting()) // stopped before it begins
	stop()
}
