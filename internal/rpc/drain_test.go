package rpc_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
)

// TestRequestOnItsWayIsAnsweredWhileDraining has two connections from before the server began to
// stop. One is so old that net/http would close it at once, and sends its request only now. The
// other is so young that net/http would wait seconds for it, and never sends a request.
func TestRequestOnItsWayIsAnsweredWhileDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := rpc.New(rpc.Config{
			Authenticator: auth.Anonymous{}, V03: v03.Codec{}, Agents: []*a2a.Agent{{Name: "echo", Default: true}},
			PublicURL:         "http://x",
			ReadHeaderTimeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		l := bufconn.Listen(1 << 16) // in this process, so that the test controls time
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l, 10*time.Second) }()
		dial := func() net.Conn {
			conn, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		early := dial()
		time.Sleep(6 * time.Second)
		silent := dial()
		stopped := time.Now()
		stop()
		synctest.Wait()
		ask(t, early)
		early.Close()
		if n, err := silent.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("a connection without a request: got %d bytes, %v, want io.EOF", n, err)
		}
		if err := <-served; err != nil || time.Since(stopped) > 2*time.Second {
			t.Errorf("Serve returned %v, %s after the stop", err, time.Since(stopped))
		}
	})
}

// ask reads the card over conn.
func ask(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v", resp.StatusCode, err)
	}
}
