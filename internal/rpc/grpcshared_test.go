package rpc_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/rpc"
	v1 "github.com/a2ad/a2ad/internal/wire/v1"
)

const sharedSuite = "TestGRPCOnTheSharedPort"

// onSharedPort reports whether a test of gRPC runs on the port of the API.
func onSharedPort(t *testing.T) bool { return strings.HasPrefix(t.Name(), sharedSuite+"/") }

// TestGRPCOnTheSharedPort runs the gRPC tests on the port of the API.
func TestGRPCOnTheSharedPort(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"bindings":              TestBindingsAnswerAlike,
		"methods":               TestGRPCMethods,
		"errors":                TestGRPCErrors,
		"fields":                TestGRPCErrorNamesTheField,
		"versions":              TestGRPCVersions,
		"resume":                TestGRPCResume,
		"idempotency":           TestGRPCIdempotency,
		"drain":                 TestGRPCDrain,
		"health and reflection": TestGRPCHealthAndReflection,
		"limits":                TestGRPCLimits,
		"malformed":             TestGRPCMalformed,
		"callers":               TestGRPCCallers,
		"tenants":               TestGRPCTenants,
		"slow reader":           TestGRPCSlowReader,
		"client disconnects":    TestGRPCClientDisconnects,
	} {
		t.Run(name, test)
	}
}

// serveShared serves the API and gRPC of a site on one port until stop, which returns the error of
// Serve.
func serveShared(t *testing.T, s *site) (address string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.rpc.Share(s.rpc.NewGRPC(v1.Codec{}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.rpc.Serve(ctx, l, 5*time.Minute) }()
	t.Cleanup(cancel)
	return l.Addr().String(), func() error { cancel(); return <-ended }
}

const listTasks = "/lf.a2a.v1.A2AService/ListTasks"

// wireAnswer is an answer with its HTTP headers and trailers.
type wireAnswer struct {
	status, proto   int
	header, trailer http.Header
	body            string
}

// exchangeOn sends one JSON request or, with grpc, one call, and returns its answer.
func exchangeOn(t *testing.T, h *http.Client, base string, grpc bool, header http.Header) (got wireAnswer) {
	t.Helper()
	method, path, body := http.MethodGet, "/tasks", []byte(nil)
	if grpc {
		method, path, body = http.MethodPost, listTasks, make([]byte, 5) // a message without fields
	}
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Set("A2A-Version", "1.0"); grpc {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return wireAnswer{resp.StatusCode, resp.ProtoMajor, resp.Header, resp.Trailer, string(all)}
}

// TestSharedPortTellsCallsApart: JSON requests and gRPC calls share one connection, as a proxy
// sends them, with and without TLS.
func TestSharedPortTellsCallsApart(t *testing.T) {
	t.Parallel()
	issuer := httptest.NewTLSServer(http.NotFoundHandler())
	defer issuer.Close()
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	for _, secure := range []bool{false, true} {
		s := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) {
			if secure {
				// authentication needs the state of the connection and the address of the client
				c.Authenticator = overTLS{}
				c.TLS = &tls.Config{Certificates: issuer.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
			}
		})
		at, stop := serveShared(t, s)
		base := map[bool]string{false: "http://", true: "https://"}[secure] + at
		dials := 0
		two := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: new(http.Protocols),
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials++
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}}
		two.Protocols.SetHTTP2(true)
		two.Protocols.SetUnencryptedHTTP2(!secure)
		one := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: new(http.Protocols)}
		one.Protocols.SetHTTP1(true)
		for range 2 {
			for _, call := range []bool{true, false} {
				got := exchangeOn(t, &http.Client{Transport: two}, base, call, nil)
				if call && (got.header.Get("Content-Type") != "application/grpc" ||
					got.trailer.Get("Grpc-Status") != "0" || len(got.body) < 5) ||
					!call && !strings.HasPrefix(got.body, `{"tasks":`) || got.proto != 2 ||
					got.status != http.StatusOK {
					t.Errorf("%s: call %v: %+v", base, call, got)
				}
			}
		}
		if dials != 1 {
			t.Errorf("%s: %d connections", base, dials)
		}
		if got := exchangeOn(t, &http.Client{Transport: one}, base, false, nil); got.proto != 1 ||
			!strings.HasPrefix(got.body, `{"tasks":`) {
			t.Errorf("HTTP/1.1: %+v", got)
		}
		if got := exchangeOn(t, &http.Client{Transport: one}, base, true, nil); got.status/100 != 4 {
			t.Errorf("a call over HTTP/1.1: %+v", got)
		}
		if !secure {
			got := exchangeOn(t, &http.Client{Transport: two}, base, true,
				http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}})
			if got.status != http.StatusForbidden {
				t.Errorf("a call of a foreign page: %+v", got)
			}
		}
		two.CloseIdleConnections()
		one.CloseIdleConnections()
		if secure {
			conn, err := grpc.NewClient(at,
				grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, st := (caller{t, conn, service1}).try("ListTasks", `{}`); st.Code() != codes.OK {
				t.Errorf("the gRPC client: got %v", st)
			}
			conn.Close()
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestSharedPortBoundsACall: gRPC reads ahead of its handler and keeps everything, so the server
// stops reading at the size limit. This client sends forever and reads no answer.
func TestSharedPortBoundsACall(t *testing.T) {
	t.Parallel()
	s := newSiteWith(t, func(_ *engine.Config, c *rpc.Config) { c.MaxBody, c.SSEWriteTimeout = 64<<10, 2*time.Second })
	at, stop := serveShared(t, s)
	two := &http.Transport{Protocols: new(http.Protocols)}
	two.Protocols.SetUnencryptedHTTP2(true)
	defer two.CloseIdleConnections()
	body, feed := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+at+"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	sent := make(chan int, 1)
	go func() {
		const listServices = "\x00\x00\x00\x00\x03\x3a\x01*"
		var err error
		n, chunk := 0, []byte(strings.Repeat(listServices, 2<<10))
		for err == nil && n < 64<<20 {
			_, err = feed.Write(chunk)
			n += len(chunk)
		}
		feed.CloseWithError(io.ErrUnexpectedEOF)
		sent <- n
	}()
	resp, err := (&http.Client{Transport: two}).Do(req)
	if n := <-sent; n > 16<<20 {
		t.Errorf("the server was still reading after %d bytes", n)
	}
	if err == nil {
		resp.Body.Close()
	}
	body.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestSharedPortDrains: a stopping server accepts no new connections and answers the call that is
// waiting. It does not wait for health watches.
func TestSharedPortDrains(t *testing.T) {
	t.Parallel()
	drain, begin := context.WithCancel(context.WithoutCancel(t.Context()))
	defer begin()
	s := newSiteWith(t, func(e *engine.Config, c *rpc.Config) { c.Drain, e.Drain = drain, drain })
	at, stop := serveShared(t, s)
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(),
		&grpc_health_v1.HealthCheckRequest{Service: service1})
	if err != nil {
		t.Fatal(err)
	}
	if now, err := watch.Recv(); err != nil || now.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", now, err)
	}
	c := caller{t, conn, service1}
	stream := c.follow(t.Context(), "SendStreamingMessage", grpcDialects[1].send("", `{"op":"hang"}`, true))
	stream.next()
	begin()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if stream.all(); stream.end.Code() != codes.Unavailable {
		t.Errorf("the stream ended with %v", stream.end)
	}
	if now, err := watch.Recv(); err != nil || now.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("the health watch got %v, %v", now, err)
	}
	if _, err := net.Dial("tcp", at); err == nil {
		t.Error("the port is still open")
	}
}
