package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// inProcess is a transport that calls a handler. An answer may be a stream: it is read while the handler writes it.
type inProcess struct{ http.Handler }

// RoundTrip calls the handler and returns when it has begun to answer. Closing the body of the answer ends the request
// and waits for the handler.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	from, to := io.Pipe()
	w := &localAnswer{header: http.Header{}, to: to, begun: make(chan struct{})}
	body := &localBody{PipeReader: from, cancel: cancel}
	in := r.WithContext(ctx)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body.handler.Go(func() {
		p.ServeHTTP(w, in)
		in.Body.Close()
		w.WriteHeader(http.StatusOK) // unless it has written one
		to.Close()
	})
	<-w.begun
	if r.Context().Err() != nil {
		body.Close()
		return nil, context.Cause(r.Context())
	}
	return &http.Response{
		StatusCode: w.status, Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Header: w.sent, Body: body, ContentLength: -1, Request: r,
	}, nil
}

// localBody is the body of an answer in this process.
type localBody struct {
	*io.PipeReader
	cancel  context.CancelFunc
	handler sync.WaitGroup
}

var errBodyClosed = errors.New("the reader of the answer is gone")

// Close ends the request, and waits for its handler.
func (b *localBody) Close() error {
	b.cancel()
	b.CloseWithError(errBodyClosed)
	b.handler.Wait()
	return nil
}

// localAnswer passes an answer on. Only the handler uses it; after begun is closed, others read sent and status.
type localAnswer struct {
	header http.Header
	to     *io.PipeWriter

	begun  chan struct{} // closed when the headers are complete
	sent   http.Header
	status int
}

func (w *localAnswer) Header() http.Header { return w.header }

func (w *localAnswer) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	}
}

func (w *localAnswer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.to.Write(b)
}

// Flush does nothing: what was written is read at once.
func (w *localAnswer) Flush() {}
