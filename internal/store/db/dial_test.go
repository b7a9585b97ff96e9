package db_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/store/db"
)

// pipes returns a dialer of connections on which the other side says nothing, and a channel with the other sides.
func pipes(t *testing.T, limit time.Duration, lost func(bool)) (dial db.DialFunc, far <-chan net.Conn) {
	made := make(chan net.Conn, 10)
	return db.Dialer(limit, lost, func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		made <- theirs
		return ours, nil
	}), made
}

// A connection is closed if nothing was read for the limit, even if the deadline of the driver is later.
func TestReadsOfASilentConnectionEnd(t *testing.T) {
	t.Parallel()
	const limit = 9 * time.Second
	for name, tt := range map[string]struct {
		limit    time.Duration
		deadline time.Duration // of the driver; 0: none
		want     time.Duration
		silent   bool // the error is no timeout: the driver would take one for its own
	}{
		"no deadline":                     {limit, 0, limit, true},
		"the driver's deadline is sooner": {limit, time.Second, time.Second, false},
		"the driver says goodbye":         {limit, 15 * time.Second, 2 * time.Second, false},
		"the listener waits":              {0, 30 * time.Second, 30 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lost := make(chan bool, 1)
				dial, far := pipes(t, tt.limit, func(silent bool) { lost <- silent })
				conn, err := dial(t.Context(), "tcp", "db:5432")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				go io.WriteString(<-far, "x") //nolint:errcheck // the read below shows whether it worked
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				if tt.deadline > 0 {
					if err := conn.SetDeadline(time.Now().Add(tt.deadline)); err != nil {
						t.Fatal(err)
					}
				}
				begin := time.Now()
				_, err = conn.Read(make([]byte, 1))
				if took := time.Since(begin); took != tt.want || errors.Is(err, os.ErrDeadlineExceeded) == tt.silent {
					t.Errorf("Read ended after %v with %v, want %v", took, err, tt.want)
				}
				_, err = conn.Write([]byte("x"))
				if open := err == nil || errors.Is(err, os.ErrDeadlineExceeded); open != (tt.limit == 0) {
					t.Errorf("Write = %v afterwards", err)
				}
				if tt.limit > 0 && <-lost != tt.silent {
					t.Errorf("silent = %v, want %v", !tt.silent, tt.silent)
				}
			})
		})
	}
}

func TestWritesToASilentConnectionEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial, _ := pipes(t, 9*time.Second, func(bool) {})
		conn, err := dial(t.Context(), "tcp", "db:5432")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := conn.Write(make([]byte, 1<<20)); err == nil || time.Since(begin) != 9*time.Second {
			t.Errorf("Write = %v after %v", err, time.Since(begin))
		}
	})
}

// The driver sends a cancel request to the address of the connection. It ends in time, and is not sent for a silent
// connection.
func TestCancelRequestsEndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial, _ := pipes(t, 9*time.Second, func(bool) {})
		conn, err := dial(t.Context(), "tcp", "db:5432")
		if err != nil {
			t.Fatal(err)
		}
		at := conn.RemoteAddr()
		request, err := dial(t.Context(), at.Network(), at.String())
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := request.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) ||
			time.Since(begin) != time.Second {
			t.Errorf("a cancel request ended after %v with %v", time.Since(begin), err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("Read = %v, want that the connection was closed", err)
		}
		at = conn.RemoteAddr()
		if _, err := dial(t.Context(), at.Network(), at.String()); err == nil {
			t.Error("a cancel request was sent for a silent connection")
		}
	})
}
