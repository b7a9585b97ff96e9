package v1

import (
	"net/http"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/wire/encode"
)

// AppendError appends a JSON-RPC error. Its data are google.rpc details: an ErrorInfo with the
// reason, and further details if there are any.
func (Codec) AppendError(dst []byte, err *a2a.Error, requestID string) []byte {
	message, _, _ := encode.Visible(err)
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(encode.Number(err.Code)), 10)
	dst = rawjson.AppendString(append(dst, `,"message":`...), message)
	return append(encode.Details(append(dst, `,"data":`...), err, requestID), '}')
}

// Status returns the HTTP status of an error, by the table of 1.0.1 or of 1.0.0.
func (c Codec) Status(code a2a.ErrorCode) int {
	if c.OldErrors {
		switch code {
		case a2a.CodeTaskNotCancelable:
			return http.StatusConflict
		case a2a.CodeContentTypeNotSupported:
			return http.StatusUnsupportedMediaType
		case a2a.CodeInvalidAgentResponse:
			return http.StatusBadGateway
		}
	}
	status, _ := encode.Status(code)
	return status
}

// AppendStatus appends {"error": …} with a google.rpc.Status.
func (Codec) AppendStatus(dst []byte, status int, err *a2a.Error, requestID string) []byte {
	return append(encode.RPCStatus(append(dst, `{"error":`...), status, err, requestID), '}')
}
