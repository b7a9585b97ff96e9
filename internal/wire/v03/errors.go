package v03

import (
	"strconv"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/rawjson"
)

// Numbers of our own, from the range that JSON-RPC leaves to servers and outside the
// one that A2A uses.
const (
	numberUnauthenticated = -32041
	numberForbidden       = -32043
)

// number returns the JSON-RPC error code of a domain error. What no code of 0.3.0 means
// goes under the nearest one and is told apart by data.reason.
func number(code a2a.ErrorCode) int {
	switch code {
	case a2a.CodeParse:
		return -32700
	case a2a.CodeInvalidRequest, a2a.CodeTooLarge, a2a.CodeExtensionRequired:
		return -32600
	case a2a.CodeMethodNotFound:
		return -32601
	case a2a.CodeInvalidParams, a2a.CodeTaskTerminal:
		return -32602
	case a2a.CodeTaskNotFound:
		return -32001
	case a2a.CodeTaskNotCancelable:
		return -32002
	case a2a.CodePushNotSupported:
		return -32003
	case a2a.CodeUnsupportedOperation:
		return -32004
	case a2a.CodeContentTypeNotSupported, a2a.CodeMediaType:
		return -32005
	case a2a.CodeInvalidAgentResponse:
		return -32006
	case a2a.CodeExtendedCardNotConfigured:
		return -32007
	case a2a.CodeVersionNotSupported:
		return -32009 // of 1.0: 0.3 has no versions to refuse
	case a2a.CodeUnauthenticated:
		return numberUnauthenticated
	case a2a.CodeForbidden:
		return numberForbidden
	case a2a.CodeInternal, a2a.CodeRateLimited, a2a.CodeUnavailable:
		return -32603
	}
	return -32603
}

// AppendError appends a JSON-RPC error whose data is an object with the reason, and
// the field to blame if there is one. The text of an internal error never goes out.
func (Codec) AppendError(dst []byte, err *a2a.Error, requestID string) []byte {
	internal := err.Code.Reason() == a2a.CodeInternal.Reason() // and any code that is not known
	message, field := err.Message, err.Field
	if internal {
		message = "Internal error"
	}
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(number(err.Code)), 10)
	dst = rawjson.AppendString(append(dst, `,"message":`...), message)
	dst = rawjson.AppendString(append(dst, `,"data":{"reason":`...), err.Code.Reason())
	if field != "" && !internal {
		dst = rawjson.AppendString(append(dst, `,"field":`...), field)
	}
	if requestID != "" && internal {
		dst = rawjson.AppendString(append(dst, `,"requestId":`...), requestID)
	}
	return append(dst, "}}"...)
}
