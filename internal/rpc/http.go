package rpc

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/auth"
	"github.com/a2ad/a2ad/internal/engine"
	"github.com/a2ad/a2ad/internal/httpbody"
	"github.com/a2ad/a2ad/internal/sse"
)

// exchange is an HTTP request and its answer: what the bindings over HTTP have in common.
type exchange struct {
	s   *Server
	w   http.ResponseWriter
	r   *http.Request
	rec *record
}

// write sends an answer that is no stream. The write timeout starts now, however long the request
// took.
func (x *exchange) write(status int, kind string, body []byte) {
	err := http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.s.cfg.WriteTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) && x.rec.err == nil {
		x.rec.err = err // the client disconnected
	}
	h := x.w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	if _, err := x.w.Write(body); err != nil && x.rec.err == nil {
		x.rec.err = err // the client disconnected
	}
}

// writePieces sends an answer that is made in pieces. After a failed write it makes no more.
func (x *exchange) writePieces(status int, kind string, pieces iter.Seq[[]byte]) {
	if err := http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.s.cfg.WriteTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) && x.rec.err == nil {
		x.rec.err = err // the client disconnected
	}
	x.w.Header().Set("Content-Type", kind)
	x.w.WriteHeader(status)
	for p := range pieces {
		if _, err := x.w.Write(p); err != nil {
			if x.rec.err == nil {
				x.rec.err = err // the client disconnected, and net/http closes the connection
			}
			return
		}
	}
}

// splicing is a front that can send an answer in pieces.
type splicing interface {
	splice(result iter.Seq[[]byte])
}

// stream begins an event stream. Each item stands between prefix and suffix, and refusal writes an
// error as an event.
func (x *exchange) stream(prefix, suffix []byte, refusal func(*a2a.Error) []byte) (items, error) {
	// The request has been read. From here on only writes have deadlines, each its own.
	err := http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	return &eventStream{sse.NewWriter(x.w, x.s.cfg.SSEWriteTimeout), prefix, suffix, refusal, x.s.cfg.SSERetry}, nil
}

// eventStream sends items as server-sent events.
type eventStream struct {
	out            *sse.Writer
	prefix, suffix []byte
	refusal        func(*a2a.Error) []byte
	retry          time.Duration
}

func (s *eventStream) item(id string, result []byte) error {
	return s.out.Event(id, s.prefix, result, s.suffix)
}

func (s *eventStream) gap() error { return s.out.Comment("gap") }

func (s *eventStream) ping() error { return s.out.Comment("ping") }

// end tells the client of a draining server when to come back. For other reasons the missing last
// event tells the client to reconnect, except after bad credentials, which get an error event:
// reconnecting with them would be useless.
func (s *eventStream) end(why error) error {
	var refused *auth.Error
	if errors.As(why, &refused) {
		return s.out.Event("", s.refusal(asRefusal(refused)))
	}
	if !errors.Is(why, engine.ErrDraining) {
		return nil
	}
	if err := s.out.Retry(s.retry); err != nil {
		return err
	}
	return s.out.Comment("draining")
}

// asRefusal returns the error to show for bad credentials.
func asRefusal(refused *auth.Error) *a2a.Error {
	var e *a2a.Error
	errors.As(refused, &e)
	return e
}

// checkType refuses a body that is not plain JSON according to its headers.
func (x *exchange) checkType() error {
	if err := httpbody.CheckEncoding(x.r.Header); err != nil {
		return err
	}
	return httpbody.CheckType(x.r.Header, jsonType, a2aType)
}

// The media types of requests and answers.
const (
	jsonType = "application/json"
	a2aType  = "application/a2a+json"
)

func (x *exchange) readBody() ([]byte, error) {
	return httpbody.Read(x.w, x.r, x.rec.mem, x.s.cfg.MaxBody)
}

// wantsStream reports whether the client accepts an event stream by name, and not JSON. The
// official 0.3 clients do so where they expect a stream (the Python one adds */*). They cannot read
// an error in plain JSON then, and report an empty or broken stream.
func wantsStream(r *http.Request) bool {
	stream := false
	for _, line := range r.Header.Values("Accept") {
		for kind := range strings.SplitSeq(line, ",") {
			kind, _, _ = strings.Cut(kind, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "text/event-stream":
				stream = true
			case "application/json":
				return false
			}
		}
	}
	return stream
}

// writePlainError answers a request that belongs to no binding.
func (s *Server) writePlainError(w http.ResponseWriter, status int) {
	writePlain(w, status, http.StatusText(status))
}

// writePlain is writePlainError with a message, which must need no escapes.
func writePlain(w http.ResponseWriter, status int, message string) {
	body := `{"error":{"code":` + strconv.Itoa(status) + `,"message":"` + message + `"}}`
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	io.WriteString(w, body) //nolint:errcheck // the client disconnected
}
