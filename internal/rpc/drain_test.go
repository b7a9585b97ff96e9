package rpc_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/wire/v03"
)

// TestRequestOnItsWayIsAnsweredWhileDraining has a connection that was accepted before the
// server began to stop, and brings its request after.
func TestRequestOnItsWayIsAnsweredWhileDraining(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := rpc.New(rpc.Config{
		Authenticator: auth.Anonymous{}, V03: v03.Codec{}, Agents: []*a2a.Agent{{Name: "echo", Default: true}}, PublicURL: "http://x",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l, 10*time.Second) }()

	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	early, silent, later := dial(), dial(), dial()
	defer early.Close()
	defer silent.Close()
	defer later.Close()
	ask(t, later) // connections are accepted in their order, so the others are too
	stop()
	for {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break // it listens no more
		}
		conn.Close()
	}
	ask(t, early)
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if n, err := silent.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a connection without a request: %d bytes, %v, want its end", n, err)
	}
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
