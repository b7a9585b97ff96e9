package encode

import "github.com/a2ad/a2ad/internal/a2a"

// Our own error codes, from the range that JSON-RPC leaves to servers and that A2A does not use.
const (
	numberUnauthenticated = -32041
	numberForbidden       = -32043
)

// Number returns the JSON-RPC error code of a domain error in A2A 1.0. An error without a code in
// the protocol uses the nearest one, and its reason tells them apart.
func Number(code a2a.ErrorCode) int {
	switch code {
	case a2a.CodeParse:
		return -32700
	case a2a.CodeInvalidRequest, a2a.CodeTooLarge:
		return -32600
	case a2a.CodeMethodNotFound:
		return -32601
	case a2a.CodeInvalidParams:
		return -32602
	case a2a.CodeTaskNotFound:
		return -32001
	case a2a.CodeTaskNotCancelable:
		return -32002
	case a2a.CodePushNotSupported:
		return -32003
	case a2a.CodeUnsupportedOperation, a2a.CodeTaskTerminal:
		return -32004
	case a2a.CodeContentTypeNotSupported, a2a.CodeMediaType:
		return -32005
	case a2a.CodeInvalidAgentResponse:
		return -32006
	case a2a.CodeExtendedCardNotConfigured:
		return -32007
	case a2a.CodeExtensionRequired:
		return -32008
	case a2a.CodeVersionNotSupported:
		return -32009
	case a2a.CodeUnauthenticated:
		return numberUnauthenticated
	case a2a.CodeForbidden:
		return numberForbidden
	case a2a.CodeInternal, a2a.CodeRateLimited, a2a.CodeUnavailable:
		return -32603
	}
	return -32603
}

// Visible returns what a caller may see of an error. The text of an internal error, or of one with
// an unknown code, is never sent.
func Visible(err *a2a.Error) (message, field string, internal bool) {
	if err.Code.Reason() == a2a.CodeInternal.Reason() {
		return "Internal error", "", true
	}
	return err.Message, err.Field, false
}
