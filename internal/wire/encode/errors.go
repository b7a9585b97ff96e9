package encode

import "github.com/a2ad/a2ad/internal/a2a"

// Numbers of our own, from the range that JSON-RPC leaves to servers and outside the
// one that A2A uses.
const (
	numberUnauthenticated = -32041
	numberForbidden       = -32043
)

// Number returns the JSON-RPC error code of a domain error, as A2A 1.0 has it. What no
// code of the protocol means goes under the nearest one and is told apart by its reason.
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

// Visible returns what a caller may know of an error: the text of an internal one, and of
// any whose code is not known, never goes out.
func Visible(err *a2a.Error) (message, field string, internal bool) {
	if err.Code.Reason() == a2a.CodeInternal.Reason() {
		return "Internal error", "", true
	}
	return err.Message, err.Field, false
}
