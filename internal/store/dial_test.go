package store_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/store"
)

// A cancel request to a PostgreSQL that takes connections and says nothing ends in good time;
// a connection for statements has no deadline.
func TestCancelRequestsEndInGoodTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit, driver = 2 * time.Second, 15 * time.Second
		silent := func(ctx context.Context, _, _ string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			t.Cleanup(func() { theirs.Close() })
			return ours, ctx.Err()
		}
		away := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		dial := func(to func(context.Context, string, string) (net.Conn, error), within time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return store.BoundCancels(to, limit)(ctx, "tcp", "db:5432")
		}
		read := func(conn net.Conn) (took time.Duration, err error) {
			begin := time.Now()
			closing := time.AfterFunc(time.Minute, func() { conn.Close() })
			defer closing.Stop()
			_, err = conn.Read(make([]byte, 1))
			return time.Since(begin), err
		}
		request, err := dial(silent, driver)
		if err != nil {
			t.Fatal(err)
		}
		if took, err := read(request); took != limit || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a cancel request ended after %v with %v, want %v and its deadline", took, err, limit)
		}
		conn, err := dial(silent, limit)
		if err != nil {
			t.Fatal(err)
		}
		if took, err := read(conn); took != time.Minute || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection ended after %v with %v, want no deadline", took, err)
		}
		begin := time.Now()
		if _, err := dial(away, driver); err == nil || time.Since(begin) != limit {
			t.Errorf("dialing for a cancel request took %v, %v", time.Since(begin), err)
		}
	})
}
