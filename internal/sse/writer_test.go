package sse_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2ad/a2ad/internal/sse"
)

func TestWriterWritesOneBlockPerCall(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	w := sse.NewWriter(rec, 0)
	for _, err := range []error{
		w.Retry(1500 * time.Millisecond),
		w.Event("1-00c0ffee", []byte(`{"a":1}`)),
		w.Event("", []byte(`{"id":7,"result":`), []byte(`{"b":2}`), []byte(`}`)),
		w.Event("2-00c0ffee", []byte("{\n  \"a\":\r\n 1}")),
		w.Event("3-00c0ffee"),
		w.Comment("ping"),
		w.Comment("two\nlines\r"),
		w.Retry(-1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "retry: 1500\n\n" +
		"id: 1-00c0ffee\ndata: {\"a\":1}\n\n" +
		"data: {\"id\":7,\"result\":{\"b\":2}}\n\n" +
		"id: 2-00c0ffee\ndata: {   \"a\":   1}\n\n" +
		"id: 3-00c0ffee\ndata: \n\n" +
		": ping\n\n" +
		": two lines \n\n" +
		"retry: 0\n\n"
	if got := rec.Body.String(); got != want {
		t.Errorf("stream:\n got %q\nwant %q", got, want)
	}
}

func TestHeadersAreSentWithTheFirstBlock(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	rec.Header().Set("Content-Length", "12")
	w := sse.NewWriter(rec, 0)
	if w.Started() || rec.Flushed || rec.Header().Get("Content-Type") != "" {
		t.Error("the response began before the first call")
	}
	if err := w.Event("bad\nid", nil); err == nil || w.Started() {
		t.Errorf("Event with a line break in its id: %v, started %t", err, w.Started())
	}
	if err := w.Comment("ok"); err != nil {
		t.Fatal(err)
	}
	res := rec.Result()
	for name, want := range map[string]string{
		"Content-Type":      "text/event-stream",
		"Cache-Control":     "no-store, no-transform",
		"X-Accel-Buffering": "no",
		"Content-Length":    "",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if !w.Started() || !rec.Flushed || res.StatusCode != http.StatusOK {
		t.Errorf("started %t, flushed %t, status %d", w.Started(), rec.Flushed, res.StatusCode)
	}
}

func TestWriterRefusesIDsThatBreakTheStream(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	w := sse.NewWriter(rec, 0)
	for _, id := range []string{"1\ndata: forged", "1\r", "1\x00"} {
		if err := w.Event(id, []byte("x")); err == nil {
			t.Errorf("id %q was written", id)
		}
	}
	if err := w.Event("1", []byte("x")); err != nil {
		t.Errorf("a refused id broke the stream: %v", err)
	}
	if got, want := rec.Body.String(), "id: 1\ndata: x\n\n"; got != want {
		t.Errorf("stream = %q, want %q", got, want)
	}
}

// brokenResponse fails to write.
type brokenResponse struct {
	http.ResponseWriter
	err    error
	writes int
}

func (b *brokenResponse) Write([]byte) (int, error) { b.writes++; return 0, b.err }

func TestWriterKeepsItsFirstError(t *testing.T) {
	t.Parallel()
	broken := &brokenResponse{ResponseWriter: httptest.NewRecorder(), err: io.ErrClosedPipe}
	w := sse.NewWriter(broken, 0)
	for _, err := range []error{w.Event("1", []byte("x")), w.Comment("x"), w.Retry(0), w.Event("2", nil)} {
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("err = %v, want %v", err, io.ErrClosedPipe)
		}
	}
	if broken.writes != 1 {
		t.Errorf("%d writes, want one", broken.writes)
	}
}

func TestWriterNeedsAFlusher(t *testing.T) {
	t.Parallel()
	rec := struct{ http.ResponseWriter }{httptest.NewRecorder()} // hides Flush
	if err := sse.NewWriter(rec, 0).Comment("x"); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("err = %v, want %v", err, http.ErrNotSupported)
	}
}

// pipes is a listener whose connections are net.Pipes, so that a whole HTTP exchange
// runs on the clock of a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// serve runs handler for one GET over HTTP/1.1 or 2 and gives its response to the test.
func serve(t *testing.T, protocol int, handler http.HandlerFunc, client func(*http.Response)) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(protocol == 1)
	protocols.SetUnencryptedHTTP2(protocol == 2)
	p := &pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
	handled := make(chan struct{})
	srv := &http.Server{
		WriteTimeout: time.Second, Protocols: &protocols,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { defer close(handled); handler(w, r) }),
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(p) }()
	tr := &http.Transport{DialContext: p.dial, Protocols: &protocols}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://pipe/", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	client(res)
	<-handled
	_ = res.Body.Close()
	tr.CloseIdleConnections()
	_ = srv.Close()
	<-served
}

// The server's WriteTimeout must not cut a stream, nor may the Writer's own deadline
// pass while the stream is idle: HTTP/2 would reset it.
func TestIdleStreamOutlivesItsDeadlines(t *testing.T) {
	t.Parallel()
	for protocol := 1; protocol <= 2; protocol++ {
		synctest.Test(t, func(t *testing.T) {
			serve(t, protocol, func(rw http.ResponseWriter, _ *http.Request) {
				w := sse.NewWriter(rw, 10*time.Second)
				for range 5 {
					if err := w.Event("1-00c0ffee", []byte("x")); err != nil {
						t.Errorf("HTTP/%d: %v", protocol, err)
					}
					time.Sleep(time.Minute)
				}
			}, func(res *http.Response) {
				got, err := readAll(sse.NewReader(res.Body, sse.ReaderOptions{}))
				if len(got) != 5 || !errors.Is(err, io.EOF) {
					t.Errorf("HTTP/%d: %d events, %v, want 5 and EOF", protocol, len(got), err)
				}
			})
		})
	}
}

func TestClientThatDoesNotReadIsCutOffAtTheDeadline(t *testing.T) {
	t.Parallel()
	for protocol := 1; protocol <= 2; protocol++ {
		synctest.Test(t, func(t *testing.T) {
			var took time.Duration
			var err error
			serve(t, protocol, func(rw http.ResponseWriter, _ *http.Request) {
				w := sse.NewWriter(rw, 10*time.Second)
				if err := w.Comment("ok"); err != nil {
					t.Error(err)
				}
				start := time.Now()
				for err == nil && time.Since(start) < time.Minute {
					err = w.Event("1-00c0ffee", bytes.Repeat([]byte("x"), 1<<20))
				}
				took = time.Since(start)
			}, func(*http.Response) { time.Sleep(time.Minute) })
			if err == nil || took != 10*time.Second {
				t.Errorf("HTTP/%d: cut off after %v with %v, want 10s", protocol, took, err)
			}
			if protocol == 1 && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("err = %v, want %v", err, os.ErrDeadlineExceeded)
			}
		})
	}
}

func FuzzWriter(f *testing.F) {
	f.Add("1-00c0ffee", []byte(`{"a":1}`), "ping")
	f.Add("", []byte("a\r\nb\rc\n"), "x\ndata: forged")
	f.Add("1\n", []byte(" x"), "\xef\xbb\xbf")
	f.Add("  7", bytes.Repeat([]byte("xyz\n"), 3000), "\x00")
	f.Fuzz(func(t *testing.T, id string, data []byte, comment string) {
		flat := strings.NewReplacer("\r", " ", "\n", " ")
		rec := httptest.NewRecorder()
		w := sse.NewWriter(rec, -1)
		err := w.Event(id, data[:len(data)/2], data[len(data)/2:])
		if bad := strings.ContainsAny(id, "\r\n\x00"); bad != (err != nil) {
			t.Fatalf("Event(%q) = %v", id, err)
		} else if bad {
			id = "" // refused: the stream goes on without it
			err = w.Event(id, data)
		}
		if err = errors.Join(err, w.Comment(comment), w.Event("", nil)); err != nil {
			t.Fatal(err)
		}
		r := sse.NewReader(rec.Body, sse.ReaderOptions{Comments: true})
		for i, want := range []sse.Event{
			{ID: id, Type: "message", Data: []byte(flat.Replace(string(data)))},
			{Comment: true, Data: []byte(flat.Replace(comment))},
			{ID: id, Type: "message", Data: []byte{}},
		} {
			got, err := r.Next()
			if err != nil || got.ID != want.ID || got.Type != want.Type || got.Comment != want.Comment ||
				!bytes.Equal(got.Data, want.Data) {
				t.Fatalf("block %d: got %+v, %v, want %+v", i, got, err, want)
			}
		}
		if ev, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("one block too many: %+v, %v", ev, err)
		}
	})
}

// sink is a response that costs nothing itself.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header              { return s.header }
func (*sink) WriteHeader(int)                    {}
func (*sink) Write(p []byte) (int, error)        { return len(p), nil }
func (*sink) FlushError() error                  { return nil }
func (*sink) SetWriteDeadline(_ time.Time) error { return nil }

func BenchmarkEvent(b *testing.B) {
	for _, size := range []int{500, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			w := sse.NewWriter(&sink{header: http.Header{}}, 0)
			data := bytes.Repeat([]byte("x"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Event("17-00c0ffee", data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return "1MiB"
	}
	return "500B"
}

// BenchmarkEventOverTCP includes what net/http and the kernel cost.
func BenchmarkEventOverTCP(b *testing.B) {
	data := bytes.Repeat([]byte("x"), 500)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w := sse.NewWriter(rw, 0)
		for b.Loop() {
			if err := w.Event("17-00c0ffee", data); err != nil {
				b.Error(err)
				return
			}
		}
	}))
	defer srv.Close()
	b.ReportAllocs()
	res, err := http.Get(srv.URL)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
}
