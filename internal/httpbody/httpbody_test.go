package httpbody_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
	"github.com/a2ad/a2ad/internal/httpbody"
)

func TestCheckEncodingAndType(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ encoding, contentType, want string }{
		{"", "application/json", ""},
		{"identity", "application/json; charset=utf-8", ""},
		{"", "application/a2a+json", ""},
		{"gzip", "application/json", `Content-Encoding "gzip" is not supported`},
		{"", "text/plain", "the Content-Type must be application/json"},
		{"", "", "the Content-Type must be application/json"},
		{"", "application/json; charset", "the Content-Type must be application/json"},
	} {
		h := http.Header{}
		h.Set("Content-Encoding", tt.encoding)
		h.Set("Content-Type", tt.contentType)
		err := httpbody.CheckEncoding(h)
		if err == nil {
			err = httpbody.CheckType(h, "application/json", "application/a2a+json")
		}
		if tt.want == "" {
			if err != nil {
				t.Errorf("%q %q: %v", tt.encoding, tt.contentType, err)
			}
			continue
		}
		if err == nil || err.Error() != tt.want || a2a.CodeOf(err) != a2a.CodeMediaType {
			t.Errorf("%q %q: got %v, want %s", tt.encoding, tt.contentType, err, tt.want)
		}
	}
}

// result is what Read returned for one request.
type result struct {
	body string
	err  error
	end  bool // the connection ends after the answer
}

// newServer returns the address of a server that reads bodies of up to limit bytes under b, and a
// channel of what it read.
func newServer(t *testing.T, b *budget.Budget, limit int64) (addr string, results <-chan result) {
	t.Helper()
	out := make(chan result, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease := b.Open(budget.Owner{Name: r.URL.Path})
		defer lease.Release()
		body, err := httpbody.Read(w, r, lease, limit)
		out <- result{string(body), err, w.Header().Get("Connection") == "close"}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), out
}

// send writes a raw request and returns the connection.
func send(t *testing.T, addr, raw string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	return c
}

func post(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", path, header, body)
}

func TestReadWithinLimit(t *testing.T) {
	t.Parallel()
	addr, results := newServer(t, nil, 10)
	for _, tt := range []struct{ header, body, want string }{
		{"Content-Length: 10", "0123456789", "0123456789"},
		{"Content-Length: 0", "", ""},
		{"Transfer-Encoding: chunked", "3\r\nabc\r\n7\r\ndefghij\r\n0\r\n\r\n", "abcdefghij"},
	} {
		send(t, addr, post("/", tt.header, tt.body))
		if got := <-results; got != (result{body: tt.want}) {
			t.Errorf("%s: got %+v", tt.header, got)
		}
	}
}

func TestReadRefusesLargeBodies(t *testing.T) {
	t.Parallel()
	addr, results := newServer(t, nil, 10)
	for header, body := range map[string]string{
		"Content-Length: 11":         "", // refused before anything arrives
		"Transfer-Encoding: chunked": "b\r\n0123456789a\r\n0\r\n\r\n",
	} {
		send(t, addr, post("/", header, body))
		got := <-results
		if a2a.CodeOf(got.err) != a2a.CodeTooLarge || !got.end ||
			got.err.Error() != "the body is larger than 10 bytes" {
			t.Errorf("%s: got %+v", header, got)
		}
	}
}

func TestReadReportsTruncatedBody(t *testing.T) {
	t.Parallel()
	addr, results := newServer(t, nil, 10)
	c := send(t, addr, post("/", "Content-Length: 10", "01234"))
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got := <-results
	if a2a.CodeOf(got.err) != a2a.CodeParse || got.err.Error() != "the body could not be read" || got.end {
		t.Errorf("got %+v", got)
	}
}

func TestReadWithoutMemoryClosesConnection(t *testing.T) {
	t.Parallel()
	b := budget.New(budget.Config{Total: budget.Least, Wait: time.Millisecond})
	addr, results := newServer(t, b, 100<<20)
	c := send(t, addr, post("/", "Content-Length: 50000000", ""))
	go io.Copy(c, strings.NewReader(strings.Repeat("x", 50_000_000))) //nolint:errcheck // the server stops reading
	got := <-results
	if code := a2a.CodeOf(got.err); code != a2a.CodeUnavailable && code != a2a.CodeRateLimited || !got.end {
		t.Errorf("got %v, end %v", got.err, got.end)
	}
}

// A body that stalls while others need its memory is evicted: the read ends at once, although the
// client keeps the connection open.
func TestReadEndsWhenBodyIsEvicted(t *testing.T) {
	t.Parallel()
	b := budget.New(budget.Config{Total: budget.Least, Wait: time.Minute, Stall: time.Nanosecond})
	addr, results := newServer(t, b, 100<<20)
	most := strings.Repeat("x", 500_000)
	send(t, addr, post("/stalls", "Content-Length: 600000", most))
	// Bodies in arrival share half of the budget, so the others need what the first one holds.
	for i := range 4 {
		send(t, addr, post(fmt.Sprintf("/other%d", i), "Content-Length: 600000", most))
	}
	got := <-results
	if !budget.Evicted(got.err) || !got.end {
		t.Errorf("got %v, end %v, want an eviction", got.err, got.end)
	}
}
