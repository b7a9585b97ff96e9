package http_test

import (
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/executor"
	"github.com/a2ad/a2ad/internal/executor/http"
)

// An agent that did not begin is unreachable. One that may have read the request is not: the request may be why it
// died.
func TestWhatIsUnreachable(t *testing.T) {
	t.Parallel()
	answers := func(code int) string {
		return agent(t, func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(code) })
	}
	secure := httptest.NewTLSServer(nil)
	t.Cleanup(secure.Close)
	hangs := agent(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	for _, tc := range []struct {
		name string
		c    http.Config
		want bool
	}{
		{"refused", http.Config{URL: closedPort}, true},
		{"no such host", http.Config{URL: "http://a2ad-agent.invalid/"}, true},
		{"TLS handshake", http.Config{URL: secure.URL}, true},
		{"connect timeout", http.Config{
			URL: strings.Replace(silent(t), "http:", "https:", 1), ConnectTimeout: 50 * time.Millisecond,
		}, true},
		{"no first byte in time", http.Config{URL: hangs, FirstByteTimeout: 50 * time.Millisecond}, true},
		{"closed before the request was read", http.Config{URL: hangsUp(t)}, true},
		{"502", http.Config{URL: answers(502)}, true},
		{"503", http.Config{URL: answers(503)}, true},
		{"504", http.Config{URL: answers(504)}, true},
		{"closed after the request was read", http.Config{URL: raw(t, "", false)}, false},
		{"reset after the request was read", http.Config{URL: raw(t, "", true)}, false},
		{"cut in the answer", http.Config{URL: raw(t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", false)}, false},
		{"500", http.Config{URL: answers(500)}, false},
		{"429", http.Config{URL: answers(429)}, false},
		{"400", http.Config{URL: answers(400)}, false},
	} {
		r := run()
		if tc.want {
			r.Messages = []a2a.Message{large()}
		}
		_, err := collect(t, t.Context(), tc.c, r)
		if err == nil || executor.IsUnreachable(err) != tc.want {
			t.Errorf("%s: unreachable is %v of %v, want %v", tc.name, executor.IsUnreachable(err), err, tc.want)
		}
	}
}

// large is a message that does not fit into the buffers of a connection.
func large() a2a.Message {
	text := strings.Repeat("x", 16<<20)
	return a2a.Message{ID: "m", Role: a2a.RoleUser, Parts: []a2a.Part{{Kind: a2a.PartText, Text: text}}}
}

// closedPort is a URL where nothing listens. A port that was free a moment ago may be that of another test now.
const closedPort = "http://127.0.0.1:1"

// hangsUp is an agent that closes each connection when the first bytes of a request have arrived.
func hangsUp(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}
