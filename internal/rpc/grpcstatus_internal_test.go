package rpc

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/a2ad/a2ad/internal/a2a"
)

// TestGRPCCodes is the table of docs/reference/protocol.md.
func TestGRPCCodes(t *testing.T) {
	t.Parallel()
	type row struct{ v03, v1, v100 codes.Code }
	same := func(c codes.Code) row { return row{c, c, c} }
	unsupported := row{codes.Unimplemented, codes.FailedPrecondition, codes.Unimplemented}
	want := map[a2a.ErrorCode]row{
		a2a.CodeInternal:                  same(codes.Internal),
		a2a.CodeParse:                     same(codes.InvalidArgument),
		a2a.CodeInvalidRequest:            same(codes.InvalidArgument),
		a2a.CodeMethodNotFound:            same(codes.Unimplemented),
		a2a.CodeInvalidParams:             same(codes.InvalidArgument),
		a2a.CodeTaskNotFound:              same(codes.NotFound),
		a2a.CodeTaskNotCancelable:         same(codes.FailedPrecondition),
		a2a.CodeTaskTerminal:              {codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented},
		a2a.CodePushNotSupported:          unsupported,
		a2a.CodeUnsupportedOperation:      unsupported,
		a2a.CodeContentTypeNotSupported:   same(codes.InvalidArgument),
		a2a.CodeInvalidAgentResponse:      same(codes.Internal),
		a2a.CodeExtendedCardNotConfigured: same(codes.FailedPrecondition),
		a2a.CodeExtensionRequired:         {codes.InvalidArgument, codes.FailedPrecondition, codes.FailedPrecondition},
		a2a.CodeVersionNotSupported:       {codes.FailedPrecondition, codes.FailedPrecondition, codes.Unimplemented},
		a2a.CodeUnauthenticated:           same(codes.Unauthenticated),
		a2a.CodeForbidden:                 same(codes.PermissionDenied),
		a2a.CodeRateLimited:               same(codes.ResourceExhausted),
		a2a.CodeUnavailable:               same(codes.Unavailable),
		a2a.CodeTooLarge:                  same(codes.ResourceExhausted),
		a2a.CodeMediaType:                 same(codes.InvalidArgument),
	}
	for _, code := range a2a.ErrorCodes() {
		w, ok := want[code]
		got := row{grpcCode(code, "0.3", Profile101), grpcCode(code, "1.0", Profile101),
			grpcCode(code, "1.0", Profile100)}
		if !ok || got != w {
			t.Errorf("%s: got %v, want %v", code.Reason(), got, w)
		}
		s := statusOf(&a2a.Error{Code: code, Message: "secret"}, "1.0", Profile101, "id")
		internal := code == a2a.CodeInternal
		if (s.Message() == "Internal error") != internal || len(s.Details()) == 0 {
			t.Errorf("%s: %v", code.Reason(), s.Proto())
		}
	}
}
