package http_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/http"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// A run can end before its answer in each of these ways.
func TestEarlyEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		cause  error // with which the context ends; nil: the caller stops reading
		early  bool  // before the answer begins
		reason string
	}{
		{"cancel", executor.ErrCanceled, false, "canceled"},
		{"cancel before the answer", executor.ErrCanceled, true, "canceled"},
		{"deadline", executor.ErrDeadline, false, "deadline"},
		{"shutdown", executor.ErrShutdown, false, "shutdown"},
		{"lost lease", executor.ErrLeaseLost, false, "lease-lost"},
		{"silence", executor.ErrIdle, false, "idle"},
		{"caller", nil, false, "stopped"},
	} {
		begun, closed, told := make(chan struct{}), make(chan struct{}), make(chan string, 2)
		url := agent(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.URL.Path == "/cancel" {
				<-closed // the connection of the run is closed by then
				b, _ := io.ReadAll(r.Body)
				told <- string(rawjson.Get(b, "reason"))
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if !tc.early {
				w.Header().Set("Content-Type", "application/x-ndjson")
				_, _ = io.WriteString(w, chunk+"\n")
				w.(nethttp.Flusher).Flush()
			}
			close(begun)
			<-r.Context().Done()
			close(closed)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		go func() {
			<-begun
			if tc.cause != nil {
				cancel(tc.cause)
			}
		}()
		e, err := http.New(http.Config{URL: url, CancelURL: url + "/cancel", CancelTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range e.Execute(ctx, run()) {
			if last = err; tc.cause == nil {
				break
			}
		}
		if !errors.Is(last, tc.cause) {
			t.Errorf("%s: error %v, want %v", tc.name, last, tc.cause)
		}
		if got := <-told; got != `"`+tc.reason+`"` || len(told) > 0 {
			t.Errorf("%s: the cancel URL got %s, want %q, once", tc.name, got, tc.reason)
		}
	}
}

func TestCancelURLIsBounded(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 2)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	url := agent(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/cancel" {
			asked <- struct{}{}
		} else {
			cancel(executor.ErrCanceled)
		}
		<-r.Context().Done()
	})
	_, err := collect(t, ctx, http.Config{URL: url, CancelURL: url + "/cancel", CancelTimeout: 5 * time.Second},
		run())
	if !errors.Is(err, executor.ErrCanceled) || len(asked) != 1 {
		t.Errorf("error %v, asked %d times", err, len(asked))
	}
}

// The context of the run ends with its last event, as in a worker.
func TestFinishedRunIsNotCanceled(t *testing.T) {
	t.Parallel()
	read, wrote := make(chan struct{}), make(chan error, 1)
	url := agent(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Path == "/cancel" {
			t.Error("the cancel URL got a request")
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, completed+"\n")
		w.(nethttp.Flusher).Flush()
		<-read
		_, err := io.WriteString(w, "the rest\n")
		w.(nethttp.Flusher).Flush()
		wrote <- errors.Join(err, r.Context().Err())
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := http.New(http.Config{URL: url, CancelURL: url + "/cancel", Linger: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range e.Execute(ctx, run()) {
		if err != nil {
			t.Error(err)
		}
		cancel()
		close(read)
	}
	if err := <-wrote; err != nil {
		t.Errorf("the agent was cut off: %v", err)
	}
}

// silent returns the URL of a server that accepts connections and sends nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "http://" + l.Addr().String()
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	hang := func(before string) string {
		return agent(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if before != "" {
				w.Header().Set("Content-Type", "application/x-ndjson")
				_, _ = io.WriteString(w, before)
				w.(nethttp.Flusher).Flush()
			}
			<-r.Context().Done()
		})
	}
	for _, tc := range []struct {
		name   string
		c      http.Config
		events int
		want   string
	}{
		{"first byte", http.Config{URL: hang(""), FirstByteTimeout: 50 * time.Millisecond}, 0,
			"the agent did not answer in time"},
		{"connection", http.Config{URL: strings.Replace(silent(t), "http:", "https:", 1),
			ConnectTimeout: 50 * time.Millisecond}, 0, "the agent cannot be reached in time"},
		{"idle", http.Config{URL: hang(chunk + "\n"), IdleTimeout: 5 * time.Second}, 1,
			"the agent sent nothing for too long"},
		{"linger", http.Config{URL: hang(completed + "\n"), Linger: 50 * time.Millisecond}, 1, ""},
	} {
		events, err := collect(t, t.Context(), tc.c, run())
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tc.want || executor.IsPermanent(err) || len(events) != tc.events {
			t.Errorf("%s: %d events, error %q, want %d, %q", tc.name, len(events), got, tc.events, tc.want)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	var peers []*x509.Certificate
	srv := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		peers = r.TLS.PeerCertificates
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, completed)
	}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	good := tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: srv.TLS.Certificates,
		ServerName: "example.com"}
	if _, err := collect(t, t.Context(), http.Config{URL: srv.URL, TLS: good.Clone()}, run()); err != nil ||
		len(peers) != 1 {
		t.Errorf("error %v, %d certificates", err, len(peers))
	}
	wrong, bare := good.Clone(), good.Clone()
	wrong.ServerName, bare.Certificates = "example.org", nil
	for _, c := range []*tls.Config{wrong, bare, nil} {
		if _, err := collect(t, t.Context(), http.Config{URL: srv.URL, TLS: c}, run()); err == nil ||
			executor.IsPermanent(err) {
			t.Errorf("error %v", err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		c    http.Config
		want string
	}{
		{http.Config{}, "http: the URL must start with http:// or https://"},
		{http.Config{URL: "ftp://x/"}, "http: the URL must start with http:// or https://"},
		{http.Config{URL: "http://u:p@x/"}, "http: the URL must not contain credentials: use a header"},
		{http.Config{URL: "http://x/", CancelURL: "x"}, "http: the URL must start with http:// or https://"},
		{http.Config{URL: "http://x/", Header: nethttp.Header{"a b": {"1"}}}, `http: "a b" is not a header`},
		{http.Config{URL: "http://x/", Header: nethttp.Header{"A": {"secret\r\nB: 1"}}}, `http: "A" is not a header`},
	} {
		if _, err := http.New(tc.c); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
}
