package rpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	"github.com/a2ad/a2ad/internal/sse"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

// overTLS accepts callers over TLS that have an address.
type overTLS struct{ auth.Anonymous }

func (o overTLS) Authenticate(r *http.Request) (auth.Principal, error) {
	if r.TLS == nil || !r.TLS.HandshakeComplete || !strings.HasPrefix(r.RemoteAddr, "127.0.0.1:") {
		return auth.Principal{}, errors.New("not over TLS")
	}
	return o.Anonymous.Authenticate(r)
}

// TestTLS: JSON-RPC, its streams and gRPC work over TLS. A stream ends when the server drains.
func TestTLS(t *testing.T) {
	t.Parallel()
	issuer := httptest.NewTLSServer(http.NotFoundHandler())
	defer issuer.Close()
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	drain, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) {
		c.Authenticator, c.Drain = overTLS{}, drain
		c.TLS = &tls.Config{Certificates: issuer.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	})
	ended := make(chan error, 2)
	var at [2]string
	for i, serve := range []func(context.Context, net.Listener, time.Duration) error{s.rpc.Serve,
		s.rpc.NewGRPC(v1.Codec{}).Serve} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at[i] = l.Addr().String()
		go func() { ended <- serve(drain, l, 5*time.Minute) }()
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	body := `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":` +
		client{t: t, dialect: dialects[1]}.message("", "", `{"op":"hang"}`, false) + `}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+at[0], strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"}}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := sse.NewReader(resp.Body, sse.ReaderOptions{})
	if _, err := events.Next(); err != nil || resp.ProtoMajor != 2 ||
		resp.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("%v over %s, %v", err, resp.Proto, resp.Header)
	}
	conn, err := grpc.NewClient(at[1], grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, st := (caller{t, conn, service1}).try("ListTasks", `{}`); st.Code() != codes.OK {
		t.Errorf("gRPC: %v", st)
	}
	stop()
	for err = nil; err == nil; {
		_, err = events.Next()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
