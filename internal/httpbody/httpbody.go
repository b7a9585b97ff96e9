// Package httpbody reads the bodies of HTTP requests under the memory budget.
//
// It promises that a body never takes more memory than its lease has drawn, and that errors are
// ready to be sent to the client. It does not know what a body means: decoding it, and drawing
// memory for that, is the caller's work.
package httpbody

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/budget"
)

// CheckEncoding refuses a compressed body. The error is an *a2a.Error with CodeMediaType.
func CheckEncoding(h http.Header) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return a2a.Errorf(a2a.CodeMediaType, "Content-Encoding %.64q is not supported", enc)
	}
	return nil
}

// CheckType refuses a body whose Content-Type is none of the media types. The error is an
// *a2a.Error with CodeMediaType, and names the first media type.
func CheckType(h http.Header, mediaTypes ...string) error {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || !slices.Contains(mediaTypes, kind) {
		return a2a.Errorf(a2a.CodeMediaType, "the Content-Type must be %s", mediaTypes[0])
	}
	return nil
}

// Read reads the body of r to its end. It draws memory from lease as the body arrives, and fails
// when the budget takes that memory back for other requests.
//
// Errors are *a2a.Error: CodeTooLarge for more than limit bytes, CodeParse for a body that ends
// early, and the refusals of the budget. If the context of r ends while Read waits for memory, the
// error is CodeParse too. If Read leaves the rest of the body unread, it marks the connection to be
// closed. Otherwise the server would have to read the rest before the next request.
func Read(w http.ResponseWriter, r *http.Request, lease *budget.Lease, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(w, limit)
	}
	evict := func() {
		// If the deadline cannot be set, the read timeout of the server ends the read.
		http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // see above
	}
	reader := http.MaxBytesReader(w, r.Body, limit)
	body, err := budget.ReadAll(r.Context(), lease, reader, r.ContentLength, evict)
	if err == nil {
		return body, nil
	}
	var exceeded *http.MaxBytesError
	if errors.As(err, &exceeded) {
		return nil, tooLarge(w, limit)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		closeAfterAnswer(w)
	}
	var refused *a2a.Error
	if errors.As(err, &refused) {
		return nil, err
	}
	return nil, a2a.Error{Code: a2a.CodeParse, Message: "the body could not be read"}.With(err)
}

func tooLarge(w http.ResponseWriter, limit int64) error {
	closeAfterAnswer(w)
	return a2a.Errorf(a2a.CodeTooLarge, "the body is larger than %d bytes", limit)
}

func closeAfterAnswer(w http.ResponseWriter) { w.Header().Set("Connection", "close") }
