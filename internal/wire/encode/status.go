package encode

import (
	"net/http"
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Status returns the HTTP status of a domain error and the name of its google.rpc.Code, as in A2A
// 1.0.1.
func Status(code a2a.ErrorCode) (status int, name string) {
	switch code {
	case a2a.CodeParse, a2a.CodeInvalidRequest, a2a.CodeInvalidParams, a2a.CodeContentTypeNotSupported:
		return http.StatusBadRequest, "INVALID_ARGUMENT"
	case a2a.CodeTooLarge:
		return http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT"
	case a2a.CodeMediaType:
		return http.StatusUnsupportedMediaType, "INVALID_ARGUMENT"
	case a2a.CodeMethodNotFound:
		return http.StatusNotFound, "UNIMPLEMENTED"
	case a2a.CodeTaskNotFound:
		return http.StatusNotFound, "NOT_FOUND"
	case a2a.CodeTaskNotCancelable, a2a.CodeTaskTerminal, a2a.CodePushNotSupported, a2a.CodeUnsupportedOperation,
		a2a.CodeExtendedCardNotConfigured, a2a.CodeExtensionRequired, a2a.CodeVersionNotSupported:
		return http.StatusBadRequest, "FAILED_PRECONDITION"
	case a2a.CodeUnauthenticated:
		return http.StatusUnauthorized, "UNAUTHENTICATED"
	case a2a.CodeForbidden:
		return http.StatusForbidden, "PERMISSION_DENIED"
	case a2a.CodeRateLimited:
		return http.StatusTooManyRequests, "RESOURCE_EXHAUSTED"
	case a2a.CodeUnavailable:
		return http.StatusServiceUnavailable, "UNAVAILABLE"
	case a2a.CodeInternal, a2a.CodeInvalidAgentResponse:
		return http.StatusInternalServerError, "INTERNAL"
	}
	return http.StatusInternalServerError, "INTERNAL"
}

// RPCStatus appends the members of a google.rpc.Status in the form of Google's HTTP APIs, for a
// member "error".
func RPCStatus(dst []byte, status int, err *a2a.Error, requestID string) []byte {
	message, _, _ := Visible(err)
	_, name := Status(err.Code)
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(status), 10)
	dst = append(append(append(dst, `,"status":"`...), name...), '"')
	dst = rawjson.AppendString(append(dst, `,"message":`...), message)
	return append(Details(append(dst, `,"details":`...), err, requestID), '}')
}

// Details appends the details of an error as a list of google.rpc messages. They are an ErrorInfo with the
// reason, the member with the error, and for an internal error the request id.
func Details(dst []byte, err *a2a.Error, requestID string) []byte {
	message, field, internal := Visible(err)
	dst = append(dst, `[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":`...)
	dst = rawjson.AppendString(dst, err.Code.Reason())
	dst = append(dst, `,"domain":"a2a-protocol.org"}`...)
	if field != "" {
		dst = append(dst, `,{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":`...)
		dst = rawjson.AppendString(dst, field)
		dst = rawjson.AppendString(append(dst, `,"description":`...), message)
		dst = append(dst, "}]}"...)
	}
	if internal && requestID != "" {
		dst = append(dst, `,{"@type":"type.googleapis.com/google.rpc.RequestInfo","requestId":`...)
		dst = append(rawjson.AppendString(dst, requestID), '}')
	}
	return append(dst, ']')
}
